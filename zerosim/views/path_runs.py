"""The critical path in few words: runs of links of one phase, micro-batch and class, each with what it consists of.

The runs are in order of time and sum to the step; the parts of a run sum to it. While the step hung on the host, that
is cut by the ops that it issued in this time, each of a phase of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from zerosim.step import Op, Phase
from zerosim.timeline import Call, Timeline
from zerosim.views.attribution import served
from zerosim.views.critical_path import Link, critical_path
from zerosim.views.flows import party
from zerosim.views.stalls import HOST, IDLE, NO_RESOURCE


@dataclass(frozen=True, slots=True)
class Part:
    """Links of a run that are of one kind of `op` (or the `host`) and were limited by one resource."""

    op: str
    resource: str
    label: str
    seconds: float
    ops: int


@dataclass(frozen=True, slots=True)
class Run:
    """From `start` to `end` the step hung on ops of one phase, micro-batch and class."""

    phase: Phase
    micro_batch: int
    rank_class: str
    layers: tuple[int, ...]
    start: float
    end: float
    parts: tuple[Part, ...]


def path_runs(timeline: Timeline, links: Sequence[Link] | None = None) -> tuple[Run, ...]:
    """In order of time. `links`: the critical path, if it is at hand."""
    programs = {each.name: timeline.program(each).ops for each in timeline.classes}
    layers = {each.name: served(programs[each.name]) for each in timeline.classes}
    found = []
    links = critical_path(timeline) if links is None else links
    pieces = (piece for link in links for piece in _issues(timeline, link))
    for (phase, micro_batch, name), group in groupby(pieces, key=lambda piece: _place(piece, programs)):
        run = list(group)
        passed = {layers[name][link.op] for link in run}
        found.append(
            Run(
                phase=phase,
                micro_batch=micro_batch,
                rank_class=name,
                layers=tuple(sorted(layer for layer in passed if layer is not None)),
                start=run[0].start,
                end=run[-1].end,
                parts=tuple(_parts(timeline, run, programs[name])),
            )
        )
    return tuple(found)


def _issues(timeline: Timeline, link: Link) -> Iterator[Link]:
    """A link of the host, cut into one for each op that it issued; any other as it is."""
    if link.why != "host":
        yield link
        return
    spans = timeline.spans[link.rank_class]
    first = link.op
    while first and spans[first - 1].issued > link.start:
        first -= 1
    start = link.start
    for number in range(first, link.op + 1):
        end = link.end if number == link.op else spans[number].issued
        if end > start:
            yield link._replace(op=number, start=start, end=end)
            start = end


def _place(link: Link, programs: Mapping[str, Sequence[Op]]) -> tuple[Phase, int, str]:
    op = programs[link.rank_class][link.op]
    return op.phase, op.micro_batch, link.rank_class


def _parts(timeline: Timeline, run: Sequence[Link], ops: Sequence[Op]) -> Iterator[Part]:
    """The largest first."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    calls: defaultdict[tuple[str, str], set[Call]] = defaultdict(set)
    labels: dict[tuple[str, str], str] = {}
    for link in run:
        key = HOST, HOST
        if link.why == "wait":
            key = IDLE, NO_RESOURCE
        elif link.why == "work":
            key = party(ops[link.op]), timeline.spans[link.rank_class][link.op].bottleneck
        labels[key] = timeline.limit(ops[link.op], key[1]).label
        seconds[key] += link.end - link.start
        calls[key].add(Call(link.rank_class, link.op))
    for op, resource in sorted(seconds, key=lambda key: (-seconds[key], key)):
        yield Part(op, resource, labels[op, resource], seconds[op, resource], len(calls[op, resource]))
