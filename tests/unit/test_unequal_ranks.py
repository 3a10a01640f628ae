"""Unequal ranks: what a collective is worth with a slow port, a port that is down, slower, fewer or other GPUs; how few
classes there are; and who is told to wait for whom. Four nodes of eight A100, two GPUs and two ports of 200 Gb/s
behind each PCIe 4 switch; ports give 0.9 of their rate here: 22.5 GB/s each, 180 a node."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from tests.counting import calls
from tests.together import GB, at_once, collective, priced
from zerosim import Simulation, simulate
from zerosim.errors import InputError
from zerosim.report.text import render
from zerosim.report.waits import unequal
from zerosim.scenario import Scenario, from_mapping
from zerosim.spec.loading import inline
from zerosim.spec.topology import Topology
from zerosim.spec.topology_facts import describe, noted
from zerosim.spec.topology_file import read_topology

GATHER = collective("all_gather", 32 * GB)


def described(*overrides: dict[str, Any], nodes: int = 4, gbps: int = 200) -> dict[str, Any]:
    switches = [{"gpus": [i, i + 1], "nics": [i, i + 1], "socket": i // 4} for i in range(0, 8, 2)]
    return {
        "name": "unequal",
        "node": {
            "count": nodes,
            "gpus": {"device": "a100_sxm_80", "count": 8},
            "nvlink": {"kind": "switch"},
            "pcie": {"generation": 4, "switches": switches},
            "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}] * 2,
            "nics": {"count": 8, "bandwidth": f"{gbps} Gbps", "kind": "infiniband", "efficiency": 0.9},
        },
        "fabric": {"kind": "rail"},
        "overrides": list(overrides),
    }


def cluster(*overrides: dict[str, Any], **more: int) -> Topology:
    return read_topology(inline(described(*overrides, **more), "unequal.yaml"))


def ratio(*overrides: dict[str, Any], **more: Any) -> float:
    """How much longer the flow of the gather is than on equal nodes."""
    (plain,), (found,) = at_once(cluster(), GATHER, **more), at_once(cluster(*overrides), GATHER, **more)
    return found.flow / plain.flow


def names(*overrides: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each.name, len(each.ranks)) for each in priced(cluster(*overrides), GATHER).classes]


# --- what a collective is worth ---------------------------------------------------------------------------------------


def test_a_ring_is_as_fast_as_its_slowest_port() -> None:
    """Ports of 25 Gb/s on node 3: every byte of the ring passes them, an eighth as fast."""
    slow = {"node": 3, "nics": {"bandwidth": "25 Gbps"}}
    assert ratio(slow) == pytest.approx(8)
    assert names(slow) == [("nodes 0-2", 24), ("node 3", 8)]


def test_a_port_that_is_down_leaves_its_traffic_to_the_others() -> None:
    """Seven ports of eight: 8/7 of the time. The GPU beside it sends through another GPU over NVLink; so its class and
    its neighbour's are others than those of the rest of the node."""
    down = {"node": 3, "nics": {"down": [2]}}
    assert ratio(down) == pytest.approx(8 / 7)
    assert names(down) == [("nodes 0-2", 24), ("gpu 3.0 and 5 more", 6), ("gpu 3.2 and 1 more", 2)]
    found = priced(cluster(down), GATHER).supply
    assert found.labels["nic.gpu 3.0 and 5 more"] == "NIC 200 Gb/s InfiniBand, 7 per node (gpu 3.0 and 5 more)"
    assert cluster(down).link("3.nic3", "leaf3").bandwidth == 25e9  # the others keep their rails
    assert ratio({"node": 3, "nics": {"count": 7}}) == pytest.approx(8 / 7)


def test_a_gpu_that_goes_alone_shares_the_port_beside_it() -> None:
    """One GPU a node in each group, eight groups at once: GPU 2 of node 3 goes through port 3, as GPU 3 does, for that
    is the nearest. Both have half of it. The others have an eighth of what the node's seven ports carry."""
    down = {"node": 3, "nics": {"down": [2]}}
    assert ratio(down, size=4, stride=8) == pytest.approx(8 / 7)
    found = priced(cluster(down), GATHER, size=4, stride=8)
    flow = {name: each[0]._replace(latency=0.0).alone(found.supply) for name, each in found.demands.items()}
    assert flow["gpu 3.2 and 1 more"] / flow["gpu 3.0 and 5 more"] == pytest.approx(2 / (8 / 7))


