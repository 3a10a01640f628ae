"""Collective times against published nccl-tests sweeps.

`ORACLES` are single published figures beside what the model of the field says of them (own data). With ZEROSIM_SHARED
set, the table `measured/collectives.csv` is priced whole and the errors are printed by size and by system: the model
may not be worse than the catalogue owns up to (`collectives.relative_error`). Every row of the table is compared but
for those of `LEFT_OUT`, whose reasons say nothing about how well they would fit.
"""

from __future__ import annotations

import csv
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.costs_machines import collective, machine, seconds, switched
from zerosim.catalog import constants
from zerosim.spec.topology import Topology
from zerosim.step import CollectiveKind

KIB, MIB, GIB = 2**10, 2**20, 2**30
BANDS = {  # largest message: name of the level in the catalogue
    KIB - 1: "below_1_kib",  # the constants were fitted from 1 KiB on: below, a row is the launch and nothing else
    64 * KIB: "up_to_64_kib",
    16 * MIB: "up_to_16_mib",
    math.inf: "above_16_mib",
}
KINDS: Mapping[str, CollectiveKind] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}


class System(NamedTuple):
    """How the table calls a machine (beginnings of its words), and what that machine is."""

    gpu: str
    inside: str
    network: str
    device: str
    island: str  # switch, mesh, pairs, c2c, pcieN, or without peer access hostN (one socket) and socketsN (two)
    nics: Mapping[str, Any] = {}  # read only


_TCP = {"ethernet_100": 1}
SYSTEMS = (
    System("A100-SXM4", "NVLink3+NVSwitch", "none", "a100_sxm_80", "switch"),
    System("A100-SXM4", "NVLink3 4-GPU direct", "none", "a100_sxm_80", "mesh"),
    System("A100-SXM4", "NVLink3+NVSwitch", "EFAv1 4x100Gb", "a100_sxm_80", "switch", {"efa_v1_100": 4}),
    System("H100-SXM5", "NVLink4+NVSwitch", "none", "h100_sxm", "switch"),
    System("H100-SXM5", "NVLink4+NVSwitch", "EFAv2 32x100Gb", "h100_sxm", "switch", {"efa_v2_100": 32}),
    System("H100-SXM5", "NVLink4+NVSwitch", "GPUDirect-TCPXO", "h100_sxm", "switch", {"tcpxo_200": 8}),
    System("H100-SXM5", "NVLink4+NVSwitch", "RoCE 16x200Gb", "h100_sxm", "switch", {"roce_200": 16}),
    System("H200-SXM5", "NVLink4+NVSwitch", "none", "h200_sxm", "switch"),
    System("H200-SXM5", "NVLink4+NVSwitch", "EFAv3 16x200Gb", "h200_sxm", "switch", {"efa_v3_200": 16}),
    System("B200-SXM", "NVLink5+NVSwitch", "none", "b200_sxm", "switch"),
    System("B200-SXM", "NVLink5+NVSwitch", "InfiniBand NDR 8x", "b200_sxm", "switch", {"infiniband_ndr": 8}),
    System("GB200", "NVLink5 NVL72 (one rack", "none", "gb200", "switch"),
    System("GB200", "NVLink5 NVL72", "InfiniBand NDR 4x400Gb/node (2 racks)", "gb200", "rack", {"infiniband_ndr": 64}),
    System("GH200", "none", "Slingshot-11 1x200Gb", "gh200", "c2c", {"slingshot_11": 1}),
    System("GH200", "NVLink4 (4-GPU", "Slingshot-11 4x200Gb (libfabric", "gh200", "c2c", {"slingshot_11": 4}),
    System("H100-PCIe", "NVLink4 bridge", "none", "h100_pcie", "pairs"),
    System("H100-SXM5", "none", "InfiniBand NDR 4x400Gb (tree; one", "h100_sxm", "pcie5", {"infiniband_ndr": 1}),
    System("A40", "NVLink3 bridge", "none", "a40", "pairs"),
    System("A40", "PCIe gen4 same socket", "none", "a40", "host4"),
    System("A40", "PCIe gen4 across sockets", "none", "a40", "sockets4"),
    System("V100-PCIE", "PCIe gen3", "none", "v100_pcie_32", "pcie3"),
    System("RTX 4090", "PCIe gen4", "none", "rtx4090", "pcie4"),
    System("RTX PRO 6000", "PCIe gen5 x16, 2 switches", "none", "rtx5090", "pcie5"),
    System("V100-32GB", "NVLink2", "Ethernet 100Gb TCP (4 channels x 2 threads)", "v100_sxm2_32", "switch", _TCP),
    # The README that the table names shows its nodes: g5.8xlarge (one A10G, 25 Gb/s), early in 2023, when there was no
    # second generation of EFA yet (it came with p5, July 2023).
    System("unspecified (1", "none", "EFA 1x25Gb", "a10g", "pcie4", {"efa_v1_100": 1}),
)
LEFT_OUT = {  # a word of the row: why it is not compared
    "NVLS off": "the algorithm was forced by hand; the model takes the fastest",
    "(ring;": "the algorithm was forced by hand; the model takes the fastest",
    "forced": "the algorithm was forced by hand; the model takes the fastest",
    "SHARP": "reduction in the switches of the network is not modelled",
    "collapse": "its authors show it as a wrong setting",
    "WITHOUT": "its authors show it as a wrong setting",
    "unspecified (8": "the machine is not told",
    "2 ranks share": "two ranks on one GPU",
}


