"""The step over the rate of a network: which network a strategy needs.

Rule: a mark is a step that was played (`studies.curves`). Between two of them the line is that of a step that waits
for the network, a + b / rate, as in `Curve.crossing`: it bends on these axes, as both are logarithmic, and where it
meets the next one it may have a corner. Nothing is smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from zerosim.plot import paper, scales
from zerosim.plot.checks import NetworkOf, checked
from zerosim.plot.inks import INK, stroke
from zerosim.report.palette import LIMIT, LINES
from zerosim.studies.curves import Curve
from zerosim.studies.rate_kinds import GBPS, SOLD
from zerosim.units import show_rate, show_seconds, show_share

HEIGHT = 2.5  # inches
AXIS = "1000x -"  # what stands at its left takes about so much
MARKERS = ("o", "s", "^", "D", "v", "P")
STROKES = ("-", "--", "-.", ":")
TIMES = (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)  # ticks
CLOSE = {1.1: 3.0, 1.2: 3.0, 1.5: 10.0}  # too close to their neighbours where the axis goes on to so much
BETWEEN = 24  # points of a line between two that were played


@checked
def network(
    curves: Sequence[Curve],
    of: NetworkOf = "slowdown",
    target: float | None = None,
    title: str = "",
    width: float = paper.WIDTH,
    ax: Axes | None = None,
) -> Figure:
    """Steps over the rate of a network, a line for each strategy: how many times the step with a free network
    (`slowdown`), or seconds (`step`). Marks were played; the line between two of them is a + b / rate, bent
    on the logarithmic axes. `target`: where each line comes to it, 0.1 for 10 % longer, or seconds; about, as between
    marks nothing was played."""
    with paper.style():
        figure = paper.adopted(ax) if ax is not None else paper.picture(width, HEIGHT)
        on = ax if ax is not None else figure.subplots()
        looks = zip(cycle(LINES), cycle(MARKERS), cycle(STROKES), strict=False)
        entries = [_strategy(on, curve, of, target, look) for curve, look in zip(curves, looks, strict=False)]
        if target is not None:
            entries.append(_target(on, of, target))
        _rates(on, curves)
        _heights(on, curves, of)
        on.grid(axis="both")
        more = paper.title(on, title, paper.room(width, [AXIS], ax))
        lines = paper.legend(figure, entries, ax, [note for curve in curves for note in curve.notes])
        if ax is None:
            figure.set_size_inches(width, HEIGHT + more + paper.LEGEND_LINE * lines)
        return figure


def _target(ax: Axes, of: NetworkOf, target: float) -> Artist:
    level = target if of == "step" else 1 + target
    told = show_seconds(target) if of == "step" else f"{show_share(target)} longer"
    look: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 0.8}
    ax.axhline(level, label="target", zorder=1, **look)
    return stroke(f"target: {told}", **look)


def _strategy(ax: Axes, curve: Curve, of: NetworkOf, target: float | None, look: tuple[str, str, str]) -> Artist:
    """The line of a curve; its entry in the legend tells where it comes to the target."""
    colour, marker, dashes = look
    by = _one(curve, of)
    rates = [float(point.value or 0) for point in curve.points]
    heights = [point.seconds / by for point in curve.points]
    style: dict[str, Any] = {"color": colour, "linestyle": dashes, "marker": marker}
    ax.plot(
        *_between(rates, heights), color=colour, linestyle=dashes, label=f"between points of {curve.label}", zorder=3
    )
    ax.plot(rates, heights, color=colour, linestyle="None", marker=marker, label=curve.label, zorder=3)
    unfit = [(rate, high) for rate, high, p in zip(rates, heights, curve.points, strict=True) if not p.fits]
    if unfit:
        ax.plot(*zip(*unfit, strict=True), linestyle="None", marker="X", color=LIMIT, markersize=8, zorder=4)
    words = [curve.label, "does not fit" if len(unfit) == len(rates) else ""]
    if target is not None:
        seconds = target if of == "step" else (1 + target) * by
        least = curve.crossing(seconds)
        if least is None:
            words.append("no rate is enough")
        else:
            words.append(f"about {show_rate(float(f'{8 * least:.2g}') / 8, bits=True)}")
            ax.plot([least], [seconds / by], marker="o", markersize=9, color=colour, markerfacecolor="none", zorder=5)
    return stroke(": ".join([words[0], ", ".join(filter(None, words[1:]))]).rstrip(": "), **style)


def _one(curve: Curve, of: NetworkOf) -> float:
    """The seconds that are 1 on the axis; a step of which a free network leaves nothing is shown in seconds."""
    return 1.0 if of == "step" else curve.free_seconds or 1.0


def _between(rates: Sequence[float], heights: Sequence[float]) -> tuple[list[float], list[float]]:
    """Through the points, a + b / rate between two of them."""
    xs, ys = list(rates[:1]), list(heights[:1])
    for (few, high), (many, low) in pairwise(zip(rates, heights, strict=True)):
        between = np.geomspace(few, many, BETWEEN)[1:]
        b = (high - low) / (1 / few - 1 / many)
        xs += between.tolist()
        ys += (low + b * (1 / between - 1 / many)).tolist()
    return xs, ys


def _rates(ax: Axes, curves: Sequence[Curve]) -> None:
    """Ports that are sold as ticks, in Gb/s."""
    every = [float(point.value or 0) for curve in curves for point in curve.points]
    sold = [rate for rate in SOLD if min(every) * 0.999 <= rate * GBPS <= max(every) * 1.001]
    scales.at(ax, [rate * GBPS for rate in sold], [str(rate) for rate in sold], logarithm=True)
    ax.set_xlabel("rate of a port, Gb/s")


def _heights(ax: Axes, curves: Sequence[Curve], of: NetworkOf) -> None:
    if of == "step":
        most = max(point.seconds for curve in curves for point in curve.points)
        scales.seconds(ax, "y", most, "step")
        ax.set_ylim(0.0, 1.05 * most)
        return
    most = max(point.seconds / _one(curve, of) for curve in curves for point in curve.points)
    ax.set_yscale("log")
    ax.yaxis.set_minor_locator(NullLocator())
    shown = [times for times in TIMES if times <= 1.1 * most and most < CLOSE.get(times, math.inf)]
    ax.set_yticks(shown, [f"{times:g}x" for times in shown])
    ax.set_ylim(0.96, most * 1.1)
    ax.set_ylabel("step / step with a free network")
