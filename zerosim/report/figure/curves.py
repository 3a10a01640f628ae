"""Memory of each tier over the step: the curves, the capacity they are held against, and the op at the peak.

A curve of very many points keeps, of each of `SLICES` slices of the step, the highest level and the last one, so that
its peaks are all there; levels that change nothing are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zerosim.report.figure.columns import moments, sizes
from zerosim.timeline import Timeline
from zerosim.views.memory import GPU, Curve, TierMemory

SLICES = 3000
TITLES = {"gpu": "GPU memory", "dram": "host memory", "nvme": "NVMe"}


def tracks(
    timeline: Timeline, tiers: Mapping[str, TierMemory], ranks: int, slices: int = SLICES
) -> list[dict[str, Any]]:
    """One track a tier that holds anything; of a tier outside the GPU, what so many ranks hold together."""
    return [_track(timeline, tier, ranks, slices) for tier in tiers.values() if tier.peak > 0]


def _track(timeline: Timeline, tier: TierMemory, ranks: int, slices: int) -> dict[str, Any]:
    op = timeline.program(tier.rank_class).ops[tier.peak_op] if tier.peak_op is not None else None
    return {
        "tier": tier.tier,
        "title": TITLES.get(tier.tier, tier.tier),
        "ranks": ranks,
        "capacity": tier.capacity,
        "peak": tier.peak,
        "peakSeconds": tier.peak_seconds,
        "peakOp": op.name if op else "",
        "parts": [[name, size] for name, size in tier.parts.items() if size > 0],
        "curves": [_drawn(name, curve, timeline.makespan, slices) for name, curve in _curves(tier)],
    }


def _curves(tier: TierMemory) -> Iterator[tuple[str, Curve]]:
    """What the tier is judged by first: allocated of a GPU, busy of the others."""
    if tier.tier == GPU:
        yield "allocated + overhead" if tier.parts.get("overhead") else "allocated", tier.allocated
        yield "busy", tier.busy
        if tier.reserve:
            yield "reserved", tier.reserve.curve
    else:
        yield "in use", tier.busy


def _drawn(name: str, curve: Curve, step: float, slices: int) -> dict[str, Any]:
    short = thinned(curve, step, slices)
    return {"name": name, "points": len(short.bytes), "at": moments(short.seconds, step), "bytes": sizes(short.bytes)}


def thinned(curve: Curve, step: float, slices: int = SLICES) -> Curve:
    """The same step function in no more than two points a slice."""
    short = _changes(_last_of_each_moment(curve))
    if len(short.bytes) <= 2 * slices or step <= 0:
        return short
    place = np.minimum((short.seconds * (slices / step)).astype(np.int64), slices - 1)
    first = np.flatnonzero(np.diff(place, prepend=-1))
    last = np.append(first[1:], len(place)) - 1
    highest = np.array([a + int(np.argmax(short.bytes[a : b + 1])) for a, b in zip(first, last, strict=True)])
    kept = np.unique(np.concatenate([highest, last]))
    return _changes(Curve(short.seconds[kept], short.bytes[kept]))


def _last_of_each_moment(curve: Curve) -> Curve:
    """Of what happens at one moment the highest level, which is the one that has to have room."""
    first = np.flatnonzero(np.diff(curve.seconds, prepend=-1.0) > 0)
    last = np.append(first[1:], len(curve.seconds)) - 1
    highest = np.maximum.reduceat(curve.bytes, first)
    seconds = np.concatenate([curve.seconds[first], curve.seconds[last]])
    levels = np.concatenate([highest, curve.bytes[last]])
    order = np.argsort(seconds, kind="stable")
    return Curve(seconds[order], levels[order])


def _changes(curve: Curve) -> Curve:
    kept = np.flatnonzero(np.diff(curve.bytes, prepend=curve.bytes[0] - 1) != 0)
    return Curve(curve.seconds[kept], curve.bytes[kept])
