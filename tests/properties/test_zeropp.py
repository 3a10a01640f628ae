"""What holds of ZeRO++ and MiCS whatever the knobs: they change where shards come from, not what is gathered when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.linears import linears
from tests.toy import toy, toy_training
from zerosim.spec.model import Model
from zerosim.spec.release import release_of
from zerosim.spec.strategy import DeepSpeed, Zero
from zerosim.step import DTYPE_BYTES, Collective, Step
from zerosim.strategies import build

RANKS, NODE = 4, 2
KNOBS = st.fixed_dictionaries(
    {
        "prefetch_bucket_size": st.sampled_from([0, 3_000, 14_000, 60_000]),
        "max_live_parameters": st.sampled_from([0, 30_000, 1_000_000]),
        "max_reuse_distance": st.sampled_from([0, 20_000, 1_000_000]),
        "param_persistence_threshold": st.sampled_from([0, 100]),
        "reduce_bucket_size": st.sampled_from([1_000, 20_000, 300_000]),
        "allgather_sequential": st.booleans(),
        "overlap_comm": st.booleans(),
    }
)
STEPS = st.integers(1, 4)
MODELS = st.sampled_from([toy(), linears(64, 64, 128, 64, frozen=0), linears(64, 64, 64, 64, 64, frozen=2)])


def program(knobs: dict[str, Any], model: Model, steps: int, ranks: int = RANKS, **keys: Any) -> Step:
    config = DeepSpeed(zero=replace(Zero(stage=3, **knobs), **keys), synchronized_timer=False)
    if "mics_shard_size" in keys:
        config = replace(config, release=release_of("0.14.5"))
    run = toy_training(gradient_accumulation_steps=steps, precision="fp16")
    return build(config, model, run, ranks, min(NODE, ranks))[0].check()


def elements(step: Step, *kinds: str) -> Counter[str]:
    """By dtype, over all groups."""
    total: Counter[str] = Counter()
    for op in step.ops:
        if isinstance(op.work, Collective) and op.work.kind in kinds:
            total[op.work.dtype] += op.work.elements
    return total


def gathered(step: Step) -> list[tuple[int, ...]]:
    return sorted((parameter,) for op in step.ops for parameter in op.gathers)


@settings(max_examples=25, deadline=None)
@given(KNOBS, MODELS, STEPS, st.sampled_from([2, 4]), st.booleans())
def test_secondary_shards_change_no_volume(
    knobs: dict[str, Any], model: Model, steps: int, group: int, quantized: bool
) -> None:
    plain = program(knobs, model, steps, zero_quantized_weights=quantized)
    split = program(knobs, model, steps, zero_hpz_partition_size=group, zero_quantized_weights=quantized)
    for dtype in ("fp16", "int8"):
        assert elements(plain, "all_gather")[dtype] == elements(split, "all_gather")[dtype]
    assert elements(plain, "reduce_scatter") == elements(split, "reduce_scatter")
    assert gathered(plain) == gathered(split)


@settings(max_examples=25, deadline=None)
@given(KNOBS, MODELS, STEPS)
def test_each_trained_parameter_is_gathered_over_all_ranks_once_a_step_with_hpz(
    knobs: dict[str, Any], model: Model, steps: int
) -> None:
    """Persistent ones at the step, the others at their first use."""
    step = program(knobs, model, steps, zero_hpz_partition_size=2)
    times = Counter(
        parameter
        for op in step.ops
        if isinstance(op.work, Collective) and op.work.group == "dp"
        for parameter in op.gathers
    )
    trained = {p for p, parameter in enumerate(model.parameters) if parameter.trainable}
    assert {p: times[p] for p in trained} == dict.fromkeys(trained, 1)
    persistent = {p for p in times if model.parameters[p].numel <= knobs["param_persistence_threshold"]}
    assert times.keys() - trained <= persistent


@settings(max_examples=20, deadline=None)
@given(KNOBS, MODELS, STEPS)
def test_int8_halves_what_is_gathered_but_for_scales(knobs: dict[str, Any], model: Model, steps: int) -> None:
    plain, low = program(knobs, model, steps), program(knobs, model, steps, zero_quantized_weights=True)
    before, after = elements(plain, "all_gather"), elements(low, "all_gather")
    assert before["fp16"] == after["int8"] + after["fp16"]
    blocks = after["fp32"]
    assert after["int8"] / 8000 <= blocks <= after["int8"] / 8


@settings(max_examples=20, deadline=None)
@given(KNOBS, STEPS)
def test_quantized_gradients_cost_half_a_byte_in_the_node_and_half_of_it_across(
    knobs: dict[str, Any], steps: int
) -> None:
    """All matrices of the toy; its norms go by reduce-scatters."""
    model = toy()
    step = program(knobs, model, steps, zero_quantized_gradients=True)
    matrices = steps * sum(p.numel for p in model.parameters if len(p.shape) > 1)
    sent: Counter[str] = Counter()
    for op in step.ops:
        if isinstance(op.work, Collective) and op.work.kind == "all_to_all" and op.work.dtype == "int8":
            sent[op.work.group] += op.work.elements * DTYPE_BYTES["int8"]
    assert sent == {"local": matrices // 2, "across": matrices // 2 // NODE}
    assert elements(step, "reduce_scatter")["fp16"] == steps * sum(p.numel for p in model.parameters) - matrices


@settings(max_examples=20, deadline=None)
@given(KNOBS, MODELS, STEPS)
def test_mics_is_stage_3_within_its_shards(knobs: dict[str, Any], model: Model, steps: int) -> None:
    """What two ranks alone would send, gathers parameter by parameter, and a sum over replicas at the boundary."""
    alone = replace(release_of("0.14.5"), replaces_linear=True)
    config = DeepSpeed(zero=Zero(stage=3, **knobs), synchronized_timer=False, release=alone)
    run = toy_training(gradient_accumulation_steps=steps, precision="fp16")
    two = build(config, model, run, 2, 2)[0].check()
    mics = program(knobs, model, steps, mics_shard_size=2)

    def sent(step: Step) -> list[tuple[str, int]]:
        works = [op.work for op in step.ops if isinstance(op.work, Collective) and op.work.kind != "all_gather"]
        return [(work.kind, work.elements) for work in works if work.group != "replicas"]

    assert sent(mics) == sent(two)
    assert elements(mics, "all_gather") == elements(two, "all_gather")
    replicas = [op for op in mics.ops if isinstance(op.work, Collective) and op.work.group == "replicas"]
    scattered = [op for op in mics.ops if isinstance(op.work, Collective) and op.work.kind == "reduce_scatter"]
    last = [op for op in scattered if op.micro_batch == steps - 1]
    assert [2 * op.work.elements for op in replicas] == [op.work.elements for op in last]  # type: ignore[union-attr]  # all are collectives
