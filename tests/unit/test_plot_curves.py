"""Curves as figures: the points are those of the study; what is best, what does not fit and where a line crosses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.plots import entries, line, ys
from zerosim import InputError, plot
from zerosim.plot.turns import written
from zerosim.studies.curves import Curve, Peak, Point
from zerosim.studies.tuning.knob import Value
from zerosim.views import Breakdown

GBPS = 1e9 / 8
PATH = "strategy.deepspeed.zero_optimization.reduce_bucket_size"
CAPACITY = 80e9


def point(value: Value, seconds: float, held: float = 10e9, tokens: float = 12.0) -> Point:
    """1 s of it is computed, the rest communicates."""
    spent = Breakdown(1.0, seconds - 1.0, 0.0, 0.0, 0.0)
    return Point(value, seconds, spent, tokens / seconds, {"gpu": Peak(held, CAPACITY)}, held <= CAPACITY)


def buckets(*points: Point) -> Curve:
    return Curve("ZeRO-3", "7B", PATH, "elements", False, 10_000_000, None, points)


def usual() -> Curve:
    """4, 3, 2 and 1 s; the last does not fit."""
    return buckets(point(1e6, 4), point(1e7, 3, 20e9), point(1e8, 2, 40e9), point(1e9, 1, 90e9))


def choices() -> Curve:
    return replace(buckets(point(False, 3), point(True, 2)), path="overlap_comm", unit="", today=False)


def network(label: str, moved: float) -> Curve:
    """1 s and `moved` GB over the network."""
    points = tuple(point(rate * GBPS, 1 + 8 * moved / rate) for rate in (10, 25, 100, 400))
    return Curve(label, "7B", "node.nics.bandwidth", "B/s", True, 100 * GBPS, 1.0, points)


def ticks(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_xticklabels()]


def xs(ax: Axes, label: str) -> list[float]:
    return [float(x) for x in np.asarray(line(ax, label).get_xdata(), dtype=float)]


# --- a knob ----------------------------------------------------------------------------------------------------------


def test_a_knob_has_the_step_and_the_peak_below() -> None:
    figure = plot.knob(usual())
    step, held = figure.axes
    assert (xs(step, "step"), ys(step, "step")) == ([1e6, 1e7, 1e8, 1e9], [4, 3, 2, 1])
    assert ys(held, "peak") == [10e9, 20e9, 40e9, 90e9]
    assert ys(held, "capacity") == [CAPACITY] * 4
    assert step.get_xscale() == held.get_xscale() == "log"
    assert ticks(held) == ["1M", "10M", "100M", "1B"]
    assert held.get_xlabel() == "reduce_bucket_size, elements"
    assert (step.get_ylabel(), held.get_ylabel()) == ("step, s", "peak, GB")
    assert step.get_title(loc="left") == "7B"


def test_the_best_fits_and_is_marked() -> None:
    figure = plot.knob(usual())
    assert (xs(figure.axes[0], "best"), ys(figure.axes[0], "best")) == ([1e8], [2])
    assert (xs(figure.axes[0], "does not fit"), ys(figure.axes[0], "does not fit")) == ([1e9], [1])
    assert xs(figure.axes[0], "today") == [1e7, 1e7]
    assert entries(figure) == [
        "step", "compute", "exposed communication", "best: 100M, 2 s", "today: 10M", "does not fit in memory",
        "peak of a GPU", "capacity 80 GB",
    ]  # fmt: skip


def test_the_parts_lie_under_the_step() -> None:
    tops = [
        float(np.max(np.asarray(each.get_paths()[0].vertices)[:, 1])) for each in plot.knob(usual()).axes[0].collections
    ]
    assert tops == [1.0, 4.0]  # what is computed, and with what is exposed
    alone = plot.knob(usual(), parts=False).axes[0]
    assert not alone.collections
    assert alone.get_ylim()[0] > 0


def test_choices_are_bars() -> None:
    step, held = plot.knob(choices()).axes
    heights = {str(each.get_label()): [bar.get_height() for bar in each.patches] for each in step.containers}  # type: ignore[attr-defined]  # bars
    assert heights == {"compute": [1, 1], "exposed communication": [2, 1]}
    assert ticks(held) == ["false", "true"]
    assert step.get_xscale() == "linear"
    assert xs(step, "today") == [0, 0]


def test_unequal_batches_are_compared_by_tokens() -> None:
    """Twice the tokens in less than twice the time."""
    more = replace(buckets(point(1, 2, tokens=10.0), point(2, 3, tokens=20.0)), path="nodes", unit="", today=1)
    figure = plot.knob(more)
    assert ys(figure.axes[0], "tokens/s") == [5, 20 / 3]
    assert xs(figure.axes[0], "best") == [2]
    assert "best: 2, 6.667 tokens/s" in entries(figure)
    by_step = plot.knob(more, of="step")
    assert ys(by_step.axes[0], "step") == [2, 3]
    assert not any(entry.startswith("best") for entry in entries(by_step))


def test_a_note_of_a_curve_is_on_the_figure() -> None:
    """Once, however many curves have it; above the entries, which stay the same; in lines that have room."""
    note = "rack 7: measured at today's rates, and left out here but for the factors of GPUs"
    alone, noted = plot.knob(usual()), plot.knob(replace(usual(), notes=(note,)))
    assert notes(alone) == ""
    assert notes(noted).split() == note.split()
    assert entries(noted) == entries(alone)
    assert noted.get_size_inches()[1] > alone.get_size_inches()[1]
    both = [replace(network(label, 10), notes=(note,)) for label in ("ZeRO-3", "ZeRO++")]
    assert notes(plot.network(both)).split() == note.split()
    assert "\n" in notes(plot.network(both, width=3.4))
    beside = plot.network(both, ax=Figure(layout="constrained").subplots()).axes[0].get_legend()
    assert beside is not None
    assert beside.get_title().get_text().split() == note.split()


def notes(figure: Figure) -> str:
    (legend,) = figure.legends
    return legend.get_title().get_text()


def test_values_of_zero_have_no_logarithm() -> None:
    figure = plot.knob(buckets(point(0, 2), point(1e5, 3)))
    assert figure.axes[0].get_xscale() == "linear"
    assert ticks(figure.axes[1]) == ["0", "100k"]
    assert ys(figure.axes[0], "step") == [2, 3]


def test_ticks_that_have_no_room_are_left_out() -> None:
    close = buckets(*(point(1e6 * 1.05**place, 2) for place in range(40)))
    shown = ticks(plot.knob(close, width=3.4).axes[1])
    assert 2 <= len(shown) < 12


def test_one_point_is_a_bar() -> None:
    figure = plot.knob(buckets(point(1e7, 2)))
    assert ticks(figure.axes[1]) == ["10M"]
    assert len(figure.axes[0].containers) == 2


def test_a_tier_that_is_not_in_use() -> None:
    with pytest.raises(InputError, match='tier: found "dram"; expected one of gpu'):
        plot.knob(usual(), tier="dram")


@pytest.mark.parametrize(
    ("unit", "network", "value", "shown"),
    [
        ("elements", False, 5e8, "500M"),
        ("B/s", True, 12.5e9, "100 Gb/s"),
        ("B/s", False, 25e9, "25 GB/s"),
        ("FLOP/s", False, 312e12, "312 TFLOP/s"),
        ("ratio", False, 2.0, "2:1"),
        ("MiB", False, 25, "25 MiB"),
        ("", False, True, "true"),
        ("", False, "full", "full"),
        ("", False, None, "default"),
    ],
)
def test_values_are_written_with_their_units(unit: str, network: bool, value: Value, shown: str) -> None:
    assert written(replace(usual(), unit=unit, network=network), value) == shown  # type: ignore[arg-type]  # of Unit


# --- a network -------------------------------------------------------------------------------------------------------


def test_a_line_for_each_strategy_over_the_rates_that_are_sold() -> None:
    figure = plot.network([network("ZeRO-3", 10), network("ZeRO++", 2.5)])
    ax = figure.axes[0]
    assert xs(ax, "ZeRO-3") == [rate * GBPS for rate in (10, 25, 100, 400)]
    assert ys(ax, "ZeRO-3") == pytest.approx([9, 4.2, 1.8, 1.2])  # times a free network, which takes 1 s
    assert ticks(ax) == ["10", "25", "50", "100", "200", "400"]
    assert ax.get_xlabel() == "rate of a port, Gb/s"
    assert ax.get_xscale() == ax.get_yscale() == "log"
    looks = {(line(ax, name).get_color(), line(ax, name).get_marker()) for name in ("ZeRO-3", "ZeRO++")}
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == 2


def test_where_a_line_comes_to_the_target() -> None:
    """1 + 80 / rate is 1.5 at 160 Gb/s and 1 + 20 / rate at 40; 1.1 takes 800 Gb/s, which nobody tried."""
    both = [network("ZeRO-3", 10), network("ZeRO++", 2.5)]
    assert entries(plot.network(both, target=0.5)) == [
        "ZeRO-3: about 160 Gb/s", "ZeRO++: about 40 Gb/s", "target: 50 % longer",
    ]  # fmt: skip
    figure = plot.network(both, target=0.1)
    assert entries(figure)[:2] == ["ZeRO-3: no rate is enough", "ZeRO++: about 200 Gb/s"]
    assert ys(figure.axes[0], "target") == pytest.approx([1.1, 1.1])


def test_where_that_is_has_two_digits() -> None:
    """1 + 91.4 / rate is 1.5 at 183 Gb/s, 22.85 GB/s."""
    assert entries(plot.network([network("ZeRO-3", 11.425)], target=0.5))[0] == "ZeRO-3: about 180 Gb/s"


def test_steps_in_seconds() -> None:
    figure = plot.network([network("ZeRO-3", 10)], of="step", target=1.5)
    assert ys(figure.axes[0], "ZeRO-3") == pytest.approx([9, 4.2, 1.8, 1.2])
    assert entries(figure) == ["ZeRO-3: about 160 Gb/s", "target: 1.5 s"]
    assert figure.axes[0].get_ylabel() == "step, s"


def test_between_points_the_line_is_that_of_a_step_that_waits() -> None:
    ax = plot.network([network("ZeRO-3", 10)]).axes[0]
    rates, heights = (np.array(read(ax, "between points of ZeRO-3")) for read in (xs, ys))
    assert heights == pytest.approx(1 + 80 * GBPS / rates)


def test_a_strategy_that_does_not_fit_says_so() -> None:
    large = network("DDP", 10)
    large = replace(large, points=tuple(each._replace(fits=False) for each in large.points))
    assert entries(plot.network([large])) == ["DDP: does not fit"]


def test_a_network_in_axes_of_ones_own() -> None:
    own = Figure(layout="constrained")
    assert plot.network([network("ZeRO-3", 10)], ax=own.subplots(), title="(b)") is own
    assert own.axes[0].get_title(loc="left") == "(b)"
    assert not own.legends


def test_other_curves_are_no_networks() -> None:
    with pytest.raises(InputError, match="found a curve over strategy"):
        plot.network([usual()])
    with pytest.raises(InputError, match="curves: found none; expected curves over"):
        plot.network([])
