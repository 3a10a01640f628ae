"""Errors by group: how many, the median and the ninetieth percentile of their size, and the median with its sign.

The unmarked groups are of the step time; other metrics have groups of their own, named `metric ...`. Whether a run
fits is right or wrong and has no percentile. Rule: nothing depends on the order of the lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from zerosim.catalog import all_constants
from zerosim.studies.validation.lines import FITS, STEP, Line, is_memory

ALL, MEMORY = "all", "memory"
FITTED, NOT_FITTED = "fitted to it", "not fitted to it"
ALIKE = 2  # of the worst: of a study's strategy; a choice
BY = ("quality", "study", "strategy", "gpu")


class Statistics(NamedTuple):
    """Of errors: sizes, and `bias`, the median with its sign."""

    rows: int
    median: float
    p90: float
    bias: float
    mean: float


class Group(NamedTuple):
    """`shipped`: of the same lines as the catalogue alone has them, where that is another answer; `calibrated`: how
    many lines a row calibrates then."""

    name: str
    found: Statistics
    shipped: Statistics | None = None
    calibrated: int = 0

    def as_json(self) -> dict[str, Any]:
        """The contract's keys first."""
        told: dict[str, Any] = {"group": self.name, **self.found._asdict()}
        if self.shipped is not None:
            told |= {f"as_shipped_{name}": value for name, value in self.shipped._asdict().items() if name != "rows"}
            told["calibrated_rows"] = self.calibrated
        return told


class Coverage(NamedTuple):
    """Of so many measured steps with a band, so many are inside of it."""

    group: str
    rows: int
    inside: int


class Fitting(NamedTuple):
    """Who was right on whether a run fits; `close` are those within a few percent of the limit, which do not count."""

    ran_right: tuple[str, ...]
    ran_wrong: tuple[str, ...]
    out_right: tuple[str, ...]
    out_wrong: tuple[str, ...]
    close: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Counts, and who is wrong or close."""
        right, wrong = len(self.ran_right) + len(self.out_right), len(self.ran_wrong) + len(self.out_wrong)
        return {
            "rows": right + wrong + len(self.close),
            "right": right,
            "wrong": wrong,
            "ran": len(self.ran_right) + len(self.ran_wrong),
            "ran_wrong": list(self.ran_wrong),
            "out_of_memory": len(self.out_right) + len(self.out_wrong),
            "out_of_memory_wrong": list(self.out_wrong),
            "close": list(self.close),
        }


def statistics(errors: Iterable[float]) -> Statistics:
    """Of at least one error; percentiles are interpolated."""
    signed = np.sort(np.fromiter(errors, dtype=np.float64))
    sizes = np.sort(np.abs(signed))
    median, p90 = np.quantile(sizes, (0.5, 0.9))
    return Statistics(len(sizes), float(median), float(p90), float(np.median(signed)), float(sizes.mean()))


def groups(lines: Sequence[Line]) -> tuple[Group, ...]:
    """All groups that have a line."""
    steps = [line for line in lines if line.metric == STEP]
    rest = [line for line in lines if line.metric not in (STEP, FITS)]
    found = list(_of_steps(steps))
    found += _by(rest, "metric", _family)
    for family in sorted({_family(line) for line in rest}):
        of = [line for line in rest if _family(line) == family]
        found += _by(of, f"metric {family}, quality", lambda line: line.labels.quality)
    return tuple(_group(name, members) for name, members in found if members)


def coverage(lines: Sequence[Line]) -> tuple[Coverage, ...]:
    """Of the groups of the step time, where bands were asked for."""
    banded = [line for line in lines if line.band is not None]
    return tuple(
        Coverage(name, len(members), sum(line.inside for line in members))
        for name, members in _of_steps(banded)
        if members
    )


def _of_steps(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    yield ALL, list(lines)
    yield from _by(
        lines, "constants", lambda line: "fitted to it" if line.labels.study in fitted() else "not fitted to it"
    )
    for what in BY:
        yield from _by(lines, what, attrgetter(f"labels.{what}"))


@cache
def fitted() -> frozenset[str]:
    """Studies to whose rows some constant of the catalogue was fitted, wholly or in part: its sources say so."""
    sources = {source for entry in all_constants().values() if entry.grade in "FD" for source in entry.source}
    return frozenset(source.lower() for source in sources)


def _by(lines: Sequence[Line], what: str, of: Callable[[Line], str]) -> Iterator[tuple[str, list[Line]]]:
    for value in sorted({of(line) for line in lines}):
        yield f"{what} {value}", [line for line in lines if of(line) == value]


def _family(line: Line) -> str:
    return MEMORY if is_memory(line.metric) else line.metric


def _group(name: str, lines: Sequence[Line]) -> Group:
    found = statistics(line.error for line in lines if line.error is not None)
    if all(line.shipped is None for line in lines):
        return Group(name, found)
    shipped = statistics(line.shipped_error for line in lines if line.shipped_error is not None)
    return Group(name, found, shipped, sum(line.calibrated for line in lines))


def fitting(lines: Sequence[Line]) -> Fitting:
    """Of the lines that say whether a run fits."""
    asked = sorted((line for line in lines if line.metric == FITS), key=lambda line: line.id)

    def those(ran: bool, right: bool) -> tuple[str, ...]:
        return tuple(each.id for each in asked if not each.close and (each.measured, each.right) == (ran, right))

    close = tuple(line.id for line in asked if line.close)
    return Fitting(those(True, True), those(True, False), those(False, True), those(False, False), close)


def worst(lines: Sequence[Line], count: int) -> tuple[Line, ...]:
    """The largest errors, of step times first, then of memory; a few of a study's strategy
    stand for all that are alike."""
    wrong = [line for line in lines if line.error]
    ranked = sorted(wrong, key=lambda line: (-abs(line.error or 0.0), line.id, line.metric))
    steps = [line for line in ranked if line.metric == STEP]
    memory = [line for line in ranked if _family(line) == MEMORY]
    return (*_some_of_each(steps)[:count], *_some_of_each(memory)[:count])


def _some_of_each(ranked: Sequence[Line]) -> list[Line]:
    """The first few of each study and strategy."""
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for line in ranked:
        place = (line.labels.study, line.labels.strategy)
        seen[place] += 1
        if seen[place] <= ALIKE:
            kept.append(line)
    return kept
