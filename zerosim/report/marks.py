"""Boxes on a lane of a picture: which to draw one by one, which to draw as one, and how to write them in SVG.

Rule: what is narrower than a fraction of a pixel is joined with its neighbours, so a picture's size follows its width
and not the number of ops. A box that a mouse can hit has a tooltip; a narrower one is part of one path per kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple
from xml.sax.saxutils import escape

FINEST = 0.3  # pixels: narrower neighbours are joined
TOOLTIP_FROM = 1.5  # pixels: a narrower box cannot be hit with a mouse
FONT = 10.0  # pixels
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
CHARACTER = 0.58 * FONT  # mean advance of a sans-serif letter, rounded up


class Mark(NamedTuple):
    """A box from `x` to `x + width` in pixels; `ink` names its kind. It fills the lower `share` of its lane."""

    ink: str
    x: float
    width: float
    label: str = ""
    tooltip: str = ""
    share: float = 1.0

    @property
    def end(self) -> float:
        return self.x + self.width


def joined(marks: Iterable[Mark]) -> list[Mark]:
    """The marks, with runs of too narrow ones as one mark that has the kind of the widest of them.

    A run goes on while it is still too narrow itself or the next mark is of its kind.
    """
    run: list[Mark] = []
    out: list[Mark] = []
    for mark in marks:
        if run and not _continues(run, mark):
            out.append(_one(run))
            run = []
        run.append(mark)
    return [*out, _one(run)] if run else out


def _continues(run: list[Mark], mark: Mark) -> bool:
    if mark.width >= FINEST or run[-1].width >= FINEST or mark.x - run[-1].end >= FINEST:
        return False
    return mark.ink == run[-1].ink or mark.end - run[0].x < FINEST


def _one(run: list[Mark]) -> Mark:
    if len(run) == 1:
        return run[0]
    widest = max(run, key=lambda mark: mark.width)
    width = max(mark.end for mark in run) - run[0].x
    longest = f", the longest of them {widest.label}" if widest.label else ""
    return Mark(widest.ink, run[0].x, width, "", f"{len(run)} ops{longest}", widest.share)


def drawn(marks: Iterable[Mark], height: float, tones: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """SVG of one lane whose top is y = 0. `tones`: the class of letters by the kind that they stand on."""
    narrow: dict[str, list[str]] = {}
    for mark in joined(marks):
        if mark.width < TOOLTIP_FROM:
            narrow.setdefault(mark.ink, []).append(_outline(mark, height))
            continue
        yield f'<path class="{mark.ink}" d="{_outline(mark, height)}"><title>{text(mark.tooltip)}</title></path>'
        label = fitting(mark.label, mark.width - 4)
        if label:
            tone = f"middle {tones.get(mark.ink, '')}".rstrip()
            x, y = mark.x + mark.width / 2, height * (1 - mark.share / 2) + 0.35 * FONT
            yield f'<text class="{tone}" x="{number(x)}" y="{number(y)}">{text(label)}</text>'
    for ink, outlines in narrow.items():
        yield f'<path class="{ink}" d="{"".join(outlines)}"/>'


def _outline(mark: Mark, height: float) -> str:
    width, filled = number(max(mark.width, FINEST)), mark.share * height
    return f"M{number(mark.x)} {number(height - filled)}h{width}v{number(filled)}h-{width}z"


def fits(label: str, width: float) -> bool:
    """Whether the label has room in so many pixels."""
    return len(label) * CHARACTER <= width


def fitting(name: str, width: float) -> str:
    """The name of a module if it fits, its last part if that does, else nothing: a cut name says the wrong thing."""
    return next((known for known in (name, name.rpartition(".")[2]) if fits(known, width)), "")


def number(value: float) -> str:
    """Hundredths of a pixel, without a tail of zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(content: str) -> str:
    """Content of an XML element: escaped, and without the characters that XML 1.0 forbids (its production 2, Char)."""
    return escape(FORBIDDEN.sub("\ufffd", content))
