"""The cautious order: one GPU, DDP, ZeRO-1, 2, 3, each at the same global batch, and the first that fits.

Each rung is the scenario itself with another strategy, simulated; nothing is estimated apart from the model states,
which are what the program holds of weights, gradients and optimizer states by the ledger's formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from zerosim.scenario import Scenario
from zerosim.simulation import simulate
from zerosim.spec.strategy import Ddp, DeepSpeed, Strategy, Zero
from zerosim.studies.ledger import model_states
from zerosim.units import show_count, show_size
from zerosim.views import Summary


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


def ladder(scenario: Scenario) -> list[Rung]:
    """All rungs. Those that do not fit are played too: their step time is what it would be with more memory."""
    rungs: list[Rung] = []
    base: float | None = None
    for name, stage, variant in _variants(scenario):
        summary = simulate(variant).summary()
        if base is None and summary.fits:
            base = summary.tokens_per_second
        rungs.append(_rung(name, stage, variant, summary, base))
    return _explained(rungs)


def _variants(scenario: Scenario) -> Iterator[tuple[str, int, Scenario]]:
    """(name, ZeRO stage by which model states are divided, scenario)."""
    world = scenario.world_size
    if world > 1:
        training = scenario.training
        accumulation = training.gradient_accumulation_steps * world  # the same global batch
        alone = scenario.replace(nodes=1, gpus=1, training={"gradient_accumulation_steps": accumulation})
        yield "one GPU", 0, alone.replace(strategy=_ddp(scenario.strategy))
    yield "DDP", 0, scenario.replace(strategy=_ddp(scenario.strategy))
    for stage in (1, 2, 3):
        yield f"ZeRO-{stage}", stage, scenario.replace(strategy=_zero(scenario.strategy, stage))


def _ddp(strategy: Strategy) -> Ddp:
    return strategy if isinstance(strategy, Ddp) else Ddp(optimizer=strategy.optimizer)


def _zero(strategy: Strategy, stage: int) -> DeepSpeed:
    """The scenario's own configuration at another stage; `overlap_comm` as DeepSpeed defaults it where that differs."""
    config = strategy if isinstance(strategy, DeepSpeed) else DeepSpeed(optimizer=strategy.optimizer)
    own: Zero = config.zero
    overlap = own.overlap_comm if (own.stage == 3) == (stage == 3) else stage == 3
    return replace(config, zero=replace(own, stage=stage, overlap_comm=overlap))  # type: ignore[arg-type]


def _rung(name: str, stage: int, scenario: Scenario, summary: Summary, base: float | None) -> Rung:
    return Rung(
        rung=name,
        strategy="ddp" if isinstance(scenario.strategy, Ddp) else f"zero{stage}",
        fits=summary.fits,
        model_states_bytes=model_states(stage, scenario.model.numel, scenario.world_size),
        peak_bytes=summary.memory["gpu"].peak_bytes,
        step_seconds=summary.step_seconds,
        tokens_per_second=summary.tokens_per_second,
        relative_throughput=summary.tokens_per_second / base if base and summary.fits else None,
        reason=_reason(summary),
    )


def _reason(summary: Summary) -> str:
    """Why it does not fit, or what slows it most."""
    gpu = summary.memory["gpu"]
    if not summary.fits:
        return f"does not fit: {show_size(gpu.peak_bytes - gpu.capacity_bytes)} too much at {gpu.peak_at.op}"
    if summary.stalls:
        worst = summary.stalls[0]
        share = worst.seconds / summary.step_seconds
        return f"waits most for {worst.cause.replace('_', '-')} ({share:.1%} of the step; {worst.label})"
    return ""


def _explained(rungs: list[Rung]) -> list[Rung]:
    """The first rung that fits says so."""
    for place, rung in enumerate(rungs):
        if rung.fits:
            reason = f"first that fits, {show_count(rung.tokens_per_second)} tokens/s; {rung.reason}".rstrip("; ")
            rungs[place] = replace(rung, reason=reason)
            break
    return rungs
