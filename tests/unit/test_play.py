"""Hosts, streams, waits and collectives, with times computable by hand; one second per unit of `gpu`."""

from __future__ import annotations

import pytest

from tests.engine_programs import GATHER, Program, supply, takes
from zerosim.errors import DeadlockError, ZerosimError
from zerosim.resources import Demand, RankClass
from zerosim.timeline import Span

ONE = supply(gpu=1, link=1)


def times(span: Span) -> tuple[float, float, float, float]:
    return span.issued, span.ready, span.start, span.end


def test_an_empty_program_takes_no_time() -> None:
    timeline = Program().play(ONE)
    assert timeline.makespan == 0
    assert timeline.spans == {"a": []}


def test_the_host_issues_in_order_and_runs_ahead() -> None:
    program = Program()
    for _ in range(3):
        program.add("compute", takes(host=0.25, gpu=1))
    assert [times(span) for span in program.spans(ONE)] == [
        (0.25, 0.25, 0.25, 1.25),
        (0.50, 1.25, 1.25, 2.25),
        (0.75, 2.25, 2.25, 3.25),
    ]


def test_a_slow_host_leaves_the_stream_idle() -> None:
    program = Program()
    for _ in range(2):
        program.add("compute", takes(host=2, gpu=1))
    assert [times(span) for span in program.spans(ONE)] == [(2, 2, 2, 3), (4, 4, 4, 5)]


def test_a_host_wait_blocks_all_that_is_issued_later() -> None:
    program = Program()
    slow = program.add("compute", takes(gpu=5))
    program.add("gather", takes(host=1, link=1))
    program.add("gather", takes(host=1, link=1), waits=[slow])
    program.add("reduce", takes(host=1, link=1))
    assert [span.issued for span in program.spans(ONE)] == [0, 1, 6, 7]


def test_a_host_wait_for_what_ended_long_ago_costs_nothing() -> None:
    program = Program()
    first = program.add("compute", takes(gpu=1))
    second = program.add("gather", takes(host=3, link=1), waits=[first])
    program.add("gather", takes(host=1, link=1), waits=[first, second])
    assert [span.issued for span in program.spans(ONE)] == [0, 4, 6]


def test_streams_run_at_once_and_wait_for_each_other() -> None:
    program = Program()
    gather = program.add("gather", takes(link=2))
    program.add("compute", takes(gpu=1))
    compute = program.add("compute", takes(gpu=1), after=[gather])
    program.add("gather", takes(link=1), after=[compute])
    assert [(span.start, span.end) for span in program.spans(ONE)] == [(0, 2), (0, 1), (2, 3), (3, 4)]


def test_several_waits_end_with_the_last() -> None:
    program = Program()
    waits = [program.add(f"s{seconds}", takes(latency=seconds)) for seconds in (3.0, 1.0, 2.0)]
    program.add("compute", takes(gpu=1), after=waits)
    assert program.spans(ONE)[3].ready == 3


def test_markers_take_no_time_but_keep_their_place() -> None:
    program = Program()
    program.add("compute", takes(gpu=1))
    marker = program.add("compute", Demand(host=0.5))
    program.add("reduce", takes(link=1), after=[marker])
    spans = program.spans(ONE)
    assert times(spans[1]) == (0.5, 1, 1, 1)
    assert spans[1].bottleneck == "latency"
    assert spans[2].start == 1


def test_streams_of_one_rank_share_its_resources() -> None:
    program = Program()
    program.add("h2d", takes(link=1))
    program.add("d2h", takes(latency=0.5, link=1))
    assert [span.end for span in program.spans(ONE)] == pytest.approx([1.5, 2.0])


def test_host_compute_is_a_stream_that_blocks_the_host_only_by_a_wait() -> None:
    program = Program()
    adam = program.add("host", takes(link=4))
    program.add("compute", takes(gpu=1))
    program.add("compute", takes(gpu=1), waits=[adam])
    assert [span.issued for span in program.spans(ONE)] == [0, 0, 4]


