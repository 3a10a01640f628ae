"""The rungs of the ladder as scenarios: the scenario itself with another strategy, at the same global batch.

One GPU and one pipeline have all the micro-steps of the others to themselves: so many are not played (`PLAYED`), the
rest take as long as one of those that are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.spec.strategy import Ddp, DeepSpeed, Pipeline, Stage, Strategy
from zerosim.studies.ledger import model_states

# Micro-steps that are played of one GPU: no collective joins them, so that all after the second are equal, and a step
# of n + 1 is longer than one of n by the same. (7B on A100: 64 played differ from 8 drawn out by 1e-12.)
PLAYED = 8
SHARDED: tuple[Stage, ...] = (1, 2, 3)
ONE_GPU = "one GPU"
_WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes of an element


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
        name = strategy_name(plan)
        place = next((i for i, each in enumerate(own) if each.name != ONE_GPU and strategy_name(each) == name), None)
        given[name] += 1
        if place is not None and given[name] == 1:
            own[place] = plan._replace(name=own[place].name)
        else:
            own.append(plan._replace(name=name if given[name] == 1 else f"{name} ({given[name]})"))
    return own


def _plans(scenario: Scenario) -> Iterator[Plan]:
    """On one GPU, DDP is the first rung itself, and ZeRO has nobody to share with."""
    world, micro_steps = scenario.world_size, scenario.training.gradient_accumulation_steps
    ddp = _ddp(scenario.strategy)
    alone = scenario.replace(nodes=1, gpus=1, training=_at_most(micro_steps * world), strategy=ddp)
    yield Plan(ONE_GPU, alone, micro_steps * world)
    if world > 1:
        yield Plan("DDP", scenario.replace(strategy=ddp), micro_steps)
    for stage in SHARDED:
        yield Plan(f"ZeRO-{stage}", scenario.replace(strategy=_zero(scenario.strategy, stage)), micro_steps)
    if scenario.topology.devices("dram"):
        yield Plan("ZeRO-3 + offload", scenario.replace(strategy=_offloaded(scenario.strategy)), micro_steps)
    stages = _stages(scenario)
    if stages > 1:
        layered = Pipeline(stages, parameter_dtype=ddp.parameter_dtype, optimizer=ddp.optimizer)
        layers = scenario.replace(training=_at_most(micro_steps * stages), strategy=layered)
        yield Plan("layer-wise", layers, micro_steps * stages)


def _at_most(micro_steps: int) -> dict[str, int]:
    return {"gradient_accumulation_steps": min(micro_steps, PLAYED)}


def _ddp(strategy: Strategy) -> Ddp:
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
    return replace(config, zero=replace(config.zero, offload_optimizer=offload))


def _stages(scenario: Scenario) -> int:
    """As many as a node has GPUs and the model has layers, and such that pipelines fill the machine."""
    world, local = scenario.world_size, len(scenario.topology.nodes[0].gpus)
    most = min(local, world, scenario.model.layers)
    return next(stages for stages in range(most, 0, -1) if world % stages == 0)


def _check(other: Scenario, scenario: Scenario) -> None:
    """Rungs are compared at equal work."""
    problems = [
        Problem(other.source, name, str(found), f"{expected}, as in {scenario.source}")
        for name, found, expected in (
            ("model", f"{other.model.numel} parameters", f"{scenario.model.numel} parameters"),
            ("gpus", str(other.world_size), str(scenario.world_size)),
            ("global batch", f"{_batch(other)} sequences", f"{_batch(scenario)} sequences"),
            ("training.sequence_length", other.training.sequence_length, scenario.training.sequence_length),
        )
        if found != expected
    ]
    if problems:
        raise InputError(problems)


def _batch(scenario: Scenario) -> int:
    training = scenario.training
    return training.micro_batch_size * training.gradient_accumulation_steps * scenario.replicas


# --- what a rung is called, and what it keeps on a GPU ----------------------------------------------------------------


def strategy_name(plan: Plan) -> str:
    """`ddp`, `zero2`, `zero3-offload`, `zero3-nvme`, `pipeline-naive`."""
    strategy = plan.scenario.strategy
    if isinstance(strategy, Ddp):
        return "ddp"
    if isinstance(strategy, Pipeline):
        return f"pipeline-{strategy.schedule}"
    zero = strategy.zero
    offloads = {zero.offload_optimizer.device, zero.offload_param.device}
    below = "-nvme" if zero.stage == 3 and "nvme" in offloads else "-offload" if offloads != {"none"} else ""
    return f"zero{zero.stage}{below}"


def states_on_gpu(scenario: Scenario) -> float:
    """Bytes of weights, gradients and optimizer states on each GPU, by the ledger's formula.

    An offloaded optimizer takes its states along, and the gradients but for those that stage 1 accumulates whole.
    """
    strategy, numel, world = scenario.strategy, scenario.model.numel, scenario.world_size
    weight, gradient, optimizer = _bytes_each(scenario)
    if not isinstance(strategy, DeepSpeed):
        return model_states(0, numel, world, (weight, gradient, optimizer)) * scenario.replicas / world
    zero = strategy.zero
    if zero.stage and zero.offload_optimizer.device != "none":
        gradient, optimizer = (gradient if zero.stage == 1 else 0), 0
    if zero.stage == 3 and zero.offload_param.device != "none":
        weight = 0
    return model_states(zero.stage, numel, world, (weight, gradient, optimizer))


def _bytes_each(scenario: Scenario) -> tuple[int, int, int]:
    """Bytes a parameter of weights, gradients, and of the optimizer with its fp32 master, if it has one."""
    strategy = scenario.strategy
    weight: str
    gradient: str
    if isinstance(strategy, DeepSpeed):
        weight = scenario.training.precision
        gradient = strategy.grad_accum_dtype or weight
        master = weight != "fp32" or strategy.zero.stage > 0
    else:
        weight = gradient = strategy.parameter_dtype
        master = weight != "fp32"
    return _WIDTHS[weight], _WIDTHS[gradient], strategy.optimizer.state_bytes + (4 if master else 0)
