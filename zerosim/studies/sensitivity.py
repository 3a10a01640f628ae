"""The step with one thing of the machine 10 % faster, twice as fast, or free: each priced and played anew.

Rule: nothing is estimated from shares of time. Programs are built once: they do not depend on what links and devices do
in a second. Ports and lanes are faster, and free, as `run --set` and `require` make them, so that a buyer reads one
number for one thing. Where no one rate says it (nodes differ, the machine was measured or drawn, ports are faster
without the uplinks above them) they reach the share of today. A step may become longer with a faster thing (ops in
order on shared links: scheduling anomalies); that is shown as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from zerosim.costs import Change
from zerosim.errors import InputError
from zerosim.simulation import Simulation, simulate
from zerosim.step import Step
from zerosim.studies.faster import PORT, THINGS, UPLINKS, Thing
from zerosim.studies.requirement import free
from zerosim.studies.resource import FREED, Resource

TENTH, TWICE = 1.1, 2.0  # times as fast
NOISE = 1e-9  # of the step: less than this is the rounding of sums

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The seconds of a step with a thing 10 % faster, twice as fast, and free. `today` tells what it is now, `bounded`
    why there is no such machine with it twice as fast: then it is at its most. `same_share`: other parts of other rates
    are reached, and nevertheless it was played with today's."""

    thing: str
    words: str
    today: str
    step_seconds: float
    faster_10_percent_seconds: float
    twice_as_fast_seconds: float
    free_seconds: float
    bounded: str = ""
    same_share: bool = False

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
            "bounded": self.bounded,
            "same_share": self.same_share,
        }


def sensitivity(played: Simulation, told: Told = lambda done, of: None) -> tuple[Sensitivity, ...]:
    """By thing that the step uses, the one that saves most when it is twice as fast first; then when it is free."""
    things = [thing for thing in THINGS if thing.matters(played)]
    factors = (TENTH, TWICE, FREED)
    rows = []
    for number, thing in enumerate(things):
        sold = _Sold.of(played, thing) if thing.path else None
        seconds = []
        for place, factor in enumerate(factors, start=1):
            seconds.append(_at(played, thing, factor) if sold is None else sold.seconds(factor))
            told(number * len(factors) + place, len(things) * len(factors))
        tenth, twice, freed = seconds
        bounded, same_share = ("", bool(thing.path)) if sold is None else (sold.bounded, False)
        today = _today(played, thing)
        rows.append(
            Sensitivity(thing.name, thing.words, today, played.makespan, tenth, twice, freed, bounded, same_share)
        )
    return tuple(sorted(rows, key=lambda row: (row.twice_as_fast_seconds, row.free_seconds)))


def _at(played: Simulation, thing: Thing, factor: float) -> float:
    change = Change(partial(thing.machine, factor=factor), partial(thing.values, factor))
    return simulate(played.scenario, played.steps, change).makespan


@dataclass(frozen=True, slots=True)
class _Sold:
    """A thing whose rate stands in the topology: what it is today, the most that it can be, and why not more."""

    resource: Resource
    steps: tuple[Step, ...]
    today: float
    most: float
    why: str

    @classmethod
    def of(cls, played: Simulation, thing: Thing) -> _Sold | None:
        """None where one rate does not say it: nodes or ports differ, uplinks go with ports that are faster alone, or
        curves and rates were measured at today's."""
        scenario = played.scenario
        measured, nodes = scenario.calibration, scenario.topology.nodes
        ports = {rate for _, rate in nodes[0].ports} if PORT in thing.links else set()
        if len({id(node) for node in nodes}) > 1 or len(ports) > 1:
            return None
        if (thing.name == "nic" and _uplinks(played)) or (measured and (measured.curves or measured.rates)):
            return None
        try:
            resource = Resource.of(scenario, thing.path)
            most, why = resource.most()
        except InputError:  # a machine that is drawn
            return None
        today = resource.today
        return None if today is None else cls(resource, played.steps, today, most, why)

    @property
    def bounded(self) -> str:
        return self.why if self.today * TWICE > self.most else ""

    def seconds(self, factor: float) -> float:
        """Of the step at so many times the rate of today, at most."""
        if factor != FREED:
            return self.at(min(self.today * factor, self.most)).makespan
        return free(self.resource, self.at(self.most), self.why).makespan

    def at(self, rate: float) -> Simulation:
        return simulate(self.resource.at(rate), self.steps)


def _uplinks(played: Simulation) -> bool:
    return any(name.partition(".")[0] in UPLINKS for name in played.supply.rates)


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
