"""Small programs for the engine's tests: ops beside the demands that price them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zerosim.engine import play
from zerosim.resources import Demand, RankClass, Supply, Use
from zerosim.step import Collective, Op, Step, Work
from zerosim.timeline import Span, Timeline

GATHER = Collective("all_gather", 1, "bf16", "dp")


def supply(**rates: float) -> Supply:
    """A machine of these rates; two underscores in a name stand for a dot."""
    return Supply({name.replace("__", "."): rate for name, rate in rates.items()}, {}, {}, {}, {})


def takes(latency: float = 0.0, host: float = 0.0, **amounts: float) -> Demand:
    """A demand for these amounts of resources."""
    uses = tuple(Use(name.replace("__", "."), amount) for name, amount in amounts.items())
    return Demand(latency, uses, (), host)


class Program:
    """Writes ops in issue order; each returns its number."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.demands: list[Demand] = []

    def add(
        self,
        stream: str,
        demand: Demand,
        after: Sequence[int] = (),
        waits: Sequence[int] = (),
        work: Work | None = None,
    ) -> int:
        number = len(self.ops)
        self.ops.append(Op(number, f"{stream}-{number}", stream, work, tuple(after), tuple(waits)))
        self.demands.append(demand)
        return number

    def step(self) -> Step:
        return Step(tuple(self.ops), (), frozenset(), {}, 1)

    def play(self, machine: Supply, others: Mapping[str, Sequence[Demand]] | None = None) -> Timeline:
        """Play class `a` with the written demands, and the `others` with theirs."""
        demands = {"a": self.demands, **(others or {})}
        classes = [RankClass(name, (rank,)) for rank, name in enumerate(demands)]
        return play([self.step()], classes, demands, machine)

    def spans(self, machine: Supply) -> Sequence[Span]:
        return self.play(machine).spans["a"]
