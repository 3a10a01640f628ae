"""Racks whose hosts share an NVSwitch, and networks of three levels, in the template form: drawn host by host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.together import GB, at_once, collective, priced, uses
from zerosim.costs.machine import Machine
from zerosim.errors import InputError
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_facts import describe
from zerosim.spec.topology_file import named_topology, read_topology

GATHER = collective("all_gather", 8 * GB)


def template(nodes: int, hosts: int = 1, gpus: int = 2, **fabric: Any) -> dict[str, Any]:
    """Hosts of two A100 with a port of 100 Gb/s each; `hosts` of them share an NVSwitch."""
    switches = [{"gpus": [i], "nics": [i], "socket": 0} for i in range(gpus)]
    return {
        "name": "levels",
        "node": {
            "count": nodes,
            "gpus": {"device": "a100_sxm_80", "count": gpus},
            "nvlink": {"kind": "switch", "hosts": hosts},
            "pcie": {"generation": 4, "switches": switches},
            "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}],
            "nics": {"count": gpus, "bandwidth": "100 Gbps", "kind": "infiniband", "efficiency": 0.9},
        },
        "fabric": {"kind": "rail", "latency": "2 us", **fabric},
    }


def machine(nodes: int, **more: Any) -> Topology:
    return read_topology(inline(template(nodes, **more), "levels.yaml"))


# --- racks -----------------------------------------------------------------------------------------------------------


def test_the_hosts_of_a_rack_are_one_nvlink_domain() -> None:
    racks = machine(6, hosts=3)
    assert racks.nvlink_domains() == ((0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11))
    assert len(racks.rank_classes()) == 1
    assert [link.target for link in racks.route("0.gpu0", "2.gpu1")] == ["nvswitch0", "2.gpu1"]
    assert [link.target for link in racks.route("0.gpu0", "0.gpu1")] == ["nvswitch0", "0.gpu1"]
    assert "leaf0" in [link.target for link in racks.route("0.gpu0", "3.gpu0")]
    assert racks.link("4.gpu1", "nvswitch1").bandwidth == 300e9
    assert "NVLink joins 6" in describe(racks)[0]


def test_a_collective_within_a_rack_needs_no_port() -> None:
    racks = machine(6, hosts=3)
    assert set(uses(racks, GATHER, size=6)) == {"nvlink", "hbm"}
    (alone,), (whole,) = at_once(machine(1, gpus=8), GATHER, size=8), at_once(racks, GATHER, size=6)
    assert whole.flow == pytest.approx(alone.flow * (5 / 6) / (7 / 8))  # at the same rate of each GPU


def test_between_racks_all_ports_of_a_rack_carry_what_leaves_it() -> None:
    """Three hosts with two ports of 11.25 GB/s: 67.5 GB/s. A host has a third of what its rack sends."""
    racks = machine(6, hosts=3)
    found = uses(racks, GATHER)
    per_gpu = found["nic"] / 2
    assert found["pcie.d2h"] == pytest.approx(per_gpu)
    assert 3 * found["nic"] == pytest.approx(8 * GB, rel=0.15)  # (k-1)/k to (n-1)/n of it, whatever the algorithm
    (gathered,) = at_once(racks, GATHER)
    assert gathered.flow == pytest.approx(found["nic"] / (2 * 11.25e9), rel=0.1)


def test_all_that_leaves_a_rack_leaves_the_leaf_below_it() -> None:
    """Two racks of two hosts, each on its own leaf: no peer hangs on the same leaf, and what both hosts send passes
    the leaf's uplink, which has the rate of one of their four ports."""
    racks = machine(4, hosts=2, kind="fat_tree", leaf_nodes=2, oversubscription=4)
    found = uses(racks, GATHER)
    assert found["leaf"] == pytest.approx(2 * found["nic"])
    assert at_once(racks, GATHER)[0].flow == pytest.approx(found["leaf"] / (4 * 12.5e9 / 4 * 0.9))


def test_a_rack_that_is_filled_in_part_is_a_class_of_its_own() -> None:
    racks = machine(6, hosts=3).select(nodes=4)
    assert racks.nvlink_domains() == ((0, 1, 2, 3, 4, 5), (6, 7))
    assert [len(ranks) for ranks in racks.rank_classes()] == [6, 2]
    assert len(machine(6, hosts=3).select(nodes=12).nvlink_domains()) == 4


