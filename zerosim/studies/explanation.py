"""Where the time of a step goes, what its end hangs on, and what would change it: the answer of `zerosim explain`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, NamedTuple

from zerosim.simulation import Simulation
from zerosim.studies.sensitivity import Sensitivity, Told, sensitivity
from zerosim.views.activity import activity
from zerosim.views.attribution import Attribution, attribution
from zerosim.views.breakdown import breakdown
from zerosim.views.critical_path import critical_path
from zerosim.views.path_runs import Run, path_runs
from zerosim.views.slack import Slack, slack, slacks

LARGEST = 10  # ops whose slack is told one by one; a choice


class Loose(NamedTuple):
    """One of the longest ops of the slowest class, and its slack."""

    name: str
    stream: str
    phase: str
    micro_batch: int
    seconds: float
    slack_seconds: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """`compute_seconds` and the rows of `attribution` sum to the step; the runs of the path do, too."""

    scenario: str
    fits: bool
    step_seconds: float
    compute_seconds: float
    slowest: str
    attribution: tuple[Attribution, ...]
    path: tuple[Run, ...]
    slack: tuple[Slack, ...]
    largest: tuple[Loose, ...]
    sensitivity: tuple[Sensitivity, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "fits": self.fits,
            "step_seconds": self.step_seconds,
            "compute_seconds": self.compute_seconds,
            "slowest": self.slowest,
            "attribution": [asdict(row) | {"layers": ranges(row.layers)} for row in self.attribution],
            "critical_path": [self._run(run) for run in self.path],
            "slack": {
                "kinds": [asdict(row) for row in self.slack],
                "largest_ops": [loose._asdict() for loose in self.largest],
            },
            "sensitivity": [row.as_json() for row in self.sensitivity],
        }

    def _run(self, run: Run) -> dict[str, Any]:
        seconds = run.end - run.start
        share = seconds / self.step_seconds if self.step_seconds else 0.0
        return asdict(run) | {"layers": ranges(run.layers), "seconds": seconds, "share": share}


def explain(played: Simulation, told: Told = lambda done, of: None) -> Explanation:
    """The step explained; `told` hears how many of the steps with something faster are played."""
    seen, loose, links = activity(played), slack(played), critical_path(played)
    return Explanation(
        scenario=played.scenario.title,
        fits=played.summary().fits,
        step_seconds=played.makespan,
        compute_seconds=breakdown(played, seen).compute,
        slowest=played.slowest.name,
        attribution=attribution(played, seen),
        path=path_runs(played, links),
        slack=slacks(played, loose, links),
        largest=tuple(_largest(played, loose[played.slowest.name])),
        sensitivity=sensitivity(played, told),
    )


def _largest(played: Simulation, loose: Sequence[float]) -> Iterator[Loose]:
    """The longest first."""
    ops, spans = played.step.ops, played.spans[played.slowest.name]
    for span in heapq.nlargest(LARGEST, spans, key=lambda span: (span.end - span.start, -span.op)):
        op = ops[span.op]
        seconds = span.end - span.start
        yield Loose(op.name, op.stream, op.phase, op.micro_batch, seconds, max(0.0, loose[span.op]))


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """First and last of each stretch without a hole: 0, 1, 2, 5 is 0-2 and 5-5."""
    stretches = [list(group) for _, group in groupby(enumerate(numbers), key=lambda place: place[1] - place[0])]
    return [[stretch[0][1], stretch[-1][1]] for stretch in stretches]
