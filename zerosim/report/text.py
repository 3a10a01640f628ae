"""One training step on one terminal screen: how long, where the time went and why, what memory holds, what to know.

Rules: every number has its unit and at most four digits; a stall names the resource that caused it; letters carry what
colours repeat. The screen is a function of the Summary alone; it computes no new number but shares of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerosim.errors import Finding
from zerosim.report import waits
from zerosim.report.bars import Part, Pen, bar
from zerosim.report.comparison import render_comparison
from zerosim.report.parts import memory_parts, time_parts
from zerosim.report.tables import Column, clip, pad, table
from zerosim.report.waits import HARDLY
from zerosim.report.words import INDENT, counted, heading, share, size, unbroken, wrapped
from zerosim.units import show_count, show_flops, show_seconds, show_share, show_size
from zerosim.views.summary import Summary, TierUse

SCREEN = 45  # lines; findings and assumptions take what the rest leaves
SHOWN = ((3, 3), (2, 2), (2, 1), (3, 0), (2, 0), (1, 0))  # stalls and losses: the first that the screen has room for
STALLS = 5  # shown at most where there are no losses to show
ASSUMPTIONS = 4  # lines kept for them
UNCHANGED = " changes nothing in a step"  # how it is said that a key has no effect
TIER_NAME = 14  # cells of "dram per node"
MARGIN = " " * 7  # of what stands below a tier's name
SEVERITY_COLOURS = {"error": "red", "warning": "orange", "note": "cyan"}

__all__ = ["render", "render_comparison"]


def render(summary: Summary, width: int = 100, colour: bool = False) -> str:
    """The screen, ending in a line end."""
    shown = SHOWN if waits.losses(summary) else ((STALLS, 0), *SHOWN[-3:])
    screens = (_screen(summary, width, Pen(colour), *most) for most in shown)
    lines = next((each for each in screens if len(each) <= SCREEN), None)
    return "\n".join(lines or _screen(summary, width, Pen(colour), *shown[-1])) + "\n"


def _screen(summary: Summary, width: int, pen: Pen, stalls: int, losses: int) -> list[str]:
    fixed = [
        *_head(summary, width, pen),
        *_time(summary, width, pen),
        *_memory(summary, width, pen),
        *waits.stalls(summary, width, pen, stalls),
        *waits.contention(summary, width, pen, losses),
    ]
    found = list(_findings(summary, width, pen, SCREEN - len(fixed) - 2 - ASSUMPTIONS))
    assumed = list(_assumptions(summary, width, pen, SCREEN - len(fixed) - len(found)))
    return [*fixed, *found, *assumed]


# --- sections --------------------------------------------------------------------------------------------------------


def _head(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    machine = f"{counted(summary.world_size, 'GPU')} on {counted(summary.nodes, 'node')}, seed {summary.seed}"
    title = clip(summary.scenario, max(width - len(machine) - 2, 10))
    yield pen(pad(title, width - len(machine)), "bold") + machine
    rates = (
        f"step {show_seconds(summary.step_seconds)}",
        f"{show_count(summary.tokens_per_second)} tokens/s",
        f"{show_count(summary.tokens_per_second_per_gpu)} tokens/s/GPU",
        f"{show_flops(1e12 * summary.model_tflops_per_gpu)} per GPU",
        f"MFU {show_share(summary.mfu)}",
    )
    yield from wrapped("   ".join(map(unbroken, rates)), width, "")
    yield from _classes(summary, width)


def _classes(summary: Summary, width: int) -> Iterator[str]:
    """With unequal ranks: who waits for whom."""
    if not any(known.waited_seconds >= HARDLY * summary.step_seconds for known in summary.classes):
        return
    waits = (
        f"{counted(known.ranks, 'rank')} like rank {known.first_rank} {show_seconds(known.waited_seconds)}"
        for known in summary.classes
    )
    yield from wrapped(f"waited for other ranks: {'; '.join(map(unbroken, waits))}", width, "")


def _time(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    parts, step = time_parts(summary), summary.step_seconds
    yield from heading("where the time goes", pen)
    yield INDENT + bar(parts, step, width - 2 * len(INDENT), pen, rest=".")
    communication = summary.communication
    in_flight = f"{show_share(communication.overlap)} of {show_seconds(communication.total_seconds)} hidden"
    remarks = {"X": in_flight if communication.total_seconds else ""}
    rows = [(p.letter, p.word, show_seconds(p.amount), share(p.amount, step), remarks.get(p.letter, "")) for p in parts]
    columns = (Column(""), Column(""), Column("", "right"), Column("", "right"), Column(""))
    lines = table(columns, rows, INDENT).split("\n")[1:]
    yield from (_lettered(clip(line, width), part, pen) for line, part in zip(lines, parts, strict=True))
    phases = (unbroken(f"{name} {show_seconds(each)} ({share(each, step)})") for name, each in summary.phases.items())
    yield from wrapped("phases: " + ", ".join(phases), width, INDENT, hang=" " * len("phases: "))


def _lettered(line: str, part: Part, pen: Pen) -> str:
    """The line with its first letter painted."""
    return INDENT + pen(part.letter, part.colour) + line[len(INDENT) + 1 :]


def _memory(summary: Summary, width: int, pen: Pen) -> Iterator[str]:
    """For each tier a bar against its capacity, the parts, and the moment."""
    yield from heading("memory at its peak", pen)
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
            unbroken(f"{part.letter} {part.word} {show_size(part.amount)}") for part in parts if part.amount
        )
        yield from wrapped(known, width, MARGIN)
        yield from wrapped(_moment(tier), width, MARGIN)


def _fill(tier: TierUse) -> str:
    filled = share(tier.peak_bytes, tier.capacity_bytes)
    return f"{show_size(tier.peak_bytes)} of {show_size(tier.capacity_bytes)}, {filled}"


def _moment(tier: TierUse) -> str:
    at = tier.peak_at
    moment = f"at {at.op} ({at.phase}), {show_seconds(at.seconds)} into the step" if at.op else "from the start"
    reserved = f", reserved {size(tier.reserved_bytes)}" if tier.reserved_bytes is not None else ""
    rounded = f", {size(tier.rounding_bytes)} of it rounding" if tier.rounding_bytes else ""
    missing = tier.peak_bytes - tier.capacity_bytes
    short = f"does not fit: {size(missing)} too much; " if missing > 0 else ""
    return f"{short}peak {moment}; allocated {size(tier.allocated_bytes)}{reserved}{rounded}"


def _findings(summary: Summary, width: int, pen: Pen, room: int) -> Iterator[str]:
    """Errors before warnings before notes, each with its remedy; errors whatever the room; of the first, its start."""
    order = list(SEVERITY_COLOURS)
    known = sorted(_gathered(summary.findings), key=lambda finding: order.index(finding.severity))
    if known:
        yield from heading("findings", pen)
    for index, finding in enumerate(known):
        lines = _finding(finding, width, pen)
        if index == 0 and len(lines) > room and finding.severity != "error":
            left = max(room - 1, 1)  # and the line that counts the others
            lines = [*lines[: left - 1], clip(f"{lines[left - 1]} …", width)] if left < len(lines) else lines
        room -= len(lines)
        if index and room < 0 and finding.severity != "error":
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
    first, *others = wrapped(f"{finding.message} {finding.remedy}".strip(), width, " " * len(label)) or [label]
    return [pen(label, SEVERITY_COLOURS[finding.severity]) + first[len(label) :], *others]


def _assumptions(summary: Summary, width: int, pen: Pen, room: int) -> Iterator[str]:
    """As many as the screen has room for; the others are counted."""
    known = list(dict.fromkeys(summary.assumptions))
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
