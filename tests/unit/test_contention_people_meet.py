"""What people meet when traffic of several kinds shares a link, on small machines whose numbers are worked out by hand.

PCIe 4 carries 31.5 GB/s on paper: copies to the GPU reach 0.79 of it (24.9), from it 0.83, traffic between devices 0.77
(24.3), both ways together 0.79 of twice as much (49.8). PCIe 5 carries 63: 0.88 (55.4), 0.875, 0.89 (56.1), 0.87 (110).
A socket's memory gives 0.8 of its 204.8 GB/s (163.8), the link between sockets 0.30 of 128 (38.4) to GPUs. Where two
flows want more of a link than there is, each gets half of its time, or what it wants if that is less (max-min).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import machine
from tests.together import GB, at_once, collective, priced, uses
from zerosim import simulate
from zerosim.catalog import constant
from zerosim.scenario import from_mapping
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Topology
from zerosim.step import HostCompute, Transfer

FETCH, STOW = Transfer(GB, "dram", "gpu"), Transfer(GB, "gpu", "dram")
CPU = {"device": "epyc_7742", "dram": {"capacity": "1 TB"}}
MICRO = 1e-6


# --- two GPUs and two NICs behind one switch -------------------------------------------------------------------------


def two_and_two(nics: tuple[int, ...]) -> Topology:
    """Two nodes of two A100 with NVLink behind one PCIe 4 switch, with those ports of 100 Gb/s on it; the rest of the
    two ports hang on the socket."""
    port = {"count": 2, "bandwidth": "100 Gbps", "kind": "infiniband", "efficiency": 0.9}
    pcie = {"switches": [{"gpus": [0, 1], "nics": list(nics), "socket": 0}]}
    return machine("a100_sxm_80", 2, 2, {"kind": "switch"}, port, pcie=pcie)


def test_ports_beside_the_gpus_leave_the_uplink_to_copies() -> None:
    """Each GPU copies 1 GB through half of the uplink: 12.44 GB/s, 0.5 of its own lane. Its port brings 11.25 GB/s,
    0.46 of the lane's 24.3: together less than one lane, so both end as if they were alone."""
    beside = two_and_two((0, 1))
    gather = collective("all_gather", 4 * GB)
    assert "uplink.h2d" not in uses(beside, gather)
    copy, gathered = at_once(beside, FETCH, gather)
    assert copy.end == pytest.approx(6 * MICRO + 2 / 24.885, rel=1e-3)
    assert copy.end == pytest.approx(copy.alone)
    assert gathered.end == pytest.approx(gathered.alone)


def test_ports_on_the_socket_share_the_uplink_with_copies() -> None:
    """The ports' 22.5 GB/s pass the uplink, 0.93 of its 24.3; the copies of two GPUs want all of it. In halves the
    copies move at 12.44 GB/s together, a quarter of a lane each; what they have left when the gather ends goes on at
    full speed: in all the uplink is busy for the sum of both."""
    above = two_and_two(())
    gather = collective("all_gather", 4 * GB)
    node = uses(above, gather)["nic"]
    assert uses(above, gather)["uplink.h2d"] == pytest.approx(node)  # all that the node receives
    assert uses(above, gather)["uplink.both"] == pytest.approx(2 * node)
    copy, gathered = at_once(above, FETCH, gather)
    busy = 2 * GB / 24.885e9, node / (0.77 * 31.5e9)
    assert copy.flow == pytest.approx(busy[0], rel=1e-3)
    assert busy[1] / gathered.flow == pytest.approx(22.5 / 24.255, rel=0.02)
    first, last = sorted((copy, gathered), key=lambda each: each.end)
    assert first.end > 1.4 * first.alone
    assert last.end == pytest.approx(sum(busy), rel=0.08)  # a little more than the uplink needs: 0.93 is not all of it


# --- one socket's memory ---------------------------------------------------------------------------------------------


def test_eight_gpus_copy_from_one_sockets_memory_both_ways() -> None:
    """8 x 24.9 to the GPUs, or 8 x 26.1 from them, would pass the lanes; memory gives 163.84 GB/s to both together."""
    box = machine("a100_sxm_80", 8, pcie={})
    (alone,) = at_once(box, FETCH)
    assert alone.end == pytest.approx(6 * MICRO + 8 / 163.84, rel=1e-4)
    both = at_once(box, FETCH, STOW)
    assert [each.end for each in both] == pytest.approx([6 * MICRO + 16 / 163.84] * 2, rel=1e-4)


