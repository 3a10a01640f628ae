"""The least rate of a resource at which a step is at most so much longer than another: a search over simulations.

That a faster resource never makes a longer step is not quite true (in-order streams on shared links have anomalies), so
a rate is only ever called enough after it was played. The answer is within `FINE` of the largest rate that was found to
be too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, programs, resupplied, simulate
from zerosim.step import Step
from zerosim.studies.reason import waiting
from zerosim.studies.resource import FIRST, Resource

SLOWEST = 1e6  # bytes/s, the least rate that a topology may have
FINE = 1.03  # between a rate that is enough and one that is not; a choice
STRIDE = 8.0  # from a rate that is enough to the next one below it that is tried


class Played(NamedTuple):
    """The step at a rate."""

    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Requirement:
    """`required` is None where no rate is enough; `seconds` is the step there, or the step with a free resource.

    `today` is the scenario's own rate (None where nobody knows it), `limited_by` what the step waits for where no rate
    is enough, and `curve` what was played, by rate.
    """

    resource: str
    today: float | None
    required: float | None
    slowdown: float
    baseline_seconds: float
    seconds: float
    limited_by: str
    curve: tuple[Played, ...]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "curve": [list(point) for point in self.curve]}


class Trials:
    """A resource tried at many speeds; each is played once, by programs that are built once."""

    def __init__(self, scenario: Scenario, path: str, steps: tuple[Step, ...] | None = None) -> None:
        self.resource = Resource.of(scenario, path)
        self.steps = programs(scenario) if steps is None else steps  # the same at any rate
        self.seconds: dict[float, float] = {}

    def played(self, rate: float) -> Simulation:
        """The whole step at a speed."""
        simulation = simulate(self.resource.at(rate), self.steps)
        self.seconds[rate] = simulation.makespan
        return simulation

    def step(self, rate: float) -> Played:
        """How long it takes."""
        if rate not in self.seconds:
            self.played(rate)
        return Played(rate, self.seconds[rate])

    def least(self, target: float, most: float) -> Played | None:
        """The least speed at which the step takes at most `target`; None where not even `most` is enough. What was
        played before is made use of."""
        if self.step(most).seconds > target:
            return None
        few, enough = self._known(target, self.step(most))
        return _search(self.step, target, enough, self.resource.today or FIRST, few, self.resource.floor())

    def _known(self, target: float, enough: Played) -> tuple[Played | None, Played]:
        """The highest speed that is too little, and the least above that, as far as these are known."""
        known = [Played(rate, seconds) for rate, seconds in sorted(self.seconds.items()) if rate < enough.rate]
        few = next((point for point in reversed(known) if point.seconds > target), None)
        above = [point for point in known if few is None or point.rate > few.rate]
        return few, above[0] if above else enough

    def curve(self) -> tuple[Played, ...]:
        """What was played, by the value that stands in the topology."""
        turned = self.resource.kind.scale.turned
        return tuple(sorted(Played(turned(rate), seconds) for rate, seconds in self.seconds.items()))


def least_rate(scenario: Scenario, path: str, slowdown: float, baseline_seconds: float) -> Requirement:
    """The least rate at `path` at which the step takes at most `1 + slowdown` times `baseline_seconds`."""
    trials = Trials(scenario, path)
    turned, today = trials.resource.kind.scale.turned, trials.resource.today
    most, why = trials.resource.most()
    found = trials.least(baseline_seconds * (1 + slowdown), most)
    return Requirement(
        resource=path,
        today=None if today is None else turned(today),
        required=None if found is None else turned(found.rate),
        slowdown=slowdown,
        baseline_seconds=baseline_seconds,
        seconds=(found or trials.step(most)).seconds,
        limited_by=limit(trials.played(most), why) if found is None else "",
        curve=trials.curve(),
    )


def free(resource: Resource, fastest: Simulation, why: str) -> Simulation:
    """The step with a resource that takes no time of it: `fastest`, at the highest rate that there may be, and where
    another part bounds that (`why`) without its share in the time."""
    if not why or not resource.kind.resources:
        return fastest
    freed = resupplied(fastest, resource.freed(fastest.supply))
    return min(freed, fastest, key=lambda played: played.makespan)


def limit(played: Simulation, why: str) -> str:
    """What a step waits for at the highest rate that there can be, and why there is no higher one."""
    return "; ".join(filter(None, (waiting(played.summary()), why)))


def _search(
    step: Callable[[float], Played],
    target: float,
    enough: Played,
    first: float,
    few: Played | None = None,
    least: float = SLOWEST,
) -> Played:
    """The least rate known to be enough, from one that is, and maybe one that is not."""
    before = math.inf
    rate = first if first * FINE < enough.rate else max(least, enough.rate / STRIDE)
    if few is not None:
        rate, before = _next(few, enough, target, before, least)
    while enough.rate > (least if few is None else FINE * few.rate):
        played = step(rate)
        if played.seconds > target:
            few = played
        else:
            enough = played
        rate, before = _next(few, enough, target, before, least)
    return enough


def _next(few: Played | None, enough: Played, target: float, before: float, least: float) -> tuple[float, float]:
    """The rate to try next, and the width of what is left between, by which the next call sees whether that shrinks.

    A step that waits for the resource takes a + b / rate: below the answer that is nearly so, above it flat. So a line
    in 1 / rate is tried, and the middle (of the logarithms) where the last line did not halve what is left.
    """
    if few is None:
        return max(least, enough.rate / STRIDE), before
    if enough.rate > STRIDE**2 * few.rate:  # where all of the step waits, it is as many times shorter as this is faster
        return few.rate * min(max(few.seconds / target, 2.0), STRIDE**2), before
    width = math.log(enough.rate / few.rate)
    middle = math.sqrt(few.rate * enough.rate)
    if width > before / 2:
        return middle, width
    share = (few.seconds - target) / (few.seconds - enough.seconds)
    line = 1 / (1 / few.rate + share * (1 / enough.rate - 1 / few.rate))
    floor, ceiling = few.rate * math.sqrt(FINE), enough.rate / math.sqrt(FINE)
    return min(max(line, floor), ceiling), width
