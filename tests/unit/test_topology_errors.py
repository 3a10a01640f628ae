"""Wrong topology files: each mistake is told with its line and column, what was found and what was expected."""

import pytest

from zerosim.errors import InputError
from zerosim.spec.loading import inline, parse
from zerosim.spec.topology_file import read_topology

RIGHT = """\
name: right
node:
  count: 2
  gpus: {device: a100_sxm_80, count: 4}
  nvlink: {kind: switch, bandwidth: 300 GB/s}
  pcie: {generation: 4, switches: [{gpus: [0, 1], nics: [0]}, {gpus: [2, 3], nics: [1], socket: 1}]}
  sockets:
  - {device: epyc_7742, dram: {capacity: 1 TB}}
  - {device: epyc_7742, dram: {capacity: 1 TB}}
  nvme: [{socket: 0, device: nvme_gen4, capacity: 2 TB}]
  nics: {count: 2, bandwidth: 200 Gbps, kind: infiniband}
fabric: {kind: rail}
overrides:
- {node: 1, nics: {bandwidth: 100 Gbps}}
- {gpu: "0.3", compute: 0.8}
"""

DRAWN = """\
name: drawn
devices:
- {name: a, kind: gpu, device: l4}
- {name: b, kind: gpu, device: l4}
- {name: cpu, kind: socket, cores: 16}
- {name: ram, kind: dram, capacity: 64 GB}
links:
- {from: a, to: cpu, bandwidth: 31.5 GB/s}
- {from: b, to: cpu, bandwidth: 31.5 GB/s}
- {from: cpu, to: ram, bandwidth: 80 GB/s, duplex: half}
"""


MARK = "¦"  # stands in the wrong text where the mistake should be found


def wrong_file(right: str, old: str, new: str) -> tuple[str, str]:
    """A right file made wrong, and the place of its mistake: that of the mark, else the start."""
    marked = right.replace(old, new, 1)
    before = marked.partition(MARK)[0] if MARK in marked else ""
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return marked.replace(MARK, ""), f"t.yaml:{line}:{column}: "


