"""Why the GPU did not compute: every instant without a compute kernel, under the one cause that held it up.

A gap ends with a compute op; what this op was waiting for, directly or through others, is the cause. So is what the
host was blocked by before it issued the op: a copy from pageable memory, a drive, work of the CPU. In flight: a
collective (the cause is its kind), a copy (`transfer`), CPU work (`host_compute`), in this order, so that the causes
sum to the parts of `breakdown`. With nothing in flight: `wait_for_rank` (a collective waits for the class that arrives
last; `wait_for_stage` where this one runs another program, as in a pipeline), `host` (the host is still busy with
issuing the next op), `launch` (it is issued, and yet has not begun: only a measured step knows that), or `idle`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zerosim.step import Collective, Op, Phase
from zerosim.timeline import Call, Span, Timeline
from zerosim.views.activity import Activity, activity, kind_of
from zerosim.views.critical_path import last_to_arrive, predecessors
from zerosim.views.holders import slowest_of_each
from zerosim.views.intervals import Intervals, difference, length, union
from zerosim.views.phases import cuts

HOST, WAIT_FOR_RANK, WAIT_FOR_STAGE, IDLE = "host", "wait_for_rank", "wait_for_stage", "idle"
LAUNCH = "launch"
NO_RESOURCE = "none"
ROUNDING = 1e-12  # of a moment of the step: closer together two are one, as far as sums of floats can tell; a choice
ONE_AT_A_TIME = 1.1  # compute of all stages, over the time in which any computes: less is one after the other; a choice


@dataclass(frozen=True, slots=True)
class Stall:
    """Seconds without compute of one cause in one phase; `resource` limited it, `label` is what a person calls it."""

    cause: str
    phase: Phase
    resource: str
    seconds: float
    label: str


class _Scene(NamedTuple):
    """The program and when it ran in the slowest class; `timeline` for the other classes, met in collectives."""

    timeline: Timeline
    together: Mapping[Call, Sequence[Call]]
    name: str
    ops: Sequence[Op]
    spans: Sequence[Span]


class _Gap(NamedTuple):
    """A time without compute; `ahead` are the next compute op and what it waits for, by start."""

    start: float
    end: float
    ahead: tuple[int, ...]
    awaited: frozenset[int]  # the same ops


class _Reason(NamedTuple):
    cause: str
    resource: str


@dataclass(slots=True)
class _Flight:
    """Non-compute ops in flight while the sweep passes, by kind, earliest started first; `waiting` for other ranks."""

    collective: dict[int, None] = field(default_factory=dict)
    transfer: dict[int, None] = field(default_factory=dict)
    host_compute: dict[int, None] = field(default_factory=dict)
    waiting: dict[int, None] = field(default_factory=dict)

    def change(self, kind: str, number: int) -> None:
        """The op takes off, or lands if it is in flight."""
        ops: dict[int, None] = getattr(self, kind)
        if number in ops:
            del ops[number]
        else:
            ops[number] = None


def stalls(timeline: Timeline, seen: Activity | None = None) -> tuple[Stall, ...]:
    """Largest first; they sum to the step without its compute. `seen`: the activity, if it is at hand."""
    seconds: defaultdict[tuple[_Reason, Phase], float] = defaultdict(float)
    slowest = timeline.slowest
    together = timeline.collectives() if len(timeline.classes) > 1 else {}
    ops, spans = timeline.program(slowest).ops, timeline.spans[slowest.name]
    scene = _Scene(timeline, together, slowest.name, ops, spans)
    phases = cuts(timeline)
    ends = [cut.end for cut in phases]
    seen = seen or activity(timeline)
    idle = difference(seen.step, seen.compute)
    for start, end, reason in _explained(scene, _gaps(scene, idle), ends):
        if end > start:
            seconds[reason, phases[bisect_right(ends, start)].phase] += end - start
    largest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    labels = dict(timeline.supply.labels)
    if any(reason.cause == WAIT_FOR_STAGE for reason, _ in seconds):
        labels |= dict.fromkeys((rank_class.name for rank_class in timeline.classes), _of_stages(timeline))
    return tuple(
        Stall(reason.cause, phase, reason.resource, time, labels.get(reason.resource, reason.resource))
        for (reason, phase), time in largest
    )


def _of_stages(timeline: Timeline) -> str:
    """How the stages of a pipeline take turns."""
    each = [activity(replace(timeline, classes=(stage,))).compute for stage in slowest_of_each(timeline)]
    in_turn = sum(map(length, each)) <= ONE_AT_A_TIME * length(union(*each))
    return "one stage works at a time" if in_turn else "another stage is at work"


def _gaps(scene: _Scene, idle: Intervals) -> Iterator[_Gap]:
    """The times without compute, in order, with what comes next."""
    before = predecessors(scene.ops)
    compute: dict[float, int] = {}
    others: list[tuple[float, int]] = []
    for op, span in zip(scene.ops, scene.spans, strict=True):
        if kind_of(op) != "compute":
            others.append((span.start, op.number))
        elif span.end > span.start:
            compute.setdefault(span.start, op.number)
    others.sort()
    for start, end in idle.tolist():
        if end in compute:
            awaited = _chain(scene, before, compute[end], start)
        else:  # the end of the step: whatever comes is ahead
            awaited = frozenset(number for _, number in others[bisect_left(others, (start, -1)) :])
        ahead = sorted(awaited, key=lambda number: (scene.spans[number].start, number))
        yield _Gap(start, end, tuple(ahead), awaited)


def _chain(scene: _Scene, before: Sequence[int], head: int, since: float) -> frozenset[int]:
    """`head` and every op it waits for, directly or not, that had not ended at `since`; the host waits for it, too."""
    blocking = (other for other in _blocking(scene, head, since) if scene.spans[other].end > since)
    found = {head, *blocking}
    unfollowed = list(found)
    while unfollowed:
        number = unfollowed.pop()
        for other in (*scene.ops[number].after, before[number]):
            if other >= 0 and other not in found and scene.spans[other].end > since:
                found.add(other)
                unfollowed.append(other)
    return frozenset(found)


def _blocking(scene: _Scene, head: int, since: float) -> Iterator[int]:
    """What the host waited for from `since` on until it had issued `head`."""
    for number in range(head, -1, -1):
        if scene.spans[number].issued <= since:
            return
        yield from scene.ops[number].host_waits


def _explained(scene: _Scene, gaps: Iterable[_Gap], ends: Sequence[float]) -> Iterator[tuple[float, float, _Reason]]:
    """The gaps in pieces during which nothing changes (nor does the phase, at `ends`), each with its reason."""
    flight, changes, place = _Flight(), _changes(scene), 0
    for gap in gaps:
        now = gap.start
        stops = ends[bisect_right(ends, gap.start) : bisect_left(ends, gap.end)]
        moments = [(stop, "", -1) for stop in (*stops, gap.end)]
        while place < len(changes) and changes[place][0] < gap.end:
            moments.append(changes[place])
            place += 1
        for time, kind, number in sorted(moments):
            if time > now:
                yield from _reasons(scene, flight, gap, now, time)
                now = time
            if kind:
                flight.change(kind, number)


def _changes(scene: _Scene) -> list[tuple[float, str, int]]:
    """When each op that is not compute takes off and lands; when a collective begins and ends waiting for others."""
    found: list[tuple[float, str, int]] = []
    for op, span in zip(scene.ops, scene.spans, strict=True):
        kind = kind_of(op)
        if kind in {"compute", "marker"}:
            continue
        if span.end > span.start:
            found += [(span.start, kind, op.number), (span.end, kind, op.number)]
        if kind == "collective" and span.start > span.ready:
            found += [(span.ready, "waiting", op.number), (span.start, "waiting", op.number)]
    found.sort()
    return found


def _reasons(
    scene: _Scene, flight: _Flight, gap: _Gap, start: float, end: float
) -> Iterator[tuple[float, float, _Reason]]:
    """Why nothing was computed from `start` to `end`, while the same ops were in flight."""
    active = flight.collective or flight.transfer or flight.host_compute
    if active:
        number = _awaited(active, gap)
        yield start, end, _Reason(_cause(scene.ops[number]), scene.spans[number].bottleneck)
    elif flight.waiting:
        last = _last_to_arrive(scene, _awaited(flight.waiting, gap))
        alike = scene.timeline.program(last) is scene.timeline.program(scene.name)
        yield start, end, _Reason(WAIT_FOR_RANK if alike else WAIT_FOR_STAGE, last)
    elif (issued := _next_issue(scene.spans, gap, end)) is None:
        yield start, end, _Reason(IDLE, NO_RESOURCE)
    else:
        launched = min(max(issued, start), end)
        launched = end if end - launched <= ROUNDING * end else launched
        yield start, launched, _Reason(HOST, HOST)
        yield launched, end, _Reason(LAUNCH, NO_RESOURCE)


def _cause(op: Op) -> str:
    return op.work.kind if isinstance(op.work, Collective) else kind_of(op)


def _awaited(candidates: Iterable[int], gap: _Gap) -> int:
    """Of the ops in flight the first that the next compute op waits for, else the first."""
    numbers = list(candidates)
    return next((number for number in numbers if number in gap.awaited), numbers[0])


def _last_to_arrive(scene: _Scene, number: int) -> str:
    """The class that keeps the others waiting at this collective."""
    return last_to_arrive(scene.timeline, scene.together, Call(scene.name, number)).rank_class


def _next_issue(spans: Sequence[Span], gap: _Gap, time: float) -> float | None:
    """When the host issued the op ahead that starts next; None when none does."""
    place = bisect_left(gap.ahead, time, key=lambda number: spans[number].start)
    return spans[gap.ahead[place]].issued if place < len(gap.ahead) else None
