"""What joins the servers: leaf and spine switches and the links to them.

A `LeafFabric` is computed from three numbers, host by host as asked, so that a step on 2,048 servers is priced without
drawing 2,048 servers. A `DrawnFabric` is what a user listed device by device. Both answer the same questions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

from zerosim.spec.devices import Device, Link
from zerosim.spec.node import Node, full_name

FabricKind = Literal["switch", "rail", "fat_tree"]
CORE = "core0"
MOST_NODES = 100_000  # servers; far beyond any cluster, so that a slip of the pen does not fill the memory


class Fabric(Protocol):
    """The network as a topology asks it."""

    def switches(self) -> tuple[Device, ...]:
        """All devices that belong to no host."""

    def links(self, hosts: Collection[int]) -> list[Link]:
        """The links between these hosts and the switches, and up from those; of no hosts, all among the switches."""

    def position(self, host: int) -> Hashable:
        """Equal for hosts to which the network offers the same."""

    def joins_nvlink(self) -> bool:
        """Whether NVLink leaves the servers."""

    def among(self, nodes: tuple[Node, ...]) -> Fabric:
        """The same network with these servers on it, instead."""


@dataclass(frozen=True)
class LeafFabric:
    """Leaves of `leaf_nodes` servers under one non-blocking spine; NVLink domains of `rack` servers.

    `switch`: one leaf for all. `fat_tree`: a leaf for each `leaf_nodes` servers. `rail`: among `leaf_nodes` servers, a
    leaf for each NIC index. A leaf's uplink carries the sum of its downlinks / oversubscription. With `spine_nodes`
    there is a spine for so many servers, and a core above the spines: a spine's uplink carries the uplinks of its
    leaves / spine oversubscription. `latency` is from port to port through one switch; half of it lies on each link.
    """

    kind: FabricKind
    nodes: tuple[Node, ...]
    latency: float
    oversubscription: float = 1.0
    leaf_nodes: int = 32
    spine_nodes: int = 0
    spine_oversubscription: float = 1.0
    rack: int = 1

    @cached_property
    def rails(self) -> int:
        most = max((number + 1 for ports in self._ports.values() for _, number, _ in ports), default=1)
        return most if self.kind == "rail" else 1

    @cached_property
    def _ports(self) -> dict[int, tuple[tuple[str, int, float], ...]]:
        """The ports of each different node (by identity): name, number and rate. The number is that of the rail, also
        where others are down."""
        different = {id(node): node for node in self.nodes}
        return {
            key: tuple((nic, int(nic.removeprefix("nic")), rate) for nic, rate in node.ports)
            for key, node in different.items()
        }

    @cached_property
    def _downlinks(self) -> dict[str, float]:
        """The sum of the port rates of each leaf, in order of the leaves."""
        sums: defaultdict[int, float] = defaultdict(float)
        for host, node in enumerate(self.nodes):
            first = self._first_leaf(host)
            for _, number, rate in self._ports[id(node)]:
                sums[first + number % self.rails] += rate
        return {f"leaf{leaf}": sums[leaf] for leaf in sorted(sums)}

    def _first_leaf(self, host: int) -> int:
        """The leaf of the first rail."""
        return 0 if self.kind == "switch" else host // self.leaf_nodes * self.rails

    def switches(self) -> tuple[Device, ...]:
        return self._switches

    @cached_property
    def _switches(self) -> tuple[Device, ...]:
        leaves = tuple(Device(name, "leaf", None) for name in self._downlinks)
        spines = tuple(Device(name, "spine", None) for name in self._spines) if len(leaves) > 1 else ()
        core = (Device(CORE, "spine", None),) if len(spines) > 1 else ()
        racks = (host // self.rack for host, node in enumerate(self.nodes) if node.outward)
        return (*leaves, *spines, *core, *(Device(_nvswitch(rack), "nvswitch", None) for rack in dict.fromkeys(racks)))

    @cached_property
    def _spines(self) -> dict[str, float]:
        """The sum of the leaves' uplinks of each spine, in order of the spines."""
        sums: defaultdict[str, float] = defaultdict(float)
        for leaf, down in self._downlinks.items():
            sums[self._spine(leaf)] += down / self.oversubscription
        return dict(sums)

    def _spine(self, leaf: str) -> str:
        first = int(leaf.removeprefix("leaf")) // self.rails * self.leaf_nodes  # the first server on the leaf
        return f"spine{first // self.spine_nodes if self.spine_nodes else 0}"

    def links(self, hosts: Collection[int]) -> list[Link]:
        down = [link for host in hosts for link in self._down(host)]
        below = dict.fromkeys(link.target for link in down if link.target in self._downlinks)
        used = below if hosts else self._downlinks
        up = [link for leaf in used for link in self._up(leaf)]
        spines = dict.fromkeys(link.target for link in up if link.target in self._spines)
        return [*down, *up, *(link for spine in spines for link in self._above(spine)), *self._outward(hosts)]

    def _down(self, host: int) -> Iterator[Link]:
        first = self._first_leaf(host)
        for nic, number, rate in self._ports[id(self.nodes[host])]:
            leaf = f"leaf{first + number % self.rails}"
            yield from both_ways(full_name(nic, host), leaf, rate, self.latency / 2)

    def _up(self, leaf: str) -> Iterator[Link]:
        if len(self._downlinks) > 1:
            rate = self._downlinks[leaf] / self.oversubscription
            yield from both_ways(leaf, self._spine(leaf), rate, self.latency / 2)

    def _above(self, spine: str) -> Iterator[Link]:
        if len(self._spines) > 1:
            yield from both_ways(spine, CORE, self._spines[spine] / self.spine_oversubscription, self.latency / 2)

    def _outward(self, hosts: Collection[int]) -> Iterator[Link]:
        """NVLinks to the switches of the racks, both ways."""
        for host in hosts:
            for link in self.nodes[host].outward:
                gpu, switch = full_name(link.source, host), _nvswitch(host // self.rack)
                yield replace(link, source=gpu, target=switch)
                yield replace(link, source=switch, target=gpu)

    def beside(self, host: int, level: int) -> range:
        """The servers below the same leaf (1), or spine (2)."""
        several = self.leaf_nodes if level == 1 else self.spine_nodes
        size = several if several and self.kind != "switch" else len(self.nodes)
        first = host // size * size
        return range(first, min(first + size, len(self.nodes)))

    def position(self, host: int) -> Hashable:
        """Uplink / downlinks is the same on every leaf. A rack may be filled in part; so may a leaf and a spine, whose
        servers have fewer near them, which matters where their uplinks are thin."""
        first = host // self.rack * self.rack
        thin = [level for level, ratio in ((1, self.oversubscription), (2, self.spine_oversubscription)) if ratio > 1]
        return min(self.rack, len(self.nodes) - first), *(len(self.beside(host, level)) for level in thin)

    def joins_nvlink(self) -> bool:
        return self.rack > 1

    def among(self, nodes: tuple[Node, ...]) -> Fabric:
        return replace(self, nodes=nodes)


def _nvswitch(rack: int) -> str:
    return f"nvswitch{rack}"


def both_ways(a: str, b: str, bandwidth: float, latency: float) -> tuple[Link, Link]:
    """A full-duplex network link."""
    return Link(a, b, "network", bandwidth, latency), Link(b, a, "network", bandwidth, latency)


@dataclass(frozen=True)
class DrawnFabric:
    """Switches and links as listed; `owners` tells the host of each device that has one."""

    devices: tuple[Device, ...]
    drawn: tuple[Link, ...]
    owners: dict[str, int]

    def switches(self) -> tuple[Device, ...]:
        return self.devices

    def links(self, hosts: Collection[int]) -> list[Link]:
        return [link for link in self.drawn if all(self._owner(end, hosts) for end in (link.source, link.target))]

    def _owner(self, name: str, hosts: Collection[int]) -> bool:
        return name not in self.owners or self.owners[name] in hosts

    def position(self, host: int) -> Hashable:
        own = [link for link in self.drawn if self.owners.get(link.source) == host]
        return frozenset(
            Counter((replace(link, source="", target=""), *self._uplink_share(link.target)) for link in own).items()
        )

    def _uplink_share(self, switch: str) -> tuple[float, int]:
        """Rate up / rate down of a switch, 0 where it has no uplink, or is no switch; and the links down, where that
        is less than 1."""
        out = [link for link in self.drawn if link.source == switch and switch not in self.owners]
        down = sum(link.bandwidth for link in out if link.target in self.owners)
        up = sum(link.bandwidth for link in out if link.target not in self.owners)
        share = up / down if down else 0.0
        return share, sum(link.target in self.owners for link in out) if 0 < share < 1 else 0

    def joins_nvlink(self) -> bool:
        return any(link.kind == "nvlink" for link in self.drawn)

    def among(self, nodes: tuple[Node, ...]) -> Fabric:
        kept = {full_name(device.name, host): host for host, node in enumerate(nodes) for device in node.devices}
        gone = self.owners.keys() - kept.keys()
        links = tuple(link for link in self.drawn if link.source not in gone and link.target not in gone)
        return replace(self, drawn=links, owners=kept)
