"""The points of a space of knobs. A point has a value for each knob; one that nothing reads has the baseline's.

Points are ordered: those that change less come first, so that of equal ones the nearest to the baseline wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from zerosim.spec.changes import Change
from zerosim.studies.tuning.knob import Block, Knob, Value
from zerosim.studies.tuning.knobs import STAGE

Point = tuple[Value, ...]
BLOCKS: tuple[Block, ...] = ("strategy", "reduction", "gathering", "optimizer")


@dataclass(frozen=True, slots=True)
class Space:
    """`stage` of ZeRO where no knob turns it; None for other strategies."""

    knobs: tuple[Knob, ...]
    stage: int | None

    @property
    def baseline(self) -> Point:
        """The scenario as it is."""
        return tuple(knob.baseline for knob in self.knobs)

    @property
    def stages(self) -> tuple[Value, ...]:
        """Of ZeRO, at some point."""
        return next((knob.values for knob in self.knobs if knob.name == STAGE), (self.stage,))

    def size(self) -> int:
        """How many points there are."""
        return sum(
            prod(len(knob.values) for knob in self.knobs if knob.name != STAGE and self._reads(knob, stage))
            for stage in self.stages
        )

    def points(self) -> list[Point]:
        """All of them."""
        return self._ordered(product(*(knob.values for knob in self.knobs)))

    def around(self, centre: Point, names: Sequence[str]) -> list[Point]:
        """Those that differ from one in these knobs at most; it is among them, whatever its values."""
        return self._ordered(
            product(*(
                (*knob.values, value) if knob.name in names else (value,)
                for knob, value in zip(self.knobs, centre, strict=True)
            ))
        )  # fmt: skip

    def blocks(self) -> list[list[str]]:
        """The names of knobs that are searched together."""
        named = [[knob.name for knob in self.knobs if knob.block == block] for block in BLOCKS]
        return [names for names in named if names]

    def canonical(self, point: Sequence[Value]) -> Point:
        """The point, with the baseline's value of what nothing reads there."""
        stage = self.stage_of(point)
        return tuple(
            value if self._reads(knob, stage) else knob.baseline
            for knob, value in zip(self.knobs, point, strict=True)
        )  # fmt: skip

    def active(self, point: Point) -> list[Knob]:
        """The knobs that do something there."""
        stage = self.stage_of(point)
        return [knob for knob in self.knobs if self._reads(knob, stage)]

    def named(self, point: Point) -> dict[str, Value]:
        """The values of what does something there."""
        stage = self.stage_of(point)
        pairs = zip(self.knobs, point, strict=True)
        return {knob.name: value for knob, value in pairs if self._reads(knob, stage)}

    def changes(self, point: Point) -> tuple[Change, ...]:
        """What makes the scenario this point."""
        stage = self.stage_of(point)
        pairs = zip(self.knobs, point, strict=True)
        return tuple(change for knob, value in pairs if self._reads(knob, stage) for change in knob.changes(value))

    def rank(self, point: Point) -> tuple[int, tuple[int, ...]]:
        """By how much is changed, then in the order of the values."""
        changed = sum(value != knob.baseline for knob, value in zip(self.knobs, point, strict=True))
        return changed, tuple(knob.values.index(value) if value in knob.values else 0
                              for knob, value in zip(self.knobs, point, strict=True))  # fmt: skip

    def _ordered(self, points: Iterator[Point]) -> list[Point]:
        return sorted(set(map(self.canonical, points)), key=self.rank)

    def stage_of(self, point: Sequence[Value]) -> Value:
        """The stage of ZeRO there."""
        pairs = zip(self.knobs, point, strict=True)
        return next((value for knob, value in pairs if knob.name == STAGE), self.stage)

    def _reads(self, knob: Knob, stage: Value) -> bool:
        return not knob.stages or str(stage) in knob.stages


def as_point(space: Space, named: Mapping[str, Value]) -> Point:
    """The point with these values, and the baseline's of the others."""
    return space.canonical([named.get(knob.name, knob.baseline) for knob in space.knobs])
