"""The chain of ops that the end of the step hangs on, from its first moment to its last without a hole.

Each op was held up by one thing: an op of its own rank that ended last, the host that had not issued it yet, or, for a
collective, the class that arrived last (there the chain goes on in that class). So the links sum to the step, and
making anything that is not on the chain faster changes nothing, until the chain changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from zerosim.step import Op
from zerosim.timeline import Call, Span, Timeline


class Link(NamedTuple):
    """From `start` to `end` the step hung on an op: its `work`, the `host` issuing it, or a `wait` without a cause."""

    op: int
    rank_class: str
    start: float
    end: float
    why: Literal["work", "host", "wait"]


def critical_path(timeline: Timeline) -> tuple[Link, ...]:
    """The links in order of time; they leave no hole and those of no length are left out."""
    links = [link for link in _backward(timeline) if link.end > link.start]
    return tuple(reversed(links))


def predecessors(ops: Sequence[Op]) -> list[int]:
    """The op before each one in its stream, -1 for the first."""
    last: dict[str, int] = {}
    found = []
    for op in ops:
        found.append(last.get(op.stream, -1))
        last[op.stream] = op.number
    return found


def _backward(timeline: Timeline) -> Iterator[Link]:
    """From the op that ends last to the start of the step."""
    before = [predecessors(step.ops) for step in timeline.steps]
    programs = {rank_class.name: rank_class.program for rank_class in timeline.classes}
    together = timeline.collectives() if len(timeline.classes) > 1 else {}
    name = timeline.slowest.name
    number: int | None = _last_to_end(timeline.spans[name], range(len(timeline.spans[name])))
    while number is not None:
        span = timeline.spans[name][number]
        yield Link(number, name, span.start, span.end, "work")
        reached = span.start
        name, number = last_to_arrive(timeline, together, Call(name, number))
        span, spans = timeline.spans[name][number], timeline.spans[name]
        ops = timeline.steps[programs[name]].ops
        blocker = _last_to_end(spans, (*ops[number].after, before[programs[name]][number]))
        if blocker is not None and spans[blocker].end >= span.issued:
            yield Link(number, name, spans[blocker].end, reached, "wait")
        else:
            yield Link(number, name, span.issued, reached, "wait")
            blocker = _blocking(ops, spans, number)
            yield Link(number, name, 0.0 if blocker is None else spans[blocker].end, span.issued, "host")
        number = blocker


def last_to_arrive(timeline: Timeline, together: Mapping[Call, Sequence[Call]], call: Call) -> Call:
    """The call for which the others of a collective waited; itself where nobody waited. `together`: of the timeline."""
    span = timeline.spans[call.rank_class][call.op]
    if span.ready >= span.start:
        return call
    return max(together.get(call, [call]), key=lambda other: timeline.spans[other.rank_class][other.op].ready)


def _last_to_end(spans: Sequence[Span], numbers: Iterable[int]) -> int | None:
    """Of these ops (-1 is none) the one that ends last, the later issued of equal ones."""
    return max((n for n in numbers if n >= 0), key=lambda n: (spans[n].end, n), default=None)


def _blocking(ops: Sequence[Op], spans: Sequence[Span], number: int) -> int | None:
    """The op that last kept the host from going on before it issued `number`; None if nothing did since the start."""
    for current in range(number, -1, -1):
        awaited = _last_to_end(spans, ops[current].host_waits)
        if awaited is not None and spans[awaited].end > (spans[current - 1].issued if current else 0.0):
            return awaited
    return None
