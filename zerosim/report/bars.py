"""Bars of letters: shares of a whole that can be read in a pipe, in black and white, and by colour where there is any.

Rule: a letter tells what a part is; colour only repeats it. Everything is laid out as plain text and painted last, so
that colour never moves a column.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TextIO

_CODES = {  # SGR parameters of ECMA-48
    "blue": "34", "orange": "33", "red": "31", "green": "32", "cyan": "36", "purple": "35", "grey": "90", "bold": "1",
}  # fmt: skip


class Part(NamedTuple):
    """A share of a bar: its letter, what it is, how much, and its colour."""

    letter: str
    word: str
    amount: float
    colour: str


@dataclass(frozen=True, slots=True)
class Pen:
    """Paints text, or leaves it as it is."""

    colour: bool = False

    def __call__(self, text: str, colour: str) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour and colour else text


def colour_wanted(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose user has not said no (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bar(parts: Sequence[Part], whole: float, width: int, pen: Pen, rest: str = " ", limit: float | None = None) -> str:
    """`whole` as `width` cells: the parts as their letters, then `rest`; a stroke at `limit` where parts pass it."""
    filled = cells([part.amount for part in parts], whole, width)
    drawn = [(part.letter, part.colour) for part, count in zip(parts, filled, strict=True) for _ in range(count)]
    drawn += [(rest, "")] * (width - len(drawn))
    if limit is not None and 0 < limit < whole:
        drawn[min(round(width * limit / whole), width - 1)] = ("|", "red")
    runs = groupby(drawn, key=lambda cell: cell[1])
    return "".join(pen("".join(letter for letter, _ in run), colour) for colour, run in runs)


def cells(amounts: Iterable[float], whole: float, width: int) -> list[int]:
    """Cells of each amount by rounding the running sum, so that neighbours meet and the total is right."""
    counts, reached, total = [], 0, 0.0
    for amount in amounts:
        total += amount
        edge = min(round(width * total / whole), width) if whole > 0 else 0
        counts.append(edge - reached)
        reached = edge
    return counts
