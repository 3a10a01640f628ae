"""The rows of a sweep as tables: two axes a table, one table for each combination of the others.

Or one table of the best over the others, and for each of these one that tells which choice that was. Where points are
compared with a step, its seconds stand in the first column of numbers; where a least rate was searched along the axis
of the columns, it stands in the last one, and why no rate is enough below the table. Points that are listed are on no
axis, and so have a table of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from zerosim.errors import nearest
from zerosim.report.rows import columns
from zerosim.report.running import tokens_per
from zerosim.report.sweep import TOO_LARGE, WRONG, Sheet, show_label, show_required, show_value
from zerosim.spec.sweep import Axis, Best, Grid, Label, Sweep, Wanted
from zerosim.studies.requirement import SLOWEST
from zerosim.studies.sweep import AGAINST, SLOWDOWN, Row, Swept
from zerosim.studies.sweep_questions import ERROR
from zerosim.units import show_rate, show_seconds, show_share

Labels = Mapping[str, Label]
Place = frozenset[tuple[str, Label]]
MOST_LINES = 40  # of a list
CURRENCY, PER_CURRENCY, PER_JOULE = "cost.currency", "cost.tokens_per_currency", "energy.tokens_per_joule"
PLAIN = {  # columns of a list, and what they are called there
    "step_seconds": "step",
    "tokens_per_second": "tokens/s",
    "mfu": "mfu",
    "communication.overlap": "overlap",
    "memory.gpu.peak_bytes": "GPU peak",
}


def sheets(asked: Sweep, swept: Swept) -> list[Sheet]:
    """All tables: those that the sweep asks for, or its points one by one; searches that have no column there."""
    grid, wanted = asked.grid, asked.wanted
    beside = grid is not None and wanted is not None and not grid.best and _along_columns(asked, grid)
    crossed = prod(len(axis.choices) for axis in asked.axes) if grid else 0
    found: list[Sheet] = []
    if grid and grid.best and _others(asked, grid):
        found += _bests(asked, grid, grid.best, swept.rows[:crossed])
    elif grid:
        found += _grids(asked, grid, swept.rows[:crossed], swept.required, beside)
    if swept.rows[crossed:]:
        found.append(_points(asked, swept.rows[crossed:]))
    return found + ([_searches(asked, wanted, swept.required)] if wanted and not beside else [])


def legend(asked: Sweep) -> list[str]:
    """What numbers mean that do not say it themselves."""
    said, name = [], asked.against.name if asked.against else ""
    if asked.against and (asked.listed or asked.grid is None or asked.grid.value == SLOWDOWN):
        said.append(f"slowdown: the step / the step with {name}.")
    if asked.wanted:
        most, what = show_share(asked.wanted.slowdown), asked.wanted.resource
        said.append(
            f"{asked.wanted.name}: the least {what} at which the step is at most {most} longer than with {name}."
        )
    return said


def _along_columns(asked: Sweep, grid: Grid) -> bool:
    """Whether the least rate was searched at each line of the tables."""
    return {axis.name for axis in asked.axes} - {axis.name for axis in asked.searched_axes} == {grid.columns}


# --- tables of two axes ---


class _Found(NamedTuple):
    """The rows and the searches of a sweep, by place."""

    rows: Mapping[Place, Row]
    required: Mapping[Place, Row]


def _grids(asked: Sweep, grid: Grid, rows: Sequence[Row], required: Sequence[Row], beside: bool) -> Iterator[Sheet]:
    names = [axis.name for axis in asked.axes]
    searched = {_place(row, [name for name in names if name != grid.columns]): row for row in required}
    found = _Found({_place(row, names): row for row in rows}, searched if beside else {})
    axes = {axis.name: axis for axis in asked.axes}
    others = _others(asked, grid)
    unknown = [*_unknown(grid.value, rows), *_paid(grid.value, rows)]
    for labels in product(*([choice.label for choice in axis.choices] for axis in others)):
        fixed = dict(zip((axis.name for axis in others), labels, strict=True))
        places = [{**fixed, grid.rows: choice.label} for choice in axes[grid.rows].choices]
        lines = [list(_line(asked, grid, axes[grid.columns], place, found)) for place in places]
        yield Sheet(
            heading=", ".join(f"{name}: {show_label(label)}" for name, label in fixed.items()),
            corner=grid.rows,
            columns=[title for title, _ in lines[0]],
            lines=[(show_label(at[grid.rows]), [c for _, c in line]) for at, line in zip(places, lines, strict=True)],
            notes=unknown
            + [note for at in places for note in _note(found.required.get(_key(at)), show_label(at[grid.rows]))],
        )


def _others(asked: Sweep, grid: Grid) -> list[Axis]:
    """The axes that are not those of the table."""
    return [axis for axis in asked.axes if axis.name not in (grid.rows, grid.columns)]


def _bests(asked: Sweep, grid: Grid, best: Best, rows: Sequence[Row]) -> Iterator[Sheet]:
    """Of each pair of choices the best row over the other axes, and which choice of each of these it has."""
    over = [axis.name for axis in _others(asked, grid)]
    found: dict[tuple[Label, Label], Row] = {}
    for row in rows:
        place = row[grid.rows], row[grid.columns]
        found[place] = _better(found[place], row, grid.value, best) if place in found else row
    heading = f"{grid.value}: the {best} over {', '.join(over)}"
    notes = [*_unknown(grid.value, rows), *_paid(grid.value, rows)]
    yield _square(asked, grid, heading, {place: _cell(row, grid.value) for place, row in found.items()}, notes)
    for name in over:
        chosen = {place: WRONG if row[ERROR] else show_label(row[name]) for place, row in found.items()}
        yield _square(asked, grid, f"{name}: where that is", chosen)


def _better(row: Row, other: Row, value: str, best: Best) -> Row:
    """The first of equal ones; any row is better than one that is wrong, and one that fits than one that does not."""

    def rank(each: Row) -> tuple[bool, bool, float]:
        number = each.get(value)
        if not isinstance(number, int | float):
            return True, True, 0.0
        return False, not each["fits"], number if best == "least" else -number

    return other if rank(other) < rank(row) else row


def _square(
    asked: Sweep, grid: Grid, heading: str, cells: Mapping[tuple[Label, Label], str], notes: Sequence[str] = ()
) -> Sheet:
    """A table of the grid's two axes."""
    axes = {axis.name: [choice.label for choice in axis.choices] for axis in asked.axes}
    columns = axes[grid.columns]
    lines = [(show_label(at), [cells[at, column] for column in columns]) for at in axes[grid.rows]]
    return Sheet(heading, grid.rows, [show_label(column) for column in columns], lines, notes)


