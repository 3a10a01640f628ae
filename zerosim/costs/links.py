"""What of a link's paper rate the traffic between devices reaches: constants of the catalogue, by the kind of the link.

Copies between a GPU and host memory have fractions of their own (`transfers`).
"""

from __future__ import annotations

from zerosim.catalog import constant, constants
from zerosim.spec.topology import Link


def link_key(link: Link) -> str:
    """The kind of a GPU's link to its host as the catalogue writes it: the generation of PCIe, or `c2c`."""
    return "c2c" if link.kind == "c2c" else f"pcie{min(max(link.generation or 4, 3), 6)}"


def peer_efficiency(link: Link) -> float:
    """The fraction of it that traffic between devices reaches."""
    return constants("copies.peer_eff")[link_key(link)]


def each_way(link: Link) -> float:
    """Bytes/s each way of traffic that passes a link both ways at once, on its way to a port and from there."""
    if link.kind == "socket":
        return link.bandwidth * constant("copies.socket_link_eff")
    return link.bandwidth * min(peer_efficiency(link), constants("copies.both_eff")[link_key(link)])


def in_a_ring(link: Link) -> float:
    """Bytes/s that rings of GPUs have of a link, each way at once."""
    if link.kind == "socket":
        return link.bandwidth * constant("copies.socket_link_eff")
    if link.kind == "c2c":
        return link.bandwidth * peer_efficiency(link)
    return link.bandwidth * constants("collectives.ring_eff_pcie")[link_key(link)]
