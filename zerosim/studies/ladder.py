"""The cautious order: one GPU, DDP, ZeRO-1, 2, 3, 3 with states in host memory and on drives; and the first that fits.

All have the same global batch, and each is played; nothing is estimated apart from the model states, which are what the
program holds of weights, gradients and optimizer states by the ledger's formula. The last rung is what people did
before ZeRO: layers spread over the GPUs of a node, one of which works at a time. Where both are asked for, each rung
stands without activation checkpointing and then with it: what it frees costs the compute of a forward, on any network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.simulation import simulate
from zerosim.spec.training import Checkpointing
from zerosim.studies.reason import reason
from zerosim.studies.rung_growth import Growth, Spent, extended, growth, losses, parts
from zerosim.studies.rung_names import strategy_name
from zerosim.studies.rung_rows import NextRung, Rung, Unbuilt
from zerosim.studies.rungs import Missing, Plan, plans, why
from zerosim.studies.states import states_on_gpu
from zerosim.views.contention import contention
from zerosim.views.stalls import stalls

DROP = 0.05  # of the tokens per second of a GPU, from one rung to the next: more is told; the number


class _Played(NamedTuple):
    rung: Rung
    below: str
    spent: Spent


def ladder(scenario: Scenario, others: Sequence[Scenario] = (), both: bool = False) -> list[Rung]:
    """All rungs that can be built."""
    return [row for row in climb(scenario, others, both) if isinstance(row, Rung)]


def climb(scenario: Scenario, others: Sequence[Scenario] = (), both: bool = True) -> list[Rung | Unbuilt]:
    """All rungs, `both` without and with checkpointing; and why there is no more of them, where one cannot be built.
    Those that do not fit are played too: their step time is what it would be with more memory.

    `others` stand for the rungs of their strategies: memory that offload frees is there for larger micro-batches.
    InputError where no rung can be built.
    """
    rows = [row for rung in plans(scenario, others) for row in _rows(rung, both)]
    played = [row for row in rows if isinstance(row, _Played)]
    if not played:
        wrong = (row for row in rows if isinstance(row, Missing))
        raise InputError(Problem(scenario.source, row.name, row.why, "a rung that can be built") for row in wrong)
    rungs = _related(_compared(played, {row.name: row.below for row in rows if isinstance(row, Missing)}))
    return [_unbuilt(row) if isinstance(row, Missing) else rungs.pop(0) for row in rows]


def _rows(rung: Plan | Missing, both: bool) -> Iterator[_Played | Missing]:
    if isinstance(rung, Missing):
        yield rung
        return
    training = rung.scenario.training
    given = training.activation_checkpointing
    pair: tuple[Checkpointing, Checkpointing] = ("none", given) if training.checkpoints_blocks else (given, "full")
    for kind in pair if both else (given,):
        yield _attempt(rung, kind)


def _attempt(plan: Plan, kind: Checkpointing) -> _Played | Missing:
    """The rung with this checkpointing, played."""
    given = plan.scenario.training.activation_checkpointing
    try:
        asked = plan.scenario if kind == given else plan.scenario.replace(training={"activation_checkpointing": kind})
        return _played(plan._replace(scenario=asked), kind == given)
    except InputError as error:
        return Missing(plan.name, strategy_name(plan.scenario.strategy), why(error), plan.below, kind)


def _played(plan: Plan, as_given: bool) -> _Played:
    scenario, timeline = plan.scenario, simulate(plan.scenario)
    summary = timeline.summary()
    spent = Spent(
        tokens=scenario.training.tokens * plan.micro_steps * scenario.replicas / scenario.world_size,
        parts=parts(summary.step_seconds, summary.stalls),
        losses=losses(summary.contention),
        checkpointing=scenario.training.activation_checkpointing,
    )
    spent = _drawn_out(plan, spent)
    tokens = spent.tokens * scenario.world_size / spent.seconds
    memory = {name: tier.peak_bytes for name, tier in summary.memory.items()}
    rung = Rung(
        rung=plan.name,
        strategy=strategy_name(scenario.strategy),
        fits=summary.fits,
        model_states_bytes=states_on_gpu(scenario),
        peak_bytes=memory["gpu"],
        step_seconds=spent.seconds,
        tokens_per_second=tokens,
        relative_throughput=None,
        reason=reason(summary),
        checkpointing=spent.checkpointing,
        as_given=as_given,
        peak_bytes_by_tier=memory,
    )
    return _Played(rung, plan.below, spent)


def _drawn_out(plan: Plan, spent: Spent) -> Spent:
    """With the micro-steps that were not played: each as long as one of the last half of those that were."""
    played = plan.scenario.training.gradient_accumulation_steps
    if plan.micro_steps == played:
        return spent
    half = played // 2
    shorter = simulate(plan.scenario.replace(training={"gradient_accumulation_steps": played - half}))
    times = (plan.micro_steps - played) / half
    fewer = parts(shorter.makespan, stalls(shorter)), losses(contention(shorter))
    return replace(
        spent,
        parts=extended(spent.parts, fewer[0], times),
        losses=extended(spent.losses, fewer[1], times),
    )


# --- what one costs beside another -----------------------------------------------------------------------------------


def _compared(played: Sequence[_Played], missing: Mapping[str, str]) -> list[_Played]:
    """Each beside the rung below it with the same checkpointing; `missing`: what is below those that are not there."""
    known = {(row.rung.rung, row.spent.checkpointing): row for row in played}
    found = []
    for row in played:
        below, kind = row.below, row.spent.checkpointing
        while below in missing and (below, kind) not in known:
            below = missing[below]
        other = known.get((below, kind))
        found.append(row if other is None else row._replace(rung=_beside(row, other)))
    return found


def _beside(row: _Played, other: _Played) -> Rung:
    change = _change(row.spent, other.spent)
    rung = replace(row.rung, against=other.rung.rung, change=change)
    if change >= -DROP:
        return rung
    grown = growth(row.spent, other.spent)
    return replace(rung, drop=True, limited_by=grown.limit, because=grown.text)


def _change(now: Spent, before: Spent) -> float:
    """Of the tokens per second of a GPU."""
    return now.tokens / now.seconds / (before.tokens / before.seconds) - 1


def _related(played: Sequence[_Played]) -> list[Rung]:
    """The first that fits is chosen, and what fits is compared with it."""
    first = next((place for place, row in enumerate(played) if row.rung.fits), None)
    if first is None:
        return [row.rung for row in played]
    base = played[first].rung.tokens_per_second
    rungs = [
        replace(row.rung, relative_throughput=row.rung.tokens_per_second / base) if row.rung.fits else row.rung
        for row in played
    ]
    rungs[first] = replace(
        rungs[first],
        reason=f"first that fits; {rungs[first].reason}",
        chosen=True,
        next_costs=tuple(_next_rungs(played, first)),
    )
    return rungs


def _next_rungs(played: Sequence[_Played], first: int) -> Iterator[NextRung]:
    """What may come after the first that fits: the same with checkpointing, the next rung at the same checkpointing,
    and the first that fits without, where only checkpointing made the first one fit."""
    chosen, after = played[first], played[first + 1 :]
    name, kind = chosen.rung.rung, chosen.spent.checkpointing
    found = [row for row in after if row.rung.rung == name][:1]
    found += [row for row in after if row.rung.rung != name and row.spent.checkpointing == kind][:1]
    if any(row.rung.rung == name for row in played[:first]):
        found += [row for row in after if row.rung.fits and row.spent.checkpointing != kind][:1]
    for row in found:
        yield _next(row, chosen)


def _next(row: _Played, chosen: _Played) -> NextRung:
    change = _change(row.spent, chosen.spent)
    grown = growth(row.spent, chosen.spent) if change < 0 else Growth()
    before, now = chosen.rung.peak_bytes_by_tier, row.rung.peak_bytes_by_tier
    return NextRung(
        rung=row.rung.rung,
        checkpointing=row.rung.checkpointing,
        fits=row.rung.fits,
        throughput_change=row.rung.tokens_per_second / chosen.rung.tokens_per_second - 1,
        per_gpu_change=change,
        freed_bytes={tier: before.get(tier, 0.0) - now.get(tier, 0.0) for tier in {**before, **now}},
        limited_by=grown.limit,
        because=grown.text,
    )


def _unbuilt(missing: Missing) -> Unbuilt:
    return Unbuilt(missing.name, missing.strategy, missing.checkpointing, reason=f"cannot be built: {missing.why}")
