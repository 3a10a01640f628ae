"""The best settings of a scenario's strategy, at its global batch and within the memory of every tier.

What is best is played, never guessed; what was not played is proved to be no better, where the search was exhaustive,
and `Tuned` says whether it was. The result depends on what is asked alone, not on how many processes answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.simulation import facts
from zerosim.spec.changes import Change
from zerosim.spec.sweep import Sweep
from zerosim.studies.journal import kept
from zerosim.studies.sweep_questions import digest
from zerosim.studies.tuning.asked import Asked, space_of
from zerosim.studies.tuning.asking import Asking, Told
from zerosim.studies.tuning.knob import Knob, LeftOut, Value
from zerosim.studies.tuning.search import Search, Seen
from zerosim.studies.tuning.space import Point, Space
from zerosim.studies.tuning.wide import around_best, blockwise, optuna_search
from zerosim.studies.tuning.written import Config, config_of

FLAT = 0.01  # share of the step by which a knob may change it and yet change nothing worth a thought


class Curve(NamedTuple):
    """A knob around the best, the others fixed: each value with the step, None where it does not fit or is refused."""

    knob: str
    baseline: Value
    best: Value
    points: tuple[tuple[Value, float | None], ...]

    @property
    def span(self) -> float:
        """By what share of the shortest step the longest is longer."""
        seconds = [each for _, each in self.points if each is not None]
        return max(seconds) / min(seconds) - 1 if seconds else 0.0

    @property
    def flat(self) -> bool:
        """Whether all values that fit are as good, or nearly; there are two or more."""
        return self.span < FLAT and sum(seconds is not None for _, seconds in self.points) > 1

    def as_json(self) -> dict[str, Any]:
        listed = [list(point) for point in self.points]
        return {**self._asdict(), "points": listed, "span": self.span, "flat": self.flat}


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found. `best` is None where no point fits; `size` points make the space, of which `seen` were looked at.

    `exhaustive`: every point was played or is proved to be no better. `converged`: a search block by block ended by
    itself, not by its limit. `needed`: the changes that make the scenario the best, without those that change nothing.
    """

    title: str
    space: Space
    left_out: tuple[LeftOut, ...]
    baseline: Seen
    best: Seen | None
    values: Mapping[str, Value]
    needed: tuple[Change, ...]
    seen: tuple[Seen, ...]
    front: tuple[Seen, ...]
    curves: tuple[Curve, ...]
    size: int | None
    exhaustive: bool
    converged: bool
    pareto: bool
    optimizer: str
    seed: int
    limit: int
    tokens: float
    config: Config | None

    @property
    def counts(self) -> Mapping[str, int]:
        """Points by what became of them."""
        return Counter(each.outcome for each in self.seen)

    def as_json(self) -> dict[str, Any]:
        counts, best = self.counts, self.best
        return {
            "scenario": self.title,
            "baseline_seconds": self.baseline.seconds,
            "baseline_fits": self.baseline.fits,
            "baseline_unfit": self.baseline.unfit,
            "baseline_gpu_peak_bytes": self.baseline.gpu_bytes,
            "best_seconds": best.seconds if best else None,
            "best": dict(self.values),
            "changed": {name: value for name, value in self.values.items() if value != self._before[name]},
            "best_gpu_peak_bytes": best.gpu_bytes if best else None,
            "tokens": self.tokens,
            "before": {name: self._before[name] for name in self.values},
            "points": self.size,
            "looked_at": len(self.seen),
            "evaluated": counts["played"],
            "pruned": counts["pruned"],
            "alike": counts["alike"],
            "too_large": counts["too large"],
            "refused": counts["refused"],
            "exhaustive": self.exhaustive,
            "converged": self.converged,
            "optimizer": self.optimizer,
            "seed": self.seed,
            "history": [self._row(each) for each in self.seen],
            "pareto": [self._row(each) for each in self.front],
            "curves": [curve.as_json() for curve in self.curves],
            "not_searched": [each._asdict() for each in self.left_out],
            "config": self.config.data if self.config else {},
        }

    @property
    def _before(self) -> Mapping[str, Value]:
        return {knob.name: knob.baseline for knob in self.space.knobs}

    def _row(self, each: Seen) -> dict[str, Any]:
        return {
            "knobs": self.space.named(each.point),
            "outcome": each.outcome,
            "seconds": each.seconds,
            "bound_seconds": None if each.why else each.bound,
            "gpu_peak_bytes": None if each.why else each.gpu_bytes,
            "unfit": each.unfit,
            "reason": each.why,
        }


