"""The ops of one class of ranks in fewer rows than it has: neighbours in one lane are joined to one box (`coarse`).

A row of several says in `count` how many, in `busy` for how long they worked, and is called "37 ops"; their kinds are
in its `detail`. One that stayed alone tells all that it would. What the host did is no longer told op by op, nor every
layer: `hosted` has its boxes ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerosim.report.figure.coarse import Boxes, Joined, Seconds, Whole, joined
from zerosim.report.figure.columns import moments, whole
from zerosim.report.figure.kinds import KINDS, NUMBERS
from zerosim.report.figure.spans import awaited, causes, columns, is_drawn, lanes, rows
from zerosim.report.figure.words import Told, Words, named
from zerosim.report.lanes import TITLES
from zerosim.report.palette import ink_of
from zerosim.resources import RankClass
from zerosim.step import HostCompute, Op, Step
from zerosim.timeline import Span, Timeline

ASIDE = 8  # a part of the rows: what may be spent beside the lanes on each of the other rows of the drawing


def few(timeline: Timeline, rank_class: RankClass, words: Words, most: int) -> dict[str, Any]:
    """As `spans.table` has it, in at most so many rows, where that can be."""
    step, spans = timeline.program(rank_class), timeline.spans[rank_class.name]
    titles = lanes(step, spans)
    numbers = np.array([op.number for op, span in zip(step.ops, spans, strict=True) if is_drawn(op, span)], dtype=int)
    groups = _in_issue_order(joined(_boxes(step, spans, numbers, titles), most), numbers)
    first, alone = [int(number) for number in numbers[groups.order[groups.first]]], groups.counts == 1
    names = [named(step.ops[number].name) for number in first]
    told = list(rows(timeline, rank_class, first, names, words))
    several = _several(step, groups, numbers, titles, words)
    waited = np.array([spans[number].start - spans[number].ready for number in first])
    return {
        "lanes": [words.text(title) for title in titles],
        **columns(timeline, rank_class, first),
        "end": moments(groups.end, timeline.makespan),
        "waited": moments(np.where(alone, waited, 0.0), timeline.makespan),
        "row": whole(np.where(alone, told, several)),
        "number": whole(np.where(alone, [each.number for each in names], groups.counts + 1)),
        "cause": whole(_causes(step, spans, groups, numbers)),
        "op": whole(first),
        "count": whole(groups.counts),
        "busy": moments(np.where(alone, 0.0, groups.busy), timeline.makespan),
        "hosted": _hosted(timeline, rank_class, most // ASIDE),
        "of": len(step.ops),
    }


def _boxes(step: Step, spans: Sequence[Span], numbers: Whole, titles: Sequence[str]) -> Boxes:
    """The boxes of the lanes."""
    place = {title: number for number, title in enumerate(titles)}
    found = [(step.ops[number], spans[number]) for number in numbers]
    start, end = _column(span.start for _, span in found), _column(span.end for _, span in found)
    waited = start - _column(span.ready for _, span in found)
    return Boxes(
        np.array([place[TITLES.get(op.stream, op.stream)] for op, _ in found], dtype=np.int64),
        np.array([NUMBERS[ink_of(op.work)] for op, _ in found if op.work is not None], dtype=np.int64),
        start, end, np.maximum(end - start, waited),
    )  # fmt: skip


def _column(seconds: Any) -> Seconds:
    return np.fromiter(seconds, dtype=np.float64)


def _in_issue_order(groups: Joined, numbers: Whole) -> Joined:
    """The groups by their first ops, so that a cause lies before what it made ready."""
    ranked = np.argsort(numbers[groups.order[groups.first]], kind="stable")
    counts = groups.counts[ranked]
    first = np.append(0, np.cumsum(counts)[:-1]) if len(counts) else counts
    begins = np.repeat(groups.first[ranked] - first, counts)
    order = groups.order[begins + np.arange(len(groups.order))]
    return Joined(
        order, first, groups.kind[ranked], groups.kinds[ranked], groups.start[ranked], groups.end[ranked],
        groups.busy[ranked],
    )  # fmt: skip


def _several(step: Step, groups: Joined, numbers: Whole, titles: Sequence[str], words: Words) -> list[int]:
    """The row of each group: of its kinds, and of its phase where there is one."""
    phases = list(dict.fromkeys(op.phase for op in step.ops))
    place = {phase: number for number, phase in enumerate(phases)}
    phase = np.array([place[step.ops[number].phase] for number in numbers], dtype=np.int64)[groups.order]
    least, most = (reduce.reduceat(phase, groups.first) if len(phase) else phase for reduce in (np.minimum, np.maximum))
    stream = {title: words.text(title) for title in titles}
    lane = [
        TITLES.get(step.ops[number].stream, step.ops[number].stream) for number in numbers[groups.order[groups.first]]
    ]
    met: dict[object, int] = {}
    found = []
    for key in zip(lane, groups.kind, groups.kinds, np.where(least == most, least, -1), strict=True):
        if key not in met:
            title, kind, kinds, one = key
            met[key] = words.row(_row(words, stream[title], int(kind), int(kinds), phases[one] if one >= 0 else ""))
        found.append(met[key])
    return found


def _row(words: Words, lane: int, kind: int, kinds: int, phase: str) -> Told:
    held = ", ".join(ink.word for name, ink in KINDS.items() if kinds >> NUMBERS[name] & 1)
    nothing = words.text("")
    return Told(
        nothing, words.text(" ops"), kind, lane, words.text(phase), 0.0, "", nothing, 0.0, 0.0, 0.0, words.text(held), 0
    )


def _causes(step: Step, spans: Sequence[Span], groups: Joined, numbers: Whole) -> Whole:
    """How many rows back lies the one with the op that made this one ready; of several, none is told."""
    place = np.full(len(step.ops), -1)
    place[numbers] = groups.group_of()
    cause = np.fromiter(causes(step, spans), dtype=np.int64)[numbers[groups.order[groups.first]]]
    here, there = np.arange(len(groups.first)), place[cause]
    return np.where((groups.counts == 1) & (there >= 0), here - there, 0)


# --- beside the lanes ------------------------------------------------------------------------------------------------


def _hosted(timeline: Timeline, rank_class: RankClass, most: int) -> dict[str, Any]:
    """What the thread that issues did, as figure.js tells it of single ops: it issues, waits, or computes."""
    step, spans = timeline.program(rank_class), timeline.spans[rank_class.name]
    issued = _column(span.issued for span in spans)
    free = np.append(0.0, np.maximum.accumulate(issued)[:-1]) if len(issued) else issued
    begun = np.maximum(issued - _column(demand.host for demand in timeline.demands[rank_class.name]), free)
    parts = [(begun, issued, "issue")]
    waits = [pair for pair in awaited(step, spans) if begun[pair[0]] > free[pair[0]]]
    if waits:
        before, last = np.array(waits, dtype=np.int64).T
        computes = np.array([_computes(step.ops[number]) for number in last])
        begins = np.clip(_column(spans[number].start for number in last), free[before], begun[before])
        until = np.where(computes, begins, begun[before])
        parts += [(free[before], until, "hold"), (until, begun[before], "host")]
    return thinned_bands({name: (start, end) for start, end, name in parts}, most, timeline.makespan)


def _computes(op: Op) -> bool:
    return isinstance(op.work, HostCompute)


def thinned_bands(named_bands: Mapping[str, tuple[Seconds, Seconds]], most: int, step: float) -> dict[str, Any]:
    """Bands that never overlap, by the name of their kind, as columns in the order of time."""
    kind = np.concatenate([np.full(len(start), NUMBERS[name]) for name, (start, _) in named_bands.items()])
    start, end = (np.concatenate([pair[side] for pair in named_bands.values()]) for side in (0, 1))
    some = np.flatnonzero(end > start)
    kind, start, end = kind[some], start[some], end[some]
    found = joined(Boxes(np.zeros(len(some), dtype=np.int64), kind, start, end, end - start), most)
    busy = {"busy": moments(np.where(found.counts == 1, 0.0, found.busy), step)} if len(found.first) < len(some) else {}
    return {
        "count": len(found.first),
        "start": moments(found.start, step),
        "end": moments(found.end, step),
        "kind": whole(found.kind),
        "ops": whole(found.counts),
        **busy,
    }
