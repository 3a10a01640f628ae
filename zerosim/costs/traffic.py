"""Which links and how much of them a collective's flow takes, seen from one class of its ranks.

A collective is one flow for the whole group. Its limiting link is busy for exactly the transfer time of the model;
every other link only for what its bytes need. What several groups do at once on shared things (the ports of a node,
the uplinks of a leaf) is counted in full, so that the flow of the representative sees its right share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerosim.catalog import constant, constants
from zerosim.costs.bounds import Wire
from zerosim.costs.groups import Reach
from zerosim.costs.links import link_key, peer_efficiency
from zerosim.costs.site import Network, Site, Uplink
from zerosim.costs.sockets import Home
from zerosim.resources import Hold, Use

# NCCL takes one channel more for each 512 threads x 64 bytes (src/enqueue.cc, src/include/comm.h) [E].
_CHANNEL_BYTES = 32 * 1024


class Bus(NamedTuple):
    """Bus bandwidth of a collective, bytes/s, and what limits it: the island (`inside`), or the gate of its network."""

    rate: float
    limit: str


class _Laid(NamedTuple):
    """A use, and the share of the flow's time for which it keeps its resource busy when it has that for itself."""

    use: Use
    busy: float


def traffic(reach: Reach, wire: Wire, bus: Bus, seconds: float) -> list[Use]:
    """All resources of one class. `seconds` is how long the limiting one is busy."""
    site = reach.site
    uses: list[_Laid] = []
    if wire.gpu and reach.members > 1:
        uses += _inside(reach, wire.gpu, bus, seconds)
    if wire.island and site.network:
        uses += _between(reach, site.network, wire, bus, seconds)
    # A ring step reads, reduces and writes what it passes on.
    moved = constant("contention.hbm_bytes_per_wire_byte") * max(wire.gpu, wire.island / reach.members)
    uses.append(_use(site.resource("hbm"), moved, site.gpu.memory_bandwidth, site.gpu.stream_efficiency, seconds))
    return _filled(_once(uses))


def _once(uses: Sequence[_Laid]) -> list[_Laid]:
    """A link that is on the way inside and on the way out carries the larger of both, for as long as that takes: the
    GPU of a ring over PCIe that sends to a port sends to no neighbour. Host memory takes both (`_staged`)."""
    found: dict[str, _Laid] = {}
    for laid in uses:
        known = found.get(laid.use.resource)
        if known is None or laid.busy > known.busy:
            found[laid.use.resource] = laid
    return list(found.values())


def _filled(uses: Sequence[_Laid]) -> list[Use]:
    """A flow takes its time, whatever of its way this class does not see (the slot of a port, a switch with ports
    alone, two classes' parts of one link): what is busiest is then busy throughout."""
    busiest = max(uses, key=lambda laid: laid.busy)
    return [
        laid.use._replace(efficiency=laid.use.efficiency * laid.busy) if laid is busiest else laid.use for laid in uses
    ]


def blocks(reach: Reach, size: float) -> Hold:
    """SMs of the communication kernel: one thread block per channel, fewer channels for small messages."""
    busy = min(channels(reach), max(1, math.ceil(size / _CHANNEL_BYTES)))
    era = "sm90_plus" if reach.site.gpu.persistent_kernels else "sm80_and_older"
    share = busy * constant(f"contention.sm_per_channel.{era}") / reach.site.gpu.sms
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
) -> _Laid:
    """A use that keeps its resource busy for no longer than `seconds`, or for exactly so long."""
    needed = amount / (rate * seconds)
    reached = needed if exact else max(needed, efficiency)
    return _Laid(Use(resource, amount, reached, ranks), needed / reached)


def _inside(reach: Reach, amount: float, bus: Bus, seconds: float) -> list[_Laid]:
    site, exact = reach.site, bus.limit == "inside"
    if reach.inside.medium in ("nvswitch", "mesh"):
        eff = constant("collectives.ring_eff_nvlink")
        return [_use(site.resource("nvlink"), amount, site.nvlink, eff, seconds, exact)]
    uses = _host_link(site, amount, seconds, exact)
    for uplink, flows in zip(site.uplinks, reach.inside.crossings, strict=True):
        eff = constant(f"collectives.ring_eff_pcie.{link_key(uplink.link)}")
        uses += _uplink(site, uplink, amount * flows, eff, seconds, flows)
    uses += _sockets(site, amount * reach.inside.sockets, seconds)
    if reach.inside.medium == "host" and site.home:  # a bounce is written to host memory and read again
        uses.append(_host_memory(site, site.home, 2 * amount, seconds))
    return uses


