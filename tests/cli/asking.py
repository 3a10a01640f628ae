"""Asking the command as a user does, within this process: what it answers, what it says, how it ends.

An exception that escapes is not caught here, so that the test which made it shows where it comes from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from zerosim.cli import main

ROOT = Path(__file__).parents[2]
ASKED = sorted((ROOT / "scenarios").rglob("*.yaml"))
SWEEPS = [path for path in ASKED if "\naxes:" in path.read_text(encoding="utf-8")]
SCENARIOS = [path for path in ASKED if path not in SWEEPS]
PROBLEM = re.compile(r"[^:]+(:\d+:\d+)?: (\S.*: )?found .+; expected .+")

SMALL = """\
title: small
topology: dgx-a100-80
model: {layers: 2, hidden: 256, heads: 4, vocab: 1000}
training: {sequence_length: 128, gradient_accumulation_steps: 2, attention: flash}
strategy:
  deepspeed: {bf16: {enabled: true}, zero_optimization: {stage: 2, reduce_bucket_size: 500000}}
"""


class Answer(NamedTuple):
    """How a command ended, and what stands on its two outputs."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on standard output; Infinity and NaN, which JSON does not have, are refused."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out, parse_constant=_refuse)

    def refused(self) -> list[str]:
        """The problems, one a line: exit code 2, nothing on standard output."""
        assert (self.code, self.out) == (2, ""), self
        lines = self.err.splitlines()
        assert lines
        for line in lines:
            assert PROBLEM.fullmatch(line), line
        return lines


def ask(*words: str | Path) -> Answer:
    """`zerosim WORDS`."""
    result = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    return Answer(result.exit_code, result.stdout, result.stderr)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")
