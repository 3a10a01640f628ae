"""What a sweep found, as tables: one line a choice of the first axis, one column a choice of the second.

Rule: cells come in as text; what a mark behind a cell means is said below the tables, and only where one stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zerosim.report.comparison import ratio
from zerosim.report.ladder import digits
from zerosim.report.tables import Column, cell_width, table
from zerosim.report.words import wrapped
from zerosim.units import show_count, show_power, show_rate, show_seconds, show_share, show_size

TOO_LARGE, WRONG, NONE = "*", "!", "none"
MARKS = {
    TOO_LARGE: "does not fit in memory; what the step would take with more of it",
    WRONG: "could not be played",
}
_SHOWS: Mapping[str, Callable[[float], str]] = {  # by the end of a column's name
    "slowdown": ratio,
    "seconds": show_seconds,
    "bytes": show_size,
    "per_second": show_count,
    "per_second_per_gpu": show_count,
    "per_currency": show_count,
    "per_joule": show_count,
    "watts": show_power,
    "mfu": show_share,
    "overlap": show_share,
    "utilization": show_share,
}
_SECONDS = ("phases.", "breakdown.")
LABEL, END = 32, 12  # characters of a label that are shown; so many of them from its end


class Sheet(NamedTuple):
    """A table with its heading; the first column is called `corner`, `notes` stand below. So many of the columns as
    `labels` says belong to the first: they say which line it is."""

    heading: str
    corner: str
    columns: Sequence[str]
    lines: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[str] = ()
    labels: int = 0


def show_value(name: str, value: object) -> str:
    """A number of a row as people write it, by what it is called."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if not isinstance(value, int | float):
        return str(value)
    if name.startswith(_SECONDS):
        return show_seconds(value)
    show = next((show for end, show in _SHOWS.items() if name.endswith(end)), digits)
    return show(value)


def show_label(value: object) -> str:
    """The name of a choice, or a value that is its own name, in one short line, as YAML writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.12g}"
    text = " ".join("".join(each if each.isprintable() else " " for each in str(value)).split())
    return text if len(text) <= LABEL else f"{text[: LABEL - END - 1]}…{text[-END:]}"


def show_required(rate: float | None, least: float, bits: bool) -> str:
    """The least rate that is enough, in two digits, rounded up; `least` is the least that there is."""
    if rate is None:
        return NONE
    if rate <= least:
        return "any"
    unit = 1 / 8 if bits else 1.0
    digit = 10.0 ** (math.floor(math.log10(rate / unit)) - 1)
    return show_rate(math.ceil(rate / unit / digit - 1e-9) * digit * unit, bits)


def render_sweep(title: str, sheets: Sequence[Sheet], legend: Sequence[str] = (), width: int = 100) -> str:
    """The tables, ending in a line end; then the legend and what the marks mean."""
    cells = [cell for sheet in sheets for _, line in sheet.lines for cell in line]
    marks = [f"{mark} {meaning}." for mark, meaning in MARKS.items() if any(cell.endswith(mark) for cell in cells)]
    said = [line for each in (*legend, *marks) for line in wrapped(each, width, "", "  ")]
    return (
        "\n\n".join([title, *(_sheet(sheet, width) for sheet in sheets), *(["\n".join(said)] if said else [])]) + "\n"
    )


def _sheet(sheet: Sheet, width: int) -> str:
    below = [line for note in sheet.notes for line in wrapped(note, width, "", "  ")]
    return "\n".join([*([sheet.heading] if sheet.heading else []), "\n\n".join(_tables(sheet, width)), *below])


def _tables(sheet: Sheet, width: int) -> Iterator[str]:
    """One table, or several that each repeat the labels, where one would be wider than the screen."""
    others = range(sheet.labels, len(sheet.columns))
    while others:
        counts = range(len(others), 1, -1)
        count = next((count for count in counts if _width(_table(sheet, others[:count])) <= width), 1)
        yield _table(sheet, others[:count])
        others = others[count:]


def _table(sheet: Sheet, shown: Sequence[int]) -> str:
    """The labels and some of the other columns."""
    places = [*range(sheet.labels), *shown]
    columns = [Column(sheet.corner), *(Column(sheet.columns[place], "right") for place in places)]
    rows = [(name, *(cells[place] for place in places)) for name, cells in sheet.lines]
    return table(columns, rows)


def _width(lines: str) -> int:
    return max(map(cell_width, lines.splitlines()))
