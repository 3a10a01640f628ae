"""The ops of a timeline as flows on resources, in columns: what each needs, when it moved, what it took of a resource.

A flow begins after the latency of its op and is taken to be even until its end; a hold is there from start to end. The
ops of one kind on one stream of a class are a lane: they never overlap, so what a lane took of a resource between two
moments is a difference of its running sum. This module knows no rates over time; only the engine does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zerosim.resources import Demand, RankClass, Supply
from zerosim.step import Attention, Collective, HostCompute, Matmul, Op, Pass, Transfer
from zerosim.timeline import Call, Timeline

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_KERNELS: Mapping[type, str] = {Matmul: "matmul", Attention: "attention", Pass: "memory_bound"}
READING, WRITING = "nvme_read", "nvme_write"
_COPIES: Mapping[tuple[str, str], str] = {
    ("dram", "gpu"): "copy_to_gpu",
    ("gpu", "dram"): "copy_from_gpu",
    ("nvme", "dram"): READING,
    ("nvme", "gpu"): READING,
    ("dram", "nvme"): WRITING,
    ("gpu", "nvme"): WRITING,
}


def party(op: Op) -> str:
    """The kind of an op that shares: its collective, which way it copies, what the GPU or the CPU does."""
    known = _KERNELS.get(type(op.work))
    if known is not None:
        return known
    match op.work:
        case Collective():
            return op.work.kind
        case Transfer():
            return _COPIES.get((op.work.source, op.work.target), "copy")
        case HostCompute():
            return f"cpu_{op.work.kind.removeprefix('torch_')}"
    return "marker"


class Need(NamedTuple):
    """A demand in seconds: of each resource, how long it takes as it is, and how long with one rank's amounts."""

    number: int
    latency: float
    seconds: Mapping[str, float]
    shares: Mapping[str, float]  # held
    ranks: Mapping[str, float]  # whose amounts are in the use
    together: float
    alone: float
    limit: str  # the resource that limits it as it is; empty where it uses none


class Needs:
    """The needs of demands, each found once, and columns of them in the order of their numbers."""

    def __init__(self, supply: Supply) -> None:
        self.known: list[Need] = []
        self._rates = supply.rates
        self._numbers: dict[int, int] = {}  # by identity: the timeline keeps the demands alive

    def number(self, demand: Demand) -> int:
        """The place in `known` of what a demand needs."""
        found = self._numbers.get(id(demand))
        if found is None:
            found = self._numbers[id(demand)] = len(self.known)
            self.known.append(self._measured(demand, found))
        return found

    def _measured(self, demand: Demand, number: int) -> Need:
        seconds: defaultdict[str, float] = defaultdict(float)
        own: defaultdict[str, float] = defaultdict(float)
        for use in demand.uses:
            time = use.amount / (self._rates[use.resource] * use.efficiency)
            seconds[use.resource] += time
            own[use.resource] += time / use.ranks
        return Need(
            number=number,
            latency=demand.latency,
            seconds=seconds,
            shares={hold.resource: hold.share for hold in demand.holds},
            ranks={use.resource: use.ranks for use in demand.uses},
            together=demand.latency + max(seconds.values(), default=0.0),
            alone=demand.latency + max(own.values(), default=0.0),
            limit=max(seconds, key=seconds.__getitem__, default=""),
        )

    def column(self, of: Callable[[Need], float]) -> Floats:
        """A number of each need."""
        return np.array([of(need) for need in self.known])

    def table(self, resource: str) -> Table:
        """What each needs of a resource."""
        seconds, shares = (
            self.column(lambda need: need.seconds.get(resource, 0.0)),
            self.column(lambda need: need.shares.get(resource, 0.0)),
        )
        return Table(seconds, shares)


class Table(NamedTuple):
    """A resource: the seconds of it that each need takes, and the share that each holds."""

    seconds: Floats
    shares: Floats


class Lane(NamedTuple):
    """Ops of one kind on one stream of a class, in order; `needs` by number."""

    rank_class: str
    stream: str
    party: str
    collective: bool
    ops: Places
    needs: Places
    starts: Floats
    begins: Floats  # of the flows
    ends: Floats

    def uses(self, table: Table) -> bool:
        """Whether any of these ops uses or holds the table's resource."""
        return bool(table.seconds[self.needs].any() or table.shares[self.needs].any())

    def took(self, table: Table, begins: Floats, ends: Floats) -> Floats:
        """Seconds of the table's resource that these ops used or held in each of the intervals."""
        part = _within(self.begins, self.ends, table.seconds[self.needs], begins, ends)
        held = table.shares[self.needs] * (self.ends - self.starts)
        return part + _within(self.starts, self.ends, held, begins, ends) if held.any() else part


def _within(starts: Floats, stops: Floats, amounts: Floats, begins: Floats, ends: Floats) -> Floats:
    """Of amounts spread evenly from start to stop, the part that falls between begin and end."""
    sums = np.cumsum(amounts)
    edges = np.maximum.accumulate(np.column_stack((starts, stops)).ravel())
    levels = np.column_stack((sums - amounts, sums)).ravel()
    part: Floats = np.interp(ends, edges, levels) - np.interp(begins, edges, levels)
    return part


def lanes(timeline: Timeline, needs: Needs) -> list[Lane]:
    """All flows. A collective of several classes is one flow: that of the slowest class, or else of the first."""
    slowest = timeline.slowest.name
    together = timeline.collectives() if len(timeline.classes) > 1 else {}
    elsewhere = {
        call
        for calls in dict.fromkeys(together.values())
        for call in sorted(calls, key=lambda call: call.rank_class != slowest)[1:]
    }
    return [lane for rank_class in timeline.classes for lane in _lanes(timeline, rank_class, needs, elsewhere)]


def _lanes(timeline: Timeline, rank_class: RankClass, needs: Needs, elsewhere: Container[Call]) -> Iterator[Lane]:
    name = rank_class.name
    demands, spans = timeline.demands[name], timeline.spans[name]
    numbers = np.array([needs.number(demand) for demand in demands], dtype=np.int64)
    starts = np.array([span.start for span in spans])
    ends = np.array([span.end for span in spans])
    begins = np.minimum(starts + needs.column(lambda need: need.latency)[numbers], ends)
    members: defaultdict[tuple[str, str, bool], list[int]] = defaultdict(list)
    for op, demand in zip(timeline.program(rank_class).ops, demands, strict=True):
        if (demand.uses or demand.holds) and (name, op.number) not in elsewhere:
            members[op.stream, party(op), isinstance(op.work, Collective)].append(op.number)
    for key, found in members.items():
        ops = np.array(found, dtype=np.int64)
        yield Lane(name, *key, ops, numbers[ops], starts[ops], begins[ops], ends[ops])