def test_half_of_the_gpus_have_half_of_the_ports_near() -> None:
    """Node 3 with four GPUs uses the four ports beside them: 90 GB/s of 180, for the same bytes of a group of 28."""
    few = {"node": 3, "gpus": {"count": 4}}
    (plain,), (found,) = at_once(cluster(), GATHER), at_once(cluster(few), GATHER)
    assert len(cluster(few).gpus) == 28
    assert found.flow / plain.flow == pytest.approx(2 * (27 / 28) / (31 / 32))
    assert names(few) == [("nodes 0-2", 24), ("node 3", 4)]


def test_a_gpu_alone_on_its_node_sends_all_of_it_through_its_lane() -> None:
    """Nothing goes on inside; two ports beside the GPU would carry 45 GB/s, its lane 0.77 of 31.5."""
    alone = cluster({"node": 3, "gpus": {"count": 1}, "nvlink": {"kind": "none"}})
    found = priced(alone, GATHER)
    uses = {use.resource: use.amount for use in found.demands["node 3"][0].uses}
    assert uses["pcie.d2h.node 3"] == uses["nic.node 3"] == pytest.approx(24 / 25 * 32 * GB)
    assert not [name for name in uses if name.startswith("uplink") and name.endswith("node 3")]
    assert at_once(alone, GATHER)[0].flow == pytest.approx(24 / 25 * 32 / (0.77 * 31.5))


def test_other_gpus_bring_their_own_links() -> None:
    """V100 on node 3: NVLink of 150 instead of 300 GB/s, PCIe 3 instead of 4; as wide as the ports, so it is told by a
    group on one node: twice as long."""
    old = {"node": 3, "gpus": {"device": "v100_sxm2_32"}}
    mixed = cluster(old)
    assert (
        sum(link.bandwidth for link in mixed.nodes[3].links if link.source == "gpu0" and link.kind == "nvlink") == 150e9
    )
    assert mixed.link("3.gpu0", "3.pcie0").bandwidth == 15.75e9
    assert mixed.link("3.nic0", "3.pcie0").bandwidth == 31.5e9
    own = collective("all_gather", GB)
    first = priced(mixed, own, size=8)
    flows = [first.demands[name][0]._replace(latency=0.0).alone(first.supply) for name in ("nodes 0-2", "node 3")]
    assert flows[1] == pytest.approx(2 * flows[0])
    given = {"node": 3, "gpus": {"device": "v100_sxm2_32"}, "nvlink": {"bandwidth": "75 GB/s"}}
    assert max(link.bandwidth for link in cluster(given).nodes[3].links if link.kind == "nvlink") == 75e9


def test_a_bad_cable_of_one_gpu_slows_the_ring_through_it() -> None:
    """NVLink trained down to 100 of 300 GB/s slows a ring on the node three times, and nobody else's."""
    bad = {"gpu": "1.5", "nvlink": {"bandwidth": "100 GB/s"}}
    assert names(bad) == [("node 0 and 2 more", 24), ("gpu 1.0 and 6 more", 7), ("gpu 1.5", 1)]
    found = priced(cluster(bad), collective("all_gather", GB), size=8)
    flow = {name: each[0]._replace(latency=0.0).alone(found.supply) for name, each in found.demands.items()}
    assert flow["gpu 1.5"] == flow["gpu 1.0 and 6 more"] == pytest.approx(3 * flow["node 0 and 2 more"])


