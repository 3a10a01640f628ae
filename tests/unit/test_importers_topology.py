"""The topology file that an importer writes: it reads back, its assumptions stand beside the figures, wishes count."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.imported import data, document, gpus, machine, matrix, refused, switched, taken, two_nodes
from zerosim import catalog
from zerosim.catalog import recognise
from zerosim.catalog.data import load
from zerosim.spec.importers import read_seen
from zerosim.spec.importers.yaml_lines import scalar
from zerosim.spec.topology_file import read_topology

BOX = matrix(gpus(2), lambda a, b: "PHB", {})


def test_a_gpu_that_nothing_tells_is_assumed_aloud() -> None:
    imported = taken(BOX)
    assert "gpus: {device: a100_pcie_80, count: 2}  # assumed: a100_pcie_80, as nothing tells the GPU" in imported.text
    assert imported.warnings[0] == "box.txt: assumed: a100_pcie_80, as nothing tells the GPU; --gpu DEVICE says it"


def test_the_gpu_that_the_user_says_counts() -> None:
    imported = taken(BOX, gpu="rtx4090")
    assert "device: rtx4090" in imported.text
    assert imported.warnings == ()
    assert data(switched(), gpu="h100_sxm")["node"]["nvlink"]["bandwidth"] == "300 GB/s"  # twelve links all the same
    other = data(BOX, gpu="RTX PRO 6000")["node"]["gpus"]
    assert (other["device"], other["name"]) == ("rtx5090", "RTX PRO 6000")
    assert refused(BOX, gpu="a100").endswith(
        'expected a GPU of the catalogue (zerosim list devices); nearest "a100_sxm_80"'
    )


def test_the_name_of_the_file_tells_the_gpu_unless_it_cannot_be() -> None:
    assert data(BOX, "boxes/node7-l40s.txt")["node"]["gpus"]["device"] == "l40s"
    assert data(switched(8, "NV18"), "h200-rack.txt")["node"]["gpus"]["device"] == "h200_sxm"
    assert data(switched(8, "NV18"), "not-a100.txt")["node"]["gpus"]["device"] == "h100_sxm"  # an A100 has twelve links
    assert data(BOX, "a100-or-h100.txt")["node"]["gpus"]["device"] == "a100_pcie_80"  # two names tell nothing


def test_several_nodes_have_a_network() -> None:
    topology = machine(switched(8, "NV18"), nodes=4)
    assert len(topology.gpus) == 32
    assert topology.route("0.gpu0", "3.gpu7")
    text = taken(BOX, nodes=2).text
    assert "# assumed: the text names no port, and nodes need one (R)" in text
    assert "fabric: {kind: switch}  # assumed" in text
    assert "nics:" not in "".join(line for line in taken(BOX).text.splitlines() if not line.strip().startswith("#"))


def test_overrides_stand_in_each_node() -> None:
    listing = "GPU 0: NVIDIA L4 (UUID: a)\nGPU 1: NVIDIA L40S (UUID: b)\n"
    said = data(listing + BOX, nodes=2)["overrides"]
    assert said == [{"gpu": "0.1", "device": "l40s"}, {"gpu": "1.1", "device": "l40s"}]


@pytest.mark.parametrize("name", ["on", "a: b", "#1", "7", "true", "x\ny", "caf\u00e9", 'quote"d', "  s ", "a\u0085b"])
def test_any_name_reads_back(name: str) -> None:
    assert yaml.safe_load(f"name: {scalar(name)}") == {"name": name}
    assert data(BOX, name=name)["name"] == name


def test_names_of_files_make_names_and_cannot_break_the_comments() -> None:
    assert data(BOX, "/tmp/My Node (7).txt")["name"] == "my-node-7"
    assert data(BOX, "standard input")["name"] == "imported"
    assert data(BOX, "x\nname: other\ny.txt")["node"]["count"] == 1
    assert refused(BOX, name=" ").startswith("--name: found")


def test_lines_keep_to_their_width() -> None:
    many = matrix([*gpus(8), *(f"NIC{n}" for n in range(16))], lambda a, b: "SYS", two_nodes(8))
    for text in (taken(many).text, taken(BOX, gpu="TITAN Xp").text, taken(switched(16, "NV6")).text):
        assert all(len(line) <= 120 for line in text.splitlines())


def test_recognised_names_are_in_the_catalogue() -> None:
    tables = load("recognise.yaml")
    for entry in tables["products"]:
        assert entry.get("gpu", entry.get("like")) in catalog.gpus()
        assert "like" not in entry or (entry["grade"] in "EARDF" and entry["source"] in catalog.sources())
    for entry in tables["platforms"]:
        assert entry["gpu"] in catalog.gpus()
        assert entry["nic"] in catalog.nics()
    assert set(tables["usual"]) == set(catalog.gpus())
    for gpu in catalog.gpus():
        around = recognise.surroundings(gpu)
        assert around.cpu in catalog.sockets()
        assert around.nic in catalog.nics()
        assert not around.desktop or around.desktop in catalog.sockets()
    assert all(entry["cpu"] in catalog.sockets() for entry in tables["cpus"])
    assert all(entry["kind"] in catalog.nic_kinds() for entry in tables["names"])
    assert {name for entry in tables["capabilities"].values() for name in entry.values()} <= set(catalog.gpus())


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100_sxm_40"),
        ("NVIDIA A100 80GB PCIe", "a100_pcie_80"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("Tesla V100-SXM2-16GB", "v100_sxm2_16"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
    ],
)
def test_product_names(text: str, gpu: str) -> None:
    found = recognise.product(text)
    assert found is not None
    assert (found.gpu, found.name) == (gpu, "")


SHARED = os.environ.get("ZEROSIM_SHARED")
CORPUS = sorted(Path(SHARED, "corpus").glob("topo_*/*")) if SHARED else []


@pytest.mark.skipif(not SHARED, reason="ZEROSIM_SHARED is not set: no machines of others")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_every_collected_machine(path: Path) -> None:
    given = path.read_bytes()
    if "rocm" in path.name:
        assert "rocm-smi" in refused(given, path.name)
        return
    topology = read_topology(document(given, path.name))
    seen = read_seen(given, path.name)
    assert len(topology.gpus) == len(seen.gpus)
    assert len(topology.devices("nic")) == len(seen.nics)
    assert len(topology.devices("socket")) == len(seen.sockets)
    for index, gpu in enumerate(seen.gpus):
        above = [link.target for link in topology.route(f"0.gpu{index}", f"0.socket{gpu.socket}")]
        assert not any("socket" in device for device in above[:-1])  # to its own socket without another one
