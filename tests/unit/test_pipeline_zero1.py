"""ZeRO-1 over the replicas of a stage: what is resident, what is moved, and that the rest of the step is the same."""

from __future__ import annotations

import pytest

from tests.pipelines import SCHEDULES, programs
from tests.programs import variant
from tests.toy import toy
from zerosim.scenario import from_mapping
from zerosim.simulation import simulate
from zerosim.spec.strategy import Schedule
from zerosim.step import Collective, Pass, Step
from zerosim.strategies.pipeline_zero1 import buffer_elements
from zerosim.views import Summary


def moved(step: Step) -> list[tuple[str, int, str, str]]:
    """Kind, elements, dtype and phase of what replicas, ends and everybody do together."""
    return [
        (op.work.kind, op.work.elements, op.work.dtype, op.phase)
        for op in step.ops
        if isinstance(op.work, Collective) and op.work.kind not in ("send_recv", "exchange")
    ]


def resident(step: Step, category: str) -> float:
    return sum(step.buffers[b].bytes for b in step.resident if step.buffers[b].category == category)


def test_a_buffer_can_be_cut_into_equal_shares() -> None:
    assert [buffer_elements(n, 2) for n in (1, 128, 129)] == [128, 128, 256]
    assert buffer_elements(1, 3) == 3 * 128
    assert buffer_elements(0, 4) == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gradients_are_reduce_scattered_and_parameters_gathered(schedule: Schedule) -> None:
    """Of a stage's gradients in the parameters' dtype, padded; once a step."""
    for dtype in ("fp32", "bf16"):
        for step in programs(schedule, 2, 3, 3, zero_stage=1, parameter_dtype=dtype):
            elements = buffer_elements(sum(step.parameters), 3)
            assert moved(step) == [
                ("reduce_scatter", elements, dtype, "backward"),
                ("all_gather", elements, dtype, "optimizer"),
            ]
            assert step.reductions == (2,)


def test_each_replica_keeps_its_share_of_the_states() -> None:
    """8 bytes of Adam's moments an element, and 4 of a master where parameters are in 16 bits: 12 q, not 12 Psi."""
    for dtype, states in (("fp32", 8), ("bf16", 12)):
        whole, sharded = (programs("1f1b", 2, 2, 4, stage, parameter_dtype=dtype) for stage in (0, 1))
        for one, other in zip(whole, sharded, strict=True):
            psi = sum(one.parameters)
            assert resident(one, "optimizer") == states * psi
            assert resident(other, "optimizer") == states * buffer_elements(psi, 4) / 4
            assert resident(other, "gradients") == resident(other, "parameters")
            assert resident(other, "gradients") == buffer_elements(psi, 4) * (4 if dtype == "fp32" else 2)
            steps = [_stepped(each) for each in (one, other)]
            assert steps[1] / steps[0] == pytest.approx(buffer_elements(psi, 4) / 4 / psi)


def _stepped(step: Step) -> float:
    """HBM bytes of the optimizer."""
    return sum(op.work.hbm_bytes for op in step.ops if isinstance(op.work, Pass) and op.work.flavour == "adam")


def test_a_tied_embedding_is_cut_in_the_same_way_on_both_ends() -> None:
    table = 512 * 64
    for step in programs("gpipe", 2, 2, 2, zero_stage=1, model=variant(toy(), tied=True)):
        others = buffer_elements(sum(step.parameters) - table, 2)
        assert moved(step) == [
            ("reduce_scatter", others, "fp32", "backward"),
            ("reduce_scatter", table, "fp32", "backward"),
            ("all_reduce", table, "fp32", "backward"),
            ("all_gather", others, "fp32", "optimizer"),
            ("all_gather", table, "fp32", "optimizer"),
        ]


def test_everybody_skips_a_step_with_an_inf() -> None:
    for step in programs("1f1b", 2, 2, 2, zero_stage=1, precision="fp16"):
        assert ("all_reduce", 1, "fp32", "optimizer") in moved(step)
        assert step.groups["world"].size == 4


def test_one_replica_has_nobody_to_share_with() -> None:
    for one, other in zip(programs("1f1b", 2, 2), programs("1f1b", 2, 2, zero_stage=1), strict=True):
        assert one.ops == other.ops
        assert one.buffers == other.buffers
        assert "A stage has one replica, so zero_stage 1 shards nothing." in other.notes


def test_on_a_machine_it_saves_memory_and_hardly_time() -> None:
    def summary(zero_stage: int) -> Summary:
        return simulate(
            from_mapping({
                "topology": "dgx-a100-80",
                "model": {"layers": 8, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 1000},
                "training": {"sequence_length": 1024, "gradient_accumulation_steps": 8},
                "strategy": {"pipeline": {"stages": 2, "schedule": "1f1b", "zero_stage": zero_stage}},
            })
        ).summary()  # fmt: skip

    whole, sharded = summary(0), summary(1)
    assert sharded.memory["gpu"].optimizer_bytes == pytest.approx(whole.memory["gpu"].optimizer_bytes / 4, rel=0.01)
    assert sharded.step_seconds == pytest.approx(whole.step_seconds, rel=0.1)