class Oracle(NamedTuple):
    """A published time, and what the model should say (within 2 %), microseconds."""

    device: str
    nodes: int
    nics: dict[str, Any] | None
    kind: CollectiveKind
    size: int
    model: float
    measured: float


_EFA_V1 = {"device": "efa_v1_100", "count": 4}
ORACLES = (
    Oracle("h100_sxm", 1, None, "all_reduce", GIB, 4394, 4253),
    Oracle("h100_sxm", 1, None, "all_reduce", 64 * MIB, 377, 326.6),
    Oracle("b200_sxm", 1, None, "all_reduce", GIB, 2572, 2600),
    Oracle("b200_sxm", 1, None, "all_gather", 64 * MIB, 149, 139.1),
    # Between two nodes of 8 a bus is worth 15/8 of the ports, not twice: what leaves a node is S, and S x 15/8 counts.
    Oracle("a100_sxm_80", 2, _EFA_V1, "all_reduce", GIB, 26_103, 26_217),
    Oracle("h100_sxm", 2, {"device": "efa_v2_100", "count": 32}, "all_reduce", GIB, 5178, 4608),
    Oracle("b200_sxm", 2, {"device": "infiniband_ndr", "count": 8}, "reduce_scatter", 256 * MIB, 945, 1013),
    Oracle("b200_sxm", 4, {"device": "efa_v4_400", "count": 8}, "all_reduce", GIB, 7029, 5747),
)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: f"{o.device}-{o.nodes}-{o.kind}-{o.size // MIB}MiB")
def test_published_times(oracle: Oracle) -> None:
    found = 1e6 * seconds(switched(oracle.device, 8, oracle.nodes, oracle.nics), collective(oracle.kind, oracle.size))
    assert found == pytest.approx(oracle.model, rel=0.02)
    assert 0.8 < found / oracle.measured < 1.25  # two software stacks on one machine differ by as much


class Row(NamedTuple):
    system: System
    kind: CollectiveKind
    gpus: int
    nodes: int
    size: int
    seconds: float


def build(system: System, gpus: int, nodes: int) -> Topology:
    """The machine of a row."""
    port, count = next(iter(system.nics.items()), ("", 0))
    nics: dict[str, Any] | None = {"device": port, "count": count} if count else None
    islands = {"none": 1}.get(system.network, nodes) if system.island != "rack" else 2  # of 18 hosts each
    here = gpus // islands
    if system.island in ("switch", "rack"):
        return switched(system.device, here, islands, nics)
    if system.island == "c2c":
        sockets = [{"device": "grace", "dram": {"capacity": "120 GB"}} for _ in range(here)]
        nvlink = {"kind": "mesh" if here > 1 else "none"}
        return machine(system.device, here, islands, nvlink, nics, pcie=None, sockets=sockets)
    if system.island in ("mesh", "pairs"):
        return machine(system.device, here, islands, {"kind": system.island}, nics)
    return over_pcie(system, here, islands, nics)


