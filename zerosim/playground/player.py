"""Plays the scenarios that pages ask for, one at a time, and remembers the last of them.

Rules: an answer is always that of the state it was asked for. Programs do not depend on rates, so that those of the
last few strategies, models and batches are kept and a network is turned without writing them again. Between its parts
(write, play, look) a play asks whether it is still wanted: who turns a knob wants the newest answer and no other.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zerosim.playground.limits import check_programs, check_size
from zerosim.playground.start import Start
from zerosim.playground.state import State, scenario_of
from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, programs, simulate
from zerosim.step import Step
from zerosim.views import Summary, TierMemory

PROGRAMS, PLAYED, PAGES = 6, 4, 64  # how many are remembered
Wanted = Callable[[], bool]


class SupersededError(Exception):
    """A newer state of the same page has been asked for."""


class Played(NamedTuple):
    """A state, its step, and the seconds that each part of playing it took."""

    state: State
    simulation: Simulation
    summary: Summary
    tiers: Mapping[str, TierMemory]
    seconds: dict[str, float]


class _Written(NamedTuple):
    """Programs and all that they depend on."""

    asked: tuple[object, ...]
    steps: tuple[Step, ...]


@dataclass(slots=True)
class Player:
    """`start` is what the knobs change. Asked by one thread alone: the server's."""

    start: Start
    _written: list[_Written] = field(default_factory=list)
    _played: OrderedDict[str, Played] = field(default_factory=OrderedDict)

    def play(self, state: State, wanted: Wanted = lambda: True) -> Played:
        """The step of a state. InputError where it is no scenario, SupersededError where it is wanted no more."""
        key = json.dumps(state, sort_keys=True)
        if key not in self._played:
            self._played[key] = self._play(state, wanted)
            while len(self._played) > PLAYED:
                self._played.popitem(last=False)
        self._played.move_to_end(key)
        return self._played[key]

    def _play(self, state: State, wanted: Wanted) -> Played:
        clock = _Clock(wanted)
        scenario = scenario_of(self.start, state)
        check_size(scenario)
        clock.lap("read")
        steps = self._programs(scenario)
        clock.lap("write")
        check_programs(scenario, steps)
        simulation = simulate(scenario, steps)
        clock.lap("play")
        tiers = simulation.tiers()
        summary = simulation.summary(tiers)
        clock.lap("look")
        return Played(state, simulation, summary, tiers, clock.laps)

    def _programs(self, scenario: Scenario) -> tuple[Step, ...]:
        asked = (scenario.strategy, scenario.model, scenario.training, scenario.world_size, scenario.ranks_per_node)
        for known in self._written:
            if known.asked == asked:
                return known.steps
        steps = programs(scenario)
        self._written = [_Written(asked, steps), *self._written][:PROGRAMS]
        return steps


@dataclass(slots=True)
class Newest:
    """The newest question of each page."""

    _numbers: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def asks(self, page: str, number: int) -> None:
        """A page asks its question of that number."""
        self._numbers[page] = max(number, self._numbers.get(page, number))
        self._numbers.move_to_end(page)
        while len(self._numbers) > PAGES:
            self._numbers.popitem(last=False)

    def wants(self, page: str, number: int) -> bool:
        """Whether it has asked nothing since."""
        return self._numbers.get(page, number) <= number


@dataclass(slots=True)
class _Clock:
    """Seconds of each part; between two of them it is asked whether the rest is wanted."""

    wanted: Wanted
    laps: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._since = now - self._since, now
        if not self.wanted():
            raise SupersededError
