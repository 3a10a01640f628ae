"""What is outside the servers of a topology, as a picture asks for it.

Of a few servers all are asked where they hang; of many only the first and the last of each kind, since leaves that
carry the same are drawn once anyway. An NVSwitch that a file put into one server, but which others reach as well,
stands here among the switches.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from zerosim.spec.devices import Link
from zerosim.spec.fabric import DrawnFabric, LeafFabric
from zerosim.spec.node import Node, full_name
from zerosim.spec.topology import Topology

FEW = 64  # servers that are all asked


@dataclass(frozen=True)
class Network:
    """`kinds` of the switches by name. `between`: links among them; `down`: by host, the links of its devices to them
    or to other hosts. `shared`: NVSwitches of one server that others reach too."""

    topology: Topology
    kinds: Mapping[str, str]
    between: tuple[Link, ...]
    down: Mapping[int, tuple[Link, ...]]
    shared: frozenset[str]

    @classmethod
    def of(cls, topology: Topology) -> Network:
        """The network of a topology."""
        fabric, nodes = topology.fabric, topology.nodes
        asked = topology.hosts if len(nodes) <= FEW or isinstance(fabric, DrawnFabric) else _ends(topology)
        outside = fabric.links(asked)
        own = {full_name(switch.name, host) for host in asked for switch in nodes[host].of_kind("nvswitch")}
        shared = frozenset(own.intersection(end for link in outside for end in (link.source, link.target)))
        kinds = {device.name: str(device.kind) for device in fabric.switches()}
        kinds |= dict.fromkeys(sorted(shared), "nvswitch")
        between = {(link.source, link.target): link for link in (*fabric.links(()), *outside)}
        down: defaultdict[int, list[Link]] = defaultdict(list)
        for link in outside:
            if link.source not in kinds:
                down[host_in(link.source)].append(link)
        for host in sorted({host_in(name) for name in shared}):  # its own GPUs reach such a switch, too
            down[host] += _reaching(nodes[host], host, shared)
        among = tuple(link for ends, link in between.items() if kinds.keys() >= set(ends))
        return cls(topology, kinds, among, {host: tuple(links) for host, links in down.items()}, shared)

    @property
    def all_asked(self) -> bool:
        """Whether `down` has every host."""
        return len(self.topology.nodes) <= FEW or isinstance(self.topology.fabric, DrawnFabric)

    # --- what is asked of a server ---

    def without_shared(self, node: Node, host: int) -> Node:
        """The server without the switches that are not its own."""
        gone = {local(name) for name in self.shared if host_in(name) == host}
        if not gone:
            return node
        devices = tuple(device for device in node.devices if device.name not in gone)
        links = tuple(link for link in node.links if not {link.source, link.target} & gone)
        return replace(node, devices=devices, links=links)

    def port_rates(self, host: int) -> dict[str, float]:
        """The rates of its ports by the local names of their devices."""
        rates = dict(self.topology.nodes[host].ports)
        for link in self._asked(host):
            if link.kind == "network":
                rates[local(link.source)] = max(link.bandwidth, rates.get(local(link.source), 0.0))
        return rates

    def outward(self, host: int) -> dict[str, float]:
        """By GPU the rate of all its NVLinks that leave the server."""
        rates: defaultdict[str, float] = defaultdict(float)
        for link in self._asked(host):
            if link.kind == "nvlink":
                rates[local(link.source)] += link.bandwidth
        return dict(rates)

    def _asked(self, host: int) -> Iterable[Link]:
        if host in self.down:
            return self.down[host]
        return [link for link in self.topology.fabric.links((host,)) if link.source not in self.kinds]

    # --- what is asked of a switch ---

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """How far a switch is from the servers; 1 where none reaches it."""
        above: defaultdict[str, list[str]] = defaultdict(list)
        for link in self.between:
            above[link.source].append(link.target)
        found = dict.fromkeys((link.target for links in self.down.values() for link in links), 1)
        if not self.all_asked:  # every leaf has servers
            found |= dict.fromkeys((name for name, kind in self.kinds.items() if kind in ("leaf", "nvswitch")), 1)
        waiting = deque(found)
        while waiting:
            name = waiting.popleft()
            for other in above[name]:
                if other not in found:
                    found[other] = found[name] + 1
                    waiting.append(other)
        return dict.fromkeys(self.kinds, 1) | {name: level for name, level in found.items() if name in self.kinds}

    def nodes_on(self, name: str) -> int:
        """Servers that hang on a switch."""
        fabric, hosts = self.topology.fabric, len(self.topology.nodes)
        if not isinstance(fabric, LeafFabric):
            return sum(any(link.target == name for link in links) for links in self.down.values())
        match self.kinds[name]:
            case "leaf" if fabric.kind == "switch":
                return hosts
            case "leaf":
                group = int(name.removeprefix("leaf")) // fabric.rails
                return min(fabric.leaf_nodes, hosts - group * fabric.leaf_nodes)
            case "nvswitch":
                return min(fabric.rack, hosts - int(name.removeprefix("nvswitch")) * fabric.rack)
            case _:
                return 0

    def up(self, name: str) -> float:
        """Bytes/s from a switch away from the servers."""
        level = self.levels[name]
        return sum(link.bandwidth for link in self.between if link.source == name and self.levels[link.target] > level)

    def below(self, name: str) -> float:
        """Bytes/s from a switch towards the servers, as far as these were asked."""
        down = sum(link.bandwidth for links in self.down.values() for link in links if link.target == name)
        level = self.levels[name]
        lower = (link for link in self.between if link.target == name and self.levels[link.source] < level)
        return down + sum(link.bandwidth for link in lower)


def host_in(name: str) -> int:
    """The host in a full name."""
    return int(name.partition(".")[0])


def local(name: str) -> str:
    """A full name without its host."""
    return name.partition(".")[2]


def _ends(topology: Topology) -> tuple[int, ...]:
    """The first and the last host of each server, equal ones being one."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for host, node in enumerate(topology.nodes):
        first.setdefault(id(node), host)
        last[id(node)] = host
    return tuple(sorted({*first.values(), *last.values()}))


def _reaching(node: Node, host: int, switches: frozenset[str]) -> list[Link]:
    """The links of a server's own GPUs to switches in it."""
    gpus = {full_name(gpu.name, host) for gpu in node.gpus}
    return [link for link in node.placed(host)[1] if link.target in switches and link.source in gpus]
