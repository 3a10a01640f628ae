"""The machine in motion: flows that run at once share its resources, and each learns when it ends.

A flow waits its latency (not shared), then moves through all its resources at once at the speed that `sharing` gives
it. Speeds change only when a flow joins or leaves, and only for flows joined to it by a chain of shared resources;
only then is the work left of a flow brought up to date. A flow sleeps on one timer. When it becomes slower it wakes
too early and sleeps again; when it becomes faster its sleeper is moved to an earlier timer. So a flow that nobody
disturbs costs one event. The fabric knows no step, no stream and no rank.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from difflib import get_close_matches

from simpy import Environment, Event, Timeout

from zerosim.engine.sharing import LEAST_CAPACITY, Footprint, Rate, share
from zerosim.errors import ZerosimError
from zerosim.resources import Demand, Supply

LATENCY = "latency"  # the bottleneck of what waits at least half of its time for nothing that is shared
_NOW = 1 + 1e-14  # a moment this close (relative) to the clock is now: sums of doubles err by a few parts in 1e16

Pauses = Generator[Event, None, None]


class Flow:
    """One demand being carried: how much of it is left (1 to 0), how fast it goes, and what has limited it."""

    __slots__ = ("bottleneck", "bound", "due", "finish", "footprint", "left", "limited", "since", "speed", "timer")

    def __init__(self, footprint: Footprint, now: float) -> None:
        self.footprint = footprint
        self.left = 1.0
        self.speed = 0.0
        self.since = now  # when `left` was true
        self.finish = now
        self.bottleneck = footprint.slowest
        self.bound = now  # since when it has been the bottleneck
        self.limited: dict[int, float] | None = None  # seconds by earlier bottleneck
        self.timer: Timeout | None = None
        self.due = 0.0  # when the timer rings


class Fabric:
    """All resources of a machine and the flows on them, in a SimPy environment."""

    def __init__(self, env: Environment, supply: Supply) -> None:
        self.env = env
        self.resources = tuple(supply.rates)
        self.users: list[list[Flow]] = [[] for _ in self.resources]
        self.capacities = [1.0] * len(self.resources)  # what holds leave to flows
        self._held: list[list[float]] = [[] for _ in self.resources]
        self._supply = supply
        self._numbers = {name: number for number, name in enumerate(self.resources)}
        self._footprints: dict[tuple[object, ...], Footprint] = {}
        self._touched: list[int] = []  # resources whose users or holds changed since the fabric settled
        self._known: dict[tuple[object, ...], dict[int, Rate]] = {}

    # --- demands ---------------------------------------------------------------------------------------------------

    def footprint(self, demand: Demand) -> Footprint:
        """The demand in numbers of this machine; equal demands give the same footprint."""
        key = (demand.latency, demand.uses, demand.holds)
        found = self._footprints.get(key)
        if found is None:
            found = self._footprints[key] = self._measure(len(self._footprints), demand)
        return found

    def _measure(self, number: int, demand: Demand) -> Footprint:
        if not all(0 <= amount < math.inf for amount in (demand.latency, *(u.amount for u in demand.uses))):
            raise ZerosimError(f"found {demand}; expected seconds and amounts from 0 to below infinity")
        seconds: dict[int, float] = {}
        for use in demand.uses:
            resource = self._number(use.resource)
            rate = self._supply.rates[use.resource] * use.efficiency
            if use.amount > 0:  # a rate of 0 carries nothing: the op can never end
                seconds[resource] = seconds.get(resource, 0.0) + (use.amount / rate if rate > 0 else math.inf)
        uses = tuple(sorted(seconds.items()))
        holds = tuple((self._number(hold.resource), hold.share) for hold in demand.holds if hold.share > 0)
        slowest = max(uses, key=lambda use: use[1], default=(-1, 0.0))
        fastest = 1 / slowest[1] if uses else math.inf
        return Footprint(number, demand.latency, uses, holds, fastest, slowest[0])

    def _number(self, resource: str) -> int:
        number = self._numbers.get(resource)
        if number is None:
            near = get_close_matches(resource, self.resources, n=1)
            raise ZerosimError(
                f"found resource {resource!r}; expected one of the supply's {len(self.resources)}"
                + (f"; nearest {near[0]!r}" if near else "")
            )
        return number

    # --- a flow's life ---------------------------------------------------------------------------------------------

    def carry(self, flow: Flow) -> Pauses:
        """Latency, then work; ends when the flow has ended. Yielded from by the process that waits for it."""
        env, footprint = self.env, flow.footprint
        for resource, taken in footprint.holds:
            self._hold(resource, taken)
        if not footprint.fastest:
            yield self.settled(Event(env))  # nothing will ever succeed it: the story of the deadlock tells why
        if footprint.uses and self._free(footprint):
            self._book(flow)
        elif footprint.latency:
            yield self.settled(Timeout(env, footprint.latency))
        while footprint.uses:
            if not flow.speed:
                self._join(flow)
            if flow.finish <= env.now * _NOW:
                self._leave(flow)
                break
            yield flow.timer if flow.timer and flow.due > env.now else self._arm(flow)
        for resource, taken in footprint.holds:
            self._held[resource].remove(taken)
            self._held_changed(resource)

    def settled(self, event: Event) -> Event:
        """The event, after every flow has its new speed: nobody may sleep before."""
        if self._touched:
            self.settle()
        return event

    def bottleneck(self, flow: Flow, duration: float) -> str:
        """The resource that limited the ended flow longest, or LATENCY."""
        if not flow.footprint.uses or 2 * flow.footprint.latency >= duration:
            return LATENCY
        if flow.limited is None:
            return self.resources[flow.bottleneck]
        self._note(flow)
        return self.resources[max(flow.limited, key=flow.limited.__getitem__)]

    def _hold(self, resource: int, taken: float) -> None:
        self._unbook(self.users[resource])
        self._held[resource].append(taken)
        self._held_changed(resource)

    def _held_changed(self, resource: int) -> None:
        # summed anew, in one order: the same holds leave the same capacity to the last digit, and solutions are found
        self.capacities[resource] = max(LEAST_CAPACITY, 1.0 - sum(sorted(self._held[resource])))
        self._touched.append(resource)

    def _free(self, footprint: Footprint) -> bool:
        return not any(self.users[resource] or self.capacities[resource] < 1.0 for resource, _ in footprint.uses)

    def _book(self, flow: Flow) -> None:
        """Nobody is in the way: the flow may sleep through latency and work at once, if nobody comes meanwhile."""
        footprint = flow.footprint
        for resource, _ in footprint.uses:
            self.users[resource].append(flow)
        flow.since = flow.bound = self.env.now + footprint.latency
        flow.speed = footprint.fastest
        flow.finish = flow.since + 1 / flow.speed
        self._arm(flow)
        if self._touched:
            self.settle()

    def _unbook(self, users: list[Flow]) -> None:
        """Somebody comes: a flow that has booked and is still in its latency wakes at the end of that, and joins."""
        if users and users[0].since > self.env.now:  # nobody else is where one has booked
            flow = users[0]
            for resource, _ in flow.footprint.uses:
                self.users[resource].remove(flow)
            flow.speed, flow.finish = 0.0, flow.since
            self._arm(flow)

    def _join(self, flow: Flow) -> None:
        flow.since = flow.bound = self.env.now
        alone = True
        for resource, _ in flow.footprint.uses:
            users = self.users[resource]
            self._unbook(users)
            users.append(flow)
            if len(users) > 1 or self.capacities[resource] < 1.0:
                alone = False
        if alone:
            self._pace(flow, Rate(flow.footprint.fastest, flow.footprint.slowest))
        else:
            self._touched.append(flow.footprint.slowest)
        if self._touched:
            self.settle()

    def _leave(self, flow: Flow) -> None:
        for resource, _ in flow.footprint.uses:
            users = self.users[resource]
            users.remove(flow)
            if users:
                self._touched.append(resource)

    # --- speeds ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Give every flow that a change can reach its new speed."""
        touched, self._touched = self._touched, []
        seen: set[int] = set()
        for resource in touched:
            if resource not in seen and self.users[resource]:
                flows, reduced = self._reach(resource, seen)
                rates = self._rates(flows, reduced)
                for flow in flows:
                    self._pace(flow, rates[flow.footprint.number])

    def _reach(self, resource: int, seen: set[int]) -> tuple[Iterable[Flow], list[tuple[int, float]]]:
        """The flows joined to a resource by a chain of shared resources; what is left of those that are held."""
        flows: dict[Flow, None] = {}
        reduced = []
        resources = [resource]
        seen.add(resource)
        for here in resources:
            if self.capacities[here] < 1.0:
                reduced.append((here, self.capacities[here]))
            for flow in self.users[here]:
                if flow not in flows:
                    flows[flow] = None
                    for there, _ in flow.footprint.uses:
                        if there not in seen:
                            seen.add(there)
                            resources.append(there)
        return flows, reduced

    def _rates(self, flows: Iterable[Flow], reduced: list[tuple[int, float]]) -> dict[int, Rate]:
        """The rate of each footprint among flows that share; what was solved once is remembered."""
        reduced.sort()
        key = (*sorted([flow.footprint.number for flow in flows]), *reduced)
        found = self._known.get(key)
        if found is None:
            footprints = sorted((flow.footprint for flow in flows), key=lambda footprint: footprint.number)
            rates = share(footprints, dict(reduced))
            found = self._known[key] = {f.number: rate for f, rate in zip(footprints, rates, strict=True)}
        return found

    def _pace(self, flow: Flow, rate: Rate) -> None:
        """From now on the flow goes at this rate."""
        speed, bottleneck = rate
        now = self.env.now
        if bottleneck != flow.bottleneck:
            self._note(flow)
            flow.bottleneck = bottleneck
        if speed != flow.speed:
            flow.left = max(0.0, flow.left - flow.speed * (now - flow.since))
            flow.since, flow.speed = now, speed
            flow.finish = now + flow.left / speed
            if flow.timer is None or flow.finish * _NOW < flow.due:
                self._arm(flow)

    def _note(self, flow: Flow) -> None:
        """Book the time since the last change of bottleneck."""
        now = self.env.now
        if flow.limited is None:
            flow.limited = {}
        flow.limited[flow.bottleneck] = flow.limited.get(flow.bottleneck, 0.0) + now - flow.bound
        flow.bound = now

    def _arm(self, flow: Flow) -> Timeout:
        """Set the flow's timer to its end, and move the process that sleeps on the old one, if any."""
        now = self.env.now
        delay = max(0.0, flow.finish - now)
        timer = Timeout(self.env, delay)
        if flow.timer is not None and flow.timer.callbacks:
            timer.callbacks, flow.timer.callbacks = flow.timer.callbacks, []
        flow.timer, flow.due = timer, now + delay
        return timer
