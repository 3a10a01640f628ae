"""A document: what a user gave, as plain data, with the place of each part.

A part of a document is a document too, so that a reader of a section need not know where the section stands. Places
are 1-based lines and columns by path from the root; data that came from no file has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zerosim.errors import Problem

Path = tuple[str | int, ...]
Mark = tuple[int, int]
DEEPEST = 64  # levels of mappings and lists


@dataclass(frozen=True, slots=True)
class Document:
    """`positions` are places of values, `keys` of the keys of mappings, by path from the root; `at` is this path."""

    source: str
    data: Any
    positions: Mapping[Path, Mark] = field(default_factory=dict)
    keys: Mapping[Path, Mark] = field(default_factory=dict)
    at: Path = ()

    def below(self, *path: str | int) -> Document:
        """The part at `path`, which must be there."""
        data = self.data
        for part in path:
            data = data[part]
        return Document(self.source, data, self.positions, self.keys, self.at + path)

    def problem(
        self, path: Sequence[str | int] | str = (), found: str = "", expected: str = "", nearest: str = ""
    ) -> Problem:
        """A mistake at `path` (parts, or dotted text), with the place of the nearest ancestor whose place is known."""
        here = self._absolute(path)
        return self._problem(here, self._place(here), found, expected, nearest)

    def key_problem(self, path: Sequence[str | int] | str, found: str, expected: str, nearest: str = "") -> Problem:
        """A mistake in a key itself, not in its value."""
        here = self._absolute(path)
        return self._problem(here, self.keys.get(here) or self._place(here), found, expected, nearest)

    def _absolute(self, path: Sequence[str | int] | str) -> Path:
        if not isinstance(path, str):
            return self.at + tuple(path)
        return self.at + tuple(int(part) if part.isdecimal() else part for part in path.split(".") if part)

    def _place(self, path: Path) -> Mark | None:
        return next((mark for n in range(len(path), -1, -1) if (mark := self.positions.get(path[:n]))), None)

    def _problem(self, path: Path, mark: Mark | None, found: str, expected: str, nearest: str) -> Problem:
        line, column = mark or (None, None)
        return Problem(self.source, ".".join(map(str, path)), found, expected, nearest, line, column)


def too_deep(data: object) -> bool:
    """Whether mappings and lists are nested deeper than anything that is meant; readers may then recurse in peace."""
    level = [data]
    for _ in range(DEEPEST):
        level = [below for part in level for below in _parts(part)]
        if not level:
            return False
    return True


def _parts(data: object) -> Iterable[object]:
    return data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()


def by_place(problem: Problem) -> tuple[bool, int, int, str]:
    """Sort key: in reading order, those without a place last."""
    return problem.line is None, problem.line or 0, problem.column or 0, problem.path


def shown(value: object) -> str:
    """A found value as the user wrote it, shortened; containers by their kind."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"' if len(value) <= 60 else f'"{value[:57]}..."'
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return str(value)[:60]
