"""A timeline as the JSON that the drawing reads: classes of ranks, their ops, what is above and below the lanes.

Rules: works for any timeline, one without host times or memory too; says the same bytes for the same timeline; names
are data, never markup. Where there are many classes, the slowest come first and the others are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report import bands, lanes
from zerosim.report.bands import Band
from zerosim.report.figure.columns import moments, whole
from zerosim.report.figure.curves import tracks
from zerosim.report.figure.kinds import NUMBERS, kinds
from zerosim.report.figure.late import late
from zerosim.report.figure.spans import table
from zerosim.report.figure.words import Words
from zerosim.report.lanes import Scale
from zerosim.resources import RankClass
from zerosim.timeline import Timeline
from zerosim.views.holders import slowest_of_each
from zerosim.views.memory import TierMemory, memory

MOST = 40_000  # ops in a figure, about 1.3 MB; the slowest class is there whatever it has
Tiers = Mapping[str, TierMemory]


def figure(
    timeline: Timeline, title: str = "", *, tiers: Tiers | None = None, ranks_per_node: int = 1, most: int = MOST
) -> dict[str, Any]:
    """Everything that is drawn. `tiers`: the view of its memory, with as many ranks a node, where it is known already;
    `most`: ops in it, at most."""
    words, seconds = Words(), timeline.makespan
    shown = list(_shown(timeline, most))
    held = _memory(timeline, shown, tiers, ranks_per_node)
    classes = [_class(timeline, rank_class, words, held) for rank_class in shown]
    return {
        "title": title or "One training step",
        "seconds": seconds,
        "kinds": kinds(),
        "classes": classes,
        "late": late(timeline, shown, lambda each: _label(timeline, each)),
        "untold": _untold(timeline, shown),
        "stages": [_stage(lane) for lane in _stages(timeline)],
        "memory": [tracks(timeline, each, ranks_per_node) for each in held.values()],
        "texts": list(words.texts),
        "rows": [list(row) for row in words.rows],
    }


# --- classes of ranks ------------------------------------------------------------------------------------------------


def _shown(timeline: Timeline, most: int) -> Iterator[RankClass]:
    """The slowest first, then of each program its slowest, then the others, as long as there is room for their ops."""
    first = [timeline.slowest, *slowest_of_each(timeline)]
    later = sorted(timeline.classes, key=lambda each: -_ends(timeline, each))
    room = most
    for rank_class in {each.name: each for each in [*first, *later]}.values():
        room -= len(timeline.program(rank_class).ops)
        if room >= 0 or rank_class.name == timeline.slowest.name:
            yield rank_class


def _ends(timeline: Timeline, rank_class: RankClass) -> float:
    return max((span.end for span in timeline.spans[rank_class.name]), default=0.0)


def _untold(timeline: Timeline, shown: Sequence[RankClass]) -> str:
    """What was left out for want of room."""
    left = [each for each in timeline.classes if each not in shown]
    if not left:
        return ""
    ranks = sum(len(each.ranks) for each in left)
    return f"{len(left)} more kinds of ranks ({ranks} ranks) are not drawn: the slowest are"


def _class(timeline: Timeline, rank_class: RankClass, words: Words, held: Mapping[int, Tiers]) -> dict[str, Any]:
    places = list(held)
    return {
        "name": rank_class.name,
        "label": _label(timeline, rank_class),
        "ends": _ends(timeline, rank_class),
        **table(timeline, rank_class, words),
        "host": any(demand.host > 0 for demand in timeline.demands[rank_class.name]),
        "memory": places.index(rank_class.program) if rank_class.program in held else -1,
        "phases": [[band.label, band.start, band.end] for band in bands.phases(timeline, rank_class)],
        "layers": _layers(bands.layers(timeline, rank_class), timeline.makespan),
        "exposed": _exposed(timeline, rank_class),
    }


def _label(timeline: Timeline, rank_class: RankClass) -> str:
    stage = f"stage {rank_class.program}: " if len(timeline.steps) > 1 else ""
    alike = len(rank_class.ranks) - 1
    return f"{stage}rank {rank_class.ranks[0]}" + (f" and {alike} like it" if alike else "")


def _layers(found: Sequence[Band], step: float) -> dict[str, Any]:
    return {
        "count": len(found),
        "layer": whole([int(band.label.removeprefix("layer ")) for band in found]),
        "start": moments([band.start for band in found], step),
        "end": moments([band.end for band in found], step),
    }


def _exposed(timeline: Timeline, rank_class: RankClass) -> dict[str, Any]:
    """All that is bare, in the order of time; `sums` are the count and the seconds of each kind."""
    found = bands.exposed(timeline, rank_class)
    named = {"exposed": found.communication, "copying": found.transfers, "computing": found.host, "wait": found.waits}
    rows = sorted((start, end, NUMBERS[name]) for name, pairs in named.items() for start, end in pairs)
    return {
        "count": len(rows),
        "start": moments([start for start, _, _ in rows], timeline.makespan),
        "end": moments([end for _, end, _ in rows], timeline.makespan),
        "kind": whole([kind for _, _, kind in rows]),
        "sums": [
            [NUMBERS[name], len(pairs), sum(end - start for start, end in pairs)] for name, pairs in named.items()
        ],
    }


# --- all classes together --------------------------------------------------------------------------------------------


def _stages(timeline: Timeline) -> Iterator[lanes.Lane]:
    """Of a pipeline what each stage works on; pixels of these lanes are seconds."""
    if len(timeline.steps) > 1:
        yield from lanes.flights(timeline, timeline.slowest, Scale(0.0, 1.0), 1.0)


def _stage(lane: lanes.Lane) -> dict[str, Any]:
    marks = [[mark.label, NUMBERS[mark.ink], mark.x, mark.width] for mark in lane.marks]
    return {"title": lane.title, "marks": marks}


def _memory(
    timeline: Timeline, shown: Sequence[RankClass], tiers: Tiers | None, ranks_per_node: int
) -> dict[int, Tiers]:
    """By program: the GPU of its slowest class, and the host tiers of a node. Empty where no buffer is known."""
    if not any(step.buffers for step in timeline.steps):
        return {}
    whole_step = tiers if tiers is not None else memory(timeline, ranks_per_node)
    if len(timeline.steps) == 1:
        return {0: whole_step}
    programs = {each.program for each in shown}
    slowest = [each for each in slowest_of_each(timeline) if each.program in programs]
    return {each.program: {**whole_step, **_gpu(timeline, each)} for each in slowest}


def _gpu(timeline: Timeline, rank_class: RankClass) -> Tiers:
    return {tier: held for tier, held in memory(bands.seen_by(timeline, rank_class)).items() if tier == "gpu"}
