"""The front of this room: a program and a machine in, demands and supply out.

Equal work issued in an equal way is one `Demand` object, found once, so that pricing 40,000 ops costs what their
distinct kinds cost, and 16,384 GPUs what 8 cost. A collective has the same demand for every class that takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zerosim.costs import compute, transfers
from zerosim.costs.collectives import collective
from zerosim.costs.groups import Layout, Spread, layout, members_of
from zerosim.costs.host import issue_seconds
from zerosim.costs.machine import Machine
from zerosim.costs.site import Site, survey
from zerosim.costs.supply import supply
from zerosim.resources import Demand, RankClass, Supply
from zerosim.spec.topology import Topology
from zerosim.step import Attention, Collective, Group, HostCalls, HostCompute, Matmul, Pass, Step, Transfer, Work

Kind = tuple[Work | None, HostCalls]  # what a demand depends on, in one class


class Priced(NamedTuple):
    """What the engine plays. `demands[c][i]` is what op i of the step needs in class c."""

    classes: tuple[RankClass, ...]
    demands: dict[str, list[Demand]]
    supply: Supply
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Pricer:
    """Demands found so far, by what they are for."""

    groups: Mapping[str, Group]
    layout: Layout
    spreads: dict[tuple[str, int], Spread] = field(default_factory=dict)  # by group and lowest rank of the instance
    shared: dict[tuple[Work, HostCalls, int], Demand] = field(default_factory=dict)  # collectives, as above

    def demand(self, work: Work | None, calls: HostCalls, site: Site) -> Demand:
        if isinstance(work, Collective):
            lowest = members_of(self.groups[work.group], site.rank, self.layout.machine.world)[0]
            key = (work, calls, lowest)
            if key not in self.shared:
                found = collective(work, self.spread(work.group, lowest))
                self.shared[key] = found._replace(host=issue_seconds(calls))
            return self.shared[key]
        bare = Demand() if work is None else _TABLE[type(work)](work, site)
        return bare._replace(host=issue_seconds(calls))

    def spread(self, group: str, lowest: int) -> Spread:
        key = (group, lowest)
        if key not in self.spreads:
            self.spreads[key] = self.layout.spread(self.groups[group], lowest)
        return self.spreads[key]


_TABLE: Mapping[type, Callable[..., Demand]] = {
    Matmul: compute.matmul,
    Attention: compute.attention,
    Pass: compute.memory_pass,
    Transfer: transfers.transfer,
    HostCompute: transfers.host_compute,
}


def price(step: Step, topology: Topology) -> Priced:
    """Demands of every op for every class of ranks, and the supply of the machine."""
    machine = Machine(topology)
    classes, sites = survey(machine)
    pricer = _Pricer(step.groups, layout(machine, classes, sites))
    kinds: dict[Kind, int] = {}
    kind_of = [kinds.setdefault((op.work, op.host), len(kinds)) for op in step.ops]
    demands = {}
    for named, site in zip(classes, sites, strict=True):
        found = [pricer.demand(work, calls, site) for work, calls in kinds]
        demands[named.name] = [found[kind] for kind in kind_of]
    of_first = {name: spread for (name, lowest), spread in sorted(pricer.spreads.items(), reverse=True)}
    return Priced(
        classes=classes,
        demands=demands,
        supply=supply(topology, sites, of_first.values()),
        notes=_notes(kinds, sites, list(of_first.values())),
    )


def _notes(kinds: Iterable[Kind], sites: Sequence[Site], spreads: Sequence[Spread]) -> tuple[str, ...]:
    """What was assumed, one sentence each."""
    dtypes = {work.dtype for work, _ in kinds if isinstance(work, Matmul | Attention)}
    notes = []
    for name, peaks in sorted({site.gpu.name: site.gpu.peak_flops for site in sites}.items()):
        notes += [
            f"{name} has no {dtype} arithmetic; it is priced at the fp32 rate"
            for dtype in sorted(dtypes - {"fp32"})
            if not peaks.get(dtype)
        ]
    if "fp32" in dtypes:
        notes.append("fp32 matrix products run without TF32, as torch does by default")
    if any(reach.outside for spread in spreads for reach in spread.reaches):
        notes.append("nodes are taken to be placed without regard to leaf switches")
    if any(reach.inside.medium == "host" for spread in spreads for reach in spread.reaches):
        notes.append("GPUs without peer access exchange data through host memory")
    return tuple(notes)
