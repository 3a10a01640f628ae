"""An island from within: how fast ranks that share a host or an NVSwitch reach each other.

Through NVSwitches any GPU sends at its full rate; over direct NVLinks only to the peers it is wired to; over PCIe flows
are laid on the tree of switches and the thinnest link decides; without peer access every byte bounces through host
memory. Rates are bus bandwidths that NCCL reaches (catalogue `collectives`), not line rates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zerosim.catalog import constant, constants
from zerosim.costs.machine import Machine
from zerosim.costs.site import link_key
from zerosim.spec.topology import Gpu, Link

Medium = Literal["none", "nvswitch", "mesh", "pcie", "host"]  # `host`: PCIe without peer access, through host memory


@dataclass(frozen=True, slots=True)
class Inside:
    """An island from within, bytes/s for each member: bus of a ring, all-to-all, one GPU to one other."""

    medium: Medium
    ring: float = math.inf
    fan: float = math.inf
    pair: float = math.inf
    crossings: tuple[int, ...] = ()  # flows of a ring over each PCIe switch uplink above the first member
    sockets: int = 0  # and over the busiest link between sockets


def island(machine: Machine, member: int, members: Sequence[int], joined: bool, siblings: int) -> Inside:
    """The island of `members`, seen from one of them. `joined`: NVLink joins them; `siblings`: groups like this one."""
    if len(members) == 1:
        return Inside("none")
    over_nvlink = _over_nvlink(machine, member, members) if joined else None
    return over_nvlink or _over_pcie(machine, member, members, siblings)


def _over_nvlink(machine: Machine, member: int, members: Sequence[int]) -> Inside | None:
    """Through switches any GPU sends at its full rate; without them only over the links to peers of the group."""
    eff = constants("collectives")
    ring, fan, pair = eff["ring_eff_nvlink"], eff["alltoall_eff"], eff["sendrecv_eff"]
    switched = _nvlink_rates(machine, member, frozenset())
    if switched:
        rate = sum(switched)
        return Inside("nvswitch", ring * rate, fan * rate, pair * rate)
    names = frozenset(machine.topology.gpus[rank].name for rank in members)
    rates = [_nvlink_rates(machine, rank, names) for rank in members]
    if not all(rates):
        return None  # a member has no NVLink to any other
    total, thinnest = min(sum(links) for links in rates), min(min(links) for links in rates)
    return Inside("mesh", ring * total, fan * min(total, thinnest * (len(members) - 1)), pair * thinnest)


def _nvlink_rates(machine: Machine, rank: int, peers: frozenset[str]) -> list[float]:
    """Rates of the GPU's NVLinks to `peers`; without peers, to switches."""
    host = machine.hosts[rank]
    links = [link for link in machine.links_out(host, machine.topology.gpus[rank].name) if link.kind == "nvlink"]
    if peers:
        return [link.bandwidth for link in links if link.target in peers]
    return [link.bandwidth for link in links if machine.device(host, link.target).kind == "nvswitch"]


def _over_pcie(machine: Machine, member: int, members: Sequence[int], siblings: int) -> Inside:
    """Flows are laid over the PCIe tree; the thinnest link decides. Siblings share all links but a GPU's own."""
    paths = {rank: machine.climb(machine.hosts[rank], machine.topology.gpus[rank].name) for rank in members}
    if not all(paths.values()):
        return Inside("host", 0.0, 0.0, 0.0)
    figures = [machine.topology.gpus[rank].figures for rank in members]
    peers = all(isinstance(gpu, Gpu) and gpu.p2p for gpu in figures)
    order = sorted(members, key=lambda rank: ([link.target for link in reversed(paths[rank])], rank))
    ring = _loads(machine, paths, zip(order, order[1:] + order[:1], strict=True), peers)
    fan = _loads(machine, paths, [(a, b) for a in order for b in order if a != b], peers)
    bounce = 1.0 if peers else constant("collectives.no_p2p_factor")
    own = paths[member]
    alone = frozenset(path[0].source for path in paths.values())
    return Inside(
        "pcie" if peers else "host",
        ring=bounce * _thinnest(ring, alone, siblings),
        fan=bounce * _thinnest(fan, alone, siblings) * (len(order) - 1),
        pair=bounce * carries(own[0]),
        crossings=tuple(ring.get(link, 0) for link in own[1:]),
        sockets=max((flows for link, flows in ring.items() if link.kind == "socket"), default=0),
    )


def _loads(
    machine: Machine, paths: Mapping[int, Sequence[Link]], pairs: Iterable[tuple[int, int]], peers: bool
) -> Counter[Link]:
    """How many of the flows cross each directed link."""
    loads: Counter[Link] = Counter()
    for source, target in pairs:
        loads.update(machine.way(paths[source], paths[target], through_host=not peers))
    return loads


def carries(link: Link) -> float:
    """Bytes/s that collectives reach on a link."""
    if link.kind == "socket":
        return link.bandwidth * constant("copies.socket_link_eff")
    if link.kind == "c2c":
        return link.bandwidth * constant("copies.peer_eff.c2c")
    return link.bandwidth * constant(f"collectives.ring_eff_pcie.{link_key(link)}")


def _thinnest(loads: Mapping[Link, int], gpus: frozenset[str], siblings: int) -> float:
    """Bytes/s of each flow when all run at once; the links of `gpus` carry no sibling's flows."""
    return min(
        carries(link) / (flows * (1 if link.source in gpus or link.target in gpus else siblings))
        for link, flows in loads.items()
    )
