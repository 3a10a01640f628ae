"""Timelines: what each stream did when, which phase the step was in, and what was exposed.

Rule: the lanes, their order, colours and hatches are those of the SVG (`report.svg`); x is seconds, so that lines and
notes of one's own can be added to the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zerosim.errors import nearest
from zerosim.plot import boxes, paper, scales
from zerosim.plot.boxes import Window
from zerosim.plot.checks import checked, span, wrongly
from zerosim.plot.inks import PAINTS
from zerosim.plot.named import labelled, title_of
from zerosim.report import bands, svg
from zerosim.report.lanes import Lane
from zerosim.report.palette import INKS
from zerosim.resources import RankClass
from zerosim.timeline import Timeline
from zerosim.units import show_seconds

LANE, THIN = 17.0, 10.0  # points: a stream; the host, what is exposed
AROUND = 0.62  # inches above and below the lanes: title, axis
WORDS = {**svg.ISSUING, **svg.WORKING_ON, **{name: ink.word for name, ink in INKS.items()}, **svg.EXPOSED}


class _Shown(NamedTuple):
    """One timeline and what of it is drawn: the lanes, in seconds."""

    timeline: Timeline
    rank_class: RankClass
    lanes: list[Lane]
    label: str


@checked
def timeline(
    played: Timeline,
    rank_class: str = "",
    start: float | None = None,
    end: float | None = None,
    lanes: Sequence[str] | None = None,
    title: str | None = None,
    width: float = paper.WIDTH,
    ax: Axes | None = None,
) -> Figure:
    """The lanes of one rank class; of the one that ends last, which explains the step, unless another is named.

    `start` and `end` in seconds show a part of the step, `lanes` those of these names.
    """
    named = title_of(played, f": {show_seconds(played.makespan)}") if title is None else title
    shown = [_shown(played, rank_class, lanes, named)]
    with paper.style():
        if ax is None:
            return _figure(shown, _span(shown, start, end), width)
        figure = paper.adopted(ax)
        points = paper.room(width, (), ax)
        paper.legend(figure, _draw(ax, shown[0], Window(*_span(shown, start, end), points)), ax)
        return figure


@checked
def timelines(
    played: Sequence[Timeline],
    labels: Sequence[str] = (),
    rank_class: str = "",
    start: float | None = None,
    end: float | None = None,
    lanes: Sequence[str] | None = None,
    width: float = paper.WIDTH,
) -> Figure:
    """Several steps, one above the other over the same time axis. Of `lanes` each shows those that it has."""
    shown = []
    for each, label in zip(played, labelled(played, labels), strict=True):
        shown.append(
            _shown(each, rank_class, lanes, f"{label}: {show_seconds(each.makespan)}", several=len(played) > 1)
        )
    with paper.style():
        return _figure(shown, _span(shown, start, end), width)


def _figure(shown: Sequence[_Shown], span: tuple[float, float], width: float) -> Figure:
    """A figure as high as its lanes and its legend need."""
    window = Window(*span, paper.room(width, [lane.title for each in shown for lane in each.lanes]))
    heights = [boxes.height(each.lanes) for each in shown]
    figure = paper.picture(width, 1.0)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    found: dict[str, Artist] = {}
    for ax, each in zip(panels, shown, strict=True):
        found |= {str(entry.get_label()): entry for entry in _draw(ax, each, window)}
        if ax is not panels[-1]:
            ax.set_xlabel("")
            ax.tick_params(axis="x", length=0, labelbottom=False)
    entries = [found[word] for word in dict.fromkeys(WORDS.values()) if word in found]
    lines = paper.legend(figure, entries)
    between = 0.32 * (len(shown) - 1)
    between += paper.TITLE_LINE * sum(ax.get_title(loc="left").count("\n") for ax in panels)
    figure.set_size_inches(width, sum(heights) / 72 + AROUND + between + paper.LEGEND_LINE * lines)
    return figure


def _draw(ax: Axes, shown: _Shown, window: Window) -> list[Artist]:
    """The lanes in axes; the entries of their legend."""
    phases = bands.phases(shown.timeline, shown.rank_class)
    present = boxes.draw(ax, shown.lanes, phases, window, shown.timeline.makespan)
    scales.seconds(ax, "x", window.end)
    paper.title(ax, shown.label, window.points)
    return [PAINTS[ink].swatch(word) for ink, word in WORDS.items() if ink in present]


def _span(shown: Sequence[_Shown], start: float | None, end: float | None) -> tuple[float, float]:
    """The seconds that are shown."""
    whole = max(each.timeline.makespan for each in shown)
    return span("timeline", start, end, whole)


def _shown(played: Timeline, rank_class: str, lanes: Sequence[str] | None, label: str, several: bool = False) -> _Shown:
    """InputError for a lane that it has not, or of `several` timelines where it has none of them."""
    chosen = _class(played, rank_class)
    rows = [row._replace(height=_height(row)) for row in svg.lanes_of(played, chosen, boxes.SECONDS)]
    has = [row.title for row in rows]
    wrong = [name for name in lanes or () if name not in has]
    kept = rows if lanes is None else [row for row in rows if row.title in lanes]
    if wrong and not (several and kept):
        raise wrongly("timeline", "lanes", f'"{wrong[0]}"', f"one of {', '.join(has)}", nearest(wrong[0], has))
    return _Shown(played, chosen, kept, label)


def _height(row: Lane) -> float:
    return LANE if row.height >= svg.LANE else THIN


def _class(played: Timeline, name: str) -> RankClass:
    if not name:
        return played.slowest
    known = {each.name: each for each in played.classes}
    if name not in known:
        raise wrongly("timeline", "rank_class", f'"{name}"', f"one of {', '.join(known)}", nearest(name, list(known)))
    return known[name]
