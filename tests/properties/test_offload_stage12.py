"""What holds of every program of stages 1 and 2 with the optimizer in host memory, whatever the knobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.programs import ancestors
from tests.properties.test_strategies import at_stage, models, quick, ranks, trainings
from zerosim.spec.model import Model
from zerosim.spec.strategy import UNLIMITED, DeepSpeed, Offload
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, Collective, HostCompute, Step, Transfer
from zerosim.strategies import base, build
from zerosim.strategies.flat import flat_layout

Program = tuple[DeepSpeed, Model, Training, int]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    config = draw(at_stage(1, 2))
    place: Any = draw(st.builds(Offload, device=st.sampled_from(("cpu", "nvme")), pin_memory=st.booleans()))
    config = replace(config, zero=replace(config.zero, offload_optimizer=place), cpu_checkpointing=draw(st.booleans()))
    return config, draw(models), draw(trainings), draw(ranks)


def moved(step: Step, target: str) -> float:
    """Bytes, activations left out."""
    works = [op.work for op in step.ops if isinstance(op.work, Transfer) and "block input" not in op.name]
    return sum(work.bytes for work in works if work.target == target)


@given(programs())
@quick
def test_the_program_is_clean(program: Program) -> None:
    assert build(*program)[0].lint() == []


@given(programs())
@quick
def test_repeated_micro_steps_equal_those_written_one_by_one(program: Program) -> None:
    config, model, training, world_size = program
    training = replace(training, gradient_accumulation_steps=6)
    repeated = build(config, model, training, world_size)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "STEADY", UNLIMITED)
        assert build(config, model, training, world_size)[0] == repeated


@given(programs())
@quick
def test_bytes_follow_from_the_partition(program: Program) -> None:
    """Slices in fp32 down, the padded partition up; the sums of n micro-steps n times down, n - 1 times up."""
    config, model, training, world_size = program
    step = build(*program)[0]
    numels = [parameter.numel if parameter.trainable else 0 for parameter in model.parameters]
    layout = flat_layout(numels, world_size, config.zero.round_robin_gradients)
    n, width = training.gradient_accumulation_steps, DTYPE_BYTES[training.precision]
    widened = config.grad_accum_dtype == "fp32" and width < 4
    sums = width * layout.touched(0) if config.zero.stage == 2 and n > 1 and not widened else 0
    mine = sum(layout.in_partition(p, 0) for p in layout.order)
    assert moved(step, "dram") == n * sums + 4 * mine
    assert moved(step, "gpu") == (n - 1) * sums + width * layout.share


@given(programs())
@quick
def test_offload_changes_no_collective(program: Program) -> None:
    def collectives(config: DeepSpeed) -> list[Collective]:
        works = [op.work for op in build(config, *program[1:])[0].ops]
        return [work for work in works if isinstance(work, Collective)]

    config = program[0]
    zero = replace(config.zero, offload_optimizer=Offload(), contiguous_gradients=True)
    assert collectives(config) == collectives(replace(config, zero=zero))


@given(programs())
@quick
def test_the_host_updates_after_every_gradient_has_come_down_and_before_weights_go_up(program: Program) -> None:
    step = build(*program)[0]
    seen = ancestors(step)
    update = [op.number for op in step.ops if isinstance(op.work, HostCompute)]
    for op in step.ops[: update[0]]:
        if op.reduces or (isinstance(op.work, Transfer) and "gradient" in op.name):
            assert seen[update[0]][op.stream] >= op.number
    (up,) = [op for op in step.ops if op.name == "copy parameters to the GPU"]
    gather = next(op for op in step.ops[up.number :] if isinstance(op.work, Collective))
    assert seen[up.number]["host"] == update[-1]
    assert seen[gather.number][COMPUTE] == up.number
