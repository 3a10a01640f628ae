"""Bytes held in each tier over the step: the peak, its parts, and what was held at that moment.

Two curves, which PyTorch's statistics tell apart too. *Allocated* falls when the host frees. *Busy* ("active") falls
when the memory can be used again: at once for a block that goes back to the stream it was allocated for (stream order
protects it, however far ahead the host is; a collective that this stream waits for is part of it), else when the op
that releases it has ended, as after `record_stream`. What is busy beyond what is allocated is there only because the
host runs ahead, and yields: before the allocator gives up it waits for the streams to pass (c10 CUDACachingAllocator,
`synchronize_and_free_events`). So running out of GPU memory is judged by *allocated*; outside the GPU nothing is
stream-ordered and it is judged by busy. Buffers come when the host issues the op. Both curves contain the tier's
overhead (context, communicators), so that they can be held against its capacity. A buffer counts with what it takes:
pinned ones with the power of two that they are rounded up to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zerosim.step import CATEGORIES, COMPUTE
from zerosim.timeline import Timeline
from zerosim.views.allocator import Block, CachingAllocator
from zerosim.views.holders import GPU as GPU
from zerosim.views.holders import Holder, Moves, holder_of, merged, nodes, owner_of, resident_of, slowest_of_each

DRAM = "dram"
_INDEX = re.compile(r"[\s._#(\[-]+\d+[\])]*(?!\w)")  # the number in `gathered.12`, not that in `fp32`


class Curve(NamedTuple):
    """A step function: from `seconds[i]` on, `bytes[i]` are held."""

    seconds: npt.NDArray[np.float64]
    bytes: npt.NDArray[np.float64]

    @property
    def peak(self) -> float:
        """The most that is held."""
        return float(self.bytes.max())


@dataclass(frozen=True, slots=True)
class Holding:
    """Buffers of one name and category, held at the same time; `rounding_bytes` of them hold nothing."""

    name: str
    category: str
    count: int
    bytes: float
    rounding_bytes: float = 0.0


class Reserve(NamedTuple):
    """What the caching allocator reserves, and its flushes; `failures`: requests that fit only between other blocks,
    the first of them that of op `failed`."""

    curve: Curve
    flushes: int
    failures: int
    failed: int | None = None


@dataclass(frozen=True, slots=True)
class TierMemory:
    """One tier in one step: `gpu` of one GPU, the others of one node. `parts` and `held` are those at the peak.

    `peak_op` is the op at whose issue the peak is reached, None when it is there from the start; `rank_class` whose.
    """

    tier: str
    capacity: float
    overhead: float
    busy: Curve
    allocated: Curve
    reserve: Reserve | None
    peak: float
    peak_seconds: float
    peak_op: int | None
    rank_class: str
    parts: Mapping[str, float]
    held: tuple[Holding, ...]

    @property
    def excess(self) -> float:
        """Bytes that do not fit; 0 when all do."""
        return max(self.peak - self.capacity, 0.0)

    @property
    def rounding(self) -> float:
        """Bytes of the peak that hold nothing: pinned blocks are powers of two."""
        return sum(each.rounding_bytes for each in self.held)


def memory(timeline: Timeline, ranks_per_node: int = 1) -> dict[str, TierMemory]:
    """The tiers in use, `gpu` first. Host tiers are shared by the ranks of a node.

    Of classes that run the same program the slowest is looked at. Where there are several programs, `gpu` is that of
    the class which holds most, and a host tier that of the node on which most is held by all its ranks.
    """
    holders = _holders(timeline)
    found = _tiers(timeline, holders, ranks_per_node)
    gpu = found[GPU]
    chosen = next(holder for holder in holders if holder.rank_class.name == gpu.rank_class)
    found[GPU] = replace(gpu, reserve=_reserve(chosen, gpu.capacity, gpu.overhead))
    return found


def held(timeline: Timeline, ranks_per_node: int = 1) -> dict[str, TierMemory]:
    """`memory` without what the GPU's allocator reserves, which takes as long to find as all else of it."""
    return _tiers(timeline, _holders(timeline), ranks_per_node)


def _holders(timeline: Timeline) -> list[Holder]:
    return [holder_of(timeline, rank_class) for rank_class in slowest_of_each(timeline)]


def _tiers(timeline: Timeline, holders: Sequence[Holder], ranks_per_node: int) -> dict[str, TierMemory]:
    tiers = dict.fromkeys([GPU, *(buffer.tier for holder in holders for buffer in holder.step.buffers)])
    found = {}
    for tier in tiers:
        crowds = [[holder] for holder in holders] if tier == GPU else nodes(timeline, holders, ranks_per_node)
        found[tier] = max((_tier(timeline, tier, crowd) for crowd in crowds), key=lambda memory: memory.peak)
    return found


def unfit(tiers: Mapping[str, TierMemory]) -> str:
    """The first tier that has no room for what it holds at its peak; "" where the step fits.

    That PyTorch's allocator would find no room in one piece is a warning beside it (`memory_findings`): runs are
    published that went where this is foretold (titan-051), as the order of its requests is not known so well.
    """
    return next((name for name, tier in tiers.items() if tier.excess), "")


