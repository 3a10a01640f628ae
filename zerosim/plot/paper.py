"""The paper that pictures are drawn on: figures that notebooks show and files that have the same bytes every time.

Rules: letters are 7 to 9 points at the size of the figure, so that a figure of half a page is made so wide, not made
smaller; the font is the one that matplotlib brings, so that a picture is the same on every machine; no file has a date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from matplotlib.transforms import ScaledTranslation

from zerosim.errors import nearest
from zerosim.plot.checks import checked, wrongly
from zerosim.report.files import write_bytes

WIDTH = 6.4  # inches of a figure, unless another width is asked for; half a page is about 3.4
SHARP = 2.0  # pixels of a screen for each of the figure, in a notebook
DPI = 100.0
LEGEND_LINE = 0.17  # inches
LETTER = 4.7  # points of a letter of names and of words beside bars, on average
BESIDE = 26.0  # points left and right of axes and their names
BESIDE_A_LEGEND = 0.75  # of the width of somebody's axes that is left to them
GAP, LEAST = 8.0, 0.3  # points at the ends of words; of an axis that is left to bars
NARROWEST = 36.0  # points of axes, whatever stands beside them
NAMES, CUT = 0.34, "..."  # of the width, which names at the left of bars may have; where one is cut
MOST_BESIDE, BELOW = 0.8, 30.0  # of the width of axes, for a legend beside them; points below them, for one there
TITLE_LINE = 0.155  # inches
TIGHT = 1.8  # inches of axes: in narrower ones the words are small
SMALL_TITLE = 6.5  # points
SMALL: Mapping[str, Any] = {  # a legend of such
    "fontsize": 5.5,
    "handlelength": 1.2,
    "handletextpad": 0.5,
    "labelspacing": 0.2,
    "borderpad": 0.0,
}
FULL = 0.98  # of the width, which a legend may have
NOTE = 7.0  # points of the letters of notes
NOTE_BESIDE = 34  # letters in a line of notes beside axes
STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#888888",
    "grid.alpha": 0.35,
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": NOTE,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.handleheight": 0.9,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.3,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "text.parse_math": False,  # a dollar in a title is a dollar
    "svg.hashsalt": "zerosim",
    "pdf.fonttype": 42,
    "figure.constrained_layout.h_pad": 0.04,
    "figure.constrained_layout.w_pad": 0.04,
}
WITHOUT_A_DATE: Mapping[str, Mapping[str, Any]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {},
}


class Picture(Figure):
    """A figure that a notebook shows: IPython knows one of pyplot's only, and asks others for `_repr_png_`."""

    def savefig(self, *args: Any, **more: Any) -> None:
        """As usual, in the style of all pictures; `save` also leaves out the date."""
        with style():
            super().savefig(*args, **more)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        wide, high = (round(inches * DPI) for inches in self.get_size_inches())
        return drawn(self, "png", dpi=DPI * SHARP), {"width": wide, "height": high}


@contextmanager
def style() -> Iterator[None]:
    """Within it artists are made, and drawn, as all are here."""
    settings: Any = dict(STYLE)
    with mpl.rc_context(settings):
        yield


