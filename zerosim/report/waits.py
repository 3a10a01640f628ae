"""Two sections of the screen: why the GPU waits, and who was slowed by whom.

Rule: a wait and a loss name the resource that is behind them; where room is short the middle of its name goes first.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report.bars import Pen
from zerosim.report.parts import OUTSIDE_THE_GPU, OWN_CAUSES, cause_name, sharer_name
from zerosim.report.tables import Column, cell_width, clip, pad, table
from zerosim.report.words import INDENT, counted, heading, share
from zerosim.units import show_seconds
from zerosim.views.contention import OTHER_RANKS, Loss
from zerosim.views.stalls import Stall
from zerosim.views.summary import Summary

HARDLY = 0.0005  # of the step: shown as 0.0 %, so not worth a line
LOST_MUCH = 0.01  # of the step: worth a line of who lost to whom; a choice


def stalls(summary: Summary, width: int, pen: Pen, most: int) -> Iterator[str]:
    """The largest times without compute, each with the resource that caused it and how busy that one is."""
    if not summary.stalls:
        return
    yield from heading("why the GPU waits", pen)
    step = summary.step_seconds
    worth = sum(stall.seconds >= HARDLY * step for stall in summary.stalls[:most])
    named, others = summary.stalls[: max(worth, 1)], summary.stalls[max(worth, 1) :]
    waits = [(f"{cause_name(stall.cause)}, {stall.phase}", stall.seconds) for stall in named]
    waits += [(f"{len(others)} more", sum(stall.seconds for stall in others))] if others else []
    columns = (Column(""), Column("", "right"), Column("", "right"))
    rows = [(wait, show_seconds(seconds), share(seconds, step)) for wait, seconds in waits]
    lines = table(columns, rows, INDENT).split("\n")[1:]
    room = width - max(map(cell_width, lines)) - len(INDENT)
    because = [_because(stall, summary, room) for stall in named] + [""] * bool(others)
    for line, reason in zip(lines, because, strict=True):
        yield f"{line}{INDENT}{reason}".rstrip()


def _because(stall: Stall, summary: Summary, room: int) -> str:
    """The resource that limited what the GPU waited for; its name is cut before how busy it was."""
    use = summary.resources.get(stall.resource)
    if use:
        busy = f", {share(use.utilization, 1.0)} busy"
        return shortened(stall.label, room - len(busy)) + busy
    slow = next((known.first_rank for known in summary.classes if known.name == stall.resource), None)
    if slow is not None:
        return f"rank {slow} arrives last"
    return "" if stall.cause in OWN_CAUSES else clip(stall.label, room)


def contention(summary: Summary, width: int, pen: Pen, most: int) -> Iterator[str]:
    """Who lost how much to whom, on what."""
    shown = losses(summary)[:most]
    if not shown:
        return
    yield from heading("slowed by sharing, in seconds of these ops, hidden ones too", pen)
    columns = (Column(""), Column("", "right"), Column("", "right"), Column(""))
    rows = [(sharer_name(x.loser), show_seconds(x.seconds), _times(x), f"to {_winner(x)}") for x in shown]
    lines = table(columns, rows, INDENT).split("\n")[1:]
    longest = max(map(cell_width, lines))
    for line, loss in zip(lines, shown, strict=True):
        yield f"{pad(line, longest)}{INDENT}{shortened(loss.label, width - longest - len(INDENT))}".rstrip()


def losses(summary: Summary) -> list[Loss]:
    """The large losses to sharing outside the GPU. What kernels lose to those beside them is in the JSON."""
    told = [loss for loss in summary.contention if {loss.loser, loss.winner} & OUTSIDE_THE_GPU]
    return [loss for loss in told if loss.seconds >= LOST_MUCH * summary.step_seconds]


def _times(loss: Loss) -> str:
    """How many times as long as alone the ops took because of this."""
    return f"x{1 + loss.seconds / loss.alone_seconds:.2f}" if loss.alone_seconds else ""


def _winner(loss: Loss) -> str:
    if loss.winner == OTHER_RANKS:
        return counted(round(loss.ranks) - 1, "other GPU")
    return sharer_name(loss.winner)


def shortened(label: str, room: int) -> str:
    """What it is, and where: `NIC 10 Gb/s Ethernet, one per node (node 1)` without what stands between."""
    if cell_width(label) > room:
        what, _, more = label.partition(",")
        place = more[more.rindex(" (") :] if more.endswith(")") else ""
        label = what + place
    return clip(label, room)
