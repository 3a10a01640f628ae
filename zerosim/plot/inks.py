"""How matplotlib draws what `report.palette` says: fill, hatch and swatch of each kind.

Rule: no colour of what `palette` knows stands here. A hatch has the colour of the edge, which itself has no width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from zerosim.report.palette import BARE, HELD, INKS, LIMIT, TONES, UNPARTED, Hatch, Ink

HATCHES: Mapping[Hatch, str] = {
    "plain": "",
    "rising": "////",
    "falling": "\\\\\\\\",
    "crossed": "xxx",
    "upright": "|||",
    "level": "----",
    "dotted": "....",
    "grid": "+++",
    "ringed": "ooo",
}
RIM = withStroke(linewidth=3.0, foreground=(1.0, 1.0, 1.0, 0.8))  # of letters and lines, against what is behind them
HELD_INKS: Mapping[str, Ink] = {**HELD, "total": UNPARTED}  # the parts of memory, by `tiers.Held.parts`
FAINT, INK = "#F2F2F2", "#222222"


class Paint(NamedTuple):
    """What a box looks like; letters on a `dark` one are white."""

    face: Any
    edge: Any
    hatch: str = ""
    width: float = 0.0
    dashed: bool = False
    dark: bool = False

    @property
    def keywords(self) -> dict[str, Any]:
        """For patches, bars and collections of boxes."""
        return {
            "facecolor": self.face,
            "edgecolor": self.edge,
            "hatch": self.hatch or None,
            "linewidth": self.width,
            "linestyle": (0, (3, 2)) if self.dashed else "-",
        }

    def swatch(self, word: str) -> Artist:
        """An entry of a legend."""
        return Patch(label=word, **self.keywords)


def stroke(label: str, **look: Any) -> Artist:
    """An entry of a legend that is a line or a marker."""
    return Line2D([], [], label=label, **look)


def limit(ax: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    """A line at what there is no more than, with a white rim that keeps it apart from what it crosses."""
    ax.plot(xs, ys, color=LIMIT, linestyle="--", label="capacity", path_effects=[RIM], zorder=4)


def paint(ink: Ink) -> Paint:
    """The paint of an ink."""
    return Paint(ink.colour, ink.line.mixed, HATCHES[ink.hatch], dark=ink.dark)


PAINTS: Mapping[str, Paint] = {
    "issue": Paint(TONES["issue"].light, "none", dark=True),
    "wait": Paint("none", TONES["wait"].light, width=0.6, dashed=True),
    "even": Paint(TONES["even"].light, "none"),
    "odd": Paint(TONES["odd"].light, "none"),
    **{name: paint(ink) for name, ink in {**INKS, **BARE}.items()},
}
