"""The servers of a topology, each kind once, as the findings about a machine look at them.

Rule: nothing is judged here. Equal servers are told once, by the first of them; names are those of the topology without
the host in front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from zerosim import catalog
from zerosim.catalog import GpuPorts
from zerosim.costs.machine import Machine, distance
from zerosim.spec.node import Node, full_name
from zerosim.spec.topology import Device, Gpu, Link, Nic, Topology

MOST_RUNS = 3  # of numbers that follow each other, before they are only counted
WHERE = "\0"  # in a sentence about a kind of server: stands for whose it is, until all kinds are known


@dataclass(frozen=True)
class Kind:
    """Equal servers: all of them, the first of which is looked at."""

    machine: Machine
    hosts: tuple[int, ...]

    @property
    def host(self) -> int:
        return self.hosts[0]

    @property
    def node(self) -> Node:
        return self.machine.topology.nodes[self.host]

    @cached_property
    def ways(self) -> Mapping[str, tuple[Link, ...]]:
        """From each GPU up to its socket, by local name in rank order; those without a way are left out."""
        climbed = {gpu.name: self.climb(gpu.name) for gpu in self.node.gpus}
        return {name: way for name, way in climbed.items() if way}

    def climb(self, name: str) -> tuple[Link, ...]:
        return self.machine.climb(self.host, full_name(name, self.host))

    @cached_property
    def ports(self) -> Mapping[str, tuple[Device, float]]:
        """The network ports, each with its rate."""
        rates = dict(self.node.ports) or self._drawn_ports()
        return {nic.name: (nic, rates[nic.name]) for nic in self.node.of_kind("nic") if nic.name in rates}

    def _drawn_ports(self) -> Mapping[str, float]:
        """Of a network that was drawn link by link."""
        topology, own = self.machine.topology, f"{self.host}."
        rates: Counter[str] = Counter()
        for link in topology.fabric.links(topology.hosts):
            if link.kind == "network" and link.source.startswith(own):
                rates.update({link.source.removeprefix(own): link.bandwidth})
        return rates

    @cached_property
    def near(self) -> Mapping[str, tuple[str, ...]]:
        """The ports at the least distance from each GPU, of which NCCL takes some."""
        ways = {nic: self.climb(nic) for nic in self.ports}
        found = {}
        for gpu, way in self.ways.items():
            far = {nic: distance(way, other) for nic, other in ways.items() if other}
            found[gpu] = tuple(nic for nic, hops in far.items() if hops == min(far.values()))
        return found

    def crosses(self, gpu: str, nic: str) -> bool:
        """Whether a GPU and a port meet only between the sockets."""
        return self.ways[gpu][-1].target != self.climb(nic)[-1].target

    def nvlink(self, gpu: str) -> float:
        """Bytes/s of all NVLinks of a GPU, one direction."""
        name = full_name(gpu, self.host)
        return sum(link.bandwidth for link in self.machine.links_out(self.host, name) if link.kind == "nvlink")

    @cached_property
    def domains(self) -> tuple[tuple[int, ...], ...]:
        """GPUs of the server that NVLink joins, by local index; also through switches outside of it."""
        ranks = self.machine.ranks_on(self.host)
        whole = self.machine.topology.nvlink_domains()
        parts = (tuple(rank - ranks.start for rank in domain if rank in ranks) for domain in whole)
        return tuple(part for part in parts if part)

    def alone(self, node: Node | None = None) -> Topology:
        """A topology of one such server, or of `node` in its place."""
        nodes = (node or self.node,)
        topology = self.machine.topology
        return replace(topology, nodes=nodes, fabric=topology.fabric.among(nodes))


def kinds_of(topology: Topology) -> tuple[Kind, ...]:
    """Each kind of server once, in the order of the first of each."""
    machine = Machine(topology)
    first: dict[Node, int] = {}
    known = {id(node): first.setdefault(node, len(first)) for node in {id(n): n for n in topology.nodes}.values()}
    hosts: dict[int, list[int]] = {}
    for host, node in enumerate(topology.nodes):
        hosts.setdefault(known[id(node)], []).append(host)
    return tuple(Kind(machine, tuple(same)) for same in hosts.values())


def gpu_of(device: Device) -> Gpu:
    assert isinstance(device.figures, Gpu)
    return device.figures


def port_of(device: Device) -> Nic:
    assert isinstance(device.figures, Nic)
    return device.figures


def known_ports(gpu: Gpu) -> GpuPorts:
    """What leaves a GPU of that name; nothing where the catalogue does not have it."""
    name = catalog.gpu_called(gpu.name)
    return GpuPorts() if name is None else catalog.gpu_ports(name)


def numbered(word: str, numbers: Iterable[int]) -> str:
    """`GPU 3`, `GPUs 0-3`, `nodes 0-3 and 5`, `node 0 and 7 more`."""
    listed = sorted(numbers)
    runs = [list(run) for _, run in groupby(enumerate(listed), lambda each: each[1] - each[0])]
    if len(listed) == 1:
        return f"{word} {listed[0]}"
    if len(runs) > MOST_RUNS:
        return f"{word} {listed[0]} and {len(listed) - 1} more"
    said = [str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs]
    return f"{word}s {' and '.join([', '.join(said[:-1]), said[-1]] if said[1:] else said)}"


def places(kind: Kind, names: Sequence[str]) -> list[int]:
    """The local indices of GPUs."""
    order = [gpu.name for gpu in kind.node.gpus]
    return [order.index(name) for name in names]
