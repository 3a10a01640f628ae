"""How long a collective takes and what it takes: a table of algorithms, one function and one row each.

    T(S) = a + w + 2 kappa sqrt(a w)        w = bytes on the bus / B

`a` is what an empty collective costs (launch, steps), `w` the pure transfer. Cutting S into chunks costs (steps +
chunks - 1) times an overhead and a piece of the transfer; the best number of chunks gives (sqrt a + sqrt w)^2, that is
kappa = 1; without chunks kappa is 0; NCCL lies between. `a` and the mixed term are latency, which nobody shares; `w`
is a flow over the links. Constants: catalogue `collectives`, fitted to published nccl-tests sweeps (SWEEPS).
Every algorithm that can run is asked; the fastest is taken, as NCCL's tuner does (src/graph/tuning.cc).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from zerosim.catalog import constant
from zerosim.costs.bounds import bus_factor, wire_bytes
from zerosim.costs.groups import Reach, Spread
from zerosim.costs.traffic import Bus, blocks, traffic
from zerosim.resources import Demand
from zerosim.step import Collective

_RINGS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})


class Way(NamedTuple):
    """One way to carry out a collective: empty time, bus of each class's island, least time whatever the rates."""

    alpha: float
    buses: tuple[Bus, ...]
    least: float = 0.0


class Algorithm(NamedTuple):
    """A row of the table: for which kinds, and the function that gives its way, or None where it cannot run."""

    name: str
    kinds: frozenset[str]
    way: Callable[[Collective, Spread], Way | None]


def collective(work: Collective, spread: Spread) -> Demand:
    """The demand of a collective, the same for every class that takes part in it: one flow for the whole group."""
    if spread.size == 1 or not work.elements:
        return Demand(algorithm="none")
    name, way, seconds = _fastest(work, spread)
    wire = wire_bytes(work.kind, work.bytes, spread.size, spread.islands, name)
    moved = bus_factor(work.kind, spread.size) * work.bytes
    parts = zip(spread.reaches, way.buses, strict=True)
    uses = [use for reach, bus in parts for use in traffic(reach, wire, bus, moved / bus.rate)]
    holds = [blocks(reach, work.bytes) for reach in spread.reaches]
    flow = moved / min(bus.rate for bus in way.buses)
    return Demand(latency=seconds - flow, uses=tuple(uses), holds=tuple(holds), algorithm=name)


def alone(work: Collective, spread: Spread, way: Way) -> float:
    """T(S) of one way, seconds."""
    w = bus_factor(work.kind, spread.size) * work.bytes / min(bus.rate for bus in way.buses)
    return max(way.least, way.alpha + w + 2 * constant("collectives.kappa") * math.sqrt(way.alpha * w))


def _fastest(work: Collective, spread: Spread) -> tuple[str, Way, float]:
    best: tuple[str, Way, float] | None = None
    for row in ALGORITHMS:
        way = row.way(work, spread) if work.kind in row.kinds else None
        if way is not None:
            seconds = alone(work, spread, way)
            if best is None or seconds < best[2]:
                best = (row.name, way, seconds)
    assert best is not None, work.kind  # each kind has a row that can always run
    return best


# --- algorithms ----------------------------------------------------------------------------------------------------


def _ring(work: Collective, spread: Spread) -> Way | None:
    """Each rank passes on to the next. On one island NCCL's trees keep the latency of 8 ranks however many there are;
    between islands every boundary is crossed in turn: (n-k) steps inside and (k-1) over the network."""
    n, k = spread.size, spread.islands
    if k == 1:
        rounds = 2 if work.kind == "all_reduce" else 1
        steps = rounds * (min(n, constant("collectives.alpha_ranks")) - 1)
        return Way(_alpha0() + steps * spread.hop, tuple(_inside(reach) for reach in spread.reaches))
    if work.kind == "all_reduce":
        return None  # a tree has the same bandwidth and fewer steps
    alpha = _alpha0() + (n - k) * spread.hop + (k - 1) * spread.net_hop
    return Way(alpha, tuple(_narrower(_inside(reach), reach, 1.0) for reach in spread.reaches))


