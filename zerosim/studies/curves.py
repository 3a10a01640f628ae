"""The step at many values of one knob, others as they are: the data of a curve.

What is turned is a rate of the machine ("node.nics.bandwidth"), a knob that `tune` knows
("reduce_bucket_size", "micro_batch_size" at the same batch), or any path that `--set` takes ("nodes"). Rule: every
point is played; between points nothing is known but by `Curve.crossing`, which says so. Programs do not depend on
rates: at these they are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from zerosim.errors import InputError, Problem, nearest
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import Simulation, facts, programs, simulate
from zerosim.spec.changes import Change
from zerosim.spec.document import Document, shown
from zerosim.spec.loading import inline
from zerosim.studies.require import uncalibrated
from zerosim.studies.requirement import free
from zerosim.studies.resource import ROOT, Resource
from zerosim.studies.rung_names import rung_name
from zerosim.studies.tuning.knob import Knob, Value
from zerosim.studies.tuning.knobs import Knobs
from zerosim.studies.tuning.places import Places
from zerosim.units import UnitError, parse_count
from zerosim.views import Breakdown, breakdown, memory
from zerosim.views.memory import unfit

Unit = Literal["B/s", "FLOP/s", "ratio", "elements", "MiB", "tokens", ""]
MACHINE = (ROOT, "node", "fabric", "overrides", "devices", "links")  # with these a path into a topology begins
UNITS: Mapping[str, Unit] = {  # of numbers, by how their names end
    "bucket_size": "elements",
    "live_parameters": "elements",
    "reuse_distance": "elements",
    "persistence_threshold": "elements",
    "sub_group_size": "elements",
    "bucket_cap_mb": "MiB",
    "sequence_length": "tokens",
}


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
    of the scenario, None where nobody says it. `free_seconds`: the step where the resource takes no time of it.
    """

    label: str
    scenario: str
    path: str
    unit: Unit
    network: bool
    today: Value
    free_seconds: float | None
    points: tuple[Point, ...]

    @property
    def numeric(self) -> bool:
        """Whether values are numbers, which have a place on an axis."""
        return all(_is_number(point.value) for point in self.points)

    @property
    def best(self) -> Point | None:
        """Of the points that fit the one of most tokens a second: of equal batches, that of the shortest step."""
        return max((p for p in self.points if p.fits), key=lambda point: point.tokens_per_second, default=None)

    def slowdown(self, point: Point) -> float:
        """How much longer the step is than with a free resource: 0.1 is 10 %."""
        return point.seconds / (self.free_seconds or point.seconds) - 1

    def crossing(self, seconds: float) -> float | None:
        """About the least rate from which on no step takes longer; None where the highest one is not enough.

        Between two points that were played a step is taken to be a + b / rate, as one is that waits for the resource.
        """
        enough = len(self.points)
        while enough and self.points[enough - 1].seconds <= seconds:
            enough -= 1
        if enough == len(self.points) or not self.numeric:
            return None
        above = self.points[enough]
        if not enough:
            return float(above.value or 0.0)
        below = self.points[enough - 1]
        share = (below.seconds - seconds) / (below.seconds - above.seconds)
        few, many = 1 / float(below.value or 0.0), 1 / float(above.value or 0.0)
        return 1 / (few + share * (many - few))


def curve(scenario: Scenario, path: str, values: Sequence[Value] = (), label: str = "") -> Curve:
    """The step at each value; without `values` at those that are sold (of a rate) or that `tune` tries (of a knob).

    `label` is what the curve is called; the strategy's name where none is given. InputError with every wrong value.
    """
    knob = _rate(scenario, path) or _tuned(scenario, path) or _set(scenario, path)
    asked = _ordered(list(dict.fromkeys(_read(scenario, knob, values) or knob.values)))
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
    )


def curves(
    scenarios: Sequence[Scenario] | Mapping[str, Scenario], path: str, values: Sequence[Value] = ()
) -> tuple[Curve, ...]:
    """A curve for each scenario; the keys of a mapping are their labels. Equal labels become the scenarios' titles."""
    if isinstance(scenarios, Mapping):
        return tuple(curve(scenario, path, values, label) for label, scenario in scenarios.items())
    names = [rung_name(scenario.strategy) for scenario in scenarios]
    labels = names if len(set(names)) == len(names) else [scenario.title for scenario in scenarios]
    return tuple(curve(scenario, path, values, label) for scenario, label in zip(scenarios, labels, strict=True))


# --- what can be turned ----------------------------------------------------------------------------------------------


