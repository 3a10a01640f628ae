"""Symmetry is a promise: played by the first rank of each class, works take as long as with every rank played apart, on
machines whose ranks are unequal, and where traffic meets on switches, sockets, host memory, leaves and spines.

All ranks of a class are taken to be as busy as the busiest of them, so what is compared is when the last one ends.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import machine
from tests.together import GB, collective, priced
from zerosim.costs import Priced
from zerosim.engine import play
from zerosim.spec.topology import Topology
from zerosim.step import Op, Step, Transfer, Work, communicator

CPU = {"device": "epyc_7742", "dram": {"capacity": "1 TB"}}
PORTS = {"count": 4, "bandwidth": "100 Gbps", "kind": "infiniband"}
TCP = {"count": 1, "bandwidth": "100 Gbps", "kind": "ethernet"}
CONSUMER = {"device": "rtx4090", "p2p": False}
GATHER, SCATTER = collective("all_gather", 4 * GB), collective("reduce_scatter", 2 * GB)
WORKS: tuple[Work, ...] = (GATHER, SCATTER, Transfer(GB, "dram", "gpu"))


def nodes(
    *overrides: dict[str, Any],
    gpu: str | dict[str, Any] = "a100_sxm_80",
    nvlink: dict[str, Any] | None = None,
    nics: dict[str, Any] = PORTS,
    **fabric: Any,
) -> Topology:
    """Four nodes of four GPUs, two behind each of two switches and on each of two sockets; the ports there, too."""
    beside: list[list[int]] = [[0, 1], [2, 3]] if nics["count"] == 4 else [[], []]
    switches = [{"gpus": [2 * s, 2 * s + 1], "nics": beside[s], "socket": s} for s in (0, 1)]
    return machine(
        gpu, 4, 4, nvlink or {"kind": "switch"}, nics,
        pcie={"generation": 4, "switches": switches}, sockets=[CPU] * 2, fabric=fabric, overrides=list(overrides),
    )  # fmt: skip


MACHINES = {
    "equal": nodes(),
    "slow port": nodes({"node": 3, "nics": {"bandwidth": "25 Gbps"}}),
    "port down": nodes({"node": 3, "nics": {"down": [2]}}),
    "lane of four": nodes({"gpu": "1.1", "pcie": {"lanes": 4}}),
    "leaves": nodes({"node": 3, "nics": {"bandwidth": "25 Gbps"}}, kind="fat_tree", leaf_nodes=2, oversubscription=4),
    "uneven leaves": nodes(kind="fat_tree", leaf_nodes=3, oversubscription=4),
    "levels": nodes(kind="rail", leaf_nodes=1, spine_nodes=2, oversubscription=2, spine_oversubscription=4),
    "racks": nodes(nvlink={"kind": "switch", "hosts": 2}, kind="fat_tree", leaf_nodes=2, oversubscription=4),
    "PCIe": nodes(gpu="a100_pcie_80", nvlink={"kind": "none"}),
    "TCP through one port": nodes(nics=TCP),
    "no peer access": nodes(gpu=CONSUMER, nvlink={"kind": "none"}, nics=TCP),
}


def ends(found: Priced) -> list[float]:
    """When each work had ended on all ranks."""
    ops = tuple(
        Op(n, f"op{n}", "copy" if isinstance(work, Transfer) else communicator(f"dp{n}"), work)
        for n, work in enumerate(WORKS)
    )
    timeline = play([Step(ops, (), frozenset(), {}, 1)], found.classes, found.demands, found.supply)
    return [max(spans[op.number].end for spans in timeline.spans.values()) for op in ops]


@pytest.mark.parametrize(("size", "stride"), [(16, 1), (4, 4), (4, 1), (2, 2)])
@pytest.mark.parametrize("name", MACHINES)
def test_representatives_take_what_all_ranks_take(
    name: str, size: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = MACHINES[name]
    together = priced(box, *WORKS, size=size, stride=stride)
    with monkeypatch.context() as patched:
        patched.setattr(Topology, "rank_classes", lambda self: tuple((rank,) for rank in range(len(self.gpus))))
        apart = priced(box, *WORKS, size=size, stride=stride)
    assert len(together.classes) < len(apart.classes) == 16
    assert ends(together) == pytest.approx(ends(apart), rel=1e-6)
