"""Demands in the numbers of one machine: which resources by index, and for how long each would be busy alone.

Everything about a demand that does not change while it is carried is found here, once for all equal demands, so that
40,000 ops cost what their distinct kinds cost. Knows no flow and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from zerosim.errors import ZerosimError
from zerosim.resources import Demand, Supply

Holds = tuple[tuple[int, float], ...]  # resource, share


class Rate(NamedTuple):
    """The speed of a flow (1/s), and the resource that limits it."""

    speed: float
    bottleneck: int


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """What a demand takes of the machine. Equal footprints of a machine are one object, so identity is equality."""

    number: int
    latency: float
    fixed: float  # the part of the latency that does not come with the transfer
    uses: tuple[tuple[int, float], ...]  # resource, seconds of it alone
    holds: Holds
    alone: Rate  # 1 / the longest of `uses`, and that resource; speed 0 where it can never end
    mask: int  # the resources of `uses`, one bit each


def footprint(
    number: int, seconds: Mapping[int, float], latency: float = 0.0, holds: Holds = (), filling: float = 0.0
) -> Footprint:
    """The footprint of a demand that takes these seconds of each resource when it has the resource alone."""
    uses = tuple(sorted(seconds.items()))
    slowest, longest = max(uses, key=lambda use: use[1], default=(-1, 0.0))
    alone = Rate(1 / longest if uses else math.inf, slowest)
    return Footprint(number, latency, latency - filling, uses, holds, alone, sum(1 << resource for resource in seconds))


class Footprints:
    """All footprints met on a machine."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._numbers = {name: number for number, name in enumerate(supply.rates)}
        self._known: dict[tuple[object, ...], Footprint] = {}

    def of(self, demand: Demand) -> Footprint:
        """The demand in numbers of this machine; equal demands give the same footprint."""
        key = (demand.latency, demand.filling, demand.uses, demand.holds)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._measured(demand)
        return found

    def _measured(self, demand: Demand) -> Footprint:
        if not all(0 <= amount < math.inf for amount in (demand.latency, *(u.amount for u in demand.uses))):
            raise ZerosimError(f"found {demand}; expected seconds and amounts from 0 to below infinity")
        seconds: dict[int, float] = {}
        for use in demand.uses:
            resource = self._number(use.resource)
            rate = self._supply.rates[use.resource] * use.efficiency
            if use.amount > 0:  # a rate of 0 carries nothing: the op can never end
                seconds[resource] = seconds.get(resource, 0.0) + (use.amount / rate if rate > 0 else math.inf)
        holds = tuple((self._number(hold.resource), hold.share) for hold in demand.holds if hold.share > 0)
        return footprint(len(self._known), seconds, demand.latency, holds, demand.filling)

    def _number(self, resource: str) -> int:
        number = self._numbers.get(resource)
        if number is None:
            near = get_close_matches(resource, self._numbers, n=1)
            raise ZerosimError(
                f"found resource {resource!r}; expected one of the supply's {len(self._numbers)}"
                + (f"; nearest {near[0]!r}" if near else "")
            )
        return number