def test_a_lane_of_four_slows_its_port() -> None:
    """PCIe 4 x4 carries 7.875 GB/s, 0.77 of it between devices; the GPU carries an eighth of its node's traffic: 48.5
    GB/s for the node instead of 180."""
    thin = {"gpu": "1.5", "pcie": {"lanes": 4}}
    assert cluster(thin).link("1.gpu5", "1.pcie2").bandwidth == pytest.approx(7.875e9)
    assert ratio(thin) == pytest.approx(180 / (8 * 0.77 * 7.875), rel=1e-3)
    older = cluster({"gpu": "1.5", "pcie": {"generation": 3}}, {"gpu": "1.5", "compute": 0.5})
    assert older.link("1.gpu5", "1.pcie2").bandwidth == pytest.approx(15.75e9)
    assert older.gpus[13].compute == 0.5  # both overrides of the GPU hold


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ({"node": 1, "nics": {"down": [8]}}, "overrides.0.nics.down.0: found NIC 8; expected a NIC from 0 to 7"),
        ({"node": 1, "nics": {"down": list(range(8))}}, "found no nics; expected nics, which join the 4 nodes"),
        (
            {"gpu": "1.5", "pcie": {"bandwidth": "60 GB/s"}},
            "overrides.0.pcie.bandwidth: found 60 GB/s; expected at most",
        ),
        (
            {"gpu": "1.5", "nvlink": {"bandwidth": "900 GB/s"}},
            "overrides.0.nvlink.bandwidth: found 900 GB/s; expected at most 300 GB/s, as the other GPUs have",
        ),
        ({"gpu": "1.5", "pcie": {"switches": []}}, 'overrides.0.pcie.switches: found "switches"; expected a figure of'),
        (
            {"gpu": "1.5", "nvlink": {"kind": "mesh"}},
            'overrides.0.nvlink.kind: found "kind"; expected a figure of a GPU',
        ),
        ({"node": 1, "nvlink": {"hosts": 2}}, "only in the template: racks are all alike"),
    ],
)
def test_overrides_that_cannot_be(override: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as error:
        cluster(override)
    assert expected in str(error.value)


REDUCE = collective("all_reduce", GB)


def test_what_stands_for_a_class_uses_its_resources_once() -> None:
    """Groups of one GPU a node. That of GPU 0.5 meets a rank of nodes 1-3, whose port is busy with all eight groups
    in that of GPU 0.0: it takes nothing more there, and a GPU that only computes more slowly slows no collective."""
    unequal = cluster({"gpu": "0.5", "compute": 0.8})
    found = priced(unequal, REDUCE, size=4, stride=8)
    for name in found.demands:
        owners = {use.resource.partition(".")[2] for use in found.demands[name][0].uses if use.resource[:3] == "nic"}
        assert owners == ({"gpu 0.5"} if name == "gpu 0.5" else {"gpu 0.0 and 6 more", "nodes 1-3"})
    plain, slow = (priced(each, REDUCE, size=4, stride=8) for each in (cluster(), unequal))
    alone = {demands[0].alone(each.supply) for each in (plain, slow) for demands in each.demands.values()}
    assert max(alone) == pytest.approx(min(alone))


def test_an_override_of_a_gpu_that_another_one_takes_away() -> None:
    with pytest.raises(InputError, match=r"overrides.0.gpu: found GPU 5; expected a GPU from 0 to 3"):
        cluster({"gpu": "1.5", "compute": 0.9}, {"node": 1, "gpus": {"count": 4}})


# --- few classes ------------------------------------------------------------------------------------------------------

UNEQUAL: tuple[dict[str, Any], ...] = (
    {"node": 3, "nics": {"bandwidth": "25 Gbps"}},
    {"gpu": "0.5", "compute": 0.8},
    {"node": 2, "nics": {"down": [2]}},
)


@pytest.mark.parametrize("overrides", [(), UNEQUAL[:1], UNEQUAL[:2], UNEQUAL])
def test_classes_and_cost_grow_with_what_differs_not_with_ranks(overrides: tuple[dict[str, Any], ...]) -> None:
    """One class of all that is equal; two for the node of a GPU that differs; two for the GPUs of a node that lost a
    port. On 128 nodes there are as many as on 8, and pricing takes a few walks over the ranks more."""
    expected = {0: 1, 1: 2, 2: 4, 3: 6}[len(overrides)]
    few, many = cluster(*overrides, nodes=8), cluster(*overrides, nodes=128)
    assert len(priced(few, GATHER).classes) == len(priced(many, GATHER).classes) == expected
    less, more = (calls(partial(priced, topology, GATHER)) for topology in (few, many))
    print(f"\n{expected} classes: {less} function calls for 64 ranks, {more} for 1,024")
    # walks over the ranks: some for all, some for each class (its communicator, its leaf)
    assert more - less <= (40 + 20 * expected) * (1024 - 64)


# --- ports that differ ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unlike", "expected"),
    [
        ([{"nics": [3], "bandwidth": "25 Gbps"}], "NICs 7 x 200 and 1 x 25 Gb/s InfiniBand per node"),
        (
            [{"nics": [0], "bandwidth": "25 Gbps"}, {"nics": [1, 2], "bandwidth": "100 Gbps"}],
            "NICs 5 x 200, 2 x 100 and 1 x 25 Gb/s InfiniBand per node",
        ),
        (
            [{"nics": [0], "bandwidth": "25 Gbps", "kind": "roce"}],
            "NICs 7 x 200 Gb/s InfiniBand and 1 x 25 Gb/s RoCE per node",
        ),
        ([{"nics": [3], "bandwidth": "200 Gbps"}], "NIC 200 Gb/s InfiniBand, 8 per node"),
    ],
)
def test_ports_that_differ_are_told_one_kind_after_the_other(unlike: list[dict[str, Any]], expected: str) -> None:
    """They are of the kind of the others where none is given."""
    found = priced(cluster(*({"node": host, "nics": {"unlike": unlike}} for host in range(4))), GATHER)
    assert found.supply.labels["nic"] == expected


