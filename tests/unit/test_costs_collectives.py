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

KIB, MIB, GIB = 2**10, 2**20, 2**30
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
    alpha = 9.4e-6 + 7 * 3.4e-6  # launch, and seven steps that wait for a fence
    assert found.algorithm == "ring"
    assert found.latency == pytest.approx(alpha + 2 * 0.54 * (alpha * transfer) ** 0.5)
    assert found.alone(priced(a100).supply) == pytest.approx(found.latency + transfer)
    assert amounts(found) == {"nvlink": GIB * 7 / 8, "hbm": 2.5 * GIB * 7 / 8}


def test_a_small_message_takes_short_steps_at_a_part_of_the_bandwidth() -> None:
    a100 = switched("a100_sxm_80")
    found = demand(a100, collective("all_gather", 64 * KIB))
    transfer = 64 * KIB * 7 / 8 / (0.14 * 0.81 * 300e9)
    alpha = 9.4e-6 + 7 * 1.0e-6
    assert found.algorithm == "ring_ll"
    assert found.alone(priced(a100).supply) == pytest.approx(alpha + transfer + 1.08 * (alpha * transfer) ** 0.5)
    assert amounts(found)["nvlink"] == 64 * KIB * 7 / 8


@pytest.mark.parametrize(("gpu", "size"), [("a100_sxm_80", 4 * MIB), ("h100_sxm", 128 * MIB)])
def test_large_messages_take_the_other_protocol(gpu: str, size: int) -> None:
    """Flags that travel with the data cost A100 most of the bandwidth, H100 (120 of 128 bytes are data) nearly none."""
    machine = switched(gpu)
    assert demand(machine, collective("all_gather", size / 64)).algorithm == "ring_ll"
    assert demand(machine, collective("all_gather", size)).algorithm == "ring"
    assert seconds(machine, collective("all_gather", size)) > seconds(machine, collective("all_gather", size / 2))


def test_over_pcie_there_is_one_kind_of_step() -> None:
    box = machine("l4", 4)
    transfer = GIB * 3 / 4 / (0.78 * 31.5e9)
    found = demand(box, collective("all_gather", GIB))
    alpha = 9.4e-6 + 3 * 0.6e-6
    assert found.algorithm == "ring"
    assert found.latency == pytest.approx(alpha + 1.08 * (alpha * transfer) ** 0.5)
    assert demand(box, collective("all_gather", 4)).latency == pytest.approx(alpha, rel=0.01)


def test_one_rank_a_node_gathers_in_a_logarithm_of_steps() -> None:
    """NCCL's parallel aggregated trees; with more ranks on a node a ring goes through all of them."""
    many = switched("a100_sxm_80", 8, 16, NDR | {"device": "infiniband_hdr"})
    trees = demand(many, collective("all_gather", GIB), size=16, stride=8)
    assert trees.algorithm == "pat"
    transfer = GIB * 15 / 16 / (8 * 0.9 * 25e9 / 8)
    assert trees.latency == pytest.approx(9.4e-6 + 4 * 24e-6 + 1.08 * (9.4e-6 * transfer) ** 0.5)
    ring = demand(many, collective("all_gather", GIB), size=128)
    assert ring.algorithm == "ring"
    busy = 9.4e-6 + 112 * 3.4e-6  # 128 - 16 steps from rank to rank, each as long as a fence on A100
    transfer = GIB * 127 / 128 / (8 * 0.9 * 25e9)
    assert ring.latency == pytest.approx(busy + 15 * 24e-6 + 1.08 * (busy * transfer) ** 0.5)


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
    assert demand(switched("h100_sxm"), collective("all_reduce", MIB)).algorithm == "ring_ll"
    assert demand(switched("h100_sxm"), collective("reduce_scatter", GIB)).algorithm == "ring"
    assert amounts(demand(switched("h100_sxm"), big))["nvlink"] == GIB
    assert demand(switched({"device": "h100_sxm", "nvls": False}), big).algorithm == "ring"


def test_two_nodes_exchange_the_buffer_once() -> None:
    found = demand(switched("a100_sxm_80", 8, 2, NDR | {"device": "infiniband_hdr"}), collective("all_reduce", GIB))
    assert found.algorithm == "tree"
    assert amounts(found)["nic"] == GIB
    transfer = GIB * 15 / 8 / min(0.81 * 300e9, 15 / 8 * 8 * 0.9 * 25e9)
    busy = 9.4e-6 + 2 * 7 * 3.4e-6  # launch, and the way up and down the node
    assert found.latency == pytest.approx(busy + 2 * 24e-6 + 1.08 * (busy * transfer) ** 0.5)
    assert demand(switched("h100_sxm", 8, 2, NDR), collective("all_reduce", GIB)).algorithm == "nvls_tree"


