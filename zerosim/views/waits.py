"""Who waits for whom, and how long: classes of ranks that do the same and are not equally fast.

Ranks wait in two ways. A collective begins when the last class has *arrived*: a throttled GPU, a node whose copies are
slower. And it takes as long as the *slowest* of them needs for it: a port of 25 Gb/s beside others of 100 Gb/s. What a
class holds the others up by its own resources is what its slowest one would be busy with the collective longer than
that of the next slower class, as a part of the time that the collective took.

Seconds are those of one rank of the waiting class in a step. Exposed are those in which it computed nothing. Stages of
a pipeline, which do different things, wait for each other by design; that is told elsewhere (`bubble`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from zerosim.resources import Demand, Supply
from zerosim.step import Collective
from zerosim.timeline import Call, Timeline
from zerosim.views.activity import kind_of
from zerosim.views.intervals import Intervals, difference, length

NOISE = 1e-9  # of the step: less than this is the rounding of sums
Cause = Literal["late", "slow"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Ranks of the class `waiting` wait `seconds` of a step for those of the class (or classes) `waited_for`.

    They arrive `late` at `collectives` of them, of which the end of the step counts as one, or are `slow` there.
    `resource` is what they have less of. `node`: the one of which they are, where these are several classes and all
    that it has. `classes`: the names of those waited for, one by one.
    """

    waiting: str
    waited_for: str
    cause: Cause
    seconds: float
    exposed_seconds: float
    collectives: int
    resource: str
    label: str
    node: int | None = None
    classes: tuple[str, ...] = ()


class _Pair(NamedTuple):
    waiting: str
    waited_for: tuple[str, ...]
    cause: Cause


@dataclass(slots=True)
class _Times:
    """When one class waited for another, and seconds by what it waited for."""

    pairs: list[tuple[float, float]] = field(default_factory=list)
    resources: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, start: float, end: float, resource: str = "") -> None:
        self.pairs.append((start, end))
        self.resources[resource] += end - start


def waits(timeline: Timeline) -> tuple[Wait, ...]:
    """The longest first."""
    found: defaultdict[_Pair, _Times] = defaultdict(_Times)
    programs = {each.name: each.program for each in timeline.classes}
    together = timeline.collectives() if len(timeline.classes) > 1 else {}
    holders: dict[int, list[_Held]] = {}  # by identity of the demand
    for calls in {id(each): each for each in together.values() if len(each) > 1}.values():
        for pair, start, end in _arrivals(timeline, calls, programs):
            found[pair].add(start, end)
        demand = timeline.demands[calls[0].rank_class][calls[0].op]
        if id(demand) not in holders:
            holders[id(demand)] = list(_held(demand, timeline.supply, {call.rank_class for call in calls}))
        span = timeline.spans[calls[0].rank_class][calls[0].op]
        for held in holders[id(demand)]:
            flow = max(0.0, span.end - span.start - demand.latency)
            begun = span.end - held.part * flow - held.filling * demand.filling
            for name in (name for name in held.waiting if programs[name] == programs[held.waited_for[0]]):
                found[_Pair(name, held.waited_for, "slow")].add(begun, span.end, held.resource)
    for pair, start in _ends(timeline, programs):
        found[pair].add(start, timeline.makespan)
    told = [_wait(timeline, pair, times) for pair, times in found.items()]
    largest = sorted(told, key=lambda wait: (-wait.seconds, wait.waiting, wait.waited_for, wait.cause))
    return tuple(wait for wait in largest if wait.seconds > NOISE * timeline.makespan)


def _wait(timeline: Timeline, pair: _Pair, times: _Times) -> Wait:
    resource = max(times.resources, key=times.resources.__getitem__) or _slower(timeline, pair)
    return Wait(
        waiting=pair.waiting,
        waited_for=", ".join(pair.waited_for),
        cause=pair.cause,
        seconds=sum(end - start for start, end in times.pairs),
        exposed_seconds=length(difference(np.array(times.pairs), _computing(timeline, pair.waiting))),
        collectives=len(times.pairs),
        resource=resource,
        label=timeline.supply.labels.get(resource, resource),
        node=_whole_node(timeline, pair.waited_for),
        classes=pair.waited_for,
    )


