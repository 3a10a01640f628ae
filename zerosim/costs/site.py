"""What one GPU sees of its machine: its memory, its way to the host, who shares that way, the network of its node.

A `Site` is taken once for each class of ranks, from the first rank of the class; pricing works with sites and never
walks over all ranks. It reads the topology graph and knows no step, no op and no strategy. A class's resources are
named here, and only here: plain (`nic`) when there is one class, else with the class behind a dot (`nic.node 3`), so
that `Supply.scaled("nic", 2)` means all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zerosim.catalog import constant, constants
from zerosim.costs.machine import Machine
from zerosim.resources import RankClass
from zerosim.spec.topology import Device, Drive, Gpu, Link, Nic, Socket


class Leaf(NamedTuple):
    """The leaf switch of a node's first port: nodes on it, this node's ports on it, its rate towards the spines."""

    hosts: int
    ports: int
    uplinks: float  # bytes/s; 0 where there is no spine


@dataclass(frozen=True, slots=True)
class Network:
    """The ports of a node that its GPUs use. Rates in bytes/s, all ports together.

    `effective` is what collectives reach: port rate x efficiency, at most what PCIe lets through.
    """

    port: Nic
    ports: int
    rate: float
    effective: float
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class Site:
    """The machine seen from the first rank of a class; `switch_ranks` are behind its switch, itself included."""

    name: str  # of the class; empty when there is only one
    rank: int
    device: Device
    gpu: Gpu
    local: int  # ranks of its node
    nvlink: float  # bytes/s out of the GPU, 0 without NVLink
    path: tuple[Link, ...]  # from the GPU up to its socket; empty where there is none
    switch_ranks: int
    socket: Device | None
    socket_ranks: int  # on its socket, itself included
    dram: float  # bytes/s of its socket, on paper
    network: Network | None
    drives: tuple[Drive, ...]

    def resource(self, base: str) -> str:
        """The name of this site's resource: `nic`, or `nic.node 3` where there are several classes."""
        return f"{base}.{self.name}" if self.name else base

    @property
    def host_link(self) -> Link | None:
        """The GPU's own link towards its socket."""
        return self.path[0] if self.path else None

    @property
    def uplink(self) -> Link | None:
        """The link out of the GPU's PCIe switch, shared by the GPUs behind it; the slowest where there are several."""
        return min(self.path[1:], key=lambda link: link.bandwidth, default=None)

    @property
    def peak(self) -> tuple[str, float]:
        """The dtype that gives the rate of the SMs its name, and that rate: dense 16-bit FLOP/s, throttling counted."""
        peaks = self.gpu.peak_flops
        dtype = next(dtype for dtype in ("bf16", "fp16", *peaks) if peaks.get(dtype))
        return dtype, peaks[dtype] * self.device.compute


def survey(machine: Machine) -> tuple[tuple[RankClass, ...], tuple[Site, ...]]:
    """The classes of ranks, named, and what the first rank of each sees."""
    groups = machine.topology.rank_classes()
    several = len(groups) > 1
    names = [_class_name(machine, ranks) for ranks in groups] if several else ["all"]
    classes = tuple(RankClass(name, tuple(ranks)) for name, ranks in zip(names, groups, strict=True))
    return classes, tuple(_site(machine, each.name if several else "", each.ranks[0]) for each in classes)


def _class_name(machine: Machine, ranks: Sequence[int]) -> str:
    """`node 3` or `nodes 0-2` for whole nodes, else the first GPU and how many more."""
    hosts = sorted({machine.hosts[rank] for rank in ranks})
    if len(ranks) == sum(len(machine.ranks_on(host)) for host in hosts):
        if len(hosts) == 1:
            return f"node {hosts[0]}"
        joined = hosts[-1] - hosts[0] == len(hosts) - 1
        return f"nodes {hosts[0]}-{hosts[-1]}" if joined else f"node {hosts[0]} and {len(hosts) - 1} more"
    host = machine.hosts[ranks[0]]
    first = f"gpu {host}.{ranks[0] - machine.ranks_on(host)[0]}"
    return first if len(ranks) == 1 else f"{first} and {len(ranks) - 1} more"


