"""The cautious order: one GPU, DDP, ZeRO-1, 2, 3, each at the same global batch, and the first that fits.

Each rung is the scenario itself with another strategy, played; nothing is estimated apart from the model states,
which are what the program holds of weights, gradients and optimizer states by the ledger's formula. One GPU has all
the micro-steps of the others: it plays the first few, and the rest take as long as one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from zerosim.report.parts import OWN_CAUSES, cause_name
from zerosim.scenario import Scenario
from zerosim.simulation import simulate
from zerosim.spec.strategy import Ddp, DeepSpeed, Stage, Strategy, Zero
from zerosim.studies.ledger import model_states
from zerosim.units import show_share, show_size
from zerosim.views import Summary

# Micro-steps that are played of one GPU: no collective joins them, so that all after the second are equal, and a step
# of n + 1 is longer than one of n by the same. (7B on A100: 64 played differ from 8 drawn out by 1e-12.)
PLAYED = 8
HARDLY = 0.001  # of the step: too little waiting to name its cause; a choice
SHARDED: tuple[Stage, ...] = (1, 2, 3)
_WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes of an element


@dataclass(frozen=True, slots=True)
class Rung:
    """One strategy of the ladder; `relative_throughput` compares with the first rung that fits (None before it)."""

    rung: str
    strategy: str
    fits: bool
    model_states_bytes: float
    peak_bytes: float
    step_seconds: float
    tokens_per_second: float
    relative_throughput: float | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _Plan(NamedTuple):
    """What is played for a rung: its ZeRO stage, and the micro-steps of the whole step, which may be more."""

    name: str
    stage: int
    scenario: Scenario
    micro_steps: int


def ladder(scenario: Scenario) -> list[Rung]:
    """All rungs. Those that do not fit are played too: their step time is what it would be with more memory."""
    rungs: list[Rung] = []
    base: float | None = None
    for plan in _plans(scenario):
        rung = _rung(plan, base)
        if base is None and rung.fits:
            base = rung.tokens_per_second
            rung = replace(rung, relative_throughput=1.0, reason=f"first that fits; {rung.reason}")
        rungs.append(rung)
    return rungs


def _plans(scenario: Scenario) -> Iterator[_Plan]:
    """On one GPU, DDP is the first rung itself, and ZeRO has nobody to share with."""
    world, micro_steps = scenario.world_size, scenario.training.gradient_accumulation_steps
    ddp = _ddp(scenario.strategy)
    played = {"gradient_accumulation_steps": min(micro_steps * world, PLAYED)}
    alone = scenario.replace(nodes=1, gpus=1, training=played)
    yield _Plan("one GPU", 0, alone.replace(strategy=ddp), micro_steps * world)
    if world > 1:
        yield _Plan("DDP", 0, scenario.replace(strategy=ddp), micro_steps)
    for stage in SHARDED:
        yield _Plan(f"ZeRO-{stage}", stage, scenario.replace(strategy=_zero(scenario.strategy, stage)), micro_steps)


def _ddp(strategy: Strategy) -> Ddp:
    return strategy if isinstance(strategy, Ddp) else Ddp(optimizer=strategy.optimizer)


def _zero(strategy: Strategy, stage: Stage) -> DeepSpeed:
    """The scenario's own configuration at another stage; `overlap_comm` as given, else as DeepSpeed defaults it."""
    config = strategy if isinstance(strategy, DeepSpeed) else DeepSpeed(optimizer=strategy.optimizer)
    own: Zero = config.zero
    overlap = own.overlap_comm if own.overlap_comm_given else stage == 3
    return replace(config, zero=replace(own, stage=stage, overlap_comm=overlap))


def _rung(plan: _Plan, base: float | None) -> Rung:
    scenario, summary = plan.scenario, simulate(plan.scenario).summary()
    seconds = summary.step_seconds + _rest(plan, summary.step_seconds)
    tokens = scenario.training.tokens * plan.micro_steps * scenario.world_size / seconds
    return Rung(
        rung=plan.name,
        strategy="ddp" if isinstance(scenario.strategy, Ddp) else f"zero{plan.stage}",
        fits=summary.fits,
        model_states_bytes=model_states(plan.stage, scenario.model.numel, scenario.world_size, _bytes_each(scenario)),
        peak_bytes=summary.memory["gpu"].peak_bytes,
        step_seconds=seconds,
        tokens_per_second=tokens,
        relative_throughput=tokens / base if base and summary.fits else None,
        reason=_reason(summary),
    )


def _bytes_each(scenario: Scenario) -> tuple[int, int, int]:
    """Bytes a parameter of weights, gradients, and of the optimizer with its fp32 master, if it has one."""
    strategy = scenario.strategy
    weight: str
    gradient: str
    if isinstance(strategy, Ddp):
        weight = gradient = strategy.parameter_dtype
        master = weight != "fp32"
    else:
        weight = scenario.training.precision
        gradient = strategy.grad_accum_dtype or weight
        master = weight != "fp32" or strategy.zero.stage > 0
    return _WIDTHS[weight], _WIDTHS[gradient], strategy.optimizer.state_bytes + (4 if master else 0)


def _rest(plan: _Plan, seconds: float) -> float:
    """Seconds of the micro-steps that were not played: each as long as one of the last half of those that were."""
    played = plan.scenario.training.gradient_accumulation_steps
    if plan.micro_steps == played:
        return 0.0
    half = played // 2
    shorter = simulate(plan.scenario.replace(training={"gradient_accumulation_steps": played - half}))
    return (plan.micro_steps - played) * (seconds - shorter.makespan) / half


def _reason(summary: Summary) -> str:
    """Why it does not fit, or what slows it most."""
    for name, tier in summary.memory.items():
        missing = tier.peak_bytes - tier.capacity_bytes
        if missing > 0:
            where = "" if name == "gpu" else f"in {name} "
            return f"does not fit: {show_size(missing)} too much {where}at {tier.peak_at.op or 'the start'}"
    waits: defaultdict[tuple[str, str], float] = defaultdict(float)
    for stall in summary.stalls:
        waits[stall.cause, stall.label] += stall.seconds
    (cause, label), seconds = max(waits.items(), key=lambda wait: wait[1], default=(("", ""), 0.0))
    if seconds < HARDLY * summary.step_seconds:
        return "hardly ever waits"
    limit = "" if cause in OWN_CAUSES else f", limited by {label}"
    return f"waits {show_share(seconds / summary.step_seconds)} of the step: {cause_name(cause)}{limit}"
