"""What a machine offers to the knobs: GPUs, the rate of its ports, tiers to offload to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from zerosim.spec.topology import DeviceKind, Topology
from zerosim.spec.topology_file import named_topology, topology_names

BITS = 8
GIGA = 1e9
TIERS: tuple[tuple[str, DeviceKind], ...] = (("cpu", "dram"), ("nvme", "nvme"))


@dataclass(frozen=True, slots=True)
class Machine:
    """`network` is the rate of each port in Gb/s; None where there is none, ports differ, or a graph describes them."""

    name: str
    gpu: str
    gpus: int  # of a node
    nodes: int
    network: float | None
    tiers: tuple[str, ...]  # that something may be offloaded to


@cache
def machines() -> Mapping[str, Machine]:
    """Those that come with zerosim."""
    return {name: machine_of(named_topology(name), name) for name in topology_names()}


def machine_of(topology: Topology, given: Any) -> Machine:
    """What a topology offers; `given` is its name or description in a scenario."""
    node = topology.nodes[0]
    rates = {rate for each in topology.nodes for _, rate in each.ports}
    turned = isinstance(given, str) or (isinstance(given, Mapping) and isinstance(given.get("node"), Mapping))
    rate = rates.pop() * BITS / GIGA if turned and len(rates) == 1 else None
    held = tuple(name for name, kind in TIERS if node.of_kind(kind))
    gpu = topology.gpus[0].figures
    return Machine(topology.name, getattr(gpu, "name", ""), len(node.gpus), len(topology.nodes), rate, held)