def _site(machine: Machine, name: str, rank: int) -> Site:
    host = machine.hosts[rank]
    device = machine.topology.gpus[rank]
    assert isinstance(device.figures, Gpu)
    homes = {peer: machine.climb(host, machine.topology.gpus[peer].name) for peer in machine.ranks_on(host)}
    path = homes[rank]
    socket = machine.device(host, path[-1].target) if path else None
    last = [other[-1] for other in homes.values() if other]
    return Site(
        name=name,
        rank=rank,
        device=device,
        gpu=device.figures,
        local=len(homes),
        nvlink=sum(link.bandwidth for link in machine.links_out(host, device.name) if link.kind == "nvlink"),
        path=path,
        switch_ranks=last.count(path[-1]) if len(path) > 1 else 1,
        socket=socket,
        socket_ranks=max(1, sum(1 for link in last if socket and link.target == socket.name)),
        dram=_memory_rate(machine, host, socket) if socket else 0.0,
        network=_network(machine, host, list(homes.values())),
        drives=tuple(d.figures for d in machine.topology.devices("nvme", host) if isinstance(d.figures, Drive)),
    )


def link_key(link: Link) -> str:
    """The generation of a PCIe link as the catalogue writes it."""
    return f"pcie{min(max(link.generation or 4, 3), 6)}"


def cores(site: Site) -> int:
    """Cores of the site's socket; 0 where the socket is not described."""
    figures = site.socket.figures if site.socket else None
    return figures.cores if isinstance(figures, Socket) else 0


def _memory_rate(machine: Machine, host: int, socket: Device) -> float:
    return sum(link.bandwidth for link in machine.links_out(host, socket.name) if link.kind == "dram")


# --- the network of a node -----------------------------------------------------------------------------------------


def _network(machine: Machine, host: int, homes: Sequence[Sequence[Link]]) -> Network | None:
    """The ports near some GPU of the node, with what they give together, at most what PCIe lets through."""
    ports = _near_ports(machine, host, homes)
    wires = [link for port in ports for link in machine.links_out(host, port.name) if link.kind == "network"]
    figures = ports[0].figures if wires else None
    if not isinstance(figures, Nic):
        return None
    effective = sum(_reached(machine, host, wire) for wire in wires)
    lanes = sum(path[0].bandwidth * peer_efficiency(path[0]) for path in homes if path)
    return Network(
        port=figures,
        ports=len(wires),
        rate=sum(wire.bandwidth for wire in wires),
        effective=min(effective, lanes or effective),
        leaf=_leaf(machine, host, wires),
    )


def _reached(machine: Machine, host: int, wire: Link) -> float:
    """What a port gives: its own share of its rate, through its slot."""
    figures = machine.device(host, wire.source).figures
    given = wire.bandwidth * (figures.efficiency if isinstance(figures, Nic) else 1.0)
    slots = (link for link in machine.links_out(host, wire.source) if link.kind == "pcie")
    return min([given, *(slot.bandwidth * peer_efficiency(slot) for slot in slots)])


def peer_efficiency(link: Link) -> float:
    """The fraction of a link's paper rate that traffic between devices reaches."""
    return constant("copies.c2c_eff") if link.kind == "c2c" else constants("copies.peer_eff")[link_key(link)]


def _near_ports(machine: Machine, host: int, homes: Sequence[Sequence[Link]]) -> list[Device]:
    """NCCL takes, for each GPU, the ports at the least distance; the node uses those of all its GPUs."""
    ports = {port.name: port for port in machine.topology.devices("nic", host)}
    ways = {name: machine.climb(host, name) for name in ports}
    used: set[str] = set()
    for path in homes:
        distance = {name: _distance(path, way) for name, way in ways.items()}
        least = min(distance.values(), default=0)
        used |= {name for name, far in distance.items() if far == least}
    return [port for name, port in ports.items() if name in used]


def _distance(one: Sequence[Link], other: Sequence[Link]) -> int:
    """Links to the first device that both ways pass; a long way when they meet only between the sockets."""
    stops = [link.target for link in other]
    for hops, link in enumerate(one):
        if link.target in stops:
            return hops + stops.index(link.target)
    return 100 + len(one) + len(other)


def _leaf(machine: Machine, host: int, wires: Sequence[Link]) -> Leaf:
    name = wires[0].target
    uplinks = sum(link.bandwidth for link in machine.links_out(host, name) if _leads_up(machine, host, link))
    return Leaf(machine.hosts_on_leaf(host), sum(1 for wire in wires if wire.target == name), uplinks)


def _leads_up(machine: Machine, host: int, link: Link) -> bool:
    return link.kind == "network" and machine.device(host, link.target).kind in ("leaf", "spine")
