"""What holds of every pipeline: no FLOP and no byte is lost among stages, and one pipeline stands for those like it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipelines import IN_FLIGHT, SCHEDULES, by_hand, held, most, programs
from tests.properties.test_conservation import MODEL, singled
from zerosim.costs import price
from zerosim.costs.bounds import least_seconds
from zerosim.engine import play
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import simulate
from zerosim.spec.strategy import Pipeline
from zerosim.step import COMPUTE, Collective
from zerosim.strategies import build
from zerosim.views import breakdown, critical_path, phases, stalls, utilization
from zerosim.views.bubble import bubble
from zerosim.views.choices import Pipeline as Filled

NEAR = 1e-9
MACHINES = (
    ("dgx-a100-80", 1, 8), ("dgx-a100-80", 2, 16), ("ethernet-10g-a100", 2, 16), ("dgx-h100", 1, 4),
    ("pcie-4x-rtx4090", 1, 4), ("gh200", 4, 4), ("dgx-v100-16", 1, 8), ("aws-p4d", 2, 16),
)  # fmt: skip
quick = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pipeline(
    machine: tuple[str, int, int], stages: int, training: dict[str, Any], tied: bool, how: dict[str, Any]
) -> Scenario:
    name, nodes, gpus = machine
    return from_mapping({
        "topology": name, "nodes": nodes, "gpus": gpus, "model": {**MODEL, "layers": 8, "tied_embeddings": tied},
        "training": {"sequence_length": 128, **training}, "strategy": {"pipeline": {"stages": stages, **how}},
    })  # fmt: skip


trainings = st.fixed_dictionaries(
    {
        "gradient_accumulation_steps": st.integers(1, 6),
        "micro_batch_size": st.integers(1, 2),
        "activation_checkpointing": st.sampled_from(("none", "full")),
        "precision": st.sampled_from(("fp16", "bf16")),
    }
)
hows = st.fixed_dictionaries({"schedule": st.sampled_from(SCHEDULES), "zero_stage": st.sampled_from((0, 1))})
asked = (st.sampled_from(MACHINES), st.sampled_from((1, 2, 4)), trainings, st.booleans())
questions = st.builds(pipeline, *asked, hows)
in_turn = st.builds(pipeline, *asked, st.just({}))


@given(questions)
@quick
def test_a_step_is_no_shorter_than_its_parts_and_its_parts_sum_to_it(scenario: Scenario) -> None:
    timeline = simulate(scenario)
    step = timeline.makespan
    assert all(use.busy_seconds <= step * (1 + NEAR) for use in utilization(timeline).values())
    for demands in timeline.demands.values():
        assert step >= least_seconds(demands, timeline.supply) * (1 - NEAR)
    parts = breakdown(timeline)
    assert parts.compute + parts.exposed_communication + parts.idle == pytest.approx(step, rel=NEAR)
    assert sum(phases(timeline).values()) == pytest.approx(step, rel=NEAR)
    assert sum(stall.seconds for stall in stalls(timeline)) == pytest.approx(step - parts.compute, rel=1e-6, abs=1e-12)
    assert sum(link.end - link.start for link in critical_path(timeline)) == pytest.approx(step, rel=NEAR)
    assert timeline.summary().world_size == scenario.world_size


@given(questions)
@quick
def test_stages_compute_together_what_the_whole_model_computes(scenario: Scenario) -> None:
    one = simulate(scenario.replace(nodes=1, gpus=1, strategy=Pipeline(1)))
    timeline = simulate(scenario)
    seen, alone = utilization(timeline), utilization(one)["sm"].bytes_or_flop
    first = {c.name for c in timeline.classes[: len(timeline.steps)]}
    sms = [use.bytes_or_flop for name, use in seen.items() if name == "sm" or name.removeprefix("sm.") in first]
    assert sum(sms) == pytest.approx(alone, rel=1e-6)
    assert len(sms) == len(timeline.steps)


@given(in_turn)
@quick
def test_one_stage_of_a_pipeline_computes_at_a_time(scenario: Scenario) -> None:
    timeline = simulate(scenario)
    runs = []
    for rank_class in timeline.classes[: len(timeline.steps)]:  # those of one pipeline
        ops, spans = timeline.program(rank_class).ops, timeline.spans[rank_class.name]
        working = [spans[op.number] for op in ops if op.stream == COMPUTE and op.phase != "optimizer"]
        divided = [op.number for op in ops if op.name == "divide gradients"]  # after the last backward, all at once
        runs += [(span.start, span.end) for span in working if span.end > span.start and span.op not in divided]
    runs.sort()
    assert all(before[1] <= after[0] + 1e-12 for before, after in pairwise(runs))


@given(questions)
@quick
def test_what_is_sent_arrives_at_the_same_time_and_once(scenario: Scenario) -> None:
    timeline = simulate(scenario)
    for call, others in timeline.collectives().items():
        op = timeline.program(call.rank_class).ops[call.op]
        assert isinstance(op.work, Collective)
        if op.work.kind in ("send_recv", "exchange"):
            assert len(others) == 2
            assert call in others
        spans = [timeline.spans[each.rank_class][each.op] for each in others]
        assert len({(span.start, span.end) for span in spans}) == 1
        assert spans[0].start == max(span.ready for span in spans)


@given(questions)
@settings(quick, max_examples=8)
def test_a_representative_has_the_spans_of_all_its_ranks(scenario: Scenario) -> None:
    steps = build(scenario.strategy, scenario.model, scenario.training, scenario.world_size)
    few, every = (price(steps, topology) for topology in (scenario.topology, singled(scenario.topology)))
    assert len(every.classes) == scenario.world_size
    played, apart = (play(steps, found.classes, found.demands, found.supply) for found in (few, every))
    representative = {rank: rank_class.name for rank_class in few.classes for rank in rank_class.ranks}
    for each in every.classes:
        for one, other in zip(apart.spans[each.name], played.spans[representative[each.ranks[0]]], strict=True):
            assert (one.issued, one.ready, one.start, one.end) == pytest.approx(
                (other.issued, other.ready, other.start, other.end), rel=1e-6, abs=1e-12
            )


# --- schedules -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 12), st.floats(0.01, 10), st.floats(0.01, 10))
@quick
def test_gpipe_and_1f1b_take_as_long_where_stages_are_equal(
    stages: int, micro_batches: int, forward: float, backward: float
) -> None:
    """Any number of micro-batches, fewer than stages too: nobody waits for ever."""
    for schedule in IN_FLIGHT:
        played = by_hand(programs(schedule, stages, micro_batches), forward, backward)
        assert played.makespan == pytest.approx((micro_batches + stages - 1) * (forward + backward))
        found = bubble(played, Filled(schedule, stages, micro_batches))
        assert found.bubble_share == pytest.approx(found.ideal_share, abs=1e-9)


@given(
    st.integers(1, 5), st.integers(1, 9), st.integers(1, 3), st.sampled_from((0, 1)), st.sampled_from(("none", "full"))
)
@quick
def test_1f1b_holds_no_more_than_gpipe_and_all_of_it_returns(
    stages: int, micro_batches: int, replicas: int, zero_stage: int, checkpointing: str
) -> None:
    few, many = (
        programs(s, stages, micro_batches, replicas, zero_stage, activation_checkpointing=checkpointing)
        for s in ("1f1b", "gpipe")
    )
    for stage, (one, other) in enumerate(zip(few, many, strict=True)):
        assert one.lint() == other.lint() == []
        less, more = (most(step, [b.bytes for b in step.buffers].__getitem__) for step in (one, other))
        assert less <= more
        if checkpointing == "full":
            assert held(one, "block input") == min(micro_batches, stages - stage)
            assert held(other, "block input") == micro_batches


@given(questions)
@quick
def test_the_bubble_is_what_the_stalls_call_waiting_for_a_stage(scenario: Scenario) -> None:
    timeline = simulate(scenario)
    summary = timeline.summary()
    waited = sum(stall.seconds for stall in summary.stalls if stall.cause == "wait_for_stage")
    assert summary.pipeline is not None
    if len(timeline.classes) == len(timeline.steps):  # else a replica, too, may come last
        assert summary.pipeline.bubble_seconds == pytest.approx(waited, abs=1e-9)
    for stage in summary.pipeline.by_stage:
        assert stage.bubble_seconds + stage.compute_seconds <= summary.step_seconds * (1 + NEAR)