def said(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_topology(parse(text, "t.yaml"))
    return [str(problem) for problem in caught.value.problems]


def test_the_files_that_are_made_wrong_here_are_right() -> None:
    assert len(read_topology(parse(RIGHT, "t.yaml")).gpus) == 8
    assert len(read_topology(parse(DRAWN, "t.yaml")).gpus) == 2


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        (
            "compute: 0.8",
            "compute: ¦80",
            "overrides.1.compute: found 80; expected a share of the rate such as 0.8",
        ),
        (
            "count: 4}",
            "count: 4, compute: ¦10.5}",
            "node.gpus.compute: found 10.5; expected a share of the rate such as 0.8",
        ),
        (
            "{bandwidth: 100 Gbps}",
            "{unlike: [¦{nics: [1], kind: roce}]}",
            'overrides.0.nics.unlike.0.bandwidth: found nothing; expected the rate of a port such as "200 Gbps"',
        ),
        (
            "device: a100_sxm_80",
            "device: ¦a100_sxm80",
            'node.gpus.device: found "a100_sxm80"; expected a GPU of the catalogue (zerosim list devices); '
            'nearest "a100_sxm_80"',
        ),
        (
            "{device: a100_sxm_80, count: 4",
            "¦{flops: 100 TFLOPS, memory: 24 GB, count: 4",
            "node.gpus.hbm: found nothing; expected a figure, as no GPU of the catalogue is named",
        ),
        (
            "{device: a100_sxm_80, count: 4",
            "¦{count: 4",
            "node.gpus.device: found nothing; expected a GPU of the catalogue, or flops, memory and hbm",
        ),
        (
            "device: a100_sxm_80, count: 4",
            "device: a100_sxm_80, flops: {¦fp61: 1 TFLOPS}, count: 4",
            'node.gpus.flops.fp61: found "fp61"; expected one of fp32, tf32, fp16, bf16, fp8; nearest fp16',
        ),
        (
            "bandwidth: 300 GB/s",
            "¦bandwidht: 300 GB/s",
            'node.nvlink.bandwidht: found unknown key "bandwidht"; expected one of bandwidth, generation, hosts, kind, '
            "latency, pairs; nearest bandwidth",
        ),
        (
            "kind: switch, bandwidth: 300 GB/s",
            "kind: ¦ring, bandwidth: 300 GB/s",
            'node.nvlink.kind: found "ring"; expected "switch", "mesh", "pairs" or "none"',
        ),
        (
            "kind: switch, bandwidth",
            "kind: pairs, pairs: [[0, 1], ¦[2, 4], [1, 0]], bandwidth",
            "node.nvlink.pairs.1: found [2, 4]; expected two different GPUs from 0 to 3",
        ),
        (
            "kind: switch, bandwidth",
            "kind: pairs, pairs: [[0, 1], [2, 3], ¦[1, 0]], bandwidth",
            "node.nvlink.pairs.2: found [1, 0] again; expected each pair once; a third number is how many "
            "links join it",
        ),
        (
            "generation: 4, switches",
            "generation: 4, bandwidth: ¦64 GB/s, switches",
            "node.pcie.bandwidth: found 64 GB/s; expected at most 31.5 GB/s, as PCIe 4 x16",
        ),
        (
            "gpus: [0, 1], nics: [0]",
            "gpus: [0, ¦4], nics: [0]",
            "node.pcie.switches.0.gpus.1: found GPU 4; expected a GPU from 0 to 3",
        ),
        (
            "gpus: [2, 3]",
            "gpus: [¦1, 2, 3]",
            "node.pcie.switches.1.gpus.0: found GPU 1, which switch 0 has; expected each GPU on one switch",
        ),
        (
            "nics: [1]",
            "nics: [¦2]",
            "node.pcie.switches.1.nics.0: found NIC 2; expected a NIC from 0 to 1",
        ),
        (
            "socket: 1}",
            "socket: ¦2}",
            "node.pcie.switches.1.socket: found 2; expected a socket from 0 to 1",
        ),
        (
            "capacity: 1 TB",
            "capacity: ¦-1 TB",
            'node.sockets.0.dram.capacity: found "-1 TB"; expected a size such as "80 GB", not negative',
        ),
        (
            "{device: epyc_7742, dram: {",
            "{cores: 64, dram: ¦{",
            "node.sockets.0.dram.bandwidth: found nothing; expected a rate, as the catalogue does not name the CPU",
        ),
        (
            "{socket: 0, device: nvme_gen4",
            "¦{socket: 0, read: 6.5 GB/s",
            'node.nvme.0.write: found nothing; expected a rate such as "6.5 GB/s", or a drive of the catalogue '
            "as device",
        ),
        (
            "socket: 0, device",
            "socket: ¦5, device",
            "node.nvme.0.socket: found 5; expected a socket from 0 to 1",
        ),
        (
            "bandwidth: 200 Gbps",
            "bandwidth: ¦400 Gbps",
            "node.nics.bandwidth: found 400 Gb/s; expected at most 252 Gb/s, which PCIe 4 x16 carries",
        ),
        (
            "kind: infiniband",
            "kind: ¦infinyband",
            'node.nics.kind: found "infinyband"; expected one of infiniband, roce, ethernet, efa, slingshot, '
            'tcpx, tcpxo, omnipath; nearest "infiniband"',
        ),
        (
            "kind: rail",
            "kind: rail, oversubscription: ¦0.5",
            "fabric.oversubscription: found 0.5; expected a number greater than or equal to 1",
        ),
        (
            "node: 1, nics",
            "node: ¦2, nics",
            "overrides.0.node: found node 2; expected a node from 0 to 1",
        ),
        (
            "bandwidth: 100 Gbps",
            "bandwidth: ¦800 Gbps",
            "overrides.0.nics.bandwidth: found 800 Gb/s; expected at most 252 Gb/s, which PCIe 4 x16 carries",
        ),
        (
            "node: 1, nics: {bandwidth: 100 Gbps}",
            "node: 1, ¦compute: 0.5",
            'overrides.0.compute: found "compute"; expected a figure of a node, such as gpus: {compute: 0.8}',
        ),
        ("{node: 1, nics", "¦{nics", "overrides.0: found neither or both of node and gpu; expected one of them"),
        ('gpu: "0.3"', 'gpu: ¦"0.4"', "overrides.1.gpu: found GPU 4; expected a GPU from 0 to 3"),
        (
            'gpu: "0.3"',
            "gpu: ¦0.3",
            'overrides.1.gpu: found 0.3; expected node and GPU as text such as "0.5"',
        ),
        (
            "compute: 0.8",
            "device: ¦a100_sxm80",
            'overrides.1.device: found "a100_sxm80"; expected a GPU of the catalogue (zerosim list devices); '
            'nearest "a100_sxm_80"',
        ),
    ],
)
def test_wrong_template(right: str, wrong: str, expected: str) -> None:
    text, place = wrong_file(RIGHT, right, wrong)
    assert place + expected in said(text)


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        (
            "name: b,",
            "name: ¦a,",
            'devices.1.name: found "a" again; expected another name, as device 0 has this one',
        ),
        ("kind: gpu", "kind: ¦gppu", 'devices.0.kind: found "gppu"; expected '),
        ("device: l4", "device: ¦l5", 'devices.0.device: found "l5"; expected a GPU of the catalogue'),
        (
            "{name: ram, kind: dram, capacity: 64 GB",
            "¦{name: ram, kind: dram",
            'devices.3.capacity: found nothing; expected a size such as "512 GB"',
        ),
        ("to: cpu", "to: ¦cpus", 'links.0.to: found "cpus"; expected a device of the list; nearest "cpu"'),
        ("{from: b", "¦{from: a", "links.1: found a to cpu again; expected one link, as link 0"),
        (
            "{from: cpu, to: ram",
            "¦{from: cpu, to: cpu",
            "links.2: found a link from cpu to itself; expected two devices",
        ),
        (
            "from: b, to: cpu",
            "from: b, to: ram, kind: dram",
            "found no route from 0.a to 0.b; expected links that join them",
        ),
        ("bandwidth: 80 GB/s", "bandwidth: ¦80 GB", 'links.2.bandwidth: found "80 GB"; expected a rate such as '),
        (
            "{from: b, to: cpu, bandwidth: 31.5 GB/s",
            "{from: b, to: cpu, generation: 3, bandwidth: ¦31.5 GB/s",
            "links.1.bandwidth: found 31.5 GB/s; expected at most 15.75 GB/s, as PCIe 3 x16",
        ),
        ("duplex: half", "duplex: ¦both", 'links.2.duplex: found "both"; expected "full", "half" or "simplex"'),
        (
            "- {name: a, kind: gpu, device: l4}\n- {name: b",
            "¦- {name: a, kind: gpu, node: 2, device: l4}\n- {name: b",
            "devices: found no node 1",
        ),
    ],
)
def test_wrong_graph(right: str, wrong: str, expected: str) -> None:
    text, place = wrong_file(DRAWN, right, wrong)
    problems = said(text)
    assert any(problem.startswith(place + expected) for problem in problems), problems