def test_a_tree_over_many_blackwell_nodes_is_capped() -> None:
    """0.81 x 900 = 729 GB/s inside a node, 1.04 x 0.92 x 400 = 383 out of it; racks have the ports for more."""
    wide = switched("b200_sxm", 8, 4, NDR | {"count": 16})
    found = demand(wide, collective("all_reduce", GIB))
    assert found.algorithm == "tree"
    assert found.alone(priced(wide).supply) - found.latency == pytest.approx(GIB * 31 / 16 / 400e9)


def test_a_message_between_two_gpus_gets_more_channels_when_it_is_large() -> None:
    """Four of 32 channels up to 64 MiB, twice as many for twice the size, until the link is full (published: 793 us for
    64 MiB, 798 for 128, 810 for 256, 859 for 512, 1669 for 1 GiB)."""
    b200 = switched("b200_sxm")
    supply = priced(b200).supply

    def rate(size: int) -> float:
        found = demand(b200, collective("send_recv", size), size=2)
        return size / (found.alone(supply) - found.latency)

    ring = 0.81 * 900e9
    assert rate(MIB) == pytest.approx(ring / 8)
    assert rate(64 * MIB) == pytest.approx(ring / 8)
    assert rate(GIB) == pytest.approx(0.73 * 900e9)
    times = [seconds(b200, collective("send_recv", size * MIB), size=2) for size in (64, 65, 128, 256)]
    assert times[1:] == pytest.approx([times[0]] * 3, rel=0.02)


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
    uplink = {"uplink.d2h", "uplink.h2d", "uplink.both"}
    assert set(amounts(over_pcie)) == {"pcie.d2h", "pcie.h2d", "pcie.both", "hbm"} | uplink
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
    assert flows[1] >= flows[0] / 0.28 * 0.99
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


def test_small_messages_go_up_a_tree_of_the_hosts_of_a_rack() -> None:
    """Sixteen GPUs: three steps in a host and two between four of them, up and down; a ring has thirty."""
    found = demand(rack(4, 4), collective("all_reduce", 4))
    assert found.algorithm == "tree_ll"
    assert found.latency == pytest.approx(9.4e-6 + 2 * 5 * 1e-6, rel=1e-3)
    ring = demand(rack(4, 4), collective("all_gather", GIB))
    transfer, busy = GIB * 15 / 16 / (0.81 * 900e9), 9.4e-6 + 15 * 1.75e-6
    assert ring.latency == pytest.approx(busy + 1.08 * (busy * transfer) ** 0.5)


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


def test_gpus_that_only_c2c_joins_go_through_their_sockets() -> None:
    """Two GH200 without NVLink: 30 % of the 100 GB/s between two Grace."""
    sockets = [{"device": "grace", "dram": {"capacity": "480 GB"}}] * 2
    pair = machine("gh200", 2, nvlink={"kind": "none"}, pcie=None, sockets=sockets, c2c={"bandwidth": "450 GB/s"})
    found = demand(pair, collective("all_gather", GIB))
    assert found.alone(priced(pair).supply) - found.latency == pytest.approx(GIB / 2 / (0.3 * 100e9))


def test_what_comes_with_the_transfer_is_not_taken_for_latency() -> None:
    """A gather over 64 nodes has 3 ms of steps; chunks that fill the way double what a thin leaf takes."""
    fabric = {"kind": "fat_tree", "leaf_nodes": 16, "oversubscription": 4}
    thin = switched("a100_sxm_80", 8, 64, NDR | {"device": "infiniband_hdr"}, fabric=fabric)
    found = demand(thin, collective("all_gather", 256 * MIB))
    supply = priced(thin).supply
    busy = 9.4e-6 + 448 * 3.4e-6
    flow = found.alone(supply) - found.latency
    assert found.filling == pytest.approx(2 * 0.54 * (busy * flow) ** 0.5)
    assert found.latency - found.filling == pytest.approx(busy + 63 * 24e-6)
    assert found.latency > flow
    assert found.bottleneck(supply) == "leaf"
    assert demand(thin, collective("all_gather", MIB)).bottleneck(supply) == "latency"
