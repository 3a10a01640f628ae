"""The events of one rank in Chrome's trace format, worded as PyTorch's Kineto words them.

Rules that readers depend on (HolisticTraceAnalysis, Perfetto), each held by a test
- Everything on a GPU stream has an integer `args.stream`; nothing else has one (it would count as a kernel).
- A kernel has one launch with the same correlation, where the simulated host issued it. One ProfilerStep.
- A kernel of a collective begins when all its ranks have come: waiting for them is idle time in the summary, too.
  NCCL's own begins when its rank comes and waits within; so how long it would have is its argument.
- Events on one (pid, tid) are apart or nested. Names of layers and phases are annotations on rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from zerosim.report.bands import Band, layers, phases, seen_by
from zerosim.report.kernels import SYNCHRONIZE
from zerosim.report.placing import HOST_THREAD, Edges, Placed, gpu_process, host_process, place, snap, ticks
from zerosim.resources import RankClass
from zerosim.step import READ, WRITE, Collective, HostCompute, Op
from zerosim.timeline import Timeline
from zerosim.views.memory import Curve, memory

Event = dict[str, Any]
# HolisticTraceAnalysis 0.6 keeps indices of events in the type of the correlations: too narrow for ids below 2^15
FIRST_CORRELATION = 100_000
WAITED = "waited for ranks"  # in ticks, before it began
PHASES_ROW, LAYERS_ROW = 1, 2  # tids in the GPU's process, below the numbers of streams


def events(timeline: Timeline, rank_class: RankClass, scale: int = 1) -> list[Event]:
    """All events of the class's first rank: names first, then by time, the outer before the inner."""
    rank = rank_class.ranks[0]
    placed = place(timeline, rank_class, scale)
    timed = [
        *_annotations(timeline, rank_class, placed, scale),
        *(_work(one, timeline, rank_class, scale) for one in placed),
        *_issuing(timeline, rank_class, placed, scale),
    ]
    timed.sort(key=lambda event: (event["ts"], event["pid"], event["tid"], -event["dur"]))
    return [*_names(rank, placed), *timed, *_counters(timeline, rank_class, scale)]


def _complete(name: str, category: str, row: tuple[int, int], edges: Edges, arguments: Event) -> Event:
    start, end = edges
    place_ = {"pid": row[0], "tid": row[1], "ts": start, "dur": end - start}
    return {"ph": "X", "cat": category, "name": name, **place_, "args": arguments}


# --- names -----------------------------------------------------------------------------------------------------------


def _names(rank: int, placed: Iterable[Placed]) -> Iterator[Event]:
    """Metadata: what processes and threads are called, and in which order they stand."""
    host, gpu = host_process(rank), gpu_process(rank)
    yield _named("process_name", host, 0, {"name": f"rank {rank} host"})
    yield _named("process_name", gpu, 0, {"name": f"rank {rank} GPU"})
    rows = {(one.row.pid, one.row.tid): one.row.title for one in placed}
    rows |= {(host, HOST_THREAD): "host thread", (gpu, PHASES_ROW): "phases", (gpu, LAYERS_ROW): "layers"}
    for (pid, tid), title in sorted(rows.items()):
        yield _named("thread_name", pid, tid, {"name": title})
        yield _named("thread_sort_index", pid, tid, {"sort_index": tid})


