"""Routes, NVLink domains, rank classes and selections of small machines, by hand."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.counting import calls
from zerosim.catalog import constant, constants
from zerosim.errors import InputError
from zerosim.spec import topology_file
from zerosim.spec.devices import Gpu, Link, Nic
from zerosim.spec.loading import inline, parse
from zerosim.spec.topology import Topology
from zerosim.spec.topology_facts import describe
from zerosim.spec.topology_file import find_topology, named_topology, read_topology, topology_names

PLAIN = """
name: plain
node:
  count: 3
  gpus: {device: a100_sxm_80, count: 8}
  nvlink: {kind: switch, bandwidth: 300 GB/s, latency: 0.9 us}
  pcie:
    generation: 4
    switches:
      - {gpus: [0, 1], nics: [0, 1], socket: 0}
      - {gpus: [2, 3], nics: [2, 3], socket: 0}
      - {gpus: [4, 5], nics: [4, 5], socket: 1}
      - {gpus: [6, 7], nics: [6, 7], socket: 1}
  sockets:
    - {device: epyc_7742, dram: {capacity: 1 TB, bandwidth: 204.8 GB/s}}
    - {device: epyc_7742, dram: {capacity: 1 TB, bandwidth: 204.8 GB/s}}
  nvme: [{socket: 1, count: 2, read: 6.5 GB/s, write: 4 GB/s, capacity: 3.84 TB}]
  nics: {count: 8, bandwidth: 200 Gbps, kind: infiniband}
fabric: {kind: switch, latency: 2 us}
"""


def machine(extra: str = "", changed: tuple[str, str] = ("", "")) -> Topology:
    return read_topology(parse(PLAIN.replace(*changed) + extra, "plain.yaml"))


def way(topology: Topology, a: str, b: str) -> list[str]:
    route = topology.route(a, b)
    return [route[0].source, *(link.target for link in route)] if route else []


# --- routes ---


def test_peers_meet_in_the_nvlink_switch_and_not_in_their_pcie_switch() -> None:
    plain = machine()
    assert way(plain, "1.gpu0", "1.gpu1") == ["1.gpu0", "1.nvswitch0", "1.gpu1"]
    assert plain.link("1.gpu0", "1.nvswitch0") == Link(
        "1.gpu0", "1.nvswitch0", "nvlink", 300e9, latency=0.9e-6, generation=3
    )


def test_host_memory_is_reached_over_the_pcie_switch_and_its_socket() -> None:
    plain = machine()
    route = plain.route("0.gpu5", "0.dram1")
    assert [link.target for link in route] == ["0.pcie2", "0.socket1", "0.dram1"]
    assert [link.bandwidth for link in route] == [31.5e9, 31.5e9, 204.8e9]
    assert [link.shared for link in route] == [False, False, True]  # reads and writes share DRAM
    assert way(plain, "0.gpu5", "0.dram0") == ["0.gpu5", "0.pcie2", "0.socket1", "0.socket0", "0.dram0"]


def test_a_pcie_switch_may_have_a_slower_uplink() -> None:
    route = named_topology("aws-p4d").route("0.gpu0", "0.dram0")
    assert [link.bandwidth for link in route] == [31.5e9, 15.75e9, 140.8e9]  # PCIe 4, PCIe 3 above the switch, DRAM


def test_drives_hang_on_their_socket_and_write_at_another_rate_than_they_read() -> None:
    plain = machine()
    assert [device.name for device in plain.devices("nvme", 0)] == ["0.nvme0", "0.nvme1"]
    assert plain.link("0.nvme0", "0.socket1").bandwidth == 6.5e9
    assert plain.link("0.socket1", "0.nvme0").bandwidth == 4e9


def test_nodes_are_joined_through_the_nearest_nic_of_each_gpu() -> None:
    plain = machine()
    assert way(plain, "0.gpu3", "2.gpu4") == [
        "0.gpu3", "0.pcie1", "0.nic3", "leaf0", "2.nic4", "2.pcie2", "2.gpu4",
    ]  # fmt: skip
    port = plain.link("0.nic3", "leaf0")
    assert (port.kind, port.bandwidth, port.latency) == ("network", 25e9, 1e-6)  # 200 Gb/s; half of 2 us on each side


def test_rails_cross_the_spine_only_between_different_nic_indices() -> None:
    rails = machine(changed=("kind: switch, latency: 2 us", "kind: rail, latency: 2 us"))
    assert way(rails, "0.gpu3", "2.gpu3")[2:5] == ["0.nic3", "leaf3", "2.nic3"]
    assert way(rails, "0.gpu3", "2.gpu4")[2:6] == ["0.nic3", "leaf3", "spine0", "leaf4"]


def test_the_uplink_of_a_leaf_is_the_sum_of_its_downlinks_by_the_oversubscription() -> None:
    fabric = "kind: fat_tree, latency: 2 us, leaf_nodes: 2, oversubscription: 4"
    tree = machine(changed=("kind: switch, latency: 2 us", fabric))
    assert tree.link("leaf0", "spine0").bandwidth == 2 * 8 * 25e9 / 4  # two nodes of eight ports
    assert tree.link("spine0", "leaf1").bandwidth == 1 * 8 * 25e9 / 4  # the third node alone
    assert "spine0" not in way(tree, "0.gpu0", "1.gpu0")
    assert "spine0" in way(tree, "0.gpu0", "2.gpu0")


def test_a_gpu_passes_nothing_on() -> None:
    """A pair without a link of its own in DGX-1's cube mesh goes over the host, not through a third GPU."""
    cube = named_topology("dgx-v100-16")
    assert way(cube, "0.gpu0", "0.gpu4") == ["0.gpu0", "0.gpu4"]
    assert way(cube, "0.gpu0", "0.gpu5") == ["0.gpu0", "0.pcie0", "0.socket0", "0.socket1", "0.pcie2", "0.gpu5"]
    assert cube.link("0.gpu0", "0.gpu4").bandwidth == 50e9  # two of six links of 25 GB/s
    for gpu in cube.gpus:
        assert sum(cube.link(gpu.name, peer).bandwidth for peer in cube.graph[gpu.name] if "gpu" in peer) == 150e9


