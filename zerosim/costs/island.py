"""An island from within: how fast ranks that share a host or an NVSwitch reach each other.

Through NVSwitches any GPU sends at its full rate; over direct NVLinks only to the peers it is wired to; over PCIe the
flows of all groups at once are laid on the tree of switches and the fullest link decides; without peer access every
byte bounces through host memory. Rates are bus bandwidths that NCCL reaches (catalogue `collectives`), not line rates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from zerosim.catalog import constant, constants
from zerosim.costs.links import in_a_ring
from zerosim.costs.machine import Machine
from zerosim.spec.topology import Gpu, Link

Medium = Literal["none", "nvswitch", "mesh", "pcie", "host"]  # `host`: PCIe without peer access, through host memory


@dataclass(frozen=True, slots=True)
class Inside:
    """An island from within, bytes/s for each member: bus of a ring, all-to-all, one GPU to one other."""

    medium: Medium
    ring: float = math.inf
    fan: float = math.inf
    pair: float = math.inf
    crossings: tuple[int, ...] = ()  # flows of all rings over each PCIe switch uplink above the first member
    sockets: int = 0  # and over the busiest link between sockets


def island(
    machine: Machine, member: int, members: Sequence[int], joined: bool, crowd: Sequence[Sequence[int]]
) -> Inside:
    """The island of `members`, seen from one of them. `joined`: NVLink joins them; `crowd`: the ranks on its node of
    each group that is busy at once, this one among them."""
    if len(members) == 1:
        return Inside("none")
    over_nvlink = _over_nvlink(machine, member, members) if joined else None
    return over_nvlink or _over_pcie(machine, member, members, crowd)


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


def _over_pcie(machine: Machine, member: int, members: Sequence[int], crowd: Sequence[Sequence[int]]) -> Inside:
    """Flows are laid over the PCIe tree; the fullest link decides."""
    ranks = [rank for group in crowd for rank in group]
    paths = {rank: machine.climb(machine.hosts[rank], machine.topology.gpus[rank].name) for rank in ranks}
    if not all(paths.values()):
        return Inside("host", 0.0, 0.0, 0.0)
    figures = [machine.topology.gpus[rank].figures for rank in ranks]
    peers = all(isinstance(gpu, Gpu) and gpu.p2p for gpu in figures)
    ring = _loads(machine, paths, [pair for group in crowd for pair in _ring(group, paths)], peers)
    fan = _loads(machine, paths, [pair for group in crowd for pair in permutations(group, 2)], peers)
    bounce = 1.0 if peers else constant("collectives.no_p2p_factor")
    own = paths[member]
    return Inside(
        "pcie" if peers else "host",
        ring=bounce * _fullest(ring),
        fan=bounce * _fullest(fan) * (len(members) - 1),
        pair=bounce * in_a_ring(own[0]),
        crossings=tuple(ring.get(link, 0) for link in own[1:]),
        sockets=max((flows for link, flows in ring.items() if link.kind == "socket"), default=0),
    )


def _ring(group: Sequence[int], paths: Mapping[int, Sequence[Link]]) -> list[tuple[int, int]]:
    """From each rank to the next, ranks below one switch together."""
    order = sorted(group, key=lambda rank: ([link.target for link in reversed(paths[rank])], rank))
    return list(zip(order, order[1:] + order[:1], strict=True)) if len(order) > 1 else []


def _loads(
    machine: Machine, paths: Mapping[int, Sequence[Link]], pairs: Iterable[tuple[int, int]], peers: bool
) -> Counter[Link]:
    """How many of the flows cross each directed link."""
    loads: Counter[Link] = Counter()
    for source, target in pairs:
        loads.update(machine.way(paths[source], paths[target], through_host=not peers))
    return loads


def _fullest(loads: Mapping[Link, int]) -> float:
    """Bytes/s of each flow when all run at once."""
    return min((in_a_ring(link) / flows for link, flows in loads.items()), default=0.0)
