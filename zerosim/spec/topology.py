"""A machine or cluster: devices and directed links in one networkx graph, whichever way the user described it.

Rule: a topology says what is there (devices, links, rates on paper, graded efficiencies of the catalogue). It knows no
model and no schedule; what traffic costs is decided elsewhere. Equal servers share one `Node`, and the whole graph is
drawn only when asked for: answers cost what differs, not how many ranks there are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import overload

import networkx as nx

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.buying import Power, Price
from zerosim.spec.devices import Device, DeviceKind, Drive, Gpu, Grade, Link, LinkKind, Nic, Socket
from zerosim.spec.fabric import MOST_NODES, DrawnFabric, Fabric, LeafFabric
from zerosim.spec.node import Node, graph_of, nvlink_domains, place, place_link
from zerosim.spec.routes import device_at, link_at, shortest

__all__ = ["Device", "DeviceKind", "Drive", "Gpu", "Grade", "Link", "LinkKind", "Nic", "Socket", "Topology"]


@dataclass(frozen=True, eq=False)
class Topology:
    """`nodes` by host; ranks count through the GPUs host by host."""

    name: str
    nodes: tuple[Node, ...]
    fabric: Fabric
    notes: tuple[str, ...] = ()
    repeatable: bool = False  # made of one node template: more of the same nodes may be asked for
    price: Price | None = None
    power: Power | None = None
    _pieces: dict[tuple[int, ...], nx.DiGraph[str]] = field(default_factory=dict, init=False, repr=False)
    _routes: dict[tuple[str, str], tuple[Link, ...]] = field(default_factory=dict, init=False, repr=False)

    # --- what is there ---

    @cached_property
    def gpus(self) -> Sequence[Device]:
        """The GPU of each rank."""
        return _Ranks(self)

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        return tuple(range(len(self.nodes)))

    @property
    def fullest(self) -> int:
        """Ranks of the node that has most."""
        return max(len(node.gpus) for node in self.nodes)

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """Everything: `device` at the vertices, `link` at the edges."""
        return self._piece(self.hosts)

    @cached_property
    def _first_ranks(self) -> tuple[int, ...]:
        """The first rank of each host, and the world size."""
        return (0, *accumulate(len(node.gpus) for node in self.nodes))

    @cached_property
    def _switch_names(self) -> frozenset[str]:
        return frozenset(switch.name for switch in self.fabric.switches())

    def host_of(self, rank: int) -> int:
        """The host of a rank."""
        if not 0 <= rank < self._first_ranks[-1]:
            raise self._wrong("rank", str(rank), f"a rank from 0 to {self._first_ranks[-1] - 1}")
        return bisect_right(self._first_ranks, rank) - 1

    def device(self, name: str) -> Device:
        """The device of that name: "0.gpu5", "leaf0"."""
        host, local = self._split(name)
        if host is not None:
            return place(device_at(self.nodes[host].graph, local), host)
        return next(switch for switch in self.fabric.switches() if switch.name == name)

    def devices(self, kind: DeviceKind, host: int | None = None) -> tuple[Device, ...]:
        """All devices of a kind, of one host or of all, by host and number."""
        hosts = self.hosts if host is None else (host,)
        inside = [place(device, h) for h in hosts for device in sorted(self.nodes[h].of_kind(kind), key=_numbered)]
        outside = [switch for switch in self.fabric.switches() if switch.kind == kind] if host is None else []
        return (*inside, *sorted(outside, key=_numbered))

    def link(self, a: str, b: str) -> Link:
        """The link from `a` to `b`."""
        piece = self._piece(self._hosts_of(a, b))
        if not piece.has_edge(a, b):
            raise self._wrong("link", f"{a} to {b}", "two devices that a link joins")
        return link_at(piece, a, b)

    # --- ways ---

    def route(self, a: str, b: str) -> tuple[Link, ...]:
        """The links from `a` to `b`; across hosts through the nearest NIC of each."""
        if (a, b) not in self._routes:
            self._routes[a, b] = self._route(a, b)
        return self._routes[a, b]

    def _route(self, a: str, b: str) -> tuple[Link, ...]:
        (host, local), (other, target) = self._split(a), self._split(b)
        way: tuple[Link, ...] | None = None
        if host is not None and host == other and not self.nodes[host].outward:
            inside = shortest(self.nodes[host].graph, local, target)
            way = None if inside is None else tuple(place_link(link, host) for link in inside)
        if way is None:
            piece = self._piece(self._hosts_of(a, b))
            nics = {name for name in piece if device_at(piece, name).kind == "nic"}
            way = shortest(piece, a, b, closed=nics - {self._port_of(a), self._port_of(b)})
        if way is None:
            raise self._wrong("route", f"no route from {a} to {b}", "links that join them")
        return way

    def _port_of(self, name: str) -> str:
        host, local = self._split(name)
        port = None if host is None else self.nodes[host].port_of(local)
        return "" if port is None else f"{host}.{port}"

    def _piece(self, hosts: tuple[int, ...]) -> nx.DiGraph[str]:
        """The graph of some hosts and the switches."""
        if hosts not in self._pieces:
            placed = [self.nodes[host].placed(host) for host in hosts]
            devices = [device for part, _ in placed for device in part]
            links = [link for _, part in placed for link in part]
            self._pieces[hosts] = graph_of([*devices, *self.fabric.switches()], [*links, *self.fabric.links(hosts)])
        return self._pieces[hosts]

    def _hosts_of(self, *names: str) -> tuple[int, ...]:
        return tuple(sorted({host for host, _ in map(self._split, names) if host is not None}))

    def _split(self, name: str) -> tuple[int | None, str]:
        """Host and local name; no host for a switch of the fabric."""
        head, dot, local = name.partition(".")
        if dot and head.isdecimal() and int(head) < len(self.nodes) and local in self.nodes[int(head)].graph:
            return int(head), local
        if name in self._switch_names:
            return None, name
        raise self._wrong("device", f'"{name}"', "a device of this topology", nearest(name, list(self.graph)))

    # --- which ranks are alike ---

    def nvlink_domains(self) -> tuple[tuple[int, ...], ...]:
        """Ranks joined by NVLink; those without are alone."""
        if isinstance(self.fabric, LeafFabric):
            return tuple(sorted(self._domains(self.fabric.rack)))
        if self.fabric.joins_nvlink():
            return nvlink_domains(self.graph, [gpu.name for gpu in self.gpus])
        return tuple(sorted(self._domains(1)))

    def _domains(self, rack: int) -> Iterator[tuple[int, ...]]:
        """The NVLink domains of servers, of which `rack` at a time share an NVSwitch."""
        shared: dict[int, list[int]] = {}
        for host, (first, node) in enumerate(zip(self._first_ranks, self.nodes, strict=False)):
            joined = {link.source for link in node.outward}
            inside = [gpu for gpu, device in enumerate(node.gpus) if device.name in joined]
            if inside:
                shared.setdefault(host // rack, []).extend(first + gpu for gpu in inside)
            for domain in node.nvlink_domains:
                if not set(domain) <= set(inside):
                    yield tuple(first + gpu for gpu in domain)
        yield from map(tuple, shared.values())

    def rank_classes(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that no measurement could tell apart: equal GPUs in equal surroundings of equal nodes."""
        return self._rank_classes

    @cached_property
    def _rank_classes(self) -> tuple[tuple[int, ...], ...]:
        same: dict[Hashable, int] = {}
        classes: dict[tuple[int, int, int], list[int]] = {}

        def number(key: Hashable) -> int:
            return same.setdefault(key, len(same))

        known = {id(n): (number(n.signature), [number(kind) for kind in n.rank_kinds]) for n in _distinct(self.nodes)}
        for host, node in enumerate(self.nodes):
            signature, kinds = known[id(node)]
            position = number((self.fabric.position(host),))
            for rank, kind in enumerate(kinds, start=self._first_ranks[host]):
                classes.setdefault((signature, position, kind), []).append(rank)
        return tuple(tuple(ranks) for ranks in classes.values())

    # --- a part of it ---

    def select(self, nodes: int | None = None, gpus: int | None = None) -> Topology:
        """The first `nodes` hosts, or as many as `gpus` ranks need; the ranks are spread evenly over them."""
        wanted = nodes if nodes is not None else self._nodes_for(gpus)
        most = MOST_NODES if self.repeatable else len(self.nodes)
        if not 1 <= wanted <= most:
            why = "" if self.repeatable else ", as the topology has"
            if nodes is None:
                raise self._wrong("gpus", str(gpus), f"as many as 1 to {most} nodes hold{why}")
            raise self._wrong("nodes", str(wanted), f"from 1 to {most} nodes{why}")
        chosen = (self.nodes * -(-wanted // len(self.nodes)))[:wanted]
        if wanted > 1 and not isinstance(self.fabric, DrawnFabric) and not all(node.ports for node in chosen):
            raise self._wrong("nodes", str(wanted), "1 node, as these have no NICs")
        if gpus is not None:
            chosen = self._trimmed(chosen, gpus)
        grown = (f"{wanted} nodes of {self.name} assumed, of which the file has {len(self.nodes)}",)
        notes = self.notes + (grown if wanted > len(self.nodes) else ())
        return replace(self, nodes=chosen, fabric=self.fabric.among(chosen), notes=notes)

    def _nodes_for(self, gpus: int | None) -> int:
        if gpus is None:
            return len(self.nodes)
        hosts = bisect_right(self._first_ranks, gpus - 1)
        if hosts <= len(self.nodes):
            return max(hosts, 1)
        return -(-gpus // len(self.nodes[0].gpus)) if self.repeatable else hosts

    def _trimmed(self, nodes: tuple[Node, ...], gpus: int) -> tuple[Node, ...]:
        """The nodes with `gpus` GPUs in all: as they are if that is what they have, else equally many each."""
        held = [len(node.gpus) for node in nodes]
        if gpus == sum(held):
            return nodes
        each, rest = divmod(gpus, len(nodes))
        if rest or not 1 <= each <= min(held):
            most = min(held) * len(nodes)
            raise self._wrong("gpus", str(gpus), f"a multiple of {len(nodes)} (nodes) up to {most}")
        trimmed = {id(node): node.with_gpus(each) for node in _distinct(nodes)}
        return tuple(trimmed[id(node)] for node in nodes)

    def _wrong(self, path: str, found: str, expected: str, close: str = "") -> InputError:
        return InputError([Problem(self.name, path, found, expected, close)])


class _Ranks(Sequence[Device]):
    """The GPUs in rank order, made when asked for."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def __len__(self) -> int:
        return self._topology._first_ranks[-1]

    @overload
    def __getitem__(self, rank: int) -> Device: ...
    @overload
    def __getitem__(self, rank: slice) -> tuple[Device, ...]: ...
    def __getitem__(self, rank: int | slice) -> Device | tuple[Device, ...]:
        if isinstance(rank, slice):
            return tuple(self[index] for index in range(*rank.indices(len(self))))
        rank = rank + len(self) if rank < 0 else rank
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        host = self._topology.host_of(rank)
        return place(self._topology.nodes[host].gpus[rank - self._topology._first_ranks[host]], host)


def _distinct(nodes: Iterable[Node]) -> list[Node]:
    return list({id(node): node for node in nodes}.values())


def _numbered(device: Device) -> tuple[str, int, str]:
    """Sort key: gpu2 before gpu10."""
    match = re.fullmatch(r"(.*?)(\d+)", device.name)
    return (match[1], int(match[2]), "") if match else (device.name, -1, "")
