"""Where the time goes, on timelines whose numbers can be checked with a pencil (see tests/timelines.py)."""

from pathlib import Path

import numpy as np
import pytest

from tests.timelines import (
    FORWARD_SECONDS,
    GATHER_SECONDS,
    MATMUL,
    REDUCE_SECONDS,
    host_optimizer,
    many,
    offloaded,
    played,
    skewed,
    tiny,
)
from zerosim.resources import Demand, Use
from zerosim.scenario import load
from zerosim.simulation import simulate
from zerosim.step import Collective, Group, Op, Step
from zerosim.timeline import Timeline
from zerosim.views import breakdown, collectives, communication, critical_path, phases, stalls, utilization
from zerosim.views.intervals import difference, intersection, length, union
from zerosim.views.stalls import LAUNCH

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SMALL = "model={layers: 4, hidden: 1024, heads: 8, vocab: 8000}"


def test_sets_of_intervals() -> None:
    a = np.array([[4.0, 6.0], [0.0, 2.0], [1.0, 3.0], [5.0, 5.0]])
    b = np.array([[2.0, 5.0]])
    assert union(a).tolist() == [[0, 3], [4, 6]]
    assert intersection(a, b).tolist() == [[2, 3], [4, 5]]
    assert difference(a, b).tolist() == [[0, 2], [5, 6]]
    assert length(a) == 5
    assert union(np.array([[0.0, 1.0], [1.0, 2.0]])).tolist() == [[0, 2]]  # touching ones are one
    assert union().shape == (0, 2)


def test_breakdown_of_tiny() -> None:
    found = breakdown(tiny())
    assert (found.compute, found.exposed_communication, found.exposed_transfer) == (20, 5, 1)
    assert (found.host_compute, found.idle) == (0, 1)


def test_overlap_is_a_share_of_communication() -> None:
    found = communication(tiny())
    assert (found.total_seconds, found.exposed_seconds, found.overlap) == (10, 5, 0.5)


def test_overlap_without_communication_is_zero() -> None:
    assert communication(host_optimizer()).overlap == 0.0


def test_cpu_optimizer_is_host_compute() -> None:
    assert breakdown(host_optimizer()).host_compute == 2
    (stall,) = stalls(host_optimizer())
    assert (stall.cause, stall.phase, stall.resource, stall.seconds) == ("host_compute", "optimizer", "cores", 2)


def test_phases_of_tiny() -> None:
    assert phases(tiny()) == {"forward": 8, "backward": 15, "optimizer": 4}


def test_a_pause_belongs_to_the_phase_that_follows() -> None:
    assert phases(tiny())["optimizer"] == 4  # one second of host before adam, adam, stow


def test_stalls_of_tiny() -> None:
    found = [(s.cause, s.phase, s.resource, s.seconds) for s in stalls(tiny())]
    assert found == [
        ("reduce_scatter", "backward", "nic", 3),
        ("all_gather", "forward", "nic", 2),
        ("host", "optimizer", "host", 1),
        ("transfer", "optimizer", "pcie", 1),
    ]
    assert stalls(tiny())[0].label == "NIC 20 B/s"


def test_waiting_for_the_slow_class() -> None:
    timeline = skewed()  # reduce 0 is ready at 20 in `fast` and at 38 in `slow`; reduce 1 runs from 26 to 29
    assert timeline.slowest.name == "fast"
    waits = [s for s in stalls(timeline) if s.cause == "wait_for_rank"]
    assert [(s.resource, s.phase, s.seconds) for s in waits] == [("slow", "backward", 15)]


def two_collectives_in_flight() -> Timeline:
    """Of two groups at once; the second compute op waits for `late`, which starts after `early`."""
    ops = (
        Op(0, "early", "nccl.a", Collective("all_reduce", 10, "bf16", "a")),
        Op(1, "late", "nccl.b", Collective("all_gather", 10, "bf16", "b")),
        Op(2, "forward", "compute", MATMUL, after=(1,)),
    )
    groups = {"a": Group("a", 2), "b": Group("b", 2)}
    step = Step(ops, (), frozenset(), groups, micro_batches=1).check()
    return played(step, (REDUCE_SECONDS._replace(host=0.0), GATHER_SECONDS._replace(host=0.5), FORWARD_SECONDS))


def test_of_two_collectives_the_awaited_one_is_the_cause() -> None:
    found = {s.cause: s.seconds for s in stalls(two_collectives_in_flight())}
    assert found == {"all_reduce": 0.5, "all_gather": 2.0}  # `early` counts only until `late` starts


