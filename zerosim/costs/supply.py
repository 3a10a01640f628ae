"""What a machine gives: the rate of every resource of every class, the capacity of every tier, and their names.

Only here and in `Site.resource` are resource names made. Rates are those on paper; what of them can be reached is said
by each use. Resources of a class:
    sm hbm nvlink pcie.h2d pcie.d2h (or c2c) uplink.h2d uplink.d2h   of its first GPU and the GPU's PCIe switch
    dram cpu                                                          of that GPU's socket
    nic nvme                                                          of its node, all together
    leaf                                                              uplinks of its leaf switch
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zerosim.catalog import constant
from zerosim.costs.groups import Spread
from zerosim.costs.site import Network, Site, cores
from zerosim.costs.traffic import channels
from zerosim.resources import Supply
from zerosim.spec.topology import Link, Topology
from zerosim.units import show_flops, show_rate

_GIB, _MIB = 2.0**30, 2.0**20
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

    def add(self, site: Site, base: str, rate: float, label: str, unit: str = "B/s") -> None:
        if rate > 0:
            name = site.resource(base)
            self.rates[name], self.units[name] = rate, unit
            self.labels[name] = f"{label} ({site.name})" if site.name else label


def supply(topology: Topology, sites: Sequence[Site], spreads: Iterable[Spread]) -> Supply:
    """The supply of all classes. `spreads` are the groups in use: each has a communicator with buffers on the GPU."""
    collected = _Rates()
    for site in sites:
        _gpu(collected, site)
        _way_to_host(collected, site)
        _host(collected, site)
        _network(collected, site)
    return Supply(
        rates=collected.rates,
        capacities=_capacities(topology, sites),
        overheads={"gpu": _overhead(spreads)},
        units=collected.units,
        labels=collected.labels,
    )


def _gpu(collected: _Rates, site: Site) -> None:
    dtype, flops = site.peak
    collected.add(site, "sm", flops, f"SMs {show_flops(flops)} {dtype}", "FLOP/s")
    memory = site.gpu.memory_bandwidth
    collected.add(site, "hbm", memory, f"HBM {show_rate(memory)}")
    collected.add(site, "nvlink", site.nvlink, f"NVLink {show_rate(site.nvlink)} per GPU and direction")


def _way_to_host(collected: _Rates, site: Site) -> None:
    link, uplink = site.host_link, site.uplink
    if link is None:
        return
    if link.kind == "c2c":
        collected.add(site, "c2c", link.bandwidth, f"C2C {show_rate(link.bandwidth)} to the CPU")
        return
    for way, words in (("h2d", "to the GPU"), ("d2h", "from the GPU")):
        collected.add(site, f"pcie.{way}", link.bandwidth, f"{_pcie(link)} {words}")
        if uplink is not None:
            label = f"{_pcie(uplink)} uplink of a switch {words}, shared by {_gpus(site.switch_ranks)}"
            collected.add(site, f"uplink.{way}", uplink.bandwidth, label)


def _pcie(link: Link) -> str:
    generation = f" {link.generation}" if link.generation else ""
    return f"PCIe{generation} {show_rate(link.bandwidth)}"


def _gpus(count: int) -> str:
    return f"{count} GPU" + ("s" if count > 1 else "")


def _host(collected: _Rates, site: Site) -> None:
    collected.add(site, "dram", site.dram, f"host memory {show_rate(site.dram)}, shared by {_gpus(site.socket_ranks)}")
    moves = cores(site) * constant("cpu_adam.per_core_gbs") * 1e9
    collected.add(site, "cpu", moves, f"CPU, {cores(site)} cores, {show_rate(moves)} to memory")
    reads = sum(drive.read for drive in site.drives)
    collected.add(site, "nvme", reads, f"NVMe {show_rate(reads)}, {len(site.drives)} per node")


def _network(collected: _Rates, site: Site) -> None:
    network = site.network
    if network is None:
        return
    each = show_rate(network.rate / network.ports, bits=True)
    count = "one" if network.ports == 1 else str(network.ports)
    kind = network.port.name.partition("_")[0]
    label = f"NIC {each} {_FABRICS.get(kind, network.port.name)}{_achieved(network)}, {count} per node"
    collected.add(site, "nic", network.rate, label)
    leaf = network.leaf
    above = show_rate(leaf.uplinks, bits=True)
    collected.add(site, "leaf", leaf.uplinks, f"leaf uplinks {above}, shared by {leaf.hosts} nodes")


def _achieved(network: Network) -> str:
    """What a port moves where that is far from its rate: TCP at 100 Gb/s and more."""
    if network.port.efficiency >= WORTH_TELLING:
        return ""
    moves = show_rate(network.port.efficiency * network.rate / network.ports, bits=True)
    return f" (moves {moves} by {network.port.transport.partition('_')[0].upper()})"


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
    """Bytes of a GPU taken before any tensor: context, cuBLAS workspace, and the buffers of every communicator.

    A communicator keeps buffers for each channel and each peer it talks to: 2 in a ring, 3 in a tree, for the
    protocols Simple, LL128 and LL. An A100 with 24 channels: 24 x 5 x 9.2 MiB = 1.1 GiB; one report (STEP) counts
    1.5 GiB for the first communicator with its kernels.
    """
    fixed = constant("overheads.cuda_context_gib") * _GIB + constant("overheads.cublas_workspace_mib") * _MIB
    buffers = sum(
        constant(f"overheads.{name}") * _MIB
        for name in ("nccl_buffer_mib", "nccl_ll128_buffer_mib", "nccl_ll_buffer_mib")
    )
    peers = constant("overheads.nccl_peers")
    return fixed + sum(
        max(channels(reach) for reach in spread.reaches) * min(2 * (spread.size - 1), peers) * buffers
        for spread in spreads
        if spread.size > 1
    )
