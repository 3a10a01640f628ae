"""The front of this room: a program and a machine in, demands and supply out.

Equal work issued in an equal way is one `Demand` object, found once, so that pricing 40,000 ops costs what their
distinct kinds cost, and 16,384 GPUs what 8 cost. A collective has the same demand for every class that takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zerosim.catalog import using
from zerosim.costs import compute, processor, transfers
from zerosim.costs.calibrated import calibrated, told
from zerosim.costs.collectives import collective
from zerosim.costs.findings import Floor, Load, findings, floors
from zerosim.costs.groups import Layout, Spread, layout, members_of
from zerosim.costs.host import issue_seconds
from zerosim.costs.machine import Machine
from zerosim.costs.measured import Curves
from zerosim.costs.site import DEFAULT_LAUNCH, Site, survey
from zerosim.costs.supply import supply
from zerosim.errors import Finding
from zerosim.resources import Calibrated, Demand, RankClass, Supply
from zerosim.spec.calibration import Calibration
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Topology
from zerosim.step import Attention, Collective, Group, HostCalls, HostCompute, Matmul, Pass, Step, Transfer, Work

Kind = tuple[Work | None, HostCalls]  # what a demand depends on, in one class


class Priced(NamedTuple):
    """What the engine plays. `demands[c][i]` is what op i of the program of class c needs there.

    `floors` are told of a step that is shorter; `calibration`: measured numbers, and which of them the step used.
    """

    classes: tuple[RankClass, ...]
    demands: dict[str, list[Demand]]
    supply: Supply
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    floors: tuple[Floor, ...] = ()
    calibration: tuple[Calibrated, ...] = ()


class Change(NamedTuple):
    """What becomes of a machine before it is priced, and which constants stand for the catalogue's then."""

    machine: Callable[[Topology], Topology]
    constants: Callable[[], Mapping[str, float]]


@dataclass(slots=True)
class _Pricer:
    """Demands found so far, by what they are for."""

    groups: Mapping[str, Group]
    layout: Layout
    curves: Curves | None = None  # of collectives, measured
    supply: Supply | None = None
    spreads: dict[tuple[str, int], Spread] = field(default_factory=dict)  # by group and lowest rank of the instance
    shared: dict[tuple[Work, HostCalls, int], Demand] = field(default_factory=dict)  # collectives, as above

    def demand(self, work: Work | None, calls: HostCalls, site: Site) -> Demand:
        if isinstance(work, Collective):
            spread, lowest = self.spread(work.group, site)
            key = (work, calls, lowest)
            if key not in self.shared:
                found = collective(work, spread)
                if self.curves and self.supply:
                    found = self.curves.corrected(found, work, spread, self.supply)
                self.shared[key] = found._replace(host=issue_seconds(calls))
            return self.shared[key]
        bare = Demand() if work is None else _TABLE[type(work)](work, site)
        return bare._replace(host=issue_seconds(calls))

    def spread(self, group: str, site: Site) -> tuple[Spread, int]:
        """The instance of a group in which a site is, and its lowest rank."""
        lowest = members_of(self.groups[group], site.rank, self.layout.machine.world)[0]
        key = (group, lowest)
        if key not in self.spreads:
            self.spreads[key] = self.layout.spread(self.groups[group], lowest)
        return self.spreads[key], lowest

    def used(self, kinds: Iterable[Kind], site: Site) -> list[Spread]:
        """The groups in which a site takes part: each has a communicator."""
        groups = dict.fromkeys(work.group for work, _ in kinds if isinstance(work, Collective))
        return [self.spread(group, site)[0] for group in groups]


_TABLE: Mapping[type, Callable[..., Demand]] = {
    Matmul: compute.matmul,
    Attention: compute.attention,
    Pass: compute.memory_pass,
    Transfer: transfers.transfer,
    HostCompute: processor.host_compute,
}


def price(
    steps: Sequence[Step],
    topology: Topology,
    launch: Launch = DEFAULT_LAUNCH,
    calibration: Calibration | None = None,
    whole: Topology | None = None,
    change: Change | None = None,
) -> Priced:
    """Demands of every op for every class of ranks, and the supply of the machine. Rank r runs `steps[r mod n]`.

    With a calibration its numbers stand for the catalogue's; `whole` is the machine of which `topology` is a part.
    With a change what is priced is the machine so changed; the calibration is of the machine as it was.
    """
    if calibration is None:
        return _changed(steps, topology, launch, None, change)
    fitted = calibrated(calibration, topology, whole or topology, launch)
    with using(fitted.constants):
        priced = _changed(steps, fitted.topology, launch, fitted.curves, change)
    works = {op.work for step in steps for op in step.ops if op.work is not None}
    return priced._replace(calibration=told(fitted, works))