def test_the_cpu_optimizer_and_eight_copies_share_memory() -> None:
    """The optimizer passes over 8 x 10 GB at 0.57 x 204.8 GB/s, 0.685 s by itself; the copies need 48.8 ms of the
    memory. In halves they take twice as long, and the optimizer ends when the memory has done both."""
    box = machine("a100_sxm_80", 8, pcie={})
    copy, adam = at_once(box, FETCH, HostCompute("optimizer", 1e9, 10 * GB))
    assert copy.end == pytest.approx(2 * copy.flow + copy.latency, rel=1e-3)
    assert adam.end == pytest.approx(adam.flow + copy.flow, rel=1e-3)


# --- no peer access --------------------------------------------------------------------------------------------------


def consumer(p2p: bool, sockets: int = 1) -> Topology:
    """Four RTX 4090 straight on one socket, or two on each of two."""
    return machine({"device": "rtx4090", "p2p": p2p}, 4, pcie={}, sockets=[CPU] * sockets)


def test_without_peer_access_a_ring_passes_memory_twice_and_slows_copies_from_it() -> None:
    """Each GPU of the ring sends 0.75 GB, which is written to memory and read again: 6 GB for the four."""
    gather = collective("all_gather", GB)
    assert "dram" not in uses(consumer(True), gather)
    assert uses(consumer(False), gather)["dram"] == pytest.approx(2 * 4 * 0.75 * GB)
    with_peers, bounced = (at_once(consumer(p2p), gather)[0].flow for p2p in (True, False))
    assert bounced >= 2 * with_peers
    # Beside it a copy of 1 GB has more than half of its lane: the bounce leaves room where the direct ring leaves none
    copies = [at_once(consumer(p2p), FETCH, collective("all_gather", 4 * GB))[0] for p2p in (True, False)]
    assert copies[0].end == pytest.approx(2 * copies[0].flow, rel=0.03)
    assert copies[1].end < copies[0].end


def test_a_ring_over_two_sockets_crosses_their_link_and_is_no_faster() -> None:
    """Closed over both sockets the ring crosses the link once each way: 38.4 GB/s for flows of at most 24.6."""
    gather = collective("all_gather", GB)
    across = uses(consumer(True, 2), gather)
    assert across["sockets.into"] == across["sockets.out"] == pytest.approx(0.75 * GB)
    assert "sockets.into" not in uses(consumer(True), gather)
    one, two = (at_once(consumer(True, sockets), gather)[0].flow for sockets in (1, 2))
    assert two >= one * (1 - 1e-9)


def test_a_ring_over_two_sockets_meets_copies_on_their_link() -> None:
    """Half of what ranks copy that are not bound lies on the other socket: 2 x 0.5 GB into each. The ring beside them
    crosses, too: in halves of 38.4 GB/s, while the lanes let 24.9 to a copy and 24.6 to the ring."""
    box = consumer(True, 2)
    found = priced(box, FETCH, collective("all_gather", 4 * GB))
    link = {
        number: next(use for use in found.demands["all"][number].uses if use.resource == "sockets.into")
        for number in (0, 1)
    }
    assert [link[0].amount, link[1].amount] == pytest.approx([GB, 3 * GB])
    assert found.supply.rates["sockets.into"] * link[0].efficiency == pytest.approx(38.4e9)


