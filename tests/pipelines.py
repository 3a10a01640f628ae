"""Pipelines of a toy network, and their steps by hand: so many seconds forward and backward, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from tests.engine_programs import supply
from tests.toy import toy, toy_training
from zerosim.engine import play
from zerosim.resources import Demand, RankClass
from zerosim.spec.model import Model
from zerosim.spec.strategy import Pipeline, Schedule
from zerosim.step import COMPUTE, Op, Step
from zerosim.strategies import build
from zerosim.timeline import Timeline

SCHEDULES: tuple[Schedule, ...] = ("naive", "gpipe", "1f1b")
IN_FLIGHT: tuple[Schedule, ...] = ("gpipe", "1f1b")


def programs(
    schedule: Schedule,
    stages: int,
    micro_batches: int,
    replicas: int = 1,
    zero_stage: int = 0,
    model: Model | None = None,
    parameter_dtype: str = "fp32",
    **training: object,
) -> tuple[Step, ...]:
    """One block a stage, unless there is another model."""
    config = Pipeline(stages, schedule, zero_stage, parameter_dtype)  # type: ignore[arg-type]  # some of their values
    trained = toy_training(gradient_accumulation_steps=micro_batches, **training)
    return build(config, model or toy(blocks=stages), trained, stages * replicas)


def blocks_of(step: Step) -> Iterator[tuple[str, int, list[Op]]]:
    """Phase, micro-batch and kernels of each forward and backward, in issue order."""
    kernels = [op for op in step.ops if op.stream == COMPUTE and op.name.endswith((" fwd", " bwd", " recompute"))]
    for (phase, micro_batch), ops in groupby(kernels, key=lambda op: (op.phase, op.micro_batch)):
        yield phase, micro_batch, list(ops)


def by_hand(steps: Sequence[Step], forward: float, backward: float) -> Timeline:
    """Every stage takes so many seconds for a micro-batch; whatever else there is takes no time."""
    classes = [RankClass(f"stage {k}", (k,), k) for k in range(len(steps))]
    demands = {}
    for step, each in zip(steps, classes, strict=True):
        demands[each.name] = found = [Demand()] * len(step.ops)
        for phase, _, ops in blocks_of(step):
            found[ops[0].number] = Demand(latency=forward if phase == "forward" else backward)
    return play(steps, classes, demands, supply(gpu=1))


def held(step: Step, *names: str) -> int:
    """How many buffers of these names are held at the same time, at most, in the order of the host."""
    return round(most(step, lambda buffer: float(step.buffers[buffer].name in names)))


def most(step: Step, weight: Callable[[int], float]) -> float:
    """The peak of what is held, each buffer by its weight."""
    now = peak = sum(weight(buffer) for buffer in step.resident)
    for op in step.ops:
        now += sum(weight(buffer) for buffer in op.acquires)
        peak = max(peak, now)
        now -= sum(weight(buffer) for buffer in op.releases)
    return peak
