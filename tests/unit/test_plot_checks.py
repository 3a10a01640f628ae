"""What pictures refuse: every argument has a line in the table, and a value that makes no sense is told as such."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
from matplotlib.figure import Figure

import zerosim.plot
from tests.timelines import tiny
from tests.unit.test_plot_curves import buckets, network, usual
from zerosim import InputError
from zerosim.plot.checks import check_of
from zerosim.spec.topology_file import named_topology

plot: Any = zerosim.plot  # of which no type is checked here
OTHER = {"": ""}  # what no argument may be


def test_every_argument_is_checked() -> None:
    """The table has a line for each, and none takes anything at all."""
    for name in plot.__all__:
        for argument in signature(getattr(plot, name)).parameters:
            assert not check_of(name, argument).holds(OTHER), (name, argument)


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: plot.memory(tiny(), by="totl"), 'plot.memory: by: found "totl"; expected one of category, total'),
        (lambda: plot.memory(tiny(), start=2, end=1), "plot.memory: end: found 1 s; expected a time after the start"),
        (lambda: plot.timeline(tiny(), start=100, end=200), "start: found 100 s; expected a time before the end"),
        (lambda: plot.timeline(tiny(), end=math.inf), "plot.timeline: end: found inf; expected seconds"),
        (lambda: plot.timeline(tiny(), start="0 s"), 'start: found "0 s"; expected seconds'),
        (lambda: plot.timeline(tiny(), start=-5, end=-1), "end: found -1 s; expected a time after the start, 0 s"),
        (lambda: plot.timeline(tiny(), lanes="compute"), 'lanes: found "compute"; expected names of lanes in a list'),
        (lambda: plot.timeline(None), "plot.timeline: played: found None; expected a step"),
        (lambda: plot.timeline(named_topology("dgx-h100")), "played: found a Topology; expected a step"),
        (lambda: plot.breakdown(tiny()), "plot.breakdown: played: found a Timeline; expected one step or more"),
        (lambda: plot.breakdown([tiny()], [1]), "labels: found 1; expected names in a list"),
        (lambda: plot.breakdown([tiny()], ax=3), "ax: found 3; expected one Axes"),
        (lambda: plot.breakdown([tiny()], ax=Figure()), "ax: found a Figure; expected one Axes"),
        (lambda: plot.bandwidth("dgx-h100"), 'topology: found "dgx-h100"; expected a Topology'),
        (lambda: plot.bus_bandwidth([]), "sweeps: found none; expected sweeps that have rows"),
        (lambda: plot.knob(usual(), of="x"), 'plot.knob: of: found "x"; expected one of step, tokens'),
        (lambda: plot.knob(buckets()), "curve: found a curve of no points; expected a curve that has points"),
        (lambda: plot.network([network("a", 1)], of="tokens"), "plot.network: of: "),
        (lambda: plot.network([network("a", 1)], target=-5), "target: found -5; expected a number that is not below 0"),
        (lambda: plot.network([network("a", 1)], target=math.nan), "target: found nan"),
        (lambda: plot.network([replace(network("a", 1), points=())]), "curves: found a curve of no points"),
        (lambda: plot.ledger(7e9, 8, capacity=-1), "capacity: found -1; expected bytes, 0 for no line"),
        (lambda: plot.ledger(7e9, 8, gpus_per_node=3), "gpus_per_node: found 3; expected equal nodes: a divisor of 8"),
        (lambda: plot.ledger(math.nan, 8), "parameters: found nan; expected a number of at least 1"),
        (lambda: plot.ledger(0, 2.5), "parameters: found 0"),
        (lambda: plot.ledger(0, 2.5), "gpus: found 2.5; expected a whole number"),
        (lambda: plot.ledger("7b", 8), 'parameters: found "7b"'),
        (lambda: plot.save(plot.ledger(7e9, 8), "a.png", dpi=0), "plot.save: dpi: found 0"),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense(draw: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        draw()
    assert said in str(error.value)


@pytest.mark.parametrize("width", [0, -1, math.nan, math.inf, "wide", True])
def test_a_width_is_a_number_of_inches(width: Any) -> None:
    with pytest.raises(InputError, match=r"width: found .*; expected inches above 0, at most 100"):
        plot.timeline(tiny(), width=width)