def _nvls(work: Collective, spread: Spread) -> Way | None:
    """The NVSwitch adds up and sends the sum to all: each GPU's buffer crosses its port once."""
    least = int(constant("collectives.nvls.min_bytes"))
    ring = _ring(work, spread) if spread.islands == 1 and spread.nvls and work.bytes >= least else None
    if ring is None:
        return None
    below = alone(Collective(work.kind, least, "int8", work.group), spread, ring)
    return Way(ring.alpha, _gained(ring.buses, spread), below)  # more bytes never take less time


def _tree(work: Collective, spread: Spread, gain: float = 1.0) -> Way | None:
    """Reduce on the islands, exchange between them along a double binary tree, spread on the islands. Between two
    islands each sends its sum once; between more NCCL gets no more out of the ports than a ring would."""
    n, k = spread.size, spread.islands
    if k == 1:
        return None
    alpha = _alpha0() + 2 * ((spread.per_island - 1) * spread.hop + math.log2(k) * spread.net_hop)
    # Two islands exchange S where a ring would send 2 S (n-1)/n: so much more is the bus worth than the ports.
    factor = bus_factor("all_reduce", n) if k == 2 else constant("collectives.all_reduce_k_factor")
    buses = (_narrower(Bus(reach.inside.ring * gain, "inside"), reach, factor) for reach in spread.reaches)
    return Way(alpha, tuple(buses))


def _nvls_tree(work: Collective, spread: Spread) -> Way | None:
    """The tree between two islands with the reduction of each inside its NVSwitch."""
    return _tree(work, spread, spread.nvls) if spread.islands == 2 and spread.nvls else None


def _pairwise(work: Collective, spread: Spread) -> Way:
    """All-to-all: every rank sends to every other. Across islands the part that leaves, (n-g)/n of the buffer of
    each of g ranks, goes through the ports, both ways at once."""
    n, g = spread.size, spread.per_island
    if spread.islands == 1:
        return Way(_alpha0() + spread.hop, tuple(Bus(reach.inside.fan, "inside") for reach in spread.reaches))
    alpha = constant("collectives.alltoall_network_alpha_us") * 1e-6 + 2 * spread.net_hop
    both = constant("collectives.p2p_both_ways_factor")
    factor = both / g * (n - 1) / (n - g)
    buses = (_narrower(_fan(reach, n), reach, factor) for reach in spread.reaches)
    return Way(alpha, tuple(buses))


def _direct(work: Collective, spread: Spread) -> Way:
    """Send and receive. In a pair one sends, or both do (`exchange`); in a larger group each sends to the next."""
    if spread.islands == 1:
        return Way(_alpha0() + spread.hop, tuple(Bus(reach.inside.pair, "inside") for reach in spread.reaches))
    both = constant("collectives.p2p_both_ways_factor") if spread.size > 2 or work.kind == "exchange" else 1.0
    buses = (Bus(both * reach.net / reach.members, reach.gate) for reach in spread.reaches)
    return Way(_alpha0() + spread.net_hop, tuple(buses))


ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("ring", _RINGS, _ring),
    Algorithm("nvls", frozenset({"all_reduce"}), _nvls),
    Algorithm("tree", frozenset({"all_reduce"}), _tree),
    Algorithm("nvls_tree", frozenset({"all_reduce"}), _nvls_tree),
    Algorithm("pairwise", frozenset({"all_to_all"}), _pairwise),
    Algorithm("direct", frozenset({"send_recv", "exchange"}), _direct),
)


def _alpha0() -> float:
    return constant("collectives.alpha0_us") * 1e-6


def _inside(reach: Reach) -> Bus:
    return Bus(reach.inside.ring, "inside")


def _fan(reach: Reach, n: int) -> Bus:
    """Of each buffer only (g-1)/n stays on the island."""
    share = (reach.members - 1) / (n - 1)
    return Bus(reach.inside.fan / share if share else math.inf, "inside")


def _narrower(bus: Bus, reach: Reach, factor: float) -> Bus:
    """The bus inside, or `factor` times what leaves the island where that is less."""
    return bus if bus.rate <= factor * reach.net else Bus(factor * reach.net, reach.gate)


def _gained(buses: tuple[Bus, ...], spread: Spread) -> tuple[Bus, ...]:
    return tuple(Bus(bus.rate * spread.nvls, bus.limit) for bus in buses)
