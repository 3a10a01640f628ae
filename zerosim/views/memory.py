"""Bytes held in each tier over the step: the peak, its parts, and what was held at that moment.

Two curves, which PyTorch's statistics tell apart too. *Allocated* falls when the host frees. *Busy* ("active") falls
when the memory can be used again: at once for a block that goes back to the stream it was allocated for (stream order
protects it, however far ahead the host is; a collective that this stream waits for is part of it), else when the op
that releases it has ended, as after `record_stream`. What is busy beyond what is allocated is there only because the
host runs ahead, and yields: before the allocator gives up it waits for the streams to pass (c10 CUDACachingAllocator,
`synchronize_and_free_events`). So running out of GPU memory is judged by *allocated*; outside the GPU nothing is
stream-ordered and it is judged by busy. Buffers come when the host issues the op. Both curves contain the tier's
overhead (context, communicators), so that they can be held against its capacity.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zerosim.step import CATEGORIES, COMPUTE, Collective, Op
from zerosim.timeline import Timeline
from zerosim.views.allocator import Block, CachingAllocator

GPU = "gpu"
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
    """Buffers of one name and category, held at the same time."""

    name: str
    category: str
    count: int
    bytes: float


class Reserve(NamedTuple):
    """What the caching allocator reserves, and its flushes; `failures`: requests that fit only between other blocks."""

    curve: Curve
    flushes: int
    failures: int


@dataclass(frozen=True, slots=True)
class TierMemory:
    """One tier in one step: `gpu` of one GPU, the others of one node. `parts` and `held` are those at the peak.

    `peak_op` is the op at whose issue the peak is reached, None when it is there from the start.
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
    parts: Mapping[str, float]
    held: tuple[Holding, ...]

    @property
    def excess(self) -> float:
        """Bytes that do not fit; 0 when all do."""
        return max(self.peak - self.capacity, 0.0)


class _Moves(NamedTuple):
    """Buffers coming (+1) and going (-1), in the order in which the memory sees it."""

    seconds: npt.NDArray[np.float64]
    buffer: npt.NDArray[np.int64]
    sign: npt.NDArray[np.int64]
    op: npt.NDArray[np.int64]


def memory(timeline: Timeline, ranks_per_node: int = 1) -> dict[str, TierMemory]:
    """The tiers in use, `gpu` first, in the slowest class. Host tiers are shared by the ranks of a node."""
    tiers = dict.fromkeys([GPU, *(buffer.tier for buffer in timeline.step.buffers)])
    busy, allocated = _moves(timeline)
    return {tier: _tier(timeline, tier, busy, allocated, 1 if tier == GPU else ranks_per_node) for tier in tiers}


def _tier(timeline: Timeline, tier: str, busy: _Moves, allocated: _Moves, ranks: int) -> TierMemory:
    step, supply = timeline.step, timeline.supply
    sizes = np.array([ranks * b.bytes if b.tier == tier else 0.0 for b in step.buffers])
    overhead, capacity = supply.overheads.get(tier, 0.0), supply.capacities.get(tier, 0.0)
    resident = np.zeros(len(sizes), dtype=np.int64)
    resident[list(step.resident)] = 1
    base = overhead + float(sizes @ resident)
    judged = allocated if tier == GPU else busy
    curve = _curve(judged, sizes, base)
    top = int(np.argmax(curve.bytes))  # the first of equal peaks; 0 is the state before any move
    counts = resident + np.bincount(judged.buffer[:top], judged.sign[:top], len(sizes)).astype(np.int64)
    parts, held = _at_peak(timeline, sizes, counts, overhead)
    return TierMemory(
        tier=tier,
        capacity=capacity,
        overhead=overhead,
        busy=_curve(busy, sizes, base),
        allocated=_curve(allocated, sizes, base),
        reserve=_reserve(timeline, busy, capacity, overhead) if tier == GPU else None,
        peak=sum(parts.values()),
        peak_seconds=float(curve.seconds[top]),
        peak_op=int(judged.op[top - 1]) if top else None,
        parts=parts,
        held=held,
    )


