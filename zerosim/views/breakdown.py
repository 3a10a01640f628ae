"""Where the time of a step went, and how much of the communication is hidden behind compute.

The definitions are those of HolisticTraceAnalysis (`get_temporal_breakdown`, `get_comm_comp_overlap`): unions over all
streams, so two collectives at once count once, and overlap is a share of *communication*, not of the step. What is
hidden by compute is not exposed; a copy hidden by an exposed collective counts as communication, and so on down.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosim.timeline import Timeline
from zerosim.views.activity import Activity, activity
from zerosim.views.intervals import NOTHING, difference, intersection, length, union


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds of the slowest class; they sum to the step."""

    compute: float
    exposed_communication: float
    exposed_transfer: float
    host_compute: float
    idle: float


@dataclass(frozen=True, slots=True)
class Communication:
    """Seconds with a collective in flight, those without compute, and the hidden share (0 without communication)."""

    total_seconds: float
    exposed_seconds: float
    overlap: float


def breakdown(timeline: Timeline, seen: Activity | None = None) -> Breakdown:
    """Each instant under the first of: compute, collective, copy, CPU compute, nothing. `seen`: if it is at hand."""
    seen = seen or activity(timeline)
    covered = NOTHING
    parts = []
    for kind in (seen.compute, seen.collectives, seen.transfers, seen.host, seen.step):
        parts.append(length(difference(kind, covered)))
        covered = union(covered, kind)
    return Breakdown(*parts)


def communication(timeline: Timeline, seen: Activity | None = None) -> Communication:
    """Overlap = |union of collectives ∩ union of compute| / |union of collectives|."""
    seen = seen or activity(timeline)
    total = length(seen.collectives)
    hidden = length(intersection(seen.collectives, seen.compute))
    exposed = length(difference(seen.collectives, seen.compute))
    return Communication(total, exposed, hidden / total if total else 0.0)
