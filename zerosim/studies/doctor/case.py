"""One scenario, played, as the checks of the doctor look at it.

A check may look at what was played (stalls, waits, memory, the ops and their spans) and at the values that were played
with; never at the text of a file: what a key means for a step is only known when the step is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from zerosim.resources import Demand
from zerosim.scenario import Scenario
from zerosim.simulation import Simulation
from zerosim.spec.strategy import DeepSpeed, Zero
from zerosim.step import Collective, Op
from zerosim.timeline import Span
from zerosim.views import Summary

Again = Callable[[Sequence[str]], Scenario]  # the scenario with more changes of `--set`

GATHERS = frozenset({"all_gather", "broadcast"})
REDUCTIONS = frozenset({"all_reduce", "reduce_scatter", "reduce", "all_to_all"})


class Done(NamedTuple):
    """An op of the slowest class, when it ran, and what it needed."""

    op: Op
    span: Span
    demand: Demand


@dataclass(frozen=True)
class Case:
    """A played scenario, and how to read it again with changes."""

    simulation: Simulation
    again: Again

    @property
    def scenario(self) -> Scenario:
        return self.simulation.scenario

    @cached_property
    def summary(self) -> Summary:
        return self.simulation.summary()

    @property
    def seconds(self) -> float:
        return self.summary.step_seconds

    @property
    def zero(self) -> Zero | None:
        """The ZeRO settings in force; None where another strategy runs."""
        strategy = self.scenario.strategy
        return strategy.zero if isinstance(strategy, DeepSpeed) else None

    @property
    def stage(self) -> int | None:
        return None if self.zero is None else self.zero.stage

    def share(self, seconds: float) -> float:
        """Of the step."""
        return seconds / self.seconds if self.seconds else 0.0

    def waiting(self, causes: Collection[str], phases: Collection[str] = ("forward", "backward", "optimizer")) -> float:
        """Seconds without compute because of one of these causes."""
        return sum(each.seconds for each in self.summary.stalls if each.cause in causes and each.phase in phases)

    def limit(self, causes: Collection[str]) -> str:
        """What a person calls the resource that most of this waiting hangs on; "" where nothing waits."""
        seconds: dict[str, float] = {}
        for each in self.summary.stalls:
            if each.cause in causes:
                seconds[each.label] = seconds.get(each.label, 0.0) + each.seconds
        return max(seconds, key=seconds.__getitem__, default="")

    def collectives(self, kinds: Collection[str]) -> Iterator[Done]:
        """Collectives of more than a word, of these kinds, in issue order: flags and norms are left out."""
        name = self.simulation.slowest.name
        rows = zip(self.simulation.step.ops, self.simulation.spans[name], self.simulation.demands[name], strict=True)
        for op, span, demand in rows:
            if isinstance(op.work, Collective) and op.work.kind in kinds and op.work.elements > 1:
                yield Done(op, span, demand)
