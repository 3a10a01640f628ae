"""The step with one thing of the machine 10 % faster, twice as fast, or free: each priced and played anew.

Rule: nothing is estimated from shares of time. Programs are built once: they do not depend on what links and devices do
in a second. A step may become longer with a faster thing (ops in order on shared links: scheduling anomalies); that is
shown as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from zerosim.costs import Change
from zerosim.simulation import Simulation, simulate
from zerosim.studies.faster import THINGS, Thing

TENTH, TWICE, FREE = 1.1, 2.0, 1e6  # times as fast; a million times is no time in any step
NOISE = 1e-9  # of the step: less than this is the rounding of sums

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The seconds of a step with a thing 10 % faster, twice as fast, and free. `today` tells what it is now."""

    thing: str
    words: str
    today: str
    step_seconds: float
    faster_10_percent_seconds: float
    twice_as_fast_seconds: float
    free_seconds: float

    def gain(self, seconds: float) -> float:
        """The part of the step that is saved, below 0 where it becomes longer."""
        return 1 - seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def slower(self) -> bool:
        """Whether one of the faster machines makes the step longer."""
        longest = max(self.faster_10_percent_seconds, self.twice_as_fast_seconds, self.free_seconds)
        return longest > self.step_seconds * (1 + NOISE)

    def as_json(self) -> dict[str, Any]:
        played = {
            "faster_10_percent": self.faster_10_percent_seconds,
            "twice_as_fast": self.twice_as_fast_seconds,
            "free": self.free_seconds,
        }
        return {
            "resource": self.thing,
            "words": self.words,
            "today": self.today,
            **{f"{name}_seconds": seconds for name, seconds in played.items()},
            **{f"{name}_gain": self.gain(seconds) for name, seconds in played.items()},
            "slower": self.slower,
        }


def sensitivity(played: Simulation, told: Told = lambda done, of: None) -> tuple[Sensitivity, ...]:
    """By thing that the step uses, the one that saves most when it is twice as fast first; then when it is free."""
    things = [thing for thing in THINGS if thing.matters(played)]
    factors = (TENTH, TWICE, FREE)
    rows = []
    for number, thing in enumerate(things):
        seconds = []
        for place, factor in enumerate(factors, start=1):
            seconds.append(_at(played, thing, factor))
            told(number * len(factors) + place, len(things) * len(factors))
        rows.append(Sensitivity(thing.name, thing.words, _today(played, thing), played.makespan, *seconds))
    return tuple(sorted(rows, key=lambda row: (row.twice_as_fast_seconds, row.free_seconds)))


def _at(played: Simulation, thing: Thing, factor: float) -> float:
    change = Change(partial(thing.machine, factor=factor), partial(thing.values, factor))
    return simulate(played.scenario, played.steps, change).makespan


def _today(played: Simulation, thing: Thing) -> str:
    """The label of its slowest resource, and whose that is where others are faster."""
    supply, names = played.supply, thing.resources(played)
    if not names:
        return ""
    slowest = min(names, key=lambda name: supply.rates[name])
    alike = [name for name in names if name.partition(".")[0] == slowest.partition(".")[0]]
    label = supply.labels.get(slowest, slowest)
    same = len({supply.labels.get(name, name).removesuffix(_whose(played, name)) for name in alike}) == 1
    return label.removesuffix(_whose(played, slowest)) if same else label


def _whose(played: Simulation, resource: str) -> str:
    return f" ({played.supply.owners.get(resource, '')})"
