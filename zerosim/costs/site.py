"""What one GPU sees of its machine: its memory, its way to the host, who shares that way, the network of its node.

A `Site` is taken once for each class of ranks, from the first rank of the class; pricing works with sites and never
walks over all ranks. It reads the topology graph and knows no step, no op and no strategy. A class's resources are
named here, and only here: plain (`nic`) when there is one class, else with the class behind a dot (`nic.node 3`), so
that `Supply.scaled("nic", 2)` means all of them. Counts of ranks are of those that run the same program, and so do the
same at the same moment; classes with other programs meet on what they share with it, which is one resource for all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zerosim.costs.approach import port_rate
from zerosim.costs.drives import Drives
from zerosim.costs.links import peer_efficiency
from zerosim.costs.machine import Machine, distance
from zerosim.costs.sockets import Crossing, Home, Seat, Seating, Swaps
from zerosim.costs.stages import Between, Pipelines, owners
from zerosim.errors import InputError, Problem
from zerosim.resources import RankClass
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Device, Drive, Gpu, Link, Nic

DEFAULT_LAUNCH = Launch()


class Leaf(NamedTuple):
    """The leaf switch of a node's first port: nodes on it, this node's ports on it, its rate towards the spines."""

    names: tuple[str, ...]  # of the switch; of all that are taken as one
    hosts: int
    ports: int
    uplinks: float  # bytes/s; 0 where there is nothing above


@dataclass(frozen=True, slots=True)
class Network:
    """The ports of a node that its GPUs use. Rates in bytes/s, all ports together.

    `effective` is what collectives reach: port rate x efficiency, at most what PCIe lets through.
    """

    port: Nic  # the first; what each of them is, and its rate, tells `each`
    ports: int
    each: tuple[tuple[Nic, float], ...]
    rate: float
    effective: float
    leaf: Leaf
    names: tuple[str, ...]
    spine: Leaf  # as of the leaf: nodes below the spine above, this node's ports there, the rate towards the core


class Uplink(NamedTuple):
    """The link out of a PCIe switch: `uplink` for the one that the GPU hangs on, `uplink2` for the one above that.

    `ranks`: GPUs that are behind it.
    """

    name: str
    link: Link
    ranks: int


@dataclass(frozen=True, slots=True)
class Site:
    """The machine seen from the first rank of a class."""

    name: str  # of the class; empty when there is only one
    rank: int
    device: Device
    gpu: Gpu
    local: int  # ranks of its node; of those that run its program, as in all counts of ranks here
    nvlink: float  # bytes/s out of the GPU, 0 without NVLink
    host_link: Link | None  # the GPU's own link towards its socket; None where there is none
    uplinks: tuple[Uplink, ...]  # from there up to the socket
    home: Home | None  # where its processes are; None where no socket has memory
    crossing: Crossing  # of copies, between the GPU's socket and the others
    far: bool  # its processes are bound to another socket than its GPU's
    swaps: Swaps  # of what is read from drives, between the sockets
    network: Network | None
    drives: Drives | None
    written: float = 0.0  # bytes that the ranks of its node write to these in a step
    owners: Mapping[str, str] = field(default_factory=dict)  # who shares a resource, by the resource's first word

    def resource(self, base: str) -> str:
        """The name of this site's resource: `nic`, or `nic.node 3` where there are several classes."""
        owner = self.owner(base)
        return f"{base}.{owner}" if owner else base

    def owner(self, base: str) -> str:
        """Whose the resource is: the class's, or that of several which share it; empty if it is everyone's."""
        return self.owners.get(base.partition(".")[0], self.name)

    @property
    def peak(self) -> tuple[str, float]:
        """The dtype that gives the rate of the SMs its name, and that rate: dense 16-bit FLOP/s, throttling counted."""
        peaks = self.gpu.peak_flops
        dtype = next(dtype for dtype in ("bf16", "fp16", *peaks) if peaks.get(dtype))
        return dtype, peaks[dtype] * self.device.compute