# --- who waits for whom -----------------------------------------------------------------------------------------------


def question(*overrides: dict[str, Any], gbps: int = 200) -> Scenario:
    return from_mapping({
        "title": "unequal", "topology": described(*overrides, gbps=gbps),
        "model": {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 8192, "gated": False, "vocab": 32000},
        "training": {"sequence_length": 1024, "precision": "bf16"},
        "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}},
    })  # fmt: skip


def played(*overrides: dict[str, Any], gbps: int = 200) -> Simulation:
    return simulate(question(*overrides, gbps=gbps))


def test_nobody_waits_among_equals() -> None:
    assert played().summary().waits == ()


def test_a_slow_port_is_waited_for_in_every_collective() -> None:
    """All of them move eight times as long: 7/8 of that is waiting for node 3, and so is what filling the way grew by,
    which is as the square root."""
    simulation = played(UNEQUAL[0])
    (wait,) = simulation.summary().waits
    assert (wait.waiting, wait.waited_for, wait.cause) == ("nodes 0-2", "node 3", "slow")
    assert wait.resource == "nic.node 3"
    assert wait.label == "NIC 25 Gb/s InfiniBand, 8 per node (node 3)"
    held = [
        7 / 8 * (span.end - span.start - demand.latency) + (1 - 8**-0.5) * demand.filling
        for span, demand in zip(simulation.spans["node 3"], simulation.demands["node 3"], strict=True)
        if demand.algorithm not in ("", "none") and "nic.node 3" in {use.resource for use in demand.uses}
    ]
    assert wait.seconds == pytest.approx(sum(held), rel=1e-3)
    assert 0 < wait.exposed_seconds <= wait.seconds
    text = render(simulation.summary())
    assert "nodes 0-2: " in text
    assert "of waiting for node 3, " in text
    assert simulation.summary().as_json()["waits"][0]["waited_for"] == "node 3"


def test_a_throttled_gpu_arrives_late_and_all_wait_for_it() -> None:
    """At half of its rate its products take twice as long: the others wait for what these take longer."""
    simulation = played({"gpu": "0.5", "compute": 0.5})
    waits = simulation.summary().waits
    assert {wait.waited_for for wait in waits} == {"gpu 0.5"}
    assert {wait.waiting for wait in waits} == {"gpu 0.0 and 6 more", "nodes 1-3"}
    late = next(wait for wait in waits if wait.waiting == "nodes 1-3")
    assert late.cause == "late"
    assert late.label.startswith("SMs")
    fast, slow = (simulation.spans[name] for name in ("nodes 1-3", "gpu 0.5"))
    longer = sum(
        (b.end - b.start) - (a.end - a.start) for a, b in zip(fast, slow, strict=True) if b.bottleneck[:2] == "sm"
    )
    assert late.seconds == pytest.approx(longer, rel=0.2)
    text = " ".join(render(simulation.summary()).split())
    assert "all others: " in text
    assert "waiting for gpu 0.5, which comes late" in text


def test_ranks_of_two_kinds_on_a_node_are_waited_for_together() -> None:
    """The port of node 2 is down for all its GPUs, of which two classes are made."""
    (wait,) = played(UNEQUAL[2], gbps=25).summary().waits
    assert wait.waited_for == "gpu 2.0 and 5 more, gpu 2.2 and 1 more"
    assert wait.waiting == "node 0 and 2 more"