def _tier(timeline: Timeline, tier: str, holders: Sequence[Holder]) -> TierMemory:
    supply = timeline.supply
    sizes = np.array([h.ranks * b.taken if b.tier == tier else 0.0 for h in holders for b in h.step.buffers])
    overhead, capacity = supply.overheads.get(tier, 0.0), supply.capacities.get(tier, 0.0)
    resident = resident_of(holders)
    base = overhead + float(sizes @ resident)
    busy, allocated = merged([h.busy for h in holders], holders), merged([h.allocated for h in holders], holders)
    judged = allocated if tier == GPU else busy
    curve = _curve(judged, sizes, base)
    top = int(np.argmax(curve.bytes))  # the first of equal peaks; 0 is the state before any move
    counts = resident + np.bincount(judged.buffer[:top], judged.sign[:top], len(sizes)).astype(np.int64)
    parts, held = _at_peak(holders, sizes, counts, overhead)
    return TierMemory(
        tier=tier,
        capacity=capacity,
        overhead=overhead,
        busy=_curve(busy, sizes, base),
        allocated=_curve(allocated, sizes, base),
        reserve=None,
        peak=sum(parts.values()),
        peak_seconds=float(curve.seconds[top]),
        peak_op=int(judged.op[top - 1]) if top else None,
        rank_class=owner_of(holders, int(judged.buffer[top - 1]) if top else 0),
        parts=parts,
        held=held,
    )


def _curve(moves: Moves, sizes: npt.NDArray[np.float64], base: float) -> Curve:
    """The running sum, where this tier's bytes change; it starts at time 0 with what is resident."""
    levels = base + np.cumsum(moves.sign * sizes[moves.buffer]) if len(moves.buffer) else np.empty(0)
    return Curve(np.concatenate(([0.0], moves.seconds)), np.concatenate(([base], levels)))


def _at_peak(
    holders: Sequence[Holder], sizes: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], overhead: float
) -> tuple[dict[str, float], tuple[Holding, ...]]:
    """Bytes by category, and the buffers held grouped by the stem of their names, largest first."""
    buffers = [(buffer, holder.ranks) for holder in holders for buffer in holder.step.buffers]
    parts = dict.fromkeys(CATEGORIES, 0.0)
    parts["overhead"] += overhead
    number: defaultdict[tuple[str, str], int] = defaultdict(int)
    held: defaultdict[tuple[str, str], float] = defaultdict(float)
    rounding: defaultdict[tuple[str, str], float] = defaultdict(float)
    shown = np.flatnonzero((counts > 0) & (sizes > 0))
    for index, count, size in zip(*(column.tolist() for column in (shown, counts[shown], sizes[shown])), strict=True):
        buffer, ranks = buffers[index]
        key = _INDEX.sub("", buffer.name) or buffer.name, buffer.category
        parts[buffer.category] += count * size
        number[key] += count
        held[key] += count * size
        rounding[key] += count * (size - ranks * buffer.bytes)
    largest = sorted(held, key=lambda key: (-held[key], key))
    return parts, tuple(Holding(*key, number[key], held[key], rounding[key]) for key in largest)


def _reserve(holder: Holder, capacity: float, overhead: float) -> Reserve:
    """Play the moves of the GPU's buffers through the caching allocator."""
    buffers, ops, moves = holder.step.buffers, holder.step.ops, holder.busy
    on_gpu = [buffer.tier == GPU for buffer in buffers]
    row, op, given, failed = 0, 0, set[int](), None

    def awaited() -> list[Block]:
        """Blocks that the host gave back before it issued `op`: their releases come after `row`."""
        later = row + np.flatnonzero((moves.sign[row:] < 0) & (moves.op[row:] < op))
        mine = [(each, int(moves.buffer[each])) for each in later.tolist() if each not in given]
        given.update(each for each, _ in mine)
        return [blocks[index].pop(0) for _, index in mine if on_gpu[index]]

    allocator = CachingAllocator(capacity - overhead, awaited)
    blocks: dict[int, list[Block]] = {  # oldest first: a buffer may come back before its old block is reusable
        index: [allocator.allocate(buffers[index].bytes, COMPUTE)]
        for index in sorted(holder.step.resident)
        if on_gpu[index]
    }
    seconds, levels = [0.0], [overhead + allocator.reserved]
    columns = zip(*(column.tolist() for column in moves), strict=True)
    for row, (time, index, sign, op) in enumerate(columns):  # `awaited` reads it
        if not on_gpu[index] or row in given:
            continue
        if sign > 0:
            blocks.setdefault(index, []).append(allocator.allocate(buffers[index].bytes, ops[op].stream))
            failed = op if allocator.failures and failed is None else failed
        else:
            allocator.free(blocks[index].pop(0))
        if overhead + allocator.reserved != levels[-1]:
            seconds.append(time)
            levels.append(overhead + allocator.reserved)
    return Reserve(Curve(np.array(seconds), np.array(levels)), allocator.flushes, allocator.failures, failed)
