"""zerosim: a discrete-event simulator of one training step across tiered memory.

    import zerosim
    timeline = zerosim.simulate(zerosim.load("scenarios/seven-b/zero3.yaml"))
    print(timeline.summary().step_seconds)

Public names are imported when they are first used, so that `zerosim --help` loads no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerosim.errors import DeadlockError, Finding, InputError, Problem, ZerosimError
    from zerosim.measured import Measured, read_trace
    from zerosim.scenario import Scenario, from_mapping, load
    from zerosim.simulation import Simulation, simulate
    from zerosim.step import Step
    from zerosim.timeline import Span, Timeline
    from zerosim.views import Summary

_HOMES = {
    "DeadlockError": "errors",
    "Finding": "errors",
    "InputError": "errors",
    "Measured": "measured",
    "Problem": "errors",
    "Scenario": "scenario",
    "Simulation": "simulation",
    "Span": "timeline",
    "Step": "step",
    "Summary": "views",
    "Timeline": "timeline",
    "ZerosimError": "errors",
    "from_mapping": "scenario",
    "load": "scenario",
    "read_trace": "measured",
    "simulate": "simulation",
}

__all__ = [
    "DeadlockError", "Finding", "InputError", "Measured", "Problem", "Scenario", "Simulation", "Span", "Step",
    "Summary", "Timeline", "ZerosimError", "from_mapping", "load", "read_trace", "simulate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module zerosim has no attribute {name!r}")
    return getattr(import_module(f"zerosim.{_HOMES[name]}"), name)
