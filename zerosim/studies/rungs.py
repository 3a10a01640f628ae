"""The rungs of the ladder as scenarios: the scenario itself with another strategy, at the same global batch.

One GPU and one pipeline have all the micro-steps of the others to themselves: so many are not played (`PLAYED`), the
rest take as long as one of those that are. Of a pipeline's micro-batches, which it has for all its stages, each rank of
another rung takes a share, rounded up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, HierarchicalZero1, Pipeline, Stage, Strategy
from zerosim.studies.rung_names import HIERARCHICAL, ONE_GPU, fsdp_name, left_out, strategy_name, zero_name

# Micro-steps that are played of one GPU: no collective joins them, so that all after the second are equal, and a step
# of n + 1 is longer than one of n by the same. (7B on A100: 64 played differ from 8 drawn out by 1e-12.)
PLAYED = 8
SHARDED: tuple[Stage, ...] = (1, 2, 3)


class Plan(NamedTuple):
    """What is played for a rung, and the micro-steps of the whole step, which may be more."""

    name: str
    scenario: Scenario
    micro_steps: int


def plans(scenario: Scenario, others: Sequence[Scenario] = ()) -> list[Plan]:
    """All rungs in their order. `others` stand for the rungs of their strategies; a second one of a strategy follows.

    InputError where one of these has another model, number of GPUs or global batch.
    """
    own = list(_plans(scenario))
    given: Counter[str] = Counter()
    for other in others:
        _check(other, scenario)
        plan = Plan(other.title, other, other.training.gradient_accumulation_steps)
        name = strategy_name(other.strategy)
        names = [strategy_name(each.scenario.strategy) if each.name != ONE_GPU else "" for each in own]
        place = names.index(name) if name in names else None
        given[name] += 1
        if place is not None and given[name] == 1:
            own[place] = plan._replace(name=own[place].name)
        else:
            called = fsdp_name(other.strategy) if isinstance(other.strategy, Fsdp) else name
            own.append(plan._replace(name=called if given[name] == 1 else f"{called} ({given[name]})"))
    return own


def _plans(scenario: Scenario) -> Iterator[Plan]:
    """On one GPU, DDP is the first rung itself, and ZeRO has nobody to share with."""
    world, micro_steps, ddp = scenario.world_size, _micro_steps(scenario), _ddp(scenario.strategy)
    alone = scenario.replace(nodes=1, gpus=1, training=_at_most(micro_steps * world), strategy=ddp)
    yield Plan(ONE_GPU, alone, micro_steps * world)
    each = scenario.replace(training={"gradient_accumulation_steps": micro_steps})
    if world > 1:
        yield Plan("DDP", each.replace(strategy=ddp), micro_steps)
    for stage in SHARDED:
        sharded = _zero(scenario.strategy, stage)
        yield Plan(zero_name(sharded.zero), each.replace(strategy=sharded), micro_steps)
    if scenario.topology.devices("dram"):
        offloaded = _offloaded(scenario.strategy)
        missing = left_out(_zero(scenario.strategy, 3).zero, offloaded.zero)
        name = f"{zero_name(offloaded.zero)} + offload{f' ({missing})' if missing else ''}"
        yield Plan(name, each.replace(strategy=offloaded), micro_steps)
    stages = _stages(scenario)
    layered = Pipeline(stages, parameter_dtype=ddp.parameter_dtype, optimizer=ddp.optimizer)
    if world > 1 and scenario.strategy != layered:
        yield from _own(scenario, micro_steps)
    if stages > 1:
        layers = scenario.replace(training=_at_most(micro_steps * stages), strategy=layered)
        yield Plan("layer-wise", layers, micro_steps * stages)


def _own(scenario: Scenario, micro_steps: int) -> Iterator[Plan]:
    """The scenario itself, where its strategy is on no rung."""
    match scenario.strategy:
        case Fsdp():
            yield Plan(fsdp_name(scenario.strategy), scenario, micro_steps)
        case HierarchicalZero1():
            yield Plan(HIERARCHICAL, scenario, micro_steps)
        case Pipeline(stages=stages):
            own = scenario.replace(training={"gradient_accumulation_steps": micro_steps * stages})
            yield Plan(strategy_name(scenario.strategy), own, micro_steps * stages)


def _micro_steps(scenario: Scenario) -> int:
    """Of a rank that has its own part of the batch."""
    return -(-scenario.training.gradient_accumulation_steps * scenario.replicas // scenario.world_size)


def _at_most(micro_steps: int) -> dict[str, int]:
    return {"gradient_accumulation_steps": min(micro_steps, PLAYED)}


def _ddp(strategy: Strategy) -> Ddp:
    if isinstance(strategy, Fsdp | Pipeline):
        return Ddp(parameter_dtype=strategy.parameter_dtype, optimizer=strategy.optimizer)
    return strategy if isinstance(strategy, Ddp) else Ddp(optimizer=strategy.optimizer)


def _zero(strategy: Strategy, stage: Stage) -> DeepSpeed:
    """The scenario's own configuration at another stage, all states on the GPU; `overlap_comm` as given, else as
    DeepSpeed defaults it."""
    config = strategy if isinstance(strategy, DeepSpeed) else DeepSpeed(optimizer=strategy.optimizer)
    own = config.zero
    zero = replace(
        own,
        stage=stage,
        overlap_comm=own.overlap_comm if own.overlap_comm_given else stage == 3,
        offload_optimizer=replace(own.offload_optimizer, device="none"),
        offload_param=replace(own.offload_param, device="none"),
    )
    return replace(config, zero=zero)


def _offloaded(strategy: Strategy) -> DeepSpeed:
    """Stage 3 with the optimizer in host memory, by the scenario's own section where it has one."""
    config = _zero(strategy, 3)
    offload = replace(config.zero.offload_optimizer, device="cpu")
    return replace(config, zero=replace(config.zero, offload_optimizer=offload).offloadable)


def _stages(scenario: Scenario) -> int:
    """As many as a node has GPUs and the model has layers, and such that pipelines fill the machine."""
    world, local = scenario.world_size, len(scenario.topology.nodes[0].gpus)
    most = min(local, world, scenario.model.layers)
    return next(stages for stages in range(most, 0, -1) if world % stages == 0)


def _check(other: Scenario, scenario: Scenario) -> None:
    """Rungs are compared at equal work."""
    batch = scenario.training.micro_batch_size * _micro_steps(scenario) * scenario.world_size
    problems = [
        Problem(other.source, name, str(found), f"{expected}, as in {scenario.source}")
        for name, found, expected in (
            ("model", f"{other.model.numel} parameters", f"{scenario.model.numel} parameters"),
            ("gpus", str(other.world_size), str(scenario.world_size)),
            ("global batch", f"{_batch(other)} sequences", f"{batch} sequences"),
            ("training.sequence_length", other.training.sequence_length, scenario.training.sequence_length),
        )
        if found != expected
    ]
    if problems:
        raise InputError(problems)


def _batch(scenario: Scenario) -> int:
    training = scenario.training
    return training.micro_batch_size * training.gradient_accumulation_steps * scenario.replicas
