"""What files cost beside the way of their bytes: the process that handles them, and a file system that nodes share.

torch.save and torch.load are one process a rank, which checksums and copies far below the rate of the drives
(catalogue group `files`): eight ranks write eight times as fast as one until the drives are full. Requests are ops on
the streams READ and WRITE; those between host memory and host memory go out to a shared file system. How long the
caches of drives last is told by what node 0 writes, where rank 0 is.

Rank 0 may have ops of its own. It is then a class of one beside its likes: what a node shares is divided between the
two by ranks, and what is a GPU's own is rank 0's own as well (`pcie.d2h.rank 0`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from zerosim.catalog import constant
from zerosim.costs.drives import Drives
from zerosim.costs.price import Priced
from zerosim.resources import Demand, RankClass, Supply, Use
from zerosim.spec.topology import Drive, Topology
from zerosim.step import READ, WRITE, Collective, Op, Step, Transfer, Work
from zerosim.units import show_rate

FIRST = "rank 0"
SHARED = "storage"
_ALIKE = 1e-9  # relative: rates that differ by rounding only


class FileOps(NamedTuple):
    """Ops that are not like others: only rank 0's; read once for all ranks of a node; copied by no process; read out of
    the page cache."""

    first: frozenset[int] = frozenset()
    once: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()
    cached: frozenset[int] = frozenset()


def with_files(priced: Priced, step: Step, topology: Topology, ops: FileOps, shared: float | None) -> Priced:
    """The priced step with files in it; `shared`: bytes/s of the file system of all nodes, None without one."""
    pricing = _Files(step, topology, ops, len(priced.classes) > 1, _written(step, topology, ops))
    classes, demands = [], dict[str, list[Demand]]()
    for each in priced.classes:
        for part in _parted(each) if ops.first else (each,):
            classes.append(part)
            demands[part.name] = pricing.demands(part, each, priced.demands[each.name])
    found = priced._replace(classes=tuple(classes), demands=demands)
    return found._replace(supply=_supply(priced.supply, demands, shared))


def _parted(each: RankClass) -> Iterator[RankClass]:
    """Rank 0, and the others of its class."""
    if each.ranks[0] != 0:
        yield each
        return
    yield each._replace(name=FIRST, ranks=(0,))
    if len(each.ranks) > 1:
        yield each._replace(ranks=each.ranks[1:])


@dataclass(frozen=True, slots=True)
class _Files:
    """The demands of a class, or of a part of it."""

    step: Step
    topology: Topology
    ops: FileOps
    several: bool  # classes, so that resources carry their names
    written: float  # bytes, to the drives of node 0

    def demands(self, part: RankClass, whole: RankClass, priced: Sequence[Demand]) -> list[Demand]:
        writing = self._writing(part)
        return [
            self._demand(op, part, whole, demand, writing) for op, demand in zip(self.step.ops, priced, strict=True)
        ]

    def _demand(self, op: Op, part: RankClass, whole: RankClass, demand: Demand, writing: float) -> Demand:
        if isinstance(op.work, Collective):  # one flow for all who take part
            return demand
        mine = op.number in self.ops.first
        if mine and part.name != FIRST:
            return Demand()
        uses = tuple(_shared_out(use, part, whole) for use in demand.uses)
        if op.stream in (READ, WRITE) and isinstance(op.work, Transfer):
            uses = (*self._drive_uses(op, op.work, uses, writing), *self._file(op, op.work, part, mine))
        return demand._replace(uses=uses)

    def _drive_uses(self, op: Op, work: Transfer, uses: Sequence[Use], writing: float) -> Iterator[Use]:
        """A file that is read once comes off the drives once."""
        for use in uses:
            once = _is_drive(use) and op.number in self.ops.once
            whole = use._replace(amount=use.amount / use.ranks, ranks=1.0) if once else use
            yield whole._replace(efficiency=writing) if _is_drive(use) and work.target == "nvme" else whole

    def _writing(self, part: RankClass) -> float:
        """What writing reaches of the drives' rate, which is that of reading."""
        drives = drives_of(self.topology, self.topology.host_of(part.ranks[0]))
        return drives.striped * drives.writes(self.written) / drives.read if drives else 1.0

    def _file(self, op: Op, work: Transfer, part: RankClass, mine: bool) -> Iterator[Use]:
        """The process, and the file system where the bytes leave the node."""
        cached = op.number in self.ops.cached
        if not cached and op.number not in self.ops.copied:
            way = "write" if op.stream == WRITE else "read"
            efficiency = 1 / constant("files.checksum") if way == "write" else 1.0
            name = f"file.{way}.{part.name}" if self.several or part.name == FIRST else f"file.{way}"
            yield Use(name, work.bytes, efficiency)
        if work.source == work.target == "dram" and not cached:
            ranks = 1 if mine else self._nodes(part) if op.number in self.ops.once else len(part.ranks)
            yield Use(SHARED, work.bytes * ranks, ranks=ranks)

    def _nodes(self, part: RankClass) -> int:
        return len({self.topology.host_of(rank) for rank in part.ranks})


