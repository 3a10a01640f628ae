"""What hangs on what inside a server: from its sockets down through PCIe switches to GPUs, ports and drives.

A breadth-first tree, so that the picture needs no crossing lines; what has no socket above it is a root of its own.
Links that are no part of the tree (NVLink, between sockets, a second way) are told beside it. Equal neighbours that
hang on the same thing are drawn once: ports and drives always, GPUs where there are too many to draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerosim.report.machine import Part, Server, Wire

MOST_GPUS = 16  # drawn one by one
LEAVES = ("nic", "nvme", "dram")  # of which equal ones are one box
ENDS = {"gpu", *LEAVES}  # nothing hangs on these
ORDER = {kind: place for place, kind in enumerate(("pcie_switch", "gpu", "nic", "dram", "nvme"))}
UPWARD = {"pcie", "c2c", "nvme", "dram"}


class Branch(NamedTuple):
    """Equal parts drawn as one, the wire up from each (none: a root), and what hangs on it."""

    parts: tuple[Part, ...]
    wire: Wire | None
    below: tuple[Branch, ...] = ()

    @property
    def part(self) -> Part:
        return self.parts[0]

    @property
    def kind(self) -> str:
        return self.part.kind

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    def walk(self) -> Iterator[Branch]:
        yield self
        for each in self.below:
            yield from each.walk()

    @property
    def marks(self) -> frozenset[int]:
        """The classes of the GPUs on it."""
        return frozenset(part.mark for each in self.walk() for part in each.parts if part.mark is not None)


class Tree(NamedTuple):
    """The roots in order, and the wires that are no part of it, each pair once."""

    roots: tuple[Branch, ...]
    beside: tuple[Wire, ...]


def tree_of(server: Server) -> Tree:
    """The tree of a server, equal neighbours joined."""
    kinds = {part.name: part.kind for part in server.parts}
    above = _parents(server, kinds)
    below: dict[str, list[Part]] = {}
    for part in sorted(server.parts, key=lambda part: ORDER.get(part.kind, -1)):
        if part.name in above:
            below.setdefault(_other(above[part.name], part.name), []).append(part)
    crowded = sum(part.kind == "gpu" for part in server.parts) > MOST_GPUS

    def grown(part: Part) -> Branch:
        return Branch(
            (part,), above.get(part.name), _joined([grown(each) for each in below.get(part.name, ())], crowded)
        )

    tops = [part for part in server.parts if part.name not in above and part.kind != "nvswitch"]
    tops.sort(key=lambda part: -1 if part.kind == "socket" else ORDER.get(part.kind, 0))
    used = {id(wire) for wire in above.values()}
    roots = _joined([grown(part) for part in tops], crowded)
    return Tree(roots, tuple(wire for wire in server.wires if id(wire) not in used))


def _parents(server: Server, kinds: dict[str, str]) -> dict[str, Wire]:
    """The wire upward of each part that has one, by the shortest way from a socket."""
    ways: dict[str, list[Wire]] = {}
    for wire in server.wires:
        if wire.kind in UPWARD:
            ways.setdefault(wire.a, []).append(wire)
            ways.setdefault(wire.b, []).append(wire)
    found: dict[str, Wire] = {}
    seen: set[str] = set()
    sockets = [name for name, kind in kinds.items() if kind == "socket"]
    for first in (sockets, *([name] for name, kind in kinds.items() if kind == "pcie_switch")):
        layer = [name for name in first if name not in seen]  # a switch that no socket reaches leads its own tree
        while layer:
            seen.update(layer)
            following: list[str] = []
            for name in layer:
                for wire in ways.get(name, ()) if kinds[name] not in ENDS else ():
                    other = _other(wire, name)
                    if other not in seen and other not in found and kinds[other] != "socket":
                        found[other] = wire
                        following.append(other)
            layer = following
    return found


def _other(wire: Wire, name: str) -> str:
    return wire.b if wire.a == name else wire.a


def _joined(branches: Sequence[Branch], crowded: bool) -> tuple[Branch, ...]:
    """Neighbours of one shape as one."""
    out: list[Branch] = []
    for branch in branches:
        alike = branch.kind in LEAVES or (crowded and branch.kind != "socket")
        if out and alike and _shape(out[-1]) == _shape(branch):
            out[-1] = _merged(out[-1], branch)
        else:
            out.append(branch)
    return tuple(out)


def _shape(branch: Branch) -> tuple[object, ...]:
    part, wire = branch.part, branch.wire
    hung = (wire.kind, wire.rate, wire.back, wire.word) if wire else None
    return (
        part._replace(name=""),
        hung,
        tuple((len(each.parts) // len(branch.parts), _shape(each)) for each in branch.below),
    )


def _merged(one: Branch, other: Branch) -> Branch:
    below = tuple(_merged(a, b) for a, b in zip(one.below, other.below, strict=True))
    return Branch((*one.parts, *other.parts), one.wire, below)
