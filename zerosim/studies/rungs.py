"""The rungs of the ladder as scenarios: the scenario itself with another strategy, at the same global batch.

One GPU and one pipeline have all the micro-steps of the others to themselves: so many are not played (`PLAYED`), the
rest take as long as one of those that are. Of a pipeline's micro-batches, which it has for all its stages, each rank of
another rung takes a share, rounded up. A rung that the scenario or its machine cannot have is told (`Missing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, Pipeline, Stage, Strategy
from zerosim.spec.tiers import lacking_tier
from zerosim.spec.training import Checkpointing
from zerosim.studies.offloads import Device, placed
from zerosim.studies.rung_names import (
    DDP,
    LAYER_WISE,
    ONE_GPU,
    left_out,
    placed_name,
    rung_name,
    strategy_name,
    zero_name,
)

# Micro-steps that are played of one GPU: no collective joins them, so that all after the second are equal, and a step
# of n + 1 is longer than one of n by the same. (7B on A100: 64 played differ from 8 drawn out by 1e-12.)
PLAYED = 8
SHARDED: tuple[Stage, ...] = (1, 2, 3)
OFFLOADED: tuple[tuple[Device, Device], ...] = (("cpu", "none"), ("cpu", "cpu"), ("nvme", "nvme"))
ALONE = "one GPU has nobody to share with"


class Plan(NamedTuple):
    """What is played for a rung, and the micro-steps of the whole step, which may be more. `below`: the rung that it is
    held against, "" for the first."""

    name: str
    scenario: Scenario
    micro_steps: int
    below: str = ""


class Missing(NamedTuple):
    """A rung that cannot be built, and why; `checkpointing`: with which, None with none of them."""

    name: str
    strategy: str
    why: str
    below: str = ""
    checkpointing: Checkpointing | None = None


def plans(scenario: Scenario, others: Sequence[Scenario] = ()) -> list[Plan | Missing]:
    """All rungs in their order. `others` stand for the rungs of their strategies; a second one of a strategy follows.

    InputError where one of these has another model, number of GPUs or global batch.
    """
    found = list(_plans(scenario))
    given: Counter[str] = Counter()
    for other in others:
        _check(other, scenario)
        plan = Plan(other.title, other, other.training.gradient_accumulation_steps, DDP)
        name = rung_name(other.strategy)
        names = [_matched(each) for each in found]
        place = names.index(name) if name in names else None
        given[name] += 1
        if place is None:
            found.append(plan._replace(name=name))
        elif given[name] == 1:
            found[place] = plan._replace(name=found[place].name, below=found[place].below)
        else:
            found.append(plan._replace(name=f"{name} ({given[name]})", below=found[place].below))
    return found


def _matched(rung: Plan | Missing) -> str:
    """The name of a rung's strategy; one GPU is nobody's."""
    if isinstance(rung, Missing) or rung.name == ONE_GPU:
        return ""
    return rung_name(rung.scenario.strategy)


def _plans(scenario: Scenario) -> Iterator[Plan | Missing]:
    """On one GPU, DDP is the first rung itself, and ZeRO has nobody to share with."""
    world, micro_steps, ddp = scenario.world_size, _micro_steps(scenario), _ddp(scenario.strategy)
    alone = scenario.replace(nodes=1, gpus=1, training=_at_most(micro_steps * world), strategy=ddp)
    yield Plan(ONE_GPU, alone, micro_steps * world)
    each = scenario.replace(training={"gradient_accumulation_steps": micro_steps})
    if world > 1:
        yield Plan(DDP, each.replace(strategy=ddp), micro_steps, ONE_GPU)
    else:
        yield Missing(DDP, strategy_name(ddp), ALONE, ONE_GPU)
    below, known = DDP, {DDP}
    for rung in (*_sharded(each), *_own_below_3(each), *_offloaded(each)):
        if rung.name not in known:
            yield rung if rung.below else rung._replace(below=below)
            below = below if rung.below else rung.name
        known.add(rung.name)
    yield from _own(scenario, micro_steps, known)
    yield from _layer_wise(scenario, ddp)


def _sharded(scenario: Scenario) -> Iterator[Plan | Missing]:
    for stage in SHARDED:
        strategy = _zero(scenario.strategy, stage)
        yield _tried(placed_name(strategy.zero), scenario, strategy)


def _own_below_3(scenario: Scenario) -> Iterator[Plan | Missing]:
    """A scenario's own stage 1 or 2 with the optimizer in host memory, or its stage 0."""
    strategy = scenario.strategy
    if isinstance(strategy, DeepSpeed) and strategy.zero.stage < 3:
        name = placed_name(strategy.zero)
        yield _tried(name, scenario, strategy, zero_name(strategy.zero) if strategy.zero.stage else DDP)