def over_pcie(system: System, here: int, nodes: int, nics: dict[str, Any] | None) -> Topology:
    """GPUs on two PCIe switches, on one socket or on one each."""
    if nics and "25Gb" in system.network:
        nics["bandwidth"] = "25 Gbps"
    sockets = 2 if system.island.startswith("sockets") else 1
    half = max(1, here // 2)
    parts = [part for part in (list(range(half)), list(range(half, here))) if part]
    switches = [
        {"gpus": part, "nics": [0] if nics and not number else [], "socket": number % sockets}
        for number, part in enumerate(parts)
    ]
    cpus = [{"device": "epyc_7742", "dram": {"capacity": "512 GB"}}] * sockets
    figures = {"device": system.device, "p2p": system.island.startswith("pcie")}
    pcie = {"generation": int(system.island[-1]), "switches": switches}
    return machine(figures, here, nodes, None, nics, pcie=pcie, sockets=cpus)


def rows(path: Path) -> Iterator[Row]:
    """The rows that are compared; a row that is neither known nor left out for a reason is a mistake here."""
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            words = (line["gpu_type"], line["intra_link"], line["inter_link"])
            if any(word in " ".join((*words, line["source"])) for word in LEFT_OUT):
                continue
            known = [
                system
                for system in SYSTEMS
                if all(word.startswith(start) for word, start in zip(words, system[:3], strict=True))
            ]
            assert known, words
            n, k, size = int(line["gpus"]), int(line["nodes"]), int(line["size_bytes"])
            yield Row(known[0], KINDS[line["collective"]], n, k, size, float(line["time_us"]) * 1e-6)


def predicted(row: Row, machines: dict[tuple[object, ...], Topology]) -> float:
    key = (row.system[:5], row.gpus, row.nodes)
    if key not in machines:
        machines[key] = build(row.system, row.gpus, row.nodes)
    return seconds(machines[key], collective(row.kind, row.size))


def error(ratios: Sequence[float]) -> float:
    """Geometric mean of how far off a prediction is, either way."""
    return math.exp(sum(abs(math.log(ratio)) for ratio in ratios) / len(ratios)) - 1


def bias(ratios: Sequence[float]) -> float:
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios)) - 1


def test_published_sweeps() -> None:
    shared = os.environ.get("ZEROSIM_SHARED")
    if not shared:
        pytest.skip("ZEROSIM_SHARED is not set: the published sweeps are not at hand")
    machines: dict[tuple[object, ...], Topology] = {}
    by_band: dict[str, list[float]] = defaultdict(list)
    by_system: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows(Path(shared) / "measured" / "collectives.csv"):
        ratio = predicted(row, machines) / row.seconds
        band = next(name for limit, name in BANDS.items() if row.size <= limit)
        by_band[band].append(ratio)
        name = f"{row.system.gpu} {row.gpus}/{row.nodes} {row.system.inside[:14]} {row.system.network[:22]} {row.kind}"
        by_system[name, band].append(ratio)
    for (name, band), ratios in sorted(by_system.items()):
        print(f"{name:78} {band:13} {len(ratios):4} rows  error {error(ratios):6.1%}  bias {bias(ratios):+6.1%}")
    for band, ratios in by_band.items():
        print(f"{'all':78} {band:13} {len(ratios):4} rows  error {error(ratios):6.1%}  bias {bias(ratios):+6.1%}")
    assert sum(map(len, by_band.values())) > 600
    levels = constants("collectives.relative_error")
    assert {band: error(ratios) for band, ratios in by_band.items() if error(ratios) > levels[band]} == {}
