"""Pictures of steps, memory and curves for notebooks and papers, drawn by matplotlib (the extra `plot`).

    from zerosim import plot
    plot.timeline(zerosim.simulate(zerosim.load("scenarios/seven-b/zero3.yaml")))

Every function gives a `matplotlib.figure.Figure` that a notebook shows as it is; with `ax` it draws into the axes of a
figure of your own, and gives that one (without a layout it gets the constrained one, in which words have room).
Nothing here touches the state of pyplot or computes a result: what is drawn comes from `views` and `studies`. Modules
are loaded when a picture is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zerosim.errors import InputError, Problem

if TYPE_CHECKING:
    from zerosim.plot.bars import breakdown, ledger, memory_parts
    from zerosim.plot.holding import memory
    from zerosim.plot.networks import network
    from zerosim.plot.paper import save
    from zerosim.plot.rates import bandwidth, bus_bandwidth
    from zerosim.plot.steps import timeline, timelines
    from zerosim.plot.turns import knob

_HOMES = {
    "bandwidth": "rates",
    "breakdown": "bars",
    "bus_bandwidth": "rates",
    "knob": "turns",
    "ledger": "bars",
    "memory": "holding",
    "memory_parts": "bars",
    "network": "networks",
    "save": "paper",
    "timeline": "steps",
    "timelines": "steps",
}

__all__ = [
    "bandwidth", "breakdown", "bus_bandwidth", "knob", "ledger", "memory", "memory_parts", "network", "save",
    "timeline", "timelines",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module zerosim.plot has no attribute {name!r}")
    try:
        import_module("matplotlib")
    except ImportError:
        expected = "matplotlib, which draws (pip install zerosim[plot])"
        raise InputError([Problem("zerosim.plot", name, "no matplotlib", expected)]) from None
    return getattr(import_module(f"zerosim.plot.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
