"""What holds leave of each resource, and the rates of flows that share it: each division is solved once.

A step repeats itself, layer by layer: the same few footprints meet again and again while the same SMs are held. A
division is remembered by the footprints that met and by what was left of the resources they use. It is solved in the
order of the footprints' numbers, so that it is the same to the last digit whichever flow came first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from zerosim.engine.footprints import Footprint, Holds, Rate
from zerosim.engine.sharing import share

LEAST_CAPACITY = 0.05  # what holds leave at least: a kernel waits for SMs, but the GPU never refuses it for ever

_Solved = dict[tuple[Footprint, ...], Sequence[Rate]]


class Capacities:
    """The holds of the moment. `left` and `scarce` (a bit mask) are of the resources of which something is held."""

    def __init__(self) -> None:
        self.left: dict[int, float] = {}
        self.scarce = 0
        self._taken: dict[int, list[float]] = {}
        self._solved: dict[Holds, _Solved] = {}  # by capacities
        self._now = self._unheld = self._solved_with({})  # those of the present capacities, and without holds

    def take(self, holds: Holds) -> None:
        for resource, part in holds:
            self._taken.setdefault(resource, []).append(part)
            self._changed(resource)

    def give_back(self, holds: Holds) -> None:
        for resource, part in holds:
            self._taken[resource].remove(part)
            self._changed(resource)

    def _changed(self, resource: int) -> None:
        taken = self._taken[resource]
        if taken:  # summed in one order: the same holds leave the same to the last digit
            self.left[resource] = max(LEAST_CAPACITY, 1.0 - sum(sorted(taken)))
            self.scarce |= 1 << resource
        else:
            del self.left[resource]
            self.scarce &= ~(1 << resource)
        self._now = self._solved_with(self.left)

    def rates(self, crowd: Sequence[Footprint], mask: int) -> Sequence[Rate]:
        """The fair rates of flows that share, which together use the resources of `mask`."""
        scarce = self.scarce & mask
        if len(crowd) == 1 and not scarce:
            return (crowd[0].alone,)
        if scarce == self.scarce:
            solved = self._now
        elif not scarce:
            solved = self._unheld
        else:
            solved = self._solved_with({resource: left for resource, left in self.left.items() if mask >> resource & 1})
        key = tuple(crowd)
        found = solved.get(key)
        if found is None:
            found = solved[key] = self._solve(crowd)
        return found

    def _solved_with(self, left: Mapping[int, float]) -> _Solved:
        return self._solved.setdefault(tuple(sorted(left.items())), {})

    def _solve(self, crowd: Sequence[Footprint]) -> Sequence[Rate]:
        ordered = sorted(crowd, key=attrgetter("number"))
        rates = dict(zip(ordered, share(ordered, self.left), strict=True))
        return [rates[footprint] for footprint in crowd]
