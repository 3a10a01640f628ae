"""The bubble of a pipeline: the time in which a stage computes nothing because another one is not that far.

It is what `stalls` calls `wait_for_stage`, here of every stage: a collective with another stage waits for it and
nothing else goes on; and, after its own end, the rest of the step, for its next step waits for the others, too. For
comparison, the share of equal stages between which sending takes no time: with m micro-batches in p stages
(p - 1) / (m + p - 1) of a step under GPipe and 1F1B (Huang et al. 2019, section 2.3; Narayanan et al. 2021, section
2.2, where it is (p - 1) / m of the rest), (p - 1) / p where one stage works at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zerosim.resources import RankClass
from zerosim.step import Collective
from zerosim.timeline import Call, Timeline
from zerosim.views.activity import activity
from zerosim.views.choices import Pipeline
from zerosim.views.critical_path import last_to_arrive
from zerosim.views.holders import slowest_of_each
from zerosim.views.intervals import Intervals, difference, length, union


@dataclass(frozen=True, slots=True)
class StageBubble:
    """Seconds of one stage, in the ranks of it that end last."""

    name: str
    first_rank: int
    compute_seconds: float
    bubble_seconds: float


@dataclass(frozen=True, slots=True)
class Bubble:
    """`bubble_seconds` of the stage that ends last, whose stalls are told, and their share of the step."""

    schedule: str
    stages: int
    micro_batches: int
    bubble_seconds: float
    bubble_share: float
    ideal_share: float
    by_stage: tuple[StageBubble, ...]


def bubble(timeline: Timeline, pipeline: Pipeline) -> Bubble:
    """Of every stage, in their order."""
    together = timeline.collectives() if len(timeline.steps) > 1 else {}
    each = {stage.name: _of(timeline, stage, together) for stage in slowest_of_each(timeline)}
    seconds, step = each[timeline.slowest.name].bubble_seconds, timeline.makespan
    return Bubble(
        schedule=pipeline.schedule,
        stages=pipeline.stages,
        micro_batches=pipeline.micro_batches,
        bubble_seconds=seconds,
        bubble_share=seconds / step if step else 0.0,
        ideal_share=ideal_share(pipeline),
        by_stage=tuple(each.values()),
    )


def ideal_share(pipeline: Pipeline) -> float:
    """Of equal stages between which sending takes no time."""
    waiting = pipeline.stages - 1
    return waiting / (1 + waiting if pipeline.schedule == "naive" else pipeline.micro_batches + waiting)


def _of(timeline: Timeline, stage: RankClass, together: Mapping[Call, Sequence[Call]]) -> StageBubble:
    seen = activity(replace(timeline, classes=(stage,)))
    busy = union(seen.compute, seen.collectives, seen.transfers, seen.host)
    waits = length(difference(_waits(timeline, stage, together), busy))
    return StageBubble(stage.name, stage.ranks[0], length(union(seen.compute)), waits)


def _waits(timeline: Timeline, stage: RankClass, together: Mapping[Call, Sequence[Call]]) -> Intervals:
    """When a collective of the stage waits for another one, and from its end to that of the step."""
    spans, program_of = timeline.spans[stage.name], {each.name: each.program for each in timeline.classes}
    waits = [
        (spans[op.number].ready, spans[op.number].start)
        for op in timeline.program(stage).ops
        if isinstance(op.work, Collective)
        and program_of[last_to_arrive(timeline, together, Call(stage.name, op.number)).rank_class] != stage.program
    ]
    waits.append((max((span.end for span in spans), default=0.0), timeline.makespan))
    return np.array(waits, dtype=np.float64)
