"""Works that begin at the same moment, each on a stream of its own, played by the engine on a priced machine."""

from __future__ import annotations

from typing import NamedTuple

from zerosim.costs import Priced, price
from zerosim.engine import play
from zerosim.resources import Demand
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Topology
from zerosim.step import Collective, CollectiveKind, Group, Op, Step, Work, communicator

GB = 1e9


class Played(NamedTuple):
    """A work: when it ended, and its latency and flow alone, in seconds."""

    end: float
    latency: float
    flow: float

    @property
    def alone(self) -> float:
        return self.latency + self.flow


def collective(kind: CollectiveKind, size: float, group: str = "dp") -> Collective:
    return Collective(kind, int(size), "uint8", group)


def priced(
    topology: Topology, *works: Work, size: int | None = None, stride: int = 1, launch: Launch | None = None
) -> Priced:
    """Every work on its own stream, or its own communicator (`dp0`, `dp1`, ...)."""
    ops, groups = [], {}
    for number, work in enumerate(works):
        stream = f"stream{number}"
        if isinstance(work, Collective):
            name = f"{work.group}{number}"
            groups[name] = Group(name, size or len(topology.gpus), stride)
            work, stream = work._replace(group=name), communicator(name)
        ops.append(Op(number, f"op{number}", stream, work))
    return price([Step(tuple(ops), (), frozenset(), groups, 1)], topology, launch or Launch())


def uses(topology: Topology, work: Work, size: int | None = None, stride: int = 1) -> dict[str, float]:
    """Bytes by resource, of the first class."""
    found = priced(topology, work, size=size, stride=stride)
    return {use.resource: use.amount for use in found.demands[found.classes[0].name][0].uses}


def at_once(topology: Topology, *works: Work, size: int | None = None, stride: int = 1) -> list[Played]:
    """The works of the first class, in order."""
    found = priced(topology, *works, size=size, stride=stride)
    ops = tuple(Op(n, f"op{n}", f"stream{n}", work) for n, work in enumerate(works))
    step = Step(ops, (), frozenset(), {}, 1)
    timeline = play([step], found.classes, found.demands, found.supply)
    name = found.classes[0].name
    return [
        Played(span.end, demand.latency, _flow(demand, found))
        for span, demand in zip(timeline.spans[name], found.demands[name], strict=True)
    ]


def _flow(demand: Demand, found: Priced) -> float:
    return demand._replace(latency=0.0).alone(found.supply)
