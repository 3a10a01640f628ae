"""What is asked of `tune`, and the space that it comes to: which knobs, with which values, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Literal

from zerosim.errors import InputError, Problem, nearest
from zerosim.scenario import Scenario
from zerosim.spec.changes import Change
from zerosim.spec.document import Document
from zerosim.spec.loading import parse
from zerosim.spec.places import Places
from zerosim.spec.strategy import DeepSpeed
from zerosim.studies.tuning.knob import Knob, LeftOut, Value
from zerosim.studies.tuning.knobs import OWNERS, STAGE, Knobs
from zerosim.studies.tuning.looking import Looking
from zerosim.studies.tuning.space import Space
from zerosim.units import UnitError, parse_count

Optimizer = Literal["grid", "optuna"]
LIMIT, TRIALS = 1000, 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A scenario's document with the changes made in it, and how it is tuned.

    `knobs` are the only ones, where any are named; those with values have these instead of the default grid. `limit` is
    the most points of a grid that are looked at, `trials` the number of Optuna's.
    """

    document: Document
    base: Path
    changes: tuple[Change, ...] = ()
    knobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pareto: bool = False
    optimizer: Optimizer = "grid"
    limit: int = LIMIT
    trials: int = TRIALS
    seed: int = 0

    @property
    def looking(self) -> Looking:
        """Who answers for a point."""
        return Looking(self.document, self.base, self.changes)

    @property
    def places(self) -> Places:
        """Where the scenario says what."""
        return Places.of(self.document, self.base, self.changes)


def space_of(asked: Asked, scenario: Scenario) -> tuple[Space, tuple[LeftOut, ...]]:
    """The space, and the knobs that are not in it though they were asked for, or though the strategy has them."""
    known = Knobs.of(scenario, asked.places)
    chosen = _chosen(asked, known) if asked.knobs else known
    found = chosen.searched(_stages(scenario, chosen))
    if not found.all:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in found.left_out)
        raise InputError([Problem("--knob", "", f"nothing to tune ({reasons})", "a knob that changes the step")])
    return Space(found.all, _stage(scenario)), found.left_out


def _stage(scenario: Scenario) -> int | None:
    return scenario.strategy.zero.stage if isinstance(scenario.strategy, DeepSpeed) else None


def _stages(scenario: Scenario, knobs: Knobs) -> str:
    """All stages of the space."""
    turned = next((knob.values for knob in knobs.all if knob.name == STAGE), (_stage(scenario),))
    return "".join(str(stage) for stage in sorted(turned, key=str) if stage is not None)


def _chosen(asked: Asked, known: Knobs) -> Knobs:
    """The knobs that were named, with their values."""
    knobs, reasons = {knob.name: knob for knob in known.all}, {each.name: each for each in known.left_out}
    wrong, chosen, left_out = [], {}, []
    for given, values in asked.knobs.items():
        name = next((each for each in OWNERS if each == f"stage3_{given}"), given)
        if name in knobs:
            chosen[name] = _valued(knobs[name], values, asked) if values else knobs[name]
        elif name in reasons or name in OWNERS:
            left_out.append(reasons.get(name) or LeftOut(name, f"it is a knob of {OWNERS[name]}"))
        else:
            expected = f"a knob of this strategy: {', '.join(knobs)}"
            wrong.append(Problem("--knob", "", f'"{given}"', expected, nearest(given, [*knobs, *OWNERS])))
    if wrong:
        raise InputError(wrong)
    return Knobs(tuple(chosen[name] for name in knobs if name in chosen), tuple(left_out))


def _valued(knob: Knob, texts: Sequence[str], asked: Asked) -> Knob:
    """The knob with these values, each of which the scenario must take by itself."""
    values = [_value(knob, text) for text in texts]
    problems = [problem for value in values for problem in _refused(knob, value, asked)]
    if problems:
        raise InputError(dict.fromkeys(problems))
    return knob.with_values(values)._replace(ranged=False)


def _value(knob: Knob, text: str) -> Value:
    plain: Value = parse(text, f"--knob {knob.name}").data
    counted = isinstance(knob.baseline, int) and not isinstance(knob.baseline, bool)
    if not counted or isinstance(plain, bool):
        return float(plain) if isinstance(knob.baseline, float) and isinstance(plain, int) else plain
    try:
        number = parse_count(plain)
    except UnitError as error:
        raise InputError([Problem("--knob", knob.name, f'"{text}"', error.expected, error.nearest)]) from None
    if not isclose(number, round(number), rel_tol=1e-12):  # "4.35m" is off by the rounding of its product
        raise InputError([Problem("--knob", knob.name, f'"{text}"', "a whole number")])
    return round(number)


def _refused(knob: Knob, value: Value, asked: Asked) -> Iterator[Problem]:
    try:
        asked.looking.scenario(knob.changes(value))
    except InputError as error:
        for problem in error.problems:
            yield Problem("--knob", knob.name, problem.found, problem.expected, problem.nearest)