def _unknown(value: str, rows: Sequence[Row]) -> Iterator[str]:
    """That no row has the number that a table shows."""
    played = [row for row in rows if not row[ERROR]]
    if played and not any(value in row for row in played):
        close = nearest(value, columns(played))
        yield f"No row has {value}{f'; nearest {close}' if close else ''}."


def _paid(value: str, rows: Sequence[Row]) -> Iterator[str]:
    """In which currency a cost is."""
    currencies = _currencies(rows)
    if value.startswith("cost.") and currencies:
        mixed = ", which do not compare" if len(currencies) > 1 else ""
        yield f"{value} in {' and '.join(currencies)}{mixed}."


def _line(asked: Sweep, grid: Grid, across: Axis, place: Labels, found: _Found) -> Iterator[tuple[str, str]]:
    """The cells of a line, each with the title of its column."""
    rows = [found.rows[_key({**place, across.name: choice.label})] for choice in across.choices]
    if asked.against:
        seconds = {row[AGAINST] for row in rows}
        yield asked.against.name, show_value(AGAINST, seconds.pop()) if len(seconds) == 1 else "varies"
    yield from (
        (show_label(choice.label), _cell(row, grid.value)) for choice, row in zip(across.choices, rows, strict=True)
    )
    if asked.wanted and found.required:
        yield asked.wanted.name, _rate(found.required[_key(place)])