def test_a_collective_starts_when_the_last_class_has_arrived() -> None:
    program = Program()
    before = program.add("compute", takes(gpu=1))
    program.add("nccl.dp", takes(link=2), after=[before], work=GATHER)
    slow = [takes(gpu=3), takes(link=2)]
    timeline = program.play(ONE, {"b": slow, "c": slow})
    # the three matmuls share the GPU: the short one ends at 3, the others at 7
    assert times(timeline.spans["a"][1]) == pytest.approx((0, 3, 7, 9))
    assert [spans[1].start for spans in timeline.spans.values()] == [timeline.spans["a"][1].start] * 3
    assert [spans[1].end for spans in timeline.spans.values()] == [timeline.spans["a"][1].end] * 3
    assert [spans[1].bottleneck for spans in timeline.spans.values()] == ["link"] * 3


def test_collectives_of_a_group_go_one_by_one() -> None:
    program = Program()
    program.add("nccl.dp", takes(link=1), work=GATHER)
    program.add("nccl.dp", takes(link=1), work=GATHER)
    timeline = program.play(ONE, {"b": [takes(link=1, host=5), takes(link=1)]})
    assert [(span.start, span.end) for span in timeline.spans["a"]] == [(5, 6), (6, 7)]
    assert timeline.spans["b"][1].ready == 6


def test_groups_with_other_members_do_not_wait_for_each_other() -> None:
    # gathers inside nodes: two classes in one node, one in another
    program = Program()
    program.add("nccl.node", takes(link=1), work=GATHER)
    timeline = program.play(ONE, {"b": [takes(link=1, host=2)], "other": [takes(gpu=1)]})
    assert {name: (spans[0].start, spans[0].end) for name, spans in timeline.spans.items()} == {
        "a": (2, 3),
        "b": (2, 3),
        "other": (0, 1),
    }


def test_a_missing_demand_and_an_unknown_resource_are_named() -> None:
    program = Program()
    program.add("compute", takes(gpo=1))
    with pytest.raises(ZerosimError, match=r"class a: op 0 \(compute-0\): found resource 'gpo'.*nearest 'gpu'"):
        program.play(ONE)
    with pytest.raises(ZerosimError, match="class b: found 0 demands"):
        program.play(supply(gpo=1), {"b": []})


@pytest.mark.parametrize("demand", [Demand(-1.0), Demand(host=-1.0), takes(gpu=-1), takes(gpu=float("nan"))])
def test_time_and_amounts_below_zero_are_refused(demand: Demand) -> None:
    program = Program()
    program.add("compute", demand)
    with pytest.raises(ZerosimError, match=r"op 0 \(compute-0\): found"):
        program.play(ONE)


def test_deadlock_tells_of_a_circle_through_the_host() -> None:
    program = Program()
    program.add("compute", takes(gpu=1), after=[2])
    program.add("gather", takes(link=1), waits=[0])
    program.add("gather", takes(link=1))
    with pytest.raises(DeadlockError) as caught:
        program.play(ONE)
    assert str(caught.value).splitlines() == [
        "the step cannot end: 3 of 3 ops never end",
        "rank class a:",
        "  the host is blocked before op 1 (gather-1) and waits for op 0 (compute-0)",
        "  stream compute: op 0 (compute-0) waits for op 2 (gather-2)",
        "  stream gather: op 1 (gather-1) has not been issued",
    ]


def test_deadlock_tells_which_class_never_reaches_a_collective() -> None:
    program = Program()
    before = program.add("compute", takes(gpu=1))
    program.add("nccl.dp", takes(link=1), after=[before], work=GATHER)
    with pytest.raises(DeadlockError) as caught:
        program.play(supply(gpu=1, link=1, broken=0), {"b": [takes(broken=1), takes(link=1)]})
    assert str(caught.value).splitlines() == [
        "the step cannot end: 3 of 4 ops never end",
        "rank class a:",
        "  stream nccl.dp: op 1 (nccl.dp-1) has been reached by a; not by b",
        "rank class b:",
        "  stream compute: op 0 (compute-0) runs for ever: broken has no rate",
        "  stream nccl.dp: op 1 (nccl.dp-1) waits for op 0 (compute-0)",
    ]


def test_the_timeline_keeps_what_it_was_made_of() -> None:
    program = Program()
    program.add("compute", takes(gpu=1))
    timeline = program.play(ONE)
    assert timeline.classes == (RankClass("a", (0,)),)
    assert timeline.demands["a"] is program.demands
    assert timeline.supply is ONE
    assert timeline.spans["a"] == [Span(0, "a", 0.0, 0.0, 0.0, 1.0, "gpu")]
