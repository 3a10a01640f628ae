"""Sets of time intervals as arrays of shape [n, 2]: union, intersection, difference, length.

Every number about overlap is a length of such a set, as in HolisticTraceAnalysis: compute time is the length of the
union of the compute kernels over all streams, and so on. Intervals are half open, [start, end); empty ones vanish.
Any array of pairs may be given; what comes back is sorted, disjoint and not touching.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.float64]

NOTHING: Intervals = np.empty((0, 2))
NOTHING.setflags(write=False)


def union(*sets: Intervals) -> Intervals:
    """The instants that are in any of the sets."""
    pairs = np.concatenate(sets) if sets else NOTHING
    pairs = pairs[pairs[:, 1] > pairs[:, 0]]
    if not len(pairs):
        return NOTHING
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(pairs[:, 1])
    first = np.concatenate(([True], pairs[1:, 0] > reach[:-1]))  # nothing before reaches so far
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((pairs[first, 0], reach[last]))


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """The instants of `a` that are also in `b`."""
    return _within(a, b, wanted=True)


def difference(a: Intervals, b: Intervals) -> Intervals:
    """The instants of `a` that are not in `b`."""
    return _within(a, b, wanted=False)


def length(a: Intervals) -> float:
    """Seconds covered; what is covered twice counts once."""
    disjoint = union(a)
    return float(np.sum(disjoint[:, 1] - disjoint[:, 0]))


def _within(a: Intervals, b: Intervals, wanted: bool) -> Intervals:
    a, b = union(a), union(b)
    edges = np.unique(np.concatenate((a.ravel(), b.ravel())))
    starts, ends = edges[:-1], edges[1:]  # no set changes inside these pieces
    kept = _covers(a, starts) & (_covers(b, starts) == wanted)
    return union(np.column_stack((starts[kept], ends[kept])))


def _covers(disjoint: Intervals, instants: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether each instant is in the set: an odd number of edges lies at or before it."""
    odd: npt.NDArray[np.bool_] = np.searchsorted(disjoint.ravel(), instants, side="right") % 2 == 1
    return odd
