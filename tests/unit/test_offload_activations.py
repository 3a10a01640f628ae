"""Inputs of checkpointed blocks in host memory: the toy with five blocks, whose inputs are 2,048 bytes each.

Forward: the input of block k goes down once the forward of block k + 1 has been issued: 4 of 5, the last one stays.
Backward: the last is there, the one before it, too; 3 come back.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.programs import ancestors, levels
from tests.toy import toy, toy_training
from zerosim.spec.strategy import UNLIMITED, DeepSpeed, Zero
from zerosim.step import COMPUTE, Op, Step, Transfer
from zerosim.strategies import base, build
from zerosim.strategies.activations import OFFLOAD

SIZE = 16 * 64 * 2
DOWN, UP = "copy block input to host", "copy block input to the GPU"


def step_of(stage: int = 2, on: bool = True, blocks: int = 5, **training: Any) -> Step:
    config = DeepSpeed(zero=Zero(stage=stage), cpu_checkpointing=on, synchronized_timer=False)  # type: ignore[arg-type]  # a row
    training = {"activation_checkpointing": "full", **training}
    step = build(config, toy(blocks=blocks), toy_training(**training), 2)[0]
    assert step.lint() == []
    return step


def copies(step: Step, name: str) -> list[Op]:
    return [op for op in step.ops if op.name == name]


def resident_in_dram(step: Step) -> list[tuple[str, float, bool]]:
    return [(b.category, b.bytes, b.pinned) for b in step.buffers if b.tier == "dram"]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_what_is_copied(stage: int, reentrant: bool, blocks: int) -> None:
    step = step_of(stage, blocks=blocks, reentrant=reentrant, gradient_accumulation_steps=3)
    down, up = copies(step, DOWN), copies(step, UP)
    assert {op.work for op in down} <= {Transfer(SIZE, "gpu", "dram")}
    assert {op.work for op in up} <= {Transfer(SIZE, "dram", "gpu")}
    order = [op.layer for op in down if op.micro_batch == 0], [op.layer for op in up if op.micro_batch == 0]
    assert order == ([*range(blocks - 1)], [*reversed(range(blocks - 2))])
    assert Counter(op.micro_batch for op in down) == {m: blocks - 1 for m in range(3) if blocks > 1}
    assert {op.stream for op in (*down, *up)} <= {OFFLOAD}
    assert resident_in_dram(step) == [("activations", SIZE, True)] * (blocks - 1)


def test_two_inputs_are_on_the_gpu_when_the_backward_begins() -> None:
    turn = {on: [h for op, h in zip(s.ops, levels(s), strict=False) if op.phase == "forward"][-1]["block input"]
            for on, s in ((on, step_of(on=on)) for on in (False, True))}  # fmt: skip
    assert turn == {False: 5 * SIZE, True: 2 * SIZE}


def test_an_input_goes_down_after_the_forward_of_the_next_block_and_is_freed_by_its_copy() -> None:
    step = step_of()
    seen = ancestors(step)
    for block, op in enumerate(copies(step, DOWN)):
        (awaited,) = op.after
        assert step.ops[awaited].name == f"b{block + 1}.fc2 fwd"
        assert seen[op.number][COMPUTE] == awaited
    *gone, last = copies(step, DOWN)
    assert [[step.buffers[b].name for b in op.releases] for op in gone] == [["block input"]] * 3
    assert last.releases == ()  # kept, for its block is the second to be recomputed


def test_an_input_comes_up_without_waiting_for_compute_which_waits_for_it() -> None:
    step = step_of()
    seen = ancestors(step)
    last = copies(step, DOWN)[-1]
    for op in copies(step, UP):
        assert op.after == ()
        assert [step.buffers[b].name for b in op.acquires] == ["block input"]
    for awaited in (last, *copies(step, UP)):
        again = next(op for op in step.ops if op.layer == awaited.layer and op.name.endswith(" recompute"))
        assert awaited.number in again.after or seen[again.number][OFFLOAD] == awaited.number
    kept = next(op for op in step.ops if op.layer == 4 and op.name.endswith(" recompute"))
    assert OFFLOAD not in seen[kept.number]


def test_the_host_waits_for_none_of_it() -> None:
    step = step_of()
    moved = {op.number for name in (DOWN, UP) for op in copies(step, name)}
    assert moved.isdisjoint(number for op in step.ops if op.phase != "optimizer" for number in op.host_waits)


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_repeated_micro_steps_equal_those_written(stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    repeated = step_of(stage, gradient_accumulation_steps=6)
    monkeypatch.setattr(base, "STEADY", UNLIMITED)
    assert step_of(stage, gradient_accumulation_steps=6) == repeated


@pytest.mark.parametrize("checkpointing", ["none", "selective"])
def test_where_no_block_is_checkpointed_nothing_is_copied(checkpointing: str) -> None:
    there, not_there = (step_of(on=on, activation_checkpointing=checkpointing) for on in (True, False))
    assert there == not_there
    assert step_of(on=True) != step_of(on=False)