def test_mesh_and_pairs_and_chip_to_chip() -> None:
    mesh = machine(changed=("kind: switch, bandwidth: 300", "kind: mesh, bandwidth: 280"))
    assert mesh.link("0.gpu0", "0.gpu7").bandwidth == 40e9  # 280 GB/s for seven peers
    pairs = machine(changed=("kind: switch, bandwidth", "kind: pairs, bandwidth"))
    assert pairs.link("0.gpu6", "0.gpu7").bandwidth == 300e9
    assert way(pairs, "0.gpu1", "0.gpu2") == ["0.gpu1", "0.pcie0", "0.socket0", "0.pcie1", "0.gpu2"]
    grace = named_topology("gh200").route("0.gpu0", "0.dram0")
    assert [(link.kind, link.bandwidth) for link in grace] == [("c2c", 450e9), ("dram", 480e9)]
    assert grace[0].latency == constant("latency_us.c2c") * 1e-6


def test_unknown_names_are_input_errors() -> None:
    with pytest.raises(
        InputError, match=r'device: found "0.gpu77"; expected a device of this topology; nearest 0.gpu7'
    ):
        machine().route("0.gpu77", "0.gpu0")
    with pytest.raises(InputError, match=r"link: found 0.gpu0 to 0.gpu1"):
        machine().link("0.gpu0", "0.gpu1")
    with pytest.raises(InputError, match=r"rank: found 24; expected a rank from 0 to 23"):
        machine().host_of(24)


# --- what is there ---


