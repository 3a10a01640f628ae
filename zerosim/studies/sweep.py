"""A sweep played: one row a point, in the order of the points, whichever process answered first.

A row is the labels of the axes and the whole summary, flattened. What is wrong with a point is told in its row. Points
that are alike after their changes are played once; answers go to a journal, so that a sweep that was killed goes on.
The least rate of a resource, where the sweep asks for it, is one more question a point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.document import shown
from zerosim.spec.sweep import Point, Sweep
from zerosim.studies.cluster import Cluster
from zerosim.studies.journal import Answer, Journal, kept
from zerosim.studies.processes import Lost, answers
from zerosim.studies.sweep_questions import ERROR, Answering, Question, digest, files_of
from zerosim.views import Summary

Row = dict[str, Any]
Told = Callable[[int, int], None]
SECONDS, AGAINST, SLOWDOWN = "step_seconds", "against_seconds", "slowdown"


@dataclass(frozen=True, slots=True)
class Swept:
    """`rows` of the points; `required`: labels and `Requirement.as_json()` of each search. `error` is None where all is
    well."""

    rows: tuple[Row, ...]
    required: tuple[Row, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"rows": list(self.rows), "required": list(self.required)}

    @property
    def errors(self) -> tuple[str, ...]:
        """What is wrong with rows, each once."""
        return tuple(dict.fromkeys(row[ERROR] for row in (*self.rows, *self.required) if row[ERROR]))


def sweep(
    asked: Sweep,
    processes: int = 1,
    journal: Path | None = None,
    version: str = "",
    told: Told = lambda done, of: None,
    keep: Callable[[Swept], None] = lambda swept: None,
    cluster: Cluster | None = None,
) -> Swept:
    """All rows. `told` hears how many questions are answered, of how many; `version` is whose answers are good. `keep`
    has the rows before the journal is removed: what cannot be written is not lost. With a `cluster` its workers answer,
    and no processes are started here."""
    _check(asked)
    with kept(journal) as known:
        engine = cluster.answers if cluster else partial(answers, processes=processes)
        asking = _Asking(asked, known, digest(asked, version), engine, told, {})
        points, searched = tuple(asked.points()), tuple(asked.searched())
        first = [question for point in points for question in (_row(point), *_baselines(point, asked))]
        first += [question for point in searched for question in _baselines(point, asked)]
        of = len({asking.key(question) for question in first})
        asking.ask(first, 0, of + len(searched))
        asking.ask([asking.search(point) for point in searched], of, of + len(searched))
        swept = Swept(tuple(map(asking.as_row, points)), tuple(map(asking.as_required, searched)))
        keep(swept)
        known.complete = not asking.lost
        return swept


def _row(point: Point) -> Question:
    return Question.of("row", point.changes)


def _baselines(point: Point, asked: Sweep) -> list[Question]:
    """What a point is compared with, if it is."""
    return [_baseline(point, asked)] if asked.against else []


def _baseline(point: Point, asked: Sweep) -> Question:
    return Question.of("seconds", (*point.changes, *(asked.against.changes if asked.against else ())))


class _Asking(NamedTuple):
    """The answers of a sweep, known or to be had. `lost` are those that a process which ended took with it: they are
    asked again next time, and so not in the journal, which is kept for them."""

    sweep: Sweep
    journal: Journal
    digest: str
    engine: Callable[[Answering, Sequence[Question]], Iterator[tuple[int, Answer | Lost]]]
    told: Told
    lost: dict[str, Answer]

    def key(self, question: Question) -> str:
        return question.key(self.digest)

    def ask(self, questions: Sequence[Question], before: int, of: int) -> None:
        """Have all of them answered; `before` are answered already, `of` all in all."""
        every = {self.key(question): question for question in questions}
        new = {key: question for key, question in every.items() if key not in self.journal.known}
        keys, done = list(new), before + len(every) - len(new)
        self.told(done, of)
        ask = Answering(self.sweep.document, self.sweep.base, files_of(self.sweep))
        for number, said in self.engine(ask, list(new.values())) if new else ():
            if isinstance(said, Lost):
                self.lost[keys[number]] = {ERROR: said.why}
            else:
                self.journal.add(keys[number], said)
            done += 1
            self.told(done, of)

    def answer(self, question: Question) -> Answer:
        key = self.key(question)
        return self.lost[key] if key in self.lost else self.journal.known[key]

    def search(self, point: Point) -> Question:
        """For the least rate; where the step that it is compared with is wrong, for that once more, which says so."""
        baseline, wanted = _baseline(point, self.sweep), self.sweep.wanted
        seconds = self.answer(baseline).get(SECONDS)
        if seconds is None or wanted is None:
            return baseline
        return Question.of("rate", point.changes, wanted.resource, wanted.slowdown, seconds)

    def as_row(self, point: Point) -> Row:
        said = self.answer(_row(point))
        row = {**point.labels, ERROR: said.get(ERROR)}
        if self.sweep.against:
            other = self.answer(_baseline(point, self.sweep))
            against, wrong = other.get(SECONDS), other.get(ERROR)
            row[ERROR] = row[ERROR] or (f"{self.sweep.against.name}: {wrong}" if wrong else None)
            row[AGAINST] = against
            row[SLOWDOWN] = said[SECONDS] / against if against and SECONDS in said else None
        return _joined(row, said)

    def as_required(self, point: Point) -> Row:
        said = self.answer(self.search(point))
        return _joined({**point.labels, ERROR: said.get(ERROR)}, said)


def _joined(row: Row, said: Answer) -> Row:
    """The row's own columns first; an axis that is called as a number of the summary is that number: `nodes`."""
    return {**row, **{name: value for name, value in said.items() if name not in row}}


def _check(asked: Sweep) -> None:
    """The value that tables show is a number that rows have, as far as that is known before any is played, and no axis
    is called as a number that is not its own."""
    known = [SLOWDOWN, AGAINST] if asked.against else []
    known += [field.name for field in fields(Summary)]
    wrong = [
        Problem(asked.source, f"axes.{axis.name}", f"the name {shown(axis.name)}, which rows have", "another name")
        for axis in asked.axes
        if axis.name.partition(".")[0] in (ERROR, SLOWDOWN, AGAINST, *known)
        and any(change.path != (axis.name,) for change in axis.changes)
    ]
    head = asked.grid.value.partition(".")[0] if asked.grid else SECONDS
    if asked.grid and head not in known:
        found, expected = shown(asked.grid.value), f"a number of a row, which begins with one of {', '.join(known)}"
        wrong.append(Problem(asked.source, "table.value", found, expected, nearest(head, known)))
    if wrong:
        raise InputError(wrong)
