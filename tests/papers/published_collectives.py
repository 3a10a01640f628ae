"""Published timings of collectives as data: which machine each row of `measured/collectives.csv` is of, which rows are
left out and why, and what is predicted for the others. Reading the table needs ZEROSIM_SHARED.
"""

from __future__ import annotations

import csv
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.costs_machines import collective, machine, seconds, switched
from zerosim.catalog import constant
from zerosim.spec.nccl_log import Asked, read_nccl_log
from zerosim.spec.topology import Topology
from zerosim.step import CollectiveKind

KIB, MIB, GIB = 2**10, 2**20, 2**30
BANDS = {  # largest message: name of the level in the catalogue, and in a table
    64 * KIB: "below_64_kib",
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


_TCP, _NDR = {"ethernet_100": 1}, {"infiniband_ndr": 8}
SYSTEMS = (
    System("A100-SXM4", "NVLink3+NVSwitch", "none", "a100_sxm_80", "switch"),
    System("A100-SXM4", "NVLink3 4-GPU direct", "none", "a100_sxm_80", "mesh"),
    System("A100-SXM4", "NVLink3+NVSwitch", "EFAv1 4x100Gb", "a100_sxm_80", "switch", {"efa_v1_100": 4}),
    System("H100-SXM5", "NVLink4+NVSwitch", "none", "h100_sxm", "switch"),
    System("H100-SXM5", "NVLink4+NVSwitch", "EFAv2 32x100Gb", "h100_sxm", "switch", {"efa_v2_100": 32}),
    System("H100-SXM5", "NVLink4+NVSwitch", "GPUDirect-TCPXO", "h100_sxm", "switch", {"tcpxo_200": 8}),
    System("H100-SXM5", "NVLink4+NVSwitch", "RoCE 16x200Gb", "h100_sxm", "switch", {"roce_200": 16}),
    # Its switches reduce (SHARP), which is not modelled: it gained little over a tree there.
    System("H100-SXM5", "NVLink4+NVSwitch", "InfiniBand NDR 8x400Gb + SHARP", "h100_sxm", "switch", _NDR),
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
    # The README that the table names shows its nodes: g5.8xlarge (one A10G, 25 Gb/s).
    System("unspecified (1", "none", "EFA 1x25Gb", "a10g", "pcie4", {"efa_25": 1}),
)
NVLS_OFF = ("NVLS off", "(ring;")  # a word of the row
LEFT_OUT = {  # a word of the row: why it is not compared
    "collapse": "its authors show it as a wrong setting",
    "WITHOUT": "its authors show it as a wrong setting",
    "forced": "its authors forced an algorithm that NCCL did not choose",
    "unspecified (8": "the machine is not told",
    "2 ranks share": "two ranks on one GPU",
}


# Logs of the corpus that the table does not have: name of the file, machine, GPUs, nodes.
LOGS = (
    (
        "allreduce_ndv4_a100_2n16g",
        System("A100-SXM4", "", "InfiniBand HDR 8x200Gb", "a100_sxm_80", "switch", {"infiniband_hdr": 8}),
        16,
        2,
    ),
    (
        "allgather_gke_a3high_2n16g",
        System("H100-SXM5", "", "GPUDirect-TCPX 4x200Gb", "h100_sxm", "switch", {"tcpx_200": 4}),
        16,
        2,
    ),
    ("allreduce_oke_mi300x_2n16g_rccl", System("MI300X", "", "RoCE 8x400Gb", "mi300x", "mesh", {"roce_400": 8}), 16, 2),
    (
        "allreduce_coreweave_gb200_1440g",
        System("GB200", "", "20 racks, InfiniBand NDR", "gb200", "racks", {"infiniband_ndr": 72}),
        1440,
        20,
    ),
)
# Sweeps by all_reduce_bench.py, which times a call of torch.distributed: the host's part of it is in these times.
FROM_PYTHON = {("H200-SXM5", "stas00"), ("B200-SXM", "stas00")}


class Row(NamedTuple):
    system: System
    kind: CollectiveKind
    gpus: int
    nodes: int
    size: int
    seconds: float
    from_python: bool = False
    nvls: bool = True

    @property
    def name(self) -> str:
        """What a table calls the sweep."""
        inside, network = self.system.inside.split(" (")[0], self.system.network.split(" (")[0]
        nodes = f"{self.nodes} nodes, {network}" if self.nodes > 1 and network != "none" else inside
        gpu = self.system.gpu.partition(" (")[0].replace("unspecified", "A10G")
        return f"{gpu} x {self.gpus}, {nodes}{'' if self.nvls else ', NVLS off'}"

    @property
    def band(self) -> str:
        return next(name for limit, name in BANDS.items() if self.size <= limit)


def build(system: System, gpus: int, nodes: int, nvls: bool = True) -> Topology:
    """The machine of a row."""
    port, count = next(iter(system.nics.items()), ("", 0))
    nics: dict[str, Any] | None = {"device": port, "count": count} if count else None
    islands = {"none": 1}.get(system.network, nodes) if system.island != "rack" else 2  # of 18 hosts each
    here = gpus // islands
    if system.island in ("switch", "rack", "racks"):
        return switched({"device": system.device, "nvls": nvls}, here, islands, nics)
    if system.island == "c2c":
        sockets = [{"device": "grace", "dram": {"capacity": "120 GB"}} for _ in range(here)]
        nvlink = {"kind": "mesh" if here > 1 else "none"}
        return machine(system.device, here, islands, nvlink, nics, pcie=None, sockets=sockets)
    if system.island in ("mesh", "pairs"):
        return switched(system.device, here, islands, nics, nvlink={"kind": system.island})
    return over_pcie(system, here, islands, nics)


def over_pcie(system: System, here: int, nodes: int, nics: dict[str, Any] | None) -> Topology:
    """GPUs on two PCIe switches, on one socket or on one each."""
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
            python = any(line["gpu_type"] == gpu and source in line["source"] for gpu, source in FROM_PYTHON)
            nvls = not any(word in line["source"] for word in NVLS_OFF)
            yield Row(known[0], KINDS[line["collective"]], n, k, size, float(line["time_us"]) * 1e-6, python, nvls)


def log_rows(folder: Path) -> Iterator[Row]:
    """The rows of the logs of the corpus."""
    for name, system, gpus, nodes in LOGS:
        path = folder / f"{name}.log"
        sweeps, _ = read_nccl_log(path.read_text(encoding="utf-8"), path.name, Asked(gpus=gpus))
        for sweep in sweeps:
            for size, measured in sweep.points:
                yield Row(
                    system, KINDS[sweep.collective.replace("all_to_all", "alltoall")], gpus, nodes, int(size), measured
                )


_ALL = (*SYSTEMS, *(system for _, system, *_ in LOGS))


@cache
def built(number: int, gpus: int, nodes: int, nvls: bool) -> Topology:
    return build(_ALL[number], gpus, nodes, nvls)


def predicted(row: Row) -> float:
    """Seconds; of a call from Python the host's part is counted, nothing else runs meanwhile."""
    call = constant("host.collective_call_us") * 1e-6 if row.from_python else 0.0
    topology = built(_ALL.index(row.system), row.gpus, row.nodes, row.nvls)
    return call + seconds(topology, collective(row.kind, row.size))


def ratios_of(rows: Sequence[Row]) -> list[float]:
    """Predicted / measured."""
    return [predicted(row) / row.seconds for row in rows]


def error(ratios: Sequence[float]) -> float:
    """Geometric mean of how far off a prediction is, either way."""
    return math.exp(sum(abs(math.log(ratio)) for ratio in ratios) / len(ratios)) - 1


def bias(ratios: Sequence[float]) -> float:
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios)) - 1


