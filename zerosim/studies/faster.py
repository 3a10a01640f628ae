"""What of a machine can be faster, and the machine in which it is.

Rule: one thing is made faster and everything else stays: the rest of the machine, and what of a rate can be reached,
except for what is sold at rates of which different parts can be reached: that has a `path` of the topology, where the
faster rate is written (see sensitivity).
The step is then priced anew, so that a collective may take another algorithm and a copy meets its next limit. Ports
that are faster do not make the switches above them faster; `network` is both together. Cores that are faster are as
many as before. What costs time without being sold by rate is a thing, too: the host's calls, the steps of a collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from zerosim.catalog import all_constants, constant
from zerosim.spec.fabric import DrawnFabric, Fabric, LeafFabric
from zerosim.spec.node import Node
from zerosim.spec.topology import Device, Drive, Gpu, Link, Nic, Topology
from zerosim.timeline import Timeline

PORT, UPLINK = "port", "uplink"  # the links of the network: of a node to its switch, from switch to switch
UPLINKS = frozenset({"leaf", "spine"})


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that can be faster: which resources of the supply it is (none: it is told by `used`), and what becomes
    of a device, of links by kind, and of constants of the catalogue below some paths. `path`: where its rate stands in
    a topology, if the part of it that is reached depends on it."""

    name: str
    words: str
    bases: frozenset[str] = frozenset()
    device: Callable[[Device, float], Device] | None = None
    links: frozenset[str] = frozenset()
    constants: tuple[str, ...] = ()
    used: Callable[[Timeline], bool] | None = None
    path: str = ""

    def resources(self, timeline: Timeline) -> list[str]:
        """Those of the supply that the step used."""
        return [name for name in _used(timeline) if name.partition(".")[0].rstrip("0123456789") in self.bases]

    def matters(self, timeline: Timeline) -> bool:
        """Whether the step used it at all."""
        return bool(self.resources(timeline)) if self.used is None else self.used(timeline)

    def machine(self, topology: Topology, factor: float) -> Topology:
        """The machine with it so many times as fast; equal nodes stay one."""
        if self.device is None and not self.links:
            return topology
        known = {id(node): self._node(node, factor) for node in topology.nodes}
        nodes = tuple(known[id(node)] for node in topology.nodes)
        return replace(topology, nodes=nodes, fabric=self._fabric(topology.fabric, factor).among(nodes))

    def values(self, factor: float) -> Mapping[str, float]:
        """Constants by path that stand for the catalogue's: times are shorter, rates higher."""
        below = [path for path in all_constants() if any(f"{path}.".startswith(f"{top}.") for top in self.constants)]
        return {path: constant(path) * (1 / factor if _is_time(path) else factor) for path in below}

    def _node(self, node: Node, factor: float) -> Node:
        return replace(
            node,
            devices=tuple(self.device(each, factor) for each in node.devices) if self.device else node.devices,
            links=tuple(self._link(link, factor) for link in node.links),
            outward=tuple(self._link(link, factor) for link in node.outward),
            ports=tuple((name, rate * factor) for name, rate in node.ports) if PORT in self.links else node.ports,
        )

    def _link(self, link: Link, factor: float) -> Link:
        return replace(link, bandwidth=link.bandwidth * factor) if link.kind in self.links else link

    def _fabric(self, fabric: Fabric, factor: float) -> Fabric:
        """Uplinks of a computed fabric are a share of the ports below: where one alone is faster that changes."""
        if isinstance(fabric, DrawnFabric):
            return replace(fabric, drawn=tuple(self._drawn(link, fabric, factor) for link in fabric.drawn))
        if isinstance(fabric, LeafFabric) and (PORT in self.links) != (UPLINK in self.links):
            share = factor if PORT in self.links else 1 / factor
            return replace(fabric, oversubscription=fabric.oversubscription * share)
        return fabric

    def _drawn(self, link: Link, fabric: DrawnFabric, factor: float) -> Link:
        inside = {link.source, link.target} & fabric.owners.keys()
        kind = (PORT if inside else UPLINK) if link.kind == "network" else link.kind
        return replace(link, bandwidth=link.bandwidth * factor) if kind in self.links else link


