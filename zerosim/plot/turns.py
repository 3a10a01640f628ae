"""The step over a knob: seconds and where they go, and the peak of memory below.

Rule: a point is a step that was played (`studies.curves`); what is drawn between points only leads the eye. What does
not fit in memory is a cross, the best is a star.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from zerosim.errors import nearest
from zerosim.plot import paper, scales
from zerosim.plot.checks import KnobOf, checked, wrongly
from zerosim.plot.inks import INK, RIM, limit, paint, stroke
from zerosim.report.palette import LIMIT, LINES, SPENT
from zerosim.report.tune import show
from zerosim.studies.curves import Curve, Point
from zerosim.units import show_count, show_flops, show_rate, show_seconds, show_size

HEIGHT, BELOW = 2.3, 1.1  # inches: of the step, of the memory below it
BARS = 0.7  # of the room of a value that is no number
SEEN = 5e-3  # of the longest step: a part of less is no entry of the legend
SAME = 1e-6  # of a batch: more is another one
AXIS = "100 GB"  # what stands at its left takes about so much
LETTER = 4.6  # points of a letter below an axis


class _Scale(NamedTuple):
    """Where the values of a curve stand, and how they are written."""

    places: list[float]
    labels: list[str]
    logarithmic: bool
    numeric: bool

    @classmethod
    def of(cls, curve: Curve) -> _Scale:
        """By their logarithms where all are numbers above 0, else one beside the other."""
        values = [point.value for point in curve.points]
        labels = [written(curve, value) for value in values]
        if curve.numeric and len(values) > 1 and all(float(value or 0) > 0 for value in values):
            return cls([float(value or 0) for value in values], labels, True, True)
        return cls([float(place) for place in range(len(values))], labels, False, curve.numeric and len(values) > 1)


def written(curve: Curve, value: object) -> str:
    """A value of the curve's knob as people write it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        match curve.unit:
            case "B/s":
                return show_rate(value, bits=curve.network)
            case "FLOP/s":
                return show_flops(value)
            case "ratio":
                return f"{value:.3g}:1"
            case "elements":
                return show_count(value)
            case "MiB":
                return f"{value:g} MiB"
    return show(value)


@checked
def knob(
    curve: Curve,
    of: KnobOf | None = None,
    parts: bool = True,
    tier: str = "gpu",
    title: str | None = None,
    width: float = paper.WIDTH,
) -> Figure:
    """The step over a knob with its parts, and below it the peak of a tier under its capacity.

    `of="tokens"` shows tokens a second, as is usual where batches differ; `parts=False` the step alone, on an axis that
    need not begin at 0.
    """
    _check(curve, tier)
    of = of or ("step" if _one_batch(curve) else "tokens")
    with paper.style():
        figure = paper.picture(width, HEIGHT + BELOW)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(HEIGHT, BELOW))
        scale = _Scale.of(curve)
        entries = _step(above, curve, scale, parts) if of == "step" else _tokens(above, curve, scale)
        entries += _marks(above, curve, scale, of) + _peaks(below, curve, scale, tier)
        _values(below, curve, scale, width)
        more = paper.title(above, curve.scenario if title is None else title, paper.room(width, [AXIS]))
        lines = paper.legend(figure, entries, notes=curve.notes)
        figure.set_size_inches(width, HEIGHT + BELOW + more + paper.LEGEND_LINE * lines)
        return figure


def _check(curve: Curve, tier: str) -> None:
    known = list(curve.points[0].memory)
    if tier not in known:
        raise wrongly("knob", "tier", f'"{tier}"', f"one of {', '.join(known)}", nearest(tier, known))


def _one_batch(curve: Curve) -> bool:
    """Whether all steps have as many tokens, so that the shortest is the best."""
    tokens = [point.seconds * point.tokens_per_second for point in curve.points]
    return max(tokens) <= min(tokens) * (1 + SAME)


def _step(ax: Axes, curve: Curve, scale: _Scale, parts: bool) -> list[Artist]:
    """Seconds, and under them where they went."""
    seconds = [point.seconds for point in curve.points]
    entries = _parts(ax, curve, scale) if parts else []
    if scale.numeric:
        ax.plot(scale.places, seconds, color=INK, marker="o", label="step", zorder=4)
        entries = [stroke("step", color=INK, marker="o"), *entries]
    elif not parts:
        ax.plot(scale.places, seconds, color=INK, marker="o", linestyle="None", label="step")
    scales.seconds(ax, "y", max(seconds), "step")
    if parts:
        ax.set_ylim(0.0, 1.1 * max(seconds))
    ax.grid(axis="y")
    return entries


def _parts(ax: Axes, curve: Curve, scale: _Scale) -> list[Artist]:
    entries: list[Artist] = []
    below, longest = [0.0] * len(curve.points), max(point.seconds for point in curve.points)
    for name, ink in SPENT.items():
        own = [asdict(point.breakdown)[name] for point in curve.points]
        above = [sum(pair) for pair in zip(below, own, strict=True)]
        if max(own):
            look = paint(ink)
            if scale.numeric:
                ax.fill_between(scale.places, below, above, label=ink.word, **look.keywords)
            else:
                ax.bar(scale.places, own, BARS, bottom=below, label=ink.word, **look.keywords)
            entries += [look.swatch(ink.word)] if max(own) > SEEN * longest else []
        below = above
    return entries


