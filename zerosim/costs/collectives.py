"""How long a collective takes and what it takes: a table of algorithms, one function and one row each.

    T(S) = a + w + 2 kappa sqrt(b w)        w = bytes on the bus / B

`a` is what an empty collective costs (launch, steps inside and between islands), `b` that part of it in which a rank is
busy (launch, steps inside), `w` the pure transfer. Cutting S into chunks costs (steps + chunks - 1) times an overhead
and a piece of the transfer; the best number of chunks gives (sqrt b + sqrt w)^2, that is kappa = 1; without chunks
kappa is 0; NCCL lies between. What a message spends on the network is no part of `b`: others are under way meanwhile.
`a` and the mixed term are latency, which nobody shares; `w` is a flow over the links. Constants: catalogue
`collectives`, fitted to published nccl-tests sweeps (SWEEPS). Every algorithm and protocol that can run is asked; the
fastest is taken, as NCCL's tuner means to (src/graph/tuning.cc).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from zerosim.catalog import constant, constants
from zerosim.costs.bounds import bus_factor, wire_bytes
from zerosim.costs.groups import Reach, Spread
from zerosim.costs.links import each_way
from zerosim.costs.protocols import (
    PROTOCOLS,
    Protocol,
    between,
    named,
    share_inside,
    step_between,
    step_inside,
    step_of_a_rank,
)
from zerosim.costs.traffic import Bus, blocks, channels, traffic
from zerosim.resources import Demand
from zerosim.step import Collective

_RINGS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
_GATHERS = frozenset({"all_gather", "reduce_scatter"})


class Way(NamedTuple):
    """One way to carry out a collective: empty time `alpha`, of which `busy` is a rank's own; the bus of each class's
    island; least time whatever the rates."""

    name: str
    alpha: float
    busy: float
    buses: tuple[Bus, ...]
    least: float = 0.0


class Algorithm(NamedTuple):
    """A row of the table: for which kinds, with which protocols, and the function that gives its way, or None where it
    cannot run."""

    kinds: frozenset[str]
    protocols: tuple[Protocol, ...]
    way: Callable[[Collective, Spread, Protocol], Way | None]


def collective(work: Collective, spread: Spread) -> Demand:
    """The demand of a collective, the same for every class that takes part in it: one flow for the whole group."""
    if spread.size == 1 or not work.elements:
        return Demand(algorithm="none")
    way = min(_ways(work, spread), key=lambda way: alone(work, spread, way))  # the first of equals
    wire = wire_bytes(work.kind, work.bytes, spread.size, spread.islands, way.name)
    moved = bus_factor(work.kind, spread.size) * work.bytes
    flow = moved / min(bus.rate for bus in way.buses)
    parts = [(reach, bus) for reach, bus in zip(spread.reaches, way.buses, strict=True) if reach.played]
    slower = flow / max(moved / bus.rate for _, bus in parts)  # than any that is played here
    uses = [use for reach, bus in parts for use in traffic(reach, wire, bus, slower * moved / bus.rate)]
    holds = [blocks(reach, work.bytes) for reach, _ in parts]
    latency = alone(work, spread, way) - flow
    return Demand(latency, tuple(uses), tuple(holds), algorithm=way.name, filling=latency - way.alpha)


def alone(work: Collective, spread: Spread, way: Way) -> float:
    """T(S) of one way, seconds."""
    w = bus_factor(work.kind, spread.size) * work.bytes / min(bus.rate for bus in way.buses)
    return max(way.least, way.alpha + w + 2 * constant("collectives.kappa") * math.sqrt(way.busy * w))


def _ways(work: Collective, spread: Spread) -> Iterator[Way]:
    """All that can run; each kind has a row that always can."""
    for row in ALGORITHMS:
        if work.kind in row.kinds:
            for protocol in row.protocols:
                way = row.way(work, spread, protocol)
                if way is not None:
                    yield way


# --- algorithms ----------------------------------------------------------------------------------------------------


def _ring(work: Collective, spread: Spread, protocol: Protocol) -> Way | None:
    """Each rank passes on to the next; between islands every boundary is crossed in turn: n-k steps of ranks and k-1
    through the network."""
    n, k = spread.size, spread.islands
    if k == 1:
        rounds = 2 if work.kind == "all_reduce" else 1
        busy = _launch() + rounds * (n - 1) * _longest(spread, step_inside, protocol)
        return Way(named("ring", protocol), busy, busy, tuple(_inside(reach, protocol) for reach in spread.reaches))
    if work.kind == "all_reduce":
        return None  # a tree has the same bandwidth and fewer steps
    busy = _launch() + (n - k) * _longest(spread, step_of_a_rank, protocol)
    alpha = busy + (k - 1) * _longest(spread, step_between, protocol)
    return Way(named("ring", protocol), alpha, busy, tuple(_out(reach, protocol) for reach in spread.reaches))


def _pat(work: Collective, spread: Spread, protocol: Protocol) -> Way | None:
    """Parallel aggregated trees (NCCL 2.23): log2 k steps, only where each node has one rank of the group."""
    if spread.islands < 2 or any(reach.members > 1 for reach in spread.reaches):
        return None
    alpha = _launch() + math.log2(spread.islands) * _longest(spread, step_between, protocol)
    return Way(named("pat", protocol), alpha, _launch(), tuple(_out(reach, protocol) for reach in spread.reaches))


def _nvls(work: Collective, spread: Spread, protocol: Protocol) -> Way | None:
    """The NVSwitch adds up and sends the sum to all: each GPU's buffer crosses its port once."""
    least = int(constant("collectives.nvls.min_bytes"))
    if spread.islands > 1 or not spread.nvls or work.bytes < least:
        return None
    smaller = Collective(work.kind, least, "int8", work.group)
    rings = [way for each in PROTOCOLS if (way := _ring(smaller, spread, each))]
    below = min(alone(smaller, spread, way) for way in rings)  # more bytes never take less time
    busy = _launch() + constant("collectives.nvls.setup_us") * 1e-6
    buses = tuple(Bus(reach.inside.ring * spread.nvls, "inside") for reach in spread.reaches)
    return Way("nvls", busy, busy, buses, below)


