"""The collectives of a step are those that torch DDP, FSDP and DeepSpeed issued, one by one.

With ZEROSIM_SHARED naming the collected recordings; the summary of the tests prints the table of what was compared:
match, or the first difference. The verdicts are those of `zerosim conform`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import TABLE
from zerosim.spec.loading import read_log
from zerosim.spec.recording import STEADY, read_recording
from zerosim.spec.strategy import DeepSpeed
from zerosim.strategies.events import GRADIENT, micro_step
from zerosim.strategies.network import compile_network
from zerosim.studies.conform import conform, program

SHARED = os.environ.get("ZEROSIM_SHARED")
PATHS = sorted(Path(SHARED, "golden", "recordings").glob("*.json")) if SHARED else []
NAMED = {path.stem: path for path in PATHS}
# Built by zero.Init, which puts DeepSpeed's linear in the place of torch's; its configuration does not say so.
BUILT_BY_ZERO_INIT = "ds3_mlp_mics2_w4__deepspeed_0.14.5"

pytestmark = pytest.mark.skipif(not SHARED, reason="ZEROSIM_SHARED is not set: no recordings of real training steps")


@pytest.mark.parametrize("name", NAMED)
def test_collectives_are_those_recorded(name: str, record_property: Callable[[str, object], None]) -> None:
    (verdict,) = conform([NAMED[name]])
    found = verdict.first_difference
    record_property(TABLE, f"{name:44} {verdict.collectives:11}  {'match' if found is None else found}")
    assert found is None
    assert not [note for note in verdict.notes if "not read" in note]


@pytest.mark.parametrize("name", NAMED)
def test_the_programs_have_no_fault(name: str) -> None:
    program(read_recording(NAMED[name])).check()


@pytest.mark.parametrize("name", [name for name in NAMED if not name.startswith("fsdp") and name != BUILT_BY_ZERO_INIT])
def test_gradients_become_ready_in_the_order_that_follows_from_the_calls(name: str) -> None:
    """Derived, without what was seen of it."""
    recording = read_recording(NAMED[name])
    run, model = recording.run, replace(recording.model, gradients=())
    stage3 = isinstance(run.strategy, DeepSpeed) and run.strategy.zero.stage == 3
    own_linear = stage3 and isinstance(run.strategy, DeepSpeed) and run.strategy.release.replaces_linear
    _, backward = micro_step(compile_network(model, run.training, own_linear), run.training)
    derived = [model.parameters[event.parameter].name for event in backward if event.kind == GRADIENT]
    assert derived == ready(NAMED[name])


def ready(path: Path) -> list[str]:
    """The gradients in the order of their markers, of the first backward."""
    found: list[str] = []
    for event in read_log(path).data["steps"][STEADY]["events"]:
        if event.get("m") == "phase" and found:
            break
        if event.get("m") == "G":
            found.append(event["mod"])
    return found


def test_every_strategy_was_recorded() -> None:
    assert len(NAMED) >= 140
    assert {name.split("_")[0] for name in NAMED} == {"ddp", "ds0", "ds1", "ds2", "ds3", "fsdp1", "fsdp2"}
