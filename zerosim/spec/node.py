"""One server: its devices and links by local names ("gpu5"), whichever host it is.

Rule: a node knows nothing outside itself but the rates of its network ports. A cluster of equal servers shares one
`Node`, so that what is asked of it (routes, NVLink domains, kinds of ranks) is worked out once and not once a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx

from zerosim.spec.devices import Device, Link
from zerosim.spec.routes import device_at, link_at, seconds, shortest


@dataclass(frozen=True)
class Node:
    """GPUs stand in rank order among `devices`; `ports` are the rates of the network ports by name of their NIC.

    `outward`: links from its GPUs to an NVSwitch that it shares with the other servers of a rack. `down`: the numbers
    of the NICs that it would have, too, if they worked.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    ports: tuple[tuple[str, float], ...] = ()
    outward: tuple[Link, ...] = ()
    down: tuple[int, ...] = ()

    @cached_property
    def gpus(self) -> tuple[Device, ...]:
        return self.of_kind("gpu")

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        return graph_of(self.devices, self.links)

    def of_kind(self, kind: str) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.kind == kind)

    def placed(self, host: int) -> tuple[list[Device], list[Link]]:
        """Its devices and links as those of a host of the cluster."""
        return [place(device, host) for device in self.devices], [place_link(link, host) for link in self.links]

    def with_gpus(self, count: int) -> Node:
        """The same server of which only the first GPUs are used."""
        idle = {gpu.name for gpu in self.gpus[count:]}
        return replace(
            self,
            devices=tuple(device for device in self.devices if device.name not in idle),
            links=tuple(link for link in self.links if not {link.source, link.target} & idle),
            outward=tuple(link for link in self.outward if link.source not in idle),
        )

    def port_of(self, name: str) -> str | None:
        """The NIC through which a device reaches the network: the nearest; devices of one distance take turns."""
        return self._ports_by_device.get(name)

    @cached_property
    def _ports_by_device(self) -> dict[str, str]:
        nics = [device.name for device in self.of_kind("nic")]
        chosen: dict[str, str] = {nic: nic for nic in nics}
        turns: Counter[tuple[str, ...]] = Counter()
        for device in self.devices:
            near = self._nearest(device.name, nics)
            if device.kind != "nic" and near:
                chosen[device.name] = near[turns[device.kind, *near] % len(near)]
                turns[device.kind, *near] += 1
        return chosen

    def _nearest(self, name: str, targets: Iterable[str]) -> tuple[str, ...]:
        """Those of `targets` that are nearest to a device, in their order."""
        ways = {target: shortest(self.graph, name, target) for target in targets}
        costs = {target: sum(map(seconds, way)) for target, way in ways.items() if way is not None}
        return tuple(target for target, cost in costs.items() if cost <= min(costs.values()) * (1 + 1e-9))

    @cached_property
    def nvlink_domains(self) -> tuple[tuple[int, ...], ...]:
        """GPUs joined by NVLink, by local index."""
        return nvlink_domains(self.graph, [gpu.name for gpu in self.gpus])

    @cached_property
    def signature(self) -> Hashable:
        """Equal for servers that hold the same, whatever its names."""
        kinds = {device.name: device.kind for device in self.devices}
        devices = Counter(_nameless(device) for device in self.devices)
        links = Counter((kinds[link.source], kinds[link.target], _rates(link)) for link in self.links)
        ports = Counter(rate for _, rate in self.ports)
        outward = Counter(map(_rates, self.outward))
        return tuple(frozenset(held.items()) for held in (devices, links, ports, outward))

    @cached_property
    def rank_kinds(self) -> tuple[Hashable, ...]:
        """By GPU: what it is, its NVLinks, and with what it shares its way to host memory."""
        ways = {gpu.name: self._to_socket(gpu.name) for gpu in self.gpus}
        behind = Counter(link.target for way in ways.values() for link in way)
        return tuple(
            (_nameless(gpu), self._nvlinks(gpu.name), self._shared(ways[gpu.name], behind)) for gpu in self.gpus
        )

    def _to_socket(self, gpu: str) -> tuple[Link, ...]:
        near = self._nearest(gpu, [socket.name for socket in self.of_kind("socket")])
        return (shortest(self.graph, gpu, near[0]) or ()) if near else ()

    def _nvlinks(self, gpu: str) -> Hashable:
        links = [link_at(self.graph, gpu, peer) for peer in self.graph[gpu]]
        links += [link for link in self.outward if link.source == gpu]
        return frozenset(Counter(_rates(link) for link in links if link.kind == "nvlink").items())

    def _shared(self, way: tuple[Link, ...], behind: Counter[str]) -> Hashable:
        """Each link of the way: where it leads, how many GPUs are behind that, and what else hangs on a switch."""
        passed: list[Hashable] = []
        for link in way:
            above = device_at(self.graph, link.target)
            beside = Counter((self._kind(name), *self._rate(link.target, name)) for name in self.graph[link.target])
            hung = frozenset(beside.items()) if above.kind == "pcie_switch" else None
            passed.append((_rates(link), _nameless(above), behind[link.target], hung))
        return tuple(passed)

    def _kind(self, name: str) -> str:
        return device_at(self.graph, name).kind

    def _rate(self, source: str, target: str) -> tuple[float, float]:
        link = link_at(self.graph, source, target)
        return link.bandwidth, link.latency


def graph_of(devices: Iterable[Device], links: Iterable[Link]) -> nx.DiGraph[str]:
    """The graph of devices and links."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from((device.name, {"device": device}) for device in devices)
    graph.add_edges_from((link.source, link.target, {"link": link}) for link in links)
    return graph


def nvlink_domains(graph: nx.DiGraph[str], gpus: list[str]) -> tuple[tuple[int, ...], ...]:
    """The positions of `gpus` that NVLink joins, directly or through switches; a GPU without NVLink is alone."""
    joined: nx.Graph[str] = nx.Graph()
    joined.add_nodes_from(gpus)
    joined.add_edges_from((a, b) for a, b in graph.edges if link_at(graph, a, b).kind == "nvlink")
    rank = {name: index for index, name in enumerate(gpus)}
    parts = (sorted(rank[name] for name in part if name in rank) for part in nx.connected_components(joined))
    return tuple(sorted(tuple(part) for part in parts if part))


def full_name(local: str, host: int) -> str:
    return f"{host}.{local}"


def place(device: Device, host: int) -> Device:
    return replace(device, name=full_name(device.name, host), host=host)


def place_link(link: Link, host: int) -> Link:
    return replace(link, source=full_name(link.source, host), target=full_name(link.target, host))


def _nameless(device: Device) -> Device:
    return replace(device, name="", host=None)


def _rates(link: Link) -> Link:
    return replace(link, source="", target="")
