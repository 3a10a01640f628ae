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
SPINE = "spine0"
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
    """Leaves of `leaf_nodes` servers under one non-blocking spine.

    `switch`: one leaf for all. `fat_tree`: a leaf for each `leaf_nodes` servers. `rail`: among `leaf_nodes` servers, a
    leaf for each NIC index. A leaf's uplink carries the sum of its downlinks / oversubscription. `latency` is from port
    to port through one switch; half of it lies on each link.
    """

    kind: FabricKind
    nodes: tuple[Node, ...]
    latency: float
    oversubscription: float = 1.0
    leaf_nodes: int = 32

    @cached_property
    def rails(self) -> int:
        most = max(len(node.ports) for node in self.nodes)
        return max(most, 1) if self.kind == "rail" else 1

    @cached_property
    def _downlinks(self) -> dict[str, float]:
        """The sum of the port rates of each leaf, in order of the leaves."""
        sums: defaultdict[int, float] = defaultdict(float)
        for host, node in enumerate(self.nodes):
            for port, (_, rate) in enumerate(node.ports):
                sums[self._leaf(host, port)] += rate
        return {f"leaf{leaf}": sums[leaf] for leaf in sorted(sums)}

    def _leaf(self, host: int, port: int) -> int:
        group = 0 if self.kind == "switch" else host // self.leaf_nodes
        return group * self.rails + port % self.rails

    def switches(self) -> tuple[Device, ...]:
        return self._switches

    @cached_property
    def _switches(self) -> tuple[Device, ...]:
        leaves = tuple(Device(name, "leaf", None) for name in self._downlinks)
        return (*leaves, Device(SPINE, "spine", None)) if len(leaves) > 1 else leaves

    def links(self, hosts: Collection[int]) -> list[Link]:
        down = [link for host in hosts for link in self._down(host)]
        below = dict.fromkeys(link.target for link in down if link.target in self._downlinks)
        used = below if hosts else self._downlinks
        return down + [link for leaf in used for link in self._up(leaf)]

    def _down(self, host: int) -> Iterator[Link]:
        for port, (nic, rate) in enumerate(self.nodes[host].ports):
            yield from both_ways(full_name(nic, host), f"leaf{self._leaf(host, port)}", rate, self.latency / 2)

    def _up(self, leaf: str) -> Iterator[Link]:
        if len(self._downlinks) > 1:
            yield from both_ways(leaf, SPINE, self._downlinks[leaf] / self.oversubscription, self.latency / 2)

    def position(self, host: int) -> Hashable:
        return self.oversubscription  # uplink / downlinks is the same on every leaf

    def joins_nvlink(self) -> bool:
        return False

    def among(self, nodes: tuple[Node, ...]) -> Fabric:
        return replace(self, nodes=nodes)


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
            Counter((replace(link, source="", target=""), self._uplink_share(link.target)) for link in own).items()
        )

    def _uplink_share(self, switch: str) -> float:
        """Rate up / rate down of a switch; 0 where it has no uplink, or is no switch."""
        out = [link for link in self.drawn if link.source == switch and switch not in self.owners]
        down = sum(link.bandwidth for link in out if link.target in self.owners)
        up = sum(link.bandwidth for link in out if link.target not in self.owners)
        return up / down if down else 0.0

    def joins_nvlink(self) -> bool:
        return any(link.kind == "nvlink" for link in self.drawn)

    def among(self, nodes: tuple[Node, ...]) -> Fabric:
        kept = {full_name(device.name, host): host for host, node in enumerate(nodes) for device in node.devices}
        gone = self.owners.keys() - kept.keys()
        links = tuple(link for link in self.drawn if link.source not in gone and link.target not in gone)
        return replace(self, drawn=links, owners=kept)
