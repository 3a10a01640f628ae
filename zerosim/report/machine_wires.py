"""Words for the wires of a server, and how busy they were."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from zerosim.report.machine import Wire
from zerosim.report.machine_heat import Busy, hottest, percent
from zerosim.report.machine_marks import wide
from zerosim.report.machine_tree import Branch
from zerosim.units import show_rate

SHOWN = 4  # wires of a kind that are named


def label(wire: Wire, several: int, share: float | None, room: float) -> Iterator[str]:
    """The lines beside a wire, or beside so many equal ones: its name and rate, or both rates, and how busy it was.

    Where there is no room for all of a line, its last word is left out.
    """
    for line in _lines(wire, several, share):
        yield line if wide(line) <= room else line.rpartition(" ")[0] or line


def _lines(wire: Wire, several: int, share: float | None) -> Iterator[str]:
    each = " each" if several > 1 else ""
    if wire.rate == wire.back:
        if wire.word or each:
            yield f"{wire.word}{each}".strip()
        yield show_rate(wire.rate)
    else:
        there, back = ("read", "write") if wire.kind == "nvme" else ("there", "back")
        yield f"{show_rate(wire.rate)} {there}"
        yield f"{show_rate(wire.back)} {back}"
    if share is not None:
        yield percent(share)


def share_of(branch: Branch, busy: Busy, near: Collection[int]) -> float | None:
    """How busy the wire up from a part was; `near`: the classes of the GPUs around it, for a port of all of its server.

    A port's own slot is no resource of a run: it carries what the port does.
    """
    match branch.kind:
        case "gpu":
            return hottest(busy, "pcie", branch.marks)
        case "pcie_switch":
            return max(_uplinks(branch, busy, 1), default=None)
        case "dram" | "nvme":
            return hottest(busy, branch.kind, near)
        case "nic" if branch.wire is not None and branch.part.rate:
            share = hottest(busy, "nic", near)
            return None if share is None else min(1.0, share * branch.part.rate / branch.wire.rate)
        case _:
            return None


def _uplinks(branch: Branch, busy: Busy, level: int) -> Iterator[float]:
    """Of a switch: `uplink` for the GPUs that hang on it, `uplink2` for those of the switches that do, ..."""
    name = "uplink" if level == 1 else f"uplink{level}"
    for each in branch.below:
        share = hottest(busy, name, each.marks) if each.kind == "gpu" else None
        if share is not None:
            yield share
        elif each.kind == "pcie_switch":
            yield from _uplinks(each, busy, level + 1)


def in_words(wires: Sequence[Wire]) -> Iterator[str]:
    """Wires that are not drawn, a line for each kind."""
    for kind in dict.fromkeys(wire.kind for wire in wires):
        ends = [f"{wire.a} – {wire.b} {show_rate(wire.rate)}" for wire in wires if wire.kind == kind]
        more = f" and {len(ends) - SHOWN} more" if len(ends) > SHOWN else ""
        yield f"also joined ({kind}): {', '.join(ends[:SHOWN])}{more}"
