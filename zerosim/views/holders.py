"""Who holds memory, and in which order its buffers come and go: the classes of a timeline, alone or node by node.

A class is one rank of it. Of a tier that ranks share, a node's part is the sum over its ranks, whatever programs they
run; the view of memory (`memory`) sweeps what is found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zerosim.resources import RankClass
from zerosim.step import COMPUTE, Collective, Op, Step
from zerosim.timeline import Timeline

GPU = "gpu"


class Moves(NamedTuple):
    """Buffers coming (+1) and going (-1), in the order in which the memory sees it."""

    seconds: npt.NDArray[np.float64]
    buffer: npt.NDArray[np.int64]
    sign: npt.NDArray[np.int64]
    op: npt.NDArray[np.int64]


class Holder(NamedTuple):
    """A class whose `ranks` hold the buffers of their program in the same memory."""

    rank_class: RankClass
    step: Step
    busy: Moves
    allocated: Moves
    ranks: int = 1


def slowest_of_each(timeline: Timeline) -> list[RankClass]:
    """Of each program the class that ends last."""
    if len(timeline.steps) == 1:
        return [timeline.slowest]
    programs = dict.fromkeys(rank_class.program for rank_class in timeline.classes)
    alike = [[each for each in timeline.classes if each.program == program] for program in programs]
    return [replace(timeline, classes=tuple(classes)).slowest for classes in alike]


def nodes(timeline: Timeline, holders: Sequence[Holder], ranks_per_node: int) -> list[list[Holder]]:
    """Who holds memory on a node, for each way in which nodes differ: how many ranks of it run each program."""
    if len(holders) == 1:
        return [[holders[0]._replace(ranks=ranks_per_node)]]
    program_of = {rank: each.program for each in timeline.classes for rank in each.ranks}
    starts = range(0, len(program_of), ranks_per_node)
    held = [Counter(program_of.get(rank) for rank in range(start, start + ranks_per_node)) for start in starts]
    distinct = {tuple(node[holder.rank_class.program] for holder in holders): None for node in held}
    return [
        [holder._replace(ranks=ranks) for holder, ranks in zip(holders, counts, strict=True) if ranks]
        for counts in distinct
    ]


def resident_of(holders: Sequence[Holder]) -> npt.NDArray[np.int64]:
    """1 for each buffer that is there from the start."""
    resident = [np.zeros(len(holder.step.buffers), dtype=np.int64) for holder in holders]
    for mine, holder in zip(resident, holders, strict=True):
        mine[list(holder.step.resident)] = 1
    return np.concatenate(resident)


def merged(moves: Sequence[Moves], holders: Sequence[Holder]) -> Moves:
    """The moves of all holders as one; buffers are numbered through."""
    if len(moves) == 1:
        return moves[0]
    offsets = np.cumsum([0, *(len(holder.step.buffers) for holder in holders)])
    moves = [each._replace(buffer=each.buffer + offset) for each, offset in zip(moves, offsets, strict=False)]
    seconds, *columns = (np.concatenate(column) for column in zip(*moves, strict=True))
    return _ordered(seconds, np.array(columns))


def owner_of(holders: Sequence[Holder], buffer: int) -> str:
    """The class that holds a buffer."""
    for holder in holders:
        if buffer < len(holder.step.buffers):
            break
        buffer -= len(holder.step.buffers)
    return holder.rank_class.name


def holder_of(timeline: Timeline, rank_class: RankClass) -> Holder:
    """Every acquire and release of a class in the order of busy, and in the order of allocated."""
    step = timeline.program(rank_class)
    joined = _joined(step.ops)
    owner = dict.fromkeys(step.resident, COMPUTE)  # the stream a buffer was allocated for
    freed: list[float] = []  # when the host does it, and when it counts
    counted: list[float] = []
    rest: list[tuple[int, int, int]] = []
    for op, span in zip(step.ops, timeline.spans[rank_class.name], strict=True):
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
    return Holder(rank_class, step, _ordered(np.array(counted), columns), _ordered(np.array(freed), columns))


def _joined(ops: Sequence[Op]) -> set[tuple[int, str]]:
    """Synchronous collectives: (op, stream) where the next op of the stream waits for the collective."""
    found: set[tuple[int, str]] = set()
    last: dict[str, int] = {}
    for op in ops:
        before = last.get(op.stream, -1)
        found.update((n, op.stream) for n in op.after if n > before and isinstance(ops[n].work, Collective))
        last[op.stream] = op.number
    return found


def _ordered(seconds: npt.NDArray[np.float64], columns: npt.NDArray[np.int64]) -> Moves:
    """By time; at the same instant in issue order, so that what was released before makes room first."""
    order = np.argsort(seconds, kind="stable")
    return Moves(seconds[order], *columns[:, order])