def test_devices_that_no_kind_of_link_joins() -> None:
    text = DRAWN + "- {from: a, to: rack, bandwidth: 1 GB/s}\n"
    text = text.replace("links:", "- {name: rack, kind: spine}\nlinks:")
    assert said(text) == [
        "t.yaml:12:3: links.3: found a link between gpu and spine; expected devices that a link can join, or its kind"
    ]


def test_ranks_are_listed_node_by_node() -> None:
    text = DRAWN.replace("- {name: b, kind: gpu,", "- {name: 1.x, kind: socket, cores: 8}\n- {name: b, kind: gpu,")
    text = text.replace("{name: a, kind: gpu,", "{name: a, kind: gpu, node: 1,")
    assert (
        "t.yaml:5:3: devices.2: found a GPU of node 0 after one of node 1; "
        "expected GPUs in order of nodes, as ranks are"
    ) in said(text)


def test_all_mistakes_of_a_file_are_told_at_once_in_reading_order() -> None:
    wrong = RIGHT.replace("a100_sxm_80", "a100").replace("socket: 1}", "socket: 9}").replace("0.3", "7.3")
    places = [problem.split(": ")[0] for problem in said(wrong)]
    assert places == ["t.yaml:4:18", "t.yaml:6:97", "t.yaml:15:9"]
    shapes = RIGHT.replace("300 GB/s", "300 GBs").replace("1 TB", "1 TX").replace("count: 4", "count: 0")
    assert len(said(shapes)) == 4  # both sockets


def test_of_several_overrides_the_one_at_fault_is_named() -> None:
    second = "- {node: 1, gpus: {device: b300}}\n- {gpu"
    wrong = RIGHT.replace("100 Gbps", "800 Gbps").replace("- {gpu", second)
    assert [problem.split(" found")[0] for problem in said(wrong)] == [
        "t.yaml:14:31: overrides.0.nics.bandwidth:",
        "t.yaml:15:28: overrides.1.gpus.device:",
    ]


def test_nodes_without_nics_are_not_a_cluster() -> None:
    lonely = RIGHT.replace("  nics: {count: 2, bandwidth: 200 Gbps, kind: infiniband}\n", "")
    lonely = lonely.replace(", nics: [0]", "").replace(", nics: [1]", "").split("overrides")[0]
    assert said(lonely) == ["t.yaml:3:3: node: found no nics; expected nics, which join the 2 nodes"]


def test_what_is_no_mapping() -> None:
    with pytest.raises(InputError, match="expected a mapping with name and node, or with devices and links"):
        read_topology(inline(["dgx"], "here"))
