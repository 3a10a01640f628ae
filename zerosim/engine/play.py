"""Plays a priced step: who runs when. The only place where work becomes time, by SimPy's processes and events.

Each rank class has one host process and one process per stream. The host goes through the ops in issue order: it
waits for an op's `host_waits`, spends its host seconds, and the op is issued. Between two waits nothing can stop it,
so it runs ahead of the clock and writes down when it *will* have issued each op. A stream takes its ops one after the
other: an op begins when it is issued and everything it waits for has ended. A collective begins when every class that
takes part has reached it, and is one flow for all. A process sleeps only where it must: most ops cost one event or two.
The engine knows no training: it reads an op's place, stream and waits, and whether its work is a collective.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import repeat

from simpy import Environment, Event, Timeout
from simpy.core import EmptySchedule

from zerosim.engine.deadlock import story
from zerosim.engine.fabric import Fabric, Flow, Pauses
from zerosim.engine.record import NOT_YET, Meeting, Meetings, Record
from zerosim.engine.sharing import Footprint
from zerosim.errors import DeadlockError, ZerosimError
from zerosim.resources import Demand, RankClass, Supply
from zerosim.step import Collective, Op, Step
from zerosim.timeline import Span, Timeline


def play(step: Step, classes: Sequence[RankClass], demands: Mapping[str, Sequence[Demand]], supply: Supply) -> Timeline:
    """The timeline of `step` on `supply`, one representative per class; `demands[c][i]` is what op i of c needs.

    The classes whose demands for a collective are equal take part in the same one, and it is carried once for them:
    its demand names the resources of all.
    DeadlockError, telling who waits for what, when some op can never end.
    """
    env = Environment()
    fabric = Fabric(env, supply)
    records = [_record(step.ops, c.name, demands.get(c.name, ()), fabric) for c in classes]
    meetings = _meetings(step.ops, records, env)
    for record in records:
        _Representative(step.ops, record, fabric, meetings).start()
    events = _run(env)
    if any(NOT_YET in record.end for record in records):
        raise DeadlockError(story(step.ops, records, meetings, fabric.resources))
    return Timeline(step, tuple(classes), {r.name: _spans(r) for r in records}, demands, supply, events)


def _record(ops: Sequence[Op], name: str, demands: Sequence[Demand], fabric: Fabric) -> Record:
    if len(demands) != len(ops):
        raise ZerosimError(f"rank class {name}: found {len(demands)} demands; expected one for each of {len(ops)} ops")
    footprints = []
    known: dict[int, Footprint] = {}  # by identity, which is quicker than by value; `demands` keeps them alive
    for op, demand in zip(ops, demands, strict=True):
        footprint = known.get(id(demand))
        if footprint is None:
            if not 0 <= demand.host < math.inf:
                raise ZerosimError(f"rank class {name}: op {op.number} ({op.name}): found {demand.host} s of the host")
            try:
                footprint = known[id(demand)] = fabric.footprint(demand)
            except ZerosimError as error:
                raise ZerosimError(f"rank class {name}: op {op.number} ({op.name}): {error}") from None
        footprints.append(footprint)
    return Record(name, footprints, [demand.host for demand in demands])


def _meetings(ops: Sequence[Op], records: Sequence[Record], env: Environment) -> Meetings:
    meetings: Meetings = {}
    for number in [op.number for op in ops if isinstance(op.work, Collective)]:
        for record in records:
            footprint = record.footprints[number]
            key = (number, footprint.number)
            if key not in meetings:
                meetings[key] = Meeting(footprint, Event(env))
            meetings[key].members.append(record.name)
    return meetings


def _run(env: Environment) -> int:
    """Process events until none is left; how many they were."""
    events = 0
    try:
        while True:
            env.step()
            events += 1
    except EmptySchedule:
        return events


def _spans(record: Record) -> list[Span]:
    times = (record.issued, record.ready, record.start, record.end)
    return list(map(Span, range(len(record.end)), repeat(record.name), *times, record.bottleneck))


class _Representative:
    """The one rank that is played for its class."""

    def __init__(self, ops: Sequence[Op], record: Record, fabric: Fabric, meetings: Meetings) -> None:
        self._ops = ops
        self._record = record
        self._fabric = fabric
        self._env = fabric.env
        self._meetings = meetings
        self._ended: dict[int, Event] = {}  # made only for ops that someone waits for
        self._issues: dict[int, Event] = {}

    def start(self) -> None:
        """Begin the host's process and those of the streams."""
        self._env.process(self._host())
        streams: dict[str, list[int]] = {}
        for op in self._ops:
            streams.setdefault(op.stream, []).append(op.number)
        for numbers in streams.values():
            self._env.process(self._stream(numbers))

    def _host(self) -> Pauses:
        issued, end, spends = self._record.issued, self._record.end, self._record.host
        clock = 0.0
        for number, op in enumerate(self._ops):
            for other in op.host_waits:
                if end[other] == NOT_YET:
                    self._reach(number)
                    yield _awaited(self._ended, other, self._env)
                clock = max(clock, end[other])
            clock += spends[number]
            issued[number] = clock
        self._reach(len(self._ops))

    def _reach(self, number: int) -> None:
        """The host has decided when each op before `number` is issued: tell the streams that wait for one."""
        self._record.reached = number
        for waiting in [other for other in self._issues if other < number]:
            self._issues.pop(waiting).succeed()

    def _stream(self, numbers: Sequence[int]) -> Pauses:
        env, record, settled, ops = self._env, self._record, self._fabric.settled, self._ops
        issued, end, footprints = record.issued, record.end, record.footprints
        for number in numbers:
            if number >= record.reached:
                yield settled(_awaited(self._issues, number, env))
            for other in reversed(ops[number].after):  # the last is likely to end last: one sleep, not many
                if end[other] == NOT_YET:
                    yield settled(_awaited(self._ended, other, env))
            while issued[number] > env.now:  # twice, at most, where the sum of two doubles falls short
                yield settled(Timeout(env, issued[number] - env.now))
            record.ready[number] = record.start[number] = begun = env.now
            if isinstance(ops[number].work, Collective):
                yield from self._meet(number)
            else:
                flow = Flow(footprints[number], begun)
                yield from self._fabric.carry(flow)
                record.bottleneck[number] = self._fabric.bottleneck(flow, env.now - begun)
            end[number] = env.now
            if number in self._ended:
                self._ended.pop(number).succeed()
        self._fabric.settle()

    def _meet(self, number: int) -> Pauses:
        """Take part in a collective: wait for the others, or, as the last one to come, carry it for all."""
        fabric, record = self._fabric, self._record
        meeting = self._meetings[number, record.footprints[number].number]
        meeting.arrived.append(record.name)
        if len(meeting.arrived) < len(meeting.members):
            yield fabric.settled(meeting.over)
        else:
            meeting.start = self._env.now
            flow = Flow(meeting.footprint, meeting.start)
            yield from fabric.carry(flow)
            meeting.bottleneck = fabric.bottleneck(flow, self._env.now - meeting.start)
            if len(meeting.members) > 1:
                meeting.over.succeed()
        record.start[number] = meeting.start
        record.bottleneck[number] = meeting.bottleneck


def _awaited(events: dict[int, Event], number: int, env: Environment) -> Event:
    """The event of an op, made when the first one asks for it."""
    event = events.get(number)
    if event is None:
        event = events[number] = Event(env)
    return event
