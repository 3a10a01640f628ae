"""How a node's network traffic passes between its GPUs and its ports: through which PCIe links, and how much of it.

Every group of ranks on the node sends, and receives as much. It uses the ports nearest to its GPUs, each for an equal
part, as NCCL's channels do; and at each port the GPUs nearest to that, to which the others pass on what they have to
send (rings over NVLink or PCIe; PXN since NCCL 2.12). Where that asks too much of a GPU's lane (five ports near four
GPUs), each GPU sends an equal part instead, as NCCL's search takes what carries most (src/graph/search.cc). A GPU
without others of its group on the node goes all the way by itself. Without GPUDirect RDMA (TCP; GPUs that have no peer
access) bytes go through host memory: up to the GPU's socket, from there down to the port, so that the uplink of a
switch above both is passed twice each way. What is found is laid on the links of the tree; the fullest of them decides.
Ranks do the same at the same time and wait for the slowest, so each class is played as if it were the busiest of its
GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from zerosim.costs.links import each_way, peer_efficiency
from zerosim.costs.machine import Machine, distance
from zerosim.spec.topology import Gpu, Link, Nic


@dataclass(frozen=True, slots=True)
class Approach:
    """Parts of a node's network traffic, each way: on the own link of the busiest GPU of a class, on the uplinks of the
    switches above, the nearest first, and on the busiest link between sockets. `links` and `ports`: bytes/s of the node
    that these and the ports, used unevenly, let through to the groups of that class.
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


def approach(machine: Machine, host: int, crowd: Sequence[Sequence[int]], alike: frozenset[int]) -> Approach:
    """The way of all groups on a node at once. `crowd`: the ranks of each on it; `alike`: those of the class."""
    ports = {port.name: machine.climb(host, port.name) for port in machine.topology.devices("nic", host)}
    wired = {name: way for name, way in ports.items() if _wire(machine, host, name)}
    ranks = [rank for group in crowd for rank in group]
    if not wired or not ranks:
        return Approach()
    ways = {rank: machine.climb(host, machine.topology.gpus[rank].name) for rank in ranks}
    staged = _staged(machine, host, ranks[0], next(iter(wired)))
    own = [not alike.isdisjoint(group) for group in crowd]
    groups = [[ways[rank] for rank in group] for group in crowd]
    climbs = [ways[rank] for rank in alike if ways.get(rank)]
    choices = ([list(legs(group, wired, 1 / len(crowd))) for group in groups] for legs in (_legs, _equal_legs))
    found = [_laid(machine, host, climbs, wired, staged, list(zip(own, legs, strict=True))) for legs in choices]
    return max(found, key=lambda way: min(way.links, way.ports))  # the first of equals


def _laid(
    machine: Machine,
    host: int,
    climbs: Sequence[Sequence[Link]],
    wired: Mapping[str, tuple[Link, ...]],
    staged: bool,
    legs: Sequence[tuple[bool, Sequence[_Leg]]],
) -> Approach:
    """What the legs of each group put on the links and ports of the node, seen by GPUs that climb so, some of which are
    in the groups that are marked."""
    loads: dict[Link, float] = {}
    used: dict[str, float] = {}
    own: set[Link | str] = set()
    for marked, leg in ((marked, leg) for marked, group in legs for leg in group):
        used[leg.port] = used.get(leg.port, 0.0) + leg.part
        out = machine.way(leg.up, wired[leg.port], staged) if leg.up and wired[leg.port] else []
        there_and_back = (*out, *map(machine.back, out))  # as much comes in the other way
        for link in there_and_back:
            loads[link] = loads.get(link, 0.0) + leg.part
        own.update((leg.port, *there_and_back) if marked else ())
    return Approach(
        lane=max((loads.get(way[0], 0.0) for way in climbs), default=0.0),
        uplinks=_uplinks(loads, climbs),
        sockets=max((load for link, load in loads.items() if link.kind == "socket"), default=0.0),
        staged=staged,
        links=min((each_way(link) / part for link, part in loads.items() if link in own), default=math.inf),
        ports=min((port_rate(machine, host, port) / used[port] for port in wired if port in own), default=math.inf),
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


def port_rate(machine: Machine, host: int, port: str) -> float:
    """Bytes/s that a port gives: its own share of its rate, through its slot."""
    wire, figures = _wire(machine, host, port), machine.device(host, port).figures
    given = sum(link.bandwidth for link in wire) * (figures.efficiency if isinstance(figures, Nic) else 1.0)
    slots = (link for link in machine.links_out(host, port) if link.kind == "pcie")
    return min([given, *(slot.bandwidth * peer_efficiency(slot) for slot in slots)])


def _wire(machine: Machine, host: int, port: str) -> list[Link]:
    return [link for link in machine.links_out(host, port) if link.kind == "network"]