def test_ranks_and_graph_name_the_same_devices() -> None:
    plain = machine()
    assert len(plain.gpus) == 24
    assert [plain.host_of(rank) for rank in (0, 7, 8, 23)] == [0, 0, 1, 2]
    assert plain.gpus[9].name == "1.gpu1"
    assert plain.gpus[-1].name == "2.gpu7"
    assert plain.gpus[6:9] == (plain.device("0.gpu6"), plain.device("0.gpu7"), plain.device("1.gpu0"))
    assert {gpu.name for gpu in plain.gpus} <= set(plain.graph)
    # per node: 8 GPUs, 8 NICs, 4 PCIe switches, 2 sockets, 2 DRAM, 2 drives, 1 NVLink switch; and a leaf
    assert plain.graph.number_of_nodes() == 3 * 27 + 1
    # per node, each both ways: 8 NVLinks, 8 + 8 + 4 PCIe, 1 between sockets, 2 DRAM, 2 drives, 8 ports
    assert plain.graph.number_of_edges() == 2 * 3 * 41
    with pytest.raises(IndexError):
        plain.gpus[24]


def test_devices_of_a_kind_are_sorted_by_number() -> None:
    names = [device.name for device in named_topology("dgx2-v100-32").devices("gpu", 0)]
    assert names == [f"0.gpu{index}" for index in range(16)]
    assert [leaf.name for leaf in machine().devices("leaf")] == ["leaf0"]


def test_figures_come_from_the_catalogue() -> None:
    gpu, nic = machine().device("0.gpu0").figures, machine().device("0.nic0").figures
    assert isinstance(gpu, Gpu)
    assert isinstance(nic, Nic)
    assert (gpu.name, gpu.peak_flops["bf16"], nic.name) == ("A100-SXM4-80GB", 312e12, "infiniband_hdr")
    assert machine().device("0.dram1").capacity == 1e12


def test_figures_by_hand_replace_or_change_those_of_the_catalogue() -> None:
    faster = machine(changed=("device: a100_sxm_80", "device: a100_sxm_80, flops: 624 TFLOPS, memory: 160 GB"))
    gpu = faster.device("0.gpu0").figures
    assert isinstance(gpu, Gpu)
    assert (gpu.peak_flops["bf16"], gpu.peak_flops["tf32"], gpu.grade) == (624e12, 312e12, "user")
    assert (gpu.memory_bandwidth, faster.device("0.gpu0").capacity) == (2039e9, 160e9)
    own = machine(changed=("device: a100_sxm_80", "flops: 100 TFLOPS, memory: 10 GB, hbm: 1 TB/s"))
    figures = own.device("0.gpu0").figures
    assert isinstance(figures, Gpu)
    assert (figures.peak_flops["fp16"], figures.memory_bytes, figures.memory_bandwidth) == (100e12, 10e9, 1e12)
    assert any("as on an A100" in note for note in own.notes)
    nested = machine(changed=("device: a100_sxm_80", "device: {flops: 100 TFLOPS, memory: 10 GB, hbm: 1 TB/s}"))
    assert nested.device("0.gpu0") == own.device("0.gpu0")


def test_what_is_assumed_is_noted() -> None:
    notes = machine(changed=("bandwidth: 200 Gbps", "bandwidth: 150 Gbps")).notes
    assert notes == ("efficiency and latency of infiniband of 150 Gb/s taken from the nearest rates of the catalogue",)
    double = machine(changed=("bandwidth: 300 GB/s", "bandwidth: 600 GB/s")).notes
    assert double == ("NVLink of 600 GB/s per GPU and direction; a100_sxm_80 has 300 GB/s",)
    bare = read_topology(inline({"name": "bare", "node": {"gpus": {"device": "l4", "count": 2}}}, "bare"))
    assert bare.notes == ("no sockets given: 1 x epyc_rome with 512 GB each assumed",)
    assert way(bare, "0.gpu0", "0.gpu1") == ["0.gpu0", "0.socket0", "0.gpu1"]


