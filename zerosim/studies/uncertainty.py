"""A range instead of a number: the step is played again and again, each time with other values of what is uncertain.

The graded figures (`uncertain`, `uncertain_machine`) are drawn with a seed, log-normally around the catalogue's values,
in a Latin hypercube (McKay et al. 1979), which places the samples of each figure evenly. What a figure draws hangs on
the seed, the number of samples and its name alone, so that two scenarios are played with the same draws of what they
share (common random numbers): a comparison is of the scenarios, not of the dice. Programs are built once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zerosim.catalog import reading, using
from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, facts, programs, simulate
from zerosim.studies.uncertain import Figure, drawn_constants, figures_of_constants, weakest
from zerosim.studies.uncertain_machine import drawn_machine, figures_of_machine
from zerosim.views import Facts, breakdown
from zerosim.views.running import Bill, bill

SAMPLES, SEED = 64, 0
DRIVERS = 3
CHANCE = 3.0  # times 1 / sqrt(samples): what is left of a rank correlation by chance among some tens of figures

Numbers = NDArray[np.float64]


class Interval(NamedTuple):
    """Eight of ten samples lie between `p10` and `p90`."""

    p10: float
    p50: float
    p90: float


class Driver(NamedTuple):
    """A figure on which an answer hangs: the rank correlation of the two."""

    figure: Figure
    correlation: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """The samples of a scenario's step; `draws`: of what they used, standard normal."""

    seed: int
    seconds: tuple[float, ...]
    tokens: float  # of a step
    draws: Mapping[Figure, tuple[float, ...]]
    bills: tuple[Bill, ...] = ()  # of each sample, where cost or energy is known

    @property
    def interval(self) -> Interval:
        """Of the seconds of a step."""
        return _interval(self.seconds)

    @property
    def tokens_per_second(self) -> Interval:
        return _interval([self.tokens / seconds for seconds in self.seconds])

    def as_json(self) -> dict[str, Any]:
        """What `run --json` has under `range`."""
        return {
            "samples": len(self.seconds),
            "seed": self.seed,
            "step_seconds": self.interval._asdict(),
            "tokens_per_second": self.tokens_per_second._asdict(),
            **self._bought(),
            "drivers": [_plain(driver) for driver in drivers(self.seconds, self.draws)],
        }

    def _bought(self) -> dict[str, Any]:
        """Of tokens for money and energy, as far as these are known."""
        found: dict[str, Any] = {}
        costs = [bill.cost for bill in self.bills if bill.cost]
        energies = [bill.energy for bill in self.bills if bill.energy]
        if costs:
            found["tokens_per_currency"] = _interval([cost.tokens_per_currency for cost in costs])._asdict()
            found["currency"] = costs[0].currency
        if energies:
            found["tokens_per_joule"] = _interval([energy.tokens_per_joule for energy in energies])._asdict()
        return found


@dataclass(frozen=True, slots=True)
class Compared:
    """Steps of one scenario beside those of another with the same draws: `longer`, as shares of the other's."""

    longer: tuple[float, ...]
    draws: Mapping[Figure, tuple[float, ...]]

    @property
    def interval(self) -> Interval:
        """0.18 is 18 % slower; -0.05 takes 5 % less time."""
        return _interval(self.longer)

    def as_json(self) -> dict[str, Any]:
        """What `compare --json` has under `range.slower_than_baseline`."""
        found = [_plain(driver) for driver in drivers(self.longer, self.draws)]
        return {**self.interval._asdict(), "drivers": found}


def interval(scenario: Scenario, samples: int = SAMPLES, seed: int = SEED) -> Interval:
    """Of the seconds of a step."""
    return sample(scenario, samples, seed).interval


