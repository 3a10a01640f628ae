"""A sweep: one scenario asked many times, each time with other changes.

An axis is a name and its choices; a choice is a label and the changes that it makes. The grid is the product of the
axes, the last one fastest; points given one by one follow it. Values only: nothing is read, played or shown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from zerosim.spec.changes import Change
from zerosim.spec.document import Document

Label = str | int | float | bool | None
Changes = tuple[Change, ...]


class Choice(NamedTuple):
    """One value of an axis: what it is called, and what it changes in the scenario."""

    label: Label
    changes: Changes


class Axis(NamedTuple):
    """What is varied."""

    name: str
    choices: tuple[Choice, ...]

    @property
    def changes(self) -> Changes:
        """Those of all its choices."""
        return tuple(change for choice in self.choices for change in choice.changes)

    def sets(self, path: tuple[str, ...]) -> bool:
        """Whether a choice sets `path`, something in it, or what it is in."""
        return any(own.path[: len(path)] == path[: len(own.path)] for own in self.changes)


class Point(NamedTuple):
    """One scenario of a sweep: its labels by axis, and all its changes in order."""

    labels: Mapping[str, Label]
    changes: Changes

    def changed(self, more: Sequence[Change]) -> Point:
        """The same point with more changes."""
        return Point(self.labels, (*self.changes, *more))


class Against(NamedTuple):
    """What each point is compared with: itself with other changes."""

    name: str
    changes: Changes


Best = Literal["least", "most"]


class Grid(NamedTuple):
    """How rows are shown: two axes, and a table for each combination of the others, or the `best` of these."""

    rows: str
    columns: str
    value: str
    best: Best | None = None


class Wanted(NamedTuple):
    """Of which resource the least rate is searched, and for what: a step `slowdown` longer than that of `against`.

    It is searched at each point of the axes that do not set this resource themselves, after `changes`. `name` is what
    it is called in a table.
    """

    resource: str
    slowdown: float
    changes: Changes
    name: str

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.resource.split("."))


@dataclass(frozen=True, slots=True)
class Sweep:
    """`document` is the scenario that is changed; paths in it are relative to `base`.

    `always` are changes of all points, made before their own.
    """

    title: str
    source: str
    document: Document
    base: Path
    axes: tuple[Axis, ...]
    listed: tuple[Point, ...] = ()
    always: Changes = ()
    against: Against | None = None
    grid: Grid | None = None
    wanted: Wanted | None = None

    def points(self) -> Iterator[Point]:
        """All of them, in the order of the rows."""
        yield from self._crossed(self.axes) if self.axes else ()
        yield from (Point(point.labels, (*self.always, *point.changes)) for point in self.listed)

    @property
    def searched_axes(self) -> tuple[Axis, ...]:
        """The axes at whose points the least rate is searched."""
        return tuple(axis for axis in self.axes if self.wanted and not axis.sets(self.wanted.path))

    def searched(self) -> Iterator[Point]:
        """The points at which the least rate is searched."""
        if self.wanted:
            yield from (point.changed(self.wanted.changes) for point in self._crossed(self.searched_axes))

    def _crossed(self, axes: Sequence[Axis]) -> Iterator[Point]:
        for choices in product(*(axis.choices for axis in axes)):
            labels = {axis.name: choice.label for axis, choice in zip(axes, choices, strict=True)}
            yield Point(labels, (*self.always, *(change for choice in choices for change in choice.changes)))


def lasting(changes: Iterable[Change]) -> Changes:
    """Those changes that a later one does not undo: points that are alike have equal ones."""
    kept: list[Change] = []
    for change in changes:
        kept = [other for other in kept if not undoes(change, other)]
        kept.append(change)
    return tuple(kept)


def undoes(later: Change, change: Change) -> bool:
    """Whether nothing is left of a change after a later one: that sets the same, or what it is in."""
    return change.path[: len(later.path)] == later.path


def undone(changes: Sequence[Change]) -> Iterator[tuple[Change, Change]]:
    """Changes that are made for nothing, each with the later one that undoes it."""
    for place, change in enumerate(changes):
        yield from ((change, later) for later in changes[place + 1 :] if undoes(later, change))
