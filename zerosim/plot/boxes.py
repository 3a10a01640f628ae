"""Lanes of boxes in axes whose x is seconds: the marks of `report.lanes`, as matplotlib draws them.

Rule: lanes come in seconds (`SECONDS`). To see what is too narrow, and what has room for its name, marks become pixels
at which the letters of `report.marks` have the size of those here, as in the SVG. Boxes of one kind are one path,
however many they are and on whichever lanes: a hatch is drawn once a path, and takes long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke

from zerosim.plot.inks import FAINT, PAINTS
from zerosim.report.bands import Band
from zerosim.report.lanes import Lane, Scale
from zerosim.report.marks import FINEST, FONT, Mark, fits, fitting, joined
from zerosim.report.palette import BANDS
from zerosim.units import show_seconds

LETTERS = 6.5  # points
POINT = LETTERS / FONT * 1.06  # of paper for a pixel of a mark: the font here is wider than that of the SVG
GAP, BAND = 3.0, 11.0  # points
SEAM, SEAMED_FROM = 0.5, 4.0  # points of a line between boxes that touch; pixels of the boxes, at least
SECONDS = Scale(0.0, 1.0)  # of lanes, whose pixels then are seconds
CODES = (Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY)


class Window(NamedTuple):
    """The seconds that are shown, on so many points of paper."""

    start: float
    end: float
    points: float

    @property
    def per_second(self) -> float:
        """Pixels of marks in a second."""
        return self.points / POINT / ((self.end - self.start) or 1.0)

    def seconds(self, pixel: float) -> float:
        """A place in pixels as a time."""
        return self.start + pixel / self.per_second

    def clipped(self, marks: Iterable[Mark]) -> Iterator[Mark]:
        """What of the marks, in seconds, is in it, in pixels."""
        start, end, scale = self.start, self.end, self.per_second
        for ink, x, width, label, _, share in marks:
            left, right = max(x, start), min(x + width, end)
            if right > left:
                yield Mark(ink, (left - start) * scale, (right - left) * scale, label, "", share)


def height(lanes: Sequence[Lane]) -> float:
    """Points of the lanes and the phases above them."""
    return BAND + GAP + sum(lane.height + GAP for lane in lanes)


def draw(ax: Axes, lanes: Sequence[Lane], phases: Sequence[Band], window: Window, makespan: float) -> set[str]:
    """All of it, from top to bottom, with the names of the lanes at the left; the inks that are in it. Marks of `lanes`
    are in seconds."""
    boxes: dict[str, list[tuple[float, float]]] = {}
    seams: list[list[tuple[float, float]]] = []
    _phases(ax, phases, window)
    top, middles = BAND + GAP, []
    for lane in lanes:
        ground = (max(window.start, 0.0), min(window.end, makespan) - max(window.start, 0.0))
        ax.broken_barh([ground], (top, lane.height), facecolor=FAINT, linewidth=0)
        marks = joined(window.clipped(lane.marks))
        seams += ([(x, top), (x, top + lane.height)] for x in map(window.seconds, _seams(marks)))
        for mark in marks:
            boxes.setdefault(mark.ink, []).extend(_outline(mark, window, top, lane.height))
            _label(ax, mark, window, top + lane.height * (1 - mark.share / 2))
        middles.append(top + lane.height / 2)
        top += lane.height + GAP
    for ink, outlines in boxes.items():
        path = Path(np.array(outlines), np.tile(np.array(CODES, dtype=Path.code_type), len(outlines) // len(CODES)))
        ax.add_patch(PathPatch(path, label=ink, **PAINTS[ink].keywords))
    ax.add_collection(LineCollection(seams, colors="white", linewidths=SEAM), autolim=False)
    ax.set_xlim(window.start, window.end)
    ax.set_ylim(top - GAP / 2, -1.0)
    ax.set_yticks(middles, [lane.title for lane in lanes])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    return set(boxes)


def _seams(marks: Iterable[Mark]) -> Iterator[float]:
    """Where a box of a kind ends and the next begins: pixels at which a line tells them apart. What the host issues is
    one stretch, as most of it is too narrow."""
    for mark, after in pairwise(marks):
        touch = mark.ink == after.ink != "issue" and after.x - mark.end < FINEST
        if touch and min(mark.width, after.width) >= SEAMED_FROM:
            yield mark.end


def _outline(mark: Mark, window: Window, top: float, high: float) -> list[tuple[float, float]]:
    left, right = window.seconds(mark.x), window.seconds(mark.end)
    bottom = top + high
    upper = bottom - mark.share * high
    return [(left, upper), (right, upper), (right, bottom), (left, bottom), (left, upper)]


def _label(ax: Axes, mark: Mark, window: Window, middle: float) -> None:
    label = fitting(mark.label, mark.width - 4)
    if label:
        _letters(ax, window.seconds(mark.x + mark.width / 2), middle, label, PAINTS[mark.ink].dark)


def _letters(ax: Axes, x: float, y: float, words: str, dark: bool) -> None:
    """Words on a box, white on a dark one, else black with a white rim that keeps hatches off."""
    written = ax.text(
        x, y, words, size=LETTERS, ha="center", va="center_baseline", clip_on=True, color="white" if dark else "black"
    )
    if not dark:
        written.set_path_effects([withStroke(linewidth=1.8, foreground=(1.0, 1.0, 1.0, 0.7))])


def _phases(ax: Axes, phases: Sequence[Band], window: Window) -> None:
    """Forward, backward, optimizer, with as much about them as there is room for."""
    for number, band in enumerate(phases):
        left, right = max(band.start, window.start), min(band.end, window.end)
        if right <= left:
            continue
        ground = BANDS[number % len(BANDS)].mixed
        ax.broken_barh([(left, right - left)], (0.0, BAND), facecolor=ground, linewidth=0)
        told = (f"{band.label} {show_seconds(band.end - band.start)}", band.label)
        pixels = (right - left) * window.per_second
        words = next((each for each in told if fits(each, pixels)), "")
        if words:
            _letters(ax, (left + right) / 2, BAND / 2, words, dark=True)
            ax.texts[-1].set(color="black")
