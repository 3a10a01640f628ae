"""What was moved and how busy each resource was: totals over all flows that were carried.

Every class names its own resources, so the flows of all classes are summed; a collective is one flow for all that take
part in it, and the demand of the first of them carries it. `busy_seconds` is how long a resource would be busy with its
uses alone, amount / (rate × efficiency); what a flow merely holds (the SMs of a collective) is not counted: it does no
work there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from zerosim.resources import Demand
from zerosim.step import Collective
from zerosim.timeline import Timeline


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One resource in one step: amount, the seconds it needs for it, and their share of the step."""

    bytes_or_flop: float
    busy_seconds: float
    utilization: float
    unit: str
    label: str


@dataclass(frozen=True, slots=True)
class Volume:
    """Collectives of one kind, of one rank in one step; bytes as in nccl-tests: the whole buffer."""

    count: int
    bytes: int


def utilization(timeline: Timeline) -> dict[str, ResourceUse]:
    """Every resource that was used, busiest first."""
    supply, step = timeline.supply, timeline.makespan
    amounts: defaultdict[str, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
    for demand, times in _carried(timeline):
        for resource, amount, efficiency, _ in demand.uses:
            amounts[resource] += times * amount
            seconds[resource] += times * amount / (supply.rates[resource] * efficiency)
    return {
        name: ResourceUse(
            bytes_or_flop=amounts[name],
            busy_seconds=seconds[name],
            utilization=seconds[name] / step if step else 0.0,
            unit=supply.units.get(name, "").removesuffix("/s"),
            label=supply.labels.get(name, name),
        )
        for name in sorted(amounts, key=lambda name: (-seconds[name], name))
    }


def _carried(timeline: Timeline) -> Iterator[tuple[Demand, int]]:
    """Each demand and how many flows had it. Equal ops share one `Demand` object, so counting by identity is enough."""
    together = timeline.collectives() if len(timeline.classes) > 1 else {}
    carried = {call for call, others in together.items() if call != others[0]}  # by another class
    for rank_class in timeline.classes:
        name, demands = rank_class.name, timeline.demands[rank_class.name]
        own = [each for number, each in enumerate(demands) if (name, number) not in carried] if carried else demands
        by_identity = {id(demand): demand for demand in own}
        yield from ((by_identity[key], times) for key, times in Counter(map(id, own)).items())


def collectives(timeline: Timeline) -> dict[str, Volume]:
    """Count and bytes by kind, per rank and step."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for op in timeline.step.ops:
        if isinstance(op.work, Collective):
            sizes[op.work.kind].append(op.work.bytes)
    return {kind: Volume(len(each), sum(each)) for kind, each in sizes.items()}
