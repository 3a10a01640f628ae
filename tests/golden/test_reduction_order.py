"""Order and size of what is reduced in a network of three linears with biases (64 + 8 each): small enough by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.toy import toy_training
from zerosim.spec.model import Model, Module, Parameter
from zerosim.spec.strategy import Ddp, DeepSpeed, Offload, Strategy, Zero
from zerosim.step import Collective, Step
from zerosim.strategies import build


def chain(frozen: frozenset[int] = frozenset(), conv1d: bool = False) -> Model:
    """l0, l1, l2: weight 8 x 8, bias 8; those in `frozen` are not trained. Registered l0.weight, l0.bias, ..."""
    body = []
    for i in range(3):
        trained = i not in frozen
        own = (Parameter(f"l{i}.weight", (8, 8), trained), Parameter(f"l{i}.bias", (8,), trained))
        body.append(Module(f"l{i}", "linear", own, inputs=8, outputs=8, conv1d=conv1d))
    root = Module("root", "container", body=tuple(body))
    return Model("chain", root, tuple(p for m in body for p in m.parameters), 3, 8, 1, 8)


def works(step: Step) -> list[Collective]:
    return [op.work for op in step.ops if isinstance(op.work, Collective)]


def step_of(strategy: Strategy, model: Model | None = None, **training: Any) -> Step:
    return build(strategy, model or chain(), toy_training(**training), 2)[0]


def zero(stage: int, **keys: Any) -> DeepSpeed:
    values: dict[str, Any] = {"reduce_bucket_size": 100, "param_persistence_threshold": 0, **keys}
    return DeepSpeed(zero=Zero(stage=stage, **values))  # type: ignore[arg-type]  # a test's row, checked by the class


def reduced(step: Step) -> list[int]:
    return [op.work.elements for op in step.ops if isinstance(op.work, Collective) and op.reduces]


# --- a linear's bias is ready before its weight, but not in DeepSpeed's own linear -----------------------------------


@pytest.mark.parametrize(
    ("strategy", "sizes"),
    [
        (zero(2), [80, 72, 64]),  # b2 w2 b1 | w1 b0 | w0
        (zero(1, overlap_comm=True), [80, 72, 64]),
        (zero(1), [72, 72, 72]),  # registration order: w0 b0 | w1 b1 | w2 b2
        (zero(3), [72, 72, 72]),  # w2 b2 | w1 b1 | w0 b0
        (Ddp(bucket_cap_mb=256 / 2**20), [72, 72, 72]),  # 256 bytes: b2 w2 | b1 w1 | b0 w0
    ],
)
def test_a_linears_bias_comes_first(strategy: Strategy, sizes: list[int]) -> None:
    assert reduced(step_of(strategy)) == sizes


def test_conv1d_is_not_deepspeeds_linear() -> None:
    assert reduced(step_of(zero(3), chain(conv1d=True))) == [80, 72, 64]


# --- buckets ---------------------------------------------------------------------------------------------------------


def test_only_an_oversized_gradient_across_partitions_is_split() -> None:
    """Share 108: w1 is 72..136, 36 elements of rank 0 and 28 of rank 1; at a bucket of 30 each piece goes out alone."""
    assert reduced(step_of(zero(2, reduce_bucket_size=30))) == [8, 64, 8, 36, 28, 8, 64]
    assert reduced(step_of(zero(2, reduce_bucket_size=50))) == [8, 64, 8, 64, 8, 64]  # 36 <= 50: both pieces together


@pytest.mark.parametrize(
    ("round_robin", "reduces"),
    [
        # w0 0..64, b0 ..72, w1 ..136 | ..., share 108
        (False, [(108, "reduce to 1"), (36, "reduce to 0"), (72, "reduce to 0")]),
        # w0 0..64, w1 ..128, w2 ..192, then b0, b1, b2
        (True, [(100, "reduce to 1"), (44, "reduce to 0"), (8, "reduce to 1"), (64, "reduce to 0")]),
    ],
)
def test_one_reduce_per_owner(round_robin: bool, reduces: list[tuple[int, str]]) -> None:
    knobs = {"use_multi_rank_bucket_allreduce": False, "round_robin_gradients": round_robin}
    step = step_of(zero(2, reduce_bucket_size=150, **knobs))
    found = [(op.work.elements, op.name) for op in step.ops if isinstance(op.work, Collective) and op.reduces]
    assert found == reduces


@pytest.mark.parametrize(("stage", "sizes"), [(1, [144]), (2, [144]), (3, [144]), (0, [144])])
def test_frozen_parameters_are_not_reduced(stage: int, sizes: list[int]) -> None:
    step = step_of(zero(stage, reduce_bucket_size=1000), chain(frozenset({0})))
    assert reduced(step) == sizes


def test_frozen_parameters_are_gathered_by_stage_3() -> None:
    gathered = [w.elements for w in works(step_of(zero(3), chain(frozenset({0})))) if w.kind == "all_gather"]
    assert sum(gathered) == 216


# --- the boundary ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(("precision", "flags"), [("fp32", 0), ("bf16", 1), ("fp16", 1)])
def test_fp32_reduces_no_overflow_flag(stage: int, precision: str, flags: int) -> None:
    assert [w.dtype for w in works(step_of(zero(stage), precision=precision))].count("uint8") == flags


@pytest.mark.parametrize(("precision", "clipping", "norms"), [("fp32", 1.0, 1), ("fp32", 0.0, 0), ("bf16", 1.0, 0)])
def test_stage_0_reduces_a_norm_only_in_fp32_with_clipping(precision: str, clipping: float, norms: int) -> None:
    step = step_of(replace(zero(0), gradient_clipping=clipping), precision=precision)
    assert [w.elements for w in works(step)] == [216] + [1] * norms


@pytest.mark.parametrize(("size", "groups"), [(1000, 1), (40, 2), (36, 3), (30, 4)])
def test_stage_3_reduces_a_norm_per_sub_group(size: int, groups: int) -> None:
    """Shares are 32 and 4. At 40: w0 b0 w1 | b1 w2 b2; at 36: a linear each; at 30: w0 | b0 w1 | b1 w2 | b2."""
    norms = [w for w in works(step_of(zero(3, sub_group_size=size))) if w.elements == 1]
    assert [w.dtype for w in norms] == ["fp64"] * groups


def test_an_offloaded_norm_is_summed_in_fp32() -> None:
    step = step_of(zero(3, offload_optimizer=Offload("cpu")))
    assert [w.dtype for w in works(step) if w.elements == 1] == ["fp32"]


def test_persistent_parameters_are_gathered_one_by_one_after_the_update() -> None:
    step = step_of(zero(3, param_persistence_threshold=8))
    tail = [(w.kind, w.elements) for w in works(step)][-4:]
    assert tail == [("all_reduce", 1)] + [("all_gather", 8)] * 3


# --- DDP -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("no_sync", "micro_batches"), [(True, [0]), (False, [0, 1, 2])])
def test_ddp_broadcasts_buffers_except_after_no_sync(no_sync: bool, micro_batches: list[int]) -> None:
    step = step_of(Ddp(no_sync=no_sync), replace(chain(), buffers=16), gradient_accumulation_steps=3)
    sent = [op for op in step.ops if isinstance(op.work, Collective) and op.work.kind == "broadcast"]
    assert [op.micro_batch for op in sent] == micro_batches
    assert {(op.phase, op.work) for op in sent} == {("forward", Collective("broadcast", 16, "fp32", "dp"))}


@pytest.mark.parametrize(("static", "used"), [(False, [6]), (True, [])])
def test_ddp_tells_used_parameters_only_of_a_dynamic_graph(static: bool, used: list[int]) -> None:
    step = step_of(Ddp(find_unused_parameters=True, static_graph=static))
    assert [w.elements for w in works(step) if w.dtype == "int32"] == used


def test_ddp_with_unused_parameters_fills_in_registration_order() -> None:
    """256 bytes: w0 | b0 w1 | b1 w2 | b2, used in reverse."""
    step = step_of(Ddp(bucket_cap_mb=256 / 2**20, find_unused_parameters=True))
    assert reduced(step) == [8, 72, 72, 64]


# --- micro-steps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [zero(1), zero(2), zero(3), Ddp(), Ddp(no_sync=False)])
def test_later_micro_steps_repeat(strategy: Strategy) -> None:
    step = step_of(strategy, gradient_accumulation_steps=7)
    by_step: dict[int, list[object]] = {m: [] for m in range(7)}
    for op in step.ops:
        if isinstance(op.work, Collective) and op.phase != "optimizer":
            by_step[op.micro_batch].append((op.work, op.phase))
    assert by_step[1] == by_step[2] == by_step[3] == by_step[4] == by_step[5]
