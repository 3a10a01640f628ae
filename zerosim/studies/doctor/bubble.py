"""A pipeline whose stages wait for each other: too few micro-batches in flight, or one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.strategy import Pipeline
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.settings import batch, smaller_batches
from zerosim.studies.doctor.trouble import Candidate, Trouble, weight
from zerosim.units import show_share
from zerosim.views.bubble_finding import LARGE


def waiting_stages(case: Case) -> Trouble | str:
    """The bubble, where it is a large part of the step."""
    strategy, found = case.scenario.strategy, case.summary.pipeline
    if found is None or not isinstance(strategy, Pipeline):
        return "none"
    if found.bubble_share < LARGE:
        return f"a bubble of {show_share(found.bubble_share)}"
    return Trouble(
        code="pipeline-bubble",
        severity=weight(case, found.bubble_seconds),
        symptom=f"A stage waits for others for {show_share(found.bubble_share)} of the step.",
        cause=_why(strategy, found.micro_batches),
        candidates=tuple(_remedies(case, strategy)),
        lost=found.bubble_seconds,
    )


def _why(given: Pipeline, micro_batches: int) -> str:
    if given.schedule == "naive":
        return f"One of the {given.stages} stages works at a time: the next micro-batch begins when the last has ended."
    return f"Only {micro_batches} micro-batches fill {given.stages} stages, and those of unequal length wait."


def _remedies(case: Case, given: Pipeline) -> Iterator[Candidate]:
    training = case.scenario.training
    schedule = Candidate("schedule 1f1b", (("strategy.pipeline.schedule=1f1b",),))
    if given.schedule != "1f1b":
        yield schedule
    yield from smaller_batches(case)
    more = batch(case, training.micro_batch_size, 2 * training.gradient_accumulation_steps)
    yield more if given.schedule == "1f1b" else schedule.also(more)
    steps = training.gradient_accumulation_steps
    if given.stages > 2 and given.stages % 2 == 0 and steps % 2 == 0:  # twice as many replicas
        stages = (f"strategy.pipeline.stages={given.stages // 2}", f"training.gradient_accumulation_steps={steps // 2}")
        yield Candidate(f"{given.stages // 2} stages with {steps // 2} micro-steps", (stages,))
