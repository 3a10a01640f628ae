"""Where each op stands in a trace: on which row, between which whole ticks.

Rules: edges are rounded, not durations, so neighbours stay neighbours and sums stay true; nothing on a row overlaps.
GPU streams are rows of the GPU's process, numbered as PyTorch numbers them; CPU and NVMe work are rows of the host's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zerosim.report.kernels import Kernel, kernel
from zerosim.resources import RankClass
from zerosim.step import COMPUTE, READ, WRITE, Op
from zerosim.timeline import Timeline

HOST_THREAD = 1  # tid of the thread that issues; streams of the CPU follow
PROCESSES = 1000  # pids begin above every tid: where they are equal Perfetto takes the row for the main thread
DEFAULT_STREAM, FIRST_SIDE_STREAM = 7, 20  # numbers as in traces of PyTorch; readers only need them to differ

Edges = tuple[int, int]


class Row(NamedTuple):
    """A thread of the trace. `stream` is its number on the GPU, None for work of the host."""

    pid: int
    tid: int
    stream: int | None
    title: str


class Placed(NamedTuple):
    """An op with its name in the trace and its place there, in ticks."""

    op: Op
    kernel: Kernel
    row: Row
    start: int
    end: int


def host_process(rank: int) -> int:
    """pid of a rank's host process (0 would be the idle process in Perfetto)."""
    return PROCESSES + 2 * rank


def gpu_process(rank: int) -> int:
    """pid under which a rank's GPU streams stand."""
    return PROCESSES + 2 * rank + 1


def ticks(seconds: float, scale: int = 1) -> int:
    """Whole microseconds, or parts of one (`scale` of them)."""
    return round(seconds * 1e6 * scale)


def snap(intervals: Sequence[tuple[float, float]], scale: int = 1) -> list[Edges | None]:
    """Rounded edges of the spans of one stream, in order; None for a span that has no room of its own.

    A span that rounds to nothing takes one tick where the next one leaves it; otherwise its neighbours cover it.
    """
    starts = [ticks(start, scale) for start, _ in intervals]
    snapped: list[Edges | None] = []
    free = 0
    for index, (begin, finish) in enumerate(intervals):
        start, end = max(starts[index], free), ticks(finish, scale)
        if end <= start and finish > begin and (index + 1 == len(starts) or starts[index + 1] > start):
            end = start + 1
        snapped.append((start, end) if end > start else None)
        free = max(free, end)
    return snapped


def place(timeline: Timeline, rank_class: RankClass, scale: int = 1) -> list[Placed]:
    """Every op of the class's first rank that takes time, in issue order."""
    rank = rank_class.ranks[0]
    demands, spans = timeline.demands[rank_class.name], timeline.spans[rank_class.name]
    lanes: dict[tuple[str, bool], list[tuple[Op, Kernel]]] = {}
    step = timeline.program(rank_class)
    for op in step.ops:
        named = kernel(op, step, rank, demands[op.number].algorithm)
        if named is not None:
            lanes.setdefault((op.stream, named.launch is not None), []).append((op, named))
    placed = []
    for row, members in zip(_rows(lanes, rank), lanes.values(), strict=True):
        edges = snap([(spans[op.number].start, spans[op.number].end) for op, _ in members], scale)
        placed += [Placed(*member, row, *edge) for member, edge in zip(members, edges, strict=True) if edge]
    return sorted(placed, key=lambda one: one.op.number)


def _rows(lanes: Iterable[tuple[str, bool]], rank: int) -> list[Row]:
    """A row a stream, in order of first use."""
    rows = []
    side, cpu = FIRST_SIDE_STREAM, HOST_THREAD + 1
    for stream, on_gpu in lanes:
        if not on_gpu:
            drives = stream in (READ, WRITE)
            rows.append(Row(host_process(rank), cpu, None, stream if drives else f"CPU {stream}"))
            cpu += 1
            continue
        number = DEFAULT_STREAM if stream == COMPUTE else side
        side += number == side
        rows.append(Row(gpu_process(rank), number, number, f"stream {number} {stream}"))
    return rows
