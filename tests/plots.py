"""What is on a figure of `zerosim.plot`: boxes of a kind, words, lines, entries of the legend."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch


class Box(NamedTuple):
    """A box of a timeline, seconds and points of paper."""

    left: float
    right: float
    top: float
    bottom: float


def path_of(ax: Axes, ink: str) -> PathPatch:
    """All boxes of a kind, which are one path."""
    (found,) = (each for each in ax.patches if isinstance(each, PathPatch) and each.get_label() == ink)
    return found


def boxes(ax: Axes, ink: str) -> list[Box]:
    """Its boxes, from left to right."""
    corners = np.asarray(path_of(ax, ink).get_path().vertices).reshape(-1, 5, 2)
    return sorted(Box(*each[0], *each[2])._replace(right=each[2][0], top=each[0][1]) for each in corners.tolist())


def kinds(ax: Axes) -> set[str]:
    """The kinds of boxes that there are."""
    return {str(each.get_label()) for each in ax.patches if isinstance(each, PathPatch)}


def line(ax: Axes, label: str) -> Line2D:
    """The line of that name."""
    (found,) = (each for each in ax.lines if each.get_label() == label)
    return found


def ys(ax: Axes, label: str) -> list[float]:
    """What a line shows."""
    values: npt.NDArray[np.float64] = np.asarray(line(ax, label).get_ydata(), dtype=float)
    return [float(value) for value in values]


def bars(ax: Axes, label: str) -> list[float]:
    """The lengths of lying bars of that name."""
    (found,) = (each for each in ax.containers if each.get_label() == label)
    return [float(patch.get_width()) for patch in found.patches]  # type: ignore[attr-defined]  # bars are patches


def entries(figure: Figure) -> list[str]:
    """The words of the legend."""
    own: list[Legend] = [*figure.legends, *(each for ax in figure.axes if (each := ax.get_legend()) is not None)]
    return [text.get_text() for legend in own for text in legend.get_texts()]


def words(ax: Axes) -> list[str]:
    """What is written in the axes."""
    return [text.get_text() for text in ax.texts if text.get_text()]


def hatches(figure: Figure) -> dict[str, Any]:
    """The hatch of each box in the legend, by its words."""
    (legend,) = figure.legends
    shown = zip(legend.legend_handles, legend.get_texts(), strict=True)
    return {text.get_text(): handle.get_hatch() for handle, text in shown if isinstance(handle, Patch)}
