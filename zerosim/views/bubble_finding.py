"""What to do about the bubble of a pipeline where it is a large part of the step.

A gain is told by the formulas of `bubble`, for equal stages: the view plays nothing. What more micro-batches in flight
would hold is told from what one of them holds now, and whether there is room for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.errors import Finding
from zerosim.units import show_seconds, show_share, show_size
from zerosim.views.bubble import Bubble, ideal_share
from zerosim.views.choices import Pipeline
from zerosim.views.findings import Weighed
from zerosim.views.memory import TierMemory

LARGE = 0.2  # of the step; a choice
ENOUGH = 4  # micro-batches a stage: the bubble is then negligible (Huang et al. 2019, section 2.3)


def bubble_finding(found: Bubble, pipeline: Pipeline, gpu: TierMemory | None) -> Iterator[Weighed]:
    """One, where the bubble is large."""
    if found.bubble_share > LARGE:
        share, stages = show_share(found.bubble_share), found.stages
        if found.schedule == "naive":
            why = f"one of the {stages} stages works at a time"
        else:
            ideal = show_share(found.ideal_share)
            why = f"with {_counted(found.micro_batches)} in {stages} equal stages it would be {ideal}"
        message = f"The bubble is {share} of the step, in which a stage waits for others; {why}."
        remedy = _pipelined(pipeline, gpu) if found.schedule == "naive" else _filled(found, pipeline)
        yield Weighed(Finding("pipeline-bubble", "note", message, remedy), found.bubble_seconds)


def _pipelined(pipeline: Pipeline, gpu: TierMemory | None) -> str:
    """From one micro-batch at a time to several in flight."""
    if pipeline.micro_batches == 1:
        return "Schedule 1f1b with more micro-batches (gradient_accumulation_steps): one alone has nothing beside it."
    there = pipeline._replace(schedule="1f1b")
    times = (1 - ideal_share(there)) / (1 - ideal_share(pipeline))
    text = f"Schedule 1f1b: up to {times:.1f} times as fast"
    if gpu is None:
        return f"{text}."
    more = (there.in_flight - 1) * gpu.parts["activations"]
    text += f"; the first stage holds {_counted(there.in_flight)} then, about {show_size(more)} more"
    if gpu.peak + more > gpu.capacity:
        text += ", for which there may be no room without full activation checkpointing or a smaller micro-batch"
    return f"{text}."


def _filled(found: Bubble, pipeline: Pipeline) -> str:
    """More micro-batches, and where there are enough, equal stages."""
    enough = ENOUGH * pipeline.stages
    if pipeline.micro_batches < enough:
        share = show_share(ideal_share(pipeline._replace(micro_batches=enough)))
        return f"More micro-batches: with gradient_accumulation_steps {enough} equal stages wait for {share} of a step."
    longest = max(found.by_stage, key=lambda stage: stage.compute_seconds)
    mean = sum(stage.compute_seconds for stage in found.by_stage) / len(found.by_stage)
    return (
        f"Stages of equal time: {longest.name} computes for {show_seconds(longest.compute_seconds)}, "
        f"the mean is {show_seconds(mean)}."
    )


def _counted(micro_batches: int) -> str:
    return f"{micro_batches} micro-batch{'' if micro_batches == 1 else 'es'}"
