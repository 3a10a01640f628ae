"""One line on a played step: why it does not fit, or what it waits for most."""

from __future__ import annotations

from collections import defaultdict

from zerosim.report.parts import OWN_CAUSES, cause_name
from zerosim.units import show_share, show_size
from zerosim.views import Summary

HARDLY = 0.001  # of the step: too little waiting to name its cause; a choice


def reason(summary: Summary) -> str:
    """Why it does not fit, or what slows it most."""
    for name, tier in summary.memory.items():
        missing = tier.peak_bytes - tier.capacity_bytes
        if missing > 0:
            where = "" if name == "gpu" else f"in {name} "
            return f"does not fit: {show_size(missing)} too much {where}at {tier.peak_at.op or 'the start'}"
    return waiting(summary)


def waiting(summary: Summary) -> str:
    """The largest stall, with what limits it."""
    waits: defaultdict[tuple[str, str], float] = defaultdict(float)
    for stall in summary.stalls:
        waits[stall.cause, stall.label] += stall.seconds
    (cause, label), seconds = max(waits.items(), key=lambda wait: wait[1], default=(("", ""), 0.0))
    if seconds < HARDLY * summary.step_seconds:
        return "hardly ever waits"
    limit = "" if cause in OWN_CAUSES else f", limited by {label}"
    return f"waits {show_share(seconds / summary.step_seconds)} of the step: {cause_name(cause)}{limit}"
