"""The least rate of a resource at which a step is at most so much longer than another: a search over simulations.

The resource is any path of a scenario that holds a rate (`topology.node.nics.bandwidth`). That a faster resource never
makes a longer step is not quite true (in-order streams on shared links have anomalies), so a rate is only ever called
enough after it was played. The answer is within `FINE` of the largest rate that was found to be too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, programs, simulate
from zerosim.spec.changes import Change, changed
from zerosim.spec.document import Document
from zerosim.spec.loading import inline
from zerosim.spec.scenario_notebook import read_part
from zerosim.spec.scenario_parts import Part, Parts
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology
from zerosim.studies.reason import waiting
from zerosim.units import parse_rate

FREE = 1e15  # bytes/s: a petabyte a second carries what a step moves in no time
SLOWEST = 1e6  # bytes/s, the least rate that a topology may have
CLOSE = 1.0001  # of the highest rate that a machine may have
FINE = 1.03  # between a rate that is enough and one that is not; a choice
STRIDE = 8.0  # from a rate that is enough to the next one below it that is tried
FIRST = 12.5e9  # bytes/s, tried first where the scenario names no rate: 100 Gb/s, in the middle of what is sold


class Played(NamedTuple):
    """The step at a rate."""

    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Requirement:
    """`required` is None where no rate is enough; `seconds` is the step there, or the step with a free resource.

    `today` is the scenario's own rate (None where it names none), `limited_by` what the step waits for where no rate is
    enough, and `curve` what was played, by rate.
    """

    resource: str
    today: float | None
    required: float | None
    slowdown: float
    baseline_seconds: float
    seconds: float
    limited_by: str
    curve: tuple[Played, ...]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "curve": [list(point) for point in self.curve]}


def least_rate(scenario: Scenario, path: str, slowdown: float, baseline_seconds: float) -> Requirement:
    """The least rate at `path` at which the step takes at most `1 + slowdown` times `baseline_seconds`."""
    resource, target = _Resource.of(scenario, path), baseline_seconds * (1 + slowdown)
    played: dict[float, Simulation] = {}
    steps = programs(scenario)  # the same at any rate

    def step(rate: float) -> Played:
        played[rate] = simulate(resource.at(rate), steps)
        return Played(rate, played[rate].makespan)

    most, why = resource.most()
    free = step(most)
    required = _search(step, target, free, resource.today or FIRST).rate if free.seconds <= target else None
    best = played[most if required is None else required]
    return Requirement(
        resource=path,
        today=resource.today,
        required=required,
        slowdown=slowdown,
        baseline_seconds=baseline_seconds,
        seconds=best.makespan,
        limited_by="" if required is not None else "; ".join(filter(None, (waiting(best.summary()), why))),
        curve=tuple(Played(rate, played[rate].makespan) for rate in sorted(played)),
    )


def _search(step: Callable[[float], Played], target: float, enough: Played, first: float) -> Played:
    """The least rate known to be enough, from one that is."""
    few: Played | None = None
    before, rate = math.inf, first if first * FINE < enough.rate else enough.rate / STRIDE
    while True:
        played = step(rate)
        if played.seconds > target:
            few = played
        else:
            enough = played
        if enough.rate <= (SLOWEST if few is None else FINE * few.rate):
            return enough
        rate, before = _next(few, enough, target, before)


def _next(few: Played | None, enough: Played, target: float, before: float) -> tuple[float, float]:
    """The rate to try next, and the width of what is left between, by which the next call sees whether that shrinks.

    A step that waits for the resource takes a + b / rate: below the answer that is nearly so, above it flat. So a line
    in 1 / rate is tried, and the middle (of the logarithms) where the last line did not halve what is left.
    """
    if few is None:
        return max(SLOWEST, enough.rate / STRIDE), before
    if enough.rate > STRIDE**2 * few.rate:  # where all of the step waits, it is as many times shorter as this is faster
        return few.rate * min(max(few.seconds / target, 2.0), STRIDE**2), before
    width = math.log(enough.rate / few.rate)
    middle = math.sqrt(few.rate * enough.rate)
    if width > before / 2:
        return middle, width
    share = (few.seconds - target) / (few.seconds - enough.seconds)
    line = 1 / (1 / few.rate + share * (1 / enough.rate - 1 / few.rate))
    least, most = few.rate * math.sqrt(FINE), enough.rate / math.sqrt(FINE)
    return min(max(line, least), most), width


class _Resource(NamedTuple):
    """A rate in the topology of a scenario, as a path from the root of the topology."""

    scenario: Scenario
    document: Document
    path: tuple[str, ...]

    @classmethod
    def of(cls, scenario: Scenario, path: str) -> _Resource:
        head, *rest = path.split(".")
        if head != "topology" or not rest:
            raise InputError([Problem(scenario.source, path, f'"{path}"', "a path that begins with topology.")])
        base = Path(scenario.source).parent
        document = Parts.of(inline(dict(scenario.text), scenario.source), base, ()).topology().document
        return cls(scenario, document, tuple(rest))

    @property
    def today(self) -> float | None:
        """The rate that is given; None where none is."""
        value: Any = self.document.data
        for part in self.path:
            if isinstance(value, list):
                value = value[int(part)] if part.isdecimal() and int(part) < len(value) else None
            else:
                value = value.get(part) if isinstance(value, Mapping) else None
        return None if value is None else parse_rate(value)

    def at(self, rate: float) -> Scenario:
        """The scenario at another rate."""
        scenario = self.scenario
        return scenario.replace(topology=self._machine(rate), nodes=scenario.nodes, gpus=scenario.gpus)

    def most(self) -> tuple[float, str]:
        """The highest rate that the machine can have, and why not more."""
        why = self._refused(FREE)
        if not why:
            return FREE, ""
        few, many = self.today or FIRST, FREE
        self._machine(few)  # what is wrong at any rate is told
        while many > CLOSE * few:
            middle = math.sqrt(few * many)
            if self._refused(middle):
                many = middle
            else:
                few = middle
        return few, why

    def _refused(self, rate: float) -> str:
        try:
            self._machine(rate)
        except InputError as error:
            return error.problems[0].expected
        return ""

    def _machine(self, rate: float) -> Topology:
        change = Change(f"{'.'.join(('topology', *self.path))}={rate:g}", self.path, rate)
        return read_part(Part(*changed(self.document, [change])), read_topology)
