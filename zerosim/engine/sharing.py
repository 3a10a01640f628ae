"""Max-min fair sharing: how fast flows that cross the same resources run. Pure arithmetic, no clock.

A flow uses several resources at once: at speed `v` (1/s) it takes the share `v x seconds` of each, where `seconds` is
how long the resource would be busy with it alone. A division is *fair* when every flow either runs as fast as it does
alone or has a bottleneck: a full resource on which no other flow has a larger share. With equal bytes on every link of
a route this is textbook max-min fairness (Bertsekas & Gallager 1992, Data Networks, 6.5.2); with unequal footprints (a
matmul that needs all SMs and a little HBM beside a norm that needs all HBM and a few SMs) it is the bottleneck max
fairness of Bonald & Roberts 2015 (Multi-Resource Fairness, SIGMETRICS), which SimGrid also solves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import ge

from zerosim.engine.footprints import Footprint, Rate

_SAME = 1e-12  # relative difference below which two speeds are one
_SWEEPS = 500  # of the search for levels; its error shrinks by half or better in each


def share(flows: Sequence[Footprint], capacities: Mapping[int, float]) -> list[Rate]:
    """The fair rate of each of `flows`; a resource not in `capacities` has all of itself (1.0) to give.

    Progressive filling. In a round each flow is offered the least of its own top speed and of an equal part of what
    is left of each of its resources. Settled are the flows offered their top speed, and those of a resource that is
    the bottleneck of all its flows: nothing can change these offers. Where no flow can be settled the bottlenecks
    depend on each other in a cycle, and the rest is solved at once, by the levels of its resources.
    """
    rates: dict[int, Rate] = {}
    waiting = list(range(len(flows)))
    left = {resource: capacities.get(resource, 1.0) for flow in flows for resource, _ in flow.uses}
    while waiting:
        settled = _settled(flows, waiting, left) or _cycle(flows, waiting, left)
        rates.update(settled)
        waiting = [flow for flow in waiting if flow not in settled]
        for flow, rate in settled.items() if waiting else ():
            for resource, seconds in flows[flow].uses:
                left[resource] = max(0.0, left[resource] - rate.speed * seconds)
    return [rates[flow] for flow in range(len(flows))]


def _fair(flows: Sequence[Footprint], waiting: Sequence[int], left: Mapping[int, float]) -> dict[int, float]:
    """What is left of each resource, in equal parts for the flows (of `waiting`) on it."""
    users: dict[int, int] = {}
    for flow in waiting:
        for resource, _ in flows[flow].uses:
            users[resource] = users.get(resource, 0) + 1
    return {resource: left[resource] / count for resource, count in users.items()}


def _offer(flow: Footprint, levels: Mapping[int, float]) -> Rate:
    """The speed at which the flow's share of each resource is at most the resource's level, and what binds it."""
    speed, bottleneck = flow.alone
    for resource, seconds in flow.uses:
        if levels[resource] < speed * seconds * (1 - _SAME):
            speed, bottleneck = levels[resource] / seconds, resource
    return Rate(speed, bottleneck)


def _settled(flows: Sequence[Footprint], waiting: Sequence[int], left: Mapping[int, float]) -> dict[int, Rate]:
    """The flows whose offer of this round is final."""
    fair = _fair(flows, waiting, left)
    offers = {flow: _offer(flows[flow], fair) for flow in waiting}
    loose = {  # resources of which some flow is offered less than its part
        resource
        for flow, rate in offers.items()
        for resource, seconds in flows[flow].uses
        if rate.speed * seconds < fair[resource] * (1 - 2 * _SAME)
    }
    settled = {}
    for flow, rate in offers.items():
        if rate.speed == flows[flow].alone.speed:
            settled[flow] = rate
        elif binding := [resource for resource, _ in flows[flow].uses if resource not in loose]:
            settled[flow] = Rate(rate.speed, binding[0])
    return settled


def _cycle(flows: Sequence[Footprint], waiting: Sequence[int], left: Mapping[int, float]) -> dict[int, Rate]:
    """Rates of flows whose bottlenecks depend on each other: the fixed point of the levels of what can limit them."""
    limiting = _limiting([flows[flow] for flow in waiting], left)
    narrowed = [
        replace(flows[flow], uses=tuple(use for use in flows[flow].uses if use[0] in limiting)) for flow in waiting
    ]
    levels = _levels(narrowed, left)
    rates = {flow: _offer(narrow, levels) for flow, narrow in zip(waiting, narrowed, strict=True)}
    return _fitted(flows, rates, left)


def _limiting(flows: Sequence[Footprint], left: Mapping[int, float]) -> list[int]:
    """The resources that can be full: all flows at top speed are too much for it, and no other is full before it."""
    parts: dict[int, list[float]] = {}  # of what is left, by flow, when each does all of its work in a second
    for place, flow in enumerate(flows):
        for resource, seconds in flow.uses:
            parts.setdefault(resource, [0.0] * len(flows))[place] = seconds / left[resource]
    limiting: list[int] = []
    for resource in sorted(parts, key=lambda each: (-sum(parts[each]), each)):
        asked = sum(part * flow.alone.speed for part, flow in zip(parts[resource], flows, strict=True))
        if asked > 1 and not any(all(map(ge, parts[fuller], parts[resource])) for fuller in limiting):
            limiting.append(resource)
    return limiting


def _levels(flows: Sequence[Footprint], left: Mapping[int, float]) -> Mapping[int, float]:
    """The share of each resource that the flows it limits have.

    All levels move together, so that the order of the flows does not matter, and by 1/damping of the way: a flow on k
    resources passes a change on to k - 1 others at most.
    """
    damping = max(2, max(len(flow.uses) for flow in flows) - 1)
    levels = _fair(flows, range(len(flows)), left)
    crossing = {resource: [flow for flow in flows if flow.mask >> resource & 1] for resource in levels}
    for _ in range(_SWEEPS):
        aims = {
            resource: _level(left[resource], [_elsewhere(flow, resource, levels) for flow in users])
            for resource, users in crossing.items()
        }
        moves = {resource: (aims[resource] - level) / damping for resource, level in levels.items()}
        levels = {resource: level + moves[resource] for resource, level in levels.items()}
        if all(abs(moves[resource]) <= _SAME * level for resource, level in levels.items()):
            break
    return levels


def _elsewhere(flow: Footprint, here: int, levels: Mapping[int, float]) -> float:
    """The share of `here` that the flow would take if only its other resources limited it."""
    speed, own = flow.alone.speed, 0.0
    for resource, seconds in flow.uses:
        if resource == here:
            own = seconds
        elif levels[resource] < speed * seconds:
            speed = levels[resource] / seconds
    return speed * own


def _level(capacity: float, wishes: list[float]) -> float:
    """The largest share when `capacity` is filled evenly and no flow gets more than it wishes."""
    wishes.sort()
    for position, wish in enumerate(wishes):
        even = capacity / (len(wishes) - position)
        if wish > even:
            return even
        capacity -= wish
    return wishes[-1] + capacity


def _fitted(flows: Sequence[Footprint], rates: Mapping[int, Rate], left: Mapping[int, float]) -> dict[int, Rate]:
    """The rates, slowed by what the search left over, so that no resource gives more than it has."""
    loads = dict.fromkeys(left, 0.0)
    for flow, rate in rates.items():
        for resource, seconds in flows[flow].uses:
            loads[resource] += rate.speed * seconds
    fit = min((left[resource] / load for resource, load in loads.items() if load > left[resource]), default=1.0)
    return {flow: Rate(rate.speed * fit, rate.bottleneck) for flow, rate in rates.items()}
