"""Where each second without compute went, along the chain of waits: to an op, a phase, layers and a resource.

A gap in the compute of the slowest class ends with a compute op. What that op hung on, and what that hung on, back to
the start of the gap, fills the gap without a hole: the last op that it waited for, the host that issued late, what the
host itself had waited for. So each second goes to its root. Where the chain leads to ranks that were still computing,
that is `wait_for_rank` (`wait_for_stage` where they run another program), with what limits *them*.

The rows sum to the step without its compute, as stalls do, and phase by phase to the same. They are cut otherwise: a
stall is named after whatever was in flight, collectives first, so that stalls of a cause sum to the parts of the
breakdown; here a copy that the GPU waited for is named even while a collective that nobody waited for was in flight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from zerosim.step import Collective, Op, Phase
from zerosim.timeline import Call, Timeline
from zerosim.views.activity import Activity, activity, kind_of
from zerosim.views.critical_path import Chains, Hold, Link
from zerosim.views.flows import party
from zerosim.views.intervals import difference
from zerosim.views.phases import Cut, cuts
from zerosim.views.stalls import HOST, IDLE, NO_RESOURCE, WAIT_FOR_RANK, WAIT_FOR_STAGE


@dataclass(frozen=True, slots=True)
class Attribution:
    """Seconds without compute of one cause and one kind of `op` in one phase, limited by one resource.

    `layers`: those whose compute came after. `rank_class`: whose op it was. `rate` is that of the resource (0 where it
    has none), `label` what a person calls it. `held` tells why these ops had not begun sooner, most of the time:
    behind `held_by`, a kind of op (see critical_path). `largest`: the op with most of it.
    """

    cause: str
    op: str
    phase: Phase
    layers: tuple[int, ...]
    resource: str
    label: str
    rate: float
    unit: str
    rank_class: str
    seconds: float
    ops: int
    largest: str
    held: Hold
    held_by: str


class _Key(NamedTuple):
    cause: str
    op: str
    phase: Phase
    resource: str
    rank_class: str


class _Piece(NamedTuple):
    """A part of a gap within one phase: what the GPU hung on; `layer` is the one that came after."""

    link: Link
    start: float
    end: float
    phase: Phase
    layer: int | None


@dataclass(slots=True)
class _Sum:
    """What is gathered of pieces of a kind."""

    seconds: float = 0.0
    layers: set[int] = field(default_factory=set)
    ops: defaultdict[Call, float] = field(default_factory=lambda: defaultdict(float))
    holds: defaultdict[tuple[Hold, str], float] = field(default_factory=lambda: defaultdict(float))


def attribution(timeline: Timeline, seen: Activity | None = None) -> tuple[Attribution, ...]:
    """Largest first; they sum to the step without its compute. `seen`: the activity, if it is at hand."""
    found: defaultdict[_Key, _Sum] = defaultdict(_Sum)
    programs = {each.name: timeline.program(each).ops for each in timeline.classes}
    slowest = timeline.slowest
    for piece in _pieces(timeline, slowest.name, seen or activity(timeline)):
        link, seconds = piece.link, piece.end - piece.start
        op = programs[link.rank_class][link.op]
        alike = programs[link.rank_class] is programs[slowest.name]
        part = found[_key(op, timeline.spans[link.rank_class][link.op].bottleneck, piece, alike)]
        part.seconds += seconds
        part.ops[Call(link.rank_class, link.op)] += seconds
        part.holds[link.held, _name(programs, link.blocker)] += seconds
        if piece.layer is not None:
            part.layers.add(piece.layer)
    rows = [_attributed(timeline, programs, key, part) for key, part in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.cause, row.phase, row.resource, row.rank_class)))


def _attributed(timeline: Timeline, programs: Mapping[str, Sequence[Op]], key: _Key, part: _Sum) -> Attribution:
    largest = max(part.ops, key=part.ops.__getitem__)
    op = programs[largest.rank_class][largest.op]
    label, rate = timeline.limit(op, key.resource)
    held, held_by = max(part.holds, key=part.holds.__getitem__)
    return Attribution(
        cause=key.cause,
        op=key.op,
        phase=key.phase,
        layers=tuple(sorted(part.layers)),
        resource=key.resource,
        label=label,
        rate=rate,
        unit=timeline.supply.units.get(key.resource, ""),
        rank_class=key.rank_class,
        seconds=part.seconds,
        ops=len(part.ops),
        largest=op.name,
        held=held,
        held_by=held_by,
    )


def _key(op: Op, bottleneck: str, piece: _Piece, alike: bool) -> _Key:
    """What the piece is counted under. `alike`: it is of ranks that run the program of the slowest class."""
    link, name = piece.link, piece.link.rank_class
    if link.why == "wait":
        return _Key(IDLE, IDLE, piece.phase, NO_RESOURCE, name)
    if link.why == "host":
        return _Key(HOST, HOST, piece.phase, HOST, name)
    cause: str = op.work.kind if isinstance(op.work, Collective) else kind_of(op)
    if cause == "compute":  # of other ranks: the slowest class computes nothing in a gap
        cause = WAIT_FOR_RANK if alike else WAIT_FOR_STAGE
    return _Key(cause, party(op), piece.phase, bottleneck, name)


def _pieces(timeline: Timeline, name: str, seen: Activity) -> Iterator[_Piece]:
    """Of the gaps of the class `name`."""
    chains, ops, spans = Chains(timeline), timeline.program(name).ops, timeline.spans[name]
    phases = cuts(timeline)
    ends = [cut.end for cut in phases]
    heads: dict[float, int] = {}
    for op, span in zip(ops, spans, strict=True):
        if kind_of(op) == "compute" and span.end > span.start:
            heads.setdefault(span.start, op.number)
    layers, last = served(ops), max(range(len(spans)), key=lambda number: (spans[number].end, number), default=0)
    for start, end in difference(seen.step, seen.compute).tolist():
        head = heads.get(end, last)  # the end of the step has no head: its last op is in the gap
        for link in islice(chains.back(Call(name, head)), 1 if end in heads else 0, None):
            if link.end <= start:
                break
            yield from _cut(link, max(link.start, start), min(link.end, end), layers[head], ends, phases)


def _cut(
    link: Link, start: float, end: float, layer: int | None, ends: Sequence[float], phases: Sequence[Cut]
) -> Iterator[_Piece]:
    """The part of a link from start to end, where the phase changes in pieces."""
    while start < end:
        place = bisect_right(ends, start)
        stop = min(end, ends[place])
        yield _Piece(link, start, stop, phases[place].phase, layer)
        start = stop


def served(ops: Sequence[Op]) -> list[int | None]:
    """The layer of each op: its own, or that of the next op of its phase and micro-batch that has one."""
    found: list[int | None] = []
    layer, place = None, None
    for op in reversed(ops):
        layer = op.layer if op.layer is not None else layer if (op.phase, op.micro_batch) == place else None
        place = op.phase, op.micro_batch
        found.append(layer)
    return found[::-1]


def _name(programs: Mapping[str, Sequence[Op]], call: Call | None) -> str:
    return "" if call is None else party(programs[call.rank_class][call.op])
