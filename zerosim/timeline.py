"""The result: when each op ran, with everything needed to explain it. Views are pure functions of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple, Self

from zerosim.resources import Called, Demand, RankClass, Supply, WayOf
from zerosim.step import Collective, Op, Step, Transfer


class Span(NamedTuple):
    """One op of one rank class. Seconds from the start of the step.

    `issued`: the host issued it; `ready`: everything it waits for in its own rank was done; `start`: it began (for a
    collective: all ranks had arrived); `end`. `bottleneck`: the resource that limited it longest, `latency` if none.
    """

    op: int
    rank_class: str
    issued: float
    ready: float
    start: float
    end: float
    bottleneck: str


_END = attrgetter("end")


def _last(spans: Sequence[Span]) -> float:
    """When the last of them ends."""
    return max(map(_END, spans), default=0.0)


class Call(NamedTuple):
    """An op of a class: how that class takes part in a collective."""

    rank_class: str
    op: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One played step. `spans[c][i]` is op i of class c's program; `demands[c][i]` is what it needed.

    `steps` are the programs: one where all ranks do the same, as usual; one a stage in a pipeline.
    """

    steps: tuple[Step, ...]
    classes: tuple[RankClass, ...]
    spans: Mapping[str, Sequence[Span]]
    demands: Mapping[str, Sequence[Demand]]
    supply: Supply
    events: int = 0  # simulation events processed, the measure of the engine's work

    @classmethod
    def of(cls, timeline: Timeline, **more: Any) -> Self:
        """The same step, with what a timeline of this kind knows besides: `more`."""
        return cls(**{each.name: getattr(timeline, each.name) for each in fields(Timeline)}, **more)

    @property
    def makespan(self) -> float:
        """Seconds from the start of the step to the end of its last op, over all classes."""
        return max(map(_last, self.spans.values()), default=0.0)

    @property
    def slowest(self) -> RankClass:
        """The class that ends last: the one whose spans explain the step."""
        if len(self.classes) == 1:
            return self.classes[0]
        return max(self.classes, key=lambda each: _last(self.spans[each.name]))

    @property
    def step(self) -> Step:
        """The program of the class that ends last."""
        return self.steps[0] if len(self.steps) == 1 else self.program(self.slowest)

    def program(self, rank_class: RankClass | str) -> Step:
        """What the ranks of a class ran; the class itself or its name."""
        if isinstance(rank_class, str):
            rank_class = next(each for each in self.classes if each.name == rank_class)
        return self.steps[rank_class.program]

    def limit(self, op: Op, bottleneck: str) -> Called:
        """What a person calls the resource that limited an op, with its rate in the way that the op used it."""
        return self.supply.called(bottleneck, way_of(op))

    def collectives(self) -> dict[Call, tuple[Call, ...]]:
        """Who took part in each collective, in the order of the classes.

        NCCL pairs calls by their order on a communicator: the i-th of one rank with the i-th of the others. Classes
        that need the same for it are in one group; a group of the same name elsewhere is another.
        """
        needs: dict[object, int] = {}
        known: dict[int, int] = {}  # by identity, which is quicker than by value
        met: dict[tuple[str, int, int], list[Call]] = {}
        for rank_class in self.classes:
            demands = self.demands[rank_class.name]
            for op, place in ordinals(self.program(rank_class).ops):
                demand = demands[op.number]
                if id(demand) not in known:
                    known[id(demand)] = needs.setdefault((demand.latency, demand.uses, demand.holds), len(needs))
                key = op.stream, place, known[id(demand)]
                met.setdefault(key, []).append(Call(rank_class.name, op.number))
        return {call: together for together in map(tuple, met.values()) for call in together}


def way_of(op: Op) -> WayOf:
    """How it uses drives, which read and write at two rates."""
    if not isinstance(op.work, Transfer):
        return ""
    return "write" if op.work.target == "nvme" else "read" if op.work.source == "nvme" else ""


def ordinals(ops: Sequence[Op]) -> Iterator[tuple[Op, int]]:
    """The collectives of a program, each with its place among those of its stream."""
    places: dict[str, int] = {}
    for op in ops:
        if isinstance(op.work, Collective):
            places[op.stream] = place = places.get(op.stream, -1) + 1
            yield op, place