def survey(
    machine: Machine, launch: Launch = DEFAULT_LAUNCH, programs: int = 1
) -> tuple[tuple[RankClass, ...], tuple[Site, ...]]:
    """The classes of ranks, named, and what the first rank of each sees. Rank r runs program r mod `programs`."""
    seating = Seating.of(machine, launch)
    groups = [part for ranks in machine.topology.rank_classes() for part in _seated_alike(ranks, seating)]
    if programs > 1:
        return _surveyed_stages(machine, seating, Pipelines(machine.hosts, groups, Between(machine), programs))
    several = len(groups) > 1
    classes = tuple(_class(machine, ranks) for ranks in groups) if several else (RankClass("all", tuple(groups[0])),)
    return classes, tuple(_site(machine, each.name if several else "", each.ranks[0], seating) for each in classes)


def _seated_alike(ranks: Sequence[int], seating: Seating) -> Iterable[Sequence[int]]:
    """Ranks with equal GPUs that the launch makes different, apart."""
    if len(seating.kinds(ranks)) == 1:  # as a rule; no walk over all ranks then
        return [ranks]
    parts: dict[Seat, list[int]] = {}
    for rank in ranks:
        parts.setdefault(seating.seat(rank), []).append(rank)
    return parts.values()


def _surveyed_stages(
    machine: Machine, seating: Seating, pipelines: Pipelines
) -> tuple[tuple[RankClass, ...], tuple[Site, ...]]:
    classes = pipelines.classes()
    sites = [_site(machine, each.name, each.ranks[0], seating, pipelines.stages) for each in classes]
    shared = owners(classes, [_shared(machine, seating, site) for site in sites], pipelines.stages)
    return classes, tuple(replace(site, owners=who) for site, who in zip(sites, shared, strict=True))


def _shared(machine: Machine, seating: Seating, site: Site) -> dict[str, Hashable]:
    """What a rank has in common with others of its pipeline: PCIe switches, sockets, ports of the node; and beyond the
    node the switches of the network."""
    host = machine.hosts[site.rank]
    ports = site.network.names if site.network else ()
    way = machine.climb(host, site.device.name)
    things: dict[str, Hashable] = {
        "sockets": way[-1].target if way else "",
        "dram": seating.place(site.rank),
        "cpu": seating.place(site.rank),
        "nic": ports,
        "nvme": "",
        **{uplink.name: uplink.link for uplink in site.uplinks},
    }
    switches = {"leaf": site.network.leaf.names, "spine": site.network.spine.names} if site.network else {}
    return {**{base: (host, thing) for base, thing in things.items()}, **switches}


def _class(machine: Machine, ranks: Sequence[int]) -> RankClass:
    hosts = sorted({machine.hosts[rank] for rank in ranks})
    return RankClass(_class_name(machine, ranks, hosts), tuple(ranks), hosts=tuple(hosts))


def _class_name(machine: Machine, ranks: Sequence[int], hosts: Sequence[int]) -> str:
    """`node 3` or `nodes 0-2` for whole nodes, else the first GPU and how many more."""
    if len(ranks) == sum(len(machine.ranks_on(host)) for host in hosts):
        if len(hosts) == 1:
            return f"node {hosts[0]}"
        joined = hosts[-1] - hosts[0] == len(hosts) - 1
        return f"nodes {hosts[0]}-{hosts[-1]}" if joined else f"node {hosts[0]} and {len(hosts) - 1} more"
    host = machine.hosts[ranks[0]]
    first = f"gpu {host}.{ranks[0] - machine.ranks_on(host)[0]}"
    return first if len(ranks) == 1 else f"{first} and {len(ranks) - 1} more"


