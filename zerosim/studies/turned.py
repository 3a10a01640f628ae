"""What can be turned for a curve: a rate of the machine, a knob that `tune` knows, or any path that `--set` takes.

Rule: a name is looked for in this order, and what it cannot be is told with what there is. A rate stays what it is in
the topology, bytes/s; programs do not depend on rates, so that at these they are written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from zerosim.errors import InputError, Problem, nearest
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import Simulation, programs, simulate
from zerosim.spec.changes import Change
from zerosim.spec.loading import inline
from zerosim.spec.places import Places
from zerosim.studies.require import uncalibrated
from zerosim.studies.requirement import free
from zerosim.studies.resource import ROOT, Resource
from zerosim.studies.tuning.knob import Knob, Value
from zerosim.studies.tuning.knobs import Knobs
from zerosim.units import UnitError, parse_count

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


class Turned(NamedTuple):
    """A knob: the scenario `at` a value, how it is played, and the values where none are asked for. `free`: the seconds
    of the step where a resource takes no time of it, None of what is none. `notes`: what is left out for that."""

    unit: Unit
    network: bool
    today: Value
    values: tuple[Value, ...]
    read: Callable[[object], Value]
    at: Callable[[Value], Scenario]
    play: Callable[[Scenario], Simulation]
    free: Callable[[], float | None]
    notes: tuple[str, ...] = ()


def turned(scenario: Scenario, path: str) -> Turned:
    """What is called so; InputError where nothing is."""
    return _rate(scenario, path) or _tuned(scenario, path) or _set(scenario, path)


def _rate(scenario: Scenario, path: str) -> Turned | None:
    """A rate of the machine; None where the path is no rate. What was measured at the rates of today is left out, and
    told in the notes."""
    if path.split(".")[0] not in MACHINE:
        return None
    scenario, notes = uncalibrated(scenario)
    try:
        resource = Resource.of(scenario, path)
    except InputError:
        if path.startswith(f"{ROOT}."):
            return None
        raise
    kind, steps, today = resource.kind, programs(scenario), resource.today
    value_of, play = kind.scale.turned, partial(simulate, steps=steps)
    most, why = resource.most()
    grid = {*kind.grid(today, resource.floor(), most), *([today] if today else [])}

    def freed() -> float:
        return free(resource, play(resource.at(most)), why).makespan

    return Turned(
        unit=kind.unit,
        network=kind.network,
        today=None if today is None else value_of(today),
        values=tuple(map(value_of, grid)),
        read=partial(_speed, kind.scale.read),
        at=lambda value: resource.at(value_of(float(value or 0.0))),
        play=play,
        free=freed,
        notes=notes,
    )


def _tuned(scenario: Scenario, name: str) -> Turned | None:
    """A knob of `tune` by its name; None where it has none of that name. InputError where it would do nothing."""
    knobs = _knobs(scenario)
    knob = next((each for each in knobs.all if each.name == name), None)
    if knob is None:
        idle = [each for each in knobs.left_out if each.name == name]
        if idle:
            expected = f"one of {', '.join(each.name for each in knobs.all)}; of this one {idle[0].reason}"
            raise InputError([Problem(scenario.source, "", f'the knob "{name}"', expected)])
        return None
    return Turned(
        unit=_unit(name),
        network=False,
        today=knob.baseline,
        values=knob.values,
        read=_count if all(map(is_number, knob.values)) else _as_it_is,
        at=partial(_at_knob, scenario, knob),
        play=simulate,
        free=lambda: None,
    )


def _set(scenario: Scenario, path: str) -> Turned:
    """Any path of the scenario."""
    parts = tuple(path.split("."))
    if len(parts) == 1 and path not in scenario.text and path not in ("nodes", "gpus", "launch", "calibration"):
        knobs = _knobs(scenario)
        known = [each.name for each in knobs.all]
        expected = f"a path such as nodes or training.sequence_length, or one of the knobs {', '.join(known)}"
        raise InputError([Problem(scenario.source, "", f'the knob "{path}"', expected, nearest(path, known))])
    return Turned(
        unit=_unit(path),
        network=False,
        today=_today(scenario, parts),
        values=(),
        read=_as_it_is,
        at=lambda value: _changed(scenario, (Change(f"{path}={value}", parts, value),)),
        play=simulate,
        free=lambda: None,
    )


def _knobs(scenario: Scenario) -> Knobs:
    written = inline(dict(scenario.text), scenario.source)
    return Knobs.of(scenario, Places.of(written, Path(scenario.source).parent, ()))


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


def is_number(value: Value) -> bool:
    """Whether it has a place on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _speed(read: Callable[[object], float], given: object) -> Value:
    """A rate, or a ratio, above 0."""
    value = read(given)
    if not 0 < value < math.inf:
        raise UnitError(given, "a rate above 0")
    return value


def _count(given: object) -> Value:
    """Elements: a number, or text such as "500m"."""
    count = parse_count(given)
    return int(count) if count == int(count) else count


def _as_it_is(given: object) -> Value:
    if given is None or isinstance(given, str | int | float | bool):
        return given
    raise UnitError(given, "one value, such as 4, true, full or null")