def sample(
    scenario: Scenario,
    samples: int = SAMPLES,
    seed: int = SEED,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Sampled:
    """Play a step `samples` times; `told` hears how many are done."""
    steps, calibration = programs(scenario), scenario.calibration
    parts, devices = figures_of_constants(), figures_of_machine(scenario.machine, calibration)
    names = sorted({figure.name for figure in (*parts.values(), *devices)})
    draws = {name: draw(name, samples, seed).tolist() for name in names}
    known = facts(scenario)
    seconds, bills, read = [], list[Bill](), set[str]()
    for number in range(samples):
        drawn = {name: values[number] for name, values in draws.items()}
        topology = drawn_machine(scenario.topology, drawn, calibration)
        whole = drawn_machine(scenario.machine, drawn, calibration) if calibration else scenario.machine
        asked = dataclasses.replace(scenario, topology=topology, machine=whole)
        with using(drawn_constants(drawn)), reading() as paths:
            played = simulate(asked, steps)
        seconds.append(played.makespan)
        bills += _bill(played, known)
        read |= paths
        told(number + 1, samples)
    used = weakest([*(parts[path] for path in sorted(read & parts.keys())), *devices])
    kept = {figure: tuple(draws[figure.name]) for figure in used.values() if figure.sigma}
    return Sampled(seed, tuple(seconds), known.tokens, kept, tuple(bills))


def _bill(played: Simulation, known: Facts) -> Iterator[Bill]:
    """Of a sample, where anything is known; how much of it is spent computing is asked only where that matters."""
    running, seconds = known.running, played.makespan
    computing = breakdown(played).compute / seconds if running.uneven and seconds else 1.0
    if running.currency or running.computing is not None:
        yield bill(running, seconds, computing, known.tokens)


def compared(other: Sampled, baseline: Sampled) -> Compared:
    """By how much the steps of `other` are longer, sample by sample; both have the same seed and number of samples."""
    longer = tuple(a / b - 1 for a, b in zip(other.seconds, baseline.seconds, strict=True))
    return Compared(longer, {**baseline.draws, **other.draws})


def draw(name: str, samples: int, seed: int) -> Numbers:
    """Standard normal, one in each of `samples` equally likely ranges, in an order of its own."""
    named = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    random = np.random.Generator(np.random.PCG64([seed, named]))
    levels = (random.permutation(samples) + random.uniform(1e-9, 1, samples)) / samples
    return np.array([NormalDist().inv_cdf(min(level, 1 - 1e-12)) for level in levels.tolist()])


def drivers(
    answers: Sequence[float], draws: Mapping[Figure, Sequence[float]], most: int = DRIVERS
) -> tuple[Driver, ...]:
    """The figures that matter most, one after the other: each is the one that goes best with what those before it leave
    unexplained, until what is left may be chance."""
    ranked = {figure: _ranks(drawn) for figure, drawn in draws.items()}
    whole = _ranks(answers)
    left, found = whole, list[Driver]()
    while len(found) < most and ranked:
        going = {figure: _correlation(ranks, left) for figure, ranks in ranked.items()}
        best = max(going, key=lambda figure: abs(going[figure]))
        if abs(going[best]) < CHANCE / len(answers) ** 0.5:
            break
        ranks = ranked.pop(best)
        found.append(Driver(best, _correlation(ranks, whole)))
        left = left - ranks * float(ranks @ left) / float(ranks @ ranks)
    return tuple(found)


def _ranks(values: Sequence[float]) -> Numbers:
    """Places in order, around 0; equal values share the middle of theirs."""
    _, place, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count + 1) / 2
    return np.asarray(middle[place] - (len(values) - 1) / 2)


def _correlation(a: Numbers, b: Numbers) -> float:
    both = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / both if both > 1e-9 else 0.0


def _interval(values: Sequence[float]) -> Interval:
    return Interval(*(float(value) for value in np.quantile(np.asarray(values), (0.1, 0.5, 0.9))))


def _plain(driver: Driver) -> dict[str, Any]:
    name, grade, sigma = driver.figure
    return {"name": name, "grade": grade, "spread": sigma, "correlation": round(driver.correlation, 3)}
