"""16,384 GPUs in racks and in three levels of switches cost what 8 GPUs cost, and a few walks over the ranks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.counting import calls
from zerosim import Scenario, load, simulate

ROOT = Path(__file__).parents[2]
SEVEN_B = ROOT / "scenarios" / "seven-b" / "zero3.yaml"
WALKS = 10  # over all ranks: hosts, classes, domains, islands, groups


def question(*changes: str) -> Scenario:
    return load(SEVEN_B, ["training.gradient_accumulation_steps=1", *changes])


@pytest.mark.parametrize(
    ("few", "many", "ranks"),
    [
        (("topology=dgx-h100-superpod", "nodes=1"), ("topology=dgx-h100-superpod", "nodes=2048"), 16_384),
        (
            ("topology=dgx-h100-superpod", "nodes=1"),
            (
                "topology=dgx-h100-superpod",
                "nodes=2048",
                "topology.fabric.oversubscription=2",
                "topology.fabric.spine_oversubscription=4",
            ),
            16_384,
        ),
        (("topology=gb200-nvl72", "nodes=2"), ("topology=gb200-nvl72", "nodes=4104"), 16_416),
    ],
    ids=["three-levels", "oversubscribed", "racks"],
)
def test_many_gpus_are_hardly_more_work_than_8(few: tuple[str, ...], many: tuple[str, ...], ranks: int) -> None:
    small, huge = question(*few), question(*many)
    assert small.world_size == 8
    assert huge.world_size == ranks
    less, more = simulate(small), simulate(huge)
    assert len(more.classes) == len(less.classes) == 1
    assert len(more.step.ops) == len(less.step.ops)
    assert more.events <= 1.2 * less.events
    made = [calls(partial(simulate, scenario)) for scenario in (small, huge)]
    print(f"\n{ranks} GPUs: {made[1]} function calls, 8 GPUs: {made[0]}; the step takes {more.makespan:.3f} s")
    assert made[1] <= made[0] + WALKS * ranks


def test_oversubscription_of_both_levels_is_felt() -> None:
    cluster = ("topology=dgx-h100-superpod", "nodes=256")
    even, leaf, both = (
        simulate(question(*cluster, *changes)).makespan
        for changes in (
            (),
            ("topology.fabric.oversubscription=8",),
            ("topology.fabric.oversubscription=8", "topology.fabric.spine_oversubscription=8"),
        )
    )
    assert even < leaf < both
