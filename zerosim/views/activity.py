"""What each op is busy with - compute, collective, transfer, host compute - and when, in the class that ends last.

The class that ends last explains the step: every view of time looks at it. Compute means kernels of the GPU (matrix
products, attention, memory-bound passes) on any stream, as HolisticTraceAnalysis counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from zerosim.step import Attention, Collective, HostCompute, Matmul, Op, Pass, Transfer
from zerosim.timeline import Timeline
from zerosim.views.intervals import Intervals

Kind = Literal["compute", "collective", "transfer", "host_compute", "marker"]

_KINDS: Mapping[type, Kind] = {
    Matmul: "compute",
    Attention: "compute",
    Pass: "compute",
    Collective: "collective",
    Transfer: "transfer",
    HostCompute: "host_compute",
}


def kind_of(op: Op) -> Kind:
    """What an op is busy with; a marker is busy with nothing."""
    return _KINDS.get(type(op.work), "marker")


class Activity(NamedTuple):
    """The intervals of the slowest class by kind, as they are: overlapping and unsorted."""

    seconds: float
    compute: Intervals
    collectives: Intervals
    transfers: Intervals
    host: Intervals

    @property
    def step(self) -> Intervals:
        """The whole step as one interval."""
        return np.array([[0.0, self.seconds]])


def activity(timeline: Timeline) -> Activity:
    """The spans of the slowest class, sorted out by kind."""
    pairs: dict[Kind, list[tuple[float, float]]] = {}
    slowest = timeline.slowest
    for op, span in zip(timeline.program(slowest).ops, timeline.spans[slowest.name], strict=True):
        pairs.setdefault(kind_of(op), []).append((span.start, span.end))
    return Activity(timeline.makespan, *(_array(pairs.get(kind, [])) for kind in dict.fromkeys(_KINDS.values())))


def _array(pairs: list[tuple[float, float]]) -> Intervals:
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)
