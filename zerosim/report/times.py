"""A section of the screen: where the time of a step went, played or measured, and its phases.

Rule: a phase that is not known is not shown; a part of hardly any time only where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report import sentences
from zerosim.report.bars import Part, Pen, bar
from zerosim.report.parts import time_parts
from zerosim.report.tables import Column, clip, table
from zerosim.report.waits import HARDLY
from zerosim.report.words import INDENT, heading, share, unbroken, wrapped
from zerosim.units import show_seconds
from zerosim.views.recorded import Answer


def where_time_goes(summary: Answer, width: int, pen: Pen, roomy: bool = True) -> Iterator[str]:
    """The bar, its parts, what is hidden of the communication; `roomy`: phases, and parts of hardly any time."""
    step = summary.step_seconds
    parts = [part for part in time_parts(summary) if roomy or part.amount >= HARDLY * step]
    yield from heading("where the time goes", pen)
    yield INDENT + bar(parts, step, width - 2 * len(INDENT), pen, rest=".")
    remarks = {"X": sentences.hidden(summary)}
    rows = [(p.letter, p.word, show_seconds(p.amount), share(p.amount, step), remarks.get(p.letter, "")) for p in parts]
    columns = (Column(""), Column(""), Column("", "right"), Column("", "right"), Column(""))
    lines = table(columns, rows, INDENT).split("\n")[1:]
    yield from (_lettered(clip(line, width), part, pen) for line, part in zip(lines, parts, strict=True))
    if not roomy or summary.phases is None:
        return
    phases = (unbroken(f"{name} {show_seconds(each)} ({share(each, step)})") for name, each in summary.phases.items())
    yield from wrapped("phases: " + ", ".join(phases), width, INDENT, hang=" " * len("phases: "))


def _lettered(line: str, part: Part, pen: Pen) -> str:
    """The line with its first letter painted."""
    return INDENT + pen(part.letter, part.colour) + line[len(INDENT) + 1 :]
