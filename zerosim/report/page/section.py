"""A part of a page: its anchor, its title, what stands there; and the lists that all of them have.

Rule: a section without anything to tell is left out; of a long list the first rows stand open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zerosim.report.page.drawing import Row, folded, table
from zerosim.report.page.markup import Markup, element
from zerosim.report.tables import Align, Column

MOST = 12  # rows of a table that stand open; the others are folded
TOP = 2  # level of the headings of a page's sections
SIGNS = {"error": "✖", "warning": "▲", "note": "ℹ"}  # beside the word: no finding is told by its colour alone
NUMBER: Align = "right"


class Section(NamedTuple):
    """A part of a page: its anchor, its title, what stands there."""

    name: str
    title: str
    body: Markup
    short: str = ""  # for the contents of a page, where the title is long


def shown(parts: Iterable[Section], level: int = TOP, prefix: str = "") -> Iterator[Markup]:
    """The sections as elements, each under its heading and at its anchor."""
    for part in parts:
        if part.body:
            name = f"{prefix}{part.name}"
            title = element(f"h{level}", part.title, id=f"{name}-title")
            yield element("section", title, part.body, id=name, class_=part.name, aria_labelledby=f"{name}-title")


def cards(known: Sequence[tuple[str, str]]) -> Markup:
    """Names and what is said of each."""
    items = (element("div", element("dt", name), element("dd", said)) for name, said in known)
    return element("dl", *items, class_="numbers")


def long(columns: Sequence[Column], rows: Sequence[Row], what: str) -> Iterator[Markup]:
    """The first rows, and the others when asked for: several, or there is no need to fold them."""
    if not rows:
        return
    most = MOST if len(rows) > MOST + 2 else len(rows)
    yield table(columns, rows[:most])
    if rows[most:]:
        yield folded(f"{len(rows) - most} more {what}", table(columns, rows[most:]))
