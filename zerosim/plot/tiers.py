"""What is known of memory: of a played step what each category holds, of a measured one the sum, if it was recorded.

Rule: a trace with `[memory]` events tells what the allocator of a GPU counted, and nothing of its parts: it is one
part, `total`. What nobody recorded is unknown, which is not 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from zerosim.errors import InputError, nearest
from zerosim.measured import Measured
from zerosim.plot.checks import wrongly
from zerosim.plot.named import ranks_per_node
from zerosim.timeline import Timeline
from zerosim.views import memory
from zerosim.views.memory_by_category import Categories, by_category

GPU, TOTAL = "gpu", "total"


class Held(NamedTuple):
    """A tier in one step: its peak, when that is first reached, and its parts then."""

    peak: float
    seconds: float
    capacity: float
    parts: Mapping[str, float]

    @property
    def excess(self) -> float:
        """Bytes that do not fit."""
        return max(self.peak - self.capacity, 0.0) if self.capacity else 0.0


NOTHING = Held(0.0, 0.0, 0.0, {})


def known_tiers(played: Timeline) -> dict[str, Held]:
    """The tiers that hold something; none where a trace does not tell it."""
    if isinstance(played, Measured):
        levels = played.facts.levels
        if not levels:
            return {}
        peak = max(held for _, held in levels)
        first = next(seconds for seconds, held in levels if held == peak)
        return {GPU: Held(peak, first, played.supply.capacities.get(GPU, 0.0), {TOTAL: peak})}
    tiers = memory(played, ranks_per_node(played)).items()
    return {name: Held(each.peak, each.peak_seconds, each.capacity, each.parts) for name, each in tiers if each.peak}


def curves_of(played: Timeline, tier: str) -> Categories:
    """What a tier holds over the step, in the parts that are known."""
    if isinstance(played, Measured):
        seconds, held = np.array(played.facts.levels, dtype=np.float64).T
        return Categories(seconds, {TOTAL: held})
    return by_category(played, tier, ranks_per_node(played))


def tier_of(played: Timeline, tier: str) -> Held:
    """A tier of one step; InputError where nothing is known to be held there."""
    found = known_tiers(played)
    if tier not in found:
        raise _unknown("memory", tier, list(found))
    return found[tier]


def each_tier(played: Sequence[Timeline], tier: str) -> list[Held | None]:
    """A tier of several steps, None where nobody recorded it; InputError where none of them holds something there."""
    every = [known_tiers(each) for each in played]
    if not any(tier in found for found in every):
        raise _unknown("memory_parts", tier, list(dict.fromkeys(name for found in every for name in found)))
    return [
        found.get(tier, None if isinstance(each, Measured) else NOTHING)
        for each, found in zip(played, every, strict=True)
    ]


def _unknown(picture: str, tier: str, known: list[str]) -> InputError:
    told = ", ".join(known) or "none, as a trace without [memory] events does not tell what was held (profile_memory)"
    return wrongly(picture, "tier", f'"{tier}"', f"one of the tiers in use: {told}", nearest(tier, known))
