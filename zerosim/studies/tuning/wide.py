"""Spaces with more points than may be looked at: block by block, or by Optuna.

Neither is exhaustive. Block by block: the knobs of a block are searched together, exactly, with the others as in the
best so far; then the next block, and again all of them until none of them finds anything. A stage of ZeRO has knobs of
its own, so that each is followed from its best point once, whatever another stage came to. What it ends at is the best
of every block around it, which need not be the best of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerosim.errors import InputError, Problem
from zerosim.studies.tuning.knob import Knob, Value, rounded
from zerosim.studies.tuning.search import Search, Seen
from zerosim.studies.tuning.space import Point, as_point

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

BATCH = 8  # trials that are asked for before their answers are told: the same with any number of processes
WORST = 1e9  # seconds of a trial that was refused


def blockwise(search: Search, limit: int) -> bool:
    """Block by block from the baseline; false where `limit` points were looked at before it came to an end."""
    first, *others = search.space.blocks()
    if not _block(search, search.space.baseline, first, limit):
        return False
    for stage in search.space.stages:
        for names in others:
            centre = search.promising(stage)
            if centre and not _block(search, centre, names, limit):
                return False
    while best := search.best:
        for names in (first, *others):
            if not _block(search, search.best.point if search.best else best.point, names, limit):
                return False
        if search.best == best:
            return True
    return True


def _block(search: Search, centre: Point, names: Sequence[str], limit: int) -> bool:
    """All points of a block around one; where these are too many those nearest to the baseline alone, and false."""
    points = search.space.around(centre, names)
    new = [point for point in points if point not in search.seen]
    room = max(0, limit - len(search.seen))
    nearest = set(new[:room])
    search.exact([point for point in points if point in search.seen or point in nearest])
    return len(new) <= room


def around_best(search: Search) -> Seen | None:
    """The best, after all its neighbours that differ in one knob were tried too, and those of any better one."""
    while best := search.best:
        for knob in search.space.active(best.point):
            search.exact(search.space.around(best.point, [knob.name]))
        if search.best == best:
            break
    return search.best


def optuna_search(search: Search, trials: int, seed: int) -> None:
    """TPE (Bergstra et al. 2011) by Optuna: time, or time and GPU memory; points without room violate a constraint."""
    study = _study(search, seed)
    for begun in range(0, trials, BATCH):
        asked = [study.ask() for _ in range(min(BATCH, trials - begun))]
        points = [as_point(search.space, _suggested(trial, search.space.knobs)) for trial in asked]
        search.look(points)
        search.play(points)
        for trial, point in zip(asked, points, strict=True):
            each = search.seen[point]
            trial.set_constraint("memory", 0.0 if each.fits else 1.0)  # above 0: not feasible
            study.tell(trial, _values(search, each))


def _values(search: Search, each: Seen) -> list[float]:
    seconds = WORST if each.why else each.bound if each.seconds is None else each.seconds
    return [seconds, each.gpu_bytes] if search.pareto else [seconds]


def _study(search: Search, seed: int) -> Study:
    try:
        import optuna
    except ImportError:
        expected = "Optuna (pip install zerosim[tune]); or --optimizer grid"
        raise InputError([Problem("--optimizer", "", '"optuna", which is not installed', expected)]) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(directions=["minimize"] * (2 if search.pareto else 1), sampler=sampler)
    study.enqueue_trial({knob.name: _choice(knob, knob.baseline) for knob in search.space.knobs})
    return study


def _suggested(trial: Trial, knobs: tuple[Knob, ...]) -> dict[str, Value]:
    """Numbers between the least and the most of a knob, in two digits, on a logarithmic scale; else its values, also
    where one of them is below 1, such as a 0 that switches off."""
    found: dict[str, Value] = {}
    for knob in knobs:
        if ends := _ends(knob):
            given = trial.suggest_float(knob.name, *ends, log=True)
            whole = isinstance(knob.baseline, int)
            found[knob.name] = knob.baseline if given == knob.baseline else rounded(given) if whole else round(given, 1)
        else:
            found[knob.name] = knob.values[int(trial.suggest_categorical(knob.name, range(len(knob.values))))]
    return found


def _ends(knob: Knob) -> tuple[float, float] | None:
    """The least and the most of a knob that takes any number between; the baseline is among its values."""
    numbers = [value for value in knob.values if isinstance(value, int | float)]
    return (float(min(numbers)), float(max(numbers))) if knob.ranged and min(numbers) >= 1 else None


def _choice(knob: Knob, value: Value) -> float | int:
    return float(value) if _ends(knob) and isinstance(value, int | float) else knob.values.index(value)
