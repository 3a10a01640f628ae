"""A measured row as a question: the scenario that it describes, what was measured of it, and what had to be assumed.

Values only. Inside of a metric: seconds, bytes, ratios; `fits` is 1 where the run went, 0 where it ran out of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from zerosim.scenario import Scenario
    from zerosim.spec.devices import Grade
    from zerosim.spec.measured_row import Row

MetricName = Literal[
    "step_seconds",
    "forward_seconds",
    "backward_seconds",
    "optimizer_seconds",
    "peak_memory_bytes",  # with all that is not the allocator's: nvidia-smi
    "allocated_memory_bytes",  # torch.cuda.max_memory_allocated
    "active_memory_bytes",  # and what is freed but not yet of use to another stream
    "reserved_memory_bytes",  # torch.cuda.max_memory_reserved
    "fits",
    "speedup",
]
METRICS: tuple[MetricName, ...] = get_args(MetricName)


class Metric(NamedTuple):
    """A measured number; `slack` is the relative width of what the source says (a range, a rounded figure)."""

    name: MetricName
    measured: float
    slack: float = 0.0


class Case(NamedTuple):
    """A row that can be played. `other`: the second run of a ratio; speedup = its step / the step of `scenario`.
    `doubts`: grades of what was assumed, by field."""

    row: Row
    scenario: Scenario
    metrics: tuple[Metric, ...]
    assumptions: tuple[str, ...] = ()
    other: Scenario | None = None
    doubts: Mapping[str, Grade] = MappingProxyType({})


class Refused(NamedTuple):
    """A row that cannot be built, and why."""

    row: Row
    reason: str