def _tree(work: Collective, spread: Spread, protocol: Protocol, gain: float = 1.0) -> Way | None:
    """Reduce on the islands, exchange between them along a double binary tree, spread on the islands. Where one island
    is a rack of several hosts, small messages go up a tree of these. Between two islands each sends its sum once;
    between more NCCL gets no more out of the ports than a ring would."""
    n, k, g, hosts = spread.size, spread.islands, spread.per_island, max(reach.hosts for reach in spread.reaches)
    if k == 1 and (hosts == 1 or protocol == "Simple"):
        return None  # within one host NCCL's tree is a chain, as the ring is
    deep = g - 1 if protocol == "Simple" else g / hosts - 1 + math.log2(hosts)
    busy = _launch() + 2 * deep * _longest(spread, step_inside, protocol)
    if k == 1:
        return Way(named("tree", protocol), busy, busy, tuple(_inside(reach, protocol) for reach in spread.reaches))
    alpha = busy + 2 * math.log2(k) * _longest(spread, step_between, protocol)
    # Two islands exchange S where a ring would send 2 S (n-1)/n: so much more is the bus worth than the ports.
    factor = bus_factor("all_reduce", n) if k == 2 else constant("collectives.all_reduce_k_factor")
    buses = (_out(reach, protocol, factor, gain, _tree_inside(reach, k)) for reach in spread.reaches)
    return Way(named("nvls_tree" if gain != 1 else "tree", protocol), alpha, busy, tuple(buses))


def _nvls_tree(work: Collective, spread: Spread, protocol: Protocol) -> Way | None:
    """The tree between two islands with the reduction of each inside its NVSwitch."""
    return _tree(work, spread, protocol, spread.nvls) if spread.islands == 2 and spread.nvls else None


def _pairwise(work: Collective, spread: Spread, protocol: Protocol) -> Way:
    """All-to-all: every rank sends to every other. Across islands the part that leaves, (n-g)/n of the buffer of
    each of g ranks, goes through the ports, both ways at once, after a message to each of n-g peers was set up."""
    n, g = spread.size, spread.per_island
    if spread.islands == 1:
        alpha = _launch() + _longest(spread, step_inside, protocol)
        return Way("pairwise", alpha, _launch(), tuple(Bus(reach.inside.fan, "inside") for reach in spread.reaches))
    peers = (n - g) * constant("collectives.alltoall_peer_us") * 1e-6
    factor = constant("collectives.p2p_both_ways_factor") / g * (n - 1) / (n - g)
    buses = (_narrower(_fan(reach, n), reach, factor) for reach in spread.reaches)
    alpha = _launch() + peers + _longest(spread, step_between, "LL")
    return Way("pairwise", alpha, _launch(), tuple(buses))


