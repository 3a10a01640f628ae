"""The cautious order: one GPU, DDP, ZeRO-1, 2, 3, 3 with the optimizer in host memory; and the first that fits.

All have the same global batch, and each is played; nothing is estimated apart from the model states, which are what the
program holds of weights, gradients and optimizer states by the ledger's formula. The last rung is what people did
before ZeRO: layers spread over the GPUs of a node, one of which works at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from zerosim.scenario import Scenario
from zerosim.simulation import simulate
from zerosim.studies.reason import reason
from zerosim.studies.rung_names import strategy_name
from zerosim.studies.rungs import Plan, plans
from zerosim.studies.states import states_on_gpu


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


def ladder(scenario: Scenario, others: Sequence[Scenario] = ()) -> list[Rung]:
    """All rungs. Those that do not fit are played too: their step time is what it would be with more memory.

    `others` stand for the rungs of their strategies: memory that offload frees is there for larger micro-batches.
    """
    rungs: list[Rung] = []
    base: float | None = None
    for plan in plans(scenario, others):
        rung = _rung(plan, base)
        if base is None and rung.fits:
            base = rung.tokens_per_second
            rung = replace(rung, relative_throughput=1.0, reason=f"first that fits; {rung.reason}")
        rungs.append(rung)
    return rungs


def _rung(plan: Plan, base: float | None) -> Rung:
    scenario, summary = plan.scenario, simulate(plan.scenario).summary()
    seconds = summary.step_seconds + _rest(plan, summary.step_seconds)
    tokens = scenario.training.tokens * plan.micro_steps * scenario.replicas / seconds
    return Rung(
        rung=plan.name,
        strategy=strategy_name(scenario.strategy),
        fits=summary.fits,
        model_states_bytes=states_on_gpu(scenario),
        peak_bytes=summary.memory["gpu"].peak_bytes,
        step_seconds=seconds,
        tokens_per_second=tokens,
        relative_throughput=tokens / base if base and summary.fits else None,
        reason=reason(summary),
    )


def _rest(plan: Plan, seconds: float) -> float:
    """Seconds of the micro-steps that were not played: each as long as one of the last half of those that were."""
    played = plan.scenario.training.gradient_accumulation_steps
    if plan.micro_steps == played:
        return 0.0
    half = played // 2
    shorter = simulate(plan.scenario.replace(training={"gradient_accumulation_steps": played - half}))
    return (plan.micro_steps - played) * (seconds - shorter.makespan) / half
