"""How the ranks of a process group reach each other: over NVLink, over PCIe, over the network, and how fast.

An *island* is what a collective treats as one node: ranks joined by NVLink or by one host (an NVL72 rack is one island
of 18 hosts). Training is SPMD: when a group has one rank on a node of eight GPUs, seven sibling groups send at the
same moment, so each has an eighth of the node's ports. All of this is found once for each group and class; no op pays
for it again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from zerosim.catalog import constant, constants
from zerosim.costs.approach import Approach, approach
from zerosim.costs.island import Inside, island
from zerosim.costs.machine import Machine
from zerosim.costs.site import Leaf, Network, Site
from zerosim.costs.sockets import Home
from zerosim.errors import InputError, Problem
from zerosim.resources import RankClass
from zerosim.step import Group

Gate = Literal["nic", "way", "leaf", "spine"]  # `way`: PCIe, sockets, host memory, between GPUs and ports


class Further(NamedTuple):
    """What the nodes below a leaf (or a spine) send further: how many of them have groups that are busy at once, and
    what share of their network traffic it is."""

    senders: int = 0
    part: float = 0.0


@dataclass(frozen=True, slots=True)
class Reach:
    """A group on one island, seen from a class of its ranks. `played`: the rank that stands for the class is in it; if
    not, it is in a group like this one, whose traffic there is that of all."""

    site: Site
    played: bool
    members: int  # ranks of the group on the island
    hosts: int  # nodes of the island that hold them
    siblings: int  # groups like this one on each of these nodes, all busy at once
    inside: Inside
    net: float  # bytes/s out of the island that the group can count on
    gate: Gate  # what limits that
    leaf: Further  # beyond its leaf
    spine: Further  # and beyond its spine as well
    approach: Approach  # from the GPUs of its node to the ports


@dataclass(frozen=True, slots=True)
class Spread:
    """A group of `size` ranks on `islands` islands.

    `nvls` is what reduction inside the NVSwitch gains over a ring there; 0 where it does not exist.
    """

    size: int
    islands: int
    reaches: tuple[Reach, ...]
    nvls: float

    @property
    def per_island(self) -> float:
        return self.size / self.islands


@dataclass(frozen=True, slots=True)
class Layout:
    """Where all ranks are: the class, NVLink domain and island of each. Made once for a machine."""

    machine: Machine
    sites: tuple[Site, ...]
    programs: int
    class_of: Sequence[int]  # by rank
    domain_of: Sequence[int]  # by rank: first rank of its NVLink domain
    island_of: Sequence[int]  # by rank

    def spread(self, group: Group, rank: int) -> Spread:
        """The instance of `group` that holds `rank`."""
        members = members_of(group, rank, self.machine.world)
        islands: defaultdict[int, list[int]] = defaultdict(list)
        for member in members:
            islands[self.island_of[member]].append(member)
        hosts = sorted({self.machine.hosts[member] for member in members}) if len(islands) > 1 else []
        first = {self.class_of[member]: member for member in self._remote_last(members, hosts)}
        reaches = tuple(
            self._reach(self.sites[number], group, member, islands[self.island_of[member]], hosts)
            for number, member in sorted(first.items())
        )
        _check(self.machine.topology.name, group, reaches, len(islands))
        largest = max(len(on_island) for on_island in islands.values())
        return Spread(
            size=len(members),
            islands=len(islands),
            reaches=reaches,
            nvls=min(_nvls(reach, largest) for reach in reaches),
        )

    def _remote_last(self, members: Sequence[int], hosts: Sequence[int]) -> Sequence[int]:
        """The ranks of a group, backwards, those last that have fewest of its `hosts` below the same switches: what
        these send further is what the others wait for."""
        leaf, spine = (self.machine.neighbours(hosts, level) for level in (1, 2))
        if max(len(set(near.values())) for near in (leaf, spine)) < 2:
            return members[::-1]
        where = self.machine.hosts
        return sorted(members, key=lambda rank: (-leaf[where[rank]], -spine[where[rank]], -rank))

    def _reach(self, site: Site, group: Group, member: int, on_island: Sequence[int], hosts: Sequence[int]) -> Reach:
        where = self.machine.hosts
        crowd = self._crowd(group, member, where[member])
        siblings = len(crowd)
        whole = [self._on_node(group, each[0]) for each in crowd]
        own = {where[rank] for rank in on_island}
        peers = [host for host in hosts if host not in own]
        leaf, spine = (self._further(site, group, member, peers, level) for level in (1, 2))
        way = self._approach(member, crowd) if hosts else Approach()
        joined = len({self.domain_of[rank] for rank in on_island}) == 1
        inside = _bounced(island(self.machine, member, on_island, joined, whole), site)
        memory = _staged(inside, site, siblings) if way.staged else math.inf
        gate, net = _narrowest(site, min(way.links, memory), way.ports, leaf, spine)
        return Reach(
            site=site,
            played=member in members_of(group, site.rank, self.machine.world),
            members=len(on_island),
            hosts=len(own),
            siblings=siblings,
            inside=inside,
            net=net * len(own) / siblings,
            gate=gate,
            leaf=leaf,
            spine=spine,
            approach=way,
        )

    def _on_node(self, group: Group, member: int) -> list[int]:
        """The ranks of an instance on the node of `member`, whatever program they run."""
        members = members_of(group, member, self.machine.world)
        return [rank for rank in self.machine.ranks_on(self.machine.hosts[member]) if rank in members]

    def _approach(self, member: int, crowd: Sequence[Sequence[int]]) -> Approach:
        host, kind = self.machine.hosts[member], self.class_of[member]
        alike = frozenset(rank for rank in self.machine.ranks_on(host) if self.class_of[rank] == kind)
        return approach(self.machine, host, crowd, alike)

    def _alike(self, group: Group, member: int, host: int) -> int:
        """How many instances of a group on a node are busy when that of `member` is."""
        return len(self._crowd(group, member, host))

    def _crowd(self, group: Group, member: int, host: int) -> list[list[int]]:
        """The ranks on a node of each instance of a group that is busy when that of `member` is: of those whose ranks
        run the same program, and that stay on an island, or leave it, as it does."""
        leaves, first = self._leaves(group, member), member % self.programs
        ranks = self.machine.ranks_on(host)
        same = range(ranks.start + (first - ranks.start) % self.programs, ranks.stop, self.programs)
        found: dict[int, list[int]] = {}
        for rank in same:
            if members := members_of(group, rank, self.machine.world):
                found.setdefault(members.start, []).append(rank)
        return [each for each in found.values() if self._leaves(group, each[0]) == leaves]

    def _leaves(self, group: Group, rank: int) -> bool:
        """Whether the instance that holds `rank` is on several islands."""
        here = self.island_of[rank]
        return any(self.island_of[member] != here for member in members_of(group, rank, self.machine.world))

    def _further(self, site: Site, group: Group, member: int, peers: Sequence[int], level: int) -> Further:
        """Beyond the leaf (1) or the spine (2). Its part is the chance that one of `peers`, the nodes of the group's
        other islands, hangs elsewhere, when nodes were placed without regard to these."""
        host, network = self.machine.hosts[member], site.network
        uplinks = network and (network.leaf if level == 1 else network.spine).uplinks
        part = 1 - self.machine.near(host, peers, level) / len(peers) if peers and uplinks else 0.0
        if not part:
            return Further()
        return Further(sum(1 for other in self.machine.beside(host, level) if self._alike(group, member, other)), part)


def layout(machine: Machine, classes: Sequence[RankClass], sites: tuple[Site, ...], programs: int = 1) -> Layout:
    class_of = [0] * machine.world
    for number, each in enumerate(classes):
        for rank in each.ranks:
            class_of[rank] = number
    domain_of = list(range(machine.world))
    island_of = list(range(len(machine.topology.hosts)))
    for domain in machine.topology.nvlink_domains():
        for rank in domain:
            domain_of[rank] = domain[0]
        hosts = {machine.hosts[rank] for rank in domain}
        if len(hosts) > 1:
            lowest = min(island_of[host] for host in hosts)
            for host in hosts:
                island_of[host] = lowest
    return Layout(machine, sites, programs, class_of, domain_of, [island_of[host] for host in machine.hosts])


def members_of(group: Group, rank: int, world: int) -> range:
    """The ranks of the instance of `group` that holds `rank`, those that exist."""
    members = group.members(rank)
    return range(members.start, min(members.stop, world), members.step)


def _check(name: str, group: Group, reaches: Iterable[Reach], islands: int) -> None:
    """A collective needs a way: ports between nodes, NVLink or PCIe inside."""
    problems = []
    for reach in reaches:
        where = f"node {reach.site.device.host}"
        if islands > 1 and not reach.net:
            problems.append(Problem(name, where, "no network port", f"one: group {group.name} spans nodes"))
        if not reach.inside.ring:
            problems.append(Problem(name, where, "GPUs without NVLink or PCIe", "links between its GPUs"))
    if problems:
        raise InputError(problems)


def _nvls(reach: Reach, largest: int) -> float:
    gains = constants("collectives.nvls.multiplier")
    enough = largest >= constant("collectives.nvls.min_gpus")
    there = reach.inside.medium == "nvswitch" and reach.site.gpu.nvls
    return gains.get(reach.site.gpu.architecture, 0.0) if enough and there else 0.0


def _bounced(inside: Inside, site: Site) -> Inside:
    """What goes from GPU to GPU through host memory is written there and read again, by all that share it at once."""
    if inside.medium != "host" or site.home is None:
        return inside
    most = _memory(site.home) / 2
    return replace(inside, ring=min(inside.ring, most), fan=min(inside.fan, most), pair=min(inside.pair, most))


def _staged(inside: Inside, site: Site, siblings: int) -> float:
    """Bytes/s out of a node, all groups of its ranks together, of which each is written to host memory and read there
    on its way out, and as much on its way in. A ring that bounces within the node, too, has one bounce less."""
    if site.home is None:
        return math.inf
    passes = 2 / siblings + 2 / site.local if inside.medium == "host" else 4 / site.local
    return _memory(site.home) / passes


def _memory(home: Home) -> float:
    """Bytes/s of host memory that each of those who share it reads and writes."""
    return home.dram * constant("dram.stream_eff") / home.ranks


def _narrowest(site: Site, way: float, ports: float, leaf: Further, spine: Further) -> tuple[Gate, float]:
    """Bytes/s out of a node, all groups of its ranks together, and what limits them."""
    network = site.network
    if network is None:
        return "nic", 0.0
    limits: dict[Gate, float] = {
        "nic": min(network.effective, ports),
        "way": way,
        "leaf": _through(network.leaf, network, leaf),
        "spine": _through(network.spine, network, spine),
    }
    gate = min(limits, key=limits.__getitem__)
    return gate, limits[gate]


def _through(switch: Leaf, network: Network, further: Further) -> float:
    """What the uplinks of a leaf (or spine) leave to one of its nodes that send at once, over all its rails."""
    if not further.part:
        return math.inf
    share = switch.uplinks / further.senders * network.ports / switch.ports
    return share * network.port.efficiency / further.part