def _direct(work: Collective, spread: Spread, protocol: Protocol) -> Way:
    """Send and receive. In a pair one sends, or both do (`exchange`); in a larger group each sends to the next, so that
    one rank of an island sends out. A message between two GPUs goes through the ports of one."""
    if spread.islands == 1:
        alpha = _launch() + _longest(spread, step_inside, "LL")
        buses = (Bus(_pair(reach, work.bytes), "inside") for reach in spread.reaches)
        return Way("direct", alpha, _launch(), tuple(buses), _with_fewer_channels(work, spread))
    both = constant("collectives.p2p_both_ways_factor") if spread.size > 2 or work.kind == "exchange" else 1.0
    buses = (
        Bus(min(both * min(reach.net, _ports_of_a_gpu(reach)), _lane(reach)), reach.gate) for reach in spread.reaches
    )
    return Way("direct", _launch() + _longest(spread, step_between, "LL"), _launch(), tuple(buses))


_ALL_REDUCE = frozenset({"all_reduce"})
ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(_RINGS, PROTOCOLS, _ring),
    Algorithm(_GATHERS, ("Simple",), _pat),
    Algorithm(_ALL_REDUCE, ("Simple",), _nvls),
    Algorithm(_ALL_REDUCE, PROTOCOLS, _tree),
    Algorithm(_ALL_REDUCE, ("Simple",), _nvls_tree),
    Algorithm(frozenset({"all_to_all"}), ("Simple",), _pairwise),
    Algorithm(frozenset({"send_recv", "exchange"}), ("Simple",), _direct),
)


def _launch() -> float:
    return constant("collectives.launch_us") * 1e-6


def _longest(spread: Spread, step: Callable[[Reach, Protocol], float], protocol: Protocol) -> float:
    """A step takes as long as it does where it takes longest."""
    return max(step(reach, protocol) for reach in spread.reaches)


# --- buses ---------------------------------------------------------------------------------------------------------


def _inside(reach: Reach, protocol: Protocol) -> Bus:
    return Bus(reach.inside.ring * share_inside(reach, protocol), "inside")


def _out(reach: Reach, protocol: Protocol, factor: float = 1.0, gain: float = 1.0, most: float = math.inf) -> Bus:
    """A bus that leaves the island: that inside, `gain` times, at most `most`; or `factor` times the ports."""
    inside = min(reach.inside.ring * gain, most) * share_inside(reach, protocol)
    out = between(factor * reach.net, protocol)
    return Bus(inside, "inside") if inside <= out else Bus(out, reach.gate)


def _tree_inside(reach: Reach, islands: int) -> float:
    """Bytes/s that NCCL's trees over three islands and more reach inside one; it caps them by architecture."""
    known = constants("collectives.tree_gbs")
    return known.get(reach.site.gpu.architecture, math.inf) * 1e9 if islands > 2 else math.inf


def _fan(reach: Reach, n: int) -> Bus:
    """Of each buffer only (g-1)/n stays on the island."""
    share = (reach.members - 1) / (n - 1)
    return Bus(reach.inside.fan / share if share else math.inf, "inside")


def _pair(reach: Reach, size: float) -> float:
    """Bytes/s from one GPU to another: a channel carries its part of what all of a ring do."""
    most = channels(reach)
    return min(reach.inside.pair, reach.inside.ring * min(1.0, _channels_of_a_message(size) / most))


def _channels_of_a_message(size: float) -> int:
    """NCCL doubles the channels of a message between two GPUs while its parts are large (src/enqueue.cc,
    calcP2pChannelCount)."""
    used, part = int(constant("collectives.p2p_channels")), constant("collectives.p2p_part_mib") * 2**20
    while size > used * part:
        used *= 2
    return used


def _with_fewer_channels(work: Collective, spread: Spread) -> float:
    """Seconds of the largest message that has half the channels: more bytes never take less time."""
    used, most = _channels_of_a_message(work.bytes), max(channels(reach) for reach in spread.reaches)
    if not constant("collectives.p2p_channels") < used < 2 * most:
        return 0.0
    largest = int(used / 2 * constant("collectives.p2p_part_mib") * 2**20)
    smaller = Collective(work.kind, largest, "int8", work.group)
    return alone(smaller, spread, _direct(smaller, spread, "Simple"))


def _ports_of_a_gpu(reach: Reach) -> float:
    """Bytes/s through a GPU's own ports, at least one: several near a GPU are joined (aws-ofi-nccl on p5)."""
    network = reach.site.network
    if network is None:
        return 0.0
    own = max(1, network.ports // reach.site.local)
    return own * network.rate / network.ports * network.port.efficiency


def _lane(reach: Reach) -> float:
    """Bytes/s each way through the link of one GPU to its host."""
    return each_way(reach.site.host_link) if reach.site.host_link else math.inf


def _narrower(bus: Bus, reach: Reach, factor: float) -> Bus:
    """The bus inside, or `factor` times what leaves the island where that is less."""
    return bus if bus.rate <= factor * reach.net else Bus(factor * reach.net, reach.gate)