# --- NVLink domains and rank classes ---


def test_nvlink_domains() -> None:
    assert machine().nvlink_domains() == (tuple(range(8)), tuple(range(8, 16)), tuple(range(16, 24)))
    pairs = machine(changed=("kind: switch, bandwidth", "kind: pairs, bandwidth"))
    assert pairs.nvlink_domains()[:2] == ((0, 1), (2, 3))
    assert named_topology("pcie-4x-rtx4090").nvlink_domains() == ((0,), (1,), (2,), (3,))


def test_equal_ranks_are_one_class() -> None:
    assert machine().rank_classes() == (tuple(range(24)),)


def test_a_slow_nic_makes_its_node_a_class() -> None:
    slow = machine("overrides: [{node: 1, nics: {bandwidth: 25 Gbps}}]")
    assert slow.rank_classes() == ((*range(8), *range(16, 24)), tuple(range(8, 16)))
    assert slow.link("1.nic0", "leaf0").bandwidth == 3.125e9
    assert slow.link("2.nic0", "leaf0").bandwidth == 25e9


def test_a_throttled_gpu_is_a_class_and_so_are_its_node_mates() -> None:
    throttled = machine('overrides: [{gpu: "1.2", compute: 80 %}]')
    mates = (8, 9, 11, 12, 13, 14, 15)
    assert throttled.rank_classes() == ((*range(8), *range(16, 24)), mates, (10,))
    assert throttled.gpus[10].compute == 0.8


def test_other_gpus_a_lost_nic_and_several_overrides_of_a_node() -> None:
    mixed = machine("overrides: [{node: 2, gpus: {device: a100_sxm_40}}, {node: 2, nics: {count: 7}}]")
    assert mixed.rank_classes()[0] == tuple(range(16))
    assert mixed.device("2.gpu0").capacity < mixed.device("1.gpu0").capacity
    assert len(mixed.devices("nic", 2)) == 7
    # GPUs 6 and 7 share a switch with one NIC, the other six with two
    assert mixed.rank_classes()[1:] == (tuple(range(16, 22)), (22, 23))


def test_a_node_may_have_lost_a_gpu() -> None:
    lost = machine("overrides: [{node: 1, gpus: {count: 7}}]")
    assert len(lost.gpus) == 23
    assert [lost.host_of(rank) for rank in (14, 15)] == [1, 2]
    assert lost.gpus[15].name == "2.gpu0"
    assert len(lost.select(gpus=21).gpus) == 21  # seven on each


def test_equal_overrides_make_one_class() -> None:
    two = machine("overrides: [{node: 0, gpus: {compute: 0.9}}, {node: 2, gpus: {compute: 0.9}}]")
    assert two.rank_classes() == ((*range(8), *range(16, 24)), tuple(range(8, 16)))


def test_gpus_that_share_their_uplink_differ_from_those_that_do_not() -> None:
    uneven = machine(changed=("gpus: [6, 7]", "gpus: [6]"))
    assert tuple(rank for rank in uneven.rank_classes()[0] if rank < 8) == (0, 1, 2, 3, 4, 5)
    assert len(uneven.rank_classes()) == 3  # pairs on a switch, alone on a switch, alone on the socket


# --- a part of a topology ---


def test_select_takes_the_first_nodes_and_spreads_gpus_evenly() -> None:
    plain = machine()
    assert len(plain.select(nodes=2).gpus) == 16
    assert [gpu.name for gpu in plain.select(gpus=2).gpus] == ["0.gpu0", "0.gpu1"]
    assert [gpu.name for gpu in plain.select(nodes=2, gpus=4).gpus] == ["0.gpu0", "0.gpu1", "1.gpu0", "1.gpu1"]
    assert len(plain.select(gpus=12).nodes) == 2  # six on each
    assert plain.select(nodes=2).notes == ()
    assert "0.gpu7" not in plain.select(gpus=4).graph