def test_racks_in_either_form_cost_the_same() -> None:
    """The same two racks, drawn link by link."""
    links: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = [{"name": "leaf", "kind": "leaf"}]
    devices += [{"name": f"rack{rack}", "kind": "nvswitch", "node": 2 * rack} for rack in (0, 1)]
    for host in range(4):
        devices.append({"name": f"cpu{host}", "kind": "socket", "node": host, "cores": 64})
        devices += [
            {"name": f"dram{host}", "kind": "dram", "node": host, "capacity": "1 TB"},
            {"name": f"gpu{host}", "kind": "gpu", "node": host, "device": "a100_sxm_80"},
            {"name": f"nic{host}", "kind": "nic", "node": host, "network": "infiniband"},
        ]
        links += [
            {"from": f"cpu{host}", "to": f"dram{host}", "bandwidth": "204.8 GB/s"},
            {"from": f"gpu{host}", "to": f"cpu{host}", "bandwidth": "31.5 GB/s", "generation": 4},
            {"from": f"nic{host}", "to": f"cpu{host}", "bandwidth": "31.5 GB/s", "generation": 4},
            {"from": f"nic{host}", "to": "leaf", "bandwidth": "100 Gbps"},
            {"from": f"gpu{host}", "to": f"rack{host // 2}", "bandwidth": "300 GB/s"},
        ]
    drawn = read_topology(inline({"name": "drawn", "devices": devices, "links": links}, "drawn.yaml"))
    said = template(4, hosts=2, gpus=1, kind="switch")
    said["node"]["pcie"] = {"generation": 4}
    del said["node"]["nics"]["efficiency"]
    short = read_topology(inline(said, "short.yaml"))
    assert drawn.nvlink_domains() == short.nvlink_domains() == ((0, 1), (2, 3))
    (one,), (other,) = (at_once(each, GATHER) for each in (drawn, short))
    assert one.flow == pytest.approx(other.flow)


def test_a_rack_of_the_catalogue() -> None:
    nvl72 = named_topology("gb200-nvl72")
    assert [len(domain) for domain in nvl72.nvlink_domains()] == [72]
    two = nvl72.select(nodes=36)
    assert [len(domain) for domain in two.nvlink_domains()] == [72, 72]
    inside, between = (at_once(two, GATHER, size=size)[0].flow for size in (72, 144))
    assert set(uses(two, GATHER, size=72)) == {"nvlink", "hbm"}
    assert inside == pytest.approx(71 / 72 * 8 / (0.81 * 900))
    assert between == pytest.approx(143 / 144 * 8 / (0.81 * 900))  # as wide: 72 ports of 50 GB/s carry it beside
    graph = Machine(named_topology("gb200-nvl72").select(nodes=4104)).graph(4000)
    assert len([name for name in graph if "gpu" in name]) == 4  # of 16,416: a host and its switches are drawn
    assert len(graph) < 40


# --- three levels ----------------------------------------------------------------------------------------------------


def levels(oversubscription: float = 1, spine: float = 1) -> Topology:
    """Eight nodes, two on each leaf of a rail, four below each spine."""
    return machine(8, leaf_nodes=2, spine_nodes=4, oversubscription=oversubscription, spine_oversubscription=spine)


def test_uplinks_of_leaf_and_spine_carry_what_is_below_them_by_the_oversubscription() -> None:
    tree = levels(2, 4)
    assert tree.link("leaf0", "spine0").bandwidth == 2 * 12.5e9 / 2  # a rail of two nodes
    assert tree.link("leaf7", "spine1").bandwidth == 2 * 12.5e9 / 2
    assert tree.link("spine0", "core0").bandwidth == 4 * 12.5e9 / 4  # four leaves of 12.5 GB/s
    way = [link.target for link in tree.route("0.gpu0", "7.gpu0")]
    assert way == ["0.pcie0", "0.nic0", "leaf0", "spine0", "core0", "spine1", "leaf6", "7.nic0", "7.pcie0", "7.gpu0"]
    assert len(tree.rank_classes()) == 1
    assert "core0" not in [switch.name for switch in levels().select(nodes=4).fabric.switches()]


def test_a_gather_over_three_levels_by_hand() -> None:
    """Of the seven other nodes one shares the leaf and three the spine: 6/7 of what a node sends leaves its leaf, 4/7
    its spine. A node's ports give 2 x 11.25 GB/s."""
    found = priced(levels(), GATHER)
    node = uses(levels(), GATHER)["nic"]
    assert uses(levels(), GATHER)["leaf"] == pytest.approx(2 * node / 2 * 6 / 7)  # a leaf has one of the two rails
    assert uses(levels(), GATHER)["spine"] == pytest.approx(4 * node * 4 / 7)
    assert found.supply.rates["spine"] == 4 * 2 * 12.5e9
    assert found.supply.labels["spine"] == "spine uplinks 800 Gb/s, shared by 4 nodes"


def test_the_narrower_level_decides() -> None:
    """Ports alone: 1 / 22.5 s a GB of a node. The leaf, 4:1: 6/7 / 5.6. The spine, 8:1 below leaves of 2:1: 4 x 4/7 GB
    over 100 / 2 / 8 x 0.9 GB/s."""
    (even,), (leaf,), (spine,) = (at_once(levels(*each), GATHER) for each in ((1, 1), (4, 1), (2, 8)))
    assert leaf.flow / even.flow == pytest.approx((6 / 7 * 4), rel=0.05)
    assert spine.flow / even.flow == pytest.approx((4 * 4 / 7 / 5.625) * 22.5, rel=0.05)
    found = priced(levels(2, 8), GATHER)
    assert found.demands["all"][0].bottleneck(found.supply) == "spine"
    found = priced(levels(4, 1), GATHER)
    assert found.demands["all"][0].bottleneck(found.supply) in ("leaf", "spine")  # a spine of 4:1 leaves is as narrow


