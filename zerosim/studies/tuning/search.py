"""Which points are played: best-first branch and bound (Land & Doig 1960) on proved bounds.

All points of a set are looked at; then those that may win are played in the order of their least time, in rounds,
until the least time of the next one is not below the best that was found. So the best of the set is exact, and few more
points are played than any search with these bounds must play: those whose bound is below the optimum. Rounds are of the
same size however many processes there are, so that the same points are played. A point whose program, prices and memory
are those of another is not played again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from zerosim.studies.journal import Answer
from zerosim.studies.tuning.asking import Asking
from zerosim.studies.tuning.knob import Value
from zerosim.studies.tuning.looking import ERROR, Question
from zerosim.studies.tuning.space import Point, Space

FIRST_ROUND, LARGEST_ROUND = 4, 64
Outcome = Literal["played", "alike", "pruned", "too large", "refused"]


class Seen(NamedTuple):
    """What is known of a point. `seconds` and `unfit` (the tier without room) are of the play, if it was played, or
    another that is alike; `why` is the reader's reason to refuse it."""

    point: Point
    bound: float = 0.0
    gpu_bytes: float = 0.0
    program: str = ""
    why: str = ""
    seconds: float | None = None
    unfit: str | None = None
    alike: bool = False

    @property
    def fits(self) -> bool:
        """Whether it was found to have room."""
        return self.unfit == ""

    @property
    def outcome(self) -> Outcome:
        if self.why:
            return "refused"
        if self.seconds is None:
            return "too large" if self.unfit else "pruned"
        return "alike" if self.alike else "played"


@dataclass(slots=True)
class Search:
    """All that was seen, in the order in which it was looked at. With `pareto`, what wins is shorter or smaller."""

    space: Space
    asking: Asking
    pareto: bool = False
    seen: dict[Point, Seen] = field(default_factory=dict)
    plays: dict[str, Answer] = field(default_factory=dict)  # by program

    @property
    def best(self) -> Seen | None:
        """The shortest step that fits; of equal ones the nearest to the baseline."""
        return min(self._fitting(), key=lambda each: (each.seconds, self.space.rank(each.point)), default=None)

    @property
    def front(self) -> list[Seen]:
        """Those that fit and than which none is both as short and as small, by time."""
        front: list[Seen] = []
        order = sorted(self._fitting(), key=lambda each: (each.seconds, each.gpu_bytes, self.space.rank(each.point)))
        for each in order:
            if not front or each.gpu_bytes < front[-1].gpu_bytes:
                front.append(each)
        return front

    def promising(self, stage: Value) -> Point | None:
        """Of the points of a stage that have room, as far as that is known, the one with the shortest or least step."""
        near = [each for each in self.seen.values() if not each.why and not each.unfit
                and self.space.stage_of(each.point) == stage]  # fmt: skip
        order = sorted(near, key=lambda each: (each.seconds or each.bound, self.space.rank(each.point)))
        return order[0].point if order else None

    def exact(self, points: Sequence[Point]) -> None:
        """Play what is needed to know the best of the points."""
        self.look(points)
        size = FIRST_ROUND
        while waiting := self._may_win(points):
            self.play([each.point for each in _distinct(waiting, size)])
            size = min(2 * size, LARGEST_ROUND)

    def look(self, points: Sequence[Point]) -> None:
        """Look at those that were not looked at."""
        new = [point for point in dict.fromkeys(points) if point not in self.seen]
        said = self.asking.ask([Question("look", self.space.changes(point)) for point in new])
        for point, answer in zip(new, said, strict=True):
            self.seen[point] = self._seen(point, answer)

    def play(self, points: Sequence[Point]) -> None:
        """Play those that were looked at, fit as far as that is known, and were not played."""
        chosen = [self.seen[point] for point in points]
        new = list({each.program: each for each in chosen if _open(each) and each.program not in self.plays}.values())
        said = self.asking.ask([Question("play", self.space.changes(each.point)) for each in new])
        for each, answer in zip(new, said, strict=True):
            self.plays[each.program] = answer
            self.seen[each.point] = _after(each, answer)
        for point, each in self.seen.items():
            if _open(each) and each.program in self.plays:
                self.seen[point] = _after(each, self.plays[each.program])._replace(alike=True)

    def play_anyway(self, point: Point) -> None:
        """Play a point that was looked at, even where it has no room."""
        each = self.seen[point]
        if not each.why:
            (answer,) = self.asking.ask([Question("play", self.space.changes(point))])
            self.seen[point] = _after(each, answer)
            if each.program:
                self.plays[each.program] = answer

    def _seen(self, point: Point, answer: Answer) -> Seen:
        if ERROR in answer:
            return Seen(point, why=answer[ERROR])
        small = next(iter(answer["too_small"]), None)
        return Seen(
            point, answer["bound_seconds"], answer["gpu_bytes"], "" if small else answer["program"], unfit=small
        )

    def _fitting(self) -> Iterator[Seen]:
        return (each for each in self.seen.values() if each.seconds is not None and each.fits)

    def _may_win(self, points: Sequence[Point]) -> list[Seen]:
        """Those that were not played and that no played one rules out, least times first."""
        rivals = self.front if self.pareto else [self.best] if self.best else []
        waiting = [each for point in points if _open(each := self.seen[point])]
        won = [each for each in waiting if not any(self._beats(rival, each) for rival in rivals)]
        return sorted(won, key=lambda each: (each.bound, self.space.rank(each.point)))

    def _beats(self, rival: Seen, each: Seen) -> bool:
        """Whether `each`, however it is played, is no better than a point that was played."""
        larger = not self.pareto or rival.gpu_bytes <= each.gpu_bytes
        return rival.seconds is not None and rival.seconds <= each.bound and larger


def _open(each: Seen) -> bool:
    """Neither refused, nor too large, nor played."""
    return not each.why and each.unfit is None and each.seconds is None


def _after(each: Seen, answer: Answer) -> Seen:
    if ERROR in answer:
        return each._replace(why=answer[ERROR])
    return each._replace(seconds=answer["seconds"], unfit=answer["unfit"])


def _distinct(waiting: Sequence[Seen], most: int) -> list[Seen]:
    """The first of each program, so many of them."""
    first: dict[str, Seen] = {}
    for each in waiting:
        first.setdefault(each.program, each)
    return list(first.values())[:most]
