"""A step of many micro-steps, played with few: those between the first and the last are alike.

What one more takes is the difference between two runs that both have some in the middle. Memory is as full after the
second micro-step as after the hundredth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, simulate
from zerosim.step import PHASES, Phase
from zerosim.views import Summary, phases

FEW, SOME = 4, 8  # micro-steps of the two runs
MOST = 12  # up to so many all are played


class Played(NamedTuple):
    """`timeline` and `summary` are of `scenario`, which may have fewer micro-steps; seconds are of the whole step.

    `micro_steps`: those asked for over those played.
    """

    scenario: Scenario
    timeline: Simulation
    summary: Summary
    step_seconds: float
    phases: Mapping[Phase, float]
    micro_steps: float = 1.0

    @property
    def longer(self) -> float:
        """The step over the one that was played."""
        return self.step_seconds / self.summary.step_seconds


def play_whole(scenario: Scenario) -> Played:
    """The step with all its micro-steps."""
    wanted = scenario.training.gradient_accumulation_steps
    if wanted <= MOST:
        timeline = simulate(scenario)
        summary = timeline.summary()
        return Played(scenario, timeline, summary, summary.step_seconds, summary.phases)
    few = simulate(_with(scenario, FEW))
    some = _with(scenario, SOME)
    timeline = simulate(some)
    summary, less = timeline.summary(), phases(few)
    more = _more(wanted)
    whole = {name: summary.phases[name] + more * (summary.phases[name] - less[name]) for name in PHASES}
    step = summary.step_seconds + more * (summary.step_seconds - few.makespan)
    return Played(some, timeline, summary, step, whole, wanted / SOME)


def shorter(scenario: Scenario) -> tuple[Scenario, float]:
    """The scenario that is played for this one, and how many times as long as its step the whole one is."""
    wanted = scenario.training.gradient_accumulation_steps
    if wanted <= MOST:
        return scenario, 1.0
    few, some = (simulate(_with(scenario, micro_steps)).makespan for micro_steps in (FEW, SOME))
    return _with(scenario, SOME), (some + _more(wanted) * (some - few)) / some


def _more(wanted: int) -> float:
    """How often the difference of the two runs comes on top of the longer one."""
    return (wanted - SOME) / (SOME - FEW)


def _with(scenario: Scenario, micro_steps: int) -> Scenario:
    return scenario.replace(training={"gradient_accumulation_steps": micro_steps})
