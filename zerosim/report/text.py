"""One training step on one terminal screen: how long, where the time went and why, what memory holds, what to know.

Rules: every number has its unit and at most four digits; a stall names the resource that caused it; letters carry what
colours repeat; errors, warnings and what bounds the step most are never cut: other sections give them room. The screen
is a function of the Summary alone; it computes no new number but shares of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerosim.errors import Finding
from zerosim.report import sentences, waits
from zerosim.report.bars import Pen, bar
from zerosim.report.calibration import measured
from zerosim.report.comparison import render_comparison
from zerosim.report.parts import memory_parts
from zerosim.report.running import running
from zerosim.report.tables import clip, pad
from zerosim.report.times import where_time_goes
from zerosim.report.waits import HARDLY
from zerosim.report.words import INDENT, bound, counted, heading, unbroken, wrapped
from zerosim.units import show_seconds, show_size
from zerosim.views.findings import BOUNDS
from zerosim.views.summary import Summary

SCREEN = 45  # lines; notes and assumptions take what the rest leaves
ASSUMPTIONS = 4  # lines kept for them
WAITS = 2  # of unequal ranks for each other, told one by one
CLASSES = 3  # of ranks, told one by one; of more the range
UNCHANGED = " changes nothing in a step"  # how it is said that a key has no effect
TIER_NAME = 14  # cells of "dram per node"
MARGIN = " " * 7  # of what stands below a tier's name
SEVERITY_COLOURS = {"error": "red", "warning": "orange", "note": "cyan"}

__all__ = ["render", "render_comparison"]


class Layout(NamedTuple):
    """What is shown: how many stalls and losses; `assumed`: the assumptions, not only how many there are; `moments`:
    when a tier was at its peak; `phases`: these, and parts of hardly any time. `hang`: where a finding goes on."""

    stalls: int
    losses: int
    hang: int = 11
    assumed: bool = True
    moments: bool = True
    phases: bool = True


# from roomy to tight: the first that the screen has room for
TIGHT = (
    Layout(3, 0),
    Layout(2, 0),
    Layout(1, 0),
    Layout(2, 0, hang=4, assumed=False),
    Layout(1, 0, hang=4, assumed=False),
    Layout(1, 0, hang=4, assumed=False, moments=False),
    Layout(1, 0, hang=4, assumed=False, moments=False, phases=False),
)
LAYOUTS = (Layout(3, 3), Layout(2, 2), Layout(2, 1), *TIGHT)
WITHOUT_LOSSES = (Layout(5, 0), *TIGHT)


def render(summary: Summary, width: int = 100, colour: bool = False) -> str:
    """The screen, ending in a line end."""
    layouts = LAYOUTS if waits.losses(summary) else WITHOUT_LOSSES
    screens = (_screen(summary, width, Pen(colour), layout) for layout in layouts)
    lines = next((each for each in screens if len(each) <= SCREEN), None)
    return "\n".join(lines or _screen(summary, width, Pen(colour), layouts[-1])) + "\n"


def _screen(summary: Summary, width: int, pen: Pen, layout: Layout) -> list[str]:
    fixed = [
        *_head(summary, width, pen),
        *where_time_goes(summary, width, pen, layout.phases),
        *_memory(summary, width, pen, layout),
        *waits.stalls(summary, width, pen, layout.stalls),
        *waits.contention(summary, width, pen, layout.losses),
    ]
    kept = ASSUMPTIONS if layout.assumed else 1
    found = list(_findings(summary, width, pen, SCREEN - len(fixed) - 2 - kept, layout.hang))
    if layout.assumed:
        return [*fixed, *found, *_assumptions(summary, width, pen, SCREEN - len(fixed) - len(found))]
    several = len(summary.assumptions) + len(list(measured(summary.calibration)))
    untold = f"{INDENT}and {counted(several, 'assumption')}, which --json shows"
    return [*fixed, *found, *([untold] if several else [])]


# --- sections --------------------------------------------------------------------------------------------------------


def _head(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    machine = sentences.machine(summary)
    title = clip(summary.scenario, max(width - len(machine) - 2, 10))
    yield pen(pad(title, width - len(machine)), "bold") + machine
    yield from (pen(line, "red") for line in wrapped(sentences.verdict(summary), width, ""))
    yield from wrapped("   ".join(map(unbroken, sentences.rates(summary))), width, "")
    yield from wrapped("   ".join(map(unbroken, running(summary))), width, "")
    yield from wrapped(", ".join(map(unbroken, sentences.pipeline(summary))), width, "")
    yield from _classes(summary, width)
    yield from waits.unequal(summary, width, WAITS)


def _classes(summary: Summary, width: int) -> Iterator[str]:
    """With unequal ranks: who waits for whom."""
    if not any(known.waited_seconds >= HARDLY * summary.step_seconds for known in summary.classes):
        return
    waits = [
        f"{counted(known.ranks, 'rank')} like rank {known.first_rank} {show_seconds(known.waited_seconds)}"
        for known in summary.classes
    ]
    said = "; ".join(map(unbroken, waits)) if len(waits) <= CLASSES else _range(summary)
    yield from wrapped(f"waited for other ranks: {said}", width, "")


def _range(summary: Summary) -> str:
    """The least and the most that any class waited."""
    seconds = sorted(known.waited_seconds for known in summary.classes)
    stages = len({known.program for known in summary.classes})
    over = f"{stages} stages" if stages > 1 else f"{len(seconds)} kinds of ranks"
    return f"{show_seconds(seconds[0])} to {show_seconds(seconds[-1])} over {over}"


def _memory(summary: Summary, width: int, pen: Pen, layout: Layout) -> Iterator[str]:
    """For each tier a bar against its capacity, the parts, and the moment."""
    yield from heading("memory at its peak", pen)
    fills = {name: sentences.fill(tier) for name, tier in summary.memory.items()}
    room = max(width - len(INDENT) - TIER_NAME - len("[] ") - max(map(len, fills.values()), default=0), 10)
    for name, tier in summary.memory.items():
        parts = memory_parts(tier)
        whole = max(tier.capacity_bytes, tier.peak_bytes)
        drawn = bar(parts, whole, room, pen, limit=tier.capacity_bytes)
        where = pad(f"{name:<4} {'per GPU' if name == 'gpu' else 'per node'}", TIER_NAME)
        fits = tier.peak_bytes <= tier.capacity_bytes
        yield f"{INDENT}{where}[{drawn}] {fills[name] if fits else pen(fills[name], 'red')}"
        known = "  ".join(
            unbroken(f"{part.letter} {part.word} {show_size(part.amount)}") for part in parts if part.amount
        )
        yield from wrapped(known, width, MARGIN)
        if layout.moments:
            yield from wrapped(sentences.moment(tier), width, MARGIN)


def _findings(summary: Summary, width: int, pen: Pen, room: int, hang: int) -> Iterator[str]:
    """Errors, warnings and what bounds the step most, with remedies, whatever the room; then notes that have some."""
    known = _gathered(summary.findings)
    if not known:
        return
    yield from heading("findings", pen)
    main = next((finding for finding in known if finding.code in BOUNDS), None)
    whole = [finding for finding in known if finding.severity != "note" or finding is main]
    for finding in whole:
        lines = _finding(finding, width, pen, hang)
        room -= len(lines)
        yield from lines
    notes = [finding for finding in known if finding not in whole]
    for index, finding in enumerate(notes):
        lines = _finding(finding, width, pen, hang)
        left = room if index + 1 == len(notes) else room - 1  # for the line that counts the others
        if len(lines) > left and (whole or index):
            yield f"{INDENT}and {len(notes) - index} more, which --json shows"
            return
        if len(lines) > left:  # of the only one its start
            left = max(left, 1)
            lines = [*lines[: left - 1], clip(f"{lines[left - 1]} …", width)]
        room -= len(lines)
        yield from lines


def _gathered(findings: Sequence[Finding]) -> list[Finding]:
    """Keys without effect in one line; why, each, is in the JSON."""
    keys = [f.message.partition(UNCHANGED)[0] for f in findings if f.code == "key-no-effect" and UNCHANGED in f.message]
    if len(keys) < 2:
        return list(findings)
    others = [f for f in findings if f.code != "key-no-effect" or UNCHANGED not in f.message]
    message = f"{len(keys)} keys change nothing in a step (why: --json): {', '.join(keys)}."
    return [*others, Finding("key-no-effect", "note", message)]


def _finding(finding: Finding, width: int, pen: Pen, hang: int) -> list[str]:
    label = f"{INDENT}{finding.severity:<8} "
    said = f"{unbroken(' ' * (len(label) - hang))}{finding.message} {finding.remedy}".rstrip()
    first, *others = wrapped(bound(said), width, " " * hang) or [label]
    return [pen(label, SEVERITY_COLOURS[finding.severity]) + first[len(label) :], *others]


def _assumptions(summary: Summary, width: int, pen: Pen, room: int) -> Iterator[str]:
    """What was measured, then as many as the screen has room for; the others are counted."""
    known = list(dict.fromkeys((*measured(summary.calibration), *summary.assumptions)))
    if not known:
        return
    yield from heading("assumed", pen)
    left = room - 3  # the heading, the blank above it, and the count of those that are not shown
    for index, assumption in enumerate(known):
        lines = wrapped(assumption, width, INDENT, hang=INDENT)
        if index and len(lines) > left:
            yield f"{INDENT}and {len(known) - index} more, which --json shows"
            return
        yield from lines if len(lines) <= left else [clip(INDENT + assumption, width)]
        left -= len(lines)
