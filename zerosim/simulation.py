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
from zerosim.spec.strategy import Ddp, DeepSpeed
from zerosim.spec.topology import Gpu
from zerosim.strategies import build, model_flops
from zerosim.timeline import Timeline
from zerosim.views import Choices, Facts, Summary, summarize


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
        choices=_choices(scenario),
    )


def _peak_flops(scenario: Scenario) -> float:
    """Mean over the ranks, dense, at the training dtype; a GPU without that dtype computes in fp32."""
    topology, precision = scenario.topology, scenario.training.precision
    total = 0.0
    for ranks in topology.rank_classes():
        gpu = topology.gpus[ranks[0]]
        if isinstance(gpu.figures, Gpu):
            peaks = gpu.figures.peak_flops
            total += len(ranks) * gpu.compute * (peaks.get(precision) or peaks["fp32"])
    return total / scenario.world_size


def _choices(scenario: Scenario) -> Choices:
    """What bears on memory."""
    training, strategy = scenario.training, scenario.strategy
    return Choices(
        checkpointing=training.activation_checkpointing == "full",
        micro_batch=training.micro_batch_size,
        stage=strategy.zero.stage if isinstance(strategy, DeepSpeed) else None,
        ddp=isinstance(strategy, Ddp),
        bucket_view=isinstance(strategy, Ddp) and strategy.gradient_as_bucket_view,
    )


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