def test_launch_bound() -> None:
    ops = tuple(Op(n, f"small {n}", "compute", MATMUL) for n in range(3))
    step = Step(ops, (), frozenset(), {}, micro_batches=1).check()
    timeline = played(step, [Demand(uses=(Use("sm", 100.0),), host=4.0)] * 3)  # 1 s of work every 4 s
    (stall,) = stalls(timeline)
    assert (stall.cause, stall.seconds) == ("host", 10)  # 4 before the first, 3 before each of the others
    assert breakdown(timeline).idle == 10


def test_utilization_of_tiny() -> None:
    found = utilization(tiny())
    assert list(found) == ["sm", "nic", "hbm", "pcie"]
    assert (found["sm"].bytes_or_flop, found["sm"].busy_seconds) == (1440, 18)  # (2 x 240 + 2 x 480) / 80
    assert found["nic"].utilization == pytest.approx(10 / 27)
    assert (found["hbm"].busy_seconds, found["hbm"].unit) == (2, "B")


def test_a_collective_of_two_classes_is_carried_once() -> None:
    found = utilization(skewed())
    assert found["nic"].bytes_or_flop == 200
    assert found["sm"].bytes_or_flop == 2 * 1440  # the toy machine gives both classes the same SMs


def test_collectives_of_tiny() -> None:
    found = collectives(tiny())
    assert {kind: (volume.count, volume.bytes) for kind, volume in found.items()} == {
        "all_gather": (2, 80),
        "reduce_scatter": (2, 120),
    }


def test_critical_path_of_tiny() -> None:
    links = critical_path(tiny())
    assert [(link.op, link.why) for link in links] == [
        *((number, "work") for number in (0, 2, 3, 4, 6, 7)),
        (8, "host"),
        (8, "work"),
        (9, "work"),
    ]  # gather 1 and reduce 1 are hidden


def test_critical_path_goes_through_the_slow_class() -> None:
    links = critical_path(skewed())
    assert [link.rank_class for link in links if link.op in {2, 3, 4, 6}] == ["slow"] * 4
    assert [link.rank_class for link in links if link.op > 6] == ["fast"] * 4


def test_nothing_is_hidden_in_an_exposed_step() -> None:
    timeline = many(400, exposed=True)  # 100 layers; gathers of 2 s under forwards of 3 s, reductions of 3 s bare
    found = {s.cause: s.seconds for s in stalls(timeline)}
    assert found == {"reduce_scatter": 300, "all_gather": 2}


def test_what_blocks_the_host_is_the_cause_not_what_is_in_flight_beside_it() -> None:
    found = [(s.cause, s.phase, s.resource, s.seconds) for s in stalls(offloaded())]
    assert found == [
        (
            "transfer",
            "optimizer",
            "nvme",
            8.5,
        ),  # the drive is read for 8 s, 2 s of it beside the log; written at the end
        ("host_compute", "optimizer", "dram", 3),
        ("transfer", "backward", "pcie", 1),  # a pageable copy
        ("transfer", "optimizer", "pcie", 1),
    ]
    parts = breakdown(offloaded())
    assert (parts.compute, parts.exposed_transfer, parts.host_compute, parts.idle) == (9.5, 10.5, 3, 0)


def test_the_critical_path_goes_through_what_blocks_the_host() -> None:
    """Gradients down, drive, Adam, drive: not the log, nor what the GPU does while the drive is written."""
    links = critical_path(offloaded())
    assert [(link.op, link.why, link.end - link.start) for link in links] == [
        *((0, "work", 3), (1, "work", 6), (2, "work", 1), (4, "work", 8), (5, "work", 3), (8, "work", 2)),
    ]


def test_a_step_that_was_played_knows_no_launch() -> None:
    """What is issued begins, to rounding: sums of floats leave 2e-19 s between the two."""
    scenario = load(SCENARIOS / "llama-2-13b-zero3-hf-auto.yaml", [SMALL, "training.gradient_accumulation_steps=1"])
    timeline = simulate(scenario)
    known = stalls(timeline)
    assert LAUNCH not in {stall.cause for stall in known}
    (host,) = (stall for stall in known if (stall.cause, stall.phase) == ("host", "forward"))
    assert host.seconds > 0.01
    computed = breakdown(timeline).compute
    assert sum(stall.seconds for stall in known) == pytest.approx(timeline.makespan - computed, rel=1e-12)