def _site(machine: Machine, name: str, rank: int, seating: Seating, programs: int = 1) -> Site:
    host = machine.hosts[rank]
    device = machine.topology.gpus[rank]
    assert isinstance(device.figures, Gpu)
    alike = [peer for peer in machine.ranks_on(host) if (peer - rank) % programs == 0]
    ways = {peer: machine.climb(host, machine.topology.gpus[peer].name) for peer in alike}
    way, seat = ways[rank], seating.seat(rank)
    return Site(
        name=name,
        rank=rank,
        device=device,
        gpu=device.figures,
        local=len(ways),
        nvlink=sum(link.bandwidth for link in machine.links_out(host, device.name) if link.kind == "nvlink"),
        host_link=way[0] if way else None,
        uplinks=tuple(_uplink(level, link, ways.values()) for level, link in enumerate(way[1:], start=1)),
        home=_home(seat.home, len(alike), len(machine.ranks_on(host))),
        crossing=seat.crossing,
        far=seat.far,
        swaps=seat.swaps,
        network=_network(machine, host, list(ways.values())),
        drives=Drives.of([d.figures for d in machine.topology.devices("nvme", host) if isinstance(d.figures, Drive)]),
    )


def _home(home: Home | None, alike: int, local: int) -> Home | None:
    """The home of a rank, shared by those of its `alike` ranks of the node that share it."""
    return home and home._replace(ranks=max(1, home.ranks * alike // local))


def _uplink(level: int, link: Link, ways: Iterable[Sequence[Link]]) -> Uplink:
    return Uplink("uplink" if level == 1 else f"uplink{level}", link, sum(1 for way in ways if link in way))


def missing(site: Site, expected: str, reason: str) -> InputError:
    """What a node lacks that the step needs."""
    return InputError([Problem(f"node {site.device.host}", found="none", expected=f"{expected}: the step {reason}")])


# --- the network of a node -----------------------------------------------------------------------------------------


def _network(machine: Machine, host: int, homes: Sequence[Sequence[Link]]) -> Network | None:
    """The ports near some GPU of the node, with what they give together, at most what PCIe lets through."""
    ports = _near_ports(machine, host, homes)
    ends = [(port, link) for port in ports for link in machine.links_out(host, port.name) if link.kind == "network"]
    wires = [wire for _, wire in ends]
    figures = ports[0].figures if wires else None
    if not isinstance(figures, Nic):
        return None
    effective = sum(port_rate(machine, host, port.name) for port in ports)
    lanes = sum(path[0].bandwidth * peer_efficiency(path[0]) for path in homes if path)
    return Network(
        port=figures,
        ports=len(wires),
        each=tuple((port.figures, wire.bandwidth) for port, wire in ends if isinstance(port.figures, Nic)),
        rate=sum(wire.bandwidth for wire in wires),
        effective=min(effective, lanes or effective),
        leaf=_leaf(machine, host, wires),
        names=tuple(port.name for port in ports),
        spine=_spine(machine, host, wires),
    )


def _near_ports(machine: Machine, host: int, homes: Sequence[Sequence[Link]]) -> list[Device]:
    """NCCL takes, for each GPU, the ports at the least distance; the node uses those of all its GPUs."""
    ports = {port.name: port for port in machine.topology.devices("nic", host)}
    ways = {name: machine.climb(host, name) for name in ports}
    used: set[str] = set()
    for path in homes:
        far = {name: distance(path, way) for name, way in ways.items()}
        least = min(far.values(), default=0)
        used |= {name for name, links in far.items() if links == least}
    return [port for name, port in ports.items() if name in used]


def _leaf(machine: Machine, host: int, wires: Sequence[Link]) -> Leaf:
    name = wires[0].target
    uplinks = sum(link.bandwidth for link in machine.above(host, name))
    return Leaf((name,), len(machine.beside(host)), sum(1 for wire in wires if wire.target == name), uplinks)


def _spine(machine: Machine, host: int, wires: Sequence[Link]) -> Leaf:
    """All spines that lie above the leaves of the node, as one."""
    above = {wire.target: {link.target for link in machine.above(host, wire.target)} for wire in wires}
    spines = tuple(sorted(set().union(*above.values())))
    uplinks = sum(link.bandwidth for spine in spines for link in machine.above(host, spine))
    return Leaf(spines, len(machine.beside(host, 2)), sum(1 for wire in wires if above[wire.target]), uplinks)
