"""Which links and how much of them a collective's flow takes, seen from one class of its ranks.

A collective is one flow for the whole group. Its limiting link is busy for exactly the transfer time of the model;
every other link only for what its bytes need. What several groups do at once on shared things (the ports of a node,
the uplinks of a leaf) is counted in full, so that the flow of the representative sees its right share.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from zerosim.catalog import constant, constants
from zerosim.costs.bounds import Wire
from zerosim.costs.groups import Reach
from zerosim.costs.site import Network, link_key
from zerosim.resources import Hold, Use

# NCCL takes one channel more for each 512 threads x 64 bytes (src/enqueue.cc, src/include/comm.h) [E].
_CHANNEL_BYTES = 32 * 1024


class Bus(NamedTuple):
    """Bus bandwidth of a collective, bytes/s, and what limits it: the island (`inside`), its `nic` or the `leaf`."""

    rate: float
    limit: str


def traffic(reach: Reach, wire: Wire, bus: Bus, seconds: float) -> list[Use]:
    """All resources of one class. `seconds` is how long the limiting one is busy."""
    site = reach.site
    uses: list[Use] = []
    if wire.gpu:
        uses += _inside(reach, wire.gpu, bus, seconds)
    if wire.island and site.network:
        uses += _between(reach, site.network, wire.island, bus, seconds)
    # A ring step reads, reduces and writes what it passes on.
    moved = constant("contention.hbm_bytes_per_wire_byte") * max(wire.gpu, wire.island / reach.members)
    uses.append(_use(site.resource("hbm"), moved, site.gpu.memory_bandwidth, site.gpu.stream_efficiency, seconds))
    return uses


def blocks(reach: Reach, size: float) -> Hold:
    """SMs of the communication kernel: one thread block per channel, fewer channels for small messages."""
    busy = min(channels(reach), max(1, math.ceil(size / _CHANNEL_BYTES)))
    share = busy * constant("contention.sm_per_channel") / reach.site.gpu.sms
    return Hold(reach.site.resource("sm"), min(1.0, share))


def channels(reach: Reach) -> int:
    """Channels of a communicator: many over NVLink, two over PCIe or with one GPU on the node."""
    known = constants("contention.channels")
    return int(known[reach.site.gpu.architecture if reach.inside.medium in ("nvswitch", "mesh") else "pcie"])


def _use(resource: str, amount: float, rate: float, efficiency: float, seconds: float, exact: bool = False) -> Use:
    """A use that keeps its resource busy for no longer than `seconds`, or for exactly so long."""
    needed = amount / (rate * seconds)
    return Use(resource, amount, needed if exact else max(needed, efficiency))


def _inside(reach: Reach, amount: float, bus: Bus, seconds: float) -> list[Use]:
    site, exact = reach.site, bus.limit == "inside"
    if reach.inside.medium in ("nvswitch", "mesh"):
        eff = constant("collectives.ring_eff_nvlink")
        return [_use(site.resource("nvlink"), amount, site.nvlink, eff, seconds, exact)]
    uses = _host_link(reach, amount, seconds, exact)
    if site.uplink and reach.inside.crossings:
        shared = amount * reach.inside.crossings * reach.siblings
        eff = constant(f"collectives.ring_eff_pcie.{link_key(site.uplink)}")
        uses += [
            _use(site.resource(way), shared, site.uplink.bandwidth, eff, seconds)
            for way in ("uplink.d2h", "uplink.h2d")
        ]
    if reach.inside.medium == "host" and site.dram:  # a bounce is written to host memory and read again
        uses.append(_host_memory(reach, 2 * amount * site.socket_ranks, seconds))
    return uses


def _host_link(reach: Reach, amount: float, seconds: float, exact: bool = False) -> list[Use]:
    """The GPU's own link to its host, both directions: what it sends, and as much that it receives."""
    link, site = reach.site.host_link, reach.site
    if link is None:
        return []
    if link.kind == "c2c":
        return [_use(site.resource("c2c"), 2 * amount, link.bandwidth, constant("copies.c2c_eff"), seconds, exact)]
    eff = constant(f"copies.peer_eff.{link_key(link)}")
    return [_use(site.resource(way), amount, link.bandwidth, eff, seconds, exact) for way in ("pcie.d2h", "pcie.h2d")]


def _between(reach: Reach, network: Network, island: float, bus: Bus, seconds: float) -> list[Use]:
    """Ports of the node (all groups of its ranks), uplinks of the leaf (all its nodes), the GPU's way to the port."""
    site, leaf = reach.site, network.leaf
    node = island / reach.hosts * reach.siblings
    eff = network.effective / network.rate
    uses = [_use(site.resource("nic"), node, network.rate, eff, seconds, bus.limit == "nic")]
    if reach.outside:
        crossing = node * leaf.hosts * leaf.ports / network.ports * reach.outside
        eff, exact = network.port.efficiency, bus.limit == "leaf"
        uses.append(_use(site.resource("leaf"), crossing, leaf.uplinks, eff, seconds, exact))
    uses += _host_link(reach, island / reach.members, seconds)
    if network.port.transport == "tcp" and site.dram:
        # Without GPUDirect a byte is written to host memory and read again on its way out, and on its way in.
        uses.append(_host_memory(reach, 4 * node * site.socket_ranks / site.local, seconds))
    return uses


def _host_memory(reach: Reach, amount: float, seconds: float) -> Use:
    site = reach.site
    return _use(site.resource("dram"), amount, site.dram, constant("dram.stream_eff"), seconds)
