"""The bandwidth ladder of a machine: how fast each tier and link is on paper, as it stands and as a GPU's part of it.

Rates are those of the first node, in one direction. A GPU's part is what it has when all GPUs of the node use the same
thing at once, which is what a training step does: eight GPUs that read their optimizer states share the drives.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from zerosim.spec.node import Node
from zerosim.spec.topology import Device, Drive, Gpu, Topology


class Tier(NamedTuple):
    """A tier or link: the rate of one, of what, how many a node has, and a GPU's part of them all, bytes/s."""

    name: str
    rate: float
    each: str
    number: int
    per_gpu: float
    network: bool = False


def bandwidths(topology: Topology) -> tuple[Tier, ...]:
    """What the first node has, in the order from the GPU outward."""
    node = topology.nodes[0]
    first, gpus = node.gpus[0], len(node.gpus)
    drives = [device.figures for device in node.devices if isinstance(device.figures, Drive)]
    ports = [rate for _, rate in node.ports]
    own = [
        Tier("HBM", _hbm(first), "GPU", gpus, _hbm(first)),
        *(Tier(name, rate, "GPU", gpus, rate) for name, kind in _LINKS.items() if (rate := _of(node, first, kind))),
    ]
    shared = [
        *_uplinks(node),
        _shared("DRAM", _dram(node), "socket", gpus),
        _shared("network", ports, "port", gpus)._replace(network=True),
        _shared("NVMe reads", [drive.read for drive in drives], "drive", gpus),
        _shared("NVMe writes", [drive.sustained_write for drive in drives], "drive", gpus),
    ]
    return tuple(tier for tier in [*own, *shared] if tier.rate)


_LINKS = {"NVLink": "nvlink", "C2C": "c2c", "PCIe": "pcie"}


def _hbm(gpu: Device) -> float:
    return gpu.figures.memory_bandwidth if isinstance(gpu.figures, Gpu) else 0.0


def _of(node: Node, gpu: Device, kind: str) -> float:
    """All links of a kind that lead away from a GPU."""
    links = (*node.links, *node.outward)
    return sum(link.bandwidth for link in links if link.kind == kind and link.source == gpu.name)


def _dram(node: Node) -> list[float]:
    """What leads from memory, whatever it is called."""
    kinds = _kinds(node)
    return [link.bandwidth for link in node.links if link.kind == "dram" and kinds[link.source] == "dram"]


def _kinds(node: Node) -> dict[str, str]:
    return {device.name: device.kind for device in node.devices}


def _uplinks(node: Node) -> list[Tier]:
    """PCIe switches' links towards a socket, where those of the GPUs behind one carry more together."""
    kinds = _kinds(node)
    lanes = [link for link in node.links if link.kind == "pcie"]
    below = [link for link in lanes if (kinds[link.source], kinds[link.target]) == ("gpu", "pcie_switch")]
    behind = Counter(link.target for link in below)
    rates = {link.source: link.bandwidth for link in lanes if link.source in behind and kinds[link.target] in _ABOVE}
    part = min((rate / behind[switch] for switch, rate in rates.items()), default=0.0)
    shared = part < min((link.bandwidth for link in below), default=0.0)
    return [Tier("PCIe uplinks", min(rates.values()), "switch", len(rates), part)] if shared else []


_ABOVE = ("pcie_switch", "socket")


def _shared(name: str, rates: list[float], each: str, gpus: int) -> Tier:
    return Tier(name, min(rates, default=0.0), each, len(rates), sum(rates) / gpus)
