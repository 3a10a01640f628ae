"""Memory over the step: what a tier holds, category by category, under its capacity.

Rule: the curve is the one by which running out is judged (`views.memory`), and its highest point is the peak that a
summary tells. Where moves are closer than a fraction of a point of paper the highest of them stands for all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zerosim.plot import paper, scales
from zerosim.plot.checks import By, checked, span
from zerosim.plot.inks import HELD_INKS, INK, limit, paint, stroke
from zerosim.plot.named import title_of
from zerosim.plot.tiers import Held, curves_of, tier_of
from zerosim.report.palette import LIMIT
from zerosim.timeline import Timeline
from zerosim.units import show_seconds, show_size
from zerosim.views.memory_by_category import Categories

HEIGHT = 2.3  # inches
AXIS = "100 GB"  # what stands at its left takes about so much
COLUMNS = 1500  # of the curve: a third of a point of paper each
NEAR = 0.5  # of the peak: a capacity so far above it is not on the axis
SEEN = 5e-3  # of the most that is held: less is no entry of the legend
TIER_NAMES = {"gpu": "a GPU", "dram": "DRAM of a node", "nvme": "NVMe of a node"}


class _Levels(NamedTuple):
    """Step functions over the seconds that are shown; the last level lasts to the end."""

    seconds: npt.NDArray[np.float64]
    bytes: dict[str, npt.NDArray[np.float64]]


@checked
def memory(
    played: Timeline,
    tier: str = "gpu",
    by: By = "category",
    start: float | None = None,
    end: float | None = None,
    title: str | None = None,
    width: float = paper.WIDTH,
    ax: Axes | None = None,
) -> Figure:
    """Bytes held by a tier over the step: of one GPU, or of a node's `dram` or `nvme`, by category or as a whole. A
    trace tells the sum alone, if it was recorded."""
    held = tier_of(played, tier)
    shown = span("memory", start, end, played.makespan)
    levels = _levels(curves_of(played, tier), shown)
    with paper.style():
        figure = paper.adopted(ax) if ax is not None else paper.picture(width, HEIGHT)
        on = ax if ax is not None else figure.subplots()
        entries = _areas(on, levels) if by == "category" else _line(on, levels)
        entries += [*_capacity(on, held, shown), *_peak(on, held, shown)]
        scales.sizes(on, "y", held.peak, f"held by {TIER_NAMES.get(tier, tier)}")
        scales.seconds(on, "x", shown[1])
        on.set_xlim(*shown)
        room = paper.room(width, [AXIS], ax)
        more = paper.title(on, title_of(played) if title is None else title, room)
        on.grid(axis="both")
        lines = paper.legend(figure, entries, ax)
        if ax is None:
            figure.set_size_inches(width, HEIGHT + more + paper.LEGEND_LINE * lines)
        return figure


def _areas(ax: Axes, levels: _Levels) -> list[Artist]:
    """The categories, one upon the other."""
    below, whole = np.zeros_like(levels.seconds), np.sum(list(levels.bytes.values()), axis=0).max()
    entries: list[Artist] = []
    for category, ink in HELD_INKS.items():
        if category not in levels.bytes:
            continue
        above = below + levels.bytes[category]
        most = levels.bytes[category].max()
        if most:
            look = paint(ink)
            ax.fill_between(levels.seconds, below, above, step="post", label=ink.word, **look.keywords)
            entries += [look.swatch(ink.word)] if most > SEEN * whole else []
        below = above
    ax.step(levels.seconds, below, where="post", color=INK, linewidth=0.6)
    return entries


def _line(ax: Axes, levels: _Levels) -> list[Artist]:
    whole = np.sum(list(levels.bytes.values()), axis=0)
    ax.step(levels.seconds, whole, where="post", color=INK, linewidth=1.0, label="held")
    return [stroke("held", color=INK, linewidth=1.0)]


def _capacity(ax: Axes, held: Held, span: tuple[float, float]) -> list[Artist]:
    """A line where it is near the curve; else it is told in the legend alone."""
    if not held.capacity:
        return []
    near = held.peak >= NEAR * held.capacity
    ax.set_ylim(0.0, 1.08 * max(held.peak, held.capacity if near else 0.0))
    if near:
        limit(ax, span, [held.capacity] * 2)
    look: dict[str, Any] = {"linestyle": "--"} if near else {"linestyle": "None", "marker": "^"}
    label = f"capacity {show_size(held.capacity)}{'' if near else ', above the picture'}"
    return [stroke(label, color=LIMIT, **look)]


def _peak(ax: Axes, held: Held, span: tuple[float, float]) -> list[Artist]:
    if not span[0] <= held.seconds <= span[1]:
        return []
    ax.plot([held.seconds], [held.peak], marker="v", color=INK, clip_on=False, zorder=5, label="peak")
    label = f"peak {show_size(held.peak)} at {show_seconds(held.seconds)}"
    entries: list[Artist] = [stroke(label, marker="v", linestyle="None", color=INK)]
    missing = [stroke(f"{show_size(held.excess)} too much", linestyle="None")] if held.excess else []
    return entries + missing


def _levels(found: Categories, span: tuple[float, float]) -> _Levels:
    """What is held in the span, at no more moments than can be seen."""
    start, end = span
    first = max(int(np.searchsorted(found.seconds, start, side="right")) - 1, 0)
    last = int(np.searchsorted(found.seconds, end, side="right"))
    seconds = np.maximum(found.seconds[first:last], start)
    chosen = _highest(seconds, found.total[first:last], (end - start) / COLUMNS or 1.0)
    times = np.append(seconds[chosen], end)
    levels = {name: held[first:last][chosen] for name, held in found.bytes.items()}
    return _Levels(times, {name: np.append(level, level[-1]) for name, level in levels.items()})


def _highest(seconds: npt.NDArray[np.float64], total: npt.NDArray[np.float64], column: float) -> npt.NDArray[np.int64]:
    """In each column of the picture the highest moment, and the last one, which lasts until the next column."""
    columns = np.floor(seconds / column).astype(np.int64)
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    ends = np.append(starts[1:], len(seconds))
    highest = [start + int(np.argmax(total[start:end])) for start, end in zip(starts, ends, strict=True)]
    return np.unique(np.concatenate((np.array(highest, dtype=np.int64), ends - 1)))