def _cell(row: Row, name: str) -> str:
    value = row.get(name)
    if value is None and row[ERROR]:
        return WRONG
    return show_value(name, value) + ("" if row["fits"] else TOO_LARGE)


def _rate(row: Row) -> str:
    if row[ERROR]:
        return WRONG
    return show_required(row["required"], SLOWEST, bits=_is_network(row))


def _note(row: Row | None, name: str) -> Iterator[str]:
    """Why no rate is enough."""
    if row is not None and not row[ERROR] and row["required"] is None:
        longer = show_share(row["seconds"] / row["baseline_seconds"] - 1)
        most = show_rate(row["curve"][-1][0], bits=_is_network(row))
        yield f"{name}: still {longer} longer at {most}: {row['limited_by']}."


def _is_network(row: Row) -> bool:
    """Networks are sold by the bit."""
    return ".nics." in row["resource"]


def _place(row: Row, names: Sequence[str]) -> Place:
    return _key({name: row[name] for name in names if name in row})


def _key(labels: Labels) -> Place:
    return frozenset(labels.items())


# --- one line a point ---


def bought(rows: Sequence[Row]) -> dict[str, str]:
    """Columns of tokens for money and energy, where any row has them; with the currency, where there are several."""
    currencies = _currencies(rows)
    found = {CURRENCY: "currency"} if len(currencies) > 1 else {}
    if currencies:
        found[PER_CURRENCY] = tokens_per(currencies[0] if len(currencies) == 1 else "currency")
    if any(PER_JOULE in row for row in rows):
        found[PER_JOULE] = tokens_per("J")
    return found


def _currencies(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row[CURRENCY] for row in rows if CURRENCY in row))


def _points(asked: Sweep, rows: Sequence[Row]) -> Sheet:
    names = {**PLAIN, **bought(rows), **({SLOWDOWN: SLOWDOWN} if asked.against else {})}
    return _list(asked, rows, [*names.values()], [[_cell(row, name) for name in names] for row in rows])


def _searches(asked: Sweep, wanted: Wanted, rows: Sequence[Row]) -> Sheet:
    cells = [[_rate(row), "-" if row[ERROR] else show_seconds(row["seconds"])] for row in rows]
    notes = [note for row in rows for note in _note(row, ", ".join(_labels(asked, row)))]
    return _list(asked, rows, (wanted.name, "step"), cells)._replace(notes=notes)


def _list(asked: Sweep, rows: Sequence[Row], titles: Sequence[str], cells: Sequence[Sequence[str]]) -> Sheet:
    """The first rows: a column for each axis, and more."""
    first, *others = _headings(asked)
    labels = [_labels(asked, row) for row in rows]
    lines = [(own[0], [*own[1:], *more]) for own, more in zip(labels, cells, strict=True)]
    more = [f"{len(rows) - MOST_LINES} more rows: --out writes all."] if len(rows) > MOST_LINES else []
    return Sheet("", first, [*others, *titles], lines[:MOST_LINES], more, labels=len(others))


def _varied(asked: Sweep) -> list[str]:
    """The axes, and the paths that points which are listed set besides."""
    listed = (name for point in asked.listed for name in point.labels)
    return list(dict.fromkeys([*(axis.name for axis in asked.axes), *listed]))


def _labels(asked: Sweep, row: Row) -> list[str]:
    return [show_label(row[name]) if name in row else "" for name in _varied(asked)]


def _headings(asked: Sweep) -> list[str]:
    """Paths by so many of their last parts that each is another; axes with a name by that."""
    own = {axis.name for axis in asked.axes if any(".".join(each.path) != axis.name for each in axis.changes)}
    names = _varied(asked)
    ends = {name: [name] if name in own else _ends(name) for name in names}
    every = [end for name in names for end in ends[name]]
    return [show_label(next((end for end in ends[name] if every.count(end) == 1), name)) for name in names]


def _ends(path: str) -> list[str]:
    """ "c", "b.c" and "a.b.c" of "a.b.c"."""
    parts = path.split(".")
    return [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
