"""The timelines of a page in so many bytes as there is room for.

Rule: each has an equal part of the room. Who needs more draws fewer kinds of ranks, the slowest always, for they
explain the step; where even that is too much, the longest timelines go. What is left out is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from zerosim.report.comparison import letter, title
from zerosim.report.figure import MOST, figure
from zerosim.report.page.markup import embedded
from zerosim.report.page.shown import Shown
from zerosim.report.words import counted

Figure = dict[str, Any]
SLACK = 0.95  # what is not an op takes room too


class Fitted(NamedTuple):
    """What is drawn, and a sentence about each thing that is not."""

    figures: tuple[Figure, ...]
    left_out: tuple[str, ...] = ()


def fitted(answers: Sequence[Shown], room: int) -> Fitted:
    """The figures of the answers in at most `room` bytes."""
    names = [_name(answers, index) for index in range(len(answers))]
    figures = dict(enumerate(_figure(each, name, MOST) for each, name in zip(answers, names, strict=True)))
    if _size(figures) > room:
        figures = {
            index: _smaller(answers[index], names[index], known, room // len(answers))
            for index, known in figures.items()
        }
    lost = []
    while figures and _size(figures) > room:
        largest = max(figures, key=lambda index: len(embedded(figures[index])))
        del figures[largest]
        ops = counted(len(answers[largest].timeline.step.ops), "op")
        name = names[largest] or "The step"
        lost.append(f"{name} is not drawn: there is no room here for its {ops}. `zerosim run --trace FILE` has all.")
    told = [f"{known['title']}: {known['untold']}." for known in figures.values() if known["untold"]]
    return Fitted(tuple(figures.values()), (*lost, *told))


def _smaller(answer: Shown, name: str, known: Figure, room: int) -> Figure:
    """With as many ops as come near the room, if it has more kinds of ranks than one."""
    size = len(embedded([known]))
    if size <= room or len(known["classes"]) == 1:
        return known
    ops = sum(part["ops"] for part in known["classes"])
    return _figure(answer, name, int(SLACK * ops * max(room, 0) / size))


def _figure(answer: Shown, name: str, most: int) -> Figure:
    return figure(answer.timeline, name, ranks_per_node=answer.ranks_per_node, most=most)


def _name(answers: Sequence[Shown], index: int) -> str:
    """The letter and the title of an answer, where there are several."""
    return "" if len(answers) == 1 else f"{letter(index)}  {title(answers[index].summary)}"


def _size(figures: dict[int, Figure]) -> int:
    return len(embedded(list(figures.values())))
