"""NVLinks in NCCL topology XML: between GPUs, and of each GPU to NVSwitches.

A link whose other end the machine cannot see ("fffffff:ffff:ff", as in virtual machines and on Blackwell) has the class
of an NVSwitch, and NCCL takes it for one (src/graph/xml.cc). Rule: what is not taken is told once, for all its GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zerosim.spec.importers.seen import MOST_TOLD
from zerosim.spec.importers.xml_tree import Element, whole_number

TO_SWITCH, TO_CPU = "0x068000", "0x068001"  # NCCL's own: kvDictPciClass in src/graph/topo.cc


class Nvlinks(NamedTuple):
    """`pairs` are two GPUs and the links between them, `switch_links` those of each GPU, if any has some."""

    pairs: tuple[tuple[int, int, int], ...]
    switch_links: tuple[int, ...]
    remarks: tuple[str, ...]


def nvlinks(addresses: Sequence[str], gpus: Sequence[Element | None]) -> Nvlinks:
    """The links of the GPUs at these PCI addresses; None is one without an element."""
    places = {address: index for index, address in enumerate(addresses)}
    both: dict[tuple[int, int], int] = {}
    outward = [0] * len(gpus)
    lost: dict[str, list[int]] = {}
    for index, gpu in enumerate(gpus):
        found = _of_gpu(gpu.all("nvlink", "xgmi") if gpu else (), places)
        outward[index] = found.outward
        for why in found.lost:
            lost.setdefault(why, []).append(index)
        for target, count in found.peers.items():
            if target != index:
                ends = min(index, target), max(index, target)
                both[ends] = max(both.get(ends, 0), count)
    pairs = tuple((a, b, count) for (a, b), count in sorted(both.items()))
    remarks = tuple(f"NVLinks of {_named(where)} {why}: not taken" for why, where in lost.items())
    return Nvlinks(pairs, tuple(outward) if any(outward) else (), remarks)


class _Links(NamedTuple):
    peers: Mapping[int, int]
    outward: int
    lost: tuple[str, ...]


def _of_gpu(links: Sequence[Element], places: Mapping[str, int]) -> _Links:
    """The links of a GPU by where they lead."""
    peers: dict[int, int] = {}
    outward = 0
    lost: dict[str, None] = {}
    for link in links:
        target, count = places.get(link.get("target").lower()), whole_number(link, "count", 1)
        kind = link.get("tclass").lower()
        if not 0 < count <= MOST_TOLD:
            lost[f'have the count "{link.get("count")}"'] = None
        elif target is not None:
            peers[target] = peers.get(target, 0) + count
        elif kind.startswith(TO_CPU):
            lost["lead to the CPU"] = None
        elif kind.startswith(TO_SWITCH[:6]):
            outward += count
        else:
            lost[f"lead to {link.get('target')}"] = None
    return _Links(peers, outward, tuple(lost))


def _named(gpus: Sequence[int]) -> str:
    if len(gpus) > 8:
        return f"{len(gpus)} GPUs"
    return f"GPU{'s' if len(gpus) > 1 else ''} {', '.join(map(str, gpus))}"
