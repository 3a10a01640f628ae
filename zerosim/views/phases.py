"""Seconds of the step by phase: forward, backward, optimizer.

The ops of a phase overlap those of the next (a reduction runs into the optimizer, a gather is prefetched), so the step
is cut once for each block of ops of one phase and micro-batch, in issue order: a block lasts until all of its ops and
all earlier blocks have ended. So a tail belongs to the phase that issued it, and a pause to the phase that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from zerosim.step import PHASES, Op, Phase
from zerosim.timeline import Timeline


class Cut(NamedTuple):
    """From the end of the cut before to `end` the step is in `phase`."""

    end: float
    phase: Phase


def cuts(timeline: Timeline) -> tuple[Cut, ...]:
    """The blocks that take time, in order; the last one ends with the step.

    Those of the slowest class; where ranks run several programs (the stages of a pipeline), one micro-batch after the
    other, a block lasts until every program has done its part of it, so that all stages have the same phases.
    With several micro-batches in flight each stage has its own.
    """
    slowest = timeline.slowest
    ends: dict[tuple[Phase, int], float] = {}
    for rank_class in timeline.classes if stages_in_turn(timeline) else (slowest,):
        spans = timeline.spans[rank_class.name]
        for block, ops in groupby(timeline.program(rank_class).ops, key=lambda op: (op.phase, op.micro_batch)):
            ends[block] = max(ends.get(block, 0.0), *(spans[op.number].end for op in ops))
    found: list[Cut] = []
    reached = 0.0
    for (phase, _), end in ends.items():
        if end > reached:
            found.append(Cut(end, phase))
            reached = end
    return tuple(found)


def stages_in_turn(timeline: Timeline) -> bool:
    """Whether ranks run several programs that all work on the same micro-batch."""
    programs = {rank_class.program for rank_class in timeline.classes}
    return len(programs) > 1 and all(_in_turn(timeline.steps[program].ops) for program in programs)


def _in_turn(ops: Sequence[Op]) -> bool:
    """Whether each micro-batch is over before the next one begins."""
    return all(before.micro_batch <= after.micro_batch for before, after in pairwise(ops))


def phases(timeline: Timeline) -> dict[Phase, float]:
    """Seconds by phase; they sum to the step. A phase that is not known is one only where it was met."""
    seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
    before = 0.0
    for cut in cuts(timeline):
        seconds[cut.phase] = seconds.get(cut.phase, 0.0) + cut.end - before
        before = cut.end
    return seconds