def tune(
    asked: Asked,
    processes: int = 1,
    journal: Path | None = None,
    version: str = "",
    told: Told = lambda done, of: None,
    keep: Callable[[Tuned], None] = lambda tuned: None,
) -> Tuned:
    """The best point of the space. `version` is whose answers in a journal are good; `keep` has the result before the
    journal is removed."""
    scenario = asked.looking.scenario(())
    space, left_out = space_of(asked, scenario)
    with kept(journal) as known:
        asking = Asking(asked.looking, known, _digest(asked, scenario, version), processes, told)
        search = Search(space, asking, asked.pareto)
        extent = _searched(asked, search)
        if asking.lost:
            extent = Extent(exhaustive=False, converged=False)
        tuned = _tuned(asked, scenario, search, left_out, extent)
        keep(tuned)
        known.complete = not asking.lost
        return tuned


def _digest(asked: Asked, scenario: Scenario, version: str) -> str:
    """Of all that answers depend on beside the point: who answers, the scenario with its files, and its own changes."""
    sweep = Sweep(scenario.title, scenario.source, asked.document, asked.base, (), always=asked.changes)
    return digest(sweep, json.dumps([version, [[change.path, change.value] for change in asked.changes]]))


class Extent(NamedTuple):
    """Whether a search left nothing out, and whether it came to its own end."""

    exhaustive: bool
    converged: bool = True


def _searched(asked: Asked, search: Search) -> Extent:
    space = search.space
    _play_baseline(search)
    if asked.optimizer == "optuna":
        optuna_search(search, asked.trials, asked.seed)
        around_best(search)
        return Extent(exhaustive=False)
    if space.size() <= asked.limit:
        search.exact(space.points())
        return Extent(exhaustive=True)
    converged = blockwise(search, asked.limit)
    if search.pareto:  # whatever was looked at from other blocks
        search.exact(list(search.seen))
    return Extent(exhaustive=False, converged=converged)


def _play_baseline(search: Search) -> None:
    """The scenario itself, whether it fits or not: what the best is compared with."""
    baseline = search.space.baseline
    search.look([baseline])
    search.play_anyway(baseline)
    if search.seen[baseline].why:
        raise InputError([Problem("the scenario", "", search.seen[baseline].why, "one that can be played")])


def _curves(search: Search) -> tuple[Curve, ...]:
    """Each knob around the best, the others fixed; what does not fit, or is refused, has no seconds.

    Points that a search left out are played for them too; one that is better, or as good and nearer to the baseline,
    is the best from then on, and they are drawn around that.
    """
    around: dict[str, list[Point]] = {}
    best = None
    while search.best != best and (best := search.best):
        around = {knob.name: search.space.around(best.point, [knob.name]) for knob in search.space.active(best.point)}
        points = [point for points in around.values() for point in points]
        search.look(points)
        search.play(points)
    if best is None:
        return ()
    return tuple(_curve(search, best, place, around.get(knob.name, ())) for place, knob in enumerate(search.space.knobs)
                 if len(around.get(knob.name, ())) > 1)  # fmt: skip


def _curve(search: Search, best: Seen, place: int, points: Sequence[Point]) -> Curve:
    knob = search.space.knobs[place]
    ordered = sorted(points, key=lambda point: _place(knob, point[place]))
    shown = tuple((point[place], _room(search.seen[point])) for point in ordered)
    return Curve(knob.name, knob.baseline, best.point[place], shown)


def _place(knob: Knob, value: Value) -> float:
    """In the order of the values; a number that is none of them where it belongs."""
    if value in knob.values:
        return knob.values.index(value)
    lower = [other for other in knob.values if isinstance(other, int | float) and isinstance(value, int | float)
             and other < value]  # fmt: skip
    return len(lower) - 0.5


def _room(each: Seen) -> float | None:
    return each.seconds if each.fits else None


def _tuned(asked: Asked, scenario: Scenario, search: Search, left_out: tuple[LeftOut, ...], extent: Extent) -> Tuned:
    curves = _curves(search)
    space, best = search.space, search.best
    changes = _needed(asked, space.changes(best.point)) if best else ()
    there = asked.looking.scenario(changes)
    return Tuned(
        title=scenario.title,
        space=space,
        left_out=left_out,
        baseline=search.seen[space.baseline],
        best=best,
        values={knob.name: knob.read(there) for knob in space.active(best.point)} if best else {},
        needed=changes,
        seen=tuple(search.seen.values()),
        front=tuple(search.front) if asked.pareto else (),
        curves=curves,
        size=space.size() if asked.optimizer == "grid" else None,
        exhaustive=extent.exhaustive,
        converged=extent.converged,
        pareto=asked.pareto,
        optimizer=asked.optimizer,
        seed=asked.seed,
        limit=asked.limit,
        tokens=facts(scenario).tokens,
        config=config_of(asked, there, changes) if best else None,
    )


def _needed(asked: Asked, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Those changes without which the scenario would be another."""
    read, needed = asked.looking.scenario, list(changes)
    wanted = read(changes)
    for change in changes:
        rest = [other for other in needed if other is not change]
        try:
            other = read(rest)
        except InputError:  # a batch of which half is changed
            continue
        if (other.strategy, other.training) == (wanted.strategy, wanted.training):
            needed = rest
    return tuple(needed)
