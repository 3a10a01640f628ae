"""Plays a priced step: who runs when. The only place where work becomes time, by SimPy's processes and events.

Each rank class has one host process and one process per stream. The host goes through the ops in issue order: it
waits for an op's `host_waits`, spends its host seconds, and the op is issued. Between two waits nothing can stop it,
so it runs ahead of the clock and writes down when it *will* have issued each op. A stream takes its ops one after the
other: an op begins when it is issued and everything it waits for has ended. A collective begins when every class that
takes part has reached it, and is one flow for all. A process sleeps only where it must: most ops cost one event or two.
Classes may run different programs. The engine knows no training: it reads an op's place, stream and waits, and whether
its work is a collective.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from itertools import count, repeat

from simpy import Environment, Event, Timeout
from simpy.core import EmptySchedule

from zerosim.engine.deadlock import story
from zerosim.engine.fabric import Fabric, Pauses
from zerosim.engine.footprints import Footprint, Footprints
from zerosim.engine.record import NOT_YET, Meeting, Record
from zerosim.errors import DeadlockError, ZerosimError
from zerosim.resources import Demand, RankClass, Supply
from zerosim.step import Op, Step
from zerosim.timeline import Span, Timeline, ordinals


def play(
    steps: Sequence[Step], classes: Sequence[RankClass], demands: Mapping[str, Sequence[Demand]], supply: Supply
) -> Timeline:
    """The timeline of a step on `supply`, one representative per class: class c runs `steps[c.program]`, and
    `demands[c][i]` is what op i of that needs.

    The classes whose demands for a collective are equal take part in the same one, and it is carried once for them:
    its demand names the resources of all.
    DeadlockError, telling who waits for what, when some op can never end.
    """
    env = Environment()
    fabric, footprints = Fabric(env, tuple(supply.rates)), Footprints(supply)
    records = [_record(steps[c.program].ops, c.name, demands.get(c.name, ()), footprints) for c in classes]
    if len(records) > 1:
        _arrange_meetings(records, env)
    for record in records:
        _Representative(record, fabric).start()
    events = _run(env)
    if any(NOT_YET in record.end for record in records):
        raise DeadlockError(story(records, fabric.resources))
    return Timeline(tuple(steps), tuple(classes), {r.name: _spans(r) for r in records}, demands, supply, events)


def _record(ops: Sequence[Op], name: str, demands: Sequence[Demand], footprints: Footprints) -> Record:
    if len(demands) != len(ops):
        raise ZerosimError(f"rank class {name}: found {len(demands)} demands; expected one for each of {len(ops)} ops")
    known: dict[int, Footprint] = {}  # by identity, which is quicker than by value; `demands` keeps them alive
    for op, demand in zip(ops, demands, strict=True):
        if id(demand) not in known:
            try:
                known[id(demand)] = footprints.of(demand)
                if not 0 <= demand.host < math.inf:
                    raise ZerosimError(f"found {demand.host} s of the host")
            except ZerosimError as error:
                raise ZerosimError(f"rank class {name}: op {op.number} ({op.name}): {error}") from None
    return Record(name, ops, [known[id(demand)] for demand in demands], [demand.host for demand in demands])


def _arrange_meetings(records: Sequence[Record], env: Environment) -> None:
    """Write into the records which of them carry a collective together.

    NCCL's rule: the i-th call of one rank on a communicator meets the i-th of the others. The same name may stand for
    several communicators (those of other nodes, of other stages); members of one need the same for the call.
    """
    together: dict[tuple[str, int, int], list[tuple[Record, int]]] = {}
    for record in records:
        for op, place in ordinals(record.ops):
            key = (op.stream, place, record.footprints[op.number].number)
            together.setdefault(key, []).append((record, op.number))
    for members in together.values():
        meeting = Meeting(Event(env), [member.name for member, _ in members])
        for member, number in members if len(members) > 1 else ():
            member.meetings[number] = meeting


def _run(env: Environment) -> int:
    """Process events until none is left; how many they were."""
    events = 0
    with suppress(EmptySchedule):
        while True:
            env.step()
            events += 1
    return events


def _spans(record: Record) -> list[Span]:
    times = (record.issued, record.ready, record.start, record.end)
    return list(map(Span._make, zip(count(), repeat(record.name), *times, record.bottleneck, strict=False)))


class _Representative:
    """The one rank that is played for its class."""

    def __init__(self, record: Record, fabric: Fabric) -> None:
        self._ops = record.ops
        self._record = record
        self._fabric = fabric
        self._env = fabric.env
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
        env, record, fabric, ops, ended = self._env, self._record, self._fabric, self._ops, self._ended
        issued, ready, start, end = record.issued, record.ready, record.start, record.end
        now = env.now
        for number in numbers:
            if number >= record.reached:
                yield fabric.settled(_awaited(self._issues, number, env), now)
                now = env.now
            for other in reversed(ops[number].after):  # the last is likely to end last: one sleep, not many
                if end[other] == NOT_YET:
                    yield fabric.settled(_awaited(ended, other, env), now)
                    now = env.now
            while issued[number] > now:  # twice, at most, where the sum of two doubles falls short
                yield fabric.settled(Timeout(env, issued[number] - now), now)
                now = env.now
            ready[number] = start[number] = now
            if number in record.meetings:
                now = yield from self._meet(number, record.meetings[number], now)
            else:
                now, record.bottleneck[number] = yield from fabric.carry(record.footprints[number], now)
            end[number] = now
            if number in ended:
                ended.pop(number).succeed()
        fabric.settle(now)

    def _meet(self, number: int, meeting: Meeting, now: float) -> Generator[Event, None, float]:
        """Take part in a collective: wait for the others, or, as the last one to come, carry it for all."""
        record = self._record
        meeting.arrived.append(record.name)
        if len(meeting.arrived) < len(meeting.members):
            yield self._fabric.settled(meeting.over, now)
            now = self._env.now
        else:
            meeting.start = now
            now, meeting.bottleneck = yield from self._fabric.carry(record.footprints[number], now)
            meeting.over.succeed()
        record.start[number] = meeting.start
        record.bottleneck[number] = meeting.bottleneck
        return now


def _awaited(events: dict[int, Event], number: int, env: Environment) -> Event:
    """The event of an op, made when the first one asks for it."""
    event = events.get(number)
    if event is None:
        event = events[number] = Event(env)
    return event
