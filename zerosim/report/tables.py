"""Plain tables: columns set apart by two blanks, one header line, nothing drawn. They survive a pipe, a mail, a diff.

Rule: numbers come in as text that already has its unit; a table only aligns. Width is counted in terminal cells, so a
model with a name in wide characters does not push the next column.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

GAP = "  "
Align = Literal["left", "right"]


class Column(NamedTuple):
    """A heading, and on which side its cells stand: words left, numbers right."""

    title: str
    align: Align = "left"


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], indent: str = "") -> str:
    """Header and rows, without blanks at the ends of lines and without a line end after the last row."""
    cells = [[column.title for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    return "\n".join(_line(row, columns, widths, indent) for row in cells)


def _line(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], indent: str) -> str:
    padded = (pad(cell, width, column.align) for cell, width, column in zip(row, widths, columns, strict=True))
    return (indent + GAP.join(padded)).rstrip()


def pad(text: str, width: int, align: Align = "left") -> str:
    """The text in `width` cells; longer text stays whole."""
    blanks = " " * (width - cell_width(text))
    return blanks + text if align == "right" else text + blanks


def clip(text: str, width: int) -> str:
    """The text in at most `width` cells; an ellipsis tells that something was cut."""
    if cell_width(text) <= width:
        return text
    while text and cell_width(text) > width - 1:
        text = text[:-1]
    return text + "…" if width > 0 else ""


def cell_width(text: str) -> int:
    """Terminal cells that the text takes: 2 for a wide character (Unicode TR 11), 0 for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
