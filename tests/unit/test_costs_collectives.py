"""Collectives: algorithms, the links they take and the bytes on them, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import collective, demand, machine, priced, seconds, switched
from zerosim.costs.bounds import bus_factor, wire_bytes
from zerosim.errors import InputError
from zerosim.resources import Demand
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology

MIB, GIB = 2**20, 2**30
NDR = {"device": "infiniband_ndr", "count": 8}


def amounts(found: Demand) -> dict[str, float]:
    return {use.resource: use.amount for use in found.uses}


def test_one_rank_has_nothing_to_say() -> None:
    found = demand(switched("a100_sxm_80", 1), collective("all_reduce", MIB))
    assert (found.latency, found.uses, found.holds) == (0.0, (), ())


def test_a_ring_on_one_node_by_hand() -> None:
    a100 = switched("a100_sxm_80")
    found = demand(a100, collective("all_gather", GIB))
    transfer = GIB * 7 / 8 / (0.81 * 300e9)
    alpha = 9e-6 + 7 * 0.9e-6
    assert found.algorithm == "ring"
    assert found.latency == pytest.approx(alpha + 1.5 * (alpha * transfer) ** 0.5)
    assert found.alone(priced(a100).supply) == pytest.approx(found.latency + transfer)
    assert amounts(found) == {"nvlink": GIB * 7 / 8, "hbm": 2.5 * GIB * 7 / 8}


def test_a_ring_takes_24_of_108_sms_and_fewer_for_a_small_message() -> None:
    a100 = switched("a100_sxm_80")
    assert demand(a100, collective("all_reduce", GIB)).holds == (("sm", 24 / 108),)
    assert demand(a100, collective("all_reduce", 4)).holds == (("sm", 1 / 108),)


def test_nvls_needs_six_gpus_a_switch_and_two_mebibytes() -> None:
    big = collective("all_reduce", GIB)
    assert demand(switched("h100_sxm"), big).algorithm == "nvls"
    assert demand(switched("h100_sxm", 6), big).algorithm == "nvls"
    assert demand(switched("h100_sxm", 4), big).algorithm == "ring"
    assert demand(switched("a100_sxm_80"), big).algorithm == "ring"
    assert demand(switched("h100_sxm"), collective("all_reduce", MIB)).algorithm == "ring"
    assert demand(switched("h100_sxm"), collective("reduce_scatter", GIB)).algorithm == "ring"
    assert amounts(demand(switched("h100_sxm"), big))["nvlink"] == GIB


def test_two_nodes_exchange_the_buffer_once() -> None:
    found = demand(switched("a100_sxm_80", 8, 2, NDR | {"device": "infiniband_hdr"}), collective("all_reduce", GIB))
    assert found.algorithm == "tree"
    assert amounts(found)["nic"] == GIB
    transfer = GIB * 15 / 8 / min(0.81 * 300e9, 15 / 8 * 8 * 0.9 * 25e9)
    alpha = 9e-6 + 2 * (7 * 0.9e-6 + 12e-6)
    assert found.latency == pytest.approx(alpha + 1.5 * (alpha * transfer) ** 0.5)
    assert demand(switched("h100_sxm", 8, 2, NDR), collective("all_reduce", GIB)).algorithm == "nvls_tree"


def test_a_gather_over_nodes_is_bound_by_their_ports() -> None:
    ethernet = switched("a100_sxm_80", 8, 2, {"kind": "ethernet", "bandwidth": "10 Gbps", "count": 1})
    found = demand(ethernet, collective("all_gather", GIB))
    assert found.bottleneck(priced(ethernet).supply) == "nic"
    assert found.alone(priced(ethernet).supply) - found.latency == pytest.approx(GIB * 15 / 16 / (0.92 * 1.25e9))
    assert priced(ethernet).supply.labels["nic"] == "NIC 10 Gb/s Ethernet, one per node"
    assert "dram" in amounts(found)  # TCP goes through host memory


def test_ranks_of_a_node_share_its_ports() -> None:
    four = switched("a100_sxm_80", 8, 4, NDR | {"device": "infiniband_hdr"})
    whole = seconds(four, collective("all_gather", GIB), size=32)
    found = demand(four, collective("all_gather", GIB), size=4, stride=8)  # one rank a node, eight such groups at once
    own = GIB * 3 / 4 / (8 * 0.9 * 25e9 / 8)
    assert found.alone(priced(four).supply) - found.latency == pytest.approx(own)
    assert amounts(found)["nic"] == 8 * GIB * 3 / 4
    assert "nvlink" not in amounts(found)
    assert own > whole


def test_a_group_inside_a_node_does_not_touch_the_network() -> None:
    two = switched("a100_sxm_80", 8, 2, NDR | {"device": "infiniband_hdr"})
    alone = switched("a100_sxm_80")
    inside = demand(two, collective("all_reduce", GIB), size=8)
    assert inside == demand(alone, collective("all_reduce", GIB), size=8)


def test_oversubscribed_leaves_slow_what_crosses_them() -> None:
    def cluster(oversubscription: float) -> Topology:
        fabric = {"kind": "fat_tree", "leaf_nodes": 2, "oversubscription": oversubscription}
        return switched("a100_sxm_80", 8, 4, NDR | {"device": "infiniband_hdr"}, fabric=fabric)

    work = collective("all_gather", GIB)
    even, thin = demand(cluster(1), work), demand(cluster(4), work)
    assert even.bottleneck(priced(cluster(1)).supply) == "nic"
    assert thin.bottleneck(priced(cluster(4)).supply) == "leaf"
    # Two of the three other nodes hang on the other leaf: 2/3 of the bytes pass uplinks of a quarter of the rate.
    flow = thin.alone(priced(cluster(4)).supply) - thin.latency
    assert flow == pytest.approx(GIB * 31 / 32 * (2 / 3) / (8 * 25e9 / 4 * 0.9))
    assert any("leaf switches" in note for note in priced(cluster(4), work).notes)


def test_rails_keep_a_ring_on_its_leaf() -> None:
    fabric = {"kind": "rail", "leaf_nodes": 32, "oversubscription": 4}
    rails = switched("a100_sxm_80", 8, 4, NDR | {"device": "infiniband_hdr"}, fabric=fabric)
    assert "leaf" not in amounts(demand(rails, collective("all_gather", GIB)))


def test_a_mesh_is_as_wide_as_its_links_to_peers() -> None:
    mesh = machine("a100_sxm_80", 4, nvlink={"kind": "mesh"})

    def flow(size: int) -> float:
        found = demand(mesh, collective("all_gather", GIB), size=size)
        return found.alone(priced(mesh).supply) - found.latency

    assert flow(4) == pytest.approx(GIB * 3 / 4 / (0.81 * 300e9))
    assert flow(2) == pytest.approx(GIB * 1 / 2 / (0.81 * 100e9))  # one peer: a third of the links


def test_pairs_fall_back_to_pcie() -> None:
    switches = {"switches": [{"gpus": [0, 1], "socket": 0}, {"gpus": [2, 3], "socket": 0}]}
    pairs = machine("a40", 4, nvlink={"kind": "pairs"}, pcie=switches)
    over_bridge = demand(pairs, collective("all_gather", GIB), size=2)
    over_pcie = demand(pairs, collective("all_gather", GIB), size=4)
    assert set(amounts(over_bridge)) == {"nvlink", "hbm"}
    assert set(amounts(over_pcie)) == {"pcie.d2h", "pcie.h2d", "pcie.both", "uplink.d2h", "uplink.h2d", "hbm"}
    flow = over_pcie.alone(priced(pairs).supply) - over_pcie.latency
    assert flow == pytest.approx(GIB * 3 / 4 / (0.78 * 31.5e9))  # the ring leaves each switch once
    assert over_pcie.holds == (("sm", 2 / 84),)


def test_without_peer_access_bytes_bounce_through_host_memory() -> None:
    def box(p2p: bool) -> Topology:
        return machine({"device": "rtx4090", "p2p": p2p}, 4)

    work = collective("all_gather", GIB)
    with_peers, without = (demand(box(p2p), work) for p2p in (True, False))
    assert "dram" not in amounts(with_peers)
    assert amounts(without)["dram"] == 2 * 4 * GIB * 3 / 4
    flows = [d.alone(priced(box(True)).supply) - d.latency for d in (with_peers, without)]
    assert flows[1] >= 2 * flows[0]
    assert priced(box(False), work).notes == ("GPUs without peer access exchange data through host memory",)


def test_an_all_to_all_over_nodes_sends_half_away() -> None:
    found = demand(switched("b200_sxm", 8, 2, NDR), collective("all_to_all", GIB))
    assert found.algorithm == "pairwise"
    assert amounts(found)["nic"] == 8 * GIB / 2
    assert amounts(found)["nvlink"] == GIB * 7 / 16


def test_send_and_receive() -> None:
    b200 = switched("b200_sxm", 8, 2, NDR)
    inside = demand(b200, collective("send_recv", GIB), size=2)
    across = demand(b200, collective("send_recv", GIB), size=2, stride=8)
    assert set(amounts(inside)) == {"nvlink", "hbm"}
    flow = across.alone(priced(b200).supply) - across.latency
    assert flow == pytest.approx(GIB / (0.92 * 50e9))  # each GPU has a port
    assert across.algorithm == "direct"


def rack(hosts: int, gpus: int) -> Topology:
    """Hosts whose GPUs hang on one NVSwitch, in the graph form."""
    devices: list[dict[str, Any]] = [{"name": "nvswitch0", "kind": "nvswitch"}]
    links: list[dict[str, Any]] = []
    for host in range(hosts):
        socket = f"cpu{host}"
        devices.append({"name": socket, "kind": "socket", "node": host, "cores": 72})
        for name in (f"gpu{host}-{gpu}" for gpu in range(gpus)):
            devices.append({"name": name, "kind": "gpu", "node": host, "device": "gb200"})
            links.append({"from": name, "to": "nvswitch0", "kind": "nvlink", "bandwidth": "900 GB/s"})
            links.append({"from": name, "to": socket, "kind": "c2c", "bandwidth": "450 GB/s"})
    return read_topology(inline({"name": "rack", "devices": devices, "links": links}, "rack"))


def test_a_rack_is_one_island() -> None:
    two = rack(2, 4)
    found = demand(two, collective("all_gather", GIB), size=8)
    assert {use.resource.partition(".")[0] for use in found.uses} == {"nvlink", "hbm"}
    assert found.alone(priced(two).supply) - found.latency == pytest.approx(GIB * 7 / 8 / (0.81 * 900e9))


def test_nodes_without_ports_cannot_talk() -> None:
    with pytest.raises(InputError, match="nics"):
        switched("a100_sxm_80", 8, 2)


def test_wire_bytes() -> None:
    assert wire_bytes("all_reduce", 800, 8, 1) == (1400, 0)
    assert wire_bytes("all_reduce", 800, 8, 1, "nvls") == (800, 0)
    assert wire_bytes("all_reduce", 800, 16, 2, "tree") == (1500, 800)
    assert wire_bytes("all_gather", 800, 16, 2) == (750, 750)
    assert wire_bytes("all_gather", 800, 4, 4) == (0, 600)
    assert wire_bytes("all_to_all", 1600, 16, 2) == (700, 6400)
    assert wire_bytes("broadcast", 800, 8, 1) == (800, 0)
    assert wire_bytes("all_reduce", 800, 1, 1) == (0, 0)
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("reduce", 1) == 0


def test_a_pipeline_of_neighbours_uses_ports_of_its_own() -> None:
    b200 = switched("b200_sxm", 8, 2, NDR)
    ring = demand(b200, collective("send_recv", GIB), size=16)
    both_ways = demand(b200, collective("exchange", GIB), size=2, stride=8)
    pair = demand(b200, collective("send_recv", GIB), size=2, stride=8)
    supply = priced(b200).supply
    assert ring.alone(supply) - ring.latency == pytest.approx(2 * (pair.alone(supply) - pair.latency))
    assert both_ways.alone(supply) == pytest.approx(ring.alone(supply), rel=1e-3)  # one port, both ways at once
