"""The topology as pricing walks it: one host at a time, by rank, with what is asked often kept.

A cluster of 2,048 hosts is never drawn whole: a host's own graph and the switches it touches are enough for all of its
links, those to the NVSwitch of its rack among them. Only where a user drew NVLink from host to host link by link is the
whole graph taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property

import networkx as nx

from zerosim.spec.fabric import DrawnFabric, LeafFabric
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
        if isinstance(fabric, DrawnFabric) and fabric.joins_nvlink():
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

    def way(self, up: Sequence[Link], down: Sequence[Link], through_host: bool) -> list[Link]:
        """Up from one device and down to another, given both ways to a socket: through their nearest common switch, or
        through the socket; always through it where the bytes are put into host memory on their way (`through_host`)."""
        stops = [link.target for link in down]
        for hops, link in enumerate(up):
            if link.target in stops and (not through_host or hops == len(up) - 1):
                below = down[: stops.index(link.target) + 1]
                return [*up[: hops + 1], *(self.back(link) for link in reversed(below))]
        between = self.topology.route(up[-1].target, down[-1].target)
        return [*up, *between, *(self.back(link) for link in reversed(down))]

    def back(self, link: Link) -> Link:
        """The other direction of a link."""
        return self.topology.link(link.target, link.source)

    # --- switches of the network ------------------------------------------------------------------------------------

    def beside(self, host: int, level: int = 1) -> Sequence[int]:
        """The hosts that hang on the leaf (1) or below the spine (2) of a host, itself among them."""
        fabric = self.topology.fabric
        return fabric.beside(host, level) if isinstance(fabric, LeafFabric) else self._below[level][host]

    def near(self, host: int, hosts: Sequence[int], level: int = 1) -> int:
        """How many of `hosts` share the leaf (1) or the spine (2) of `host`."""
        return len(set(hosts).intersection(self.beside(host, level)))

    def neighbours(self, hosts: Sequence[int], level: int = 1) -> dict[int, int]:
        """By each of `hosts`, how many of them share its leaf (1) or its spine (2)."""
        among, found = frozenset(hosts), dict[int, int]()
        for host in hosts:
            if host not in found:
                together = among.intersection(self.beside(host, level))
                found.update(dict.fromkeys(together, len(together)))
        return found

    def above(self, host: int, switch: str) -> list[Link]:
        """The links from a leaf of the host, or from a spine above one, further up. What has no leaf below is a core,
        and spines of the same level, joined as in a dragonfly, are not above each other."""
        kind = self.device(host, switch).kind
        links = [link for link in self.links_out(host, switch) if link.kind == "network"]
        higher = [link for link in links if self.device(host, link.target).kind == "spine"]
        if kind == "leaf":
            return higher or [link for link in links if self.device(host, link.target).kind == "leaf"]
        return [link for link in higher if not self._has_leaves(host, link.target)]

    def _has_leaves(self, host: int, spine: str) -> bool:
        return any(self.device(host, link.target).kind == "leaf" for link in self.links_out(host, spine))

    @cached_property
    def _below(self) -> dict[int, dict[int, list[int]]]:
        """Of a network that was drawn link by link, the hosts below the same leaf (1) and the same spine (2)."""
        leaf: dict[int, str] = {}
        for wire in self.topology.fabric.links(self.topology.hosts):
            owner = wire.source.partition(".")[0]
            if wire.kind == "network" and owner.isdecimal():
                leaf.setdefault(int(owner), wire.target)  # of its first port
        spine = {host: self._spine_above(host, switch) for host, switch in leaf.items()}
        return {level: self._grouped(switches) for level, switches in ((1, leaf), (2, spine))}

    def _spine_above(self, host: int, leaf: str) -> str:
        up = self.above(host, leaf) if leaf in self.graph(host) else []
        return up[0].target if up else leaf

    def _grouped(self, switches: Mapping[int, str]) -> dict[int, list[int]]:
        found: dict[str, list[int]] = {}
        for host in self.topology.hosts:
            found.setdefault(switches.get(host, ""), []).append(host)
        return {host: hosts for hosts in found.values() for host in hosts}


def distance(one: Sequence[Link], other: Sequence[Link]) -> int:
    """Links to the first device that both ways pass; a long way when they meet only between the sockets."""
    stops = [link.target for link in other]
    for hops, link in enumerate(one):
        if link.target in stops:
            return hops + stops.index(link.target)
    return 100 + len(one) + len(other)
