"""Rates: the bandwidth ladder of a machine, and the bus bandwidth of its collectives by size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zerosim.plot import paper, scales
from zerosim.plot.checks import checked, wrongly
from zerosim.plot.inks import PAINTS, stroke
from zerosim.report.palette import LINES
from zerosim.report.words import counted
from zerosim.spec.topology import Topology
from zerosim.studies.bandwidths import Tier, bandwidths
from zerosim.studies.collectives_check import Sweep
from zerosim.units import show_rate, show_size

BAR, AROUND, HEIGHT = 0.27, 0.85, 2.8  # inches
THICK = 0.72
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GB = 1e9


@checked
def bandwidth(
    topology: Topology, title: str | None = None, width: float = paper.WIDTH, ax: Axes | None = None
) -> Figure:
    """The bandwidth ladder: what a GPU has of each tier and link when all GPUs of its node use it at once, on paper and
    in one direction. An outline where one socket, port or drive is faster than a GPU's part."""
    tiers = bandwidths(topology)
    with paper.style():
        figure = paper.adopted(ax) if ax is not None else paper.picture(width, AROUND + BAR * len(tiers))
        on = ax if ax is not None else figure.subplots()
        look = PAINTS["matmul"]
        least = 10.0 ** (math.floor(math.log10(min(tier.per_gpu for tier in tiers))) - 0.5)
        most = max(max(tier.per_gpu, tier.rate) for tier in tiers)
        for place, tier in enumerate(tiers):
            on.barh(place, tier.per_gpu, left=0, height=THICK, **look.keywords)
            on.barh(place, tier.rate, left=0, height=THICK, facecolor="none", edgecolor=PAINTS["wait"].edge, lw=0.6)
            end = max(tier.per_gpu, tier.rate)
            on.annotate(_told(tier), (end, place), (4, 0), textcoords="offset points", va="center", size=7.0)
        decades = [(math.log10(max(tier.per_gpu, tier.rate) / least), _told(tier)) for tier in tiers]
        points = paper.room(width, [tier.name for tier in tiers], ax)
        on.set_xscale("log")
        on.set_xlim(least, least * 10 ** paper.reaching(decades, points))
        scales.logarithmic(on, "x", "bandwidth of a GPU, one direction", show_rate, points, most)
        on.set_yticks(range(len(tiers)), [tier.name for tier in tiers])
        on.set_ylim(len(tiers) - 0.5, -0.5)
        on.tick_params(axis="y", length=0)
        on.grid(axis="x")
        more = paper.title(on, topology.name if title is None else title, points)
        if ax is None:
            figure.set_size_inches(width, AROUND + more + BAR * len(tiers))
        return figure


def _told(tier: Tier) -> str:
    """`51.2 GB/s (2 sockets of 204.8 GB/s)`."""
    own = show_rate(tier.per_gpu)
    if tier.each == "GPU":
        return own
    return f"{own} ({counted(tier.number, tier.each)} of {show_rate(tier.rate, bits=tier.network)})"


@checked
def bus_bandwidth(
    sweeps: Sequence[Sweep],
    labels: Sequence[str] = (),
    title: str = "",
    width: float = paper.WIDTH,
    ax: Axes | None = None,
) -> Figure:
    """The bus bandwidth of collectives over the size of their message, as nccl-tests counts both: a line for each
    collective and number of GPUs. `labels`: of the sweeps, where these are of several machines."""
    if labels and len(labels) != len(sweeps):
        raise wrongly("bus_bandwidth", "labels", f"{len(labels)} labels", f"{len(sweeps)}, one a sweep")
    with paper.style():
        figure = paper.adopted(ax) if ax is not None else paper.picture(width, HEIGHT)
        on = ax if ax is not None else figure.subplots()
        looks = zip(cycle(LINES), cycle(MARKERS), strict=False)
        entries = []
        for sweep, name in zip(sweeps, labels or [""] * len(sweeps), strict=True):
            for kind in dict.fromkeys(row.collective for row in sweep.rows):
                rows = sorted((row for row in sweep.rows if row.collective == kind), key=lambda row: row.size_bytes)
                colour, marker = next(looks)
                label = ", ".join(filter(None, (name, kind.replace("_", "-"), f"{sweep.gpus} GPUs")))
                busy = [row.size_bytes for row in rows], [row.busbw * GB for row in rows]
                on.plot(*busy, color=colour, marker=marker, label=label)
                entries.append(stroke(label, color=colour, marker=marker))
        points = paper.room(width, ["100 MB/s"], ax)
        scales.logarithmic(on, "x", "size of the message", show_size, points)
        scales.logarithmic(on, "y", "bus bandwidth", show_rate)
        on.grid(axis="both")
        more = paper.title(on, title, points)
        paper.legend(figure, entries, ax)
        if ax is None:
            figure.set_size_inches(width, HEIGHT + more)
        return figure
