"""What a tier holds over the step, category by category: the curve of `memory` in its parts.

The parts are those of the curve by which running out is judged: *allocated* on the GPU, *busy* elsewhere. They sum to
it at every moment, and at its peak they are `TierMemory.parts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zerosim.step import CATEGORIES
from zerosim.timeline import Timeline
from zerosim.views.holders import GPU, Holder, holder_of, merged, nodes, resident_of, slowest_of_each


class Categories(NamedTuple):
    """Step functions: from `seconds[i]` on, `bytes[category][i]` are held."""

    seconds: npt.NDArray[np.float64]
    bytes: Mapping[str, npt.NDArray[np.float64]]

    @property
    def total(self) -> npt.NDArray[np.float64]:
        """All categories together."""
        whole: npt.NDArray[np.float64] = np.sum(list(self.bytes.values()), axis=0)
        return whole


def by_category(timeline: Timeline, tier: str = GPU, ranks_per_node: int = 1) -> Categories:
    """Of the class that holds most (`gpu`), or of the node on which most is held by all its ranks."""
    holders = [holder_of(timeline, rank_class) for rank_class in slowest_of_each(timeline)]
    crowds = [[holder] for holder in holders] if tier == GPU else nodes(timeline, holders, ranks_per_node)
    found = (_of(crowd, tier, timeline.supply.overheads.get(tier, 0.0)) for crowd in crowds)
    return max(found, key=lambda each: float(each.total.max()))


def _of(holders: Sequence[Holder], tier: str, overhead: float) -> Categories:
    moves = merged([h.allocated if tier == GPU else h.busy for h in holders], holders)
    buffers = [(buffer, holder.ranks) for holder in holders for buffer in holder.step.buffers]
    resident, curves = resident_of(holders), {}
    for category in CATEGORIES:
        mine = [b.tier == tier and b.category == category for b, _ in buffers]
        sizes = np.array([ranks * b.taken if own else 0.0 for (b, ranks), own in zip(buffers, mine, strict=True)])
        base = float(sizes @ resident) + (overhead if category == "overhead" else 0.0)
        steps = moves.sign * sizes[moves.buffer] if len(moves.buffer) else np.empty(0)
        curves[category] = np.concatenate(([base], base + np.cumsum(steps)))
    return Categories(np.concatenate(([0.0], moves.seconds)), curves)
