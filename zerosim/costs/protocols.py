"""The two ways in which NCCL hands a message on from rank to rank, and what a step of each costs.

`LL` stands for LL and LL128: a flag travels with the data, so that a step is short, and part of the bandwidth is lost;
over a network such messages go through the host's proxy threads a piece at a time, at one low rate however wide the
ports are. `Simple` moves large pieces at the full rate, its steps wait for a fence and a flag each, and a port needs
time to set a large message up. NCCL picks by size (src/graph/tuning.cc); here the faster of both is taken.
All constants are in the catalogue, group `collectives`, fitted to published sweeps of nccl-tests.
"""

from __future__ import annotations

from typing import Literal

from zerosim.catalog import constant, constants
from zerosim.costs.groups import Reach
from zerosim.costs.links import link_key

Protocol = Literal["LL", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = ("LL", "Simple")


def named(algorithm: str, protocol: Protocol) -> str:
    """`ring` and `ring_ll`: the plain name is that of large messages."""
    return algorithm if protocol == "Simple" else f"{algorithm}_ll"


def step_inside(reach: Reach, protocol: Protocol) -> float:
    """Seconds until the next rank of the island can pass a piece on."""
    if reach.inside.medium in ("pcie", "host"):
        link = reach.site.host_link
        crossings = 2 if reach.inside.medium == "host" else 1  # a bounce crosses PCIe twice
        return crossings * constants("collectives.hop_us")[link_key(link) if link else "pcie4"] * 1e-6
    if protocol == "LL":
        return constant("collectives.hop_us.nvlink") * 1e-6
    return constants("collectives.simple_hop_us")[reach.site.gpu.architecture] * 1e-6


def step_of_a_rank(reach: Reach, protocol: Protocol) -> float:
    """The same in a ring that goes on through the network: proxy threads hold each of its steps up."""
    held_up = constant(f"collectives.network_ring_hop_us.{protocol.lower()}") * 1e-6
    return max(held_up, step_inside(reach, protocol))


def step_between(reach: Reach, protocol: Protocol) -> float:
    """Seconds of a step through the network; 0 without one."""
    if reach.site.network is None:
        return 0.0
    port = reach.site.network.port
    return port.latency if protocol == "LL" else port.large_latency


def share_inside(reach: Reach, protocol: Protocol) -> float:
    """The fraction of the bus of an island that a protocol reaches."""
    if protocol == "Simple":
        return 1.0
    kinds = constants("collectives.ll_share")
    return kinds[reach.site.gpu.architecture if reach.inside.medium in ("nvswitch", "mesh") else "pcie"]


def between(rate: float, protocol: Protocol) -> float:
    """Bytes/s of data on a bus that leaves its island, where the ports would carry `rate`."""
    if protocol == "Simple":
        return rate
    return min(rate * constant("collectives.ll_network_share"), constant("collectives.ll_network_gbs") * 1e9)