def _moves(timeline: Timeline) -> tuple[_Moves, _Moves]:
    """Every acquire and release in the order of busy, and in the order of allocated."""
    step = timeline.step
    joined = _joined(step.ops)
    owner = dict.fromkeys(step.resident, COMPUTE)  # the stream a buffer was allocated for
    freed: list[float] = []  # when the host does it, and when it counts
    counted: list[float] = []
    rest: list[tuple[int, int, int]] = []
    for op, span in zip(step.ops, timeline.spans[timeline.slowest.name], strict=True):
        for buffer in op.acquires:
            owner[buffer] = op.stream
            freed.append(span.issued)
            counted.append(span.issued)
            rest.append((buffer, 1, op.number))
        for buffer in op.releases:
            ordered = owner[buffer] == op.stream or (op.number, owner[buffer]) in joined
            at_once = ordered and step.buffers[buffer].tier == GPU
            freed.append(span.issued)
            counted.append(span.issued if at_once else span.end)
            rest.append((buffer, -1, op.number))
    columns = np.array(rest, dtype=np.int64).reshape(-1, 3).T
    return _ordered(np.array(counted), columns), _ordered(np.array(freed), columns)


def _joined(ops: Sequence[Op]) -> set[tuple[int, str]]:
    """Synchronous collectives: (op, stream) where the next op of the stream waits for the collective."""
    found: set[tuple[int, str]] = set()
    last: dict[str, int] = {}
    for op in ops:
        before = last.get(op.stream, -1)
        found.update((n, op.stream) for n in op.after if n > before and isinstance(ops[n].work, Collective))
        last[op.stream] = op.number
    return found


def _ordered(seconds: npt.NDArray[np.float64], columns: npt.NDArray[np.int64]) -> _Moves:
    """By time; at the same instant in issue order, so that what was released before makes room first."""
    order = np.argsort(seconds, kind="stable")
    return _Moves(seconds[order], *columns[:, order])


def _curve(moves: _Moves, sizes: npt.NDArray[np.float64], base: float) -> Curve:
    """The running sum, where this tier's bytes change; it starts at time 0 with what is resident."""
    levels = base + np.cumsum(moves.sign * sizes[moves.buffer]) if len(moves.buffer) else np.empty(0)
    return Curve(np.concatenate(([0.0], moves.seconds)), np.concatenate(([base], levels)))


def _at_peak(
    timeline: Timeline, sizes: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], overhead: float
) -> tuple[dict[str, float], tuple[Holding, ...]]:
    """Bytes by category, and the buffers held grouped by the stem of their names, largest first."""
    parts = dict.fromkeys(CATEGORIES, 0.0)
    parts["overhead"] += overhead
    number: defaultdict[tuple[str, str], int] = defaultdict(int)
    held: defaultdict[tuple[str, str], float] = defaultdict(float)
    shown = np.flatnonzero((counts > 0) & (sizes > 0))
    for index, count, size in zip(*(column.tolist() for column in (shown, counts[shown], sizes[shown])), strict=True):
        buffer = timeline.step.buffers[index]
        key = _INDEX.sub("", buffer.name) or buffer.name, buffer.category
        parts[buffer.category] += count * size
        number[key] += count
        held[key] += count * size
    largest = sorted(held, key=lambda key: (-held[key], key))
    return parts, tuple(Holding(*key, number[key], held[key]) for key in largest)


def _reserve(timeline: Timeline, busy: _Moves, capacity: float, overhead: float) -> Reserve:
    """Play the moves of the GPU's buffers through the caching allocator."""
    buffers, ops = timeline.step.buffers, timeline.step.ops
    allocator = CachingAllocator(limit=capacity - overhead)
    blocks: dict[int, list[Block]] = {  # oldest first: a buffer may come back before its old block is reusable
        index: [allocator.allocate(buffers[index].bytes, COMPUTE)]
        for index in sorted(timeline.step.resident)
        if buffers[index].tier == GPU
    }
    seconds, levels = [0.0], [overhead + allocator.reserved]
    for time, index, sign, op in zip(*(column.tolist() for column in busy), strict=True):
        if buffers[index].tier != GPU:
            continue
        if sign > 0:
            blocks.setdefault(index, []).append(allocator.allocate(buffers[index].bytes, ops[op].stream))
        else:
            allocator.free(blocks[index].pop(0))
        if overhead + allocator.reserved != levels[-1]:
            seconds.append(time)
            levels.append(overhead + allocator.reserved)
    return Reserve(Curve(np.array(seconds), np.array(levels)), allocator.flushes, allocator.failures)
