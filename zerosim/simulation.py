"""The one place where the trades meet: a scenario is built into a program, priced, played, and looked at.

`simulate` answers one question and nothing more: no file is read and nothing is printed here. The result is a
Timeline that knows its scenario, so that it can be summarised.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from zerosim.costs import price
from zerosim.engine import play
from zerosim.scenario import Scenario
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.topology import Gpu
from zerosim.strategies import build, model_flops
from zerosim.timeline import Timeline
from zerosim.views import Facts, Summary, summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(Timeline):
    """The timeline of one step of a scenario."""

    scenario: Scenario
    notes: tuple[str, ...] = ()  # what pricing assumed, one sentence each

    def summary(self) -> Summary:
        """Every number that a report shows."""
        with _no_collection():
            return summarize(self, facts(self.scenario, self.notes))


def simulate(scenario: Scenario) -> Simulation:
    """Play one step. ZerosimError when the program cannot end or the machine lacks what it needs."""
    with _no_collection():
        step = build(scenario.strategy, scenario.model, scenario.training, scenario.world_size)
        priced = price(step, scenario.topology)
        played = play(step, priced.classes, priced.demands, priced.supply)
        return Simulation(
            step=played.step,
            classes=played.classes,
            spans=played.spans,
            demands=played.demands,
            supply=played.supply,
            events=played.events,
            scenario=scenario,
            notes=priced.notes,
        )


def facts(scenario: Scenario, notes: tuple[str, ...] = ()) -> Facts:
    """What a summary needs and a timeline cannot know."""
    training, world = scenario.training, scenario.world_size
    samples = training.micro_batch_size * training.gradient_accumulation_steps * world
    return Facts(
        title=scenario.title,
        nodes=len(scenario.topology.hosts),
        world_size=world,
        tokens=samples * training.sequence_length,
        samples=samples,
        model_flops=model_flops(scenario.model, training) * training.gradient_accumulation_steps,
        peak_flops=_peak_flops(scenario),
        findings=scenario.findings,
        assumptions=(*scenario.assumptions, *notes),
        applied=_applied(scenario),
    )


def _peak_flops(scenario: Scenario) -> float:
    """Of the slowest GPU, dense, at the training dtype; a GPU without that dtype computes in fp32."""
    precision = scenario.training.precision
    first = {ranks[0] for ranks in scenario.topology.rank_classes()}
    gpus = [scenario.topology.gpus[rank] for rank in first]
    return min(
        (gpu.figures.peak_flops.get(precision) or gpu.figures.peak_flops["fp32"]) * gpu.compute
        for gpu in gpus
        if isinstance(gpu.figures, Gpu)
    )


def _applied(scenario: Scenario) -> frozenset[str]:
    """Remedies against a full memory that are already in use, in the words of the views."""
    training, strategy = scenario.training, scenario.strategy
    used: set[str] = set()
    if isinstance(strategy, DeepSpeed):
        used.update(f"zero_stage_{stage}" for stage in range(1, strategy.zero.stage + 1))
    if training.activation_checkpointing == "full":
        used.add("activation_checkpointing")
    if training.micro_batch_size == 1:
        used.add("smallest_micro_batch")
    return frozenset(used)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A step is tens of thousands of tuples without cycles: looking for garbage among them only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
