"""`zerosim ladder` on scenarios that ship, made small: what fits, what drops and why, what the next rung costs.

The screens are kept in `ladder/`, as they were printed and read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.asking import ROOT, ask
from tests.cli.test_screens import well_written
from zerosim.report.ladder import render_ladder

SCREENS = Path(__file__).parent / "ladder"
SCENARIOS = {
    "llama-2-7b-hybrid-two-nodes-10g": ("training.sequence_length=512", "model.layers=4"),
    "gpt2-large-ddp-4090": ("training.gradient_accumulation_steps=1", "model.layers=4"),
    "forty-b-one-4090-nvme": (
        "training.sequence_length=512", "training.gradient_accumulation_steps=1", "model.parameters=2e9"
    ),
}  # fmt: skip


def words(name: str) -> list[str]:
    changes = [word for change in SCENARIOS[name] for word in ("--set", change)]
    return ["ladder", str(ROOT / "scenarios" / f"{name}.yaml"), *changes]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_ladder_is_as_it_was_read(name: str) -> None:
    screen = ask(*words(name)).out
    well_written(screen, 100)
    assert screen == (SCREENS / f"{name}.txt").read_text(encoding="utf-8")


def test_the_screen_is_that_of_the_json() -> None:
    asked = (*words("gpt2-large-ddp-4090"), "--checkpointing", "given")
    rows = ask(*asked, "--json").json
    assert ask(*asked).out == render_ladder(rows)
    for width in (80, 100, 120):
        well_written(render_ladder(rows, width=width), width)


def test_a_wrong_choice_is_refused() -> None:
    told = ask(*words("gpt2-large-ddp-4090"), "--checkpointing", "some")
    assert (told.code, told.out) == (2, "")
    assert "both" in told.err