def test_a_node_alone_on_its_leaf_sends_all_of_it_further() -> None:
    """Three nodes, two on a leaf, 4:1. Of what nodes 0 and 1 send half leaves the leaf, through two quarters of a port;
    node 2 sends all through one quarter: twice as long."""
    even, odd = (machine(nodes, leaf_nodes=2, oversubscription=4) for nodes in (4, 3))
    assert [len(even.rank_classes()), len(odd.rank_classes())] == [1, 2]
    found = priced(odd, GATHER)
    assert found.demands["nodes 0-1"][0].bottleneck(found.supply) == "leaf.node 2"
    (gathered,) = at_once(odd, GATHER)
    assert gathered.flow == pytest.approx(uses(odd, GATHER)["nic.node 2"] / (22.5e9 / 4))
    assert len(machine(3, leaf_nodes=2).rank_classes()) == 1  # as wide as the ports: the same to all


def test_a_group_is_as_slow_as_its_node_that_has_none_of_it_near() -> None:
    """Two groups of three nodes, two on a leaf: node 2 shares its leaf with a node of the other group."""
    pairs = machine(6, leaf_nodes=2, oversubscription=4)
    assert len(pairs.rank_classes()) == 1
    (gathered,) = at_once(pairs, GATHER, size=6)
    assert gathered.flow == pytest.approx(uses(pairs, GATHER, size=6)["nic"] / (22.5e9 / 4))


def test_a_group_below_one_spine_does_not_feel_the_core() -> None:
    (even,), (thin,) = (at_once(levels(1, o), GATHER, size=8) for o in (1, 16))
    assert thin == even


def test_levels_drawn_link_by_link_are_found_again() -> None:
    """Four nodes, one a leaf, two leaves a spine, and a core; 10 GB/s between spine and core."""
    devices: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = [{"from": f"spine{i}", "to": "core", "bandwidth": "10 GB/s"} for i in (0, 1)]
    for host in range(4):
        devices += [
            {"name": f"gpu{host}", "kind": "gpu", "node": host, "device": "a100_sxm_80"},
            {"name": f"cpu{host}", "kind": "socket", "node": host, "cores": 64},
            {"name": f"nic{host}", "kind": "nic", "node": host, "network": "infiniband"},
            {"name": f"leaf{host}", "kind": "leaf"},
        ]
        links += [
            {"from": f"gpu{host}", "to": f"cpu{host}", "bandwidth": "31.5 GB/s"},
            {"from": f"nic{host}", "to": f"cpu{host}", "bandwidth": "31.5 GB/s"},
            {"from": f"nic{host}", "to": f"leaf{host}", "bandwidth": "25 GB/s"},
            {"from": f"leaf{host}", "to": f"spine{host // 2}", "bandwidth": "25 GB/s"},
        ]
    devices += [{"name": name, "kind": "spine"} for name in ("spine0", "spine1", "core")]
    drawn = read_topology(inline({"name": "drawn", "devices": devices, "links": links}, "drawn.yaml"))
    found = uses(drawn, GATHER)
    assert found["leaf"] == pytest.approx(found["nic"])  # alone on its leaf: all of it
    assert found["spine"] == pytest.approx(2 * found["nic"] * 2 / 3)
    assert priced(drawn, GATHER).supply.rates["spine"] == 10e9


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        (
            {"leaf_nodes": 2, "spine_nodes": 3},
            "fabric.spine_nodes: found 3; expected a multiple of 2, the nodes of a leaf",
        ),
        (
            {"kind": "switch", "spine_nodes": 4},
            "fabric.spine_nodes: found 4; expected kind: fat_tree or rail, as one switch has no uplinks",
        ),
        (
            {"kind": "switch", "leaf_nodes": 4},
            "fabric.leaf_nodes: found 4; expected kind: fat_tree or rail, as one switch has no uplinks",
        ),
        (
            {"kind": "switch", "oversubscription": 4, "leaf_nodes": 4},
            "fabric.oversubscription: found 4; expected kind: fat_tree or rail, as one switch has no uplinks",
        ),
        ({"spine_oversubscription": 2}, "fabric.spine_oversubscription: found 2; expected spine_nodes beside it"),
    ],
)
def test_levels_that_cannot_be(fabric: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as error:
        machine(8, **fabric)
    (problem,) = error.value.problems
    assert expected in str(problem)


def test_one_switch_may_be_said_to_be_without_oversubscription() -> None:
    assert machine(8, kind="switch", oversubscription=1).fabric == machine(8, kind="switch").fabric


def test_only_a_switch_is_shared_by_hosts() -> None:
    said = template(4, hosts=2)
    said["node"]["nvlink"]["kind"] = "mesh"
    with pytest.raises(InputError, match=r"node.nvlink.hosts: found 2; expected kind: switch"):
        read_topology(inline(said, "levels.yaml"))