def _tokens(ax: Axes, curve: Curve, scale: _Scale) -> list[Artist]:
    rates = [point.tokens_per_second for point in curve.points]
    ax.plot(scale.places, rates, color=INK, marker="o", linestyle="-" if scale.numeric else "None", label="tokens/s")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show_count(value)))
    ax.set_ylabel("tokens/s")
    ax.set_ylim(0.0, 1.1 * max(rates))
    ax.grid(axis="y")
    return []


def _height(point: Point, of: KnobOf) -> float:
    return point.seconds if of == "step" else point.tokens_per_second


def _marks(ax: Axes, curve: Curve, scale: _Scale, of: KnobOf) -> list[Artist]:
    """The best, where steps can be compared, today's and what does not fit."""
    best = _best(ax, curve, scale, of) if of == "tokens" or _one_batch(curve) else ()
    return [*best, *_today(ax, curve, scale), *_unfit(ax, curve, scale, of)]


def _best(ax: Axes, curve: Curve, scale: _Scale, of: KnobOf) -> Iterator[Artist]:
    best = curve.best
    if best is None:
        return
    place = scale.places[curve.points.index(best)]
    look: dict[str, Any] = {
        "marker": "*",
        "markersize": 11,
        "color": LINES[4],
        "markeredgecolor": INK,
        "markeredgewidth": 0.6,
    }
    ax.plot([place], [_height(best, of)], linestyle="None", zorder=6, clip_on=False, label="best", **look)
    told = show_seconds(best.seconds) if of == "step" else f"{show_count(best.tokens_per_second)} tokens/s"
    yield stroke(f"best: {written(curve, best.value)}, {told}", linestyle="None", **look)


def _today(ax: Axes, curve: Curve, scale: _Scale) -> Iterator[Artist]:
    """The value of the scenario, if it is one of the curve's, or has a place among them."""
    values = [point.value for point in curve.points]
    if curve.today in values:
        place = scale.places[values.index(curve.today)]
    elif scale.logarithmic and isinstance(curve.today, int | float):
        place = float(curve.today)
    else:
        return
    ax.axvline(place, color=INK, linestyle=":", linewidth=1.0, label="today", zorder=3, path_effects=[RIM])
    yield stroke(f"today: {written(curve, curve.today)}", color=INK, linestyle=":", linewidth=1.0)


def _unfit(ax: Axes, curve: Curve, scale: _Scale, of: KnobOf) -> Iterator[Artist]:
    pairs = zip(scale.places, curve.points, strict=True)
    wrong = [(place, _height(point, of)) for place, point in pairs if not point.fits]
    if wrong:
        look: dict[str, Any] = {
            "marker": "X",
            "color": LIMIT,
            "markeredgecolor": "white",
            "markersize": 8,
            "linestyle": "None",
        }
        ax.plot(*zip(*wrong, strict=True), zorder=5, label="does not fit", **look)
        yield stroke("does not fit in memory", **look)


def _peaks(ax: Axes, curve: Curve, scale: _Scale, tier: str) -> list[Artist]:
    held = [point.memory.get(tier) for point in curve.points]
    peaks = [each.bytes if each else 0.0 for each in held]
    capacities = [each.capacity if each else 0.0 for each in held]
    look: dict[str, Any] = {"color": LINES[0], "marker": "s", "linestyle": "-" if scale.numeric else "None"}
    ax.plot(scale.places, peaks, label="peak", **look)
    most = max(peaks)
    entries: list[Artist] = [stroke(f"peak of {tier if tier != 'gpu' else 'a GPU'}", **look)]
    if max(capacities):
        limit(ax, scale.places, capacities)
        entries.append(stroke(f"capacity {show_size(max(capacities))}", color=LIMIT, linestyle="--"))
        most = max(most, *capacities)
    scales.sizes(ax, "y", most, "peak")
    ax.set_ylim(0.0, 1.12 * most)
    ax.grid(axis="y")
    return entries


def _values(ax: Axes, curve: Curve, scale: _Scale, width: float) -> None:
    """The values below the axis, as many as have room."""
    if scale.logarithmic:
        ax.set_xscale("log")
    else:
        ax.set_xlim(-0.6, len(scale.places) - 0.4)
    ax.xaxis.set_minor_locator(NullLocator())
    kept = _roomy(scale, 72 * (width - 0.9))
    ax.xaxis.set_major_locator(FixedLocator([scale.places[each] for each in kept]))
    labels = {scale.places[each]: scale.labels[each] for each in kept}
    ax.xaxis.set_major_formatter(FuncFormatter(lambda place, _: labels.get(place, "")))
    unit = f", {curve.unit}" if curve.unit in ("elements", "tokens") else ""
    ax.set_xlabel(curve.path.rpartition("zero_optimization.")[2] + unit)


def _roomy(scale: _Scale, points: float) -> list[int]:
    """The values whose labels do not touch the one before."""
    places = [math.log(place) if scale.logarithmic else place for place in scale.places]
    wide = (places[-1] - places[0]) or 1.0
    kept, edge = list[int](), -math.inf
    for number, place in enumerate(places):
        middle = 0.92 * points * (place - places[0]) / wide
        half = LETTER * (len(scale.labels[number]) + 1) / 2
        if middle - half >= edge:
            kept.append(number)
            edge = middle + half
    return kept
