"""Axes in the units that reports write: seconds and bytes stay what they are in the data, ticks are scaled.

Rule: ticks stand at round numbers of the unit that they are shown in, which is in the label of the axis: `step, ms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

Side = Literal["x", "y"]
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
TICK = 44.0  # points of a number with its unit


def axis_of(ax: Axes, side: Side) -> Axis:
    """The x or the y axis."""
    return ax.xaxis if side == "x" else ax.yaxis


def seconds(ax: Axes, side: Side, most: float, label: str = "time") -> None:
    """An axis of seconds up to `most`."""
    _linear(axis_of(ax, side), most, label, TIMES)


def sizes(ax: Axes, side: Side, most: float, label: str) -> None:
    """An axis of bytes up to `most`."""
    _linear(axis_of(ax, side), most, label, SIZES)


def shares(ax: Axes, side: Side, label: str) -> None:
    """An axis of shares, in percent, with ticks up to the whole."""
    axis = axis_of(ax, side)
    axis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g} %"))
    axis.set_label_text(label)


def logarithmic(
    ax: Axes,
    side: Side,
    label: str,
    show: Callable[[float], str],
    points: float = math.inf,
    most: float = math.inf,
) -> None:
    """An axis of powers of ten, on so many points of paper, with numbers up to `most` as `show` writes them; for what
    is drawn already."""
    axis = axis_of(ax, side)
    if side == "x":
        ax.set_xscale("log")
    else:
        ax.set_yscale("log")
    low, high = (math.log10(end) for end in sorted(axis.get_view_interval()))
    last = math.floor(min(high, math.log10(most)))
    every = max(math.ceil(TICK * (high - low) / points), 1)
    axis.set_major_locator(FixedLocator([10.0**power for power in range(math.ceil(low), last + 1, every)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    axis.set_label_text(label)


def at(ax: Axes, values: list[float], labels: list[str], logarithm: bool) -> None:
    """Ticks of the x axis at values of one's own, on a scale of logarithms or a plain one."""
    if logarithm:
        ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(values, labels)


def _linear(axis: Axis, most: float, label: str, units: tuple[tuple[float, str], ...]) -> None:
    scale, unit = next((known for known in units if most >= known[0]), units[-1])
    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:.6g}"))
    axis.set_label_text(f"{label}, {unit}")