def test_the_screen_names_the_node_that_they_are_all_of() -> None:
    summary = played({"node": 1, "nics": {"down": [3]}}, gbps=25).summary()
    assert summary.waits[0].node == 1
    (line,) = unequal(summary, 200, 5)
    assert line.startswith("node 0 and 2 more: ")
    assert "of waiting for node 1, " in line
    assert line.endswith(": NIC 25 Gb/s InfiniBand, 7 per node")
    one = played({"gpu": "0.5", "compute": 0.5}).summary()
    assert {wait.node for wait in one.waits} == {None}
    assert "of waiting for gpu 0.5, " in next(unequal(one, 200, 5))


def test_a_port_that_is_down_is_told_among_what_was_assumed() -> None:
    down = {"node": 1, "nics": {"down": [3]}}
    assert "node 1: NIC 3 is down, 7 of 8 are left" in played(down).summary().assumptions
    assert describe(cluster(down))[-1] == "note: node 1: NIC 3 is down, 7 of 8 are left"
    assert noted(cluster(down).select(nodes=1)) == ()  # the node is none of those that are left
    several = ({"node": host, "nics": {"down": [5, 3]}} for host in (1, 2))
    assert noted(cluster(*several)) == ("nodes 1-2: NICs 3 and 5 are down, 6 of 8 are left",)
    everywhere = ({"node": host, "nics": {"count": 2, "down": [0]}} for host in (0, 1))
    said = described(*everywhere, nodes=2)
    said["node"]["pcie"] = {"generation": 4}
    found = noted(read_topology(inline(said, "t")))
    assert found == ("each node: NIC 0 is down, 1 of 2 is left",)


def test_a_throttled_gpu_in_a_hybrid_step_costs_what_a_throttled_node_does() -> None:
    """Its node waits for it, whatever the others of the node could do."""
    one, all_of_them = hybrid({"gpu": "0.5", "compute": 0.8}), hybrid({"node": 0, "gpus": {"compute": 0.8}})
    assert one.makespan == pytest.approx(all_of_them.makespan, rel=1e-3)


def hybrid(*overrides: dict[str, Any]) -> Simulation:
    return simulate(from_mapping({
        "title": "hybrid", "topology": described(*overrides, nodes=2),
        "model": {"layers": 2, "hidden": 2048, "heads": 16, "ffn": 8192, "gated": False, "vocab": 32000},
        "training": {"sequence_length": 1024, "precision": "bf16"},
        "strategy": {"fsdp": {"fsdp_version": 1, "fsdp_sharding_strategy": "HYBRID_SHARD"}},
    }))  # fmt: skip


def test_whoever_ends_first_waits_for_the_end_of_the_step() -> None:
    """The last reduction goes from node to node, for each GPU by itself: those that share a port end last."""
    simulation = hybrid({"node": 1, "nics": {"down": [3]}})
    waits = {wait.waiting: wait for wait in simulation.summary().waits if wait.waited_for == "gpu 1.2 and 1 more"}
    assert set(waits) == {"node 0", "gpu 1.0 and 5 more"}
    ended = {name: max(span.end for span in spans) for name, spans in simulation.spans.items()}
    for name, wait in waits.items():
        assert wait.cause == "late"
        assert wait.label.startswith("NIC 200 Gb/s")
        assert wait.seconds == pytest.approx(simulation.makespan - ended[name])


def test_a_class_that_waited_itself_is_waited_for_without_a_reason_of_its_own() -> None:
    waits = hybrid({"gpu": "0.5", "compute": 0.8}).summary().waits
    assert {(wait.waiting, wait.waited_for, wait.label[:3]) for wait in waits} == {
        ("gpu 0.0 and 6 more", "gpu 0.5", "SMs"), ("node 1", "gpu 0.0 and 6 more", ""),
    }  # fmt: skip


def test_those_who_are_slow_together_are_named_in_one_order() -> None:
    waits = played({"gpu": "1.2", "pcie": {"lanes": 4}}).summary().waits
    assert [wait.waited_for for wait in waits] == ["gpu 1.0 and 5 more, gpu 1.2, gpu 1.3"]