def test_more_nodes_of_one_template_may_be_asked_for() -> None:
    grown = machine().select(nodes=5)
    assert len(grown.gpus) == 40
    assert grown.rank_classes() == (tuple(range(40)),)
    assert grown.notes == ("5 nodes of plain assumed, of which the file has 3",)
    assert len(machine().select(gpus=32).nodes) == 4
    with pytest.raises(InputError, match=r"plain: nodes: found 4; expected from 1 to 3 nodes"):
        machine('overrides: [{gpu: "0.0", compute: 0.8}]').select(nodes=4)


def test_wrong_selections_are_input_errors() -> None:
    with pytest.raises(InputError, match=r"plain: gpus: found 9; expected a multiple of 2 \(nodes\) up to 16"):
        machine().select(nodes=2, gpus=9)
    with pytest.raises(InputError, match=r"plain: gpus: found 0; expected a multiple of 1 \(nodes\) up to 8"):
        machine().select(gpus=0)
    with pytest.raises(InputError, match=r"plain: nodes: found 0"):
        machine().select(nodes=0)
    lonely = read_topology(inline({"name": "lonely", "node": {"gpus": {"device": "l4", "count": 2}}}, "lonely"))
    with pytest.raises(InputError, match=r"lonely: nodes: found 2; expected 1 node, as these have no NICs"):
        lonely.select(nodes=2)


def classes_and_domains(machine: Topology) -> tuple[Sequence[Sequence[int]], Sequence[object]]:
    return machine.rank_classes(), machine.nvlink_domains()


def test_many_equal_nodes_cost_no_more_than_their_numbers() -> None:
    cluster = named_topology("dgx-h100")
    few, many = (calls(partial(classes_and_domains, cluster.select(nodes=nodes))) for nodes in (2, 2048))
    assert many < few + 5 * 16_384  # a few walks over the ranks
    big = cluster.select(nodes=2048)
    classes, domains = classes_and_domains(big)
    assert [len(ranks) for ranks in classes] == [16_384]
    assert len(domains) == 2048
    assert way(big, "0.gpu0", "2047.gpu0")[2:5] == ["0.nic0", "leaf0", "spine0"]
    assert "graph" not in vars(big)  # nobody asked for 100,000 vertices


# --- the machines that come along ---


@pytest.mark.parametrize("name", topology_names())
def test_every_machine_is_one_class_without_assumptions(name: str) -> None:
    topology = named_topology(name)
    assert topology.name == name
    assert topology.rank_classes() == (tuple(range(len(topology.gpus))),)
    assert topology.notes == ()


def test_machines_are_found_beside_the_package_and_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"dgx-a100-80", "dgx-h100", "gh200", "ethernet-10g-a100"} <= set(topology_names())
    (tmp_path / "own.yaml").write_text(PLAIN)
    monkeypatch.setattr(topology_file, "PLACES", (tmp_path / "missing", tmp_path))
    assert topology_names() == ("own",)
    assert find_topology("own") == tmp_path / "own.yaml"


def test_an_unknown_machine_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r'found "dgx-a100-8"; expected a name .*; nearest "dgx-a100-80"'):
        find_topology("dgx-a100-8")


def test_a_topology_in_words() -> None:
    lines = describe(machine('overrides: [{gpu: "1.2", compute: 0.8}]'))
    assert lines[:3] == [
        "plain: 3 nodes, 24 ranks, 3 rank classes, NVLink joins 8",
        "2 nodes of",
        "  8 x A100-SXM4-80GB: 312 TFLOP/s dense fp16, 85.04 GB at 2.039 TB/s",
    ]
    assert "  8 x NIC infiniband_hdr: 200 Gb/s" in lines
    assert any(line.endswith("at 80 % of its compute rate") for line in lines)


# --- the graph form ---

