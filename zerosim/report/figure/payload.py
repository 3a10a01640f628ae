"""A timeline as the JSON that the drawing reads: classes of ranks, their ops, what is above and below the lanes.

Rules: works for any timeline, one without host times or memory too; says the same bytes for the same timeline; names
are data, never markup. Where there is too much to draw, the classes with the most ops are drawn coarser (`few`), all to
the same number of boxes; where that would be too few for each, the slowest classes come first and others are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zerosim.report import bands, lanes
from zerosim.report.bands import Band
from zerosim.report.figure.coarse import Boxes, joined
from zerosim.report.figure.columns import moments, whole
from zerosim.report.figure.curves import SLICES, tracks
from zerosim.report.figure.few import ASIDE, few, thinned_bands
from zerosim.report.figure.kinds import NUMBERS, kinds
from zerosim.report.figure.late import late
from zerosim.report.figure.spans import table
from zerosim.report.figure.words import Words
from zerosim.report.lanes import Scale
from zerosim.resources import RankClass
from zerosim.timeline import Timeline
from zerosim.views.holders import slowest_of_each
from zerosim.views.memory import TierMemory, memory

MOST = 40_000  # boxes in a figure, about 1.3 MB
LEAST = 3_000  # boxes of a class that is drawn: about one a pixel of the screen and lane
Tiers = Mapping[str, TierMemory]


def figure(
    timeline: Timeline, title: str = "", *, tiers: Tiers | None = None, ranks_per_node: int = 1, most: int = MOST
) -> dict[str, Any]:
    """Everything that is drawn. `tiers`: the view of its memory, with as many ranks a node, where it is known already;
    `most`: boxes in its lanes, at most; the slowest class is there whatever it has."""
    words, seconds = Words(), timeline.makespan
    shown = list(_shown(timeline, most))
    held = _memory(timeline, shown, tiers, ranks_per_node)
    rows = allotted([len(timeline.program(each).ops) for each in shown], most)
    classes = [_class(timeline, each, words, held, rows) for each in shown]
    slices = min(SLICES, max(most // ASIDE, LEAST // ASIDE))
    return {
        "title": title or "One training step",
        "seconds": seconds,
        "kinds": kinds(),
        "classes": classes,
        "late": late(timeline, shown, lambda each: _label(timeline, each)),
        "untold": _untold(timeline, shown),
        "stages": [_stage(lane) for lane in _stages(timeline)],
        "memory": [tracks(timeline, each, ranks_per_node, slices) for each in held.values()],
        "texts": list(words.texts),
        "rows": [list(row) for row in words.rows],
    }


# --- classes of ranks ------------------------------------------------------------------------------------------------


def _shown(timeline: Timeline, most: int) -> Iterator[RankClass]:
    """The slowest first, then of each program its slowest, then the others, as long as there is room for each."""
    first = [timeline.slowest, *slowest_of_each(timeline)]
    later = sorted(timeline.classes, key=lambda each: -_ends(timeline, each))
    room = most
    for rank_class in {each.name: each for each in [*first, *later]}.values():
        room -= min(len(timeline.program(rank_class).ops), LEAST)
        if room >= 0 or rank_class.name == timeline.slowest.name:
            yield rank_class


def allotted(wanted: Sequence[int], room: int) -> int:
    """What each may have at most, so that all together have no more than `room`; who wants less leaves it to others."""
    left, sharers = room, len(wanted)
    for want in sorted(wanted):
        if want * sharers > left:
            return max(left // sharers, 1)
        left, sharers = left - want, sharers - 1
    return max(wanted, default=1)


def _ends(timeline: Timeline, rank_class: RankClass) -> float:
    return max((span.end for span in timeline.spans[rank_class.name]), default=0.0)


def _untold(timeline: Timeline, shown: Sequence[RankClass]) -> str:
    """What was left out for want of room."""
    left = [each for each in timeline.classes if each not in shown]
    if not left:
        return ""
    ranks = sum(len(each.ranks) for each in left)
    return f"{len(left)} more kinds of ranks ({ranks} ranks) are not drawn: the slowest are"


def _class(
    timeline: Timeline, rank_class: RankClass, words: Words, held: Mapping[int, Tiers], most: int
) -> dict[str, Any]:
    places = list(held)
    coarse = len(timeline.program(rank_class).ops) > most
    return {
        "name": rank_class.name,
        "label": _label(timeline, rank_class),
        "ends": _ends(timeline, rank_class),
        **(few(timeline, rank_class, words, most) if coarse else table(timeline, rank_class, words)),
        "host": any(demand.host > 0 for demand in timeline.demands[rank_class.name]),
        "memory": places.index(rank_class.program) if rank_class.program in held else -1,
        "phases": [[band.label, band.start, band.end] for band in bands.phases(timeline, rank_class)],
        "layers": _layers(bands.layers(timeline, rank_class), timeline.makespan, max(most // ASIDE, LEAST)),
        "exposed": _exposed(timeline, rank_class, max(most // ASIDE, LEAST)),
    }


def _label(timeline: Timeline, rank_class: RankClass) -> str:
    stage = f"stage {rank_class.program}: " if len(timeline.steps) > 1 else ""
    alike = len(rank_class.ranks) - 1
    return f"{stage}rank {rank_class.ranks[0]}" + (f" and {alike} like it" if alike else "")


def _layers(found: Sequence[Band], step: float, most: int) -> dict[str, Any]:
    """Bands with their layers, `layer` to `last` where neighbours are joined."""
    start, end = np.array([band.start for band in found]), np.array([band.end for band in found])
    layer = np.array([int(band.label.removeprefix("layer ")) for band in found], dtype=np.int64)
    none = np.zeros(len(found), dtype=np.int64)
    groups = joined(Boxes(none, none, start, end, end - start), most)
    return {
        "count": len(groups.first),
        "layer": whole(layer[groups.order[groups.first]]),
        "last": whole(layer[groups.order[groups.first + groups.counts - 1]]),
        "start": moments(groups.start, step),
        "end": moments(groups.end, step),
    }


def _exposed(timeline: Timeline, rank_class: RankClass, most: int) -> dict[str, Any]:
    """All that is bare, in the order of time. `sums`: kind, count and seconds however it is drawn; of waits all, for
    hidden ones are drawn in the lanes."""
    found = bands.exposed(timeline, rank_class)
    pairs = {"exposed": found.communication, "copying": found.transfers, "computing": found.host, "wait": found.waits}
    edges = {name: np.array(each).reshape(-1, 2).T for name, each in pairs.items()}
    waited = [(span.ready, span.start) for span in timeline.spans[rank_class.name] if span.start > span.ready]
    counted = {**pairs, "wait": waited}
    sums = [[NUMBERS[name], len(each), sum(end - start for start, end in each)] for name, each in counted.items()]
    drawn = thinned_bands({name: (start, end) for name, (start, end) in edges.items()}, most, timeline.makespan)
    return {**drawn, "sums": sums}


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
