"""Reading a sweep: a scenario, the axes along which it varies, and what is made of the answers.

    scenario: seven-b/zero3.yaml            # a path, or a scenario written out
    axes:
      nodes: [1, 2, 4]                      # a path of the scenario, as in --set, and its values
      bucket: {path: strategy.deepspeed.zero_optimization.reduce_bucket_size, values: [5e7, 5e8]}
      network: {path: topology.node.nics, values: {10G: {...}, 100G: {...}}}         # values with names
      machine: {cases: {small: {topology: dgx-a100-40, nodes: 1}, large: {...}}}     # several changes at once
    points: [{nodes: 8, bucket: 5e8}]       # beside the grid: an axis and one of its values, or a path and a value

What is wrong with a point is not known here: whether a path exists in the end is for the reader of the scenario to say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.changes import Change, attributed, changed, parse_change
from zerosim.spec.document import Document, by_place, shown
from zerosim.spec.loading import Schema, Share, read, validated
from zerosim.spec.scenario_file import ScenarioSchema
from zerosim.spec.sweep import Against, Axis, Best, Changes, Choice, Grid, Label, Point, Sweep, Wanted, undoes, undone
from zerosim.units import show_share

MOST_POINTS = 100_000
OWN_KEYS = ("scenario", "axes", "points", "against", "table", "require")  # of --set: the sweep's; others a scenario's
_KEYS = tuple(ScenarioSchema.model_fields)
_Some = Annotated[list[Any], Field(min_length=1)]
_Named = Annotated[dict[str, Any], Field(min_length=1)]
_Changes = Annotated[dict[str, Any], Field(min_length=1)]


class AxisSchema(Schema):
    """`path` and its `values`, or `cases`, each of which changes several paths."""

    path: str | None = None
    values: _Some | _Named | None = None
    cases: Annotated[dict[str, _Changes], Field(min_length=1)] | None = None


class AgainstSchema(Schema):
    name: str = "baseline"
    changes: _Changes


class TableSchema(Schema):
    rows: str
    columns: str
    value: str = "step_seconds"
    best: Best | None = None  # of the other axes, in place of a table for each combination of them


class RequireSchema(Schema):
    resource: str
    slowdown: Annotated[Share, Field(gt=0, le=100)]
    name: str = ""
    changes: dict[str, Any] = Field(default_factory=dict)


class SweepSchema(Schema):
    scenario: str | dict[str, Any]
    title: str = ""
    axes: dict[str, _Some | AxisSchema] = Field(default_factory=dict)
    points: list[_Changes] = Field(default_factory=list)
    against: AgainstSchema | None = None
    table: TableSchema | None = None
    require: RequireSchema | None = None


def read_sweep(path: str | Path, changes: Sequence[str] = ()) -> Sweep:
    """The sweep in a file. Changes of `axes`, `points` and so on are of the sweep, others of its scenario."""
    given = read(path)
    if isinstance(given.data, Mapping) and not given.data.keys() & set(OWN_KEYS) and "strategy" in given.data:
        raise InputError([given.problem((), "a scenario", "a scenario, and axes or points", "zerosim run")])
    made = [parse_change(text) for text in changes]
    document, own = changed(given, [change for change in made if change.path[0] in OWN_KEYS])
    try:
        return _sweep(document, tuple(change for change in made if change.path[0] not in OWN_KEYS))
    except InputError as error:
        raise InputError(attributed(error.problems, own)) from None


def _sweep(document: Document, always: Changes) -> Sweep:
    said, base = validated(document, SweepSchema), Path(document.source).parent
    reading = _Reading(document)
    axes = reading.axes(said)
    listed = reading.listed(said, axes)
    reading.count(axes, len(listed))
    reading.repeated(axes)
    reading.undone(axes, always)
    against = reading.against(said.against) if said.against else None
    grid = reading.grid(said.table, axes) if said.table else None
    wanted = reading.wanted(said.require) if said.require else None
    if reading.problems:
        raise InputError(sorted(reading.problems, key=by_place))
    scenario, base = _scenario(document, said, base)
    title = said.title or Path(document.source).stem
    return Sweep(title, document.source, scenario, base, axes, listed, always, against, grid, wanted)


def _scenario(document: Document, said: SweepSchema, base: Path) -> tuple[Document, Path]:
    """The scenario as a document of its own, and the folder to which its paths are relative."""
    if isinstance(said.scenario, str):
        return read(base / said.scenario), (base / said.scenario).parent
    positions, keys = (
        {path[1:]: mark for path, mark in marks.items() if path[:1] == ("scenario",)}
        for marks in (document.positions, document.keys)
    )
    return Document(document.source, document.data["scenario"], positions, keys), base


class _Reading:
    """Gathers what is wrong while parts are read."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    # --- axes and points ---

    def axes(self, said: SweepSchema) -> tuple[Axis, ...]:
        return tuple(Axis(name, self._choices(name, axis)) for name, axis in said.axes.items())

    def _choices(self, name: str, axis: list[Any] | AxisSchema) -> tuple[Choice, ...]:
        at = ("axes", name)
        if isinstance(axis, list):
            self._known(at, name, "a path of the scenario, or a mapping with path and values, or with cases")
            return self._valued(name, axis, at)
        if axis.cases is not None and axis.path is None and axis.values is None:
            cases = axis.cases.items()
            return tuple(Choice(label, self.changes(case, (*at, "cases", label))) for label, case in cases)
        if axis.path is None or axis.values is None or axis.cases is not None:
            given = ", ".join(axis.model_fields_set) or "nothing"
            self._wrong(at, given, "path and values, or cases")
            return ()
        self._known((*at, "path"), axis.path)
        return self._valued(axis.path, axis.values, (*at, "values"))

    def _valued(self, path: str, values: list[Any] | dict[str, Any], at: tuple[str | int, ...]) -> tuple[Choice, ...]:
        if isinstance(values, dict):
            return tuple(Choice(label, (_change(path, value),)) for label, value in values.items())
        choices = tuple(Choice(_label(value), (_change(path, value),)) for value in values)
        for place, choice in enumerate(choices):
            if choice.label in [other.label for other in choices[:place]]:
                self._wrong((*at, place), f"{shown(choice.label)} again", "each value once")
        return choices

    def listed(self, said: SweepSchema, axes: Sequence[Axis]) -> tuple[Point, ...]:
        by_name = {axis.name: axis for axis in axes}
        return tuple(self._point(point, ("points", place), by_name) for place, point in enumerate(said.points))

    def _point(self, point: Mapping[str, Any], at: tuple[str | int, ...], axes: Mapping[str, Axis]) -> Point:
        changes: list[Change] = []
        for name, value in point.items():
            if name in axes:
                changes += self._chosen(axes[name], value, (*at, name))
            else:
                self._known((*at, name), name, "an axis, or a path of the scenario", tuple(axes))
                changes.append(_change(name, value))
        self._made_again(changes, at)
        return Point({name: _label(value) for name, value in point.items()}, tuple(changes))

    def _chosen(self, axis: Axis, value: Any, at: tuple[str | int, ...]) -> Changes:
        names = [str(choice.label) for choice in axis.choices]
        if str(_label(value)) in names:
            return axis.choices[names.index(str(_label(value)))].changes
        if path := _plain(axis):
            return (_change(path, value),)
        self._wrong(at, shown(value), f"one of {', '.join(names)}", nearest(str(value), names))
        return ()

    def count(self, axes: Sequence[Axis], listed: int) -> None:
        points = math.prod(len(axis.choices) for axis in axes) + listed if axes else listed
        if points > MOST_POINTS:
            self._wrong(("axes",), f"{points} points", f"at most {MOST_POINTS}")
        if not points and not self.problems:
            self._wrong((), "no point", "axes, or points")

    # --- what is made of them ---

    def changes(self, said: Mapping[str, Any], at: tuple[str | int, ...]) -> Changes:
        for path in said:
            self._known((*at, path), path)
        made = tuple(_change(path, value) for path, value in said.items())
        self._made_again(made, at)
        return made

    def against(self, said: AgainstSchema) -> Against:
        return Against(said.name, self.changes(said.changes, ("against", "changes")))

    def grid(self, said: TableSchema, axes: Sequence[Axis]) -> Grid:
        names = [axis.name for axis in axes]
        for key, name in (("rows", said.rows), ("columns", said.columns)):
            if name not in names:
                expected = f"an axis: {', '.join(names)}" if names else "an axis, of which there is none"
                self._wrong(("table", key), shown(name), expected, nearest(name, names))
        if said.rows == said.columns:
            self._wrong(("table", "columns"), shown(said.columns), "another axis than that of the rows")
        return Grid(said.rows, said.columns, said.value, said.best)

    def wanted(self, said: RequireSchema) -> Wanted:
        self._known(
            ("require", "resource"), said.resource, "a path that is a rate, such as topology.node.nics.bandwidth"
        )
        if "against" not in self.document.data:
            self._wrong(("require",), "no against", "what a step is compared with, as against: {changes: ...}")
        name = said.name or f"+{show_share(said.slowdown)} at"
        return Wanted(said.resource, said.slowdown, self.changes(said.changes, ("require", "changes")), name)

    def undone(self, axes: Sequence[Axis], made: Changes) -> None:
        """A change of --set that an axis makes again changes nothing."""
        for change in made:
            for axis in axes:
                if any(undoes(own, change) for own in axis.changes):
                    found, expected = f"a path that the axis {axis.name} sets", f"a change of axes.{axis.name}"
                    self.problems.append(Problem(change.source, "", found, expected))

    def repeated(self, axes: Sequence[Axis]) -> None:
        """An axis whose changes a later one undoes varies nothing: its rows would be alike."""
        for place, axis in enumerate(axes):
            for later in axes[place + 1 :]:
                pairs = ((own, other) for own in axis.changes for other in later.changes if undoes(other, own))
                for own, other in list(pairs)[:1]:
                    again = f"{'.'.join(own.path)}, which the axis {later.name} sets again"
                    same = "a path that no other axis sets"
                    after = f"this axis after {later.name}, which sets all of {'.'.join(other.path)}"
                    self._wrong(("axes", axis.name), again, same if own.path == other.path else after)

    def _made_again(self, changes: Sequence[Change], at: tuple[str | int, ...]) -> None:
        for change, later in undone(changes):
            found = f"{'.'.join(change.path)}, which {'.'.join(later.path)} after it sets again"
            self._wrong(at, found, "it behind that, or only one of them")

    # --- mistakes ---

    def _known(
        self,
        at: tuple[str | int, ...],
        path: str,
        expected: str = "a path of the scenario",
        others: tuple[str, ...] = (),
    ) -> None:
        """Whether a path begins as one of a scenario may."""
        head, *rest = path.split(".")
        if head not in _KEYS or not all(rest):
            known = nearest(head, _KEYS)
            close = nearest(path, others) or ".".join([known, *filter(None, rest)]) * bool(known)
            told = self.document.key_problem if at[-1] == path else self.document.problem
            self.problems.append(told(at, shown(path), f"{expected} ({', '.join(_KEYS)})", close))

    def _wrong(self, at: Sequence[str | int], found: str, expected: str, close: str = "") -> None:
        self.problems.append(self.document.problem(tuple(at), found, expected, close))


def _change(path: str, value: Any) -> Change:
    return Change(f"{path}={_label(value)}", tuple(path.split(".")), value)


def _plain(axis: Axis) -> str:
    """The path of an axis whose values have no names, so that any other value may stand there; "" of other axes."""
    (first, *_), named = axis.choices, any(_label(choice.changes[0].value) != choice.label for choice in axis.choices)
    return "" if named or len(first.changes) > 1 else ".".join(first.changes[0].path)


def _label(value: Any) -> Label:
    """A value as its own name; numbers that JSON does not have as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, Label) else json.dumps(value)