GRAPH = """
name: drawn
devices:
  - {name: gpu0, kind: gpu, device: a100_sxm_80}
  - {name: gpu1, kind: gpu, device: a100_sxm_80}
  - {name: nvswitch0, kind: nvswitch}
  - {name: socket0, kind: socket, cores: 64}
  - {name: dram0, kind: dram, capacity: 1 TB}
  - {name: nic0, kind: nic, network: infiniband}
  - {name: 1.gpu0, kind: gpu, node: 1, flops: 100 TFLOPS, memory: 24 GB, hbm: 1 TB/s}
  - {name: 1.socket0, kind: socket, node: 1, device: epyc_7742}
  - {name: far, kind: nic, host: 1, device: infiniband_hdr}
  - {name: leaf0, kind: leaf}
links:
  - {from: gpu0, to: nvswitch0, bandwidth: 300 GB/s}
  - {from: gpu1, to: nvswitch0, bandwidth: 300 GB/s}
  - {from: gpu0, to: socket0, bandwidth: 31.5 GB/s, latency: 1 us}
  - {from: gpu1, to: socket0, bandwidth: 31.5 GB/s, latency: 1 us}
  - {from: socket0, to: dram0, bandwidth: 204.8 GB/s}
  - {from: nic0, to: socket0, bandwidth: 31.5 GB/s}
  - {from: nic0, to: leaf0, bandwidth: 200 Gbps}
  - {from: 1.gpu0, to: 1.socket0, bandwidth: 15 GB/s}
  - {from: far, to: 1.socket0, bandwidth: 31.5 GB/s}
  - {from: far, to: leaf0, bandwidth: 200 Gbps, duplex: half}
"""


def test_the_graph_form_becomes_the_same_kind_of_graph() -> None:
    drawn = read_topology(parse(GRAPH, "drawn.yaml"))
    assert [gpu.name for gpu in drawn.gpus] == ["0.gpu0", "0.gpu1", "1.gpu0"]
    assert drawn.hosts == (0, 1)
    assert way(drawn, "0.gpu0", "0.gpu1") == ["0.gpu0", "0.nvswitch0", "0.gpu1"]
    assert way(drawn, "0.gpu0", "0.dram0") == ["0.gpu0", "0.socket0", "0.dram0"]
    assert way(drawn, "0.gpu1", "1.gpu0") == ["0.gpu1", "0.socket0", "0.nic0", "leaf0", "1.far", "1.socket0", "1.gpu0"]
    assert drawn.link("0.socket0", "0.dram0").shared
    assert drawn.link("leaf0", "1.far").shared
    assert drawn.link("1.far", "leaf0").bandwidth == 25e9
    assert not drawn.link("leaf0", "0.nic0").shared
    assert drawn.nvlink_domains() == ((0, 1), (2,))
    assert drawn.rank_classes() == ((0, 1), (2,))
    assert drawn.device("1.gpu0").capacity == 24e9


