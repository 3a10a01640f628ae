"""Sections of the screen: why the GPU waits, who was slowed by whom, and which ranks wait for which others.

Rule: a wait and a loss name the resource that is behind them. Where room is short it goes without sharers and
rate, never without what tells it from another: the direction, the node, how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from zerosim.report.bars import Pen
from zerosim.report.parts import OUTSIDE_THE_GPU, OWN_CAUSES, cause_name, sharer_name
from zerosim.report.sentences import waited
from zerosim.report.tables import Column, cell_width, clip, pad, table
from zerosim.report.words import INDENT, counted, heading, share, wrapped
from zerosim.units import show_seconds
from zerosim.views.contention import OTHER_RANKS, Loss
from zerosim.views.recorded import Answer
from zerosim.views.stalls import WAIT_FOR_RANK, WAIT_FOR_STAGE, Stall
from zerosim.views.summary import Summary
from zerosim.views.waits import Wait

HARDLY = 0.0005  # of the step: shown as 0.0 %, so not worth a line
LOST_MUCH = 0.01  # of the step: worth a line of who lost to whom; a choice
LOST_SOME = 0.001  # worth one where nobody loses more; a choice
SHARED = re.compile(r", shared by \d+ \w+")
RATE = re.compile(r"(?:^| )(?:\d+ x [\d.]+(?:,| and) )*(?:\d+ x )?[\d.]+ \S*b(?:/s)?\S*", re.IGNORECASE)


def stalls(summary: Answer, width: int, pen: Pen, most: int) -> Iterator[str]:
    """The largest times without compute, each with the resource that caused it and how busy that one is."""
    if not summary.stalls:
        return
    yield from heading("why the GPU waits", pen)
    step = summary.step_seconds
    worth = sum(stall.seconds >= HARDLY * step for stall in summary.stalls[:most])
    named, others = summary.stalls[: max(worth, 1)], summary.stalls[max(worth, 1) :]
    waits = [(_named(stall, summary), stall.seconds) for stall in named]
    waits += [(f"{len(others)} more", sum(stall.seconds for stall in others))] if others else []
    columns = (Column(""), Column("", "right"), Column("", "right"))
    rows = [(wait, show_seconds(seconds), share(seconds, step)) for wait, seconds in waits]
    lines = table(columns, rows, INDENT).split("\n")[1:]
    room = width - max(map(cell_width, lines)) - len(INDENT)
    because = [_because(stall, summary, room) for stall in named] + [""] * bool(others)
    for line, reason in zip(lines, because, strict=True):
        yield f"{line}{INDENT}{reason}".rstrip()


def _named(stall: Stall, summary: Answer) -> str:
    """A wait and its phase, where phases are known."""
    cause = cause_name(stall.cause)
    return cause if summary.phases is None else f"{cause}, {stall.phase}"


def _because(stall: Stall, summary: Answer, room: int) -> str:
    """The resource that limited what the GPU waited for; its name is cut before how busy it was."""
    label, busy = because(stall, summary)
    busy = f", {busy}" if busy else ""
    return shortened(label, room - len(busy)) + busy if label else ""


def because(stall: Stall, summary: Answer) -> tuple[str, str]:
    """What is behind a wait, in words, and how busy that was; both empty where they say nothing."""
    use = summary.resources.get(stall.resource)
    if use:
        return stall.label, f"{share(use.utilization, 1.0)} busy"
    if stall.cause == WAIT_FOR_RANK:
        slow = next((known.first_rank for known in summary.classes if known.name == stall.resource), None)
        return ("" if slow is None else f"rank {slow} arrives last"), ""
    return ("" if stall.cause in OWN_CAUSES - {WAIT_FOR_STAGE} else stall.label), ""


def unequal(summary: Summary, width: int, most: int) -> Iterator[str]:
    """Which ranks wait for which others, how long, and for what of theirs: a line for each cause of waiting."""
    waits = _alike(summary, LOST_MUCH) or _alike(summary, LOST_SOME)[:1]
    for alike in waits[:most]:
        yield from wrapped(waited(alike, summary), width, "")
    if len(waits) > most:
        yield f"and {counted(len(waits) - most, 'such wait')} more"


def _alike(summary: Summary, least: float) -> list[list[Wait]]:
    """Waits of at least that share of the step, those for the same reason together, the longest first."""
    waits: dict[tuple[str, str, str], list[Wait]] = {}
    for wait in summary.waits:
        if wait.seconds >= least * summary.step_seconds:
            waits.setdefault((wait.waited_for, wait.cause, wait.label), []).append(wait)
    return list(waits.values())


def contention(summary: Summary, width: int, pen: Pen, most: int) -> Iterator[str]:
    """Who lost how much to whom, on what."""
    shown = losses(summary)[:most]
    if not shown:
        return
    yield from heading("lost by sharing, also where hidden", pen)
    roomy, tight = (_lost(shown, times, width) for times in ("{:.2f} times as long", "x{:.2f}"))
    yield from roomy if max(map(cell_width, roomy)) <= width else (clip(line, width) for line in tight)


def _lost(shown: Sequence[Loss], times: str, width: int) -> list[str]:
    """A line a loss; wider than `width` where the resource does not fit, however short."""
    seconds = [show_seconds(loss.seconds) for loss in shown]
    longest = max(map(cell_width, seconds))
    rows = [
        (sharer_name(loss.loser), f"{pad(lost, longest, 'right')} lost{times_as_long(loss, times)}, {winner(loss)}")
        for loss, lost in zip(shown, seconds, strict=True)
    ]
    lines = table((Column(""), Column("")), rows, INDENT).split("\n")[1:]
    longest = max(map(cell_width, lines))
    rooms = width - longest - len(INDENT)
    return [
        f"{pad(line, longest)}{INDENT}{shortened(loss.label, rooms)}" for line, loss in zip(lines, shown, strict=True)
    ]


def losses(summary: Summary) -> list[Loss]:
    """The large losses to sharing outside the GPU. What kernels lose to those beside them is in the JSON."""
    told = [loss for loss in summary.contention if {loss.loser, loss.winner} & OUTSIDE_THE_GPU]
    return [loss for loss in told if loss.seconds >= LOST_MUCH * summary.step_seconds]


def times_as_long(loss: Loss, times: str) -> str:
    """How many times as long as alone the ops took because of this."""
    return f", {times.format(1 + loss.seconds / loss.alone_seconds)}" if loss.alone_seconds else ""


def winner(loss: Loss) -> str:
    """Who won what the losers lost."""
    if loss.winner == OTHER_RANKS:
        return f"to {counted(round(loss.ranks) - 1, 'other GPU')}"
    return "to each other" if loss.winner == loss.loser else f"to {sharer_name(loss.winner)}"


def shortened(label: str, room: int) -> str:
    """The label without who shares it, then without its rate, then without what stands before its last comma.

    `PCIe 4 31.5 GB/s to the GPU`: `PCIe 4 … to the GPU`. `NIC 10 Gb/s Ethernet, one per node (node 1)`: `NIC …
    Ethernet, one per node (node 1)`, then `NIC …, one per node (node 1)`. As a last resort the beginning goes.
    """
    alone = SHARED.sub("", label)
    found = RATE.search(alone)
    before, after = (alone[: found.start()], alone[found.end() :]) if found else (alone, "")
    brief = f"{before} …{after}" if after else before
    briefer = f"{before} …,{after.rpartition(',')[2]}" if "," in after else brief
    known = next((way for way in (label, alone, brief, briefer) if cell_width(way) <= room), "")
    return known or (f"…{briefer[len(briefer) - room + 1 :]}" if room > 1 else clip(label, room))
