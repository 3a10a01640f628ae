"""GPipe and 1F1B: the order of a stage, who meets whom, steps by hand, and what is held meanwhile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.pipelines import IN_FLIGHT, SCHEDULES, blocks_of, by_hand, held, most, programs
from tests.programs import variant
from tests.quick_host import quick_host
from tests.toy import toy
from zerosim.report import svg, text
from zerosim.report.bands import phases as bands_of
from zerosim.report.lanes import Scale, flights
from zerosim.scenario import from_mapping
from zerosim.simulation import simulate
from zerosim.spec.strategy import Schedule
from zerosim.step import Collective, Op, Step, communicator
from zerosim.strategies.pipeline_schedule import Call, Compute, Settle, actions
from zerosim.units import show_size
from zerosim.views import phases, stalls
from zerosim.views.bubble import bubble, ideal_share
from zerosim.views.choices import Pipeline


def order(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> str:
    """`F0 F1 B0`."""
    assert schedule != "naive"
    found = actions(schedule, stage, stages, micro_batches)
    return " ".join(f"{a.phase[0].upper()}{a.micro_batch}" for a in found if isinstance(a, Compute))


def calls(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> list[str]:
    """`+a0` sends activation 0, `-g0` receives its gradient, `+a1-g0` in one call; `|` is a computation."""
    assert schedule != "naive"
    said = []
    for action in actions(schedule, stage, stages, micro_batches):
        if isinstance(action, Call):
            said.append("".join(f"{'-+'[m.sent]}{m.what[0]}{m.micro_batch}" for m in action.messages))
        elif isinstance(action, Compute):
            said.append("|")
    return said


# --- the order -------------------------------------------------------------------------------------------------------


def test_gpipe_goes_all_forward_then_all_back() -> None:
    for stage in range(3):
        assert order("gpipe", stage, 3, 3) == "F0 F1 F2 B0 B1 B2"
    assert calls("gpipe", 1, 3, 2) == [
        "-a0", "|", "+a0", "-a1", "|", "+a1", "-g0", "|", "+g0", "-g1", "|", "+g1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "expected"),
    [  # Narayanan et al. 2021, figure 4, bottom: four stages, eight micro-batches
        (0, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"),
        (1, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7"),
        (2, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7"),
        (3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"),
    ],
)
def test_one_forward_one_backward(stage: int, expected: str) -> None:
    assert order("1f1b", stage, 4, 8) == expected


def test_a_send_that_meets_a_receive_is_one_call_with_it() -> None:
    """Schedule1F1B of torch 2.13 for the middle of three stages and three micro-batches."""
    assert calls("1f1b", 1, 3, 3) == [
        "-a0", "|", "+a0", "-a1", "|", "+a1-g0", "|", "+g0-a2", "|", "+a2-g1", "|", "+g1", "-g2", "|", "+g2",
    ]  # fmt: skip
    assert calls("1f1b", 2, 3, 3) == ["-a0", "|", "|", "+g0-a1", "|", "|", "+g1-a2", "|", "|", "+g2"]


RECORDED = {  # torch 2.13 on CPUs, gloo: F and B are chunks, each word one `_batch_p2p`; three stages
    ("gpipe", 3): (
        "F0 +a F1 +a F2 +a -g B0 -g B1 -g B2",
        "-a F0 +a -a F1 +a -a F2 +a -g B0 +g -g B1 +g -g B2 +g",
        "-a F0 -a F1 -a F2 B0 +g B1 +g B2 +g",
    ),
    ("1f1b", 5): (
        "F0 +a F1 +a F2 +a-g B0 F3 +a-g B1 F4 +a-g B2 -g B3 -g B4",
        "-a F0 +a -a F1 +a-g B0 +g-a F2 +a-g B1 +g-a F3 +a-g B2 +g-a F4 +a-g B3 +g -g B4 +g",
        "-a F0 B0 +g-a F1 B1 +g-a F2 B2 +g-a F3 B3 +g-a F4 B4 +g",
    ),
}


@pytest.mark.parametrize(("schedule", "micro_batches"), RECORDED)
def test_the_calls_are_those_of_torch(schedule: Schedule, micro_batches: int) -> None:
    assert schedule != "naive"
    for stage, recorded in enumerate(RECORDED[schedule, micro_batches]):
        words = []
        for action in actions(schedule, stage, 3, micro_batches):
            if isinstance(action, Compute):
                words.append(f"{action.phase[0].upper()}{action.micro_batch}")
            elif isinstance(action, Call):
                words.append("".join(f"{'-+'[m.sent]}{m.what[0]}" for m in action.messages))
        assert " ".join(words) == recorded


def test_with_fewer_micro_batches_than_stages_nothing_is_batched_on_one_side_only() -> None:
    assert order("1f1b", 0, 4, 2) == "F0 F1 B0 B1"
    assert calls("1f1b", 0, 4, 2) == ["|", "+a0", "|", "+a1", "-g0", "|", "-g1", "|"]
    assert calls("1f1b", 1, 4, 2) == ["-a0", "|", "+a0", "-a1", "|", "+a1", "-g0", "|", "+g0", "-g1", "|", "+g1"]


@pytest.mark.parametrize("schedule", IN_FLIGHT)
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 9])
def test_every_micro_batch_goes_forth_and_back_once(schedule: Schedule, stages: int, micro_batches: int) -> None:
    assert schedule != "naive"
    for stage in range(stages):
        flying = peak = 0
        seen = []
        for action in actions(schedule, stage, stages, micro_batches):
            if isinstance(action, Compute):
                flying += 1 if action.phase == "forward" else -1
                peak = max(peak, flying)
                seen.append((action.phase, action.micro_batch))
        assert sorted(seen) == sorted((phase, i) for phase in ("forward", "backward") for i in range(micro_batches))
        assert peak == (micro_batches if schedule == "gpipe" else min(micro_batches, stages - stage))
        assert isinstance([*actions(schedule, stage, stages, micro_batches)][-1], Settle)


# --- programs --------------------------------------------------------------------------------------------------------


def on_pair(step: Step, pair: int) -> list[Op]:
    return [op for op in step.ops if op.stream == communicator(f"stages {pair} and {pair + 1}")]


@pytest.mark.parametrize("schedule", IN_FLIGHT)
@pytest.mark.parametrize("micro_batches", [1, 2, 5, 8])
def test_neighbours_call_for_the_same_in_the_same_order(schedule: Schedule, micro_batches: int) -> None:
    """Each way one message a micro-batch: 16 tokens of 64 in fp32, under autocast."""
    for pair, (one, other) in enumerate(pairwise(programs(schedule, 4, micro_batches))):
        works = [[op.work for op in on_pair(step, pair)] for step in (one, other)]
        assert works[0] == works[1]
        called = [work for work in works[0] if isinstance(work, Collective)]
        exchanged = sum(work.kind == "exchange" for work in called)
        assert len(called) + exchanged == 2 * micro_batches
        assert exchanged == (max(0, micro_batches - (3 - pair)) if schedule == "1f1b" else 0)
        assert {work.bytes for work in called} == {16 * 64 * 4}
        turned = {"send": "receive", "receive": "send"}
        said = [[op.name for op in on_pair(step, pair)] for step in (one, other)]
        heard = [", ".join(_turned(name, turned)) for name in said[1]]
        assert [", ".join(sorted(name.split(", "))) for name in said[0]] == heard


def _turned(name: str, turned: dict[str, str]) -> list[str]:
    words = [part.split(" ") for part in name.split(", ")]
    return sorted(f"{turned[way]} {what}" for way, what in words)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("zero_stage", [0, 1])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize(("precision", "dtype"), [("fp16", "fp32"), ("bf16", "bf16"), ("fp32", "fp32")])
def test_the_programs_are_clean(
    schedule: Schedule, zero_stage: int, checkpointing: str, precision: str, dtype: str
) -> None:
    """Every buffer comes and goes, every gradient is reduced once."""
    for tied in (False, True):
        for stages, replicas, micro_batches in ((1, 2, 3), (2, 1, 1), (3, 2, 2), (4, 3, 6)):
            model = variant(toy(blocks=4), tied=tied)
            for step in programs(
                schedule, stages, micro_batches, replicas, zero_stage, model, dtype,
                activation_checkpointing=checkpointing, precision=precision,
            ):  # fmt: skip
                assert step.lint() == []


@pytest.mark.parametrize("schedule", IN_FLIGHT)
def test_a_stage_computes_what_the_naive_one_computes(schedule: Schedule) -> None:
    """But for the casts of the weights: once a step, not once a micro-batch."""
    for naive, step in zip(programs("naive", 3, 4), programs(schedule, 3, 4), strict=True):
        kernels = [
            sorted((op.name, op.micro_batch) for *_, ops in blocks_of(each) for op in ops) for each in (naive, step)
        ]
        assert kernels[0] == kernels[1]
        casts = [sum(op.name.endswith(" autocast") for op in each.ops) for each in (naive, step)]
        assert casts[0] == 4 * casts[1] > 0


def test_gradients_are_scaled_then_reduced_once_after_the_last_backward() -> None:
    for schedule in IN_FLIGHT:
        for step in programs(schedule, 2, 3, replicas=2):
            names = [op.name for op in step.ops if op.phase == "backward" and op.micro_batch == 2]
            ends = [name for name in names if "gradients" in name]
            assert ends == ["scale gradients", "all-reduce gradients", "divide gradients"]
            assert step.reductions == (2,)
        assert all(op.name != "scale gradients" for step in programs(schedule, 2, 1) for op in step.ops)


# --- steps by hand ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", IN_FLIGHT)
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 1), (4, 2), (4, 4), (4, 8), (3, 7)])
def test_a_step_of_equal_stages_that_send_in_no_time(schedule: Schedule, stages: int, micro_batches: int) -> None:
    """(m + p - 1) (tF + tB), of which (p - 1) (tF + tB) is bubble: 1 s forward, 2 s backward."""
    played = by_hand(programs(schedule, stages, micro_batches), 1.0, 2.0)
    assert played.makespan == pytest.approx((micro_batches + stages - 1) * 3.0)
    found = bubble(played, Pipeline(schedule, stages, micro_batches))
    assert [each.bubble_seconds for each in found.by_stage] == pytest.approx([(stages - 1) * 3.0] * stages)
    assert [each.compute_seconds for each in found.by_stage] == pytest.approx([micro_batches * 3.0] * stages)
    assert (
        found.bubble_share
        == pytest.approx(found.ideal_share)
        == pytest.approx((stages - 1) / (micro_batches + stages - 1))
    )


def test_the_same_one_at_a_time() -> None:
    played = by_hand(programs("naive", 4, 3), 1.0, 2.0)
    assert played.makespan == pytest.approx(4 * 3 * 3.0)
    found = bubble(played, Pipeline("naive", 4, 3))
    assert found.bubble_share == pytest.approx(found.ideal_share) == pytest.approx(3 / 4)
    assert found.bubble_seconds == found.by_stage[0].bubble_seconds == pytest.approx(27.0)


def test_four_stages_and_four_micro_batches_moment_by_moment() -> None:
    """1F1B, 1 s forward and 1 s backward: the diagonal of the warm-up, then every other second."""
    played = by_hand(programs("1f1b", 4, 4), 1.0, 1.0)
    starts = {}
    for k, step in enumerate(played.steps):
        spans = played.spans[f"stage {k}"]
        starts[k] = [(phase[0], i, spans[ops[0].number].start) for phase, i, ops in blocks_of(step)]
    assert starts[0] == [
        ("f", 0, 0), ("f", 1, 1), ("f", 2, 2), ("f", 3, 3), ("b", 0, 7), ("b", 1, 9), ("b", 2, 11), ("b", 3, 13),
    ]  # fmt: skip
    assert starts[3] == [(way, i, 3 + 2 * i + (way == "b")) for i in range(4) for way in "fb"]
    assert played.makespan == 14


def test_the_bubble_is_what_the_stalls_call_waiting_for_a_stage() -> None:
    for schedule in SCHEDULES:
        played = by_hand(programs(schedule, 3, 5), 1.0, 2.5)
        waited = sum(stall.seconds for stall in stalls(played) if stall.cause == "wait_for_stage")
        found = bubble(played, Pipeline(schedule, 3, 5))
        assert played.slowest.name == found.by_stage[0].name == "stage 0"
        assert waited == pytest.approx(found.bubble_seconds)


def test_an_ideal_share() -> None:
    assert ideal_share(Pipeline("gpipe", 1, 5)) == ideal_share(Pipeline("naive", 1, 5)) == 0
    assert ideal_share(Pipeline("1f1b", 4, 8)) == 3 / 11
    assert ideal_share(Pipeline("naive", 4, 8)) == 3 / 4


def test_phases_are_those_of_the_stage_where_micro_batches_overlap() -> None:
    played = by_hand(programs("1f1b", 2, 3), 1.0, 2.0)
    assert phases(played) == pytest.approx(
        {"forward": 3.0, "backward": 9.0, "optimizer": 0.0}
    )  # of stage 0: F F . B F B . B
    bands = bands_of(played, played.classes[1])
    assert [(band.label, band.start, band.end) for band in bands[:4]] == [
        ("forward", 0, 2), ("backward", 2, 4), ("forward", 4, 5), ("backward", 5, 7),
    ]  # fmt: skip


# --- what is held ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"), [("gpipe", [6, 6, 6, 6]), ("1f1b", [4, 3, 2, 1]), ("naive", [1] * 4)]
)
def test_block_inputs_in_flight(schedule: Schedule, expected: list[int]) -> None:
    steps = programs(schedule, 4, 6, activation_checkpointing="full")
    assert [held(step, "block input") for step in steps] == expected


@pytest.mark.parametrize(("schedule", "expected"), [("gpipe", [5, 5, 5]), ("1f1b", [3, 2, 1])])
def test_saved_activations_and_outputs_in_flight(schedule: Schedule, expected: list[int]) -> None:
    """Of a middle stage: a naive one has a micro-batch of them."""
    one, steps = programs("naive", 3, 1)[1], programs(schedule, 3, 5)
    assert held(steps[1], "saved activation") == expected[1] * held(one, "saved activation")
    assert [held(step, "stage output") for step in steps[:2]] == expected[:2]
    assert held(steps[2], "stage output") == 0


def test_a_stage_has_a_buffer_for_all_that_it_receives() -> None:
    """16 tokens of 64 in fp32; a received activation is counted once, as a buffer or as what a micro-batch holds."""
    size, saved = 16 * 64 * 4, ("block input", "receive buffer")
    for schedule in IN_FLIGHT:
        first, middle, last = programs(schedule, 3, 5, activation_checkpointing="full")
        for step in (middle, last):
            assert held(step, *saved) == held(step, "receive buffer") == 5
        assert held(first, "receive buffer") == 0
        gradients = [[b.bytes for b in step.buffers if "of gradients" in b.name] for step in (first, middle, last)]
        assert gradients == [[5 * size], [5 * size], []]


def test_sent_gradients_are_held_until_somebody_waited() -> None:
    """GPipe waits for its sends at the end; 1F1B when the next is there, which has another name until then."""
    assert [held(step, "gradient of the input") for step in programs("gpipe", 3, 5)] == [0, 5, 5]
    assert [held(step, "gradient of the input") for step in programs("1f1b", 3, 5)] == [0, 1, 1]


def test_gpipe_holds_at_least_what_1f1b_holds() -> None:
    def peaks(schedule: Schedule, checkpointing: str) -> list[float]:
        steps = programs(schedule, 4, 8, activation_checkpointing=checkpointing)
        return [most(step, [buffer.bytes for buffer in step.buffers].__getitem__) for step in steps]

    for checkpointing in ("none", "full"):
        many, few = peaks("gpipe", checkpointing), peaks("1f1b", checkpointing)
        assert all(less < more for less, more in zip(few, many, strict=True))


# --- whole steps -----------------------------------------------------------------------------------------------------


def question(schedule: str, **training: object) -> dict[str, object]:
    return {
        "topology": "dgx-a100-80", "gpus": 4,
        "model": {"layers": 8, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 1000},
        "training": {"sequence_length": 1024, "micro_batch_size": 4, **training},
        "strategy": {"pipeline": {"stages": 4, "schedule": schedule}},
    }  # fmt: skip


def test_a_pipeline_on_a_machine() -> None:
    """Near the formula: the last stage has the head, sends take time (1f1b waits for more of them than gpipe), the
    optimizer comes on top."""
    with quick_host():
        naive, gpipe, one = (
            simulate(from_mapping(question(schedule, gradient_accumulation_steps=8))).summary()
            for schedule in SCHEDULES
        )
    assert gpipe.step_seconds == pytest.approx(one.step_seconds, rel=0.05)
    assert naive.step_seconds / one.step_seconds == pytest.approx(4 * 8 / 11, rel=0.15)
    assert naive.tokens_per_second * naive.step_seconds == one.tokens_per_second * one.step_seconds
    assert one.memory["gpu"].activations_bytes < gpipe.memory["gpu"].activations_bytes
    found = one.as_json()["pipeline"]
    assert {key: found[key] for key in ("schedule", "stages", "micro_batches")} == {
        "schedule": "1f1b", "stages": 4, "micro_batches": 8,
    }  # fmt: skip
    assert found["ideal_share"] == 3 / 11
    assert found["bubble_seconds"] == pytest.approx(found["bubble_share"] * one.step_seconds)
    assert [each["first_rank"] for each in found["by_stage"]] == [0, 1, 2, 3]


def test_the_bubble_has_a_finding_and_a_remedy() -> None:
    def told(schedule: str, micro_batches: int) -> str:
        asked = question(schedule, gradient_accumulation_steps=micro_batches)
        findings = simulate(from_mapping(asked)).summary().findings
        return next((f"{each.message} {each.remedy}" for each in findings if each.code == "pipeline-bubble"), "")

    naive = told("naive", 8)
    assert "one of the 4 stages works at a time" in naive
    assert "Schedule 1f1b: up to 2.9 times as fast; the first stage holds 4 micro-batches then" in naive
    assert "more micro-batches" in told("naive", 1)
    assert "in 4 equal stages it would be 60 %. More micro-batches" in told("1f1b", 2)
    assert told("1f1b", 64) == ""


def test_the_screen_and_the_picture_show_the_schedule() -> None:
    played = simulate(from_mapping(question("1f1b", gradient_accumulation_steps=6)))
    line = next(line for line in text.render(played.summary()).split("\n") if line.startswith("pipeline"))
    assert line.startswith("pipeline 1f1b: 4 stages, 6 micro-batches, bubble ")
    assert line.endswith(", ideally 33.3 %)")
    picture = svg.render(played)
    assert all(f">micro-batches, rank {k}</text>" in picture for k in range(4))
    assert all(f">{way}{i}</text>" in picture for way in "FB" for i in range(6))
    assert "forward of a micro-batch" in picture
    naive = svg.render(simulate(from_mapping(question("naive", gradient_accumulation_steps=2))))
    assert "micro-batches, rank" not in naive


def test_a_forward_in_the_picture_begins_when_its_activation_is_there() -> None:
    """Not with the gradients that are zeroed at the start of the step."""
    zero = {"strategy": {"pipeline": {"stages": 4, "schedule": "1f1b", "zero_stage": 1}}, "gpus": 8}
    played = simulate(from_mapping(question("1f1b", gradient_accumulation_steps=4) | zero))
    lanes = list(flights(played, played.slowest, Scale(0.0, 1.0), 1.0))
    begins = [next(mark.x for mark in lane.marks if mark.label == "F0") for lane in lanes]
    assert begins[0] < 1e-4
    assert all(later > earlier + lanes[0].marks[0].width / 2 for earlier, later in pairwise(begins))


def test_fewer_micro_batches_than_stages_are_noted() -> None:
    played = [simulate(from_mapping(question("1f1b", gradient_accumulation_steps=m))).steps for m in (3, 4)]
    assert [any("torch refuses 1f1b" in note for note in steps[0].notes) for steps in played] == [True, False]


def test_the_remedies_of_memory_know_the_schedule() -> None:
    """GPipe to 1F1B: 4 of 16 micro-batches in flight. What a stage receives is no bucket that could be smaller."""
    asked = question("gpipe", gradient_accumulation_steps=16, micro_batch_size=24) | {"topology": "pcie-4x-rtx4090"}
    summary = simulate(from_mapping(asked)).summary()
    remedy = next(each.remedy for each in summary.findings if each.code == "out-of-memory")
    saved = summary.memory["gpu"].activations_bytes * 3 / 4
    assert f"schedule 1f1b (saves about {show_size(saved)})" in remedy
    assert "bucket" not in remedy


def test_ddp_has_no_bubble() -> None:
    asked = question("naive") | {"strategy": {"ddp": {}}}
    assert simulate(from_mapping(asked)).summary().pipeline is None
