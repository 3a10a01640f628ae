"""Bars: where the time of steps went, what memory holds at its peak, and the bill of model states by formula.

Rule: a bar's parts sum to the number that is written at its end; a part has its number where there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zerosim.plot import paper, scales
from zerosim.plot.checks import checked, wrongly
from zerosim.plot.inks import HELD_INKS, RIM, limit, paint, stroke
from zerosim.plot.named import labelled
from zerosim.plot.tiers import Held, each_tier
from zerosim.report.palette import LIMIT, SPENT, Ink
from zerosim.studies.ledger import GRADIENT, OPTIMIZER, WEIGHT, Entry, model_states
from zerosim.studies.ledger import ledger as bill
from zerosim.timeline import Timeline
from zerosim.units import show_count, show_seconds, show_share, show_size
from zerosim.views import breakdown as parts_of

BAR, AROUND = 0.27, 0.62  # inches: of a bar with what is between two of them; above and below all
THICK = 0.72  # of what a bar has
WRITTEN = 6.5  # points of the letters on bars
LETTER = 0.6 * WRITTEN  # points of one of them
BESIDE = 4.0  # points between the end of a bar and its number
SEEN = 5e-3  # of the longest bar: less is no entry of the legend
STAGES = {0: "stage 0 (DDP)", 1: "stage 1", 2: "stage 2", 3: "stage 3"}


class _Bar(NamedTuple):
    """A bar: its name, its parts by name of an ink, what stands at its end, and where it ought to end at the most."""

    label: str
    parts: Mapping[str, float]
    told: str
    limit: float = 0.0

    @property
    def end(self) -> float:
        """Of the bar, or of its limit."""
        return max(self.whole, self.limit)

    @property
    def whole(self) -> float:
        return sum(self.parts.values())


@checked
def breakdown(
    played: Sequence[Timeline],
    labels: Sequence[str] = (),
    share: bool = False,
    title: str = "",
    width: float = paper.WIDTH,
    ax: Axes | None = None,
) -> Figure:
    """Where the time of each step went: seconds, or with `share` parts of the step."""
    bars = []
    for each, label in zip(played, labelled(played, labels), strict=True):
        by = 1 / (each.makespan or 1.0) if share else 1.0
        parts = {name: seconds * by for name, seconds in asdict(parts_of(each)).items()}
        bars.append(_Bar(label, parts, show_seconds(each.makespan)))
    most = max(bar.whole for bar in bars)

    def axis(ax: Axes) -> None:
        if share:
            scales.shares(ax, "x", "share of the step")
        else:
            scales.seconds(ax, "x", most, "step")

    return _drawn(bars, SPENT, show_share if share else show_seconds, axis, title, width, ax)


@checked
def memory_parts(
    played: Sequence[Timeline],
    labels: Sequence[str] = (),
    tier: str = "gpu",
    title: str = "",
    width: float = paper.WIDTH,
    ax: Axes | None = None,
) -> Figure:
    """What a tier holds at its peak, with its capacity: of one GPU, or of a node's `dram` or `nvme`. A trace tells
    the sum alone, if it was recorded."""
    pairs = zip(labelled(played, labels), each_tier(played, tier), strict=True)
    bars = [_memory_bar(label, held) for label, held in pairs]
    whose = "a GPU" if tier == "gpu" else f"{tier.upper().replace('NVME', 'NVMe')} of a node"
    return _sized(bars, f"peak of {whose}", title, width, ax)


@checked
def ledger(
    parameters: float,
    gpus: int,
    capacity: float = 0.0,
    offload: bool = False,
    gpus_per_node: int | None = None,
    title: str | None = None,
    width: float = paper.WIDTH,
    ax: Axes | None = None,
) -> Figure:
    """The bill of model states on each GPU by stage: 2 + 2 + 12 bytes a parameter (Rajbhandari et al. 2020, ZeRO §3.1).

    `offload` adds the stages with the optimizer in host memory, with what a node holds there; `capacity` (bytes) is a
    line.
    """
    if gpus_per_node and gpus_per_node < gpus and gpus % gpus_per_node:
        raise wrongly("ledger", "gpus_per_node", str(gpus_per_node), f"equal nodes: a divisor of {gpus} GPUs")
    entries = bill(parameters, gpus, gpus_per_node)
    rows = [e for e in entries if e.offload == "none"] + [
        e for e in entries if offload and e.offload == "cpu" and e.stage
    ]
    bars = [_Bar(_entry_name(e), _states(e, parameters, gpus), _entry_told(e), capacity) for e in rows]
    named = f"Model states of {show_count(parameters)} parameters on {gpus} GPUs" if title is None else title
    return _sized(bars, "model states a GPU", named, width, ax)


def _memory_bar(label: str, held: Held | None) -> _Bar:
    """None: nobody recorded it."""
    if held is None:
        return _Bar(label, {}, "not recorded")
    return _Bar(label, held.parts, f"{show_size(held.peak)}{', does not fit' if held.excess else ''}", held.capacity)


def _entry_name(entry: Entry) -> str:
    return f"stage {entry.stage} + offload" if entry.offload == "cpu" else STAGES[entry.stage]


def _entry_told(entry: Entry) -> str:
    below = f" + {show_size(entry.dram_bytes_per_node)} of DRAM" if entry.dram_bytes_per_node else ""
    return show_size(entry.gpu_bytes_per_gpu) + below


def _states(entry: Entry, parameters: float, gpus: int) -> dict[str, float]:
    """The parts of a line of the bill; with the optimizer elsewhere, gradients are what is not weights."""
    weights = model_states(entry.stage, parameters, gpus, (WEIGHT, 0, 0))
    if entry.offload == "cpu":
        return {"parameters": weights, "gradients": entry.gpu_bytes_per_gpu - weights, "optimizer": 0.0}
    return {
        "parameters": weights,
        "gradients": model_states(entry.stage, parameters, gpus, (0, GRADIENT, 0)),
        "optimizer": model_states(entry.stage, parameters, gpus, (0, 0, OPTIMIZER)),
    }


# --- drawing ---------------------------------------------------------------------------------------------------------


def _sized(bars: Sequence[_Bar], label: str, title: str, width: float, ax: Axes | None) -> Figure:
    """Bars of bytes."""
    most = max(bar.end for bar in bars)
    return _drawn(bars, HELD_INKS, show_size, lambda ax: scales.sizes(ax, "x", most, label), title, width, ax)


def _drawn(
    bars: Sequence[_Bar],
    inks: Mapping[str, Ink],
    show: Callable[[float], str],
    axis: Callable[[Axes], None],
    title: str,
    width: float,
    ax: Axes | None,
) -> Figure:
    with paper.style():
        figure = paper.adopted(ax) if ax is not None else paper.picture(width, 1.0)
        on = ax if ax is not None else figure.subplots()
        bars = [bar._replace(label=paper.shortened(bar.label, width, ax)) for bar in bars]
        points = paper.room(width, [bar.label for bar in bars], ax)
        entries = _bars(on, bars, inks, show, points)
        axis(on)
        more = paper.title(on, title, points)
        lines = paper.legend(figure, entries, ax)
        if ax is None:
            high = AROUND + (0.1 if title else -0.1) + more + BAR * len(bars) + paper.LEGEND_LINE * lines
            figure.set_size_inches(width, high)
        return figure


def _bars(
    ax: Axes, bars: Sequence[_Bar], inks: Mapping[str, Ink], show: Callable[[float], str], points: float
) -> list[Artist]:
    """The first bar is on top; the entries of the legend."""
    most, ends = _reach(bars, points)
    entries: list[Artist] = []
    reached = [0.0] * len(bars)
    for name, ink in inks.items():
        sizes = [bar.parts.get(name, 0.0) for bar in bars]
        if not any(sizes):
            continue
        _part(ax, reached, sizes, ink)
        _numbers(ax, reached, sizes, [bar.limit for bar in bars], ink, show, points / most)
        if max(sizes) > SEEN * most:
            entries.append(paint(ink).swatch(ink.word))
        reached = [sum(pair) for pair in zip(reached, sizes, strict=True)]
    _ends(ax, bars, ends)
    if any(bar.limit for bar in bars):
        entries.append(_limits(ax, bars))
    ax.set_yticks(range(len(bars)), [bar.label for bar in bars], parse_math=False)
    ax.set_ylim(len(bars) - 0.5, -0.5)
    ax.set_xlim(0.0, most)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    return entries


def _reach(bars: Sequence[_Bar], points: float) -> tuple[float, list[float]]:
    """How far the axis goes, and beside what each bar's number stands: its end, or its limit where that would cross
    the number."""
    ends = [bar.whole for bar in bars]
    while True:
        told = [(end, bar.told) for end, bar in zip(ends, bars, strict=True)]
        most = paper.reaching([*told, *((bar.limit, "") for bar in bars)], points) or 1.0
        moved = [
            bar.limit if end <= bar.limit < end + _wide(bar.told) * most / points else end
            for end, bar in zip(ends, bars, strict=True)
        ]
        if moved == ends:
            return most, ends
        ends = moved


def _part(ax: Axes, reached: Sequence[float], sizes: Sequence[float], ink: Ink) -> None:
    """One part of all bars."""
    ax.barh(range(len(sizes)), sizes, left=reached, height=THICK, label=ink.word, **paint(ink).keywords)


def _numbers(
    ax: Axes,
    reached: Sequence[float],
    sizes: Sequence[float],
    limits: Sequence[float],
    ink: Ink,
    show: Callable[[float], str],
    scale: float,
) -> None:
    """What is written on a part of all bars, with so many points for 1: in its middle, or in that of the wider side of
    a limit that crosses it."""
    look = paint(ink)
    rim = {"facecolor": look.face, "edgecolor": "none", "pad": 0.8}
    letters = "white" if look.dark else "black"
    for place, (start, size, most) in enumerate(zip(reached, sizes, limits, strict=True)):
        end = start + size
        sides = [(start, most), (most, end)] if start < most < end else [(start, end)]
        left, right = max(sides, key=lambda side: side[1] - side[0])
        if _roomy(show(size), scale * (right - left)):
            middle = (left + right) / 2
            ax.text(middle, place, show(size), ha="center", va="center", size=WRITTEN, color=letters, bbox=rim)


def _roomy(text: str, points: float) -> bool:
    """Whether a part so wide has room for it."""
    return LETTER * (len(text) + 2) < 0.7 * points


def _wide(text: str) -> float:
    """Points of a number at the end of a bar, with what is before and after it."""
    return LETTER * len(text) + 2 * BESIDE


def _ends(ax: Axes, bars: Sequence[_Bar], ends: Sequence[float]) -> None:
    """What stands at the end of each bar."""
    beside: dict[str, Any] = {"xytext": (BESIDE, 0), "textcoords": "offset points", "va": "center"}
    for place, (bar, end) in enumerate(zip(bars, ends, strict=True)):
        ax.annotate(bar.told, (end, place), path_effects=[RIM], zorder=5, size=WRITTEN + 0.5, **beside)


def _limits(ax: Axes, bars: Sequence[_Bar]) -> Artist:
    """A stroke at the limit of each bar, all one line where they are equal."""
    for place, bar in enumerate(bars):
        if bar.limit:
            limit(ax, [bar.limit] * 2, [place - 0.5, place + 0.5])
    return stroke("capacity", color=LIMIT, linestyle="--")
