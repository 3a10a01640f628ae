"""All findings of a step, in the order of their weight.

Errors come first, out of memory before what may stop the step. Then warnings and what bounds the step (`BOUNDS`), by
the seconds of the step that hang on them; then notes. What was found before the step was played knows only what work
takes, not whether anybody waits for it: advice on how the CPU computes is a note where its work is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import Finding
from zerosim.views.activity import Activity
from zerosim.views.intervals import intersection, length

BOUNDS = frozenset({"communication-bound", "transfer-bound", "cpu-optimizer-bound", "host-bound", "pipeline-bubble"})
CPU_ADVICE = frozenset({"cpu-oversubscribed", "cpu-threads", "cpu-unbound"})  # of launching: `costs` mints them

# Shares of the step up to which the CPU's work counts as hidden, on the clock and on the critical path; choices. The
# path has more of it: what keeps a drive waiting for a moment is made up for when other ranks leave it more.
EXPOSED, ON_THE_PATH = 0.01, 0.05


class Weighed(NamedTuple):
    """A finding, and the seconds of the step that hang on it; 0 where that is not known."""

    finding: Finding
    seconds: float = 0.0


def ordered(told: Iterable[Weighed]) -> tuple[Finding, ...]:
    """The weightiest first; equal ones as they come."""
    return tuple(each.finding for each in sorted(told, key=_place))


def _place(told: Weighed) -> tuple[bool, bool, bool, float]:
    finding = told.finding
    error, shown = finding.severity == "error", finding.severity != "note" or finding.code in BOUNDS
    return not error, finding.code != "out-of-memory", not shown, -told.seconds


def weighed(finding: Finding, seen: Activity, exposed: float, on_the_path: float) -> Weighed:
    """What was found before the step was played, and what it turned out to weigh; seconds of the CPU's work."""
    if finding.code not in CPU_ADVICE:
        return Weighed(finding)
    if exposed > EXPOSED * seen.seconds or on_the_path > ON_THE_PATH * seen.seconds:
        return Weighed(finding, on_the_path)
    hiding = _hiding(seen)
    message = f"{finding.message.removesuffix('.')}, hidden behind {hiding}: no gain now."
    later = f"Should {hiding} become faster: {finding.remedy[:1].lower()}{finding.remedy[1:]}"
    return Weighed(replace(finding, severity="note", message=message, remedy=later))


def _hiding(seen: Activity) -> str:
    """What goes on while the CPU works."""
    others = {"copies": seen.transfers, "collectives": seen.collectives, "kernels": seen.compute}
    return max(others, key=lambda name: length(intersection(seen.host, others[name])))
