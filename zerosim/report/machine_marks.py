"""What a picture of a machine is made of: boxes, lines and words in pixels, on a sheet that can be laid on another.

Rule: no machine here. A line is as thick as its bandwidth, on a scale of powers of ten; words know how wide they are,
and are cut with an ellipsis where there is no room, with the whole of them as a tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from zerosim.report.marks import CHARACTER
from zerosim.report.tables import cell_width, clip

LINE = 12.0  # pixels from one line of words to the next
SLOWEST, FASTEST = 1e8, 1e15  # bytes/s: beyond these a line is no thinner, no thicker
THINNEST, PER_POWER = 0.6, 1.8  # pixels; more for each power of ten
BADGE = 15.0  # height in pixels of the badge with the letter of a class


class Box(NamedTuple):
    """Lines of words in a frame. `mark`: the class of ranks whose letter it bears; `busy`: how full its bar is;
    `several`: it stands for more than one."""

    x: float
    y: float
    width: float
    height: float
    ink: str
    lines: tuple[str, ...] = ()
    about: str = ""
    mark: int | None = None
    busy: float | None = None
    several: bool = False

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


class Line(NamedTuple):
    """A way through points, as thick as `rate`; `ink` says of what kind it is, `heat` how warm."""

    points: tuple[tuple[float, float], ...]
    ink: str
    rate: float
    about: str = ""
    heat: str = ""


class Words(NamedTuple):
    """One line of words that starts at x, or has its middle there; y is the baseline."""

    x: float
    y: float
    text: str
    ink: str = ""
    about: str = ""


@dataclass
class Sheet:
    """What is drawn so far: lines lie under boxes, words above both."""

    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)

    def lay(self, other: Sheet, x: float, y: float) -> None:
        """Another sheet on this one, moved."""
        self.boxes += [box._replace(x=box.x + x, y=box.y + y) for box in other.boxes]
        self.lines += [line._replace(points=tuple((a + x, b + y) for a, b in line.points)) for line in other.lines]
        self.words += [each._replace(x=each.x + x, y=each.y + y) for each in other.words]

    def write(self, x: float, bottom: float, lines: Iterable[str], ink: str = "") -> None:
        """Lines of words, the last of them at `bottom`."""
        written = list(lines)
        for above, text in enumerate(reversed(written)):
            self.words.append(Words(x, bottom - above * LINE, text, ink))


def thickness(rate: float) -> float:
    """Pixels of a line that carries so many bytes/s."""
    powers = math.log10(min(max(rate, SLOWEST), FASTEST) / SLOWEST)
    return THINNEST + PER_POWER * powers


def beside(x: float, rate: float) -> float:
    """Where words at the right of an upright line begin."""
    return x + thickness(rate) / 2 + 3


def wide(text: str) -> float:
    """Pixels that the words take."""
    return cell_width(text) * CHARACTER


def cut(text: str, room: float) -> str:
    """The words, or as much of them as there is room for."""
    return clip(text, int(room / CHARACTER + 1e-9))


def letter(mark: int) -> str:
    """A, B, ... Z, AA, AB, ...: the name of a class on the picture."""
    word = ""
    mark += 1
    while mark:
        mark, rest = divmod(mark - 1, 26)
        word = chr(ord("A") + rest) + word
    return word


def wide_badge(mark: int) -> float:
    """Pixels of the badge of a class: a square for one letter."""
    return max(BADGE, wide(letter(mark)) + 8)


def span(names: tuple[str, ...]) -> str:
    """ "gpu0" or "gpu0 - gpu7": the first and the last of what is drawn once."""
    if len(names) == 1:
        return names[0]
    first, last = names[0], names[-1]
    stem = first.rstrip("0123456789")
    number = last.removeprefix(stem)
    return f"{first}–{number}" if stem and number.isdecimal() and first != stem else f"{first} … {last}"
