"""What a machine gives: the rate of every resource of every class, the capacity of every tier, and their names.

Only here, in `Site.resource` and in `files` are resource names made. Rates are those on paper; what of them can be
reached is said by each use. Resources of a class:
    sm hbm nvlink                                     of its first GPU
    pcie.h2d pcie.d2h pcie.both (or c2c. ...)         of that GPU's link to its host, each direction and both together
    uplink.h2d uplink.d2h uplink.both uplink2.h2d ... of the PCIe switches above it, the nearest first
    staging                                           of its rank's copies from and to pageable memory
    sockets.into sockets.out                          of all links between its socket and the others
    dram cpu                                          of the sockets where its processes are at home
    nic nvme                                          of its node, all together
    requests.read requests.write                      to the drives, of its rank, at most at the rate of these
    leaf spine                                        uplinks of its leaf switch, and of the spines above its leaves
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zerosim.catalog import constant
from zerosim.costs.groups import Spread
from zerosim.costs.processor import core_rate
from zerosim.costs.site import Network, Site
from zerosim.costs.traffic import channels
from zerosim.resources import Supply, Way, WayOf
from zerosim.spec.topology import Link, Nic, Topology
from zerosim.units import show_flops, show_rate

_GIB, _MIB = 2.0**30, 2.0**20
_WAYS = {"h2d": "to the GPU", "d2h": "from the GPU"}
_CROSSING = {"into": "into", "out": "out of"}
_ASKED = {"read": "reads of", "write": "writes to"}
_FABRICS = {
    "ethernet": "Ethernet",
    "infiniband": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "slingshot": "Slingshot",
    "tcpx": "GPUDirect-TCPX",
    "tcpxo": "GPUDirect-TCPXO",
    "omnipath": "Omni-Path",
}


WORTH_TELLING = 0.75  # achieved fraction of a port's rate below which a label says it; a choice


@dataclass(slots=True)
class _Rates:
    """Rates, units and labels as they are collected."""

    rates: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    ways: dict[tuple[str, WayOf], Way] = field(default_factory=dict)

    def add(self, site: Site, base: str, rate: float, label: str, unit: str = "B/s") -> None:
        if rate > 0:
            name = site.resource(base)
            self.rates[name], self.units[name] = rate, unit
            self.labels[name] = _owned(site, base, label)
            if owner := site.owner(base):
                self.owners[name] = owner

    def add_way(self, site: Site, base: str, way: WayOf, share: float, label: str) -> None:
        """What of a resource that was added is there for one way of using it."""
        self.ways[site.resource(base), way] = Way(share, _owned(site, base, label))


def _owned(site: Site, base: str, label: str) -> str:
    owner = site.owner(base)
    return f"{label} ({owner})" if owner else label


def supply(topology: Topology, sites: Sequence[Site], spreads: Iterable[Iterable[Spread]]) -> Supply:
    """The supply of all classes. `spreads`: the groups each takes part in, with buffers on the GPU for each group."""
    collected = _Rates()
    for site in sites:
        _gpu(collected, site)
        _way_to_host(collected, site, sites)
        _host(collected, site, sites)
        _network(collected, site)
    return Supply(
        rates=collected.rates,
        capacities=_capacities(topology, sites),
        overheads={"gpu": max(_overhead(used) for used in spreads)},
        units=collected.units,
        labels=collected.labels,
        owners=collected.owners,
        ways=collected.ways,
    )


def _gpu(collected: _Rates, site: Site) -> None:
    dtype, flops = site.peak
    collected.add(site, "sm", flops, f"SMs {show_flops(flops)} {dtype}", "FLOP/s")
    memory = site.gpu.memory_bandwidth
    collected.add(site, "hbm", memory, f"HBM {show_rate(memory)}")
    collected.add(site, "nvlink", site.nvlink, f"NVLink {show_rate(site.nvlink)} per GPU and direction")


def _way_to_host(collected: _Rates, site: Site, sites: Sequence[Site]) -> None:
    link = site.host_link
    if link is None:
        return
    kind = "C2C" if link.kind == "c2c" else _pcie(link)
    for way, words in _WAYS.items():
        collected.add(site, f"{link.kind}.{way}", link.bandwidth, f"{kind} {show_rate(link.bandwidth)} {words}")
    twice = 2 * link.bandwidth
    collected.add(site, f"{link.kind}.both", twice, f"{kind} {show_rate(twice)} both ways together")
    collected.add(site, "staging", link.bandwidth, "copies through a staging buffer (pageable memory)")
    for level, (name, above, _) in enumerate(site.uplinks):
        meeting = [other for other in sites if other.resource(name) == site.resource(name)]
        shared = _sharers(other.uplinks[level].ranks for other in meeting)
        for way, words in _WAYS.items():
            carried = f"{_pcie(above)} {show_rate(above.bandwidth)}"
            collected.add(site, f"{name}.{way}", above.bandwidth, f"{carried} switch uplink {words}, {shared}")
        together = f"{_pcie(above)} {show_rate(2 * above.bandwidth)} switch uplink both ways together, {shared}"
        collected.add(site, f"{name}.both", 2 * above.bandwidth, together)
    for (way, words), through in zip(_CROSSING.items(), site.crossing, strict=True):
        label = f"links between sockets {show_rate(through.rate)} {words} that of the GPU"
        collected.add(site, f"sockets.{way}", through.rate, label)


def _sharers(ranks: Iterable[int]) -> str:
    """Who shares a resource: ranks of each class that meets the others there."""
    count = sum(ranks)
    return f"shared by {count} GPU" + ("s" if count > 1 else "")


def _pcie(link: Link) -> str:
    return f"PCIe {link.generation}" if link.generation else "PCIe"


def _host(collected: _Rates, site: Site, sites: Sequence[Site]) -> None:
    home, drives = site.home, site.drives
    if home is not None:
        homes = [other.home for other in sites if other.home and other.resource("dram") == site.resource("dram")]
        shared = _sharers(each.ranks for each in homes)
        of = "" if home.sockets == 1 else f" of {home.sockets} sockets"
        of += ", each at the rate of the slowest" if home.uneven else ""
        collected.add(site, "dram", home.dram, f"host memory {show_rate(home.dram)}{of}, {shared}")
        moves = core_rate(home)
        collected.add(site, "cpu", moves, f"CPU, {home.cores} cores, {show_rate(moves)} to memory, {shared}")
    if drives is not None:
        read, writes = f"NVMe {show_rate(drives.read)}", f"writes {show_rate(drives.write)}"
        where = f"{drives.number} per node"
        collected.add(site, "nvme", drives.read, f"{read}, {writes}, {where}")
        collected.add_way(site, "nvme", "read", 1.0, f"{read}, {where}")
        collected.add_way(site, "nvme", "write", drives.write / drives.read, f"NVMe {writes}, {where}")
        for way, words in _ASKED.items():
            collected.add(site, f"requests.{way}", drives.read, f"few {words} NVMe in flight (aio)")


def _network(collected: _Rates, site: Site) -> None:
    network = site.network
    if network is None:
        return
    where = "near its GPUs" if site.owners else "per node"  # of stages, each has its own
    collected.add(site, "nic", network.rate, f"{_ports(network)} {where}")
    leaf = network.leaf
    above = show_rate(leaf.uplinks, bits=True)
    collected.add(site, "leaf", leaf.uplinks, f"leaf uplinks {above}, shared by {leaf.hosts} nodes")
    spine = network.spine
    above = show_rate(spine.uplinks, bits=True)
    collected.add(site, "spine", spine.uplinks, f"spine uplinks {above}, shared by {spine.hosts} nodes")


def _ports(network: Network) -> str:
    """What the ports are: `NIC 200 Gb/s InfiniBand, 8`; where they differ `NICs 7 x 200 and 1 x 25 Gb/s InfiniBand`."""
    kinds = Counter((show_rate(rate, bits=True), _kind(port, rate)) for port, rate in network.each).most_common()
    if len(kinds) == 1:
        (rate, kind), _ = kinds[0]
        return f"NIC {rate} {kind}, {'one' if network.ports == 1 else network.ports}"
    said = [(f"{count} x {rate}".rpartition(" "), kind) for (rate, kind), count in kinds]  # 7 x 200, then the unit
    ends = {f" {unit} {kind}" for (_, _, unit), kind in said}
    *several, last = [number if len(ends) == 1 else f"{number} {unit} {kind}" for (number, _, unit), kind in said]
    return f"NICs {', '.join(several)} and {last}" + (ends.pop() if len(ends) == 1 else "")


def _kind(port: Nic, rate: float) -> str:
    """Its network, and what it moves where that is far from its rate: TCP at 100 Gb/s and more."""
    kind = _FABRICS.get(port.name.partition("_")[0], port.name)
    if port.efficiency >= WORTH_TELLING:
        return kind
    moves = show_rate(port.efficiency * rate, bits=True)
    return f"{kind} (moves {moves} by {port.transport.partition('_')[0].upper()})"


def _capacities(topology: Topology, sites: Sequence[Site]) -> Mapping[str, float]:
    """Bytes: of the smallest GPU; of host memory and drives of the node that has least."""
    hosts = sorted({site.device.host for site in sites if site.device.host is not None})
    tiers = {
        "gpu": min(site.device.capacity for site in sites),
        "dram": min(sum(device.capacity for device in topology.devices("dram", host)) for host in hosts),
        "nvme": min(sum(device.capacity for device in topology.devices("nvme", host)) for host in hosts),
    }
    return {tier: size for tier, size in tiers.items() if size}


def _overhead(spreads: Iterable[Spread]) -> float:
    """Bytes of a GPU taken before any tensor: context, cuBLAS workspace, NCCL's kernels, communicators' buffers.

    A communicator keeps buffers for each channel and each peer it talks to: 2 in a ring, 3 in a tree, for the
    protocols Simple, LL128 and LL. An A100 with 24 channels: 24 x 5 x 9.2 MiB = 1.1 GiB.
    """
    fixed = constant("overheads.cuda_context_gib") * _GIB + constant("overheads.cublas_workspace_mib") * _MIB
    buffers = sum(
        constant(f"overheads.{name}") * _MIB
        for name in ("nccl_buffer_mib", "nccl_ll128_buffer_mib", "nccl_ll_buffer_mib")
    )
    peers = constant("overheads.nccl_peers")
    joined = [spread for spread in spreads if spread.size > 1]
    kernels = constant("overheads.nccl_kernels_gib") * _GIB if joined else 0.0
    return (
        fixed
        + kernels
        + sum(
            max(channels(reach) for reach in spread.reaches) * min(2 * (spread.size - 1), peers) * buffers
            for spread in joined
        )
    )
