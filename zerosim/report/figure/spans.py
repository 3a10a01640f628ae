"""The ops of one class of ranks as columns, in issue order: when each was issued, was ready, began and ended, and why.

About 24 bytes an op, 32 characters in base64: twenty thousand take 0.64 MB. What waits are for is told by `cause`: how
many rows back the op lies whose end made this one ready, or 0 where the host that issued it did. Of too many ops, `few`
makes fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from zerosim.report.figure.columns import moments, whole
from zerosim.report.figure.kinds import NUMBERS
from zerosim.report.figure.words import Named, Told, Words, named
from zerosim.report.lanes import OTHERS, PLACES, TITLES
from zerosim.report.ops import flops, moved_bytes
from zerosim.report.palette import ink_of
from zerosim.resources import Demand, RankClass
from zerosim.step import Collective, HostCompute, Op, Step, Transfer
from zerosim.timeline import Span, Timeline

Seconds = npt.NDArray[np.float64]


class _Amount(NamedTuple):
    amount: float
    unit: str


def table(timeline: Timeline, rank_class: RankClass, words: Words) -> dict[str, Any]:
    """The columns, the lanes in their order, and what the host waited for."""
    step, spans = timeline.program(rank_class), timeline.spans[rank_class.name]
    times = times_of(spans)
    numbers, names = range(len(step.ops)), named_ops(step)
    return {
        "lanes": [words.text(title) for title in lanes(step, spans)],
        **columns(timeline, rank_class, numbers),
        "end": moments(times.end, timeline.makespan),
        "waited": moments(times.start - times.ready, timeline.makespan),
        "row": whole(list(rows(timeline, rank_class, numbers, names, words))),
        "number": whole([each.number for each in names]),
        "cause": whole([op.number - cause for op, cause in zip(step.ops, causes(step, spans), strict=True)]),
        "awaited": [list(pair) for pair in awaited(step, spans)],
    }


def columns(timeline: Timeline, rank_class: RankClass, numbers: Sequence[int]) -> dict[str, Any]:
    """What a row says of its op, or of the first of those that it stands for."""
    ops, spans, seconds = timeline.program(rank_class).ops, timeline.spans[rank_class.name], timeline.makespan
    return {
        "ops": len(numbers),
        "issued": moments([spans[number].issued for number in numbers], seconds),
        "start": moments([spans[number].start for number in numbers], seconds),
        "layer": whole([0 if (layer := ops[number].layer) is None else layer + 1 for number in numbers]),
        "microBatch": whole([ops[number].micro_batch for number in numbers]),
    }


def named_ops(step: Step) -> list[Named]:
    """The name of each op in its parts."""
    return [named(op.name) for op in step.ops]


class Times(NamedTuple):
    """When each was issued, was ready, began and ended."""

    issued: Seconds
    ready: Seconds
    start: Seconds
    end: Seconds


def times_of(spans: Sequence[Span]) -> Times:
    """The same as arrays."""
    known = [(span.issued, span.ready, span.start, span.end) for span in spans]
    return Times(*np.array(known, dtype=np.float64).reshape(-1, 4).T)


def lanes(step: Step, spans: Sequence[Span]) -> list[str]:
    """The titles of streams that have work: compute first, drives and CPU last."""
    used = dict.fromkeys(op.stream for op, span in zip(step.ops, spans, strict=True) if is_drawn(op, span))
    return [TITLES.get(stream, stream) for stream in sorted(used, key=lambda stream: PLACES.get(stream, OTHERS))]


def is_drawn(op: Op, span: Span) -> bool:
    """Whether it has a box in a lane."""
    return op.work is not None and span.end > span.start


# --- what is told of an op -------------------------------------------------------------------------------------------


def rows(
    timeline: Timeline, rank_class: RankClass, numbers: Sequence[int], names: Sequence[Named], words: Words
) -> Iterator[int]:
    """The row of each op; ops that share their work and demand, as those of many layers do, are looked at once."""
    step, spans, demands = timeline.program(rank_class), timeline.spans[rank_class.name], timeline.demands
    met: dict[object, int] = {}
    for number, name in zip(numbers, names, strict=True):
        op, span, demand = step.ops[number], spans[number], demands[rank_class.name][number]
        drawn = is_drawn(op, span)
        texts = name.before, name.after, op.stream, op.phase, span.bottleneck
        key = (texts, op.work, id(demand), drawn, bool(op.host_waits))
        if key not in met:
            met[key] = words.row(
                _told(timeline, step, op, span, demand, name, words) if drawn else _issued(op, demand, name, words)
            )
        yield met[key]


def _told(timeline: Timeline, step: Step, op: Op, span: Span, demand: Demand, name: Named, words: Words) -> Told:
    assert op.work is not None
    limit, amount = timeline.limit(op, span.bottleneck), _amount(op)
    used = sum(use.amount for use in demand.uses if use.resource == span.bottleneck)
    return _issued(op, demand, name, words)._replace(
        kind=NUMBERS[ink_of(op.work)],
        lane=words.text(TITLES.get(op.stream, op.stream)),
        amount=amount.amount,
        unit=amount.unit,
        limit=words.text(limit.label),
        busy=_short(used / limit.rate if limit.rate else 0.0),
        alone=_short(demand.alone(timeline.supply)),
        detail=words.text(_detail(op, step, demand)),
    )


def _issued(op: Op, demand: Demand, name: Named, words: Words) -> Told:
    """A marker: only the host meets it."""
    nothing, before, after = words.text(""), words.text(name.before), words.text(name.after)
    phase, follows = words.text(op.phase), int(bool(op.host_waits))
    return Told(before, after, -1, -1, phase, 0.0, "", nothing, 0.0, 0.0, _short(demand.host), nothing, follows)


def _short(seconds: float) -> float:
    """Six digits, two more than are shown."""
    return float(f"{seconds:.6g}")


def _amount(op: Op) -> _Amount:
    operations, size = flops(op.work), moved_bytes(op.work)
    if operations is not None:
        return _Amount(operations, "FLOP")
    return _Amount(size, "B") if size else _Amount(0.0, "")


def _detail(op: Op, step: Step, demand: Demand) -> str:
    """What the amount is of."""
    match op.work:
        case Collective():
            group = step.groups.get(op.work.group)
            ranks = f" over {group.size} ranks" if group else ""
            how = f", {demand.algorithm}" if demand.algorithm else ""
            return f"{op.work.dtype}{ranks}, group {op.work.group}{how}"
        case Transfer():
            return f"{op.work.source} to {op.work.target}{'' if op.work.pinned else ', pageable'}"
        case HostCompute():
            return "DRAM traffic"
    return ""


# --- waits -----------------------------------------------------------------------------------------------------------


def causes(step: Step, spans: Sequence[Span]) -> Iterator[int]:
    """The op whose end made each one ready; itself, where the host that issued it did."""
    last: dict[str, int] = {}
    for op in step.ops:
        span = spans[op.number]
        before = (*op.after, *([last[op.stream]] if op.stream in last else []))
        last[op.stream] = op.number
        latest = max(before, key=lambda number: spans[number].end, default=op.number)
        yield latest if span.ready > span.issued else op.number


def awaited(step: Step, spans: Sequence[Span]) -> Iterator[tuple[int, int]]:
    """Ops before which the host waited, each with the op that ended last of those it waited for."""
    free = 0.0
    for op in step.ops:
        if op.host_waits:
            last = max(op.host_waits, key=lambda number: spans[number].end)
            if spans[last].end > free:
                yield op.number, last
        free = spans[op.number].issued
