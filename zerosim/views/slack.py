"""How much later each op could end without making the step longer, with every op as long as it was.

The step is a graph of two kinds of events, an op's issue and its end, each a fixed time after the last of what it waits
for: an issue the host's seconds after the issue before it and the ops that the host waits for; an end the op's duration
after its issue, the op before it in its stream, and its inputs. A collective of several classes has one end, which
waits for all of them. From the end of the step the latest time of every event is found backwards. (The float of the
critical path method: Kelley and Walker 1959.)

Durations are fixed: what an op that moves would take from others, or leave to them, on a shared link is not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zerosim.timeline import Call, Timeline
from zerosim.views.critical_path import Link, critical_path, predecessors
from zerosim.views.flows import party

NONE = 1e-9  # of the step: less slack than this is the rounding of sums


@dataclass(frozen=True, slots=True)
class Slack:
    """The ops of one kind on one stream: how long they take, for how much of that the step hung on them, and the
    slack of the one that has least and of the one in the middle. `critical`: how many have none."""

    op: str
    stream: str
    rank_class: str
    ops: int
    seconds: float
    critical_seconds: float
    critical: int
    least_seconds: float
    median_seconds: float


def slack(timeline: Timeline) -> dict[str, list[float]]:
    """Seconds by class and op."""
    graph = _Graph(timeline)
    latest = graph.latest(timeline.makespan)
    return {
        name: [latest[graph.end_of[Call(name, span.op)]] - span.end for span in spans]
        for name, spans in timeline.spans.items()
    }


def slacks(
    timeline: Timeline, known: Mapping[str, Sequence[float]] | None = None, links: Sequence[Link] | None = None
) -> tuple[Slack, ...]:
    """Of each kind and stream, those with least slack first and the longest of these. `known` is the slack of the ops
    and `links` the critical path, if they are at hand."""
    known, least = known or slack(timeline), NONE * timeline.makespan
    critical: defaultdict[Call, float] = defaultdict(float)
    for link in critical_path(timeline) if links is None else links:
        if link.why == "work":
            critical[Call(link.rank_class, link.op)] += link.end - link.start
    found = []
    for each in timeline.classes:
        kinds: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for op in timeline.program(each).ops:
            if op.work is not None:
                kinds[party(op), op.stream].append(op.number)
        spans = timeline.spans[each.name]
        for (kind, stream), numbers in kinds.items():
            loose = sorted(known[each.name][number] for number in numbers)
            found.append(
                Slack(
                    op=kind,
                    stream=stream,
                    rank_class=each.name,
                    ops=len(numbers),
                    seconds=sum(spans[number].end - spans[number].start for number in numbers),
                    critical_seconds=sum(critical.get(Call(each.name, number), 0.0) for number in numbers),
                    critical=sum(seconds <= least for seconds in loose),
                    least_seconds=max(0.0, loose[0]),
                    median_seconds=max(0.0, loose[len(loose) // 2]),
                )
            )
    return tuple(sorted(found, key=lambda each: (each.least_seconds, -each.seconds, each.rank_class, each.stream)))


class _Graph:
    """Events by number: `before` each one those it waits for, and the `lag` between the last of them and it."""

    def __init__(self, timeline: Timeline) -> None:
        self.before: list[list[int]] = []
        self.lag: list[float] = []
        self.end_of: dict[Call, int] = {}
        together = timeline.collectives() if len(timeline.classes) > 1 else {}
        before = [predecessors(step.ops) for step in timeline.steps]
        for each in timeline.classes:
            name, spans, demands = each.name, timeline.spans[each.name], timeline.demands[each.name]
            issued = -1
            for op in timeline.program(each).ops:
                awaited = [self.end_of[Call(name, other)] for other in op.host_waits]
                issued = self._event([*awaited, *([issued] if issued >= 0 else [])], demands[op.number].host)
                waits = [issued, *(self.end_of[Call(name, other)] for other in op.after)]
                stream = before[each.program][op.number]
                waits += [self.end_of[Call(name, stream)]] if stream >= 0 else []
                call = Call(name, op.number)
                first = together.get(call, (call,))[0]
                if first in self.end_of:  # the end of a collective that another class has, too
                    self.before[self.end_of[first]] += waits
                    self.end_of[call] = self.end_of[first]
                else:
                    span = spans[op.number]
                    self.end_of[call] = self.end_of[first] = self._event(waits, span.end - span.start)

    def _event(self, before: list[int], lag: float) -> int:
        self.before.append(before)
        self.lag.append(lag)
        return len(self.lag) - 1

    def latest(self, end: float) -> list[float]:
        """When each may happen at the latest, the last ones at `end`; found once it is for all that wait for it."""
        latest, waiting = [end] * len(self.lag), [0] * len(self.lag)
        for others in self.before:
            for other in others:
                waiting[other] += 1
        done = [event for event, count in enumerate(waiting) if not count]
        while done:
            event = done.pop()
            start = latest[event] - self.lag[event]
            for other in self.before[event]:
                latest[other] = min(latest[other], start)
                waiting[other] -= 1
                if not waiting[other]:
                    done.append(other)
        return latest
