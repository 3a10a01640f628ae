"""Names over the time axis: which phase the step was in, which layer was computed, and what was exposed.

Rule: bands of one kind never overlap. Phases are the cuts of `views.phases`, so a picture shows what a summary counts;
layers follow the compute of the GPU and the CPU, not communication, which runs ahead and behind.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from zerosim.resources import RankClass
from zerosim.step import Attention, Collective, HostCompute, Matmul, Pass
from zerosim.timeline import Timeline
from zerosim.views.activity import activity
from zerosim.views.intervals import Intervals, difference, union
from zerosim.views.phases import cuts, stages_in_turn


class Band(NamedTuple):
    """A stretch of the step with a name."""

    label: str
    start: float
    end: float


def seen_by(timeline: Timeline, rank_class: RankClass) -> Timeline:
    """The same timeline for views, which explain the class that ends last: here the only one is `rank_class`."""
    return replace(timeline, classes=(rank_class,))


def phases(timeline: Timeline, rank_class: RankClass) -> list[Band]:
    """Forward, backward, optimizer, one band a micro-batch; together they are the whole step.

    Those of the class, or of all stages where these work on one micro-batch in turn.
    """
    found = cuts(timeline if stages_in_turn(timeline) else seen_by(timeline, rank_class))
    starts = [0.0, *(cut.end for cut in found)]
    return [Band(cut.phase, start, cut.end) for start, cut in zip(starts, found, strict=False)]


def layers(timeline: Timeline, rank_class: RankClass) -> list[Band]:
    """Consecutive compute of one layer as one band, cut where the next one starts."""
    ops = timeline.program(rank_class).ops
    computed = [
        span
        for span in timeline.spans[rank_class.name]
        if span.end > span.start and isinstance(ops[span.op].work, Matmul | Attention | Pass | HostCompute)
    ]
    computed.sort(key=lambda span: (span.start, span.op))
    runs = [(layer, list(spans)) for layer, spans in groupby(computed, key=lambda span: ops[span.op].layer)]
    starts = [*(spans[0].start for _, spans in runs[1:]), float("inf")]
    return [
        Band(f"layer {layer}", spans[0].start, min(max(span.end for span in spans), following))
        for (layer, spans), following in zip(runs, starts, strict=False)  # without compute there is no run
        if layer is not None
    ]


class Exposed(NamedTuple):
    """When the GPU did not compute because of communication, because of copies alone, while the CPU alone computed,
    and while a collective waited for other ranks and nothing else went on."""

    communication: list[tuple[float, float]]
    transfers: list[tuple[float, float]]
    host: list[tuple[float, float]]
    waits: list[tuple[float, float]]


def exposed(timeline: Timeline, rank_class: RankClass) -> Exposed:
    """The intervals whose lengths `views.breakdown` counts; it counts waits as idle."""
    seen = activity(seen_by(timeline, rank_class))
    communication = difference(seen.collectives, seen.compute)
    transfers = difference(seen.transfers, union(seen.compute, seen.collectives))
    host = difference(seen.host, union(seen.compute, seen.collectives, seen.transfers))
    busy = union(seen.compute, seen.collectives, seen.transfers, seen.host)
    waits = difference(_waiting(timeline, rank_class), busy)
    return Exposed(_pairs(communication), _pairs(transfers), _pairs(host), _pairs(waits))


def _waiting(timeline: Timeline, rank_class: RankClass) -> Intervals:
    """When a collective of the class could have begun, had the other ranks been there."""
    ops = timeline.program(rank_class).ops
    spans = [span for span in timeline.spans[rank_class.name] if isinstance(ops[span.op].work, Collective)]
    return np.array([(span.ready, span.start) for span in spans]).reshape(-1, 2)


def _pairs(intervals: Intervals) -> list[tuple[float, float]]:
    return [(float(start), float(end)) for start, end in intervals]
