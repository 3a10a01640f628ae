"""What a calibration does to prices: collectives as measured, copies, drives and CPU Adam at their rates."""

from __future__ import annotations

import math

import pytest

from tests.costs_machines import collective, machine, program, switched
from tests.nccl_logs import Line
from zerosim.costs import Priced, price
from zerosim.costs.bounds import bus_factor
from zerosim.errors import InputError
from zerosim.resources import Calibrated
from zerosim.spec.calibration import COLLECTIVES, Calibration, Compute, Curve, MeasuredKind, MeasuredRate
from zerosim.spec.launch import Launch
from zerosim.spec.topology import Topology
from zerosim.step import Attention, HostCompute, Matmul, Transfer, Work

KIB, MIB, GIB = 2**10, 2**20, 2**30
LINE = Line(25e-6, 180e9, 0.4)
NDR = {"device": "infiniband_ndr", "count": 8}
SIZES = (8, 64 * KIB, MIB, 100 * MIB, GIB)


def curve(
    kind: MeasuredKind, line: Line = LINE, gpus: int = 8, nodes: int = 1, sizes: tuple[float, float] = (8, GIB)
) -> Curve:
    return Curve(kind, gpus, nodes, line.alpha, line.bandwidth, line.kappa, sizes, 0.02, "a.log")


def priced(
    topology: Topology, calibration: Calibration | None, *works: Work, size: int | None = None, stride: int = 1,
    launch: Launch | None = None, whole: Topology | None = None,
) -> Priced:  # fmt: skip
    step = program(*works, size=size or len(topology.gpus), stride=stride)
    return price([step], topology, launch or Launch(), calibration, whole)


def seconds(found: Priced, op: int = 0) -> float:
    return found.demands[found.classes[0].name][op].alone(found.supply)


def rates(**given: float) -> Calibration:
    named = tuple(MeasuredRate(name.replace("_", "."), rate, "x") for name, rate in given.items())
    return Calibration("", rates=named, origin="mine.yaml")


