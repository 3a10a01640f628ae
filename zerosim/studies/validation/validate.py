"""All rows predicted and held against what was measured: as shipped, or calibrated by one row of each study and GPU.

The row that calibrates is chosen before anybody looks at an error: on one node, else on the fewest GPUs; of the best
quality; of those whose step is mostly matrix products, which is what the factor is about, the middle one, for a row at
the end of a table is often there for something of its own. It is shown apart, and its times are in no statistics. Rows
that cannot be built or played are listed, never dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zerosim.spec.measured_row import Row
from zerosim.studies.processes import Lost, answers
from zerosim.studies.validation.assumptions import unread
from zerosim.studies.validation.groups import Group, coverage, fitting, groups, worst
from zerosim.studies.validation.lines import STEP, TIMES, Labels, Line, labels, lines
from zerosim.studies.validation.peers import peers
from zerosim.studies.validation.prediction import Answer, Fitted, Prediction, Question, Unplayed, answer, asked
from zerosim.studies.validation.shares import MATMUL

Told = Callable[[int, int], None]
Wanted = Callable[[Labels], bool]
Place = tuple[str, str]  # study and GPU
Candidate = tuple[Row, Prediction]
WORST = 10
MOSTLY = 0.5  # of the step: matrix products that make a row one to calibrate by; a choice
AS_SHIPPED, CALIBRATED = "as shipped", "calibrated"


class Unanswered(NamedTuple):
    """A row of which nothing can be said, and why."""

    id: str
    labels: Labels
    reason: str

    def as_json(self) -> dict[str, Any]:
        """`id` and `reason`, then what it is one of."""
        return {"id": self.id, "reason": self.reason, **self.labels._asdict()}


class Calibrating(NamedTuple):
    """The row that sets the rate of kernels for a study on a GPU. `factor`: measured / by the catalogue; None where its
    step cannot tell, which `reason` says, and all stays as shipped. `line`: its step as shipped."""

    line: Line
    factor: float | None
    reason: str = ""

    @property
    def place(self) -> Place:
        """What it calibrates."""
        return self.line.labels.study, self.line.labels.gpu

    def as_json(self) -> dict[str, Any]:
        """The row, its error as shipped, and the factor."""
        return {
            "id": self.line.id, **self.line.labels._asdict(), "measured": self.line.measured,
            "as_shipped": self.line.predicted, "as_shipped_error": self.line.error,
            "factor": self.factor, "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Validation:
    """Lines that count, in the order of the rows; rows without an answer; rows that calibrated."""

    source: str
    mode: str
    lines: tuple[Line, ...]
    unanswered: tuple[Unanswered, ...] = ()
    calibrated_by: tuple[Calibrating, ...] = ()

    @property
    def groups(self) -> tuple[Group, ...]:
        """Statistics by group."""
        return groups(self.lines)

    def as_json(self, most: int = WORST, beside: bool = False) -> dict[str, Any]:
        """The contract's keys first. `most`: how many of the worst; `beside`: other estimators, too."""
        told: dict[str, Any] = {
            "summary": [group.as_json() for group in self.groups],
            "rows": [line.as_json() for line in self.lines],
            "source": self.source,
            "mode": self.mode,
            "refused": [each.as_json() for each in self.unanswered],
            "fits": fitting(self.lines).as_json(),
            "worst": [line.as_json() for line in worst(self.lines, most)],
            "calibrated_by": [each.as_json() for each in self.calibrated_by],
            "assumptions": [{"assumption": text, "rows": rows} for text, rows in self._assumptions()],
            "coverage": [each._asdict() for each in coverage(self.lines)],
        }
        if beside:
            told["peers"] = [peer.as_json() for peer in peers(self.lines, self._shares())]
        return told

    def _assumptions(self) -> list[tuple[str, int]]:
        """What had to be assumed, of how many rows, the most frequent first."""
        counts = Counter(text for _, text in {(line.id, text) for line in self.lines for text in line.assumptions})
        return sorted(counts.items(), key=lambda each: (-each[1], each[0]))

    def _shares(self) -> Mapping[Place, float]:
        """What share of the peak the rows reach that calibrate."""
        used = (each for each in self.calibrated_by if each.factor is not None)
        return {each.place: each.line.formula_seconds / each.line.measured for each in used}


def validate(
    rows: Sequence[Row],
    source: str,
    calibrated: bool = False,
    wanted: Wanted = lambda labels: True,
    processes: int = 1,
    told: Told = lambda done, of: None,
    samples: int = 0,
) -> Validation:
    """All rows that are `wanted`, in their order; others serve only to calibrate the wanted ones, so that a row's
    number does not hang on who is asked for. `told` hears how many questions are answered, of how many. `samples`: of
    what is uncertain, for each row's band."""
    shown = [row for row in rows if wanted(labels(row))]
    if not calibrated:
        return _validation(source, shown, _answers([asked(row, samples=samples) for row in shown], processes, told))
    places = {_place(row) for row in shown}
    known = [row for row in rows if _place(row) in places]
    return _calibrated(source, known, wanted, processes, told, samples)