def _named(name: str, pid: int, tid: int, arguments: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": arguments}


def _annotations(timeline: Timeline, rank_class: RankClass, placed: Iterable[Placed], scale: int) -> Iterator[Event]:
    rank = rank_class.ranks[0]
    end = max([1, ticks(timeline.makespan, scale), *(one.end for one in placed)])
    yield _complete("ProfilerStep#0", "user_annotation", (host_process(rank), HOST_THREAD), (0, end), {})
    gpu = gpu_process(rank)
    yield from _banded(phases(timeline, rank_class), (gpu, PHASES_ROW), scale)
    yield from _banded(layers(timeline, rank_class), (gpu, LAYERS_ROW), scale)


def _banded(bands: list[Band], row: tuple[int, int], scale: int) -> Iterator[Event]:
    edges = snap([(band.start, band.end) for band in bands], scale)
    for band, edge in zip(bands, edges, strict=True):
        if edge:
            yield _complete(band.label, "gpu_user_annotation", row, edge, {})


# --- work ------------------------------------------------------------------------------------------------------------


def _work(one: Placed, timeline: Timeline, rank_class: RankClass, scale: int) -> Event:
    op, span = one.op, timeline.spans[rank_class.name][one.op.number]
    arguments: Event = {"External id": op.number + 1}
    if one.row.stream is not None:
        arguments |= {"device": 0, "context": 1, "stream": one.row.stream, "correlation": FIRST_CORRELATION + op.number}
    arguments |= one.kernel.arguments
    if one.kernel.category == "gpu_memcpy":
        arguments["memory bandwidth (GB/s)"] = round(arguments["bytes"] / (span.end - span.start) / 1e9, 3)
    if isinstance(op.work, Collective):
        arguments[WAITED] = max(one.start - ticks(span.ready, scale), 0)
    arguments |= {"op": op.name, "phase": op.phase, "micro-batch": op.micro_batch}
    arguments |= {"layer": op.layer} if op.layer is not None else {}
    arguments["limited by"] = timeline.limit(op, span.bottleneck).label
    return _complete(one.kernel.name, one.kernel.category, (one.row.pid, one.row.tid), (one.start, one.end), arguments)


# --- the host --------------------------------------------------------------------------------------------------------


def _issuing(timeline: Timeline, rank_class: RankClass, placed: list[Placed], scale: int) -> Iterator[Event]:
    """The host thread, op after op: waiting where it was told to, the framework's work, the launch at its end."""
    row = (host_process(rank_class.ranks[0]), HOST_THREAD)
    launched = {one.op.number: one.kernel.launch for one in placed}
    spans, demands = timeline.spans[rank_class.name], timeline.demands[rank_class.name]
    free, ops = 0, timeline.program(rank_class).ops
    for op in ops:
        issued = spans[op.number].issued
        end = max(ticks(issued, scale), free)
        start = max(ticks(issued - demands[op.number].host, scale), free)
        number: Event = {"External id": op.number + 1}
        if op.host_waits and start > free:
            awaited = max(op.host_waits, key=lambda other: spans[other].end)
            yield _waiting(ops[awaited], row, (free, start), number)
        if end > start:
            yield _complete(f"issue {op.name}", "cpu_op", row, (start, end), number)
        if call := launched.get(op.number):
            arguments = {"cbid": call[1], "correlation": FIRST_CORRELATION + op.number, **number}
            yield _complete(call[0], "cuda_runtime", row, (max(start, end - 1), end), arguments)
        free = end


def _waiting(awaited: Op, row: tuple[int, int], edges: Edges, number: Event) -> Event:
    """The host waits for the GPU by a call of CUDA; for a drive, and while it computes itself, by none."""
    if isinstance(awaited.work, HostCompute):
        return _complete(f"compute {awaited.name}", "cpu_op", row, edges, number)
    if awaited.stream in (READ, WRITE):
        return _complete(f"wait for {awaited.name}", "cpu_op", row, edges, number)
    name, callback = SYNCHRONIZE
    return _complete(name, "cuda_runtime", row, edges, {"cbid": callback, **number})


# --- memory ----------------------------------------------------------------------------------------------------------


def _counters(timeline: Timeline, rank_class: RankClass, scale: int) -> Iterator[Event]:
    """GPU memory over time: allocated (until the host frees), busy (until it can be used again), reserved. What the
    rank holds of other tiers: busy."""
    gpu, *others = memory(seen_by(timeline, rank_class)).values()
    curves = {"allocated": gpu.allocated, "busy": gpu.busy} | ({"reserved": gpu.reserve.curve} if gpu.reserve else {})
    rank = rank_class.ranks[0]
    named = [(f"GPU memory {name}", gpu_process(rank), curve) for name, curve in curves.items()]
    named += [(f"{tier.tier} of this rank", host_process(rank), tier.busy) for tier in others]
    for name, pid, curve in named:
        for tick, level in _levels(curve, scale).items():
            yield {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": tick, "args": {"bytes": level}}


def _levels(curve: Curve, scale: int) -> dict[int, float]:
    """The highest level of each tick, and the last one a tick later: so a peak that lasts for no time is seen."""
    ticked: dict[int, list[float]] = {}
    for second, level in zip(curve.seconds.tolist(), curve.bytes.tolist(), strict=True):
        ticked.setdefault(ticks(second, scale), []).append(level)
    shown = {tick + 1: levels[-1] for tick, levels in ticked.items()}
    shown |= {tick: max(levels) for tick, levels in ticked.items()}
    moments = sorted(shown.items())
    return dict(moments[:1] + [now for before, now in pairwise(moments) if now[1] != before[1]])
