"""What a machine costs and draws: values that a topology may have, and what they come to for the nodes and GPUs in use.

Rule: nothing here is guessed. Who says no price has none, and who says no power has none; only the power of a GPU's
board may come from the catalogue. What a step makes of both is asked elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from zerosim.spec.devices import Device, Gpu

if TYPE_CHECKING:
    from zerosim.spec.topology import Topology

HOURS = 8766.0  # of a year: 365.25 days


@dataclass(frozen=True, slots=True)
class Price:
    """Of an hour, in `currency`: of each node and of each GPU that is used. `kwh`: of a kWh that is drawn."""

    currency: str
    node_hour: float = 0.0
    gpu_hour: float = 0.0
    kwh: float = 0.0

    def an_hour(self, topology: Topology) -> float:
        """Of all nodes and GPUs, without what they draw."""
        return self.node_hour * len(topology.nodes) + self.gpu_hour * len(topology.gpus)


class Drawn(NamedTuple):
    """Watts of all nodes while their GPUs compute, and while these wait."""

    computing: float
    waiting: float


@dataclass(frozen=True, slots=True)
class Power:
    """Watts: `gpu` of a GPU while it computes (None: what its board draws at most), `idle` while it does not (None: the
    same), `rest` of all else in a node. `pue`: what the building draws / what the machine draws."""

    gpu: float | None = None
    idle: float | None = None
    rest: float = 0.0
    pue: float = 1.0

    def drawn(self, topology: Topology) -> Drawn:
        """By all nodes and the GPUs of them that are used."""
        computing = waiting = 0.0
        alike = {id(node): node for node in topology.nodes}
        for key, count in Counter(map(id, topology.nodes)).items():
            node = alike[key]
            own = sum(self._of(gpu) for gpu in node.gpus)
            computing += count * (self.rest + own)
            waiting += count * (self.rest + (own if self.idle is None else self.idle * len(node.gpus)))
        return Drawn(self.pue * computing, self.pue * waiting)

    def _of(self, gpu: Device) -> float:
        return board(gpu) if self.gpu is None else self.gpu


def board(gpu: Device) -> float:
    """The most that the board of a GPU draws; 0 where nobody knows."""
    return gpu.figures.power if isinstance(gpu.figures, Gpu) else 0.0


def boards(topology: Topology) -> set[float]:
    """That of all its GPUs, each once."""
    return {board(gpu) for node in {id(node): node for node in topology.nodes}.values() for gpu in node.gpus}