def _offloaded(scenario: Scenario) -> Iterator[Plan | Missing]:
    """Stage 3 with the optimizer in host memory, the parameters too, and both on drives."""
    for optimizer, parameters in OFFLOADED:
        config, missing = _elsewhere(scenario, optimizer, parameters)
        yield _tried(f"{placed_name(config.zero)}{f' ({missing})' if missing else ''}", scenario, config)


def _own(scenario: Scenario, micro_steps: int, known: set[str]) -> Iterator[Plan | Missing]:
    """The scenario itself, where its strategy is on no rung; of FSDP, what it is with and without offload."""
    strategy, name = scenario.strategy, rung_name(scenario.strategy)
    if isinstance(strategy, Fsdp):
        kept, offloaded = (replace(strategy, cpu_offload=offload) for offload in (False, True))
        yield _tried(rung_name(kept), scenario, kept, DDP)
        yield _tried(rung_name(offloaded), scenario, offloaded, rung_name(kept))
    elif isinstance(strategy, Pipeline):
        if strategy != _layered(scenario):
            micro_batches = micro_steps * strategy.stages
            own = scenario.replace(training={"gradient_accumulation_steps": micro_batches})
            yield Plan(name, own, micro_batches, DDP)
    elif name not in known:
        yield Plan(name, scenario, micro_steps, zero_name(strategy.zero) if isinstance(strategy, DeepSpeed) else DDP)


def _layer_wise(scenario: Scenario, ddp: Ddp) -> Iterator[Plan | Missing]:
    layered = _layered(scenario)
    if layered.stages > 1:
        micro_steps = _micro_steps(scenario) * layered.stages
        layers = scenario.replace(training=_at_most(micro_steps), strategy=layered)
        yield Plan(LAYER_WISE, layers, micro_steps, DDP)
    else:
        yield Missing(LAYER_WISE, strategy_name(layered), "no two GPUs of a node to spread the layers over", DDP)


def _tried(name: str, scenario: Scenario, strategy: Strategy, below: str = "") -> Plan | Missing:
    """The scenario with another strategy, or why it cannot have it."""
    lacking = lacking_tier(strategy, scenario.topology)
    if lacking:
        return Missing(name, strategy_name(strategy), lacking.found, below)
    try:
        changed = scenario.replace(strategy=strategy)
    except InputError as error:
        return Missing(name, strategy_name(strategy), why(error), below)
    return Plan(name, changed, scenario.training.gradient_accumulation_steps, below)


def why(error: InputError) -> str:
    """The first of what is wrong."""
    wrong = error.problems[0]
    return f"{wrong.path}: found {wrong.found}; expected {wrong.expected}"


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


def _elsewhere(scenario: Scenario, optimizer: Device, parameters: Device) -> tuple[DeepSpeed, str]:
    """Stage 3 with its states elsewhere, by the scenario's own sections where it has them; and what it is without."""
    config, strategy = _zero(scenario.strategy, 3), scenario.strategy
    sections = strategy.zero if isinstance(strategy, DeepSpeed) else config.zero
    own = replace(config.zero, offload_optimizer=sections.offload_optimizer, offload_param=sections.offload_param)
    zero = placed(own, optimizer, parameters, scenario)
    return replace(config, zero=zero), left_out(config.zero, zero)


def _layered(scenario: Scenario) -> Pipeline:
    """As many stages as a node has GPUs and the model has layers, and such that pipelines fill the machine."""
    world, local = scenario.world_size, len(scenario.topology.nodes[0].gpus)
    most = min(local, world, scenario.model.layers)
    stages = next(stages for stages in range(most, 0, -1) if world % stages == 0)
    ddp = _ddp(scenario.strategy)
    return Pipeline(stages, parameter_dtype=ddp.parameter_dtype, optimizer=ddp.optimizer)


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
