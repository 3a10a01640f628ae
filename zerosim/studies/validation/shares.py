"""What a predicted step is made of, as shares of it, and what of it a wrong prediction most likely hangs on.

The sentence is made from the shares, from what had to be assumed of the row and from how its number was published: no
text is kept for any row. Rule: what is small is not named; the first that is named weighs most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zerosim.report.palette import SPENT
from zerosim.report.parts import cause_name
from zerosim.step import Attention, Matmul, Pass
from zerosim.timeline import Timeline
from zerosim.units import show_share
from zerosim.views import Summary

MATMUL, ATTENTION, PASS = "matrix products", "attention", "memory-bound kernels"
COMMUNICATION, COPIES, CPU = (
    SPENT[name].word for name in ("exposed_communication", "exposed_transfer", "host_compute")
)
HOST = "host-bound"
OVER = " (over an assumed network)"
HELD = ("parameters", "gradients", "optimizer", "activations", "buffers", "overhead")
_KERNELS = {Matmul: MATMUL, Attention: ATTENTION, Pass: PASS}
HARDLY = 0.10  # of the step: smaller parts explain nothing; a choice
MOST_PARTS, MOST_ASSUMED = 3, 3
NETWORK = ("network", "inter-node", "NIC")  # words of an assumption about what joins the nodes

Shares = Mapping[str, float]


def shares(timeline: Timeline, summary: Summary) -> Shares:
    """Seconds of each kind of kernel, and of each wait without any, over the step. Kernels that run beside each other
    count each."""
    seconds = dict.fromkeys(_KERNELS.values(), 0.0)
    slowest = timeline.slowest
    for op, span in zip(timeline.program(slowest).ops, timeline.spans[slowest.name], strict=True):
        if (kind := _KERNELS.get(type(op.work))) is not None:
            seconds[kind] += span.end - span.start
    parts = summary.breakdown
    seconds |= {COMMUNICATION: parts.exposed_communication, COPIES: parts.exposed_transfer, CPU: parts.host_compute}
    for stall in summary.stalls:
        if stall.cause == "host":
            seconds[HOST] = seconds.get(HOST, 0.0) + stall.seconds
        elif stall.cause in ("idle", "wait_for_rank", "wait_for_stage"):
            name = cause_name(stall.cause)
            seconds[name] = seconds.get(name, 0.0) + stall.seconds
    return {name: part / summary.step_seconds for name, part in seconds.items() if summary.step_seconds}


def held(summary: Summary) -> Shares:
    """What the GPU holds at its peak, by what it is."""
    gpu = summary.memory["gpu"]
    parts = {part: getattr(gpu, f"{part}_bytes") for part in HELD}
    return {name: part / gpu.peak_bytes for name, part in parts.items() if gpu.peak_bytes}


def likely(parts: Shares, of: str, assumptions: Sequence[str], said: Sequence[str] = ()) -> str:
    """Why a prediction may be off: what weighs in the step or the peak, what was assumed; `said` of the published
    number itself."""
    return "; ".join((*said, *_heavy(parts, of, assumptions), *_assumed(assumptions)))


def _heavy(parts: Shares, of: str, assumptions: Sequence[str]) -> Iterator[str]:
    ranked = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    named = [
        f"{name} {show_share(share)}{OVER if name == COMMUNICATION and _network(assumptions) else ''}"
        for name, share in ranked[:MOST_PARTS]
        if share >= HARDLY
    ]
    if named:
        yield f"{', '.join(named)} of the {of}"


def _network(assumptions: Sequence[str]) -> bool:
    return any(word in each for each in assumptions for word in NETWORK)


def _assumed(assumptions: Sequence[str]) -> Iterator[str]:
    if assumptions:
        more = len(assumptions) - MOST_ASSUMED
        yield f"assumed: {', '.join(assumptions[:MOST_ASSUMED])}{f', and {more} more' if more > 0 else ''}"
