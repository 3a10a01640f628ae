"""The step at many values of one knob, others as they are: the data of a curve.

What is turned is a rate of the machine ("node.nics.bandwidth"), a knob that `tune` knows ("reduce_bucket_size";
"micro_batch_size" at the same batch), or any path that `--set` takes ("nodes"): see `turned`. Rule: every point is
played; between points nothing is known but by `Curve.crossing`, which says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, facts
from zerosim.spec.document import shown
from zerosim.studies.rung_names import rung_name
from zerosim.studies.tuning.knob import Value
from zerosim.studies.turned import Turned, Unit, is_number, turned
from zerosim.units import UnitError
from zerosim.views import Breakdown, breakdown, memory
from zerosim.views.memory import unfit

RATES = ("B/s", "FLOP/s")


class Peak(NamedTuple):
    """What a tier holds at most, and what it can hold, bytes: `gpu` of one GPU, others of a node."""

    bytes: float
    capacity: float


class Point(NamedTuple):
    """The step at one value: seconds, where they went, the most that each tier holds, and whether that fits."""

    value: Value
    seconds: float
    breakdown: Breakdown
    tokens_per_second: float
    memory: Mapping[str, Peak]
    fits: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """Points by value, ascending where values are numbers. Rates are bytes/s, of a `network` too; `today` is the value
    of the scenario, None where nobody says it. `free_seconds`: the step where the resource takes no time of it, None of
    what is no resource. `notes`: why the point of today may differ from the scenario as it is.
    """

    label: str
    scenario: str
    path: str
    unit: Unit
    network: bool
    today: Value
    free_seconds: float | None
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether values are numbers, which have a place on an axis."""
        return all(is_number(point.value) for point in self.points)

    @property
    def best(self) -> Point | None:
        """Of the points that fit the one of most tokens a second: of equal batches, that of the shortest step."""
        return max((p for p in self.points if p.fits), key=lambda point: point.tokens_per_second, default=None)

    def slowdown(self, point: Point) -> float | None:
        """How much longer the step is than with a free resource: 0.1 is 10 %. None where what is turned is none, or
        where without it nothing is left of the step."""
        return point.seconds / self.free_seconds - 1 if self.free_seconds else None

    def crossing(self, seconds: float) -> float | None:
        """About the least rate from which on no step takes longer; None where the highest one is not enough, and where
        values are no rates.

        Between two points that were played a step is taken to be a + b / rate, as one is that waits for the resource.
        """
        enough = len(self.points)
        while enough and self.points[enough - 1].seconds <= seconds:
            enough -= 1
        if enough == len(self.points) or self.unit not in RATES:
            return None
        above = self.points[enough]
        if not enough:
            return float(above.value or 0.0)
        below = self.points[enough - 1]
        share = (below.seconds - seconds) / (below.seconds - above.seconds)
        few, many = 1 / float(below.value or 0.0), 1 / float(above.value or 0.0)
        return 1 / (few + share * (many - few))


def curve(scenario: Scenario, path: str, values: Sequence[Value] | None = None, label: str = "") -> Curve:
    """The step at each value; without `values` at those that are sold (of a rate) or that `tune` tries (of a knob).

    `label` is what the curve is called; the strategy's name where none is given. InputError with every wrong value.
    """
    knob = turned(scenario, path)
    asked = _ordered(list(dict.fromkeys(knob.values if values is None else _read(scenario, knob, values))))
    if not asked:
        raise InputError([Problem(scenario.source, path, "no values", "the values of the curve, such as [1, 2, 4]")])
    return Curve(
        label=label or rung_name(scenario.strategy),
        scenario=scenario.title,
        path=path,
        unit=knob.unit,
        network=knob.network,
        today=knob.today,
        free_seconds=knob.free(),
        points=tuple(_points(knob, asked)),
        notes=knob.notes,
    )


def curves(
    scenarios: Sequence[Scenario] | Mapping[str, Scenario], path: str, values: Sequence[Value] | None = None
) -> tuple[Curve, ...]:
    """A curve for each scenario; the keys of a mapping are their labels. Equal labels become the scenarios' titles."""
    if isinstance(scenarios, Mapping):
        return tuple(curve(scenario, path, values, label) for label, scenario in scenarios.items())
    names = [rung_name(scenario.strategy) for scenario in scenarios]
    labels = names if len(set(names)) == len(names) else [scenario.title for scenario in scenarios]
    return tuple(curve(scenario, path, values, label) for scenario, label in zip(scenarios, labels, strict=True))


def _read(scenario: Scenario, knob: Turned, values: Sequence[Value]) -> list[Value]:
    """The values that are asked for; InputError with all that cannot be read."""
    read, wrong = list[Value](), []
    for value in values:
        try:
            read.append(knob.read(value))
        except (UnitError, ValueError) as error:
            expected = error.expected if isinstance(error, UnitError) else "a number"
            wrong.append(Problem(scenario.source, "values", shown(value), expected))
    if wrong:
        raise InputError(wrong)
    return read


def _ordered(values: list[Value]) -> list[Value]:
    numbers = [value for value in values if is_number(value)]
    return sorted(numbers, key=lambda value: float(value or 0)) if len(numbers) == len(values) else values


def _points(knob: Turned, values: Sequence[Value]) -> Iterator[Point]:
    """Every scenario is made before the first is played, so that all that is wrong is told at once."""
    scenarios, wrong = list[Scenario](), list[Problem]()
    for value in values:
        try:
            scenarios.append(knob.at(value))
        except InputError as error:
            wrong += error.problems
    if wrong:
        raise InputError(dict.fromkeys(wrong))
    for value, scenario in zip(values, scenarios, strict=True):
        yield _point(value, knob.play(scenario))


def _point(value: Value, played: Simulation) -> Point:
    known = facts(played.scenario)
    tiers = memory(played, known.ranks_per_node)
    return Point(
        value=value,
        seconds=played.makespan,
        breakdown=breakdown(played),
        tokens_per_second=known.tokens / played.makespan,
        memory={name: Peak(tier.peak, tier.capacity) for name, tier in tiers.items()},
        fits=not unfit(tiers),
    )
