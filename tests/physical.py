"""Every rank of a node for itself: the same priced step on the things that the ranks share, each named by its place.

What one representative is played with (a use that carries the amounts of all ranks that share it) is taken apart: eight
ranks, each with its own amount, on one socket, one switch, one drive. If the promise of symmetry holds, the spans are
the same. For a node of eight GPUs, two behind each PCIe switch and four on each of two sockets.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.costs import Priced
from zerosim.resources import Demand, RankClass, Supply, Use
from zerosim.step import Transfer, Work

RANKS = 8


def physical(resource: str, own: frozenset[str], rank: int, bound: bool) -> str:
    """The thing itself, on a node of 8 GPUs, two behind a switch, four on a socket. Nothing where it is others'."""
    socket = rank // 4
    base = resource.partition(".")[0]
    if base == "sockets":
        return f"link into {socket if resource == 'sockets.into' else 1 - socket}" if resource in own else ""
    if base in ("hbm", "sm", "pcie", "nvlink", "staging"):
        return f"{resource}.{rank}"
    if base == "uplink":
        return f"{resource}.{rank // 2}"
    return f"{resource}.{socket}" if bound and base in ("dram", "cpu") else resource


def crossing(work: Work | None, bound: bool) -> frozenset[str]:
    """A rank's own copies come into its socket, or leave it; the rest are those of the others. Between drives and host
    memory that lies on both sockets they do both."""
    if not isinstance(work, Transfer):
        return frozenset()
    if "gpu" not in (work.source, work.target) and not bound:
        return frozenset({"sockets.into", "sockets.out"})
    comes = work.target == "gpu" or work.source == "nvme"
    return frozenset({"sockets.into" if comes else "sockets.out"})


def apart(found: Priced, works: Sequence[Work | None], bound: bool) -> Priced:
    """The same, with each of the 8 ranks for itself on the things that they share: a use's amount by its ranks."""
    rates: dict[str, float] = {}

    def own(demand: Demand, work: Work | None, rank: int) -> Demand:
        uses = []
        for resource, amount, efficiency, ranks in demand.uses:
            name = physical(resource, crossing(work, bound), rank, bound)
            if resource == "cpu" and ranks == 1:  # its threads have cores of their own
                name = f"cpu of rank {rank}"
            if name:
                rates[name] = found.supply.rates[resource]
                uses.append(Use(name, amount / ranks, efficiency))
        held = tuple(hold._replace(resource=physical(hold.resource, frozenset(), rank, bound)) for hold in demand.holds)
        return demand._replace(uses=tuple(uses), holds=held)

    classes = tuple(RankClass(f"rank {rank}", (rank,)) for rank in range(RANKS))
    demands = {
        c.name: [own(demand, work, c.ranks[0]) for demand, work in zip(found.demands["all"], works, strict=True)]
        for c in classes
    }
    return found._replace(classes=classes, demands=demands, supply=Supply(rates, {}, {}, {}, {}))
