"""The least rate of a resource that a step needs: to be hardly slower than with a free one, or to be so fast.

A free resource takes no time of the step. That may be more than any rate gives: a network can be no faster than the
PCIe behind its ports. Then no rate is enough for every wish, and what limits instead is the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, facts
from zerosim.studies.reason import waiting
from zerosim.studies.requirement import Played, Trials, free, limit
from zerosim.studies.resource import Resource
from zerosim.studies.rung_names import strategy_name
from zerosim.units import show_share

Goal = Literal["slowdown", "mfu", "seconds"]
EXACT = 1e-9  # of a step: a resource that nothing waits for


class Wish(NamedTuple):
    """What a step shall be: at most `amount` longer than with a free resource, of at least this MFU, or of at most so
    many seconds."""

    goal: Goal
    amount: float

    def target(self, scenario: Scenario, free: float) -> float:
        """The seconds that it may take."""
        match self.goal:
            case "slowdown":
                return free * (1 + self.amount)
            case "seconds":
                return self.amount
            case "mfu":
                known = facts(scenario)
                return known.model_flops / (known.peak_flops * self.amount)


@dataclass(frozen=True, slots=True)
class Required:
    """What one strategy needs. Rates are in `unit`; `required` is None where no rate is enough, `any_rate` where the
    least there is, is. `slowdown` is what the wish allows over `free_seconds`, with a free resource; `seconds` is the
    step at the rate that is required, or at the highest one, `most`. `curve`: rate and seconds of all that was played.
    """

    resource: str
    today: float | None
    required: float | None
    slowdown: float
    curve: tuple[Played, ...]
    scenario: str
    strategy: str
    unit: str
    network: bool
    goal: Goal
    target_seconds: float
    today_seconds: float | None
    free_seconds: float
    seconds: float
    mfu: float
    most: float
    bounded: bool
    grid: tuple[float, ...]
    mfu_wanted: float | None
    any_rate: bool
    fits: bool
    limited_by: str
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **plain,
            "curve": [list(point) for point in self.curve],
            "grid": list(self.grid),
            "notes": list(self.notes),
        }


def require(scenario: Scenario, resource: str, wish: Wish) -> Required:
    """The least rate at which the step is as wished."""
    asked, notes = uncalibrated(scenario)
    trials = Trials(asked, resource)
    kind, today = trials.resource.kind, trials.resource.today
    if wish.goal == "mfu" and kind.unit == "FLOP/s":
        expected = "--slowdown or --seconds, as the MFU is a share of that rate"
        raise InputError([Problem("--mfu", "", f"the resource {resource}", expected)])
    most, why = trials.resource.most()
    fastest = trials.played(most)
    freed = free(trials.resource, fastest, why)
    target = wish.target(asked, freed.makespan)
    floor = trials.resource.floor()
    grid = kind.grid(today, floor, most)
    for rate in (*grid, *([today] if today else [])):
        trials.step(rate)
    found = trials.least(target, most)
    turned = kind.scale.turned
    best = fastest if found is None else trials.played(found.rate)
    summary = best.summary()
    return Required(
        resource=resource,
        today=None if today is None else turned(today),
        required=None if found is None else turned(found.rate),
        slowdown=target / freed.makespan - 1 if wish.goal != "slowdown" else wish.amount,
        curve=trials.curve(),
        scenario=scenario.title,
        strategy=strategy_name(scenario.strategy),
        unit=kind.unit,
        network=kind.network,
        goal=wish.goal,
        target_seconds=target,
        today_seconds=None if today is None else trials.step(today).seconds,
        free_seconds=freed.makespan,
        seconds=best.makespan,
        mfu=summary.mfu,
        most=turned(most),
        bounded=bool(why),
        grid=tuple(map(turned, grid)),
        mfu_wanted=wish.amount if wish.goal == "mfu" else None,
        any_rate=found is not None and found.rate <= floor,
        fits=summary.fits,
        limited_by=_limited(fastest, freed, why, target) if found is None else "",
        notes=notes if found is None else (*notes, *filter(None, [trials.resource.needs(found.rate)])),
    )


def _limited(fastest: Simulation, freed: Simulation, why: str, target: float) -> str:
    """Why no rate is enough: the step is too long without it, or another part bounds it."""
    if freed.makespan <= target * (1 + EXACT):
        return limit(fastest, why)
    summary = freed.summary()
    computes = show_share(summary.breakdown.compute / summary.step_seconds)
    return f"computes {computes} of the step and {waiting(summary)}"


def uncalibrated(scenario: Scenario) -> tuple[Scenario, tuple[str, ...]]:
    """Without what was measured of collectives, copies and drives, all of which holds at the rates of today only."""
    known = scenario.calibration
    if known is None or not (known.curves or known.rates):
        return scenario, ()
    note = f"{known.name}: measured at today's rates, and left out here but for the factors of GPUs"
    return scenario.replace(calibration=dataclasses.replace(known, curves=(), rates=())), (note,)


def require_all(
    scenarios: Sequence[Scenario], resource: str, wish: Wish, told: Callable[[int, int], None] = lambda done, of: None
) -> list[Required]:
    """One answer a scenario; what is wrong with the resource in any of them is told before a step is played. `told`
    hears how many are answered."""
    for scenario in scenarios:
        Resource.of(scenario, resource)
    answers = []
    for number, scenario in enumerate(scenarios):
        answers.append(require(scenario, resource, wish))
        told(number + 1, len(scenarios))
    return answers
