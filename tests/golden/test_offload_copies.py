"""The copies of stages 1 and 2 with the optimizer in host memory are those that DeepSpeed asked for, in their places
between collectives, norms and casts.

With ZEROSIM_SHARED naming the collected recordings. These ran on CPUs, where a copy to the host is one between tensors:
the offload's are those asked for without blocking; which way they go the recordings cannot tell.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from zerosim.spec.recording import STEADY, read_recording
from zerosim.spec.recording_events import DTYPES, KINDS
from zerosim.step import DTYPE_BYTES, Collective, HostCompute, Pass, Step, Transfer
from zerosim.strategies.deepspeed import NORM_BYTES
from zerosim.studies.conform import program

SHARED = os.environ.get("ZEROSIM_SHARED")
RECORDED = re.compile(r"ds[12]_.*offload(?!.*__deepspeed).*")
PATHS = sorted(Path(SHARED, "golden", "recordings").glob("*.json")) if SHARED else []
NAMED = {path.stem: path for path in PATHS if RECORDED.fullmatch(path.stem)}

pytestmark = pytest.mark.skipif(not SHARED, reason="ZEROSIM_SHARED is not set: no recordings of real training steps")


class Moved(NamedTuple):
    """An operation on `elements`; of `size` bytes each where it is a copy."""

    kind: str
    elements: float
    size: int
    micro_batch: int | None  # None in the optimizer step


def recorded(path: Path) -> Iterator[Moved]:
    for event in json.loads(path.read_text(encoding="utf-8"))["steps"][STEADY]["events"]:
        kind = kind_of(event)
        if kind:
            size = event["bytes"] // event["nin"] if kind == "copy" else 0
            elements = max(event["nin"], event.get("nout", 0))
            yield Moved(kind, elements, size, None if event["ph"] == "step" else event["mb"])


def kind_of(event: dict[str, Any]) -> str:
    """What an event is to the program; `` for markers, what fills buckets, and the loss."""
    operation, dtypes = event.get("op", ""), event.get("dtype", "").split(">")
    if operation in KINDS:
        return str(operation)
    if operation == "copy" and event["asyn"]:
        return "copy"
    if operation == "copy" and event["ph"] == "step":
        return "staging"
    if operation == "to_copy" and dtypes[1] == "f64":
        return "norm"
    return "cast" if operation == "to_copy" and DTYPES[dtypes[1]] == "fp32" else ""


def simulated(step: Step, width: int) -> Iterator[Moved]:
    for op in step.ops:
        micro_batch, work = None if op.phase == "optimizer" else op.micro_batch, op.work
        if isinstance(work, Collective):
            yield Moved(work.kind, work.elements, 0, micro_batch)
        elif isinstance(work, Transfer):
            size = 4 if op.name == "copy gradient to host" else width
            yield Moved("copy", work.bytes / size, size, micro_batch)
        elif isinstance(work, HostCompute) and op.name.startswith(("cast", "copy")):
            yield Moved("staging", work.elements, 0, micro_batch)
        elif isinstance(work, Pass) and op.name == "gradient norm":
            yield Moved("norm", work.hbm_bytes / NORM_BYTES, 0, micro_batch)
        elif isinstance(work, Pass) and op.name == "cast gradient to fp32":
            yield Moved("cast", work.hbm_bytes / (width + 4), 0, micro_batch)


@pytest.mark.parametrize("name", NAMED)
def test_copies_are_those_recorded(name: str) -> None:
    recording = read_recording(NAMED[name])
    step = program(recording).check()
    theirs = list(recorded(NAMED[name]))
    ours = list(simulated(step, DTYPE_BYTES[recording.run.training.precision]))
    assert ours == theirs
    assert sum(each.kind == "copy" for each in theirs) >= 7


def test_both_stages_were_recorded_with_and_without_accumulation() -> None:
    assert len(NAMED) >= 5
    assert {(name[:3], "ga4" in name) for name in NAMED} == {(f"ds{s}", ga) for s in (1, 2) for ga in (False, True)}
