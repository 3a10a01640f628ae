"""Fewer boxes for the same lanes: what lies in one slice of the step, in one lane, is joined to one box.

Rules: a box that is as long as a slice, or that waited as long, is never joined, so what can be told apart in the whole
step still is; neighbours of one kind are joined first, and neighbours of any kind only where that is not enough: such a
box has the kind that fills most of it. A box knows how many it stands for and how much of it was busy. All in arrays,
for half a million ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Whole = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]

FINEST, ALIKE, MIXED, COARSEST = 2**18, 2**12, 2**14, 2**4  # slices: of one kind to ALIKE, then of any kind from MIXED
_TRIES = 2  # to half as many slices


class Boxes(NamedTuple):
    """Boxes of lanes in any order. `length`: how long it is or waited, which keeps it apart where it is long."""

    lane: Whole
    kind: Whole
    start: Seconds
    end: Seconds
    length: Seconds


class Joined(NamedTuple):
    """Groups of boxes, by lane and time. `order`: places of all boxes; `first`: where in it each group begins."""

    order: Whole
    first: Whole
    kind: Whole
    kinds: Whole  # bits: all that are in it
    start: Seconds
    end: Seconds
    busy: Seconds

    @property
    def counts(self) -> Whole:
        """How many boxes each stands for."""
        return np.diff(np.append(self.first, len(self.order)))

    def group_of(self) -> Whole:
        """The group of each box, by the place of the box."""
        found = np.empty(len(self.order), dtype=np.int64)
        found[self.order] = np.repeat(np.arange(len(self.first)), self.counts)
        return found


def joined(boxes: Boxes, most: int) -> Joined:
    """At most so many groups, as fine as that allows; the coarsest where none is coarse enough."""
    order = np.lexsort((boxes.start, boxes.lane))
    if len(order) <= most:
        return _groups(boxes, order, np.arange(len(order)))
    reach = float(boxes.end.max())
    firsts = (_firsts(boxes, order, reach / slices, alike) for slices, alike in _grids())
    first = next((each for each in firsts if len(each) <= most), None)
    return _groups(boxes, order, _firsts(boxes, order, reach / COARSEST, False) if first is None else first)


def _grids() -> Iterator[tuple[float, bool]]:
    """How many slices, and whether kinds are kept apart; ever coarser."""
    for highest, lowest, alike in ((FINEST, ALIKE, True), (MIXED, COARSEST, False)):
        halvings = int(np.log2(highest // lowest))
        yield from ((highest / 2 ** (step / _TRIES), alike) for step in range(_TRIES * halvings + 1))


def _firsts(boxes: Boxes, order: Whole, width: float, alike: bool) -> Whole:
    place = np.floor(boxes.start[order] / width)
    apart = boxes.length[order] >= width
    lane, kind = boxes.lane[order], boxes.kind[order]
    changes = (np.diff(lane) != 0) | (np.diff(place) != 0) | apart[1:] | apart[:-1]
    if alike:
        changes |= np.diff(kind) != 0
    return np.append(0, np.flatnonzero(changes) + 1)


def _groups(boxes: Boxes, order: Whole, first: Whole) -> Joined:
    if not len(order):
        nothing, none = np.zeros(0, dtype=np.int64), np.zeros(0)
        return Joined(order, nothing, nothing, nothing, none, none, none)
    kind, busy = boxes.kind[order], (boxes.end - boxes.start)[order]
    kinds = int(kind.max()) + 1
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(order))))
    filled = np.bincount(group * kinds + kind, busy, len(first) * kinds).reshape(len(first), kinds)
    return Joined(
        order,
        first,
        filled.argmax(axis=1),
        np.bitwise_or.reduceat(np.left_shift(1, kind), first),
        boxes.start[order][first],
        np.maximum.reduceat(boxes.end[order], first),
        np.add.reduceat(busy, first),
    )