def _whole_node(timeline: Timeline, names: Sequence[str]) -> int | None:
    own = {host for each in timeline.classes if each.name in names for host in each.hosts}
    others = {host for each in timeline.classes if each.name not in names for host in each.hosts}
    return min(own) if len(names) > 1 and len(own) == 1 and not own & others else None


def _computing(timeline: Timeline, name: str) -> Intervals:
    spans = timeline.spans[name]
    ops = (op.number for op in timeline.program(name).ops if kind_of(op) == "compute")
    return np.array([(spans[number].start, spans[number].end) for number in ops], dtype=np.float64).reshape(-1, 2)


# --- late ------------------------------------------------------------------------------------------------------------


def _arrivals(
    timeline: Timeline, calls: Sequence[Call], programs: Mapping[str, int]
) -> Iterator[tuple[_Pair, float, float]]:
    """Those who waited until the last one came."""
    spans = {call.rank_class: timeline.spans[call.rank_class][call.op] for call in calls}
    last = max(spans, key=lambda name: spans[name].ready)
    for name, span in spans.items():
        if span.ready < span.start and programs[name] == programs[last]:
            yield _Pair(name, (last,), "late"), span.ready, span.start


def _ends(timeline: Timeline, programs: Mapping[str, int]) -> Iterator[tuple[_Pair, float]]:
    """Those who have done their step before the last of the same program, and since when."""
    ended = {name: max((span.end for span in spans), default=0.0) for name, spans in timeline.spans.items()}
    for program in dict.fromkeys(programs.values()):
        alike = [name for name, own in programs.items() if own == program]
        last = max(alike, key=ended.__getitem__)
        yield from ((_Pair(name, (last,), "late"), ended[name]) for name in alike if ended[name] < ended[last])


def _slower(timeline: Timeline, pair: _Pair) -> str:
    """What limited the ops of the late class that took longer there, most of all; nothing where it waited itself."""
    longer: defaultdict[str, float] = defaultdict(float)
    names = (pair.waiting, *pair.waited_for)
    for op in timeline.program(pair.waiting).ops:
        together = len({id(timeline.demands[name][op.number]) for name in names}) == 1
        if not (together and isinstance(op.work, Collective)):
            one, other = (timeline.spans[name][op.number] for name in names)
            longer[other.bottleneck] += (other.end - other.start) - (one.end - one.start)
    most = max(longer, key=longer.__getitem__, default="")
    return most if longer[most] > NOISE * timeline.makespan else ""


# --- slow ------------------------------------------------------------------------------------------------------------


class _Held(NamedTuple):
    """The parts of a collective's flow, and of the filling of its way, for which `waiting` wait because of a resource
    of those `waited_for`."""

    waiting: tuple[str, ...]
    waited_for: tuple[str, ...]
    resource: str
    part: float
    filling: float


def _class_of(owner: str, classes: set[str]) -> str:
    """The class whose a resource is: also where stages share it, as `stages 0-3 of pipeline 2`."""
    pipelines = owner.partition(" of ")[2]
    sharers = (name for name in classes if pipelines and name.partition(" of ")[2] == pipelines)
    return owner if owner in classes else min(sharers, default="")


def _held(demand: Demand, supply: Supply, classes: set[str]) -> Iterator[_Held]:
    """Each class holds up those that are faster, by what it is slower than the next; equally slow ones do it together,
    such as two classes of GPUs of one node with its port."""
    busy: dict[str, tuple[float, str]] = {}  # by class: its slowest resource
    for use in demand.uses:
        owner = _class_of(supply.owners.get(use.resource, ""), classes)
        seconds = use.amount / (supply.rates[use.resource] * use.efficiency)
        if owner:
            busy[owner] = max(busy.get(owner, (0.0, "")), (seconds, use.resource))
    order = sorted(busy, key=lambda name: (-busy[name][0], name))
    since = 0
    for place, (name, following) in enumerate(pairwise(order), start=1):
        longer = busy[name][0] - busy[following][0]
        if longer > NOISE * busy[name][0]:
            alike = tuple(sorted(order[since:place]))
            before, after = (busy[each][0] / busy[order[0]][0] for each in (name, following))
            filling = before**0.5 - after**0.5  # it grows with the square root of the flow
            yield _Held(tuple(order[place:]), alike, busy[alike[0]][1], before - after, filling)
            since = place
