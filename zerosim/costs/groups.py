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
from dataclasses import dataclass
from typing import Literal

from zerosim.catalog import constant, constants
from zerosim.costs.approach import Approach, approach
from zerosim.costs.island import Inside, island
from zerosim.costs.machine import Machine
from zerosim.costs.site import Leaf, Network, Site
from zerosim.errors import InputError, Problem
from zerosim.resources import RankClass
from zerosim.step import Group

Gate = Literal["nic", "way", "leaf", "spine"]  # `way`: PCIe and sockets, between GPUs and ports


@dataclass(frozen=True, slots=True)
class Reach:
    """A group on one island, seen from a class of its ranks."""

    site: Site
    members: int  # ranks of the group on the island
    hosts: int  # nodes of the island that hold them
    siblings: int  # groups like this one on each of these nodes, all busy at once
    senders: int  # nodes of its leaf with such groups
    inside: Inside
    net: float  # bytes/s out of the island that the group can count on
    gate: Gate  # what limits that
    outside: float  # share of its network traffic that leaves its leaf
    beyond: float  # share of it that leaves its spine as well
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
        first = {self.class_of[member]: member for member in reversed(members)}
        hosts = sorted({self.machine.hosts[member] for member in members}) if len(islands) > 1 else []
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

    def _reach(self, site: Site, group: Group, member: int, on_island: Sequence[int], hosts: Sequence[int]) -> Reach:
        where = self.machine.hosts
        siblings = self._alike(group, member, where[member])
        island_hosts = len({where[rank] for rank in on_island})
        outside, beyond = (self._outside(site, where[member], hosts, level) for level in (1, 2))
        beside = self.machine.beside(where[member]) if outside else ()
        senders = sum(1 for host in beside if self._alike(group, member, host))
        way = approach(self.machine, where[member], self._crowd(group, member, where[member])) if hosts else Approach()
        gate, net = _narrowest(site, way, senders, outside, beyond)
        joined = len({self.domain_of[rank] for rank in on_island}) == 1
        return Reach(
            site=site,
            members=len(on_island),
            hosts=island_hosts,
            siblings=siblings,
            senders=senders,
            inside=island(self.machine, member, on_island, joined, siblings),
            net=net * island_hosts / siblings,
            gate=gate,
            outside=outside,
            beyond=beyond,
            approach=way,
        )

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

    def _outside(self, site: Site, host: int, hosts: Sequence[int], level: int) -> float:
        """The chance that the peer node hangs on another leaf (1), or below another spine (2), when nodes were placed
        without regard to these."""
        if len(hosts) < 2 or site.network is None:
            return 0.0
        switch = site.network.leaf if level == 1 else site.network.spine
        return (len(hosts) - self.machine.near(host, hosts, level)) / (len(hosts) - 1) if switch.uplinks else 0.0


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


def _narrowest(site: Site, way: Approach, senders: int, outside: float, beyond: float) -> tuple[Gate, float]:
    """Bytes/s out of a node, all groups of its ranks together, and what limits them."""
    network = site.network
    if network is None:
        return "nic", 0.0
    limits: dict[Gate, float] = {
        "nic": min(network.effective, way.ports),
        "way": way.links,
        "leaf": _through(network.leaf, network, senders, outside),
        "spine": _through(network.spine, network, network.spine.hosts, beyond),
    }
    gate = min(limits, key=limits.__getitem__)
    return gate, limits[gate]


def _through(switch: Leaf, network: Network, senders: int, outside: float) -> float:
    """What the uplinks of a leaf (or spine) leave to one of its nodes that send at once, over all its rails."""
    if not outside:
        return math.inf
    share = switch.uplinks / senders * network.ports / switch.ports
    return share * network.port.efficiency / outside