def test_equal_hosts_of_the_graph_form_are_one_class() -> None:
    """Figures by hand or by name, parts called as the user likes: nothing of a name makes hosts differ."""

    def host(node: int, word: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        parts: list[dict[str, Any]] = [
            {"name": f"{word}-a", "kind": "gpu", "flops": "100 TFLOPS", "memory": "24 GB", "hbm": "1 TB/s"},
            {"name": f"{word}-b", "kind": "gpu", "device": "a100_sxm_80"},
            {"name": f"{word}-cpu", "kind": "socket", "cores": 32},
            {"name": f"{word}-ram", "kind": "dram", "capacity": "256 GB"},
            {"name": f"{word}-disk", "kind": "nvme", "capacity": "1 TB", "read": "3 GB/s", "write": "2 GB/s"},
            {"name": f"{word}-port", "kind": "nic", "network": "ethernet"},
        ]
        rates = {"a": 15, "b": 25, "ram": 100, "disk": 4, "port": 15}
        links = [
            {"from": f"{word}-{part}", "to": f"{word}-cpu", "bandwidth": f"{rate} GB/s"} for part, rate in rates.items()
        ]
        wire = {"from": "middle", "to": f"{word}-port", "bandwidth": "10 Gbps"}
        return [{"node": node, **part} for part in parts], [*links[:: 1 - 2 * node], wire]

    (one, its), (other, theirs) = host(0, "left"), host(1, "right")
    leaf = {"name": "middle", "kind": "leaf"}
    both = {"name": "two", "devices": [*one, *other, leaf], "links": [*theirs, *its]}
    topology = read_topology(inline(both, "two"))
    assert topology.rank_classes() == ((0, 2), (1, 3))


def test_a_part_of_a_drawn_topology() -> None:
    drawn = read_topology(parse(GRAPH, "drawn.yaml"))
    assert [gpu.name for gpu in drawn.select(gpus=1).gpus] == ["0.gpu0"]
    assert "1.far" not in drawn.select(nodes=1).graph
    with pytest.raises(InputError, match=r"drawn: nodes: found 3; expected from 1 to 2 nodes"):
        drawn.select(nodes=3)


def test_an_nvlink_switch_may_join_nodes() -> None:
    rack = {
        "name": "rack",
        "devices": [
            {"name": "0.gpu0", "kind": "gpu", "device": "gb200"},
            {"name": "1.gpu0", "kind": "gpu", "device": "gb200"},
            {"name": "tray", "kind": "nvswitch", "node": 1},
        ],
        "links": [{"from": f"{host}.gpu0", "to": "tray", "bandwidth": "900 GB/s"} for host in (0, 1)],
    }
    topology = read_topology(inline(rack, "rack"))
    assert topology.nvlink_domains() == ((0, 1),)
    assert way(topology, "0.gpu0", "1.gpu0") == ["0.gpu0", "1.tray", "1.gpu0"]


def test_a_template_and_its_drawing_are_the_same_graph() -> None:
    """A small machine written in both forms gives equal devices and links."""
    node = {
        "gpus": {"device": "rtx3090", "count": 2},
        "nvlink": {"kind": "pairs"},
        "pcie": {"generation": 4, "lanes": 8},
        "sockets": [{"device": "desktop_ddr5", "dram": {"capacity": "128 GB"}}],
    }
    template = read_topology(inline({"name": "both", "node": node}, "both"))
    devices = [
        {"name": "gpu0", "kind": "gpu", "device": "rtx3090"},
        {"name": "gpu1", "kind": "gpu", "device": "rtx3090"},
        {"name": "socket0", "kind": "socket", "device": "desktop_ddr5"},
        {"name": "dram0", "kind": "dram", "capacity": "128 GB"},
    ]
    step = constants("collectives.hop_us")  # the latency of a link is that of a collective's step over it
    pcie = {"bandwidth": "15.75 GB/s", "latency": f"{step['pcie4']} us", "generation": 4}
    links = [
        {"from": "gpu0", "to": "gpu1", "bandwidth": "56.25 GB/s", "latency": f"{step['nvlink']} us", "generation": 3},
        {"from": "gpu0", "to": "socket0", **pcie},
        {"from": "gpu1", "to": "socket0", **pcie},
        {"from": "socket0", "to": "dram0", "bandwidth": "89.6 GB/s", "latency": "100 ns"},
    ]
    drawn = read_topology(inline({"name": "both", "devices": devices, "links": links}, "both"))
    assert set(drawn.graph) == set(template.graph)
    assert set(drawn.graph.edges) == set(template.graph.edges)
    for name in drawn.graph:
        assert drawn.device(name) == template.device(name)
    for a, b in drawn.graph.edges:
        one, other = drawn.link(a, b), template.link(a, b)
        assert replace(one, latency=0.0) == replace(other, latency=0.0)
        assert one.latency == pytest.approx(other.latency)
