"""What no schedule can beat: bytes that a collective must put on the wire, seconds that a step keeps a resource busy,
and seconds of the longest chain of ops that wait for each other.

All are kept apart from the model of time so that tests can hold the one against the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from zerosim.resources import Demand, Supply
from zerosim.step import CollectiveKind, Op


class Wire(NamedTuple):
    """Bytes a collective moves, one direction: out of each GPU on its island, out of each island on the network."""

    gpu: float
    island: float


def bus_factor(kind: CollectiveKind, n: int) -> float:
    """Bytes over the slowest link of a ring / size of the buffer (nccl-tests, doc/PERFORMANCE.md)."""
    if kind == "all_reduce":
        return 2 * (n - 1) / n
    if kind in ("broadcast", "reduce", "send_recv", "exchange"):
        return 1.0 if n > 1 else 0.0
    return (n - 1) / n


def wire_bytes(kind: CollectiveKind, size: float, n: int, k: int, algorithm: str = "ring") -> Wire:
    """The traffic of a collective of `size` bytes (nccl-tests' meaning) over `n` ranks on `k` islands.

    A ring crosses each boundary between islands once, so an island sends what a GPU sends. Reduction inside the
    NVSwitch sends each GPU's buffer once. A tree, or a reduction of islands first, sends 2(k-1)/k of the buffer
    between them (Thakur et al. 2005, Optimization of collective communication operations, on k partners).
    """
    if n == 1:
        return Wire(0.0, 0.0)
    g = n / k
    ring = bus_factor(kind, n) * size
    if kind == "all_to_all":
        return Wire(size * (g - 1) / n, g * size * (n - g) / n)
    if kind in ("send_recv", "exchange"):
        return Wire(0.0, size) if k > 1 else Wire(size, 0.0)
    algorithm = algorithm.removesuffix("_ll")  # protocols differ by what a flag takes, which is not counted
    gpu = size if algorithm in ("nvls", "nvls_tree") else ring
    between = 2 * (k - 1) / k * size if algorithm in ("tree", "nvls_tree") else ring
    return Wire(gpu if g > 1 else 0.0, between if k > 1 else 0.0)


def busy_seconds(demands: Iterable[Demand], supply: Supply) -> dict[str, float]:
    """Seconds that each resource would be busy with its own part alone: none can be left out of a step."""
    listed = list(demands)
    times = Counter(map(id, listed))  # by identity: most ops of a step share their demand with many others
    busy: dict[str, float] = {}
    for demand in {id(each): each for each in listed}.values():
        for use in demand.uses:
            seconds = times[id(demand)] * use.amount / (supply.rates[use.resource] * use.efficiency)
            busy[use.resource] = busy.get(use.resource, 0.0) + seconds
    return busy


def least_seconds(demands: Iterable[Demand], supply: Supply) -> float:
    """No step is shorter than its busiest resource needs, nor than its longest op."""
    listed = list(demands)
    longest = max((demand.alone(supply) for demand in listed), default=0.0)
    return max([longest, *busy_seconds(listed, supply).values()])


def longest_chain(ops: Sequence[Op], demands: Sequence[Demand], supply: Supply) -> float:
    """Seconds of the step if no op slowed another and no rank kept one waiting; `demands[i]` is what op i needs.

    No played step is shorter: an op begins when the last of what it waits for has ended, so no begin or end is earlier
    than without the others (maxima and sums of times that are none of them earlier), and none lasts less than alone.
    """
    alone = {id(demand): demand.alone(supply) for demand in {id(each): each for each in demands}.values()}
    ends: list[float] = []
    last: dict[str, float] = {}  # when the stream's op before it ends
    host = 0.0
    for op, demand in zip(ops, demands, strict=True):
        for other in op.host_waits:
            host = max(host, ends[other])
        host += demand.host
        begin = max(host, last.get(op.stream, 0.0))
        for other in op.after:
            begin = max(begin, ends[other])
        end = last[op.stream] = begin + alone[id(demand)]
        ends.append(end)
    return max(ends, default=0.0)
