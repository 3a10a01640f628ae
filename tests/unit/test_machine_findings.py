"""What is wrong with a machine: for each finding one that has it and one that has not, numbers by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import machine, switched
from zerosim.catalog import constant, nics
from zerosim.errors import Finding
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import named_topology, read_topology, topology_names
from zerosim.studies.machine import machine_findings
from zerosim.studies.machine.kinds import numbered

ROOMY = {"device": "epyc_7742", "dram": {"capacity": "1 TB"}}
INFINIBAND = {"device": "infiniband_hdr", "count": 8}
SWITCH = {"kind": "switch"}


def codes(topology: Topology) -> list[str]:
    return [finding.code for finding in machine_findings(topology)]


def told(topology: Topology, code: str) -> Finding:
    found = [finding for finding in machine_findings(topology) if finding.code == code]
    assert len(found) == 1, codes(topology)
    return found[0]


def says(topology: Topology, code: str, *parts: str, severity: str = "warning") -> None:
    finding = told(topology, code)
    assert finding.severity == severity
    for part in parts:
        assert part in finding.message, finding.message
    assert "\0" not in finding.message
    assert finding.message.endswith(".")
    assert finding.remedy.endswith(".")


def cards(gpus: int = 4, gpu: str = "a10", **more: Any) -> Topology:
    """Cards with peer access and without NVLink, all on one PCIe switch of one socket."""
    return machine(gpu, gpus, **more)


def hung_on_sockets(gpus: int, gpu: str = "a10", **more: Any) -> Topology:
    """Half of the GPUs on each of two sockets, each in a slot of its own."""
    sockets = more.pop("sockets", [ROOMY, ROOMY])
    return machine(gpu, gpus, sockets=sockets, pcie=more.pop("pcie", {}), **more)


# --- where all is well ---------------------------------------------------------------------------------------------


def test_a_machine_without_fault() -> None:
    assert codes(switched("h100_sxm", 8, 1, {"device": "infiniband_ndr", "count": 8})) == ["dram-slow"]  # one socket
    assert codes(hung_on_sockets(2)) == []


SHIPPED = {  # what is true of them; a PCIe switch with two GPUs is built so, and is a note
    "aws-p4d": ["pcie-uplink"],  # its CPUs speak PCIe 3 to two GPUs a switch
    "aws-p5": ["pcie-uplink"],  # and PCIe 4 to one H100
    "dgx-a100-40": ["pcie-uplink"],
    "dgx-a100-80": ["pcie-uplink"],
    "dgx-v100-16": ["pcie-uplink"],
    "dgx2-v100-32": ["pcie-uplink"],  # four GPUs behind one slot
    "ethernet-10g-a100": ["network-slow", "pcie-uplink"],
    "roce-100g-a100": ["network-slow", "pcie-uplink"],
    "pcie-2x-rtx3090": ["pcie-narrow"],
    "pcie-4x-rtx4090": ["no-p2p"],
}


@pytest.mark.parametrize("name", topology_names())
def test_machines_that_come_with_zerosim_have_only_what_is_true_of_them(name: str) -> None:
    found = machine_findings(named_topology(name))
    if name in SHIPPED or name.startswith(("dgx", "gh200", "pcie-1x")):
        assert [finding.code for finding in found] == SHIPPED.get(name, [])
    for finding in found:
        assert finding.severity in ("note", "warning")
        if name.startswith("dgx-"):
            assert finding.severity == "note"


# --- slots ---------------------------------------------------------------------------------------------------------


def test_a_slot_of_few_lanes() -> None:
    says(hung_on_sockets(2, pcie={"lanes": 4}), "pcie-narrow", "GPUs 0-1", "PCIe 4 x4", "7.875 GB/s", "31.5", "4 times")


def test_a_slot_of_an_older_generation() -> None:
    says(hung_on_sockets(2, pcie={"generation": 3}), "pcie-narrow", "PCIe 3 x16", "15.75 GB/s", "2 times")
    assert "pcie-narrow" not in codes(hung_on_sockets(2, "t4"))  # which can do no more


def test_collectives_suffer_from_a_slot_only_without_nvlink() -> None:
    lanes: dict[str, Any] = {"pcie": {"lanes": 8}, "sockets": [ROOMY]}
    bare = told(machine("rtx3090", 2, **lanes), "pcie-narrow")
    bridged = told(machine("rtx3090", 2, nvlink={"kind": "pairs"}, **lanes), "pcie-narrow")
    assert "collectives" in bare.message
    assert "collectives" not in bridged.message


def test_an_uplink_for_several_gpus() -> None:
    two, four = (cards(gpus, pcie={"switches": [{"gpus": list(range(gpus)), "socket": 0}]}) for gpus in (2, 4))
    says(
        two, "pcie-uplink", "carries 31.5 GB/s for 2 GPUs that can copy 63 GB/s", "15.75 GB/s is left", severity="note"
    )
    says(four, "pcie-uplink", "for 4 GPUs", "126 GB/s", "7.875 GB/s is left")
    wide = cards(2, pcie={"switches": [{"gpus": [0, 1], "socket": 0, "uplink": "63 GB/s"}]})
    assert "pcie-uplink" not in codes(wide)


def test_ports_elsewhere_load_an_uplink_and_those_below_it_do_not() -> None:
    port = {"count": 1, "bandwidth": "100 Gbps", "kind": "roce"}
    switch: dict[str, Any] = {"gpus": [0, 1], "socket": 0}
    away = told(cards(2, pcie={"switches": [switch]}, nics=port), "pcie-uplink")
    below = told(cards(2, pcie={"switches": [{**switch, "nics": [0]}]}, nics=port), "pcie-uplink")
    assert "and 12.5 GB/s of the network" in away.message
    assert "network" not in below.message


def test_a_switch_below_a_switch_counts_all_that_is_behind_it() -> None:
    inner = [{"gpus": [0, 1]}, {"gpus": [2, 3]}]
    says(cards(4, pcie={"switches": [{"socket": 0, "switches": inner}]}), "pcie-uplink", "for 4 GPUs")


def test_a_port_in_too_narrow_a_slot() -> None:
    def drawn(slot: str) -> Topology:
        links = [("gpu0", "socket0", "31.5 GB/s"), ("nic0", "socket0", slot)]
        listed = [{"from": a, "to": b, "bandwidth": rate, "generation": 4} for a, b, rate in links]
        listed.append({"from": "nic0", "to": "leaf0", "bandwidth": "200 Gbps"})
        listed.append({"from": "socket0", "to": "dram0", "bandwidth": "204.8 GB/s"})
        devices: list[dict[str, Any]] = [
            {"name": "gpu0", "kind": "gpu", "device": "a10", "node": 0},
            {"name": "socket0", "kind": "socket", "device": "epyc_7742", "node": 0},
            {"name": "dram0", "kind": "dram", "capacity": "1 TB", "node": 0},
            {"name": "nic0", "kind": "nic", "device": "infiniband_hdr", "node": 0},
            {"name": "leaf0", "kind": "leaf"},
        ]
        return read_topology(inline({"name": "drawn", "devices": devices, "links": listed}, "drawn"))

    moves = 25e9 * nics()["infiniband_hdr"].figures.efficiency
    carries = 15.75e9 * constant("copies.peer_eff.pcie4")
    says(drawn("15.75 GB/s"), "nic-slot", "nic0", "PCIe 4 x8", f"{moves / carries:.3g} times less")
    assert "nic-slot" not in codes(drawn("31.5 GB/s"))


def test_memory_slower_than_the_copies_of_all() -> None:
    def box(rate: str) -> Topology:
        return hung_on_sockets(4, sockets=[{"device": "epyc_7742", "dram": {"capacity": "1 TB", "bandwidth": rate}}])

    copies, gives = 4 * 31.5 * constant("copies.h2d_eff.pcie4"), 80 * constant("dram.stream_eff")
    says(box("80 GB/s"), "dram-slow", f"{gives:.4g} GB/s", f"4 GPUs on it can copy {copies:.4g} GB/s")
    assert "dram-slow" not in codes(box("204.8 GB/s"))
    assert "dram-slow" not in codes(cards(4, sockets=[{**ROOMY, "dram": {"capacity": "1 TB", "bandwidth": "80 GB/s"}}]))


def test_a_superchip_is_built_with_memory_slower_than_its_links() -> None:
    # Two links of 450 GB/s, one Grace with 480 GB/s.
    copies, gives = 2 * 450 * constant("copies.h2d_eff.c2c"), 480 * constant("dram.stream_eff")
    grace = [{"device": "grace", "dram": {"capacity": "480 GB"}}]
    two = machine("gb200", 2, 1, SWITCH, sockets=grace, pcie=None)
    says(two, "dram-slow", f"{100 * gives / copies:.3g} % of what", severity="note")


# --- between GPUs --------------------------------------------------------------------------------------------------


def test_no_peer_access() -> None:
    # A bounce through host memory crosses PCIe twice.
    finding = told(hung_on_sockets(4, "rtx4090"), "no-p2p")
    assert finding.severity == "warning"
    assert "4 GPUs (RTX 4090)" in finding.message
    assert "no-p2p" not in codes(hung_on_sockets(4, "a10"))
    opened = machine({"device": "rtx4090", "p2p": True}, 4, sockets=[ROOMY], pcie={})
    assert "no-p2p" not in codes(opened)


def test_a_bridge_between_two_cards_needs_no_peer_access() -> None:
    assert "no-p2p" not in codes(machine("rtx3090", 2, nvlink={"kind": "pairs"}, pcie={}))
    assert "no-p2p" in codes(machine("rtx3090", 2, pcie={}))


def test_nvlink_of_pairs_only() -> None:
    four = machine("h100_pcie", 4, nvlink={"kind": "pairs"}, pcie={})
    says(four, "nvlink-islands", "joins 2 of the 4 GPUs", "over GPUs 0-1", "by way of PCIe")
    assert "nvlink-islands" not in codes(machine("h100_pcie", 2, nvlink={"kind": "pairs"}, pcie={}))
    assert "nvlink-islands" not in codes(switched("a100_sxm_80"))


def test_nvlink_that_is_missing_or_less_than_the_gpu_has() -> None:
    says(machine("h100_sxm", 4, pcie={}), "nvlink-missing", "GPUs 0-3", "450 GB/s")
    fewer = {"kind": "switch", "bandwidth": "200 GB/s"}
    says(machine("a100_sxm_80", 4, nvlink=fewer, pcie={}), "nvlink-reduced", "200 GB/s in all", "300 GB/s each way")
    found = codes(machine("a100_sxm_80", 4, nvlink=SWITCH, pcie={}))
    assert not {"nvlink-missing", "nvlink-reduced"} & set(found)
    assert "nvlink-missing" not in codes(machine("h100_pcie", 4, pcie={}))  # a bridge is an extra
    assert "nvlink-missing" not in codes(machine("h100_sxm", 1, pcie={}))


def test_a_link_between_sockets_slower_than_the_ring() -> None:
    def box(rate: str) -> Topology:
        return hung_on_sockets(4, sockets=[{**ROOMY, "interconnect": rate}] * 2)

    carries = 40 * constant("copies.socket_link_eff")
    asked = 31.5 * constant("collectives.ring_eff_pcie.pcie4")
    says(box("40 GB/s"), "socket-link", f"{carries:.4g} GB/s", f"{asked:.4g} GB/s", f"{asked / carries:.3g} times")
    assert "socket-link" not in codes(box("128 GB/s"))
    one = hung_on_sockets(4, sockets=[ROOMY])
    assert "socket-link" not in codes(one)


# --- ports ---------------------------------------------------------------------------------------------------------


def test_ports_of_the_other_socket() -> None:
    port = {"count": 1, "bandwidth": "200 Gbps", "kind": "infiniband", "socket": 0}
    weak = [{**ROOMY, "interconnect": "40 GB/s"}] * 2
    says(hung_on_sockets(2, nics=port), "nic-far", "GPU 1 reaches", severity="note")
    says(hung_on_sockets(2, nics=port, sockets=weak), "nic-far", "12 GB/s", "22.5 GB/s", "1.88 times less")
    assert "nic-far" not in codes(hung_on_sockets(2, nics={**port, "count": 2, "socket": None}))
    assert "nic-far" not in codes(hung_on_sockets(2, "a100_sxm_80", nics=port, nvlink=SWITCH))  # passed on by GPU 0


def test_ports_that_are_near_no_gpu() -> None:
    switches = [{"gpus": [0, 1], "nics": [0, 1], "socket": 0}]
    ports = {"device": "infiniband_hdr", "count": 3}
    says(cards(2, pcie={"switches": switches}, nics=ports), "nic-idle", "nic2 is", "2 of 3 ports", severity="note")
    assert "nic-idle" not in codes(cards(2, pcie={"switches": switches}, nics={**ports, "count": 2}))


def test_ports_that_do_not_divide_the_gpus() -> None:
    def box(ports: int) -> Topology:
        switches: list[dict[str, Any]] = [{"gpus": [0, 1], "nics": [0], "socket": 0}, {"gpus": [2], "nics": [1]}]
        switches += [{"gpus": [3], "nics": [2], "socket": 0}] if ports == 3 else [{"gpus": [3], "nics": [2, 3]}]
        return cards(4, pcie={"switches": switches}, nics={"device": "infiniband_hdr", "count": ports})

    says(box(3), "nic-uneven", "3 ports for 4 GPUs", "one serves 2 GPUs and another 1", severity="note")
    assert "nic-uneven" not in codes(box(4))
    two = [{"gpus": [0], "nics": [0], "socket": 0}, {"gpus": [1], "nics": [1, 2], "socket": 0}]
    ports = {"device": "infiniband_hdr", "count": 3}
    says(
        cards(2, pcie={"switches": two}, nics=ports), "nic-uneven", "one serves 1 GPU and another 0.5", severity="note"
    )


def test_tcp_that_fills_no_port() -> None:
    def box(rate: str) -> Topology:
        return switched("a100_sxm_80", 8, 1, {"count": 1, "bandwidth": rate, "kind": "ethernet"})

    moved = 100 * nics()["ethernet_100"].figures.efficiency
    says(box("100 Gbps"), "nic-transport", "1 port", f"moves {moved:.4g} Gb/s by TCP")
    assert "nic-transport" not in codes(box("10 Gbps"))


# --- between nodes -------------------------------------------------------------------------------------------------


def test_a_network_far_slower_than_nvlink() -> None:
    slow = switched("a100_sxm_80", 8, 2, {"count": 1, "bandwidth": "10 Gbps", "kind": "ethernet"})
    says(slow, "network-slow", "on 1 node and", "NIC 10 Gb/s Ethernet")
    assert "network-slow" not in codes(switched("a100_sxm_80", 8, 2, INFINIBAND))


def test_leaves_with_thin_uplinks() -> None:
    def cluster(thin: float, nodes: int = 4) -> Topology:
        fabric = {"kind": "fat_tree", "leaf_nodes": 2, "oversubscription": thin}
        return switched("a100_sxm_80", 8, nodes, INFINIBAND, fabric=fabric)

    # Two nodes of eight ports of 200 Gb/s hang on a leaf: 3.2 Tb/s.
    says(cluster(4), "leaf-oversubscribed", "2 of 2", "uplinks of 800 Gb/s for 3.2 Tb/s", "1/4")
    says(cluster(2), "leaf-oversubscribed", "1/2", severity="note")
    assert "leaf-oversubscribed" not in codes(cluster(1))
    assert "leaf-oversubscribed" not in codes(cluster(4, 2))  # all on one leaf
    assert "spine-oversubscribed" not in codes(cluster(4))


def test_spines_with_thin_uplinks() -> None:
    fabric = {"kind": "fat_tree", "leaf_nodes": 1, "spine_nodes": 2, "spine_oversubscription": 8}
    three_levels = switched("a100_sxm_80", 8, 4, INFINIBAND, fabric=fabric)
    says(three_levels, "spine-oversubscribed", "2 of 2 spine switches", "uplinks of 400 Gb/s for 3.2 Tb/s", "1/8")
    assert "leaf-oversubscribed" not in codes(three_levels)


# --- what is not equal ---------------------------------------------------------------------------------------------


def uneven(*overrides: dict[str, Any]) -> Topology:
    return switched("a100_sxm_80", 8, 4, INFINIBAND, overrides=list(overrides))


def test_equal_nodes_are_equal() -> None:
    assert not {"node-network", "node-gpus", "gpu-slow"} & set(codes(uneven()))


def test_a_node_with_slower_ports() -> None:
    slow = uneven({"node": 3, "nics": {"device": None, "kind": "infiniband", "bandwidth": "100 Gbps"}})
    says(slow, "node-network", "node 3 (8 x 100 Gb/s)", "90 GB/s", "180 GB/s", "2 times less")


def test_a_node_with_fewer_gpus() -> None:
    says(uneven({"node": 1, "gpus": {"count": 6}}), "node-gpus", "Node 1 has 6 GPUs, other nodes 8", "leave 2 out")


def test_a_throttled_gpu() -> None:
    # 80 % of 312 TFLOP/s.
    says(
        uneven({"gpu": "0.5", "compute": 0.8}),
        "gpu-slow",
        "GPU 0.5",
        "at 80 %",
        "249.6 TFLOP/s",
        "31 GPUs",
        "1.25 times",
    )


def test_a_gpu_of_another_model() -> None:
    finding = told(uneven({"gpu": "2.0", "device": "v100_sxm2_32"}), "gpu-slow")
    assert "GPU 2.0 (V100-SXM2-32GB): 125 TFLOP/s" in finding.message
    assert finding.remedy == "One model of GPU in a group."


def test_what_is_the_same_in_unequal_nodes_is_told_once() -> None:
    lame = {"gpu": "3.0", "compute": 0.5}
    pcie = {"switches": [{"gpus": [0, 1, 2, 3], "socket": 0}]}
    four = machine("a100_sxm_80", 4, 4, SWITCH, INFINIBAND, pcie=pcie, overrides=[lame])
    assert codes(four).count("pcie-uplink") == 1
    assert " of node" not in told(four, "pcie-uplink").message
    other = machine(
        "a100_sxm_80", 4, 4, SWITCH, INFINIBAND, pcie=pcie, overrides=[{"node": 3, "nvlink": {"kind": "none"}}]
    )
    assert "GPUs 0-3 of node 3 (A100" in told(other, "nvlink-missing").message


# --- in general ----------------------------------------------------------------------------------------------------


def test_warnings_come_first() -> None:
    found = machine_findings(named_topology("ethernet-10g-a100"))
    assert [finding.severity for finding in found] == ["warning", "note"]


def test_large_clusters_are_judged_by_their_kinds_of_nodes() -> None:
    large = switched("h100_sxm", 8, 2048, {"device": "infiniband_ndr", "count": 8}, sockets=[ROOMY])
    assert codes(large) == codes(large.select(nodes=2))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [([3], "GPU 3"), ([0, 1, 2], "GPUs 0-2"), ([5, 0, 1], "GPUs 0-1 and 5"), ([0, 2, 4], "GPUs 0, 2 and 4"),
     ([0, 2, 4, 6], "GPU 0 and 3 more")],
)  # fmt: skip
def test_numbers_in_words(numbers: list[int], words: str) -> None:
    assert numbered("GPU", numbers) == words