# --- collectives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_curve_is_reproduced_where_it_was_measured(kind: MeasuredKind, size: int) -> None:
    found = priced(switched("h100_sxm"), Calibration("", (curve(kind),)), collective(kind, size))
    assert seconds(found) == pytest.approx(LINE.seconds(kind, 8, size), rel=1e-6)
    (told,) = found.calibration
    assert told == Calibrated(
        f"{kind} of 8 GPUs on 1 node", "alpha 25 us, bandwidth 180 GB/s, kappa 0.4", "a.log", True
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("line", [Line(60e-6, 290e9, 0.9), Line(60e-6, 900e6, 0.0)])
def test_between_nodes_too_faster_or_slower_than_the_model(line: Line, size: int) -> None:
    two = switched("h100_sxm", nodes=2, nics=NDR)
    given = Calibration("", (curve("all_reduce", line, 16, 2),))
    assert seconds(priced(two, given, collective("all_reduce", size))) == pytest.approx(
        line.seconds("all_reduce", 16, size), rel=1e-6
    )


def test_the_time_is_shared_as_before() -> None:
    """What limits it is busy for w; no resource gives more than it has, and the same links carry it."""
    two = switched("h100_sxm", nodes=2, nics=NDR)
    work = collective("all_gather", GIB)
    measured = Line(60e-6, 100e9, 0.5)
    usual, found = (
        priced(two, given, work) for given in (None, Calibration("", (curve("all_gather", measured, 16, 2),)))
    )
    before, after = (each.demands["all"][0] for each in (usual, found))
    assert [use.resource for use in after.uses] == [use.resource for use in before.uses]
    assert [use.amount for use in after.uses] == [use.amount for use in before.uses]
    assert (after.holds, after.host, after.algorithm) == (before.holds, before.host, before.algorithm)
    assert all(use.efficiency <= 1 for use in after.uses)
    w = GIB * bus_factor("all_gather", 16) / measured.bandwidth
    assert after.alone(found.supply) - after.latency == pytest.approx(w)


def test_sums_in_the_network_move_less_than_a_ring() -> None:
    """SHARP: a bus bandwidth above the ports' 400 GB/s is no mistake for an all-reduce, and fills them."""
    three = switched("h100_sxm", nodes=3, nics=NDR)
    measured = Line(60e-6, 480e9, 0.3)
    found = priced(three, Calibration("", (curve("all_reduce", measured, 24, 3),)), collective("all_reduce", GIB))
    assert seconds(found) == pytest.approx(measured.seconds("all_reduce", 24, GIB), rel=1e-6)
    assert max(use.efficiency for use in found.demands["all"][0].uses) <= 1
    gather = Calibration("", (curve("all_gather", Line(60e-6, 560e9, 0.3), 24, 3),), origin="mine.yaml")
    with pytest.raises(InputError) as told:
        priced(three, gather, collective("all_gather", GIB))
    (problem,) = told.value.problems
    assert str(problem).startswith(
        "mine.yaml: collectives: all_gather of 24 GPUs on 3 nodes: found bus bandwidth 560 GB/s"
    )
    assert problem.expected.endswith("can carry: was it measured on this machine?")


def test_other_numbers_keep_the_ratios_to_the_model() -> None:
    """Measured twice as slow as modelled on two nodes: on four nodes twice as slow as the model has it there."""
    two, four = (switched("h100_sxm", nodes=nodes, nics=NDR) for nodes in (2, 4))

    def model(topology: Topology, size: int) -> float:
        return seconds(priced(topology, None, collective("all_gather", size)))

    endless = 2**45
    slow = Line(2 * model(two, 1), bus_factor("all_gather", 16) * endless / model(two, endless) / 2, 0.5)
    given = Calibration("", (curve("all_gather", slow, 16, 2),))
    for size in (1, endless):
        found = priced(four, given, collective("all_gather", size), whole=four)
        assert seconds(found) == pytest.approx(2 * model(four, size), rel=1e-3)
    (told,) = found.calibration
    assert told.used
    assert told.remark.startswith("carried over to all_gather of 32 GPUs on 4 nodes")
    like = priced(two, given, collective("reduce_scatter", endless))  # a kind without a curve: that of its like
    usual = seconds(priced(two, None, collective("reduce_scatter", endless)))
    assert seconds(like) == pytest.approx(2 * usual, rel=1e-3)
    assert "carried over to reduce_scatter of 16 GPUs on 2 nodes" in like.calibration[0].remark


def test_the_network_says_nothing_of_the_island_nor_the_other_way_round() -> None:
    two = switched("h100_sxm", nodes=2, nics=NDR)
    one = two.select(1)
    between, inside = (Calibration("", (curve("all_gather", LINE, gpus, nodes),)) for gpus, nodes in ((16, 2), (8, 1)))
    work = collective("all_gather", GIB)
    for part, given in ((one, between), (two, inside)):
        found = priced(part, given, work, whole=two)
        assert found.demands == priced(part, None, work).demands
        assert not found.calibration[0].used


def test_groups_that_share_the_ports_are_not_what_was_measured() -> None:
    """One rank a node, eight such groups at once: each has an eighth of the port that a test of one GPU had."""
    two = switched("h100_sxm", nodes=2, nics={"device": "infiniband_ndr", "count": 1})
    line = Line(20e-6, 45e9, 0.0)
    given = Calibration("", (curve("all_gather", line, 2, 2),))
    found = priced(two, given, collective("all_gather", GIB), size=2, stride=8)
    assert "carried over" in found.calibration[0].remark
    assert seconds(found) == pytest.approx(8 * line.seconds("all_gather", 2, GIB), rel=0.02)


def test_a_pair_of_sendrecv_perf_sends_both_ways() -> None:
    """So that it is an exchange that was measured, and one way alone keeps its ratio to the model."""
    two = switched("h100_sxm", gpus=1, nodes=2, nics=NDR | {"count": 1})
    line = Line(30e-6, 10e9, 0.4)
    given = Calibration("", (curve("send_recv", line, 2, 2),))
    both, one_way = (priced(two, given, collective(kind, GIB)) for kind in ("exchange", "send_recv"))
    assert seconds(both) == pytest.approx(line.seconds("send_recv", 2, GIB), rel=1e-6)
    model = [priced(two, None, collective(kind, 100 * GIB)) for kind in ("exchange", "send_recv")]
    ratio = seconds(model[1]) / seconds(model[0])
    assert seconds(one_way) == pytest.approx(ratio * seconds(both), rel=0.02)
    assert [found.calibration[0].remark for found in (both, one_way)] == ["", "carried over to one way"]


def test_what_a_curve_does_not_say_stays_the_model_s() -> None:
    h100 = switched("h100_sxm")
    usual = [seconds(priced(h100, None, collective("all_gather", size))) for size in (1, 2**50)]
    only_alpha = Curve("all_gather", 8, 1, 90e-6, None, None, (8, KIB), 0.0, "x")
    only_bandwidth = Curve("all_gather", 8, 1, None, 100e9, None, (GIB, 4 * GIB), 0.0, "x")
    slow, thin = (Calibration("", (each,)) for each in (only_alpha, only_bandwidth))
    assert seconds(priced(h100, slow, collective("all_gather", 1))) == pytest.approx(90e-6, rel=0.01)
    assert seconds(priced(h100, slow, collective("all_gather", 2**50))) == pytest.approx(usual[1], rel=1e-3)
    assert seconds(priced(h100, thin, collective("all_gather", 1))) == pytest.approx(usual[0], rel=0.01)
    assert seconds(priced(h100, thin, collective("all_gather", 2**50))) == pytest.approx(
        7 / 8 * 2**50 / 100e9, rel=1e-3
    )


def test_sizes_outside_of_what_was_measured_are_told() -> None:
    given = Calibration("", (curve("all_gather", sizes=(KIB, MIB)),))
    works = [collective("all_gather", size) for size in (8, KIB, GIB)]
    (told,) = priced(switched("h100_sxm"), given, *works).calibration
    assert told.remark == "used for 8 B and 1.074 GB, outside of what was measured (1.024 kB to 1.049 MB)"
    (told,) = priced(switched("h100_sxm"), given, collective("all_gather", KIB)).calibration
    assert told.remark == ""


# --- copies, drives, CPU ---------------------------------------------------------------------------------------------


def test_copies_take_what_was_measured() -> None:
    box = machine(gpus=1)  # PCIe 4 x16: 31.5 GB/s on paper
    down, up = Transfer(GIB, "dram", "gpu"), Transfer(GIB, "gpu", "dram")
    given = rates(copies_h2d=20e9, copies_d2h=30e9)
    found = priced(box, given, down, up)
    demand = found.demands["all"]
    for op, rate in ((0, 20e9), (1, 30e9)):
        assert demand[op].alone(found.supply) - demand[op].latency == pytest.approx(GIB / rate)
    assert [told.used for told in found.calibration] == [True, True]
    assert [told.used for told in priced(box, given, up).calibration] == [False, True]


def test_both_ways_together_have_their_own_rate() -> None:
    given = rates(copies_h2d=20e9, copies_both=22e9)
    found = priced(machine(gpus=1), given, Transfer(GIB, "dram", "gpu"))
    assert seconds(found) - found.demands["all"][0].latency == pytest.approx(GIB / 20e9)
    shares = {use.resource: use.amount / (found.supply.rates[use.resource] * use.efficiency)
              for use in found.demands["all"][0].uses}  # fmt: skip
    assert shares["pcie.both"] == pytest.approx(GIB / 22e9)  # so that two of them at once take 2 GiB / 22 GB/s


def test_more_than_the_paper_rate_is_a_mistake() -> None:
    given = rates(copies_h2d=40e9, nvme_read=99e9, dram_adam=999e9)
    box = machine(gpus=1, nvme=[{"count": 2, "read": "6 GB/s", "write": "4 GB/s", "capacity": "2 TB"}])
    with pytest.raises(InputError) as told:
        priced(box, given, Transfer(GIB, "dram", "gpu"))
    said = [str(problem) for problem in told.value.problems]
    assert [line.split(": ")[1] for line in said] == ["copies.h2d", "dram.adam", "nvme.read"]
    assert "found 40 GB/s; expected at most 31.5 GB/s, the paper rate of the GPU's link (pcie4)" in said[0]


def test_drives_give_together_what_was_measured() -> None:
    nvme = [{"count": 4, "read": "6 GB/s", "write": "4 GB/s", "capacity": "2 TB"}]
    box = machine(gpus=1, nvme=nvme)
    read, write = Transfer(GIB, "nvme", "dram", batch=GIB), Transfer(GIB, "dram", "nvme", batch=GIB)
    usual, found = (priced(box, given, read, write) for given in (None, rates(nvme_read=21e9)))

    def flow(each: Priced, op: int) -> float:
        return seconds(each, op) - each.demands["all"][op].latency

    assert flow(found, 0) == pytest.approx(GIB / 21e9)
    assert flow(found, 1) == pytest.approx(flow(usual, 1))  # nobody measured writing
    assert flow(priced(box, rates(nvme_write=11e9), write), 0) == pytest.approx(GIB / 11e9)


@pytest.mark.parametrize("launch", [Launch(), Launch(bind_cores_to_rank=True)])
def test_cpu_adam_moves_what_was_measured(launch: Launch) -> None:
    """All eight ranks of a node of two sockets: 28 bytes of each parameter, 300 GB/s together, however they are bound;
    and 30 GB/s on memory that could do ten times as much."""
    sockets = [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}] * 2
    pcie = {"switches": [{"gpus": [0, 1, 2, 3], "socket": 0}, {"gpus": [4, 5, 6, 7], "socket": 1}]}
    box = machine(sockets=sockets, pcie=pcie)
    adam = HostCompute("optimizer", 1e9, 28e9)
    for rate in (300e9, 30e9):
        found = priced(box, rates(dram_adam=rate), adam, launch=launch)
        assert seconds(found) == pytest.approx(8 * 28e9 / rate, rel=1e-6)


