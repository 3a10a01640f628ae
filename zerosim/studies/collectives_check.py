"""What collectives of many sizes take on a machine that does nothing else, told as nccl-tests tells it.

Sizes are those of nccl-tests: the gathered buffer of an all-gather, the input of a reduce-scatter, the whole buffer of
an all-to-all; times are out of place; algbw = size / time and busbw = algbw x the factor of the collective, in GB/s of
1e9 bytes (nccl-tests, doc/PERFORMANCE.md). All sizes and kinds of one group are priced at once. Rule: no formula stands
here; what a collective takes is asked of `costs`, and what limits it is what limits its flow on an idle machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from zerosim.costs import Priced, price
from zerosim.costs.bounds import bus_factor
from zerosim.errors import InputError, Problem
from zerosim.report.calibration import measured
from zerosim.report.words import counted
from zerosim.resources import Demand, Supply
from zerosim.spec.calibration import Calibration
from zerosim.spec.topology import Topology
from zerosim.step import Collective, CollectiveKind, Group, Op, Step, communicator

KINDS: tuple[CollectiveKind, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv",
)  # fmt: skip
USUAL = tuple(kind for kind in KINDS if kind != "reduce")
_GROUP = "group"
_GB, _US = 1e9, 1e-6


class Row(NamedTuple):
    """A line of a sweep. `limited_by` names the resource, `label` is what a person calls it."""

    collective: CollectiveKind
    gpus: int
    size_bytes: int
    algorithm: str
    time_us: float
    algbw: float
    busbw: float
    limited_by: str
    label: str

    @property
    def seconds(self) -> float:
        return self.time_us * _US

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


class Sweep(NamedTuple):
    """The rows of one group, where it lies, and what was assumed of its machine."""

    rows: tuple[Row, ...]
    gpus: int
    nodes: int
    siblings: int  # groups like this one that run at once
    notes: tuple[str, ...]


def sweeps(
    topology: Topology,
    kinds: Sequence[CollectiveKind],
    sizes: Sequence[int],
    gpus: Sequence[int] = (),
    nodes: int | None = None,
    per_node: int | None = None,
    calibration: Calibration | None = None,
) -> tuple[Sweep, ...]:
    """A sweep for each number of GPUs; of all of them where none is said, and of none where these are only one."""
    machines = _selected(topology, gpus, nodes)
    groups = [(machine, _group(machine, per_node)) for machine in machines]
    return tuple(
        _sweep(machine, group, kinds, sizes, partial(price, calibration=calibration, whole=topology))
        for machine, group in groups
        if group.size > 1
    )


def examined(topology: Topology, swept: Sequence[Sweep], nodes: int | None = None) -> Topology:
    """The topology with as many whole nodes as were asked for, or as it has where they are fewer."""
    return topology.select(nodes=nodes or max([len(topology.nodes), *(sweep.nodes for sweep in swept)]))


def _selected(topology: Topology, gpus: Sequence[int], nodes: int | None) -> list[Topology]:
    """The part of the topology that each count asks for, or all counts that are too many."""
    if not gpus:
        return [topology.select(nodes=nodes)]
    grows = nodes is None and topology.repeatable and bool(topology.nodes[0].ports)
    most = len(topology.select(nodes=nodes).gpus)
    wrong = [count for count in gpus if count > most and not grows]
    if wrong:
        where = f"{counted(nodes, 'node')} of " if nodes else ""
        has = f"at most {most}, as there are in {where}{topology.name}"
        raise InputError([Problem("--gpus", "", str(count), has) for count in wrong])
    return [topology.select(nodes=nodes, gpus=count) for count in gpus]


def _group(machine: Topology, per_node: int | None) -> Group:
    """All ranks; or of each node `per_node`, spread evenly, as replicas of hybrid sharding have."""
    world, hosts = len(machine.gpus), len(machine.nodes)
    if per_node is None:
        return Group(_GROUP, world)
    held = {len(node.gpus) for node in machine.nodes}
    fewest = min(held)
    if len(held) > 1 or fewest % per_node:
        expected = "a part of the GPUs of each node without rest, all nodes alike"
        found = f"{per_node} of {' and '.join(map(str, sorted(held)))} GPUs"
        raise InputError([Problem("--per-node", "", found, expected)])
    if per_node * hosts == 1:
        raise InputError([Problem("--per-node", "", "1 on 1 node", "2 or more in a group, as with --nodes 2")])
    return Group(_GROUP, per_node * hosts, fewest // per_node)


def _sweep(
    machine: Topology,
    group: Group,
    kinds: Sequence[CollectiveKind],
    sizes: Sequence[int],
    pricing: Callable[..., Priced],
) -> Sweep:
    asked = [(kind, size) for kind in kinds for size in sizes]
    priced = pricing([_program(asked, group)], machine)
    # Groups of unequal nodes differ: the class that takes longest tells.
    slowest = [max(each, key=lambda d: d.alone(priced.supply)) for each in zip(*priced.demands.values(), strict=True)]
    rows = (_row(*what, group.size, demand, priced.supply) for what, demand in zip(asked, slowest, strict=True))
    nodes = len(machine.nodes)
    told = measured(priced.calibration, f"{counted(group.size, 'GPU')} on {counted(nodes, 'node')}")
    notes = (*told, *machine.notes, *priced.notes)
    return Sweep(tuple(rows), group.size, nodes, group.stride, tuple(dict.fromkeys(notes)))


def _program(asked: Sequence[tuple[CollectiveKind, int]], group: Group) -> Step:
    """One collective after the other."""
    works = (Collective(_priced_as(kind, group.size), size, "uint8", _GROUP) for kind, size in asked)
    ops = tuple(Op(number, work.kind, communicator(_GROUP), work) for number, work in enumerate(works))
    return Step(ops, (), frozenset(), {_GROUP: group}, 1)


def _priced_as(kind: CollectiveKind, size: int) -> CollectiveKind:
    """In nccl-tests each rank sends to the next and receives from the one before: a pair sends both ways."""
    return "exchange" if kind == "send_recv" and size == 2 else kind


def _row(kind: CollectiveKind, size: int, gpus: int, demand: Demand, supply: Supply) -> Row:
    seconds, limit = demand.alone(supply), demand.bottleneck(supply)
    algbw = size / seconds / _GB
    return Row(
        collective=kind,
        gpus=gpus,
        size_bytes=size,
        algorithm=demand.algorithm,
        time_us=seconds / _US,
        algbw=algbw,
        busbw=algbw * bus_factor(kind, gpus),
        limited_by=limit,
        label=supply.labels.get(limit, limit),
    )
