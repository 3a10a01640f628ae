"""The chain of ops that the end of the step hangs on, from its first moment to its last without a hole.

Each op was held up by one thing: an op of its own rank that ended last, the host that had not issued it yet, or, for a
collective, the class that arrived last (there the chain goes on in that class). So the links sum to the step, and
making anything that is not on the chain faster changes nothing, until the chain changes. Where the host issued an op
late it may have been held up itself, by an op that it waited for: there the chain goes on with that op.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from zerosim.step import Op
from zerosim.timeline import Call, Span, Timeline

Hold = Literal["stream", "input", "host", "device", ""]
Why = Literal["work", "host", "wait"]


class Link(NamedTuple):
    """From `start` to `end` the step hung on an op: its `work`, the `host` issuing it, or a `wait` without a cause.

    `held`: why it did not begin sooner. Its `stream` was busy with another op, an `input` was not there yet, the `host`
    had other ops to issue first, or the host waited for the `device`; empty where nothing came before. `blocker` is the
    op behind that.
    """

    op: int
    rank_class: str
    start: float
    end: float
    why: Why
    held: Hold = ""
    blocker: Call | None = None


def critical_path(timeline: Timeline) -> tuple[Link, ...]:
    """The links in order of time; they leave no hole and those of no length are left out."""
    name = timeline.slowest.name
    last = last_to_end(timeline.spans[name], range(len(timeline.spans[name])))
    links = [] if last is None else [link for link in Chains(timeline).back(Call(name, last)) if link.end > link.start]
    return tuple(reversed(links))


class Chains:
    """What ops of a timeline hung on."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._together = timeline.collectives() if len(timeline.classes) > 1 else {}
        before = [predecessors(step.ops) for step in timeline.steps]
        self._classes = {
            each.name: _Class(timeline.steps[each.program].ops, timeline.spans[each.name], before[each.program])
            for each in timeline.classes
        }

    def back(self, call: Call) -> Iterator[Link]:
        """The op, and what it hung on, backwards to the start of the step."""
        at: Call | None = call
        while at is not None:
            span = self._timeline.spans[at.rank_class][at.op]
            arrived = last_to_arrive(self._timeline, self._together, at)
            own = self._classes[arrived.rank_class]
            blocker, issued = own.blocker(arrived.op), own.spans[arrived.op].issued
            if blocker is not None and own.spans[blocker].end >= issued:
                held: Hold = "stream" if blocker == own.before[arrived.op] else "input"
                pieces: list[tuple[float, float, Why]] = [(own.spans[blocker].end, span.start, "wait")]
            else:
                block = own.host[arrived.op]
                blocker, held = block.op, block.why(issued)
                pieces = [(issued, span.start, "wait"), (block.end, issued, "host")]
            cause = None if blocker is None else Call(arrived.rank_class, blocker)
            yield Link(at.op, at.rank_class, span.start, span.end, "work", held, cause)
            for start, end, why in pieces:
                yield Link(arrived.op, arrived.rank_class, start, end, why, held, cause)
            at = cause


class _Block(NamedTuple):
    """The op that the host waited for last, from when to when; None: it has waited for nothing since the start."""

    op: int | None = None
    start: float = 0.0
    end: float = 0.0

    def why(self, issued: float) -> Hold:
        """What of the host's time made an op late: its wait, or the ops that it issued since."""
        if self.op is None and not issued:
            return ""
        return "device" if self.op is not None and self.end - self.start >= issued - self.end else "host"


class _Class:
    """A class of ranks: what its ops waited for."""

    def __init__(self, ops: Sequence[Op], spans: Sequence[Span], before: Sequence[int]) -> None:
        self.ops, self.spans, self.before = ops, spans, before
        self.host = list(_blocks(ops, spans))  # by op, what kept the host from issuing it

    def blocker(self, number: int) -> int | None:
        """Of the ops that an op waited for on the device, the last to end."""
        return last_to_end(self.spans, (*self.ops[number].after, self.before[number]))


def _blocks(ops: Sequence[Op], spans: Sequence[Span]) -> Iterator[_Block]:
    block, reached = _Block(), 0.0
    for op in ops:
        awaited = last_to_end(spans, op.host_waits)
        if awaited is not None and spans[awaited].end > reached:
            block = _Block(awaited, reached, spans[awaited].end)
        reached = spans[op.number].issued
        yield block


def predecessors(ops: Sequence[Op]) -> list[int]:
    """The op before each one in its stream, -1 for the first."""
    last: dict[str, int] = {}
    found = []
    for op in ops:
        found.append(last.get(op.stream, -1))
        last[op.stream] = op.number
    return found


def last_to_arrive(timeline: Timeline, together: Mapping[Call, Sequence[Call]], call: Call) -> Call:
    """The call for which the others of a collective waited; itself where nobody waited. `together`: of the timeline."""
    span = timeline.spans[call.rank_class][call.op]
    if span.ready >= span.start:
        return call
    return max(together.get(call, [call]), key=lambda other: timeline.spans[other.rank_class][other.op].ready)


def last_to_end(spans: Sequence[Span], numbers: Iterable[int]) -> int | None:
    """Of these ops (-1 is none) the one that ends last, the later issued of equal ones."""
    return max((n for n in numbers if n >= 0), key=lambda n: (spans[n].end, n), default=None)
