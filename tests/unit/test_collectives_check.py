"""Sweeps of collectives: nccl-tests' conventions, what limits, groups with some ranks of each node, the screen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs_machines import collective as work
from tests.costs_machines import machine, seconds, switched
from zerosim.errors import Finding, InputError
from zerosim.report.collectives_check import Place, finding_in_a_line, render_check
from zerosim.spec.topology import Topology
from zerosim.step import CollectiveKind
from zerosim.studies.collectives_check import KINDS, USUAL, Row, Sweep, examined, sweeps
from zerosim.units import show_binary_size

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = [KIB * 4**step for step in range(11)]
ETHERNET = {"count": 1, "bandwidth": "10 Gbps", "kind": "ethernet"}
INFINIBAND = {"device": "infiniband_hdr", "count": 8}


def cluster(nodes: int = 2, nics: dict[str, Any] | None = None) -> Topology:
    return switched("a100_sxm_80", 8, nodes, nics or ETHERNET)


def only(topology: Topology, kind: CollectiveKind, size: int, **more: Any) -> Row:
    (sweep,) = sweeps(topology, [kind], [size], **more)
    (row,) = sweep.rows
    return row


def wrong(*given: Any, **more: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        sweeps(*given, **more)
    return [str(problem) for problem in caught.value.problems]


# --- conventions ---------------------------------------------------------------------------------------------------

FACTORS = {  # busbw / algbw over 8 ranks (nccl-tests, doc/PERFORMANCE.md)
    "all_reduce": 14 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_to_all": 7 / 8, "broadcast": 1.0,
    "reduce": 1.0, "send_recv": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_bandwidths_follow_from_size_and_time(kind: CollectiveKind) -> None:
    row = only(switched("a100_sxm_80"), kind, GIB)
    assert row.algbw == pytest.approx(GIB / (row.time_us * 1e-6) / 1e9)
    assert row.busbw == pytest.approx(row.algbw * FACTORS[kind])
    assert (row.collective, row.gpus, row.size_bytes) == (kind, 8, GIB)
    assert row.busbw < 300  # NVLink of an A100, one direction


@pytest.mark.parametrize("kind", KINDS)
def test_many_sizes_take_what_each_takes_alone(kind: CollectiveKind) -> None:
    topology = cluster()
    (sweep,) = sweeps(topology, [kind], SIZES)
    times = [row.seconds for row in sweep.rows]
    assert times == sorted(times)
    assert [row.size_bytes for row in sweep.rows] == SIZES
    for row in (sweep.rows[0], sweep.rows[-1]):
        assert row.seconds == pytest.approx(seconds(topology, work(kind, row.size_bytes)))


def test_kinds_come_one_after_the_other() -> None:
    (sweep,) = sweeps(switched("a100_sxm_80"), ["broadcast", "all_reduce"], [KIB, MIB])
    found = [(row.collective, row.size_bytes) for row in sweep.rows]
    assert found == [("broadcast", KIB), ("broadcast", MIB), ("all_reduce", KIB), ("all_reduce", MIB)]
    assert "reduce" not in USUAL


def test_a_pair_sends_both_ways_as_in_nccl_tests() -> None:
    pair = cluster().select(nodes=2, gpus=2)
    both = only(pair, "send_recv", GIB)
    assert both.seconds == pytest.approx(seconds(pair, work("exchange", GIB)))
    assert both.seconds > 1.5 * seconds(pair, work("send_recv", GIB))  # the port carries both


def test_json_has_the_keys_of_the_contract() -> None:
    row = only(switched("a100_sxm_80"), "all_reduce", GIB).as_json()
    contract = ["collective", "gpus", "size_bytes", "algorithm", "time_us", "algbw", "busbw", "limited_by"]
    assert list(row)[: len(contract)] == contract


# --- what limits ---------------------------------------------------------------------------------------------------


def test_the_port_limits_between_nodes_and_nvlink_inside() -> None:
    between, inside = only(cluster(), "all_gather", GIB), only(cluster(1), "all_gather", GIB)
    assert (between.limited_by, inside.limited_by) == ("nic", "nvlink")
    assert between.label == "NIC 10 Gb/s Ethernet, one per node"
    assert inside.label.startswith("NVLink 300 GB/s")
    # A ring crosses each boundary between nodes once: 15/16 of the buffer at no more than 1.25 GB/s.
    assert between.busbw < 1.25
    assert between.busbw > 0.8 * 1.25


def test_a_small_message_is_limited_by_latency() -> None:
    row = only(cluster(), "all_reduce", KIB)
    assert (row.limited_by, row.label) == ("latency", "latency")


def test_the_slowest_node_tells() -> None:
    mixed = machine(
        "a100_sxm_80", 8, 4, {"kind": "switch"}, ETHERNET, overrides=[{"node": 3, "nics": {"bandwidth": "1 Gbps"}}]
    )
    row = only(mixed, "all_gather", GIB)
    assert row.label == "NIC 1 Gb/s Ethernet, one per node (node 3)"
    assert row.limited_by == "nic.node 3"
    assert row.seconds > 5 * only(cluster(4), "all_gather", GIB).seconds


# --- groups --------------------------------------------------------------------------------------------------------


def test_several_counts_are_a_sweep_each() -> None:
    found = sweeps(cluster(), ["all_reduce"], [GIB], [2, 4, 8, 16, 32])
    assert [(sweep.gpus, sweep.nodes) for sweep in found] == [(2, 1), (4, 1), (8, 1), (16, 2), (32, 4)]
    assert [row.gpus for sweep in found for row in sweep.rows] == [2, 4, 8, 16, 32]
    assert any("assumed, of which the file has 2" in note for note in found[-1].notes)
    assert examined(cluster(), found).hosts == (0, 1, 2, 3)


def test_one_rank_of_each_node_shares_the_ports_with_its_siblings() -> None:
    topology = cluster(4, INFINIBAND)
    (alone,) = sweeps(topology, ["all_gather"], [GIB], [4], nodes=4)
    (among,) = sweeps(topology, ["all_gather"], [GIB], per_node=1)
    assert (among.gpus, among.nodes, among.siblings) == (4, 4, 8)
    assert (alone.gpus, alone.nodes, alone.siblings) == (4, 4, 1)
    assert among.rows[0].seconds > 0.9 * alone.rows[0].seconds  # each has a port of the eight
    (one_port,) = sweeps(cluster(4), ["all_gather"], [GIB], per_node=1)
    (free,) = sweeps(cluster(4), ["all_gather"], [GIB], [4], nodes=4)
    assert one_port.rows[0].seconds == pytest.approx(8 * free.rows[0].seconds, rel=0.05)  # eight groups, one port


def test_one_gpu_has_nothing_to_exchange() -> None:
    assert sweeps(machine(gpus=1), ["all_reduce"], [KIB]) == ()


def test_too_many_gpus() -> None:
    box = machine("rtx4090", 4)
    assert wrong(box, ["all_reduce"], [KIB], [2, 8, 16]) == [
        "--gpus: found 8; expected at most 4, as there are in test",
        "--gpus: found 16; expected at most 4, as there are in test",
    ]
    (problem,) = wrong(cluster(), ["all_reduce"], [KIB], [32], nodes=2)
    assert "expected at most 16, as there are in 2 nodes of test" in problem


def test_wrong_groups() -> None:
    assert "found 3 of 8 GPUs; expected a part" in wrong(cluster(), ["all_reduce"], [KIB], per_node=3)[0]
    assert "found 1 on 1 node; expected 2 or more" in wrong(cluster(1), ["all_reduce"], [KIB], per_node=1)[0]


# --- the screen ----------------------------------------------------------------------------------------------------


def screen(found: tuple[Sweep, ...], findings: tuple[Finding, ...] = (), width: int = 100) -> list[str]:
    rows = [row.as_json() for sweep in found for row in sweep.rows]
    places = [Place(sweep.gpus, sweep.nodes, sweep.siblings) for sweep in found]
    return render_check("box", places, rows, findings, ["something"], width).splitlines()


def test_a_table_for_each_collective() -> None:
    lines = screen(sweeps(cluster(), ["all_reduce", "all_gather"], [KIB, GIB]))
    assert lines[0].startswith("box: 16 GPUs on 2 nodes.")
    assert lines[1:4] == ["", "all_reduce", lines[8]]
    assert lines[7] == "all_gather"
    assert lines[3].split() == ["size", "time", "algbw", "busbw", "algorithm", "limited", "by"]
    assert lines[4].split()[:2] == ["1", "KiB"]
    assert lines[5].endswith("NIC 10 Gb/s Ethernet, one per node")
    assert lines[-2:] == ["assumed", "  something"]


def test_counts_stand_below_each_other() -> None:
    lines = screen(sweeps(cluster(), ["all_reduce", "broadcast"], [GIB], [2, 16]))
    assert lines[0].startswith("box: 2 GPUs on 1 node; 16 GPUs on 2 nodes.")
    start = lines.index("all_reduce")
    assert [line.split()[0] for line in lines[start + 1 : start + 4]] == ["GPUs", "2", "16"]


def test_groups_at_once_are_told() -> None:
    assert "2 GPUs on 2 nodes, 8 such groups at once." in screen(sweeps(cluster(), ["broadcast"], [1], per_node=1))[0]


def test_findings_stand_below() -> None:
    known = Finding("slow", "warning", "The port is slow.", "Mend it.")
    lines = screen((), (known,))
    assert lines[0] == "box: one GPU, and no collective has anything to do."
    assert lines[2:4] == ["findings", "  warning  The port is slow. Mend it."]
    assert finding_in_a_line(known) == "warning: slow: The port is slow. Mend it."


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_screen_keeps_its_width(width: int) -> None:
    lines = screen(sweeps(cluster(), USUAL, SIZES, [2, 16]), (), width)
    assert max(map(len, lines)) <= width
    assert any("algbw" in line for line in lines) is (width > 60)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(1, "1 B"), (1000, "1 kB"), (1536, "1.536 kB"), (1024, "1 KiB"), (1536 * KIB, "1536 KiB"), (4 * GIB, "4 GiB"),
     (2**50, "1024 TiB"), (KIB * (10**6 + 1), "1.024 GB")],
)  # fmt: skip
def test_sizes_are_shown_as_they_were_asked_for(size: int, shown: str) -> None:
    assert show_binary_size(size) == shown
