"""What a picture of a machine is worked out from: trees, tracks, groups of switches, and where a resource is."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import pictures
from tests.cli.asking import ROOT
from zerosim.report.machine import Cable, End, Part, Server, Wire
from zerosim.report.machine_cables import rates_of
from zerosim.report.machine_heat import Place, heat, hottest, percent, place_of, placed, warmth
from zerosim.report.machine_svg import render
from zerosim.report.machine_tracks import ports, tracks
from zerosim.report.machine_tree import Branch, tree_of
from zerosim.report.machine_wires import label, share_of
from zerosim.scenario import load
from zerosim.simulation import simulate
from zerosim.spec.loading import inline
from zerosim.spec.topology_file import read_topology
from zerosim.studies.drawing import drawing, drawing_of_run, spans

# --- from a resource to its place ---


@pytest.mark.parametrize(
    ("resource", "place"),
    [
        ("sm", ("sm", "")),
        ("hbm.node 3", ("hbm", "node 3")),
        ("nvlink.gpu 0.5", ("nvlink", "gpu 0.5")),
        ("pcie.h2d", ("pcie", "")),
        ("pcie.both.nodes 0-2", ("pcie", "nodes 0-2")),
        ("c2c.d2h.node 1", ("pcie", "node 1")),
        ("uplink.h2d.gpu 0.0 and 6 more", ("uplink", "gpu 0.0 and 6 more")),
        ("uplink2.d2h", ("uplink2", "")),
        ("sockets.into.stage 0", ("sockets", "stage 0")),
        ("nic.stages 0-3 of pipelines 0-1", ("nic", "stages 0-3 of pipelines 0-1")),
        ("requests.read", ("", "")),
        ("quantum.node 3", ("", "node 3")),
    ],
)
def test_a_resource_has_a_place_and_an_owner(resource: str, place: tuple[str, str]) -> None:
    assert place_of(resource) == place


def test_a_place_is_as_hot_as_the_busiest_resource_there() -> None:
    shares = {"pcie.h2d.a": 0.2, "pcie.both.a": 0.4, "pcie.d2h.b": 0.9, "nic": 0.5, "requests.read.a": 1.0}
    busy = placed(shares, ["a", "b"], [shares.keys(), shares.keys()])
    assert busy == {Place("pcie", 0): 0.4, Place("pcie", 1): 0.9, Place("nic", 0): 0.5, Place("nic", 1): 0.5}
    assert hottest(busy, "pcie", [0, 1]) == 0.9
    assert hottest(busy, "pcie", [0]) == 0.4
    assert hottest(busy, "dram", [0, 1]) is None
    assert hottest(None, "pcie", [0]) is None


def test_what_stages_share_is_hot_for_each_of_them() -> None:
    classes = [f"stage {stage} of pipeline 0" for stage in range(4)]
    found = placed({"nic.stages 1-2 of pipeline 0": 0.3}, classes, [set()] * 4)
    assert found == {Place("nic", 1): 0.3, Place("nic", 2): 0.3}
    named = "uplink.h2d.stage 0 and 1 more"  # a name that does not tell which: who uses it is asked
    assert placed({named: 0.3}, classes, [{named}, set(), {named}, set()]).keys() == {
        Place("uplink", 0),
        Place("uplink", 2),
    }


def test_warmth_has_four_steps_and_one_for_what_is_not_known() -> None:
    assert [heat(share) for share in (0.0, 0.24, 0.25, 0.5, 0.79, 0.8, 1.0)] == [0, 0, 1, 2, 2, 3, 3]
    assert warmth(None, {}) == "idle"
    assert warmth(0.9, {}) == "heat3"
    assert warmth(0.9, None) == ""
    assert [percent(share) for share in (0.0, 0.001, 0.124, 0.999)] == ["0 %", "<1 %", "12 %", "100 %"]


# --- trees ---


def server(*wires: Wire, **kinds: str) -> Server:
    return Server("host 0", 1, tuple(Part(name, kind) for name, kind in kinds.items()), wires)


def wire(a: str, b: str, kind: str = "pcie", rate: float = 1e9) -> Wire:
    return Wire(a, b, kind, rate, rate)


def shape(branch: Branch) -> object:
    return [branch.names, *map(shape, branch.below)]


def test_a_part_hangs_on_what_is_nearest_to_a_socket() -> None:
    tree = tree_of(
        server(
            wire("g0", "in"), wire("in", "out"), wire("out", "cpu"), wire("g1", "cpu"), wire("g0", "g1", "nvlink"),
            wire("g1", "in"), g0="gpu", g1="gpu", cpu="socket", out="pcie_switch", **{"in": "pcie_switch"},
        )
    )  # fmt: skip
    assert [shape(root) for root in tree.roots] == [
        [("cpu",), [("out",), [("in",), [("g0",)]]], [("g1",)]]
    ]  # fmt: skip
    assert {(wire.a, wire.b) for wire in tree.beside} == {("g0", "g1"), ("g1", "in")}


def test_without_a_socket_switches_and_gpus_stand_alone() -> None:
    tree = tree_of(server(wire("g0", "sw"), g0="gpu", sw="pcie_switch", g1="gpu", other="pcie_switch"))
    assert [shape(root) for root in tree.roots] == [[("sw",), [("g0",)]], [("other",)], [("g1",)]]


def test_equal_ports_are_one_box_and_unequal_ones_are_not() -> None:
    links = [wire("n0", "cpu"), wire("n1", "cpu"), wire("n2", "cpu", rate=2e9)]
    (root,) = tree_of(server(*links, cpu="socket", n0="nic", n1="nic", n2="nic")).roots
    assert [branch.names for branch in root.below] == [("n0", "n1"), ("n2",)]


def test_an_uplink_is_that_of_the_gpus_beneath_it() -> None:
    gpu = Branch((Part("g", "gpu", mark=0),), None)
    inner = Branch((Part("in", "pcie_switch"),), wire("in", "out"), (gpu,))
    outer = Branch(
        (Part("out", "pcie_switch"),), wire("out", "cpu"), (inner, gpu._replace(parts=(Part("h", "gpu", mark=1),)))
    )
    busy = {Place("uplink", 0): 0.1, Place("uplink2", 0): 0.4, Place("uplink", 1): 0.3}
    assert share_of(inner, busy, ()) == 0.1
    assert share_of(outer, busy, ()) == 0.4
    assert share_of(outer, busy | {Place("uplink", 1): 0.7}, ()) == 0.7


def test_the_slot_of_a_port_carries_what_the_port_does() -> None:
    """A port of 200 Gb/s, 25 GB/s, in a slot of 31.25; no slot is more than full."""
    port = Branch((Part("n", "nic", mark=None, rate=25e9),), wire("n", "c", rate=31.25e9))
    busy = {Place("nic", 0): 0.5, Place("nic", 1): 0.25}
    assert share_of(port, busy, (0, 1)) == pytest.approx(0.4)
    assert share_of(port, busy, (1,)) == pytest.approx(0.2)
    assert share_of(port._replace(wire=wire("n", "c", rate=5e9)), busy, (0,)) == 1.0
    assert share_of(port, {Place("sm", 0): 0.5}, (0,)) is None
    assert share_of(port._replace(parts=(Part("n", "nic"),)), busy, (0,)) is None


def test_a_wire_says_its_name_rate_and_share() -> None:
    pcie, drive = Wire("n", "c", "pcie", 31.5e9, 31.5e9, "PCIe 4"), Wire("d", "c", "nvme", 6.5e9, 3.8e9)
    assert [*label(pcie, 2, 0.5, 100)] == ["PCIe 4 each", "31.5 GB/s", "50 %"]
    assert [*label(drive, 1, None, 100)] == ["6.5 GB/s read", "3.8 GB/s write"]
    assert [*label(drive, 1, None, 60)] == ["6.5 GB/s", "3.8 GB/s"]


# --- tracks ---

PAIRS = st.integers(2, 9).flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.sampled_from([*combinations(range(count), 2)]), min_size=1))
)


@given(PAIRS)
def test_no_two_wires_lie_on_one_another(given_: tuple[int, set[tuple[int, int]]]) -> None:
    count, chosen = given_
    pairs = sorted(chosen)
    at = ports(pairs, [(100.0 * place, 100.0 * place + 80) for place in range(count)])
    assert len(set(at.values())) == 2 * len(pairs)  # a port of its own at each end
    found = tracks(pairs, at, 6.0)
    assert sorted(track.pair for track in found) == list(range(len(pairs)))
    for depth in {track.depth for track in found}:
        row = sorted((track.left, track.right) for track in found if track.depth == depth)
        assert all(one[1] + 6 <= other[0] for one, other in pairwise(row))


# --- the network ---


def test_equal_leaves_are_one_group_and_a_slow_port_makes_another() -> None:
    machine = drawing(pictures.unequal())
    assert [switches.names for switches in machine.switches] == [
        tuple(f"leaf{leaf}" for leaf in range(8)),
        tuple(f"leaf{leaf}" for leaf in range(8, 16)),
        ("spine0",),
    ]
    first, second, spine = machine.switches
    # seven ports of 200 Gb/s and one of 25, at two to one: 712.5 Gb/s
    assert (
        first.said
        == "8 leaf switches, 8 nodes on each, 8 rails, each NIC of a node on its own, 712.5 Gb/s up, oversubscription 2"
    )
    assert "800 Gb/s up" in second.said
    assert (first.level, spine.level) == (1, 2)
    assert [server.number for server in machine.servers] == [1, 13, 1, 1]
    alike = [cable for cable in machine.cables if cable.source == End("server", 1)]
    assert [(cable.each, cable.rates) for cable in alike] == [
        ("from 6 nodes", ((25e9, 8),)),
        ("from 7 nodes", ((25e9, 8),)),
    ]


def test_a_rack_has_its_nvlink_switch_outside_the_servers() -> None:
    machine = drawing(pictures.rack())
    (server_,) = machine.servers
    assert (server_.number, server_.hosts) == (36, "hosts 0–35")
    said = {switches.kind: switches.said for switches in machine.switches}
    assert said["nvswitch"] == "2 NVSwitches, 18 nodes on each"
    nvlink = next(cable for cable in machine.cables if cable.kind == "nvlink")
    assert nvlink.rates == ((900e9, 4),)
    assert "1 core switch" in [switches.said for switches in machine.switches if switches.names == ("core0",)]
    levels = [(switches.kind, switches.level) for switches in machine.switches]
    assert levels == [("leaf", 1), ("spine", 2), ("spine", 3), ("nvswitch", 1)]


def test_an_nvlink_switch_that_several_servers_reach_belongs_to_none() -> None:
    devices = [{"name": f"g{host}", "kind": "gpu", "node": host, "device": "h100_sxm"} for host in range(2)]
    devices.append({"name": "sw", "kind": "nvswitch", "node": 0})
    links = [{"from": f"g{host}", "to": "sw", "bandwidth": "450 GB/s"} for host in range(2)]
    machine = drawing(read_topology(inline({"name": "pair", "devices": devices, "links": links}, "pair")))
    assert [switches.names for switches in machine.switches] == [("0.sw",)]
    assert all("sw" not in {part.name for part in each.parts} for each in machine.servers)
    assert {cable.target for cable in machine.cables} == {End("switches", 0)}
    assert [cable.rate for cable in machine.cables] == [450e9] * len(machine.servers)


def test_cables_from_port_to_port_need_no_switch() -> None:
    machine = drawing(pictures.drawn_by_hand())
    direct = End("switches", next(n for n, each in enumerate(machine.switches) if each.kind == "cable"))
    rates = [cable.rate for cable in machine.cables if cable.target == direct]
    assert rates == [1.25e9, 1.25e9]  # 10 Gb/s from either end


def test_a_cable_carries_all_of_its_links() -> None:
    cable = Cable(End("server", 0), End("switches", 0), "network", ((25e9, 7), (3.125e9, 1)))
    assert cable.rate == 178.125e9
    assert rates_of(cable) == "7 × 200 Gb/s + 25 Gb/s"


def test_numbers_are_told_by_their_runs() -> None:
    assert spans([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert spans([3]) == "3"
    assert spans(range(0, 20, 2)) == "0, 2, 4, 6, …"


# --- after a run ---


def test_the_port_that_a_step_waits_for_is_hot() -> None:
    path = ROOT / "scenarios" / "seven-b" / "zero3.yaml"
    run = simulate(load(path, ["topology=ethernet-10g-a100", "nodes=2"]))
    machine = drawing_of_run(run)
    share = run.summary().resources["nic"].utilization
    assert machine.busy is not None
    assert machine.busy[Place("nic", 0)] == share
    assert share > 0.9
    assert machine.about[1].endswith(f"busiest: NIC 10 Gb/s Ethernet, one per node, {percent(share)} of the step")
    lines = pictures.colours(ET.fromstring(render(machine)))
    assert lines["network, 10 Gb/s from each"] == "network-line heat3"
    slot = "nic0 – socket0: PCIe 4, 31.5 GB/s each way; carries what its NIC does"  # 1.25 GB/s
    assert lines[slot] == "pcie-line heat0"


def test_a_slow_port_is_hot_on_its_own_server_alone() -> None:
    path = ROOT / "scenarios" / "seven-b" / "zero3.yaml"
    slow = "topology.overrides=[{node: 1, nics: {bandwidth: 1 Gbps}}]"
    machine = drawing_of_run(simulate(load(path, ["topology=ethernet-10g-a100", slow])))
    assert machine.busy is not None
    assert [server.hosts for server in machine.servers] == ["host 0", "host 1"]
    assert machine.busy[Place("nic", 0)] < 0.2 < 0.8 < machine.busy[Place("nic", 1)]
    assert [said.partition(",")[0] for said in machine.classes] == ["node 0", "node 1"]