def grouped(all_rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in all_rows:
        found[key(row)].append(row)
    return dict(sorted(found.items()))


def table(all_rows: Sequence[Row], of_logs: Sequence[Row]) -> str:
    """Markdown: a line for each sweep and one for all, error (either way) and bias (signed) by size; then the logs."""
    lines = [
        "| system | collective | rows | up to 64 KiB | to 16 MiB | above |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    sweeps = grouped(all_rows, lambda row: f"{row.name} | {row.kind}")
    logs = grouped(of_logs, lambda row: f"beside the table: {row.name} | {row.kind}")
    for name, some in [*sweeps.items(), ("all of the table | all", list(all_rows)), *logs.items()]:
        cells = [_cell([row for row in some if row.band == band]) for band in BANDS.values()]
        lines.append(f"| {name} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(some: Sequence[Row]) -> str:
    if not some:
        return ""
    found = ratios_of(some)
    return f"{error(found):.0%} ({bias(found):+.0%})"


def published() -> tuple[list[Row], list[Row]] | None:
    """The rows of the table and of the logs, where they are at hand."""
    shared = os.environ.get("ZEROSIM_SHARED")
    if not shared:
        return None
    return list(rows(Path(shared) / "measured" / "collectives.csv")), list(
        log_rows(Path(shared) / "corpus" / "nccl_logs")
    )


if __name__ == "__main__":
    found = published()
    print(table(*found) if found else "ZEROSIM_SHARED is not set")
