"""The topology as pricing walks it: one host at a time, by rank, with what is asked often kept.

A cluster of 2,048 hosts is never drawn whole: a host's own graph and the switches it touches are enough for all of its
links. Only where NVLink leaves the hosts (a rack of 72 GPUs) is the whole graph taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import networkx as nx

from zerosim.spec.fabric import LeafFabric
from zerosim.spec.node import graph_of
from zerosim.spec.topology import Device, Link, Topology


class Machine:
    """A topology, the host of each rank, the ranks of each host, and the links around a host."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.hosts = [host for host, node in enumerate(topology.nodes) for _ in node.gpus]
        self._first = [0]
        for node in topology.nodes:
            self._first.append(self._first[-1] + len(node.gpus))
        self._graphs: dict[int, nx.DiGraph[str]] = {}
        self._leaf_of = self._leaves()

    @property
    def world(self) -> int:
        return len(self.hosts)

    def ranks_on(self, host: int) -> range:
        return range(self._first[host], self._first[host + 1])

    def graph(self, host: int) -> nx.DiGraph[str]:
        """The host and the switches it is joined to."""
        if host not in self._graphs:
            self._graphs[host] = self._drawn(host)
        return self._graphs[host]

    def _drawn(self, host: int) -> nx.DiGraph[str]:
        fabric = self.topology.fabric
        if fabric.joins_nvlink():
            return self.topology.graph
        devices, links = self.topology.nodes[host].placed(host)
        outside = fabric.links((host,))
        met = {link.target for link in outside}
        return graph_of([*devices, *(each for each in fabric.switches() if each.name in met)], [*links, *outside])

    def device(self, host: int, name: str) -> Device:
        device: Device = self.graph(host).nodes[name]["device"]
        return device

    def links_out(self, host: int, name: str) -> list[Link]:
        """The directed links that leave a device, in the order in which they were given."""
        return [data["link"] for _, _, data in self.graph(host).out_edges(name, data=True)]

    def climb(self, host: int, name: str) -> tuple[Link, ...]:
        """The links from a device up through its PCIe switches to the nearest socket; empty where there is none."""
        waiting: deque[tuple[str, tuple[Link, ...]]] = deque([(name, ())])
        seen = {name}
        while waiting:
            here, path = waiting.popleft()
            for link in self.links_out(host, here):
                kind = self.device(host, link.target).kind
                if kind == "socket" and link.kind != "socket":
                    return (*path, link)
                if kind == "pcie_switch" and link.target not in seen:
                    seen.add(link.target)
                    waiting.append((link.target, (*path, link)))
        return ()

    # --- leaves ----------------------------------------------------------------------------------------------------

    def beside(self, host: int) -> list[int]:
        """The hosts that hang on the leaf of a host, itself among them."""
        leaf = self._leaf_of(host)
        return [other for other in self.topology.hosts if self._leaf_of(other) == leaf]

    def near(self, host: int, hosts: Sequence[int]) -> int:
        """How many of `hosts` share the leaf of `host`."""
        leaf = self._leaf_of(host)
        return sum(1 for other in hosts if self._leaf_of(other) == leaf)

    def _leaves(self) -> Callable[[int], str]:
        """The leaf of a host, by its first port."""
        fabric = self.topology.fabric
        if isinstance(fabric, LeafFabric):
            nodes = len(self.topology.nodes) if fabric.kind == "switch" else fabric.leaf_nodes
            return lambda host: f"leaf{host // nodes}"
        wires = fabric.links(self.topology.hosts)
        first: dict[str, str] = {}
        for wire in wires:
            owner = wire.source.partition(".")[0]
            first.setdefault(owner, wire.target)
        return lambda host: first.get(str(host), "")


def distance(one: Sequence[Link], other: Sequence[Link]) -> int:
    """Links to the first device that both ways pass; a long way when they meet only between the sockets."""
    stops = [link.target for link in other]
    for hops, link in enumerate(one):
        if link.target in stops:
            return hops + stops.index(link.target)
    return 100 + len(one) + len(other)
