"""Changes of a document from outside: `PATH=VALUE` of `--set` or of a sweep, with errors that name the change.

A path is dotted; a number steps into a list; the value is YAML. Mappings on the way are made where there are none:
whether such a path may exist is for the schema to say, which then names the nearest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.document import Document, shown
from zerosim.spec.loading import parse


class Change(NamedTuple):
    """One change: as it was written, where it goes from the root of a document, what stands there then.

    `made` is how many parts of the path were there before; all from there on is the change's own. `typed` is one of
    `--set`, which others (of an axis, of a search) are not.
    """

    text: str
    path: tuple[str, ...]
    value: Any
    made: int | None = None
    typed: bool = False

    @property
    def source(self) -> str:
        """Where a mistake in it comes from."""
        return f"--set {self.text}" if self.typed else self.text

    def below(self, depth: int) -> Change:
        """The change as seen from `depth` steps down its path."""
        return self._replace(path=self.path[depth:])

    def owns(self, path: str) -> bool:
        """Whether what stands at a dotted path is there, or is as it is, because of this change."""
        known = len(self.path) if self.made is None else min(self.made + 1, len(self.path))
        own = ".".join(self.path[:known])
        return path == own or path.startswith(f"{own}.")


def parse_change(text: str) -> Change:
    """`strategy.deepspeed.zero_optimization.stage=2` as a Change."""
    path, equals, value = text.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or not all(parts):
        raise InputError([Problem(f"--set {text}", found=f'"{text}"', expected="PATH=VALUE, such as nodes=4")])
    given = parse(value.strip(), f"--set {text}").data if value.strip() else None
    return Change(text, parts, given, typed=True)


def changed(document: Document, changes: Iterable[Change]) -> tuple[Document, list[Change]]:
    """The document with `changes` made, in order, and the changes with what each of them made."""
    root = {"": deepcopy(document.data)}
    done = []
    for change in changes:
        done.append(change._replace(made=_there(root[""], change.path)))
        _put(root, ("", *change.path), change)
    return replace(document, data=root[""]), done


def _there(tree: Any, path: Sequence[str]) -> int:
    """How many parts of a path exist."""
    for depth, part in enumerate(path):
        if not isinstance(tree, dict) or part not in tree:
            return depth if isinstance(tree, dict) else len(path)
        tree = tree[part]
    return len(path)


def _put(tree: Any, path: Sequence[str], change: Change) -> None:
    for depth, part in enumerate(path):
        if not isinstance(tree, dict | list):
            raise _wrong(change, depth - 1, shown(tree), "a mapping, to set a key of it")
        key: Any = _index(tree, part, change, depth) if isinstance(tree, list) else part
        if depth == len(path) - 1:
            tree[key] = deepcopy(change.value)  # which is the change's own, and may be made again
            return
        if isinstance(tree, dict) and tree.get(key) is None:
            tree[key] = {}
        tree = tree[key]


def _index(items: Sequence[Any], part: str, change: Change, depth: int) -> int:
    """`depth` parts of the change's path lead to `part`, which it asks of a list."""
    if part.isdecimal() and int(part) < len(items):
        return int(part)
    written = _written(change)
    place = len(written) - len(change.path) + depth - 1
    name = written[place - 1] if place else "the whole"
    expected = f"an index below {len(items)}, as {name} is a list" if items else f"nothing, as {name} is an empty list"
    within = [] if not items or part.isdecimal() else [".".join([*written[:place], "0", *written[place:]])]
    raise _wrong(change, depth, f'"{part}"', expected, *within)


def _written(change: Change) -> list[str]:
    """The whole path of a change, also where it is seen from a file that a scenario names."""
    return [part.strip() for part in change.text.partition("=")[0].split(".")]


def _wrong(change: Change, depth: int, found: str, expected: str, close: str = "") -> InputError:
    return InputError([Problem(change.source, ".".join(change.path[:depth]), found, expected, close)])


def attributed(problems: Iterable[Problem], changes: Sequence[Change]) -> list[Problem]:
    """Problems of what a change made come from the change, not from the file."""
    return [_attributed(problem, changes) for problem in problems]


def _attributed(problem: Problem, changes: Sequence[Change]) -> Problem:
    for change in reversed(changes):
        if change.owns(problem.path):
            return replace(problem, source=change.source, line=None, column=None)
    return problem