def test_groups_at_once_meet_on_the_links_that_they_cross() -> None:
    """Eight A100 in pairs behind four switches, two on a socket. Each half has its own uplinks: a lane of 24.6 GB/s.
    Evens and odds cross all of them, two rings to an uplink. Four pairs across the sockets share 38.4 GB/s."""
    switches = [{"gpus": [i, i + 1], "socket": i // 4} for i in range(0, 8, 2)]
    box = machine("a100_pcie_80", 8, pcie={"switches": switches}, sockets=[CPU] * 2)
    gather = collective("all_gather", 4 * GB)
    rings = ((8, 1, 1, 24.57), (4, 1, 1, 24.57), (4, 2, 2, 24.57 / 2), (2, 4, 2, 38.4 / 4))
    for size, stride, crossings, rate in rings:
        sent = (size - 1) / size * 4 * GB
        assert uses(box, gather, size, stride)["uplink.d2h"] == pytest.approx(crossings * sent)
        assert at_once(box, gather, size=size, stride=stride)[0].flow == pytest.approx(sent / (rate * 1e9))


# --- uplinks of leaf and spine ---------------------------------------------------------------------------------------


def leaves(oversubscription: float, nodes: int = 4) -> Topology:
    """Two nodes of one A100 on each leaf, with a port of 100 Gb/s each."""
    port = {"count": 1, "bandwidth": "100 Gbps", "kind": "infiniband", "efficiency": 0.9}
    fabric = {"kind": "fat_tree", "leaf_nodes": 2, "oversubscription": oversubscription}
    pcie = {"switches": [{"gpus": [0], "nics": [0], "socket": 0}]}
    return machine("a100_sxm_80", 1, nodes, None, port, pcie=pcie, fabric=fabric)


def test_an_oversubscribed_leaf_slows_what_leaves_it_and_two_of_them_more() -> None:
    """Two of the three other nodes are behind the uplink: 2/3 of what two nodes send, over 25 GB/s / 4 x 0.9. A node's
    own port would take 1/11.25 s a GB; the uplink takes 2 x 2/3 / 5.625: 2.67 times as long."""
    gather = collective("all_gather", 4 * GB)
    (even,), (thin,) = at_once(leaves(1), gather), at_once(leaves(4), gather)
    assert thin.flow / even.flow == pytest.approx((2 * 2 / 3 / 5.625) / (1 / 11.25), rel=0.05)
    assert uses(leaves(4), gather)["leaf"] == pytest.approx(2 * 2 / 3 * uses(leaves(4), gather)["nic"])
    two = at_once(leaves(4), gather, collective("reduce_scatter", 4 * GB))
    assert [each.end for each in two] == pytest.approx([two[0].latency + 2 * thin.flow] * 2, rel=0.03)


def test_what_stays_on_a_leaf_is_not_slowed_by_its_uplinks() -> None:
    gather = collective("all_gather", 4 * GB)
    (even,), (thin,) = (at_once(leaves(o), gather, size=2) for o in (1, 4))  # nodes 0 and 1, which share a leaf
    assert thin == even


# --- two collectives on one port -------------------------------------------------------------------------------------


def one_port(**nics: Any) -> Topology:
    port = {"count": 1, "bandwidth": "100 Gbps", "kind": "infiniband", **nics}
    pcie = {"switches": [{"gpus": [0, 1, 2, 3], "nics": [0], "socket": 0}]}
    return machine("a100_sxm_80", 4, 2, {"kind": "switch"}, port, pcie=pcie)


def test_a_gather_and_a_reduction_share_a_port() -> None:
    """Equal bytes: both move at half of the port's rate and end together, when it has carried both. Half the bytes: the
    smaller ends after twice its own time, the larger when all is carried."""
    full, half = collective("all_gather", 4 * GB), collective("reduce_scatter", 2 * GB)
    gather, scatter = at_once(one_port(), full, collective("reduce_scatter", 4 * GB))
    assert gather.flow == pytest.approx(scatter.flow)
    assert gather.end == pytest.approx(gather.latency + 2 * gather.flow, rel=1e-3)
    gather, scatter = at_once(one_port(), full, half)
    assert scatter.flow == pytest.approx(gather.flow / 2)
    assert scatter.end == pytest.approx(scatter.latency + 2 * scatter.flow, rel=0.01)
    assert gather.end == pytest.approx(gather.latency + gather.flow + scatter.flow, rel=0.01)


# --- offload and network on one lane ---------------------------------------------------------------------------------


def own_ports() -> Topology:
    """Two nodes of one H100 beside its port of 400 Gb/s on a PCIe 5 switch."""
    port = {"count": 1, "bandwidth": "400 Gbps", "kind": "infiniband", "efficiency": 0.92}
    genoa = [{"device": "epyc_genoa", "dram": {"capacity": "1 TB"}}]
    pcie = {"generation": 5, "switches": [{"gpus": [0], "nics": [0], "socket": 0}]}
    return machine("h100_pcie", 1, 2, None, port, pcie=pcie, sockets=genoa)


def test_offload_and_network_share_the_lane_of_a_gpu() -> None:
    """The port brings 46 GB/s, 0.82 of the lane's 56.1; a copy wants the whole lane, 55.4. In halves of its time: 27.7
    and 28.0 GB/s, so that the collective runs at 0.61 of its speed while 5.54 GB are copied: in 0.2 s, less what was
    copied at full speed before the collective, after its latency, began to move."""
    box, copy = own_ports(), Transfer(5.544 * GB, "dram", "gpu")
    moved, gathered = at_once(box, copy, collective("all_gather", 40 * GB))
    assert moved.flow == pytest.approx(0.1, rel=1e-3)
    assert moved.end == pytest.approx(0.2 - gathered.latency, rel=1e-3)
    done = (moved.end - gathered.latency) * 0.5 * 56.07 / 46  # of the flow, in seconds of it alone
    assert gathered.end == pytest.approx(moved.end + gathered.flow - done, rel=0.02)


def test_a_pageable_copy_leaves_the_lane_to_a_pinned_one() -> None:
    """Its staging buffer lets a fifth of 24.9 GB/s through, so it takes a fifth of the lane; the pinned copy of 1 GB
    has the rest: 1 / (0.8 x 24.9) = 50.2 ms, where half of the lane would take 80 ms."""
    box = machine("a100_sxm_80", 1)
    pinned, pageable = at_once(box, FETCH, FETCH._replace(pinned=False))
    assert pageable.end == pytest.approx(6 * MICRO + 5 / 24.885, rel=1e-3)
    assert pinned.end == pytest.approx(6 * MICRO + 1 / (0.8 * 24.885), rel=1e-3)


def test_an_uplink_has_a_limit_for_both_ways_together() -> None:
    """PCIe 3 carries 0.68 of 31.5 both ways, 21.4 GB/s, and 12.3 or 12.9 one way. Two GPUs behind one uplink fetch and
    stow 1 GB each: 4 GB in 187 ms, where one way after the other, 2 / 12.3 + 2 / 12.9, would take 317 ms."""
    pcie = {"generation": 3, "switches": [{"gpus": [0, 1], "socket": 0}]}
    box = machine("v100_pcie_32", 2, pcie=pcie)
    ends = [each.end for each in at_once(box, FETCH, STOW)]
    assert max(ends) == pytest.approx(4 / (0.68 * 31.5), rel=0.01)


# --- one port for two sockets ----------------------------------------------------------------------------------------


def far_port(gpu: str = "a100_sxm_80", nvlink: str = "switch", **nics: Any) -> Topology:
    """Two nodes of four GPUs, two on each of two sockets, and one port on the first socket."""
    port = {"count": 1, "bandwidth": "200 Gbps", "kind": "infiniband", "efficiency": 0.9, **nics}
    switches = [{"gpus": [0, 1], "socket": 0}, {"gpus": [2, 3], "socket": 1}]
    return machine(gpu, 4, 2, {"kind": nvlink}, port, pcie={"switches": switches}, sockets=[CPU] * 2)


def test_gpus_of_an_nvlink_domain_reach_the_port_through_those_near_it() -> None:
    """GPUs 0 and 1 carry all of it, half each, up the switch that both hang on; nothing crosses between the sockets."""
    box, gather = far_port(), collective("all_gather", 8 * GB)
    found = uses(box, gather)
    assert found["pcie.d2h"] == pytest.approx(found["nic"] / 2)
    assert found["uplink.d2h"] == pytest.approx(found["nic"])
    assert "sockets.into" not in found


def test_gpus_that_go_alone_cross_the_link_between_sockets() -> None:
    """A group of one GPU a node: four of them at once, of which two cross to the port on the other socket."""
    found = uses(far_port(), collective("all_gather", 2 * GB), size=2, stride=4)
    assert found["nic"] == pytest.approx(4 * GB)
    assert found["pcie.d2h"] == pytest.approx(GB)
    assert found["uplink.d2h"] == pytest.approx(2 * GB)
    assert found["sockets.into"] == found["sockets.out"] == pytest.approx(2 * GB)


def test_a_ring_over_pcie_sends_to_the_port_what_it_sends_to_no_neighbour() -> None:
    """The lane of the GPU at the end of the ring carries no more than that of any other."""
    box, gather = far_port("a40", "none"), collective("all_gather", 8 * GB)
    found = uses(box, gather)
    assert found["pcie.d2h"] == pytest.approx(7 * GB)
    assert found["sockets.into"] == pytest.approx(7 * GB)


def test_the_link_between_sockets_limits_ports_beyond_it() -> None:
    """Four H100 on one socket, four ports of 400 Gb/s on the other: 38.4 GB/s each way, not 184. Under one roof with
    the ports, lanes of 54.8 GB/s (both ways at once) would let all of it through."""

    def box(socket: int) -> Topology:
        port = {"count": 4, "bandwidth": "400 Gbps", "kind": "infiniband", "efficiency": 0.92}
        switches = [{"gpus": [i], "socket": 0} for i in range(4)] + [{"nics": [i], "socket": socket} for i in range(4)]
        pcie = {"generation": 5, "switches": switches}
        return machine("h100_sxm", 4, 2, {"kind": "switch"}, port, pcie=pcie, sockets=[CPU] * 2)

    gather = collective("all_gather", 8 * GB)
    (near,), (far,) = at_once(box(0), gather), at_once(box(1), gather)
    assert far.flow / near.flow == pytest.approx(184 / 38.4, rel=0.02)
    assert priced(box(1), gather).demands["all"][0].bottleneck(priced(box(1), gather).supply).startswith("sockets")


def test_tcp_goes_through_host_memory_on_both_ways() -> None:
    """Under the same switch as its port, too: up the GPU's lane and the uplink, into memory, out again, and down the
    uplink to the port; as a byte comes in the other way, the uplink carries two each way, and memory is passed four
    times. Where the port hangs on the socket, the uplink carries one."""
    tcp = one_port(kind="ethernet", bandwidth="25 Gbps")
    found = uses(tcp, collective("all_gather", 8 * GB))
    assert found["dram"] == pytest.approx(4 * found["nic"])
    assert found["uplink.d2h"] == found["uplink.h2d"] == pytest.approx(2 * found["nic"])
    above = far_port(kind="ethernet", bandwidth="25 Gbps")
    passed = uses(above, collective("all_gather", 8 * GB))
    assert passed["uplink.d2h"] == passed["uplink.h2d"] == pytest.approx(passed["nic"])
    rdma = uses(one_port(bandwidth="25 Gbps"), collective("all_gather", 8 * GB))
    assert not rdma.keys() & {"dram", "uplink.d2h"}


def test_consumer_cards_have_no_direct_way_to_the_port() -> None:
    port = {"count": 1, "bandwidth": "25 Gbps", "kind": "roce"}
    pair = machine({"device": "rtx4090", "p2p": False}, 1, 2, None, port)
    found = uses(pair, collective("all_gather", 2 * GB))
    assert found["dram"] == pytest.approx(4 * found["nic"])


def test_a_lane_carries_what_its_own_gpu_sends() -> None:
    """One port beside GPU 1: nothing of it passes GPU 0, whose lane of one link carries 1.97 GB/s."""
    port = {"count": 1, "bandwidth": "100 Gbps", "kind": "infiniband"}
    switches = [{"gpus": [0]}, {"gpus": [1], "nics": [0]}]
    thin = [{"gpu": f"{node}.0", "pcie": {"lanes": 1}} for node in (0, 1)]
    box = machine("a100_sxm_80", 2, 2, {"kind": "switch"}, port, pcie={"switches": switches}, overrides=thin)
    found = priced(box, collective("all_gather", 8 * GB))
    amounts = {use.resource: use.amount for use in found.demands[found.classes[0].name][0].uses}
    near, far = (next(each.name for each in found.classes if rank in each.ranks) for rank in (1, 0))
    assert amounts[f"pcie.d2h.{near}"] == amounts[f"nic.{near}"] == pytest.approx(6 * GB)
    assert f"pcie.d2h.{far}" not in amounts


@pytest.mark.parametrize(("nodes", "passes"), [(1, 2), (2, 4)])
def test_host_memory_limits_what_goes_through_it(nodes: int, passes: int) -> None:
    """40 of 50 GB/s: four cards of a node write what they send there and read what they get; a port of TCP at 400 Gb/s
    has one card to serve, four passes a byte."""
    slow = [{"cores": 16, "dram": {"capacity": "128 GB", "bandwidth": "50 GB/s"}}]
    port = {"count": 1, "bandwidth": "400 Gbps", "kind": "ethernet", "efficiency": 0.9}
    cards = 4 if nodes == 1 else 1
    box = machine({"device": "rtx4090", "p2p": False}, cards, nodes, None, port, pcie={"generation": 5}, sockets=slow)
    (gathered,) = at_once(box, collective("all_gather", 8 * GB))
    sent = 8 * GB * (cards * nodes - 1) / (cards * nodes)
    assert gathered.flow == pytest.approx(passes * cards * sent / 40e9)


# --- drives of the other socket --------------------------------------------------------------------------------------

DRIVES = [{"read": "7 GB/s", "write": "5 GB/s", "capacity": "4 TB", "count": 8, "socket": 0}]


def test_reads_from_drives_of_the_other_socket_cross_the_link_between_them() -> None:
    """Two of four GPUs are far from the drives: what they read crosses; so does the half of host memory that is far,
    for ranks that are not bound: 4 x 0.5. At home at their GPUs two ranks read to the far half."""
    switches = [{"gpus": [i], "socket": i // 2} for i in range(4)]
    box = machine("a100_sxm_80", 4, pcie={"switches": switches}, sockets=[CPU] * 2, nvme=DRIVES)
    assert uses(box, Transfer(GB, "nvme", "gpu"))["sockets.into"] == pytest.approx(2 * GB)
    assert uses(box, Transfer(GB, "gpu", "nvme"))["sockets.out"] == pytest.approx(2 * GB)
    assert uses(box, Transfer(GB, "nvme", "dram"))["sockets.into"] == pytest.approx(4 * 0.5 * GB)
    bound = priced(box, Transfer(GB, "nvme", "dram"), launch=Launch(bind_cores_to_rank=True))
    assert len(bound.classes) == 1  # near and far are played as one: all wait for the far ones
    amounts = {use.resource: use.amount for use in bound.demands["all"][0].uses}
    assert amounts["sockets.into"] == pytest.approx(2 * GB)
    even = [{**DRIVES[0], "count": 4}, {**DRIVES[0], "count": 4, "socket": 1}]
    spread = machine("a100_sxm_80", 4, pcie={"switches": switches}, sockets=[CPU] * 2, nvme=even)
    assert uses(spread, Transfer(GB, "nvme", "gpu"))["sockets.into"] == pytest.approx(2 * 0.5 * GB)


def test_reads_and_a_ring_share_the_link_between_sockets() -> None:
    """Eight drives give 0.75 x 56 = 42 GB/s, of which the half for the far GPUs, 21, crosses a link of 38.4: free."""
    switches = [{"gpus": [i], "socket": i // 2} for i in range(4)]
    box = machine("a40", 4, pcie={"switches": switches}, sockets=[CPU] * 2, nvme=DRIVES)
    read, gathered = at_once(box, Transfer(GB, "nvme", "gpu"), collective("all_gather", 4 * GB))
    assert read.flow == pytest.approx(4 / 42, rel=1e-3)
    link = 38.4e9
    crossing = 2 * GB / link, 3 * GB / link  # seconds of the link that each needs
    assert max(read.end, gathered.end) >= sum(crossing)


# --- a whole step ----------------------------------------------------------------------------------------------------


def node(nics: tuple[int, ...]) -> dict[str, Any]:
    """Two nodes of two A100 on PCIe 4; the ports of 200 Gb/s beside the GPUs, or on the socket."""
    return {
        "name": "two and two",
        "node": {
            "count": 2,
            "gpus": {"device": "a100_sxm_80", "count": 2},
            "nvlink": {"kind": "switch"},
            "pcie": {"generation": 4, "switches": [{"gpus": [0, 1], "nics": list(nics), "socket": 0}]},
            "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}],
            "nics": {"count": 2, "bandwidth": "200 Gbps", "kind": "infiniband"},
        },
    }


def step(nics: tuple[int, ...], offload: bool) -> float:
    zero: dict[str, Any] = {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 20_000_000}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    question = from_mapping({
        "title": "offload beside the network", "topology": node(nics),
        "model": {"layers": 8, "hidden": 2048, "heads": 16, "ffn": 8192, "gated": False, "vocab": 32000},
        "training": {"sequence_length": 512, "precision": "bf16"},
        "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}},
    })  # fmt: skip
    return simulate(question).makespan


def test_where_ports_hang_matters_to_a_step_with_offload() -> None:
    """Gradients leave for host memory while they are reduced over the network: on one uplink where the ports hang on
    the socket. Without offload only the rate of the uplink, less than that of two ports, is felt."""
    assert step((), True) > 1.02 * step((0, 1), True)
    slowed = step((), True) - step((0, 1), True)
    assert slowed > step((), False) - step((0, 1), False) - 1e-3
    assert constant("copies.peer_eff.pcie4") * 31.5 < 2 * 25 * 0.92  # why even that is felt
