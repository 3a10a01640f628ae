"""The lanes of a picture: what each stream of a rank class did when, as marks in pixels, and what a tooltip tells.

Rule: lanes stand in the order of cause: the host that issues, compute, communication and copies, drives, the CPU. A
copy shares the lane of the kernels among which it was called: it is a low box there, so that form tells it apart, not
colour alone. Seconds become pixels here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import groupby
from typing import NamedTuple

from zerosim.report.marks import TOOLTIP_FROM, Mark
from zerosim.report.ops import flops, moved_bytes
from zerosim.report.palette import INKS, ink_of
from zerosim.resources import RankClass
from zerosim.step import COMPUTE, HOST_STREAM, READ, WRITE, Collective, HostCompute, Op, Phase, Transfer
from zerosim.timeline import Span, Timeline
from zerosim.units import show_flops, show_seconds, show_size
from zerosim.views.holders import slowest_of_each

LOW = 0.6  # of the height of a lane: a copy
OTHERS = 1  # the place of lanes that are not named here: among themselves as they are first used
PLACES = {COMPUTE: 0, READ: 2, WRITE: 3, HOST_STREAM: 4}
FLIGHTS: dict[Phase, str] = {"forward": "odd", "backward": "even"}  # light and dark
TITLES = {READ: "NVMe reads", WRITE: "NVMe writes", HOST_STREAM: "CPU"}


class Scale(NamedTuple):
    """Seconds to pixels."""

    left: float
    pixels_per_second: float

    def x(self, seconds: float) -> float:
        return self.left + seconds * self.pixels_per_second

    def mark(self, ink: str, start: float, end: float, label: str = "", tooltip: str = "") -> Mark:
        """A box over these seconds."""
        return Mark(ink, self.x(start), (end - start) * self.pixels_per_second, label, tooltip)


class Lane(NamedTuple):
    """A row of the picture."""

    title: str
    marks: list[Mark]
    height: float


def streams(timeline: Timeline, rank_class: RankClass, scale: Scale, height: float) -> list[Lane]:
    """One lane a stream that has work: compute first, drives and CPU last."""
    spans = timeline.spans[rank_class.name]
    by_stream: dict[str, list[Mark]] = {}
    for op in timeline.program(rank_class).ops:
        span = spans[op.number]
        if op.work is None or span.end <= span.start:
            continue
        marks = by_stream.setdefault(op.stream, [])
        if isinstance(op.work, Collective) and span.start > span.ready:
            waits = f"{op.name} waits {show_seconds(span.start - span.ready)} for the other ranks"
            marks.append(scale.mark("wait", span.ready, span.start, "", waits))
        mark = scale.mark(ink_of(op.work), span.start, span.end, op.name)
        told = tooltip(op, span, timeline) if mark.width >= TOOLTIP_FROM else ""
        marks.append(mark._replace(tooltip=told, share=LOW if isinstance(op.work, Transfer) else 1.0))
    order = sorted(by_stream, key=lambda stream: PLACES.get(stream, OTHERS))
    return [Lane(TITLES.get(stream, stream), by_stream[stream], height) for stream in order]


def stages(timeline: Timeline, shown: RankClass, scale: Scale, height: float, thin: float) -> Iterator[Lane]:
    """What each stage of a pipeline computes, one below the other; the lane of the one that is shown is higher."""
    for stage in slowest_of_each(timeline):
        known = shown if stage.program == shown.program else stage
        high = height if known is shown else thin
        computing = [lane.marks for lane in streams(timeline, known, scale, high) if lane.title == COMPUTE]
        yield Lane(f"compute, rank {known.ranks[0]}", computing[0] if computing else [], high)


def flights(timeline: Timeline, shown: RankClass, scale: Scale, thin: float) -> Iterator[Lane]:
    """Where micro-batches overlap: which of them each stage of a pipeline works on, forward or back."""
    for stage in slowest_of_each(timeline):
        known = shown if stage.program == shown.program else stage
        yield Lane(f"micro-batches, rank {known.ranks[0]}", list(_flights(timeline, known, scale)), thin)


def _flights(timeline: Timeline, stage: RankClass, scale: Scale) -> Iterator[Mark]:
    spans = timeline.spans[stage.name]
    computed = [op for op in timeline.program(stage).ops if op.stream == COMPUTE and op.phase != "optimizer"]
    received = {op.number for op in timeline.program(stage).ops if isinstance(op.work, Collective)}
    for (phase, micro_batch), ops in groupby(computed, key=lambda op: (op.phase, op.micro_batch)):
        run = list(ops)
        start, end = spans[_begins(run, received).number].start, max(spans[op.number].end for op in run)
        about = f"{phase} of micro-batch {micro_batch}: {show_seconds(end - start)}, from {show_seconds(start)}"
        yield scale.mark(FLIGHTS[phase], start, end, f"{phase[0].upper()}{micro_batch}", about)


def _begins(run: list[Op], received: Set[int]) -> Op:
    """The first op of a micro-batch: a forward begins once its activation is there, whatever a step does before."""
    waiting = (op for op in run if op.phase == "forward" and not received.isdisjoint(op.after))
    return next(waiting, run[0])


def host(timeline: Timeline, rank_class: RankClass, scale: Scale, height: float) -> Lane:
    """The thread that issues: a box while it works on an op or computes, an open one while it waits."""
    return Lane("host", list(_issuing(timeline, rank_class, scale)), height)


def _issuing(timeline: Timeline, rank_class: RankClass, scale: Scale) -> Iterator[Mark]:
    spans, demands = timeline.spans[rank_class.name], timeline.demands[rank_class.name]
    free, ops = 0.0, timeline.program(rank_class).ops
    for op in ops:
        issued = spans[op.number].issued
        begun = max(issued - demands[op.number].host, free)
        if op.host_waits and begun > free:
            yield from _waiting(ops, spans, op, scale, free, begun)
        issuing = f"issue {op.name}: {show_seconds(issued - begun)}, done at {show_seconds(issued)}"
        yield scale.mark("issue", begun, issued, "", issuing)
        free = issued


def _waiting(
    ops: Sequence[Op], spans: Sequence[Span], op: Op, scale: Scale, free: float, begun: float
) -> Iterator[Mark]:
    """Until it can issue an op the host waits, or computes itself."""
    last = max(op.host_waits, key=lambda number: spans[number].end)
    computing = min(max(spans[last].start, free), begun) if isinstance(ops[last].work, HostCompute) else begun
    if computing > free:
        waits = f"the host waits {show_seconds(computing - free)} before it issues {op.name}"
        yield scale.mark("wait", free, computing, "waits", waits)
    if begun > computing:
        computes = f"the host computes {ops[last].name}: {show_seconds(begun - computing)}"
        yield scale.mark("host", computing, begun, "computes", computes)


def tooltip(op: Op, span: Span, timeline: Timeline) -> str:
    """What a person asks of a box: what, how long, when, how much, and what limited it."""
    assert op.work is not None  # markers take no time and have no box
    limit = timeline.limit(op, span.bottleneck).label
    lines = [
        f"{op.name} ({INKS[ink_of(op.work)].word}, op {op.number}, {op.phase})",
        f"{show_seconds(span.end - span.start)}, from {show_seconds(span.start)} to {show_seconds(span.end)}",
        _amount(op),
        f"limited by {limit}" if limit else "",
    ]
    return "\n".join(line for line in lines if line)


def _amount(op: Op) -> str:
    work = op.work
    operations, size = flops(work), moved_bytes(work)
    if operations is not None:
        return show_flops(operations).removesuffix("/s")
    route = f", {work.source} to {work.target}" if isinstance(work, Transfer) else ""
    memory = " of DRAM" if isinstance(work, HostCompute) else ""
    return f"{show_size(size)}{memory}{route}" if size is not None else ""
