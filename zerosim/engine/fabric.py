"""The machine in motion: flows that run at once share its resources, and each learns when it ends.

A flow waits its latency (not shared), then moves through all its resources at once at the speed that `sharing` gives
it. Speeds change only when a flow joins or leaves, and only for flows joined to it by a chain of shared resources;
only then is the work left of a flow brought up to date. A flow sleeps on one timer. When it becomes slower it wakes
too early and sleeps again; when it becomes faster its sleeper is moved to an earlier timer. So a flow that nobody
disturbs costs one event. The fabric knows no step, no stream and no rank.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from simpy import Environment, Event, Timeout

from zerosim.engine.capacities import Capacities
from zerosim.engine.footprints import Footprint, Rate

LATENCY = "latency"  # the bottleneck of what waits at least half of its time for nothing that is shared
_NOW = 1 + 1e-14  # a moment this close (relative) to the clock is now: sums of doubles err by a few parts in 1e16
_STILL = Rate(0.0, -1)  # of a flow that is not on its resources

Pauses = Generator[Event, None, None]
Carrying = Generator[Event, None, tuple[float, str]]


class Flow:
    """One demand being carried: how much of it is left (1 to 0), how fast it goes, and what has limited it."""

    __slots__ = ("bound", "due", "finish", "footprint", "left", "limited", "mask", "rate", "since", "timer")

    since: float  # when `left` was true
    finish: float
    bound: float  # since when its bottleneck has been this one
    due: float  # when the timer rings

    def __init__(self, footprint: Footprint) -> None:
        self.footprint = footprint
        self.mask = footprint.mask
        self.left = 1.0
        self.rate = _STILL
        self.limited: dict[int, float] | None = None  # seconds by earlier bottleneck
        self.timer: Timeout | None = None


class Fabric:
    """The flows on the resources of a machine, in a SimPy environment. A set of resources is a bit mask."""

    def __init__(self, env: Environment, resources: Sequence[str]) -> None:
        self.env = env
        self.resources = resources
        self.flows: list[Flow] = []  # all that are on their resources
        self.capacities = Capacities()
        self._touched = 0  # resources whose flows or holds changed since the fabric settled

    # --- a flow's life ---------------------------------------------------------------------------------------------

    def carry(self, footprint: Footprint, now: float) -> Carrying:
        """Latency, then work, from now on. Yielded from by the process that waits for the end.

        Returns when that is, and what limited the flow longest: a resource, or LATENCY.
        """
        env, flow, begun = self.env, Flow(footprint), now
        if footprint.holds:
            self._hold(footprint, now)
        if not footprint.alone.speed:
            yield self.settled(Event(env), now)  # nothing will ever succeed it: the story of the deadlock tells why
        if flow.mask and self._free(flow.mask):
            self._book(flow, now)
        elif footprint.latency:
            yield self.settled(Timeout(env, footprint.latency), now)
            now = env.now
        while flow.mask:
            if flow.rate is _STILL:
                self._join(flow, now)
            if flow.finish <= now * _NOW:
                self._leave(flow)
                break
            yield flow.timer if flow.timer and flow.due > now else self._arm(flow, now)
            now = env.now
        if footprint.holds:
            self.capacities.give_back(footprint.holds)
            self._touch_held(footprint)
        return now, self._bottleneck(flow, begun, now)

    def settled(self, event: Event, now: float) -> Event:
        """The event, after every flow has its new speed: nobody may sleep before."""
        if self._touched:
            self.settle(now)
        return event

    def _bottleneck(self, flow: Flow, begun: float, now: float) -> str:
        if not flow.mask or 2 * flow.footprint.fixed >= now - begun:
            return LATENCY
        if flow.limited is None:
            return self.resources[flow.rate.bottleneck]
        self._note(flow, now)
        return self.resources[max(flow.limited, key=flow.limited.__getitem__)]

    def _free(self, mask: int) -> bool:
        """Whether nobody uses or holds any of these resources."""
        if self.capacities.scarce & mask:
            return False
        for flow in self.flows:  # noqa: SIM110  # any() of a generator takes three times as long
            if flow.mask & mask:
                return False
        return True

    def _book(self, flow: Flow, now: float) -> None:
        """Nobody is in the way: the flow may sleep through latency and work at once, if nobody comes meanwhile."""
        if self._touched:
            self.settle(now)
        self.flows.append(flow)
        flow.rate = flow.footprint.alone
        flow.since = flow.bound = now + flow.footprint.latency
        flow.finish = flow.since + 1 / flow.rate.speed
        self._arm(flow, now)

    def _unbook(self, mask: int, now: float) -> None:
        """Somebody comes: who has booked these and is still in its latency wakes at the end of that, and joins."""
        for flow in self.flows.copy():
            if flow.since > now and flow.mask & mask:
                self.flows.remove(flow)
                flow.rate, flow.finish = _STILL, flow.since
                self._arm(flow, now)

    def _join(self, flow: Flow, now: float) -> None:
        self._unbook(flow.mask, now)
        flow.since = flow.bound = now
        self.flows.append(flow)
        self._touched |= flow.mask
        self.settle(now)

    def _leave(self, flow: Flow) -> None:
        self.flows.remove(flow)
        if self.flows:
            self._touched |= flow.mask

    def _hold(self, footprint: Footprint, now: float) -> None:
        for resource, _ in footprint.holds:
            self._unbook(1 << resource, now)
        self.capacities.take(footprint.holds)
        self._touch_held(footprint)

    def _touch_held(self, footprint: Footprint) -> None:
        for resource, _ in footprint.holds:
            self._touched |= 1 << resource

    # --- speeds ----------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Give every flow that a change can reach its new speed."""
        touched, self._touched = self._touched, 0
        for flow in self.flows:
            if flow.mask & touched:
                crowd, mask = self._crowd(flow)
                rates = self.capacities.rates([each.footprint for each in crowd], mask)
                for each, rate in zip(crowd, rates, strict=True):
                    if rate is not each.rate:
                        self._pace(each, rate, now)
                touched &= ~mask

    def _crowd(self, flow: Flow) -> tuple[list[Flow], int]:
        """The flows joined to this one by a chain of shared resources, and the resources of all of them."""
        crowd: list[Flow] = []
        reached = flow.mask
        while len(crowd) < len(self.flows):
            crowd, mask = [], reached
            for each in self.flows:
                if each.mask & reached:
                    crowd.append(each)
                    reached |= each.mask
            if reached == mask:
                break
        return crowd, reached

    def _pace(self, flow: Flow, rate: Rate, now: float) -> None:
        """From now on the flow goes at this rate."""
        speed, bottleneck = rate
        before, limit = flow.rate
        if before:
            if bottleneck != limit:
                self._note(flow, now)
            if speed != before:
                flow.left = max(0.0, flow.left - before * (now - flow.since))
        flow.rate = rate
        if speed != before:
            flow.since = now
            flow.finish = now + flow.left / speed
            if flow.timer is None or flow.finish * _NOW < flow.due:
                self._arm(flow, now)

    def _note(self, flow: Flow, now: float) -> None:
        """Book the time since the last change of bottleneck."""
        if flow.limited is None:
            flow.limited = {}
        bottleneck = flow.rate.bottleneck
        flow.limited[bottleneck] = flow.limited.get(bottleneck, 0.0) + now - flow.bound
        flow.bound = now

    def _arm(self, flow: Flow, now: float) -> Timeout:
        """Set the flow's timer to its end, and move the process that sleeps on the old one, if any."""
        delay = flow.finish - now if flow.finish > now else 0.0
        timer, before = Timeout(self.env, delay), flow.timer
        if before is not None and before.callbacks:
            timer.callbacks, before.callbacks = before.callbacks, []
        flow.timer, flow.due = timer, now + delay
        return timer