class _Turned(NamedTuple):
    """A knob: the scenario at a value, how it is played, and the values where none are asked for."""

    unit: Unit
    network: bool
    today: Value
    values: tuple[Value, ...]
    read: Callable[[object], Value]
    at: Callable[[Value], Scenario]
    play: Callable[[Scenario], Simulation]
    free: Callable[[], float | None]


def _rate(scenario: Scenario, path: str) -> _Turned | None:
    """A rate of the machine; None where the path is no rate."""
    if path.split(".")[0] not in MACHINE:
        return None
    scenario, _ = uncalibrated(scenario)
    try:
        resource = Resource.of(scenario, path)
    except InputError:
        if path.startswith(f"{ROOT}."):
            return None
        raise
    kind, steps, today = resource.kind, programs(scenario), resource.today
    turned, play = kind.scale.turned, partial(simulate, steps=steps)
    most, why = resource.most()
    grid = {*kind.grid(today, resource.floor(), most), *([today] if today else [])}

    def freed() -> float:
        return free(resource, play(resource.at(most)), why).makespan

    return _Turned(
        unit=kind.unit,
        network=kind.network,
        today=None if today is None else turned(today),
        values=tuple(map(turned, grid)),
        read=kind.scale.read,
        at=lambda value: resource.at(turned(float(value or 0.0))),
        play=play,
        free=freed,
    )


def _tuned(scenario: Scenario, name: str) -> _Turned | None:
    """A knob of `tune` by its name; None where it has none of that name. InputError where it would do nothing."""
    knobs = Knobs.of(scenario, Places.of(_written(scenario), Path(scenario.source).parent, ()))
    knob = next((each for each in knobs.all if each.name == name), None)
    if knob is None:
        idle = [each for each in knobs.left_out if each.name == name]
        if idle:
            expected = f"one of {', '.join(each.name for each in knobs.all)}; of this one {idle[0].reason}"
            raise InputError([Problem(scenario.source, "", f'the knob "{name}"', expected)])
        return None
    return _Turned(
        unit=_unit(name),
        network=False,
        today=knob.baseline,
        values=knob.values,
        read=_count if all(map(_is_number, knob.values)) else _as_it_is,
        at=partial(_at_knob, scenario, knob),
        play=simulate,
        free=lambda: None,
    )


def _set(scenario: Scenario, path: str) -> _Turned:
    """Any path of the scenario."""
    parts = tuple(path.split("."))
    if len(parts) == 1 and path not in scenario.text and path not in ("nodes", "gpus", "launch", "calibration"):
        knobs = Knobs.of(scenario, Places.of(_written(scenario), Path(scenario.source).parent, ()))
        known = [each.name for each in knobs.all]
        expected = f"a path such as nodes or training.sequence_length, or one of the knobs {', '.join(known)}"
        raise InputError([Problem(scenario.source, "", f'the knob "{path}"', expected, nearest(path, known))])
    return _Turned(
        unit=_unit(path),
        network=False,
        today=_today(scenario, parts),
        values=(),
        read=_as_it_is,
        at=lambda value: _changed(scenario, (Change(f"{path}={value}", parts, value),)),
        play=simulate,
        free=lambda: None,
    )


def _written(scenario: Scenario) -> Document:
    return inline(dict(scenario.text), scenario.source)


def _changed(scenario: Scenario, changes: Sequence[Change]) -> Scenario:
    return from_mapping(scenario.text, Path(scenario.source).parent, changes)


def _at_knob(scenario: Scenario, knob: Knob, value: Value) -> Scenario:
    return _changed(scenario, knob.changes(value))


def _unit(name: str) -> Unit:
    return next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")


def _today(scenario: Scenario, path: Sequence[str]) -> Value:
    """What the scenario's text says there."""
    found: object = scenario.text
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, str | int | float | bool) else None


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(given: object) -> Value:
    """Elements: a number, or text such as "500m"."""
    count = parse_count(given)
    return int(count) if count == int(count) else count


def _as_it_is(given: object) -> Value:
    return given if isinstance(given, str | int | float | bool) else None


# --- points ----------------------------------------------------------------------------------------------------------


def _read(scenario: Scenario, knob: _Turned, values: Sequence[Value]) -> list[Value]:
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
    numbers = [value for value in values if _is_number(value)]
    return sorted(numbers, key=lambda value: float(value or 0)) if len(numbers) == len(values) else values


def _points(knob: _Turned, values: Sequence[Value]) -> Iterator[Point]:
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