def picture(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    return Picture(figsize=(width, height), dpi=DPI, layout="constrained")


def drawn(figure: Figure, kind: str, **more: Any) -> bytes:
    """The figure as a file of a kind."""
    out = BytesIO()
    with style():
        figure.savefig(out, format=kind, metadata=dict(WITHOUT_A_DATE.get(kind, {})), **more)
    return out.getvalue()


@checked
def save(figure: Figure, path: str | Path, dpi: float = 2 * DPI) -> Path:
    """Write a figure to .svg, .pdf or .png, with the same bytes every time, whole or not at all."""
    path = Path(path)
    kind = path.suffix[1:].lower()
    if kind not in WITHOUT_A_DATE:
        known = [f".{each}" for each in WITHOUT_A_DATE]
        close = nearest(path.suffix, known)
        raise wrongly("save", "path", str(path), f"a name that ends in {', '.join(known)}", close)
    write_bytes(path, drawn(figure, kind, dpi=dpi))
    return path


def room(width: float, names: Iterable[str], ax: Axes | None = None) -> float:
    """About how many points of paper axes have in a figure so wide, with such names at their left; of somebody's axes
    what a legend leaves of them."""
    if ax is not None:
        return 72 * _whole(ax).get_figwidth() * ax.get_position().width * BESIDE_A_LEGEND
    lines = (line for name in names for line in name.splitlines())
    return max(72 * width - LETTER * max(map(len, lines), default=0) - BESIDE, NARROWEST)


def shortened(name: str, width: float, ax: Axes | None = None) -> str:
    """A name at the left of axes in two lines at the most, on a third of the width; of a longer one, which may differ
    from others at its end, the beginning and the end."""
    wide = 72 * (width if ax is None else _whole(ax).get_figwidth() * ax.get_position().width)
    letters = max(int(NAMES * wide / LETTER), len(CUT) + 1)
    lines = wrap(name, letters)
    if len(lines) > 2:
        lines[1:] = [CUT + name.strip()[len(CUT) - letters :].lstrip()]
    return "\n".join(lines)


def reaching(ends: Iterable[tuple[float, str]], points: float) -> float:
    """How far an axis from 0 on so many points goes, so that words beside the ends of bars stand within it."""
    return max(end / max(1 - (LETTER * len(words) + GAP) / points, LEAST) for end, words in ends)


def adopted(ax: Axes) -> Figure:
    """The whole figure that axes of somebody else stand in; the axes become as these here are. A figure without a
    layout gets one, which makes room for the names and legends of all its axes."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for axis, size in ((ax.xaxis, STYLE["xtick.labelsize"]), (ax.yaxis, STYLE["ytick.labelsize"])):
        look = {f"grid_{name}": STYLE[f"grid.{name}"] for name in ("color", "alpha", "linewidth")}
        axis.set_tick_params(labelsize=size, width=STYLE["xtick.major.width"], **look)
        axis.label.set_fontsize(STYLE["axes.labelsize"])
    ax.set_axisbelow(True)
    figure = _whole(ax)
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    return figure


def _whole(ax: Axes) -> Figure:
    figure = ax.figure
    while not isinstance(figure, Figure):
        figure = figure.figure
    return figure


def legend(figure: Figure, handles: Sequence[Artist], ax: Axes | None = None, notes: Iterable[str] = ()) -> int:
    """The legend outside the axes, and how many lines it has: below them all, or beside `ax` where the figure is
    somebody else's: at the right, or below where the legend would be nearly as wide (of small axes the first
    one's below them all, where it needs fewer lines). Notes, each once, stand above its entries."""
    if not handles:
        return 0
    letters = NOTE_BESIDE if ax is not None else int(FULL * 72 * figure.get_figwidth() / LETTER)
    told = [line for note in dict.fromkeys(notes) for line in wrap(note, letters)]
    look: dict[str, Any] = {"handles": list(handles), "title": "\n".join(told), "alignment": "left"}
    if ax is None:
        return _under(figure, look) + len(told)
    look |= SMALL if _tight(ax) else {}
    made = ax.legend(**look, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if made.get_window_extent().width > MOST_BESIDE * ax.bbox.width:
        made.remove()
        _under(figure, look) if _tight(ax) and not figure.legends else _below(ax, look)
    return 0


def _under(figure: Figure, look: Mapping[str, Any]) -> int:
    """A legend under all axes, in as few lines as have room; how many these are."""
    entries = len(look["handles"])
    for lines in range(1, entries + 1):
        made = figure.legend(**look, loc="outside lower left", ncols=-(-entries // lines))
        if made.get_window_extent().width <= FULL * figure.bbox.width or lines == entries:
            break
        made.remove()
    return lines


def _below(ax: Axes, look: Mapping[str, Any]) -> None:
    """A legend under one of several axes."""
    down = ScaledTranslation(0.0, -BELOW / 72, _whole(ax).dpi_scale_trans)
    ax.legend(**look, loc="upper left", bbox_to_anchor=(0.0, 0.0), bbox_transform=ax.transAxes + down)


def _tight(ax: Axes) -> bool:
    """Whether axes are so narrow that their words are small."""
    return _whole(ax).get_figwidth() * ax.get_position().width < TIGHT


def title(ax: Axes, text: str, points: float) -> float:
    """A title in lines of so many points at the most; the inches of those beyond the first."""
    size = SMALL_TITLE if _tight(ax) else STYLE["axes.titlesize"]
    lines = _lines(text, points, size)
    if text:
        ax.set_title("\n".join(lines), parse_math=False, size=size)
    return TITLE_LINE * max(len(lines) - 1, 0)


def _lines(text: str, points: float, size: float) -> list[str]:
    """Words in lines as wide as these letters are. Matplotlib's own `wrap` takes what is between dollars for formulas,
    which are narrower."""
    letters = FontProperties(family=STYLE["font.family"], size=size, weight="bold")

    def wide(line: str) -> float:
        return float(TextToPath().get_text_width_height_descent(line, letters, ismath=False)[0])

    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and wide(longer) <= points:
            lines[-1] = longer
        else:
            lines += _pieces(word, points, wide)
    return lines


def _pieces(word: str, points: float, wide: Callable[[str], float]) -> list[str]:
    """A word that is wider than a line, in several."""
    pieces = [""]
    for letter in word:
        if pieces[-1] and wide(pieces[-1] + letter) > points:
            pieces.append("")
        pieces[-1] += letter
    return pieces
