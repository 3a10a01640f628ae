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
from zerosim.costs.site import Network, Site, link_key
from zerosim.costs.sockets import Home
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


def _use(
    resource: str,
    amount: float,
    rate: float,
    efficiency: float,
    seconds: float,
    exact: bool = False,
    ranks: float = 1.0,
) -> Use:
    """A use that keeps its resource busy for no longer than `seconds`, or for exactly so long."""
    needed = amount / (rate * seconds)
    return Use(resource, amount, needed if exact else max(needed, efficiency), ranks)


def _inside(reach: Reach, amount: float, bus: Bus, seconds: float) -> list[Use]:
    site, exact = reach.site, bus.limit == "inside"
    if reach.inside.medium in ("nvswitch", "mesh"):
        eff = constant("collectives.ring_eff_nvlink")
        return [_use(site.resource("nvlink"), amount, site.nvlink, eff, seconds, exact)]
    uses = _host_link(reach, amount, seconds, exact)
    for uplink, crossings in zip(site.uplinks, reach.inside.crossings, strict=True):
        flows = crossings * reach.siblings
        eff = constant(f"collectives.ring_eff_pcie.{link_key(uplink.link)}")
        uses += [
            _use(
                site.resource(f"{uplink.name}.{way}"), amount * flows, uplink.link.bandwidth, eff, seconds, ranks=flows
            )
            for way in ("d2h", "h2d")
            if flows
        ]
    if reach.inside.medium == "host" and site.home:  # a bounce is written to host memory and read again
        uses.append(_host_memory(site, site.home, 2 * amount, seconds))
    return uses


def _host_link(reach: Reach, amount: float, seconds: float, exact: bool = False) -> list[Use]:
    """The GPU's own link to its host, both directions: what it sends, and as much that it receives."""
    link, site = reach.site.host_link, reach.site
    if link is None:
        return []
    one, both = (constant(f"copies.{way}_eff.{link_key(link)}") for way in ("peer", "both"))
    uses = [
        _use(site.resource(f"{link.kind}.{way}"), amount, link.bandwidth, one, seconds, exact) for way in ("d2h", "h2d")
    ]
    return [*uses, _use(site.resource(f"{link.kind}.both"), 2 * amount, 2 * link.bandwidth, both, seconds)]


def _between(reach: Reach, network: Network, island: float, bus: Bus, seconds: float) -> list[Use]:
    """Ports of the node (all groups of its ranks), uplinks of the leaf (all its nodes), the GPU's way to the port."""
    site, leaf = reach.site, network.leaf
    node = island / reach.hosts * reach.siblings
    eff = network.effective / network.rate
    uses = [_use(site.resource("nic"), node, network.rate, eff, seconds, bus.limit == "nic", site.local)]
    if reach.outside:
        crossing = node * reach.senders * leaf.ports / network.ports * reach.outside
        eff, exact = network.port.efficiency, bus.limit == "leaf"
        ranks = site.local * leaf.hosts
        uses.append(_use(site.resource("leaf"), crossing, leaf.uplinks, eff, seconds, exact, ranks))
    uses += _host_link(reach, island / reach.members, seconds)
    if network.port.transport == "tcp" and site.home:
        # Without GPUDirect a byte is written to host memory and read again on its way out, and on its way in.
        uses.append(_host_memory(site, site.home, 4 * node / site.local, seconds))
    return uses


def _host_memory(site: Site, home: Home, amount: float, seconds: float) -> Use:
    """`amount` for each rank that shares the memory."""
    eff = constant("dram.stream_eff")
    return _use(site.resource("dram"), amount * home.ranks, home.dram, eff, seconds, ranks=home.ranks)
