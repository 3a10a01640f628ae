"""The PCIe switches of a node template as a list: each with its place in the file and the switch that it hangs on.

A switch hangs on a socket, or stands in the list of another one and hangs on that. Rule: no rates and no devices here;
what hangs where, and whether a GPU or a port was named twice, is all that is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from zerosim.spec.document import Path
from zerosim.spec.figures import Remarks
from zerosim.spec.topology_schema import SocketSpec, SwitchSpec


class Branch(NamedTuple):
    """A switch: what is said of it and where, and the number (in the list of all) of the switch above it."""

    spec: SwitchSpec
    path: Path
    above: int | None

    @property
    def number(self) -> str:
        """As a reader counts it: 1, and 1.0 for the first switch that hangs on it."""
        return ".".join(str(part) for part in self.path if isinstance(part, int))


def branches(switches: Sequence[SwitchSpec]) -> tuple[Branch, ...]:
    """All switches, each before those that hang on it."""
    return tuple(_below(switches, ("pcie", "switches"), None, 0))


def _below(switches: Sequence[SwitchSpec], at: Path, above: int | None, first: int) -> Iterator[Branch]:
    for index, spec in enumerate(switches):
        path = (*at, index)
        yield Branch(spec, path, above)
        hanging = tuple(_below(spec.switches, (*path, "switches"), first, first + 1))
        yield from hanging
        first += 1 + len(hanging)


def holder(tree: Sequence[Branch], key: Literal["gpus", "nics"], index: int) -> int | None:
    """The number of the switch that a GPU or port hangs on; None where none names it."""
    return next((number for number, branch in enumerate(tree) if index in getattr(branch.spec, key)), None)


def check(
    tree: Sequence[Branch], sockets: Sequence[SocketSpec], key: Literal["gpus", "nics"], count: int, remarks: Remarks
) -> None:
    """Each GPU (or port) that a switch or a socket names exists, and is named once."""
    what = {"gpus": "GPU", "nics": "NIC"}[key]
    seen: dict[int, str] = {}
    named: list[tuple[Path, str, tuple[int, ...]]] = [
        *((branch.path, f"switch {branch.number}", getattr(branch.spec, key)) for branch in tree),
        *((("sockets", number), f"socket {number}", getattr(cpu, key)) for number, cpu in enumerate(sockets)),
    ]
    for path, holder_name, indices in named:
        for place, index in enumerate(indices):
            at = (*path, key, place)
            lost = index >= count and remarks.over  # an override may have fewer than the template
            if not 0 <= index < count and not lost:
                remarks.wrong(at, f"{what} {index}", f"a {what} from 0 to {count - 1}" if count else f"no {what}")
            elif index in seen:
                where = "on one switch" if path[0] == "pcie" else "on one socket or switch"
                remarks.wrong(at, f"{what} {index}, which {seen[index]} has", f"each {what} {where}")
            seen.setdefault(index, holder_name)
