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
from zerosim.views import Summary

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
    few = simulate(_with(scenario, FEW)).summary()
    some = _with(scenario, SOME)
    timeline = simulate(some)
    summary = timeline.summary()
    more = (wanted - SOME) / (SOME - FEW)
    phases = {name: summary.phases[name] + more * (summary.phases[name] - few.phases[name]) for name in PHASES}
    step = summary.step_seconds + more * (summary.step_seconds - few.step_seconds)
    return Played(some, timeline, summary, step, phases, wanted / SOME)


def _with(scenario: Scenario, micro_steps: int) -> Scenario:
    return scenario.replace(training={"gradient_accumulation_steps": micro_steps})