def _calibrated(
    source: str, rows: Sequence[Row], wanted: Wanted, processes: int, told: Told, samples: int
) -> Validation:
    """Each row twice: as shipped, and with the factor of its study and GPU."""
    most = 2 * len(rows)
    first = _answers([asked(row) for row in rows], processes, lambda done, of: told(done, most))
    chosen = calibrating(zip(rows, first, strict=True))
    fits = _answers([asked(row, fit=True) for row, _ in chosen.values()], processes)
    found = tuple(_fit(row, said, fit) for (row, said), fit in zip(chosen.values(), fits, strict=True))
    factors = {each.place: each.factor for each in found if each.factor is not None}
    kept = [place for place, row in enumerate(rows) if wanted(labels(row))]
    again = [place for place in kept if samples or _place(rows[place]) in factors]
    questions = [asked(rows[place], factors.get(_place(rows[place])), samples=samples) for place in again]
    answered = _answers(questions, processes, lambda done, of: told(len(rows) + done, len(rows) + of))
    second = dict(zip(again, answered, strict=True))
    known = [second.get(place, first[place]) for place in kept]
    return _validation(source, [rows[place] for place in kept], known, [first[place] for place in kept], found)


def _validation(
    source: str,
    rows: Sequence[Row],
    found: Sequence[Answer],
    shipped: Sequence[Answer] = (),
    calibrated_by: tuple[Calibrating, ...] = (),
) -> Validation:
    """Answers sorted out; the times of rows that calibrate are no predictions."""
    known: list[Line] = []
    unanswered: list[Unanswered] = []
    used = {each.line.id for each in calibrated_by if each.factor is not None}
    places = {each.place for each in calibrated_by if each.factor is not None}
    for row, said, before in zip(rows, found, shipped or found, strict=True):
        if isinstance(said, Prediction) and said.pairs:
            other = before if shipped and isinstance(before, Prediction) else None
            known += (
                line._replace(calibrated=_place(row) in places)
                for line in lines(row, said, other)
                if line.id not in used or line.metric not in TIMES
            )
        else:
            unanswered.append(Unanswered(row.id, labels(row), _reason(row, said)))
    mode = CALIBRATED if shipped else AS_SHIPPED
    return Validation(source, mode, tuple(known), tuple(unanswered), calibrated_by)


def calibrating(answered: Iterable[tuple[Row, Answer]]) -> dict[Place, Candidate]:
    """The row that calibrates each study on each GPU, by what it is and never by how wrong it is."""
    candidates: dict[Place, list[Candidate]] = {}
    for row, said in answered:
        if isinstance(said, Prediction) and any(pair.metric == STEP for pair in said.pairs):
            candidates.setdefault(_place(row), []).append((row, said))
    return {place: _typical(candidates[place]) for place in sorted(candidates)}


def _typical(candidates: Sequence[Candidate]) -> Candidate:
    best = min(map(_rank, candidates))
    ranked = sorted(
        (each for each in candidates if _rank(each) == best), key=lambda each: (_products(each), each[0].id)
    )
    mostly = [each for each in ranked if _products(each) >= MOSTLY] or ranked[-1:]
    return mostly[len(mostly) // 2]


def _rank(candidate: Candidate) -> tuple[bool, int, str]:
    row, said = candidate
    several = said.nodes > 1
    return several, said.gpus if several else 0, labels(row).quality


def _products(candidate: Candidate) -> float:
    return candidate[1].shares.get(MATMUL, 0.0)


def _place(row: Row) -> Place:
    of = labels(row)
    return of.study, of.gpu


def _fit(row: Row, said: Prediction, fit: Answer) -> Calibrating:
    line = next(line for line in lines(row, said) if line.metric == STEP)
    if isinstance(fit, Fitted):
        return Calibrating(line, fit.factor)
    return Calibrating(line, None, _reason(row, fit))


def _reason(row: Row, said: Answer) -> str:
    """Why there is no number; the row's name is told beside it."""
    if isinstance(said, Unplayed):
        return said.reason.replace(f"{row.id}: ", "")
    return "; ".join(("nothing measured that can be compared", *(unread(row, column) for column in row.unread)))


def _answers(questions: Sequence[Question], processes: int, told: Told = lambda done, of: None) -> list[Answer]:
    """The answers, in the order of the questions."""
    found: list[Answer] = [Unplayed("")] * len(questions)
    told(0, len(questions))
    for done, (number, said) in enumerate(answers(answer, questions, processes), 1):
        if isinstance(said, Lost):
            said = Unplayed(said.why)
        found[number] = said
        told(done, len(questions))
    return found
