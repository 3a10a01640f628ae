"""The timelines of a page in so many bytes as there is room for.

Rule: what is small stays whole; of the others each has an equal part of the room that is left, and is drawn coarser
until it fits, its neighbouring ops joined, at last with fewer kinds of ranks, the slowest always. Only where there is
no room for even that are the largest left out, the baseline last. What was changed is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zerosim.report.comparison import letter, title
from zerosim.report.figure import MOST, allotted, figure
from zerosim.report.page.markup import embedded
from zerosim.report.page.shown import Shown
from zerosim.report.words import counted
from zerosim.views.memory import TierMemory, memory

Figure = dict[str, Any]
SLACK = 0.95  # what is not an op takes room too
FEWEST = 200  # boxes: fewer are no picture
TRIES = 6
ALL = "`zerosim run --trace FILE` has all"


class Fitted(NamedTuple):
    """What is drawn, and a sentence about each thing that is not."""

    figures: tuple[Figure, ...]
    left_out: tuple[str, ...] = ()


class _Given(NamedTuple):
    """What a figure is made of."""

    answer: Shown
    name: str
    tiers: Mapping[str, TierMemory] | None


def fitted(answers: Sequence[Shown], room: int) -> Fitted:
    """The figures of the answers in at most `room` bytes."""
    names = [_name(answers, index) for index in range(len(answers))]
    given = [_Given(each, name, _tiers(each)) for each, name in zip(answers, names, strict=True)]
    figures = [_figure(each, MOST) for each in given]
    sizes = [_size([known]) for known in figures]
    if sum(sizes) > room:
        share = allotted(sizes, max(room, 1))
        figures = [_smaller(each, known, share) for each, known in zip(given, figures, strict=True)]
    drawn, lost = dict(enumerate(figures)), []
    while drawn and _size(list(drawn.values())) > room:
        largest = max(drawn, key=lambda index: (index > 0, _size([drawn[index]])))
        del drawn[largest]
        ops = counted(len(answers[largest].timeline.step.ops), "op")
        lost.append(f"{names[largest] or 'The step'} is not drawn: there is no room here for its {ops}. {ALL}.")
    return Fitted(tuple(drawn.values()), (*lost, *(told for known in drawn.values() for told in _told(known))))


def _told(known: Figure) -> Iterator[str]:
    """What a figure does not show."""
    coarse = [part for part in known["classes"] if "of" in part]
    if coarse:
        most = max(coarse, key=lambda part: int(part["of"]))
        yield (
            f"{known['title']}: {counted(most['of'], 'op')} are drawn as {most['ops']} boxes, neighbours of a lane "
            f"joined. {ALL}."
        )
    if known["untold"]:
        yield f"{known['title']}: {known['untold']}."


def _smaller(given: _Given, known: Figure, room: int) -> Figure:
    """With as many boxes as come near the room."""
    size, boxes = _size([known]), _boxes(known)
    most = boxes
    for _ in range(TRIES):
        if size <= room or most <= FEWEST:
            break
        most = max(min(int(SLACK * boxes * room / size), most - 1), FEWEST)
        known = _figure(given, most)
        size, boxes = _size([known]), _boxes(known)
    return known


def _boxes(known: Figure) -> int:
    return sum(part["ops"] for part in known["classes"])


def _figure(given: _Given, most: int) -> Figure:
    answer = given.answer
    return figure(answer.timeline, given.name, tiers=given.tiers, ranks_per_node=answer.ranks_per_node, most=most)


def _tiers(answer: Shown) -> Mapping[str, TierMemory] | None:
    """The view of its memory, which costs as much as the rest of a figure: once for all tries."""
    known = any(step.buffers for step in answer.timeline.steps)
    return memory(answer.timeline, answer.ranks_per_node) if known else None


def _name(answers: Sequence[Shown], index: int) -> str:
    """The letter and the title of an answer, where there are several."""
    return "" if len(answers) == 1 else f"{letter(index)}  {title(answers[index].summary)}"


def _size(figures: Sequence[Figure]) -> int:
    return len(embedded(figures))
