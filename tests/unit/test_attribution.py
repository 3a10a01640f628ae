"""Where time without compute goes along the chain of waits, and slack, on timelines that a pencil can check."""

import pytest

from tests.engine_programs import GATHER, Program, supply, takes
from tests.timelines import offloaded, played, skewed, tiny
from zerosim.resources import Demand
from zerosim.step import PHASES, Op, Step
from zerosim.timeline import Timeline
from zerosim.views.attribution import Attribution, attribution, served
from zerosim.views.critical_path import critical_path
from zerosim.views.path_runs import path_runs
from zerosim.views.slack import slack, slacks


def rows(timeline: Timeline) -> dict[tuple[str, str, str], float]:
    return {(row.op, row.phase, row.resource): row.seconds for row in attribution(timeline)}


def row(timeline: Timeline, op: str) -> Attribution:
    return next(each for each in attribution(timeline) if each.op == op)


def test_attribution_of_tiny() -> None:
    assert rows(tiny()) == {
        ("reduce_scatter", "backward", "nic"): 3,
        ("all_gather", "forward", "nic"): 2,
        ("host", "optimizer", "host"): 1,
        ("copy_from_gpu", "optimizer", "pcie"): 1,
    }


def test_a_row_names_the_layer_that_waited_the_rate_and_why_the_op_was_late() -> None:
    gather, reduce, host = (row(tiny(), op) for op in ("all_gather", "reduce_scatter", "host"))
    assert (gather.layers, gather.rate, gather.unit, gather.label, gather.largest) == (
        (0,), 20, "B/s", "NIC 20 B/s", "gather 0",
    )  # fmt: skip
    assert (gather.held, gather.held_by) == ("", "")  # it began with the step
    assert (reduce.layers, reduce.held, reduce.held_by) == ((), "input", "matmul")  # of backward 0, and nobody follows
    assert (host.held, host.held_by) == ("device", "reduce_scatter")  # issued adam only after waiting 18 s for reduce 0


def test_the_host_s_waits_lead_on_to_what_it_waited_for() -> None:
    assert rows(offloaded()) == {
        ("nvme_read", "optimizer", "nvme"): 8,
        ("cpu_optimizer", "optimizer", "dram"): 3,
        ("copy_from_gpu", "backward", "pcie"): 1,
        ("copy_to_gpu", "optimizer", "pcie"): 1,
        ("nvme_write", "optimizer", "nvme"): 0.5,
    }


def test_waiting_for_a_slow_class_is_what_that_class_computed() -> None:
    found = row(skewed(), "matmul")
    assert (found.cause, found.rank_class, found.resource, found.seconds) == (
        "wait_for_rank",
        "slow",
        "sm",
        18,
    )  # 20-38


def test_copies_that_compute_waited_for_are_named_beside_a_collective_nobody_waited_for() -> None:
    program = Program()
    program.add("nccl.dp", takes(nic=10), work=GATHER)
    copy = program.add("h2d", takes(pcie=4), work=offloaded().step.ops[6].work)
    program.add("compute", takes(sm=8), after=[copy], work=tiny().step.ops[2].work)
    assert rows(program.play(supply(nic=1, pcie=1, sm=1))) == {("copy_to_gpu", "forward", "pcie"): 4}


def test_layers_of_ops_without_one_are_those_of_the_next_op() -> None:
    ops = [
        Op(0, "gather", "nccl.dp", None),
        Op(1, "forward 3", "compute", None, layer=3),
        Op(2, "head", "compute", None),
        Op(3, "loss", "compute", None, phase="backward"),
        Op(4, "backward 3", "compute", None, phase="backward", layer=3),
    ]
    assert served(ops) == [3, 3, None, 3, 3]


def test_slack_of_tiny() -> None:
    (found,) = slack(tiny()).values()
    # gather 1 ends at 4 and forward 1 begins at 5; reduce 1 ends at 17 and reduce 0 begins at 20
    assert found == [0, 1, 0, 0, 0, 3, 0, 0, 0, 0]


def test_slack_of_a_collective_is_that_of_the_class_with_least() -> None:
    found = slack(skewed())  # fast computes 2 x 3 s and 2 x 6 s, slow twice as long
    assert found["slow"] == [0, 4, 0, 0, 0, 9, 0, 0, 0, 0]
    assert found["fast"] == [0, 4, 18, 18, 18, 9, 18, 0, 0, 0]  # backward 0 ends at 20, in slow at 38


def test_slack_through_the_host_s_waits() -> None:
    (found,) = slack(offloaded()).values()
    assert found[3] == pytest.approx(11)  # the log ends at 12, and nobody waits for it before the step ends at 23
    assert found[7] == pytest.approx(0.5)  # the cast ends at 22.5


def test_kinds_of_slack() -> None:
    found = {each.op: each for each in slacks(tiny())}
    reduce = found["reduce_scatter"]
    assert (reduce.ops, reduce.seconds, reduce.critical, reduce.critical_seconds) == (2, 6, 1, 3)
    assert (reduce.least_seconds, reduce.median_seconds) == (0, 3)


def test_runs_of_the_critical_path() -> None:
    runs = path_runs(tiny())
    assert [(run.phase, run.start, run.end, run.layers) for run in runs] == [
        ("forward", 0, 8, (0, 1)), ("backward", 8, 23, (0, 1)), ("optimizer", 23, 27, ()),
    ]  # fmt: skip
    assert [(part.op, part.seconds) for part in runs[1].parts] == [("matmul", 12), ("reduce_scatter", 3)]


def test_the_host_s_part_of_the_path_is_cut_by_the_ops_that_it_issued() -> None:
    """Calls of 2, 3 and 1 s for kernels of 0.5 s: the last one begins when it is issued."""
    ops = [Op(n, phase, "compute", None, phase=phase) for n, phase in enumerate(PHASES)]
    demands = [Demand(latency=0.5, host=seconds) for seconds in (2.0, 3.0, 1.0)]
    found = path_runs(played(Step(tuple(ops), (), frozenset(), {}, micro_batches=1), demands))
    hosts = [(run.phase, part.seconds, part.ops) for run in found for part in run.parts if part.op == "host"]
    assert hosts == [("forward", 2, 1), ("backward", 3, 1), ("optimizer", 1, 1)]


def test_an_empty_step_has_nothing_to_tell() -> None:
    empty = played(Step((), (), frozenset(), {}, micro_batches=1), list[Demand]())
    assert (attribution(empty), critical_path(empty), path_runs(empty), slacks(empty)) == ((), (), (), ())