def _host_link(site: Site, amount: float, seconds: float, exact: bool = False) -> list[_Laid]:
    """The GPU's own link to its host, both directions: what it sends, and as much that it receives."""
    link = site.host_link
    if link is None:
        return []
    one, both = (constant(f"copies.{way}_eff.{link_key(link)}") for way in ("peer", "both"))
    uses = [
        _use(site.resource(f"{link.kind}.{way}"), amount, link.bandwidth, one, seconds, exact) for way in ("d2h", "h2d")
    ]
    return [*uses, _use(site.resource(f"{link.kind}.both"), 2 * amount, 2 * link.bandwidth, both, seconds)]


def _uplink(site: Site, uplink: Uplink, amount: float, eff: float, seconds: float, ranks: float) -> list[_Laid]:
    """The uplink of a switch, `amount` each way at once."""
    if not amount:
        return []
    name, rate = uplink.name, uplink.link.bandwidth
    uses = [_use(site.resource(f"{name}.{way}"), amount, rate, eff, seconds, ranks=ranks) for way in ("d2h", "h2d")]
    both = constant(f"copies.both_eff.{link_key(uplink.link)}")
    return [*uses, _use(site.resource(f"{name}.both"), 2 * amount, 2 * rate, both, seconds, ranks=ranks)]


def _sockets(site: Site, amount: float, seconds: float) -> list[_Laid]:
    """The links between sockets, `amount` each way."""
    eff, crossing = constant("copies.socket_link_eff"), zip(("into", "out"), site.crossing, strict=True)
    return [
        _use(site.resource(f"sockets.{way}"), amount, through.rate, eff, seconds)
        for way, through in crossing
        if amount and through.rate
    ]


def _between(reach: Reach, network: Network, wire: Wire, bus: Bus, seconds: float) -> list[_Laid]:
    """Ports of the node (all groups of its ranks), uplinks of its leaf and its spine (all nodes below these), and the
    way from GPUs to ports."""
    site, way = reach.site, reach.approach
    node = wire.island / reach.hosts * reach.siblings
    eff = network.effective / network.rate
    uses = [_use(site.resource("nic"), node, network.rate, eff, seconds, bus.limit == "nic", site.local)]
    uses += _above(reach, network, node, bus, seconds)
    uses += _host_link(site, node * way.lane, seconds) if way.lane else []
    for uplink, part in zip(site.uplinks, way.uplinks, strict=False):
        uses += _uplink(site, uplink, node * part, peer_efficiency(uplink.link), seconds, uplink.ranks)
    uses += _sockets(site, node * way.sockets, seconds)
    if way.staged and site.home:
        uses.append(_host_memory(site, site.home, _staged(reach, wire, node), seconds))
    return uses


def _above(reach: Reach, network: Network, node: float, bus: Bus, seconds: float) -> Iterator[_Laid]:
    """The uplinks of the leaf and of the spine: what all nodes below them send further."""
    site = reach.site
    for name, switch, (senders, part) in (
        ("leaf", network.leaf, reach.leaf),
        ("spine", network.spine, reach.spine),
    ):
        if part:
            crossing = node * senders * switch.ports / network.ports * part
            eff, ranks = network.port.efficiency, site.local * switch.hosts
            yield _use(site.resource(name), crossing, switch.uplinks, eff, seconds, bus.limit == name, ranks)


def _staged(reach: Reach, wire: Wire, node: float) -> float:
    """Bytes of host memory by rank: without GPUDirect a byte is written there and read again on its way out, and on its
    way in. A ring that bounces within the node, too, has one bounce less there when it leaves the node."""
    by_rank = node / reach.site.local
    return 2 * wire.gpu + 2 * by_rank if reach.inside.medium == "host" else 4 * by_rank


def _host_memory(site: Site, home: Home, amount: float, seconds: float) -> _Laid:
    """`amount` for each rank that shares the memory."""
    eff = constant("dram.stream_eff")
    return _use(site.resource("dram"), amount * home.ranks, home.dram, eff, seconds, ranks=home.ranks)
