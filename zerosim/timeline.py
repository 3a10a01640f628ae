"""The result: when each op ran, with everything needed to explain it. Views are pure functions of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zerosim.resources import Demand, RankClass, Supply
from zerosim.step import Step


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


@dataclass(frozen=True, slots=True)
class Timeline:
    """One played step. `spans[c][i]` is op i of class c; `demands[c][i]` is what it needed."""

    step: Step
    classes: tuple[RankClass, ...]
    spans: Mapping[str, Sequence[Span]]
    demands: Mapping[str, Sequence[Demand]]
    supply: Supply
    events: int = 0  # simulation events processed, the measure of the engine's work

    @property
    def makespan(self) -> float:
        """Seconds from the start of the step to the end of its last op, over all classes."""
        return max((span.end for spans in self.spans.values() for span in spans), default=0.0)

    @property
    def slowest(self) -> RankClass:
        """The class that ends last: the one whose spans explain the step."""
        return max(self.classes, key=lambda c: max((span.end for span in self.spans[c.name]), default=0.0))