def _used(timeline: Timeline) -> Iterable[str]:
    demands = {id(demand): demand for each in timeline.demands.values() for demand in each}.values()
    return dict.fromkeys(use.resource for demand in demands for use in demand.uses)


def _is_time(path: str) -> bool:
    return any(part.endswith("_us") for part in path.split("."))


def _arithmetic(device: Device, factor: float) -> Device:
    if not isinstance(device.figures, Gpu):
        return device
    peaks = {dtype: peak * factor for dtype, peak in device.figures.peak_flops.items()}
    return replace(device, figures=replace(device.figures, peak_flops=peaks))


def _memory(device: Device, factor: float) -> Device:
    gpu = device.figures
    if not isinstance(gpu, Gpu):
        return device
    return replace(device, figures=replace(gpu, memory_bandwidth=gpu.memory_bandwidth * factor))


def _drive(device: Device, factor: float) -> Device:
    drive = device.figures
    if not isinstance(drive, Drive):
        return device
    read, write, sustained = (rate * factor for rate in (drive.read, drive.write, drive.sustained_write))
    return replace(device, figures=replace(drive, read=read, write=write, sustained_write=sustained))


def _port_latency(device: Device, factor: float) -> Device:
    port = device.figures
    if not isinstance(port, Nic):
        return device
    return replace(
        device, figures=replace(port, latency=port.latency / factor, large_latency=port.large_latency / factor)
    )


def _calls(timeline: Timeline) -> bool:
    return any(demand.host for each in timeline.demands.values() for demand in each)


def _collectives(timeline: Timeline) -> bool:
    return any(demand.algorithm not in ("", "none") for each in timeline.demands.values() for demand in each)


def _messages(timeline: Timeline) -> bool:
    return _NIC.matters(timeline)


_NIC = Thing("nic", "network ports", frozenset({"nic"}), links=frozenset({PORT}), path="node.nics.bandwidth")
THINGS = (
    Thing("gpu", "GPU arithmetic", frozenset({"sm"}), _arithmetic),
    Thing("hbm", "GPU memory", frozenset({"hbm"}), _memory),
    Thing("nvlink", "NVLink", frozenset({"nvlink"}), links=frozenset({"nvlink"})),
    Thing("pcie", "PCIe lanes", frozenset({"pcie", "uplink"}), links=frozenset({"pcie"}), path="node.pcie.bandwidth"),
    Thing("c2c", "C2C links", frozenset({"c2c"}), links=frozenset({"c2c"})),
    Thing("sockets", "links between sockets", frozenset({"sockets"}), links=frozenset({"socket"})),
    _NIC,
    Thing("fabric", "leaf and spine uplinks", UPLINKS, links=frozenset({UPLINK})),
    Thing("network", "ports and uplinks", UPLINKS, links=frozenset({PORT, UPLINK}), path="node.nics.bandwidth"),
    Thing("dram", "host memory", frozenset({"dram"}), links=frozenset({"dram"})),
    Thing("cpu", "CPU cores", frozenset({"cpu"}), constants=("cpu_adam.per_core_gbs",)),
    Thing("nvme", "NVMe drives", frozenset({"nvme", "requests"}), _drive),
    Thing("host", "host calls and launches", constants=("host",), used=_calls),
    Thing(
        "collective_latency", "steps of collectives", used=_collectives,
        constants=(
            "collectives.launch_us", "collectives.hop_us", "collectives.simple_hop_us",
            "collectives.network_ring_hop_us", "collectives.nvls.setup_us", "collectives.alltoall_peer_us",
        ),
    ),
    Thing("network_latency", "network latency", device=_port_latency, used=_messages),
)  # fmt: skip
