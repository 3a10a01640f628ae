"""Which NVLinks a server template has: from what to what, and what share of a GPU's NVLink lies on each.

Through a switch, all of it; on a mesh, an equal part to every other GPU; in pairs, by how many links join them. The
switch of a rack is shared with other servers (`RACK`). Rule: no rates and no devices here.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from zerosim.spec.figures import Remarks
from zerosim.spec.topology_schema import NvlinkSpec

SWITCH, RACK = "nvswitch0", "rack"  # that of the server; the one that several share, seen from one of them

Wire = tuple[str, str, float]


def wires(said: NvlinkSpec, count: int, remarks: Remarks) -> list[Wire]:
    """From, to, and what share of a GPU's NVLink bandwidth lies on that link; those to the switch of a rack one way."""
    gpus = [f"gpu{index}" for index in range(count)]
    if said.hosts > 1 and said.kind != "switch":
        remarks.wrong(("nvlink", "hosts"), str(said.hosts), "kind: switch, which several servers can share")
    match said.kind:
        case "switch" if said.hosts > 1:
            return [(gpu, RACK, 1.0) for gpu in gpus]
        case "switch":
            return [(a, b, 1.0) for gpu in gpus for a, b in permutations((gpu, SWITCH))]
        case "mesh":
            return [(a, b, 1.0 / (count - 1)) for a, b in permutations(gpus, 2)]
        case _:
            return _pairs(said, count, remarks)


def _pairs(said: NvlinkSpec, count: int, remarks: Remarks) -> list[Wire]:
    pairs = said.pairs if said.pairs is not None else [[first, first + 1] for first in range(0, count - 1, 2)]
    links: Counter[int] = Counter()
    for index, (a, b, *number) in enumerate(pairs):
        at = ("nvlink", "pairs", index)
        if number and number[0] < 1:
            remarks.wrong((*at, 2), str(number[0]), "at least 1 link")
        elif a == b or max(a, b) >= count:
            remarks.wrong(at, f"[{a}, {b}]", f"two different GPUs from 0 to {count - 1}")
        elif any({a, b} == set(other[:2]) for other in pairs[:index]):
            remarks.wrong(at, f"[{a}, {b}] again", "each pair once; a third number is how many links join it")
        links.update(dict.fromkeys((a, b), number[0] if number else 1))
    most = max(links.values(), default=0) or 1
    shares = [(f"gpu{a}", f"gpu{b}", (number[0] if number else 1) / most) for a, b, *number in pairs]
    return [(a, b, share) for one, other, share in shares for a, b in permutations((one, other))]