def test_torch_s_adam_keeps_its_ratio() -> None:
    box, adam = machine(gpus=1), HostCompute("torch_optimizer", 1e9, 72e9)
    fused = HostCompute("optimizer", 1e9, 28e9)
    usual, found = (priced(box, given, adam, fused) for given in (None, rates(dram_adam=60e9)))
    assert seconds(found, 0) / seconds(usual, 0) == pytest.approx(seconds(found, 1) / seconds(usual, 1))


# --- compute ---------------------------------------------------------------------------------------------------------


def test_a_factor_changes_products_and_attention_and_no_peak() -> None:
    a100 = machine(gpus=1)
    matmul, attend = Matmul(((1, 8192, 8192, 8192),), "bf16"), Attention(1, 32, 4096, 4096, 128, False, False, "bf16")
    given = Calibration("", compute=(Compute("a100_sxm_80", 0.8, "x"), Compute("all", 1.1, "y")))
    usual, found = (priced(a100, each, matmul, attend) for each in (None, given))
    for op in (0, 1):
        latency = usual.demands["all"][op].latency
        assert (seconds(found, op) - latency) * 0.8 == pytest.approx(seconds(usual, op) - latency)
    assert found.supply == usual.supply
    assert [told.used for told in found.calibration] == [True, False]  # the other is for GPUs that have none


def test_products_stay_below_the_peak() -> None:
    given = Calibration("", compute=(Compute("all", 1.3, "x"),), origin="mine.yaml")
    with pytest.raises(
        InputError, match=r"compute: found the factor 1.3; expected at most 1.15: products would be faster"
    ):
        priced(machine(gpus=1), given, Matmul(((1, 64, 64, 64),), "bf16"))


def test_without_a_calibration_nothing_is_told() -> None:
    found = priced(machine(gpus=1), None, Transfer(GIB, "dram", "gpu"))
    assert found.calibration == ()
    assert math.isfinite(seconds(found))
