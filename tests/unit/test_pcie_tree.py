"""PCIe switches that hang on switches, and drives with a cache: how a template says them, and what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from zerosim.errors import InputError
from zerosim.spec.devices import Drive
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_facts import describe
from zerosim.spec.topology_file import named_topology, read_topology

TREE: list[dict[str, Any]] = [
    {"switches": [{"gpus": [0, 1], "nics": [0]}, {"gpus": [2, 3]}]},
    {"gpus": [4], "socket": 1, "switches": [{"gpus": [5, 6, 7], "uplink": "8 GB/s"}]},
]
TWO = [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}] * 2


def machine(switches: list[dict[str, Any]] = TREE, **more: Any) -> Topology:
    node = {"gpus": {"device": "a100_sxm_80", "count": 8}, "pcie": {"switches": switches}, "sockets": TWO}
    nics = {"count": 1, "bandwidth": "200 Gbps", "kind": "infiniband"}
    return read_topology(inline({"name": "tree", "node": {**node, "nics": nics, **more}}, "t"))


def said(switches: list[dict[str, Any]] = TREE, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        machine(switches, **more)
    return str(caught.value)


def test_switches_are_numbered_each_before_those_that_hang_on_it() -> None:
    tree = machine()
    assert [link.target for link in tree.route("0.gpu3", "0.socket0")] == ["0.pcie2", "0.pcie0", "0.socket0"]
    assert [link.target for link in tree.route("0.gpu4", "0.socket1")] == ["0.pcie3", "0.socket1"]
    slow = tree.route("0.gpu5", "0.socket1")
    assert [(link.target, link.bandwidth) for link in slow] == [
        ("0.pcie4", 31.5e9), ("0.pcie3", 8e9), ("0.socket1", 31.5e9),
    ]  # fmt: skip
    assert [link.target for link in tree.route("0.nic0", "0.socket0")] == ["0.pcie1", "0.pcie0", "0.socket0"]


def test_gpus_with_different_company_above_are_different() -> None:
    assert machine().rank_classes() == ((0, 1), (2, 3), (4,), (5, 6, 7))  # the NIC sets the first two apart
    even = [{"switches": [{"gpus": [0, 1]}, {"gpus": [2, 3]}]}, {"switches": [{"gpus": [4, 5]}, {"gpus": [6, 7]}]}]
    assert machine(even).rank_classes() == (tuple(range(8)),)
    # the same switches and links around each, but six GPUs behind one upper switch and two behind the other
    odd = [
        {"switches": [{"gpus": [0, 1]}, {"gpus": [2, 3, 4, 5]}]},
        {"switches": [{"gpus": [6, 7]}, {}]},
    ]
    assert machine(odd).rank_classes() == ((0, 1), (2, 3, 4, 5), (6, 7))
    assert len(named_topology("dgx2-v100-32").rank_classes()) == 1


def test_an_inner_switch_has_no_socket() -> None:
    wrong = [{"switches": [{"gpus": [0], "socket": 1}]}]
    assert said(wrong) == (
        "t: node.pcie.switches.0.switches.0.socket: found 1; expected no socket, as the switch hangs on switch 0"
    )


def test_a_gpu_hangs_on_one_switch_of_the_tree() -> None:
    wrong = [{"gpus": [1], "switches": [{"gpus": [0]}, {"gpus": [1, 9]}]}]
    assert said(wrong).splitlines() == [
        "t: node.pcie.switches.0.switches.1.gpus.0: found GPU 1, which switch 0 has; expected each GPU on one switch",
        "t: node.pcie.switches.0.switches.1.gpus.1: found GPU 9; expected a GPU from 0 to 7",
    ]
    below = [{"switches": [{"gpus": [0]}, {"gpus": [0]}]}]
    assert "found GPU 0, which switch 0.0 has" in said(below)


# --- drives ---


def drive(**figures: str) -> Drive:
    found = machine(nvme=[{"capacity": "2 TB", **figures}]).devices("nvme", 0)[0].figures
    assert isinstance(found, Drive)
    return found


def test_a_drive_keeps_what_the_catalogue_says_unless_it_is_told_otherwise() -> None:
    named = drive(device="nvme_gen4")
    assert (named.write, named.sustained_write, named.cache, named.grade) == (5e9, 2e9, 42e9, "R")
    assert drive(device="nvme_gen4", sustained_write="1 GB/s").sustained_write == 1e9
    assert drive(device="nvme_gen4", cache="100 GB").cache == 100e9
    assert drive(device="nvme_gen4", write="5 GB/s") == named  # the catalogue's own rate changes nothing
    faster = drive(device="nvme_gen4", write="6 GB/s")
    assert (faster.write, faster.sustained_write, faster.cache, faster.grade) == (6e9, 2e9, 42e9, "user")
    slower = drive(device="nvme_gen4", write="1 GB/s")
    assert (slower.write, slower.sustained_write, slower.cache) == (1e9, 1e9, 42e9)  # never more than it writes
    steady = drive(device="nvme_gen4_enterprise", write="5 GB/s")  # 3.8 GB/s, without a cache
    assert (steady.write, steady.sustained_write, steady.cache) == (5e9, 5e9, 0)
    bare = drive(device="nvme_gen4", cache="0 GB")
    assert (bare.write, bare.sustained_write, bare.cache) == (5e9, 2e9, 0)


def test_a_drive_without_a_device_has_no_cache_and_keeps_up_its_rate() -> None:
    own = {"read": "7 GB/s", "write": "5 GB/s"}
    for figures in (own, {**own, "cache": "0 GB"}):
        plain = drive(**figures)
        assert (plain.write, plain.sustained_write, plain.cache, plain.grade) == (5e9, 5e9, 0, "user")
    assert drive(**own, sustained_write="1.5 GB/s", cache="20 GB").cache == 20e9
    alone = drive(**own, sustained_write="1.5 GB/s")
    assert (alone.sustained_write, alone.cache) == (1.5e9, 0)


def test_what_a_drive_keeps_up_is_no_more_than_what_it_writes() -> None:
    own = {"capacity": "2 TB", "read": "7 GB/s", "write": "5 GB/s"}
    assert said(nvme=[{**own, "sustained_write": "6 GB/s"}]) == (
        "t: node.nvme.0.sustained_write: found 6 GB/s; expected at most 5 GB/s, which the drive writes at first"
    )
    assert said(nvme=[{**own, "cache": "20 GB"}]) == (
        "t: node.nvme.0.sustained_write: found nothing; expected what the drive writes once its cache is full"
    )


def test_a_drive_with_a_cache_is_described() -> None:
    lines = "\n".join(describe(named_topology("pcie-1x-rtx4090")))
    assert "read 6.8 GB/s, write 5 GB/s (2 GB/s after 42 GB)" in lines
