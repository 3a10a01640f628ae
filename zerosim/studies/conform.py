"""Whether the programs are those of the real frameworks: a step's collectives beside recorded ones, one by one.

The program is written for the configuration, the parameters and the module order of the recording, as for a scenario;
nothing is played, so no machine is needed. Compared are kind, elements in and out, dtype, ranks of the group, phase,
micro-batch, root of a reduce, and order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.recording import NotPlayedError, Recording, read_recording
from zerosim.spec.recording_events import Issued
from zerosim.step import Collective, Op, Step
from zerosim.strategies import build


class Difference(NamedTuple):
    """The first place where two sequences part; a side that has ended there is None. `reason`: why there is no other
    side at all."""

    place: int
    recorded: Issued | None
    simulated: Issued | None
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        sides = {"recorded": self.recorded, "simulated": self.simulated}
        shown = {name: None if side is None else side._asdict() for name, side in sides.items()}
        return {"index": self.place, **shown} | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one recording. `collectives`: how many were recorded."""

    recording: str
    collectives: int
    first_difference: Difference | None
    notes: tuple[str, ...] = ()

    @property
    def match(self) -> bool:
        return self.first_difference is None

    def as_json(self) -> dict[str, Any]:
        difference = None if self.first_difference is None else self.first_difference.as_json()
        return {"recording": self.recording, "match": self.match, "first_difference": difference}


def conform(paths: Sequence[str | Path]) -> list[Verdict]:
    """A verdict a recording, in order. InputError with the problems of all files that are none."""
    verdicts: list[Verdict] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            verdicts.append(_verdict(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(dict.fromkeys(problems))
    return verdicts


def _verdict(path: str | Path) -> Verdict:
    try:
        recording = read_recording(path)
    except NotPlayedError as error:
        return Verdict(str(path), 0, _refused(error))
    recorded = recording.collectives
    try:
        found = first_difference(recorded, issued(program(recording)))
    except InputError as error:
        found = _refused(error)
    return Verdict(str(path), len(recorded), found, recording.notes)


def _refused(error: InputError) -> Difference:
    return Difference(0, None, None, str(error))


def program(recording: Recording) -> Step:
    """The step that zerosim writes for the run of a recording."""
    run = recording.run
    return build(run.strategy, recording.model, run.training, run.world, run.ranks_per_node)[0]


def first_difference(recorded: Sequence[Issued], simulated: Sequence[Issued]) -> Difference | None:
    """Where they part first; None where they are the same."""
    pairs = enumerate(zip_longest(recorded, simulated))
    return next((Difference(place, *sides) for place, sides in pairs if sides[0] != sides[1]), None)


def issued(step: Step) -> tuple[Issued, ...]:
    """The collectives of a step, as one rank issues them."""
    return tuple(_issued(op, op.work, step) for op in step.ops if isinstance(op.work, Collective))


def _issued(op: Op, work: Collective, step: Step) -> Issued:
    """What is gathered comes in as a shard, what is scattered goes out as one; all else keeps its size."""
    ranks = step.groups[work.group].size
    shard = work.elements // ranks
    return Issued(
        kind=work.kind,
        nin=shard if work.kind == "all_gather" else work.elements,
        nout=shard if work.kind == "reduce_scatter" else work.elements,
        dtype=work.dtype,
        ranks=ranks,
        phase=op.phase,
        micro_batch=None if op.phase == "optimizer" else op.micro_batch,
        root=work.root,
    )
