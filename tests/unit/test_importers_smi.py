"""`nvidia-smi topo -m` as people paste it: what is read of a machine, in every odd form."""

from __future__ import annotations

import contextlib

import pytest

from tests.imported import data, gpus, machine, matrix, refused, switched, taken, two_nodes
from zerosim.errors import InputError
from zerosim.spec.importers import read_seen
from zerosim.spec.importers.smi import cores_of

PLAIN = switched()


def seen_in(text: str | bytes) -> object:
    """What was read, without the words around the table."""
    given = text.encode() if isinstance(text, str) else text
    return read_seen(given, "box.txt")._replace(words="", remarks=())


def test_all_pairs_with_as_many_links_as_a_gpu_has_are_a_switch() -> None:
    node = data(PLAIN)["node"]
    assert node["gpus"] == {"device": "a100_sxm_80", "count": 8}
    assert node["nvlink"] == {"kind": "switch", "bandwidth": "300 GB/s"}  # 12 x 25
    assert [cpu["cores"] for cpu in node["sockets"]] == [16, 16]  # 0-15,32-47: two threads a core
    assert [cpu["gpus"] for cpu in node["sockets"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    topology = machine(PLAIN)
    assert [link.target for link in topology.route("0.gpu0", "0.gpu7")] == ["0.nvswitch0", "0.gpu7"]
    assert topology.link("0.gpu5", "0.socket1").bandwidth == 31.5e9


@pytest.mark.parametrize(
    ("count", "cell", "gpu", "nvlink"),
    [
        (8, "NV18", "h100_sxm", {"kind": "switch", "bandwidth": "450 GB/s"}),
        (16, "NV6", "v100_sxm2_32", {"kind": "switch", "bandwidth": "150 GB/s"}),
        (8, "NV8", "a100_sxm_80", {"kind": "switch", "bandwidth": "200 GB/s"}),  # an A800 has eight links
        (4, "NV4", "a100_sxm_80", {"kind": "mesh", "bandwidth": "300 GB/s"}),  # three times four links
        (4, "NV6", "h100_sxm", {"kind": "mesh", "bandwidth": "450 GB/s"}),
        (4, "NV2", "v100_sxm2_32", {"kind": "mesh", "bandwidth": "150 GB/s"}),
        (2, "NV4", "rtx3090", {"kind": "pairs", "bandwidth": "56.25 GB/s", "pairs": [[0, 1, 4]]}),
        (2, "NV12", "a100_pcie_80", {"kind": "pairs", "bandwidth": "300 GB/s", "pairs": [[0, 1, 12]]}),
    ],
)
def test_the_number_of_links_tells_gpu_and_kind(count: int, cell: str, gpu: str, nvlink: object) -> None:
    text = switched(count, cell)
    node = data(text)["node"]
    assert (node["gpus"]["device"], node["nvlink"]) == (gpu, nvlink)
    assert f"assumed: {gpu}" in taken(text).text


def test_a_hybrid_cube_mesh_is_pairs_with_their_links() -> None:
    links = {(0, 1): 2, (0, 2): 2, (0, 3): 1, (0, 4): 1, (1, 2): 1, (1, 3): 2, (1, 5): 1, (2, 3): 1, (2, 6): 2,
             (3, 7): 2, (4, 5): 2, (4, 6): 2, (4, 7): 1, (5, 6): 1, (5, 7): 2, (6, 7): 1}  # fmt: skip

    def joins(a: str, b: str) -> str:
        ends = (int(a[3]), int(b[3]))
        return f"NV{links[min(ends), max(ends)]}" if (min(ends), max(ends)) in links else "SYS"

    text = matrix(gpus(8), joins, two_nodes(8), sep="    ")
    node = data(text)["node"]
    assert node["nvlink"]["pairs"] == [[a, b, count] for (a, b), count in links.items()]
    assert node["nvlink"]["bandwidth"] == "150 GB/s"
    topology = machine(text)
    assert topology.link("0.gpu0", "0.gpu1").bandwidth == 50e9
    assert topology.link("0.gpu0", "0.gpu4").bandwidth == 25e9


# --- the PCIe tree and the ports ---

TREE = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    NIC2    CPU Affinity    NUMA Affinity
GPU0     X      PIX     PXB     NODE    PXB     NODE    SYS     0-7     0
GPU1    PIX      X      PXB     NODE    PXB     NODE    SYS     0-7     0
GPU2    PXB     PXB      X      NODE    PIX     NODE    SYS     0-7     0
GPU3    NODE    NODE    NODE     X      NODE    PHB     SYS     0-7     0
NIC0    PXB     PXB     PIX     NODE     X      NODE    SYS
NIC1    NODE    NODE    NODE    PHB     NODE     X      SYS
NIC2    SYS     SYS     SYS     SYS     SYS     SYS      X

NIC Legend:

  NIC0: mlx5_0
  NIC1: ens3f0
  NIC2: mlx5_bond_0
"""


def test_switches_inside_a_tree_are_nested() -> None:
    node = data(TREE)["node"]
    assert node["pcie"]["switches"] == [
        {"socket": 0, "switches": [{"gpus": [0, 1]}, {"gpus": [2], "nics": [0]}]},
    ]
    first, second = node["sockets"]
    assert (first["gpus"], first["nics"]) == ([3], [1])
    assert "gpus" not in second  # NIC2 is across a socket link from every GPU: a NUMA node without GPUs
    assert second["nics"] == [2]
    topology = machine(TREE)
    assert [link.target for link in topology.route("0.gpu0", "0.socket0")] == ["0.pcie1", "0.pcie0", "0.socket0"]
    assert topology.route("0.nic2", "0.gpu3")[0].target == "0.socket1"


def test_ports_of_other_kinds_are_told_apart_by_name() -> None:
    nics = data(TREE)["node"]["nics"]
    assert nics["count"] == 3
    assert {nics["kind"], *(other["kind"] for other in nics["unlike"])} == {"infiniband", "ethernet", "roce"}
    assert "mlx5_0, ens3f0, mlx5_bond_0" in taken(TREE).text
    rates = dict(machine(TREE).nodes[0].ports)
    assert rates["nic1"] <= 25e9 / 8


def test_a_rate_that_infiniband_does_not_have_is_that_of_roce() -> None:
    """Consumer cards: the port beside them is taken to have 25 Gb/s, at which there is RoCE and no InfiniBand."""
    text = matrix([*gpus(2), "mlx5_0"], lambda a, b: "PHB", {})
    imported = taken(text, gpu="rtx4090")
    nics = data(text, gpu="rtx4090")["node"]["nics"]
    assert (nics["bandwidth"], nics["kind"]) == ("25 Gb/s", "roce")
    assert "assumed: roce, as infiniband has no 25 Gb/s; assumed: 25 Gb/s, usual with" in imported.text
    fast = data(text, gpu="h100_sxm")["node"]["nics"]
    assert (fast["bandwidth"], fast["kind"]) == ("400 Gb/s", "infiniband")
    omnipath = data(matrix([*gpus(2), "hfi1_0"], lambda a, b: "PHB", {}), gpu="rtx4090")["node"]["nics"]
    assert (omnipath["bandwidth"], omnipath["kind"]) == ("100 Gb/s", "omnipath")


def test_old_headers_name_the_ports_and_have_no_rows_for_them() -> None:
    def joins(a: str, b: str) -> str:
        return "PIX" if {a, b} == {"GPU2", "mlx5_1"} else "SOC" if "GPU0" in (a, b) and b != "mlx5_0" else "PHB"

    text = matrix([*gpus(3), "mlx5_0", "mlx5_1"], joins, dict.fromkeys(gpus(3), ("0-7",)), "  ", nic_rows=False)
    assert data(text)["node"]["pcie"]["switches"] == [{"gpus": [2], "nics": [1], "socket": 0}]
    assert data(text)["node"]["nics"]["count"] == 2


def test_gpus_joined_by_nvlink_are_on_the_switch_that_their_ports_tell() -> None:
    names = [*gpus(4), "NIC0", "NIC1"]

    def joins(a: str, b: str) -> str:
        if a.startswith("GPU") and b.startswith("GPU"):
            return "NV4"
        gpu, nic = sorted((a, b))
        return "SYS" if gpu.startswith("NIC") else "PXB" if int(gpu[3]) // 2 == int(nic[3]) else "SYS"

    switches = data(matrix(names, joins, two_nodes(4)))["node"]["pcie"]["switches"]
    assert switches == [{"gpus": [0, 1], "nics": [0], "socket": 0}, {"gpus": [2, 3], "nics": [1], "socket": 1}]


def test_all_sys_inside_a_numa_node_is_no_other_node() -> None:
    text = matrix(gpus(4), lambda a, b: "SYS", two_nodes(4))
    node = data(text, gpu="rtx4090")["node"]
    assert node["nvlink"] == {"kind": "none"}
    assert [cpu["gpus"] for cpu in node["sockets"]] == [[0, 1], [2, 3]]
    assert "peers copy through host memory" in taken(text, gpu="rtx4090").text


# --- NUMA nodes ---


def test_numa_nodes_by_cores_where_the_column_says_nothing() -> None:
    rows = {"GPU0": ("0-7,16-23", "N/A", "N/A"), "GPU1": ("8-15,24-31", "1", "N/A")}
    sockets = data(matrix(gpus(2), lambda a, b: "SYS", rows))["node"]["sockets"]
    assert [(cpu["gpus"], cpu["cores"]) for cpu in sockets] == [([0], 8), ([1], 8)]


def test_numa_nodes_by_sys_where_no_affinity_tells() -> None:
    text = matrix(gpus(4), lambda a, b: "PHB" if int(a[3]) // 2 == int(b[3]) // 2 else "SYS", {})
    assert [cpu["gpus"] for cpu in data(text)["node"]["sockets"]] == [[0, 1], [2, 3]]
    alike = matrix(gpus(4), lambda a, b: "PHB", dict.fromkeys(gpus(4), ("0-31", "N/A")))
    assert len(data(alike)["node"]["sockets"]) == 1


def test_numa_nodes_with_leading_zeros() -> None:
    rows = {f"GPU{n}": ("", f"0{n}", "N/A") for n in range(4)}
    sockets = data(matrix(gpus(4), lambda a, b: "SYS", rows))["node"]["sockets"]
    assert [cpu["gpus"] for cpu in sockets] == [[0], [1], [2], [3]]


def test_four_numa_nodes_are_parts_of_two_sockets() -> None:
    rows = {f"GPU{n}": (f"{n * 16}-{n * 16 + 15}", str(n)) for n in (0, 1, 3)} | {"GPU2": ("16-31", "1")}
    sockets = data(matrix(gpus(4), lambda a, b: "NV4", rows))["node"]["sockets"]
    assert [cpu.get("gpus") for cpu in sockets] == [[0], [1, 2], None, [3]]  # node 2 has none, and its memory
    assert {cpu["dram"]["bandwidth"] for cpu in sockets} == {"102.4 GB/s"}  # half of 204.8


def test_memory_that_is_a_numa_node_tells_grace() -> None:
    rows = {"GPU0": ("0-71", "0", "1")}
    node = data(matrix(["GPU0"], lambda a, b: "X", rows))["node"]
    assert node["gpus"]["device"] == "gh200"
    assert node["c2c"] == {"bandwidth": "450 GB/s"}
    assert node["sockets"][0]["device"] == "grace"
    rows = {f"GPU{n}": ("0-71" if n < 2 else "72-143", str(n // 2), str(2 + n)) for n in range(4)}
    assert data(matrix(gpus(4), lambda a, b: "NV18", rows))["node"]["gpus"]["device"] == "gb200"


@pytest.mark.parametrize(
    ("affinity", "cores"),
    [
        ("0-31,64-95", 32),
        ("0-23", 24),
        ("24-47,", 24),
        ("64-127,192-238", 64),  # some second threads are off
        ("0,2,4,6", 4),
        ("0", 1),
        ("N/A", 0),
        ("0-31,64-950000", 32),  # a slip of the pen
    ],
)
def test_cores_of_an_affinity(affinity: str, cores: int) -> None:
    assert cores_of(affinity) == cores


# --- odd forms of the same text ---

HEADER, *ROWS = PLAIN.splitlines()
ODD: dict[str, str | bytes] = {
    "Windows line ends": PLAIN.replace("\n", "\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "PowerShell": b"\xff\xfe" + PLAIN.encode("utf-16-le"),
    "UTF-16 without a mark": PLAIN.encode("utf-16-le"),
    "underlined header": f"\t\x1b[4m{HEADER.strip()}\x1b[0m\n" + "\n".join(ROWS),
    "escapes that lost their first byte": f"\t[4m{HEADER.strip()}[0m\n" + "\n".join(ROWS),
    "prompt and legend": f"user@host:~$ nvidia-smi topo -m\n{PLAIN}\nLegend:\n\n  X    = Self\n  SYS  = Connection\n",
    "prefixes of a launcher": "".join(f"[1,0]<stdout>: {line}\n" for line in PLAIN.splitlines()),
    "quoted": "".join(f"> {line}\n" for line in PLAIN.splitlines()),
    "hard spaces": PLAIN.replace("\t", "\xa0\xa0"),
    "narrow columns": PLAIN.replace("\t", " "),
    "wrong bytes around": b"caf\xe9\n" + PLAIN.encode(),
    "markdown": "\n".join(["| " + HEADER.replace("\t", " | ") + " |", "|" + "---|" * 12, *(
        "| " + row.replace("\t", " | ") + " |" for row in ROWS)]),
    "markdown without the diagonal": "\n".join(["| " + HEADER.replace("\t", " | ") + " |", *(
        "| " + row.replace(" X ", "").replace("\t", " | ") + " |" for row in ROWS)]),
    "glued cells": PLAIN.replace("NV12\tNV12\tNV12", "NV12NV12\tNV12"),
    "lists with a space": PLAIN.replace("0-15,32", "0-15, 32"),
    "wrapped header": PLAIN.replace("\tGPU6\tGPU7", "\n\tGPU6\tGPU7", 1),
    "wrapped rows": PLAIN.replace("\t0-15", "\n\t0-15").replace("\t16-31", "\n\t16-31"),
    "a second matrix that is the same": PLAIN + "\n" + PLAIN,
    "small letters": PLAIN.lower().replace("cpu affinity", "CPU Affinity").replace("numa affinity", "NUMA Affinity"),
}  # fmt: skip


@pytest.mark.parametrize("form", ODD)
def test_the_same_machine_in_every_odd_form(form: str) -> None:
    assert seen_in(ODD[form]) == seen_in(PLAIN)


def test_an_affinity_glued_to_a_cell() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS0-7,16-23\nGPU1\tSYS\t X \t0-7,16-23\n"
    assert data(text)["node"]["sockets"][0]["cores"] == 8


def test_rows_that_are_missing_are_taken_from_the_columns() -> None:
    cut = taken("\n".join([HEADER, *ROWS[:6]]))
    assert data("\n".join([HEADER, *ROWS[:6]]))["node"]["nvlink"] == {"kind": "switch", "bandwidth": "300 GB/s"}
    assert any("no rows of GPU6, GPU7" in said for said in cut.warnings)
    assert any("what joins GPU6 to GPU7: NV12, as all others" in said for said in cut.warnings)
    assert "on the NUMA node of the GPU before it" in cut.text
    lone = data("\n".join([HEADER, ROWS[0]]))  # one row tells what joins GPU0 to the others
    assert lone["node"]["gpus"]["count"] == 8


def test_rows_cut_at_their_end() -> None:
    cut = "\n".join([HEADER, *ROWS[:-1], ROWS[-1][: ROWS[-1].index("48-63")]])
    assert seen_in(cut) == seen_in(PLAIN)
    short = "\n".join(["\t".join(row.split("\t")[:5]) for row in [HEADER, *ROWS]])
    assert data(short)["node"]["gpus"]["count"] == 8
    assert any("does not tell what joins GPU4 to GPU5" in said for said in taken(short).warnings)


def test_empty_cells_stand_where_they_stand() -> None:
    header = "        GPU0    GPU1    GPU2    CPU Affinity"
    rows = [
        "GPU0     X              NV4     0-7",
        "GPU1    SYS      X      SYS     0-7",
        "GPU2    NV4     SYS      X      0-7",
    ]
    assert data("\n".join([header, *rows]))["node"]["nvlink"]["pairs"] == [[0, 2, 4]]


def test_both_ways_that_differ_are_told() -> None:
    text = switched(3).replace("GPU0\t X \tNV12\tNV12", "GPU0\t X \tSYS\tNV12")
    assert any("GPU0 to GPU1 is SYS, the other way NV12: the nearer one" in said for said in taken(text).warnings)
    assert data(text)["node"]["nvlink"]["kind"] == "switch"


def test_one_gpu() -> None:
    node = data("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n")["node"]
    assert (node["gpus"]["count"], node["nvlink"]) == (1, {"kind": "none"})


# --- what other listings in the same text say ---


def test_the_products_that_a_listing_names() -> None:
    listing = "".join(f"GPU {n}: NVIDIA H200 (UUID: GPU-{n})\n" for n in range(8))
    assert data(listing + switched(8, "NV18"))["node"]["gpus"]["device"] == "h200_sxm"
    table = "|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                    0 |\n"
    assert data(switched() + table)["node"]["gpus"]["device"] == "a100_sxm_40"
    asked = "index, name\n0, NVIDIA A100-SXM4-40GB\n"
    assert data(asked + switched())["node"]["gpus"]["device"] == "a100_sxm_40"


def test_mixed_gpus_are_overrides() -> None:
    listing = "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-a)\nGPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-b)\n"
    listing += "GPU 2: NVIDIA GeForce RTX 4090 (UUID: GPU-c)\nGPU 3: NVIDIA RTX A6000 (UUID: GPU-d)\n"
    text = listing + matrix(gpus(4), lambda a, b: "PHB", {})
    assert data(text)["overrides"][0] == {"gpu": "0.1", "device": "rtx3090"}
    names = [getattr(gpu.figures, "name", "") for gpu in machine(text).gpus]
    assert names == ["RTX 4090", "RTX 3090", "RTX 4090", "RTX A6000"]


def test_peers_as_the_second_matrix_says() -> None:
    peers = matrix(gpus(2), lambda a, b: "CNS", {})
    text = matrix(gpus(2), lambda a, b: "PHB", {}) + "\n" + peers
    assert data(text, gpu="l40s")["node"]["gpus"]["p2p"] is False
    assert data(text.replace("CNS", "OK"), gpu="rtx4090")["node"]["gpus"]["p2p"] is True
    assert "topo -p2p alone" in refused(peers)


def test_parts_of_gpus_are_told() -> None:
    vgpu = "GPU 0: GRID A100D-40C (UUID: GPU-a)\n"
    one = vgpu + "\tGPU0\tCPU Affinity\nGPU0\t X \t0-15\n"
    assert data(one)["node"]["gpus"]["device"] == "a100_pcie_80"
    assert any("vGPU of a whole GPU: GRID A100D-40C (GPU 0)" in said for said in taken(one).warnings)
    mig = "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)\n  MIG 3g.20gb     Device  0: (UUID: MIG-b)\n"
    assert any("divided by MIG" in said for said in taken(mig + switched(2)).warnings)


# --- NVSwitch machines with a GPU that is ill, texts that end inside a cell ---


def test_a_gpu_with_fewer_links_to_the_switches() -> None:
    text = matrix(gpus(8), lambda a, b: "NV16" if "GPU3" in (a, b) else "NV18", two_nodes(8))
    assert data(text)["node"]["gpus"]["device"] == "h100_sxm"  # 18 links, not the 124 of all pairs together
    assert data(text)["node"]["nvlink"] == {"kind": "switch", "bandwidth": "450 GB/s"}
    assert data(text)["overrides"] == [{"gpu": "0.3", "nvlink": {"bandwidth": "400 GB/s"}}]


def test_a_gpu_whose_row_alone_tells_its_fewer_links() -> None:
    rows = matrix(gpus(8), lambda a, b: "NV16" if a == "GPU3" else "NV18", two_nodes(8))
    assert data(rows)["overrides"] == [{"gpu": "0.3", "nvlink": {"bandwidth": "400 GB/s"}}]
    assert any("GPU0 to GPU3 is NV18, the other way NV16" in said for said in taken(rows).warnings)


def test_a_gpu_that_lost_its_nvlinks() -> None:
    text = matrix(gpus(8), lambda a, b: "SYS" if "GPU3" in (a, b) else "NV18", two_nodes(8))
    assert machine(text).nvlink_domains() == ((0, 1, 2, 4, 5, 6, 7), (3,))
    assert data(text)["node"]["nvlink"]["bandwidth"] == "450 GB/s"
    assert {links for *_, links in data(text)["node"]["nvlink"]["pairs"]} == {3}  # 18 among six others
    assert any("no NVLink of GPU 3, where others have 18" in said for said in taken(text).warnings)


def test_groups_that_bridges_join_are_no_groups_behind_switches() -> None:
    """H200 NVL: six links to each of three others are all eighteen."""
    halves = matrix(gpus(8), lambda a, b: "NV6" if (a < "GPU4") == (b < "GPU4") else "SYS", two_nodes(8))
    assert {links for *_, links in data(halves, gpu="H200 NVL")["node"]["nvlink"]["pairs"]} == {6}
    assert taken(halves, gpu="H200 NVL").warnings == ()
    behind = taken(halves.replace("NV6", "NV12"), gpu="a100_sxm_80")
    assert any("groups of GPUs behind NVSwitches" in said for said in behind.warnings)
    shared = data(halves.replace("NV6", "NV12"), gpu="a100_sxm_80")["node"]["nvlink"]
    assert (shared["bandwidth"], {links for *_, links in shared["pairs"]}) == ("300 GB/s", {4})


@pytest.mark.parametrize("cut", ["N", "NO", "NOD", "S", "SY", "P", "PI"])
def test_a_cell_that_the_end_of_the_text_cut_is_taken_from_its_mirror_image(cut: str) -> None:
    names = [*gpus(2), "NIC0", "NIC1"]
    whole = matrix(names, lambda a, b: "NODE", {"GPU0": ("0-7", "0"), "GPU1": ("0-7", "0")})
    row = whole.rindex("NIC1\t") + len("NIC1\t")
    assert data(f"{whole[:row]}NODE\t{cut}") == data(whole)


def test_a_list_of_cores_that_the_end_of_the_text_cut_inside_a_number() -> None:
    rows = {"GPU0": ("0-55,112-167", "0"), "GPU1": ("0-55,112-167", "0")}
    whole = matrix(gpus(2), lambda a, b: "NODE", rows)
    assert len(data(whole[: whole.rindex("67\t0")])["node"]["sockets"]) == 1


@pytest.mark.parametrize("place", ["NV4", "GPU1", "0-7", "\t0\n"])
def test_numbers_of_any_length_are_no_defect(place: str) -> None:
    text = matrix(gpus(2), lambda a, b: "NV4", {"GPU0": ("0-7", "0"), "GPU1": ("0-7", "0")})
    long = text.replace(place, place.replace(place.strip()[-1], "9" * 5000))
    with contextlib.suppress(InputError):
        assert data(long)["node"]["gpus"]["count"] >= 1


def test_more_links_than_can_be_are_not_taken() -> None:
    text = matrix(gpus(2), lambda a, b: "NV99999", {})
    assert data(text)["node"]["nvlink"] == {"kind": "none"}
    assert any("is NV99999, more links than can be" in said for said in taken(text).warnings)


def test_efa_ports_are_those_that_the_cloud_sells_with_the_gpu() -> None:
    legend = "".join(f"  NIC{n}: rdmap{79 + n}s0\n" for n in range(32))
    names = [*gpus(8), *(f"NIC{n}" for n in range(32))]
    text = matrix(names, lambda a, b: "NV18" if a[0] + b[0] == "GG" else "NODE", two_nodes(8))
    assert data(f"{text}\nNIC Legend:\n\n{legend}")["node"]["nics"] == {"count": 32, "device": "efa_v2_100"}


@pytest.mark.parametrize(
    ("name", "gpu", "nic"),
    [
        ("a3-megagpu-8g", "h100_sxm", "tcpxo_200"),
        ("a3-ultragpu-8g", "h200_sxm", "roce_400"),
        ("p5e.48xlarge", "h200_sxm", "efa_v2_100"),
        ("p5en.48xlarge", "h200_sxm", "efa_v3_200"),
    ],
)
def test_machines_of_clouds(name: str, gpu: str, nic: str) -> None:
    node = data(switched(8, "NV18"), f"{name}.txt", nodes=2)["node"]
    assert (node["gpus"]["device"], node["nics"]["device"]) == (gpu, nic)


# --- texts of others ---

ROCM = """\
========================= ROCm System Management Interface =========================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
"""
METAX = "mx-smi  version: 2.1\n\tGPU0\tGPU1\tNode Affinity\nGPU0\tX\tMX\t0\nGPU1\tMX\tX\t0\n"
ASCEND = "       NPU0  NPU1\nnpu-smi info -t topo\nNPU0   X   HCCS\nNPU1   HCCS  X\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ROCM, "rocm-smi or amd-smi (cells such as XGMI)"),
        (METAX, "mx-smi (cells such as MX)"),
        (ASCEND, "npu-smi"),
        ("\tGPU0\tGPU1\nGPU0\tX\tFOO\nGPU1\tFOO\tX\n", 'a matrix with cells such as "FOO"'),
        ("Machine (503GB total)\n  Package L#0\n", "lstopo"),
        ("gpus: 8\n", "neither a matrix of GPUs nor a <system>"),
        ("", "an empty file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(400), "bytes that are no text"),
    ],
)
def test_other_texts_are_refused_in_a_line(text: str | bytes, found: str) -> None:
    said = refused(text)
    assert said.startswith("box.txt: found ")
    assert found in said
    assert "expected the text of nvidia-smi topo -m, or an NCCL topology XML" in said
