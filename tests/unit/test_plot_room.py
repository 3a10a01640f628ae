"""Words have room: long names and titles, numbers beside a capacity, small axes of somebody else."""

from __future__ import annotations

import warnings

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from tests.timelines import MB, tiny
from tests.unit.test_plot import within
from tests.unit.test_plot_bars import names
from zerosim import plot
from zerosim.plot import paper
from zerosim.spec.topology_file import named_topology

LONG = "a_very long $label_{x}$ with $ unbalanced & _underscores_ " * 3


@pytest.mark.parametrize("width", [3.4, 6.4])
def test_long_names_and_titles_have_room(width: float) -> None:
    """Also where dollars would be formulas, which are narrower than what is written."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in (
            plot.breakdown([tiny(), tiny()], [LONG + "1", LONG + "2"], title=LONG, width=width),
            plot.timeline(tiny(), title=LONG, width=width),
            plot.bandwidth(named_topology("dgx-a100-80"), title=LONG, width=width),
            plot.memory(tiny(), title="x" * 300, width=width),
        ):
            within(figure)
            assert figure.axes[0].get_position().height * figure.get_figheight() > 0.3


def test_of_a_long_name_the_beginning_and_the_end_stay() -> None:
    first, second = names(plot.breakdown([tiny(), tiny()], [LONG + "1", LONG + "2"]).axes[0])
    assert first.startswith("a_very long")
    assert first.count("\n") == 1
    assert (first[-1], second[-1]) == ("1", "2")
    assert paper.shortened("ZeRO-3", 6.4) == "ZeRO-3"


def boxes_of(ax: Axes) -> list[Bbox]:
    """Where the words of axes are."""
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # a whole one
    return [each.get_window_extent() for each in ax.texts if each.get_text()]


@pytest.mark.parametrize("capacity", [20e9, 40e9, 80e9, 114e9])
def test_a_capacity_crosses_no_number(capacity: float) -> None:
    ax = plot.ledger(7e9, 8, capacity=capacity, offload=True).axes[0]
    words = boxes_of(ax)
    at = ax.transData.transform((capacity, 0.0))[0]
    assert not [box for box in words if box.x0 < at < box.x1]


def test_small_axes_of_a_figure_without_a_layout() -> None:
    """Neither the legend nor the names of lanes lie on the neighbour, or off the paper."""
    for draw in (plot.timeline, plot.memory, lambda played, ax: plot.breakdown([played], ax=ax)):
        own = Figure(figsize=(3.4, 2.0))
        left, right = own.subplots(1, 2)
        draw(tiny(600 * MB), ax=left)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            within(own)
        beside = right.get_tightbbox()
        legend = left.get_legend() or own.legends[0]
        assert beside is not None
        assert not legend.get_window_extent().overlaps(beside)
        assert left.get_position().height > 0.25
