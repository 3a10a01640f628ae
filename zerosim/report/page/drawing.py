"""Tables, bars and their inks in HTML.

Rule: a bar repeats what the table beside it says in numbers; its parts differ in hatch and letter, not in colour alone.
Widths are attributes of SVG in per cent, not styles, which the page's own policy forbids; hatches are not stretched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zerosim.report.page.markup import Markup, element
from zerosim.report.palette import BANDS, HATCHES, HELD, SPENT, Ink
from zerosim.report.tables import Column
from zerosim.report.words import share

PREFIX = "ink-"
LETTERED = 0.03  # of a bar: room for a letter
WORDY = 0.0108  # for a letter of a word and a share, on a page 700 pixels wide
TALL, THIN = 22, 12  # pixels


class Piece(NamedTuple):
    """A part of a bar: its ink, its letter, what it is, how much, and that in words. Without an ink, a band."""

    ink: str
    letter: str
    word: str
    amount: float
    said: str


def inks() -> Markup:
    """The patterns that all bars of a page are filled with; they stand once in it."""
    known: Mapping[str, Ink] = {**SPENT, **HELD}
    patterns = (_pattern(name, ink) for name, ink in known.items())
    return element("svg", element("defs", *patterns), class_="inks", width="0", height="0", aria_hidden="true")


def _pattern(name: str, ink: Ink) -> Markup:
    square = {"width": "6", "height": "6"}
    line, opacity = ink.line
    hatch = element("path", d=HATCHES[ink.hatch], stroke=line, stroke_opacity=str(opacity), fill="none")
    fill = element("rect", **square, fill=ink.colour)
    lines = [hatch] if HATCHES[ink.hatch] else []
    return element("pattern", fill, *lines, id=PREFIX + name, patternUnits="userSpaceOnUse", **square)


def bar(pieces: Sequence[Piece], whole: float, label: str, limit: float | None = None, height: int = TALL) -> Markup:
    """The pieces as parts of `whole`; a stroke at `limit` where it is less than that."""
    drawn: list[str] = [element("rect", class_="ground", width="100%", height=str(height))]
    reached = 0.0
    for turn, piece in enumerate(pieces):
        start, wide = reached / (whole or 1.0), piece.amount / (whole or 1.0)
        reached += piece.amount
        drawn += _drawn(piece, start, wide, height, BANDS[turn % len(BANDS)].mixed) if wide > 0 else ()
    if limit is not None and 0 < limit < whole:
        x = percent(limit / whole)
        ends = {"x1": x, "x2": x, "y1": "0", "y2": str(height)}
        drawn += [element("line", class_="limit-edge", **ends), element("line", class_="limit", **ends)]
    told = element("title", label)
    return element("svg", told, *drawn, class_="bar", width="100%", height=str(height), role="img", aria_label=label)


def _drawn(piece: Piece, start: float, wide: float, height: int, band: str) -> Iterator[Markup]:
    title = element("title", f"{piece.word}: {piece.said}")
    place = {"x": percent(start), "width": percent(wide), "height": str(height)}
    known = {**SPENT, **HELD}.get(piece.ink)
    if known is None:  # which words tell apart
        yield element("g", title, element("rect", class_="shade", fill=band, **place))
    else:
        yield element(
            "g", title, element("rect", class_=f"part {piece.ink}", fill=f"url(#{PREFIX}{piece.ink})", **place)
        )
    words = f"{piece.word} {piece.said}"
    letters = piece.letter if wide >= LETTERED else ""
    letters = words if not piece.letter and wide >= WORDY * len(words) else letters
    if letters and height >= TALL:
        tone = "on-dark" if known and known.dark else "on-light" if known else "on-shade"
        middle = {"x": percent(start + wide / 2), "y": str(round(height / 2 + 4))}
        yield element("text", letters, class_=tone, text_anchor="middle", **middle)


def swatch(ink: str, letter: str) -> Markup:
    """What a part looks like in its bar, for the row that tells about it."""
    box = element("rect", class_=f"part {ink}", width="22", height="16", fill=f"url(#{PREFIX}{ink})")
    dark = {**SPENT, **HELD}[ink].dark
    name = element("text", letter, class_="on-dark" if dark else "on-light", x="11", y="12", text_anchor="middle")
    return element("svg", box, name, class_="swatch", width="22", height="16", aria_hidden="true")


def meter(fraction: float) -> Markup:
    """A share as a thin bar and a number."""
    said = share(fraction, 1.0)
    box = element("rect", class_="ground", width="100%", height=str(THIN))
    filled = element("rect", class_="filled", width=percent(min(fraction, 1.0)), height=str(THIN))
    drawn = element("svg", box, filled, class_="bar", width="100%", height=str(THIN), aria_hidden="true")
    return element("span", drawn, element("span", said), class_="meter")


def percent(fraction: float) -> str:
    """Hundredths of a per cent of the width."""
    return f"{100 * fraction:.3f}".rstrip("0").rstrip(".") + "%"


class Row(NamedTuple):
    """A row of a table; the first cell names it. `kind` of ops and the moment `at` (seconds) are what it is about in
    the timeline, which the page's script offers to show."""

    cells: Sequence[str]
    kind: str = ""
    at: float | None = None


def table(columns: Sequence[Column], rows: Iterable[Row], caption: str = "") -> Markup:
    """Wide ones scroll by themselves, by keyboard too."""
    head = [element("th", each.title, scope="col", class_=each.align) for each in columns]
    told = [element("caption", caption)] if caption else []
    body = (_row(columns, row) for row in rows)
    whole = element("table", *told, element("thead", element("tr", *head)), element("tbody", *body))
    name = caption or ", ".join(filter(None, (each.title for each in columns)))
    return element("div", whole, class_="wide", role="region", aria_label=name, tabindex="0")


def _row(columns: Sequence[Column], row: Row) -> Markup:
    first, *others = row.cells
    name = element("th", first, scope="row", class_=columns[0].align)
    cells = (element("td", cell, class_=column.align) for column, cell in zip(columns[1:], others, strict=True))
    at = None if row.at is None else repr(row.at)
    return element("tr", name, *cells, data_kind=row.kind or None, data_at=at)


def listed(lines: Iterable[str], class_: str = "") -> Markup:
    """A list of sentences."""
    return element("ul", *(element("li", line) for line in lines), class_=class_ or None)


def folded(summary: str, *content: str, open_: bool = False) -> Markup:
    """What is shown when asked for."""
    return element("details", element("summary", summary), *content, open=open_)
