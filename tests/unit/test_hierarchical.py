"""Hierarchical ZeRO-1 with numbers worked out by hand: four linears of 64 x 64, two nodes of two GPUs.

Megatron-core pads a bucket to a multiple of lcm(4, 128); 4 x 4,096 needs no padding.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.linears import linears
from tests.toy import toy, toy_training
from zerosim.errors import InputError
from zerosim.scenario import from_mapping
from zerosim.spec.hierarchical import HierarchicalZero1
from zerosim.spec.hierarchical_file import hierarchical_mapping, read_hierarchical
from zerosim.spec.loading import inline
from zerosim.spec.model import Model
from zerosim.step import Collective, Op, Step
from zerosim.strategies import build
from zerosim.strategies.internevo import dealt_by_size, dealt_in_order
from zerosim.strategies.megatron import buckets

SIDE, COUNT = 64, 4
NUMEL = SIDE * SIDE
PSI = COUNT * NUMEL


def step_of(model: Model | None = None, ranks: int = 4, shards: int = 2, steps: int = 1, **keys: Any) -> Step:
    run = toy_training(gradient_accumulation_steps=steps)
    model = model or linears(*[SIDE] * (COUNT + 1))
    return build(HierarchicalZero1(shards, **keys), model, run, ranks, 2)[0].check()


def collectives(step: Step) -> list[tuple[Op, Collective]]:
    return [(op, op.work) for op in step.ops if isinstance(op.work, Collective)]


def listed(step: Step) -> list[tuple[str, str, int]]:
    return [(w.kind, w.group, w.elements) for _, w in collectives(step)]


def resident(step: Step) -> dict[str, float]:
    held: Counter[str] = Counter()
    for buffer in step.resident:
        held[step.buffers[buffer].category] += int(step.buffers[buffer].bytes)
    return dict(held)


# --- Megatron-core ---------------------------------------------------------------------------------------------------


def test_one_bucket_is_scattered_in_the_shard_group_and_summed_over_replicas() -> None:
    assert listed(step_of()) == [
        ("reduce_scatter", "shard", PSI), ("all_reduce", "replicas", PSI // 2), ("all_reduce", "shard", 1),
        ("all_gather", "shard", PSI),
    ]  # fmt: skip


def test_states_are_those_of_a_part_and_the_rest_is_whole() -> None:
    held = resident(step_of())
    assert held == {"parameters": 2 * PSI, "gradients": 2 * PSI, "optimizer": 12 * PSI // 2}
    assert resident(step_of(grad_reduce_in_fp32=True))["gradients"] == 4 * PSI


def test_gradients_are_reduced_in_the_last_micro_step() -> None:
    reduced = [op for op, w in collectives(step_of(steps=4)) if w.kind == "reduce_scatter"]
    assert [op.micro_batch for op in reduced] == [3]


def test_buckets_overlap_the_backward_and_gathers_the_forward() -> None:
    """Buckets of two weights, from the end of the model; the forward meets the last bucket first and gathers ahead."""
    step = step_of(bucket_size=2 * NUMEL, overlap_grad_reduce=True, overlap_param_gather=True)
    assert listed(step)[:2] == [("all_gather", "shard", 2 * NUMEL)] * 2
    assert [op.name for op, _ in collectives(step)][:2] == ["all-gather bucket 1", "all-gather bucket 0"]
    assert listed(step)[2:6] == [("reduce_scatter", "shard", 2 * NUMEL), ("all_reduce", "replicas", NUMEL)] * 2
    first = next(op for op, w in collectives(step) if w.kind == "reduce_scatter")
    assert first.number < next(op.number for op in step.ops if op.name == "l0 bwd")


def test_the_wire_may_be_wider() -> None:
    step = step_of(grad_reduce_in_fp32=True)
    assert {w.dtype for _, w in collectives(step) if w.elements > 1} == {"fp32", "bf16"}


def test_one_instance_is_the_distributed_optimizer() -> None:
    assert {group for _, group, _ in listed(step_of(shards=4))} == {"shard"}


def test_buckets_are_padded_for_every_rank_and_parameters_aligned() -> None:
    """Reverse order; 100 is aligned to 128, and 128 + 100 padded to lcm(6, 128) = 384."""
    made = buckets((50, 100, 100), [2, 1, 0], ranks=6, limit=200)
    assert [(bucket.parameters, bucket.elements) for bucket in made] == [((2, 1), 384), ((0,), 384)]


def test_default_buckets_grow_with_the_ranks() -> None:
    assert HierarchicalZero1(8).bucket(16) == 40_000_000
    assert HierarchicalZero1(8).bucket(64) == 64_000_000
    assert HierarchicalZero1(8, "internevo").bucket(64) == 536_870_912


# --- InternEvo -------------------------------------------------------------------------------------------------------


def test_gradients_are_reduced_over_all_ranks_and_parameters_broadcast_in_the_group() -> None:
    assert listed(step_of(framework="internevo")) == [
        ("all_reduce", "dp", PSI), ("all_reduce", "shard", 1), ("broadcast", "shard", PSI // 2),
        ("broadcast", "shard", PSI // 2),
    ]  # fmt: skip


def test_a_bucket_is_sent_before_the_one_before_it_is_copied_back() -> None:
    step = step_of(framework="internevo", overlap_grad_reduce=True, bucket_size=2 * NUMEL)
    names = [op.name for op in step.ops if op.name in ("all-reduce gradients", "copy gradients back")]
    assert names == ["all-reduce gradients"] * 2 + ["copy gradients back"] * 2


def test_broadcasts_overlap_the_next_forward() -> None:
    step = step_of(framework="internevo", overlap_param_gather=True)
    assert [op.phase for op, w in collectives(step) if w.kind == "broadcast"] == ["forward"] * 2
    waited = next(op for op in step.ops if op.name == "l0 fwd")
    assert any(step.ops[number].work == Collective("broadcast", PSI // 2, "bf16", "shard") for number in waited.after)


def test_whole_parameters_are_dealt_out() -> None:
    """In order: a rank is full at 1.01 of its share of 50; by size: the largest first."""
    assert dealt_in_order([30, 30, 30, 10], 2) == [0, 1, 1, 1]
    assert dealt_by_size([10, 30, 30, 30], 2) == [1, 0, 1, 0]


def test_the_rank_with_most_is_played() -> None:
    step = step_of(linears(64, 64, 32), framework="internevo")
    assert resident(step)["optimizer"] == 12 * NUMEL


# --- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["megatron", "internevo"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_programs_have_no_fault(framework: str, overlap: bool, precision: str) -> None:
    keys: dict[str, Any] = {"framework": framework, "overlap_grad_reduce": overlap, "overlap_param_gather": overlap}
    run = toy_training(gradient_accumulation_steps=5, precision=precision)
    for ranks, shards in ((1, 1), (2, 2), (4, 2), (4, 1)):
        build(HierarchicalZero1(shards, bucket_size=50_000, **keys), toy(), run, ranks, 2)[0].check()


def test_a_group_must_divide_the_ranks() -> None:
    with pytest.raises(InputError, match="shard_size: found 3; expected a number that divides the 4 GPUs"):
        step_of(shards=3)


def test_settings_are_read_with_the_names_of_either_framework() -> None:
    evo = read_hierarchical(inline({"shard_size": 8, "framework": "internevo", "reduce_bucket_size": "500m"}, "s"), 16)
    assert evo == HierarchicalZero1(8, "internevo", 500_000_000, overlap_grad_reduce=True)
    megatron = read_hierarchical(inline({"shard_size": 8, "overlap_param_gather": True}, "s"))
    assert megatron == HierarchicalZero1(8, overlap_param_gather=True)
    for each in (evo, megatron):
        assert read_hierarchical(inline(hierarchical_mapping(each), "s")) == each


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "shard_size"),
        ({"shard_size": 3}, "found 3; expected a number that divides the 16 GPUs"),
        ({"shard_size": True}, "found true; expected a whole number"),
        ({"shard_size": 8, "frame_work": "megatron"}, "nearest framework"),
        ({"shard_size": 8, "framework": "megatrom"}, "megatrom.*megatron"),
        ({"shard_size": 8, "framework": "internevo", "grad_reduce_in_fp32": True}, "in the model's dtype"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_hierarchical(inline(settings, "s"), 16)


def test_a_scenario_reads_back() -> None:
    given = {
        "topology": "dgx-a100-80", "nodes": 2, "model": {"parameters": 1e8}, "training": {"sequence_length": 128},
        "strategy": {"hierarchical_zero1": {"shard_size": 8}},
    }  # fmt: skip
    scenario = from_mapping(given)
    assert scenario.strategy == HierarchicalZero1(8)
    assert from_mapping(scenario.text).strategy == scenario.strategy