def drives_of(topology: Topology, host: int) -> Drives | None:
    """The drives of a node, together; None where there is none."""
    return Drives.of([d.figures for d in topology.devices("nvme", host) if isinstance(d.figures, Drive)])


def _is_drive(use: Use) -> bool:
    return use.resource.partition(".")[0] == "nvme"


def _written(step: Step, topology: Topology, ops: FileOps) -> float:
    """Bytes that node 0 writes to its drives: of every rank, or of rank 0 alone."""
    local, written = len(topology.nodes[0].gpus), 0.0
    for op in step.ops:
        if isinstance(op.work, Transfer) and op.work.target == "nvme":
            written += op.work.bytes * (1 if op.number in ops.first else local)
    return written


def _shared_out(use: Use, part: RankClass, whole: RankClass) -> Use:
    """The part of a use that belongs to these ranks; what is one rank's own gets a name of its own for rank 0."""
    each = use.amount / use.ranks
    if part.name == FIRST:
        name = use.resource if use.ranks > 1 else f"{use.resource}.{FIRST}"
        return use._replace(resource=name, amount=each, ranks=1.0)
    if part is whole or use.ranks <= 1:
        return use
    return use._replace(amount=each * (use.ranks - 1), ranks=use.ranks - 1)


def _supply(supply: Supply, demands: Mapping[str, Sequence[Demand]], shared: float | None) -> Supply:
    """The resources that were named here: rank 0's own, processes, the file system."""
    rates, units, labels = dict(supply.rates), dict(supply.units), dict(supply.labels)
    ways = dict(supply.ways)
    used = {use.resource for each in demands.values() for demand in each for use in demand.uses}
    for name in sorted(used - rates.keys()):
        base = name.removesuffix(f".{FIRST}")
        if base in supply.rates:
            rates[name], labels[name] = rates[base], f"{labels[base]}, {FIRST}"
            own = {way: used for (of, way), used in supply.ways.items() if of == base}
            ways |= {(name, way): used._replace(label=f"{used.label}, {FIRST}") for way, used in own.items()}
        elif name == SHARED:
            rates[name] = shared or 0.0
            labels[name] = f"file system {show_rate(rates[name])}"
        else:
            rates[name], labels[name] = _process(name)
        units[name] = "B/s"
    return replace(supply, rates=rates, units=units, labels=labels, ways=ways)


def process_rate(way: str) -> float:
    """Bytes/s of files that a process writes ("write") or reads ("read")."""
    rate = 1e9 * constant(f"files.{way}_gbs")
    return rate / constant("files.checksum") if way == "write" else rate


def _process(name: str) -> tuple[float, str]:
    way = name.split(".")[1]
    verb = "torch.save" if way == "write" else "torch.load"
    return 1e9 * constant(f"files.{way}_gbs"), f"{verb}, {process_rate(way) / 1e9:.2g} GB/s a process"


def limit_words(resource: str, demand: Demand, work: Work | None, supply: Supply, drives: Drives | None) -> str:
    """What a person calls the resource that limits an op; of drives which way, and the rate that they reach together.

    When writing takes most of its time beyond the caches, it is slower on the whole than the mean of the two rates.
    """
    use = next((use for use in demand.uses if use.resource == resource), None)
    if use is None or drives is None or not _is_drive(use):
        return supply.labels.get(resource, resource)
    if not (isinstance(work, Transfer) and work.target == "nvme"):
        return f"NVMe reads, {show_rate(drives.striped * drives.read)}"
    whole = supply.rates[resource] * use.efficiency / drives.striped
    if whole < (drives.write + drives.sustained) / 2 * (1 - _ALIKE):
        return f"NVMe writes, {show_rate(drives.striped * drives.sustained)} (sustained)"
    return f"NVMe writes, {show_rate(drives.striped * drives.write)}"