def test_stages_of_pipelines_wait_for_the_port_that_stages_share() -> None:
    scenario = from_mapping({
        "title": "pipelines", "topology": described({"node": 1, "nics": {"bandwidth": "25 Gbps"}}, nodes=2),
        "model": {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 8192, "gated": False, "vocab": 32000},
        "training": {"sequence_length": 1024, "precision": "bf16"},
        "strategy": {"pipeline": {"schedule": "1f1b", "stages": 4}},
    })  # fmt: skip
    waits = [wait for wait in simulate(scenario).summary().waits if wait.cause == "slow"]
    assert waits
    assert {wait.waited_for.partition(" of ")[2] for wait in waits} == {"pipelines 2-3"}
    assert all(wait.label.startswith("NIC 25 Gb/s") for wait in waits)


def test_the_slower_of_two_slow_nodes_is_waited_for_by_the_other_one_too() -> None:
    """25 and 50 Gb/s beside 200: node 2 waits for node 3, for what it is slower itself the equal ones wait for both."""
    waits = played(UNEQUAL[0], {"node": 2, "nics": {"bandwidth": "50 Gbps"}}).summary().waits
    found = {(wait.waiting, wait.waited_for): wait.seconds for wait in waits}
    assert set(found) == {("nodes 0-1", "node 3"), ("node 2", "node 3"), ("nodes 0-1", "node 2")}
    assert found["nodes 0-1", "node 3"] == pytest.approx(found["node 2", "node 3"])
    # in eighths of the time: 8 - 4 for the slowest, 4 - 1 for the other
    assert found["nodes 0-1", "node 2"] == pytest.approx(3 / 4 * found["nodes 0-1", "node 3"], rel=0.02)


# --- groups within nodes ----------------------------------------------------------------------------------------------


def test_groups_of_the_ranks_of_a_node_need_equal_nodes() -> None:
    """What is left of a node of four would share groups with another node."""
    halves = [{"node": host, "gpus": {"count": 4}} for host in (2, 3)]
    with pytest.raises(InputError, match="nodes of 4, 8 GPUs; expected as many GPUs on every node"):
        from_mapping({
            "title": "hybrid", "topology": described(*halves),
            "model": {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 8192, "gated": False, "vocab": 32000},
            "training": {"sequence_length": 1024, "precision": "bf16"},
            "strategy": {"fsdp": {"fsdp_version": 1, "fsdp_sharding_strategy": "HYBRID_SHARD"}},
        })  # fmt: skip


def test_memory_of_a_node_is_that_of_the_fullest() -> None:
    """Eight ranks on three nodes, four on the last: the host memory of a node holds what eight ranks put there."""

    def states(*overrides: dict[str, Any]) -> float:
        section = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
        scenario = from_mapping({
            "title": "offload", "topology": described(*overrides),
            "model": {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 8192, "gated": False, "vocab": 32000},
            "training": {"sequence_length": 1024, "precision": "bf16"},
            "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": section}},
        })  # fmt: skip
        held = simulate(scenario).summary().memory["dram"].held
        return next(each.bytes for each in held if each.name == "optimizer states")

    few = states({"node": 3, "gpus": {"count": 4}})
    assert few == pytest.approx(
        32 / 28 * states(), rel=1e-6
    )  # a 28th for each rank instead of a 32nd, and eight of them


def test_everyone_else_who_waits_for_a_node_of_two_classes_is_told_in_two_words() -> None:
    """Nodes of two pairs on switches, one port each: the slow node is two classes, and five others wait for it."""
    node = {
        "count": 3,
        "gpus": {"device": "l40s", "count": 4},
        "nvlink": {"kind": "none"},
        "pcie": {"switches": [{"gpus": [0, 1], "socket": 0}, {"gpus": [2, 3], "nics": [0], "socket": 1}]},
        "sockets": [{"device": "epyc_milan", "dram": {"capacity": "256 GB"}}] * 2,
        "nics": {"count": 1, "bandwidth": "100 Gbps", "kind": "roce"},
    }
    overrides = [{"node": 2, "nics": {"bandwidth": "25 Gbps"}}, {"gpu": "1.0", "compute": 0.5}]
    asked = {
        "topology": {"name": "own", "node": node, "overrides": overrides},
        "model": {"parameters": 1e8},
        "training": {"sequence_length": 128, "micro_batch_size": 1, "precision": "bf16"},
        "strategy": {"deepspeed": {"zero_optimization": {"stage": 2}}},
    }
    summary = simulate(from_mapping(asked)).summary()
    assert len(summary.classes) == 7
    assert re.search(r"all others: [\d.]+ m?s of waiting for node 2, ", " ".join(render(summary).split()))
