"""How a node's network traffic passes between its GPUs and its ports: through which PCIe links, and how much of it.

Every group of ranks on the node sends, and receives as much. It uses the ports nearest to its GPUs, each for an equal
part, as NCCL's channels do; and at each port the GPUs nearest to that, to which the others pass on what they have to
send (rings over NVLink or PCIe; PXN since NCCL 2.12). Where that asks too much of a GPU's lane (five ports near four
GPUs), each GPU sends an equal part instead, as NCCL's search takes what carries most (src/graph/search.cc). A GPU
without others of its group on the node goes all the way by itself. Without GPUDirect RDMA (TCP; GPUs that have no peer
access) bytes go through host memory: up to the GPU's socket, from there down to the port. What is found is laid on the
links of the tree; the fullest of them decides. Ranks do the same at the same time and wait for the slowest, so each
class is played as if it were the busiest GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from zerosim.catalog import constant, constants
from zerosim.costs.machine import Machine, distance
from zerosim.spec.topology import Gpu, Link, Nic


@dataclass(frozen=True, slots=True)
class Approach:
    """Parts of a node's network traffic, each way: on the busiest GPU's own link, on the uplinks of the switches above,
    the nearest first, and on the busiest link between sockets. `links` and `ports`: bytes/s of the node that these and
    the ports, used unevenly, let through.
    """

    lane: float = 0.0
    uplinks: tuple[float, ...] = ()
    sockets: float = 0.0
    staged: bool = False  # through host memory
    links: float = math.inf
    ports: float = math.inf


@dataclass(frozen=True, slots=True)
class _Leg:
    """A part of the node's traffic, the way of the GPU that it goes through, and the way of the port."""

    part: float
    up: Sequence[Link]
    port: str


def approach(machine: Machine, host: int, crowd: Sequence[Sequence[int]]) -> Approach:
    """The way of all groups on a node at once. `crowd`: the ranks of each on it."""
    ports = {port.name: machine.climb(host, port.name) for port in machine.topology.devices("nic", host)}
    wired = {name: way for name, way in ports.items() if _wire(machine, host, name)}
    ranks = [rank for group in crowd for rank in group]
    if not wired or not ranks:
        return Approach()
    ways = {rank: machine.climb(host, machine.topology.gpus[rank].name) for rank in ranks}
    staged = _staged(machine, host, ranks[0], next(iter(wired)))
    groups = [[ways[rank] for rank in group] for group in crowd]
    found = [
        _laid(
            machine, host, ways, wired, staged, [leg for group in groups for leg in legs(group, wired, 1 / len(crowd))]
        )
        for legs in (_legs, _equal_legs)
    ]
    return max(found, key=lambda way: min(way.links, way.ports))  # the first of equals


def _laid(
    machine: Machine,
    host: int,
    ways: Mapping[int, Sequence[Link]],
    wired: Mapping[str, tuple[Link, ...]],
    staged: bool,
    legs: Sequence[_Leg],
) -> Approach:
    """What these legs put on the links and ports of the node."""
    loads: dict[Link, float] = {}  # of bytes out of the node; as many come in the other way
    used: dict[str, float] = {}
    for leg in legs:
        used[leg.port] = used.get(leg.port, 0.0) + leg.part
        for link in machine.way(leg.up, wired[leg.port], staged) if leg.up and wired[leg.port] else ():
            loads[link] = loads.get(link, 0.0) + leg.part
    climbs = [way for way in ways.values() if way]
    return Approach(
        lane=max((loads.get(way[0], 0.0) for way in climbs), default=0.0),
        uplinks=_uplinks(loads, climbs),
        sockets=max((load for link, load in loads.items() if link.kind == "socket"), default=0.0),
        staged=staged,
        links=min(map(_carries, loads, loads.values()), default=math.inf),
        ports=min(port_rate(machine, host, port) / part for port, part in used.items()),
    )


def _legs(ways: Sequence[Sequence[Link]], ports: Mapping[str, tuple[Link, ...]], part: float) -> Iterator[_Leg]:
    """The traffic of a group, over its ports and the GPUs near each of them."""
    far = {port: [distance(way, ports[port]) for way in ways] for port in ports}
    nearest = [min(each[gpu] for each in far.values()) for gpu in range(len(ways))]
    used = [port for port, hops in far.items() if any(map(int.__eq__, hops, nearest))]
    for port in used:
        near = [way for way, hops in zip(ways, far[port], strict=True) if hops == min(far[port])]
        for way in near:
            yield _Leg(part / len(used) / len(near), way, port)


def _equal_legs(ways: Sequence[Sequence[Link]], ports: Mapping[str, tuple[Link, ...]], part: float) -> Iterator[_Leg]:
    """The same with an equal part for each GPU, over the ports nearest to it."""
    for way in ways:
        hops = {port: distance(way, ports[port]) for port in ports}
        nearest = [port for port in ports if hops[port] == min(hops.values())]
        for port in nearest:
            yield _Leg(part / len(ways) / len(nearest), way, port)


def _uplinks(loads: Mapping[Link, float], ways: Sequence[Sequence[Link]]) -> tuple[float, ...]:
    levels = max(map(len, ways), default=1)
    return tuple(max(loads.get(way[level], 0.0) for way in ways if len(way) > level) for level in range(1, levels))


def _staged(machine: Machine, host: int, rank: int, port: str) -> bool:
    """Consumer cards, which have no peer access, have no GPUDirect RDMA either (hardware.md 2.2; R)."""
    nic, gpu = machine.device(host, port).figures, machine.topology.gpus[rank].figures
    return (isinstance(nic, Nic) and nic.transport == "tcp") or (isinstance(gpu, Gpu) and not gpu.p2p)


def _carries(link: Link, part: float) -> float:
    """Bytes/s of the whole of which a link carries a part, each way at once."""
    if link.kind == "socket":
        return link.bandwidth * constant("copies.socket_link_eff") / part
    return link.bandwidth * min(peer_efficiency(link), constants("copies.both_eff")[link_key(link)]) / part


def port_rate(machine: Machine, host: int, port: str) -> float:
    """Bytes/s that a port gives: its own share of its rate, through its slot."""
    wire, figures = _wire(machine, host, port), machine.device(host, port).figures
    given = sum(link.bandwidth for link in wire) * (figures.efficiency if isinstance(figures, Nic) else 1.0)
    slots = (link for link in machine.links_out(host, port) if link.kind == "pcie")
    return min([given, *(slot.bandwidth * peer_efficiency(slot) for slot in slots)])


def peer_efficiency(link: Link) -> float:
    """The fraction of a link's paper rate that traffic between devices reaches."""
    return constants("copies.peer_eff")[link_key(link)]


def link_key(link: Link) -> str:
    """The kind of a GPU's link to its host as the catalogue writes it: the generation of PCIe, or `c2c`."""
    return "c2c" if link.kind == "c2c" else f"pcie{min(max(link.generation or 4, 3), 6)}"


def _wire(machine: Machine, host: int, port: str) -> list[Link]:
    return [link for link in machine.links_out(host, port) if link.kind == "network"]