def _changed(
    steps: Sequence[Step], topology: Topology, launch: Launch, curves: Curves | None, change: Change | None
) -> Priced:
    if change is None:
        return _priced(steps, topology, launch, curves)
    if curves is not None:
        curves.move()
    with using(change.constants()):
        return _priced(steps, change.machine(topology), launch, curves)


def _priced(steps: Sequence[Step], topology: Topology, launch: Launch, curves: Curves | None = None) -> Priced:
    machine = Machine(topology)
    classes, surveyed = survey(machine, launch, len(steps))
    programs = [_Kinds.of(step) for step in steps]
    loads = [_load(each, site, programs[each.program]) for each, site in zip(classes, surveyed, strict=True)]
    sites = tuple(load.site for load in loads)
    groups = {name: group for step in steps for name, group in step.groups.items()}
    pricer = _Pricer(groups, layout(machine, classes, sites, len(steps)), curves)
    spreads = [pricer.used(programs[each.program].kinds, site) for each, site in zip(classes, sites, strict=True)]
    given = pricer.supply = supply(topology, sites, spreads)
    demands = {}
    for named, site in zip(classes, sites, strict=True):
        kinds, kind_of = programs[named.program]
        found = [pricer.demand(work, calls, site) for work, calls in kinds]
        demands[named.name] = [found[kind] for kind in kind_of]
    return Priced(
        classes=classes,
        demands=demands,
        supply=given,
        notes=_notes([kind for each in programs for kind in each.kinds], sites, [s for each in spreads for s in each]),
        findings=findings(loads, machine, launch, given),
        floors=floors(loads),
    )


class _Kinds(NamedTuple):
    """What the demands of a program depend on, each once, and which of them each op is."""

    kinds: Sequence[Kind]
    kind_of: Sequence[int]

    @classmethod
    def of(cls, step: Step) -> _Kinds:
        kinds: dict[Kind, int] = {}
        kind_of = [kinds.setdefault((op.work, op.host), len(kinds)) for op in step.ops]
        return cls(list(kinds), kind_of)


def _load(ranks: RankClass, site: Site, program: _Kinds) -> Load:
    """What a class does in a step; its site knows what is written to the drives."""
    works = _works(*program)
    return Load(ranks, replace(site, written=site.local * _written(works)), works)


def _works(kinds: Iterable[Kind], kind_of: Iterable[int]) -> Mapping[Work, int]:
    """Each work of a program, and how often it is in it."""
    times = Counter(kind_of)
    works: Counter[Work] = Counter()
    for number, (work, _) in enumerate(kinds):
        if work is not None:
            works[work] += times[number]
    return works


def _written(works: Mapping[Work, int]) -> float:
    """Bytes that a rank writes to the drives in a step."""
    return sum(
        times * work.bytes for work, times in works.items() if isinstance(work, Transfer) and work.target == "nvme"
    )


def _notes(kinds: Iterable[Kind], sites: Sequence[Site], spreads: Sequence[Spread]) -> tuple[str, ...]:
    """What was assumed, one sentence each."""
    dtypes = {work.dtype for work, _ in kinds if isinstance(work, Matmul | Attention)}
    notes = []
    for name, peaks in sorted({site.gpu.name: site.gpu.peak_flops for site in sites}.items()):
        notes += [
            f"{name} has no {dtype} arithmetic; it is priced at the fp32 rate"
            for dtype in sorted(dtypes - {"fp32", "tf32"})
            if not peaks.get(dtype)
        ]
    if "tf32" in dtypes:
        notes.append("products multiply in TF32, sums and the rest of fp32 training in fp32")
    elif "fp32" in dtypes:
        notes.append("fp32 matrix products run without TF32, as torch does by default")
    if any(reach.leaf.part for spread in spreads for reach in spread.reaches):
        notes.append("nodes are taken to be placed without regard to leaf switches")
    if any(reach.inside.medium == "host" for spread in spreads for reach in spread.reaches):
        notes.append("GPUs without peer access exchange data through host memory")
    return tuple(notes)
