"""One training step on one terminal screen: how long, where the time went and why, what memory holds, what to know.

Rules: every number has its unit and at most four digits; a stall names the resource that caused it; letters carry what
colours repeat. The screen is a function of the Summary alone; it computes no new number but shares of the step.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from zerosim.errors import Finding
from zerosim.report.bars import Part, Pen, bar
from zerosim.report.comparison import render_comparison
from zerosim.report.parts import OWN_CAUSES, cause_name, memory_parts, time_parts
from zerosim.report.tables import Column, cell_width, clip, pad, table
from zerosim.units import show_count, show_flops, show_seconds, show_share, show_size
from zerosim.views.stalls import Stall
from zerosim.views.summary import Summary, TierUse

SCREEN = 45  # lines; findings and assumptions take what the rest leaves
STALLS = 5  # shown at most
HARDLY = 0.0005  # of the step: shown as 0.0 %, so not worth a line
ASSUMPTIONS = 4  # lines kept for them
UNCHANGED = " changes nothing in a step"  # how it is said that a key has no effect
INDENT, NO_BREAK = "  ", "\u00a0"
TIER_NAME = 14  # cells of "dram per node"
MARGIN = " " * 7  # of what stands below a tier's name
SEVERITY_COLOURS = {"error": "red", "warning": "orange", "note": "cyan"}

__all__ = ["render", "render_comparison"]


def render(summary: Summary, width: int = 100, colour: bool = False) -> str:
    """The screen, ending in a line end."""
    pen = Pen(colour)
    fixed = [
        *_head(summary, width, pen),
        *_time(summary, width, pen),
        *_memory(summary, width, pen),
        *_stalls(summary, width, pen),
    ]
    found = list(_findings(summary, width, pen, SCREEN - len(fixed) - 2 - ASSUMPTIONS))
    assumed = list(_assumptions(summary, width, pen, SCREEN - len(fixed) - len(found)))
    return "\n".join([*fixed, *found, *assumed]) + "\n"


# --- sections --------------------------------------------------------------------------------------------------------


def _head(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    machine = f"{_counted(summary.world_size, 'GPU')} on {_counted(summary.nodes, 'node')}, seed {summary.seed}"
    title = clip(summary.scenario, max(width - len(machine) - 2, 10))
    yield pen(pad(title, width - len(machine)), "bold") + machine
    rates = (
        f"step {show_seconds(summary.step_seconds)}",
        f"{show_count(summary.tokens_per_second)} tokens/s",
        f"{show_count(summary.tokens_per_second_per_gpu)} tokens/s/GPU",
        f"{show_flops(1e12 * summary.model_tflops_per_gpu)} per GPU",
        f"MFU {show_share(summary.mfu)}",
    )
    yield from _wrapped("   ".join(map(_unbroken, rates)), width, "")
    yield from _classes(summary, width)


def _classes(summary: Summary, width: int) -> Iterator[str]:
    """With unequal ranks: who waits for whom."""
    if not any(known.waited_seconds >= HARDLY * summary.step_seconds for known in summary.classes):
        return
    waits = (
        f"{_counted(known.ranks, 'rank')} like rank {known.first_rank} {show_seconds(known.waited_seconds)}"
        for known in summary.classes
    )
    yield from _wrapped(f"waited for other ranks: {'; '.join(map(_unbroken, waits))}", width, "")


def _time(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    parts, step = time_parts(summary), summary.step_seconds
    yield from _heading("where the time goes", pen)
    yield INDENT + bar(parts, step, width - 2 * len(INDENT), pen, rest=".")
    communication = summary.communication
    in_flight = f"{show_share(communication.overlap)} of {show_seconds(communication.total_seconds)} hidden"
    remarks = {"X": in_flight if communication.total_seconds else ""}
    rows = [
        (p.letter, p.word, show_seconds(p.amount), _share(p.amount, step), remarks.get(p.letter, "")) for p in parts
    ]
    columns = (Column(""), Column(""), Column("", "right"), Column("", "right"), Column(""))
    lines = table(columns, rows, INDENT).split("\n")[1:]
    yield from (_lettered(clip(line, width), part, pen) for line, part in zip(lines, parts, strict=True))
    phases = (_unbroken(f"{name} {show_seconds(each)} ({_share(each, step)})") for name, each in summary.phases.items())
    yield from _wrapped("phases: " + ", ".join(phases), width, INDENT, hang=" " * len("phases: "))


def _lettered(line: str, part: Part, pen: Pen) -> str:
    """The line with its first letter painted."""
    return INDENT + pen(part.letter, part.colour) + line[len(INDENT) + 1 :]


def _memory(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    """For each tier a bar against its capacity, the parts, and the moment."""
    yield from _heading("memory at its peak", pen)
    fills = {name: _fill(tier) for name, tier in summary.memory.items()}
    room = max(width - len(INDENT) - TIER_NAME - len("[] ") - max(map(len, fills.values()), default=0), 10)
    for name, tier in summary.memory.items():
        parts = memory_parts(tier)
        whole = max(tier.capacity_bytes, tier.peak_bytes)
        drawn = bar(parts, whole, room, pen, limit=tier.capacity_bytes)
        where = pad(f"{name:<4} {'per GPU' if name == 'gpu' else 'per node'}", TIER_NAME)
        fits = tier.peak_bytes <= tier.capacity_bytes
        yield f"{INDENT}{where}[{drawn}] {fills[name] if fits else pen(fills[name], 'red')}"
        known = "  ".join(
            _unbroken(f"{part.letter} {part.word} {show_size(part.amount)}") for part in parts if part.amount
        )
        yield from _wrapped(known, width, MARGIN)
        yield from _wrapped(_moment(tier), width, MARGIN)


def _fill(tier: TierUse) -> str:
    share = _share(tier.peak_bytes, tier.capacity_bytes)
    return f"{show_size(tier.peak_bytes)} of {show_size(tier.capacity_bytes)}, {share}"


def _moment(tier: TierUse) -> str:
    at = tier.peak_at
    moment = f"at {at.op} ({at.phase}), {show_seconds(at.seconds)} into the step" if at.op else "from the start"
    reserved = f", reserved {_size(tier.reserved_bytes)}" if tier.reserved_bytes is not None else ""
    missing = tier.peak_bytes - tier.capacity_bytes
    short = f"does not fit: {_size(missing)} too much; " if missing > 0 else ""
    return f"{short}peak {moment}; allocated {_size(tier.allocated_bytes)}{reserved}"


def _stalls(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    """The largest times without compute, each with the resource that caused it and how busy that one is."""
    if not summary.stalls:
        return
    yield from _heading("why the GPU waits", pen)
    step = summary.step_seconds
    worth = sum(stall.seconds >= HARDLY * step for stall in summary.stalls[:STALLS])
    named, others = summary.stalls[: max(worth, 1)], summary.stalls[max(worth, 1) :]
    waits = [(f"{cause_name(stall.cause)}, {stall.phase}", stall.seconds) for stall in named]
    waits += [(f"{len(others)} more", sum(stall.seconds for stall in others))] if others else []
    columns = (Column(""), Column("", "right"), Column("", "right"))
    rows = [(wait, show_seconds(seconds), _share(seconds, step)) for wait, seconds in waits]
    lines = table(columns, rows, INDENT).split("\n")[1:]
    room = width - max(map(cell_width, lines)) - len(INDENT)
    because = [_because(stall, summary, room) for stall in named] + [""] * bool(others)
    for line, reason in zip(lines, because, strict=True):
        yield f"{line}{INDENT}{reason}".rstrip()


def _because(stall: Stall, summary: Summary, room: int) -> str:
    """The resource that limited what the GPU waited for; its name is cut before how busy it was."""
    use = summary.resources.get(stall.resource)
    if use:
        busy = f", {_share(use.utilization, 1.0)} busy"
        return _shortened(stall.label, room - len(busy)) + busy
    slow = next((known.first_rank for known in summary.classes if known.name == stall.resource), None)
    if slow is not None:
        return f"rank {slow} arrives last"
    return "" if stall.cause in OWN_CAUSES else clip(stall.label, room)


def _shortened(label: str, room: int) -> str:
    """What it is, and where: `NIC 10 Gb/s Ethernet, one per node (node 1)` without what stands between."""
    if cell_width(label) > room:
        what, _, more = label.partition(",")
        place = more[more.rindex(" (") :] if more.endswith(")") else ""
        label = what + place
    return clip(label, room)


def _findings(summary: Summary, width: int, pen: Pen, room: int) -> Iterator[str]:
    """Severity first, errors before warnings before notes, each with its remedy; errors whatever the room is."""
    order = list(SEVERITY_COLOURS)
    known = sorted(_gathered(summary.findings), key=lambda finding: order.index(finding.severity))
    if known:
        yield from _heading("findings", pen)
    for index, finding in enumerate(known):
        lines = _finding(finding, width, pen)
        room -= len(lines)
        if room < 0 and finding.severity != "error":
            yield f"{INDENT}and {len(known) - index} more, which --json shows"
            return
        yield from lines


def _gathered(findings: Sequence[Finding]) -> list[Finding]:
    """Keys without effect in one line; why, each, is in the JSON."""
    keys = [f.message.partition(UNCHANGED)[0] for f in findings if f.code == "key-no-effect" and UNCHANGED in f.message]
    if len(keys) < 2:
        return list(findings)
    others = [f for f in findings if f.code != "key-no-effect" or UNCHANGED not in f.message]
    message = f"{len(keys)} keys change nothing in a step (why: --json): {', '.join(keys)}."
    return [*others, Finding("key-no-effect", "note", message)]


def _finding(finding: Finding, width: int, pen: Pen) -> list[str]:
    label = f"{INDENT}{finding.severity:<8} "
    first, *others = _wrapped(f"{finding.message} {finding.remedy}".strip(), width, " " * len(label)) or [label]
    return [pen(label, SEVERITY_COLOURS[finding.severity]) + first[len(label) :], *others]


def _assumptions(summary: Summary, width: int, pen: Pen, room: int) -> Iterator[str]:
    """As many as the screen has room for; the others are counted."""
    known = list(dict.fromkeys(summary.assumptions))
    if not known:
        return
    yield from _heading("assumed", pen)
    left = room - 3  # the heading, the blank above it, and the count of those that are not shown
    for index, assumption in enumerate(known):
        lines = _wrapped(assumption, width, INDENT, hang=INDENT)
        if index and len(lines) > left:
            yield f"{INDENT}and {len(known) - index} more, which --json shows"
            return
        yield from lines if len(lines) <= left else [clip(INDENT + assumption, width)]
        left -= len(lines)


# --- words -----------------------------------------------------------------------------------------------------------


def _heading(title: str, pen: Pen) -> tuple[str, str]:
    return "", pen(title, "bold")


def _wrapped(content: str, width: int, indent: str, hang: str = "") -> list[str]:
    lines = textwrap.wrap(
        content,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(NO_BREAK, " ") for line in lines]


def _unbroken(words: str) -> str:
    """Words that stay on one line."""
    return words.replace(" ", NO_BREAK)


def _size(size: float) -> str:
    return _unbroken(show_size(size))


def _share(part: float, whole: float) -> str:
    """A share with one decimal, so that a column of them can be compared; `-` of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
