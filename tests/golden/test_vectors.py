"""Sequences of collectives recorded from DeepSpeed and torch on the toy network, element for element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.toy import toy, toy_training
from zerosim.spec.strategy import Ddp, DeepSpeed, Strategy, Zero
from zerosim.step import Collective, Step
from zerosim.strategies import build
from zerosim.strategies.events import POST, PRE, micro_step
from zerosim.strategies.fetch import plan_fetches
from zerosim.strategies.fetch_plan import Plan
from zerosim.strategies.network import compile_network

STAGE_2 = [32768, 16512, 16512, 16512, 16384, 16512, 16512, 16384, 16512, 16512, 32768]
STAGE_1_IN_ORDER = [32768, 16640, 16384, 16512, 16512, 16384, 16512, 16512, 16384, 16512, 32768]
BOUNDARY = [("all_reduce", 1, "uint8"), ("all_reduce", 1, "fp32"), ("all_gather", 213888, "bf16")]


def collectives(step: Step) -> list[tuple[str, int, str]]:
    works = [op.work for op in step.ops if isinstance(op.work, Collective)]
    return [(work.kind, work.elements, work.dtype) for work in works]


def step_of(strategy: Strategy, ranks: int = 2, **training: Any) -> Step:
    return build(strategy, toy(), toy_training(**training), ranks)[0]


def zero(stage: int, **keys: Any) -> DeepSpeed:
    return DeepSpeed(zero=replace(Zero(stage=stage, reduce_bucket_size=20_000), **keys))  # type: ignore[arg-type]  # a test's row, checked by the class


def reduced(sizes: list[int]) -> list[tuple[str, int, str]]:
    return [("all_reduce", size, "bf16") for size in sizes]


# --- stages 0, 1, 2 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_stage_2_reduces_every_micro_step(overlap: bool, accumulation: int) -> None:
    step = step_of(zero(2, overlap_comm=overlap), gradient_accumulation_steps=accumulation)
    assert collectives(step) == reduced(STAGE_2) * accumulation + BOUNDARY


def test_stage_2_with_one_reduce_per_owner() -> None:
    step = step_of(zero(2, use_multi_rank_bucket_allreduce=False))
    reduces = [
        (op.work.elements, op.name) for op in step.ops if isinstance(op.work, Collective) and op.work.kind == "reduce"
    ]
    to_1, to_0 = "reduce to 1", "reduce to 0"
    assert reduces == [
        (32768, to_1), (16512, to_1), (16512, to_1), (16512, to_1), (16384, to_1), (8256, to_0), (8256, to_1),
        (16512, to_0), (16384, to_0), (16512, to_0), (16512, to_0), (32768, to_0),
    ]  # fmt: skip


@pytest.mark.parametrize(("overlap", "sizes"), [(False, STAGE_1_IN_ORDER), (True, STAGE_2)])
def test_stage_1_reduces_at_the_boundary(overlap: bool, sizes: list[int]) -> None:
    step = step_of(zero(1, overlap_comm=overlap), gradient_accumulation_steps=3)
    assert collectives(step) == reduced(sizes) + BOUNDARY
    assert {op.micro_batch for op in step.ops if op.reduces} == {2}


def test_bf16_optimizer_reduces_once_in_the_model_dtype() -> None:
    step = step_of(replace(zero(1), grad_accum_dtype="fp32"), gradient_accumulation_steps=2)
    assert collectives(step) == [("all_reduce", 213888, "bf16"), ("all_gather", 213888, "bf16")]


def test_stage_0_reduces_everything_at_once() -> None:
    assert collectives(step_of(zero(0))) == reduced([213888])


def test_reduce_scatter_false_changes_no_size() -> None:
    assert collectives(step_of(zero(2, reduce_scatter=False))) == reduced(STAGE_2) + BOUNDARY


# --- stage 3 -------------------------------------------------------------------------------------------------------

CASES = {
    "P": "0:E 1:q0+o0+f0 2:g0+q1+o1 3:f1+g1 4:q2+o2+f2 5:g2+Hd -Hd -g2 -f2 -o2 -q2 -g1 -f1 -o1 -q1 -g0 -f0 -o0 -q0",
    "Q": "0:E 1:q0+o0 -E 2:f0 3:g0 4:q1 -q0 5:o1+f1 -o0 -f0 8:g1 -g0 9:q2 -q1 12:o2+f2 -o1 -f1 15:g2 -g1 16:Hd -q2 -o2 "
    "-f2 22:f2 -Hd 27:q2+o2 28:g1 -g2 30:f1 -f2 31:q1+o1 -o2 -q2 34:g0 -g1 37:f0 -f1 38:q0+o0 -o1 -q1 41:E -g0 -f0 -o0 "
    "-q0",
    "R": "0:E 1:q0+o0 -E 2:f0 3:g0 4:q1+o1 -q0 5:f1 -o0 6:g1 7:q2+o2 -f0 8:f2 -g0 9:g2 10:Hd 11:g0 12:f0 13:q0+o0 14:E "
    "-Hd -g2 -f2 -o2 -q2 -g1 -f1 -o1 -q1 -g0 -f0 -o0 -q0",
    "S": "0:E 1:q0+o0 -E 2:f0 3:g0 4:q1 -q0 5:o1+f1 -o0 -f0 8:g1 -g0 9:q2 -q1 12:o2+f2 -o1 -f1 15:g2 -g1 16:Hd -q2 -o2 "
    "-f2 22:q2 -Hd 27:o2+f2 28:g1 -g2 37:q1 -f2 38:o1+f1 -o2 -q2 41:g0 -g1 51:q0 -f1 52:o0+f0 -o1 -q1 55:E -g0 -f0 -o0 "
    "-q0",
}
KNOBS: dict[str, dict[str, Any]] = {
    "P": {"prefetch_bucket_size": 30_000},
    "Q": {"prefetch_bucket_size": 14_000, "max_live_parameters": 60_000, "max_reuse_distance": 0},
    "R": {"prefetch_bucket_size": 14_000, "max_live_parameters": 1_000_000, "max_reuse_distance": 40_000},
    "S": {"prefetch_bucket_size": 14_000, "max_live_parameters": 60_000, "max_reuse_distance": 0},
}
LETTERS = {"qkv": "q", "o": "o", "fc1": "f", "fc2": "g"}


def letter(name: str) -> str:
    module = name.removesuffix(".weight")
    if module in {"emb", "head"}:
        return {"emb": "E", "head": "Hd"}[module]
    block, leaf = module.split(".")
    return LETTERS[leaf] + block[1:]


def plan_of(*, checkpointing: str = "none", reentrant: bool = False, **knobs: Any) -> tuple[Plan, str]:
    """The plan of one micro-step and its events as one line: `i:X` a gather at visit i, `-X` a release."""
    training = toy_training(activation_checkpointing=checkpointing, reentrant=reentrant)
    network = compile_network(toy(), training)
    events = [event for part in micro_step(network, training) for event in part]
    plan = plan_fetches(events, network.numels, Zero(stage=3, param_persistence_threshold=100, **knobs))
    line: list[str] = []
    visits, releases = iter(enumerate(plan.visits)), iter(plan.releases)
    for event in events:
        if event.kind == PRE:
            number, visit = next(visits)
            gathers = [plan.gathers[gather] for gather in (*visit.demanded, *visit.prefetched)]
            line += [f"{number}:" + "+".join(letter(network.names[p]) for p in members) for members in gathers]
        elif event.kind == POST:
            line += [f"-{letter(network.names[p])}" for p in next(releases)]
    return plan, " ".join(line)


@pytest.mark.parametrize("case", CASES)
def test_stage_3_gathers_and_releases(case: str) -> None:
    plan, line = plan_of(checkpointing="full" if case == "S" else "none", **KNOBS[case])
    assert line == CASES[case]
    assert len(plan.visits) == (71 if case == "S" else 50)


def test_stage_3_checkpointing_with_reuse_60000_is_identical() -> None:
    _, line = plan_of(checkpointing="full", **{**KNOBS["S"], "max_reuse_distance": 60_000})
    assert line == CASES["S"]


@pytest.mark.parametrize(
    ("checkpointing", "reentrant", "total", "backward"),
    [("none", False, 425_984, 212_992), ("full", False, 524_288, 311_296), ("full", True, 573_440, 360_448)],
)
@pytest.mark.parametrize("off", [{"prefetch_bucket_size": 0}, {"max_live_parameters": 0}])
def test_stage_3_without_prefetch_gathers_again(
    checkpointing: str, reentrant: bool, total: int, backward: int, off: dict[str, Any]
) -> None:
    plan, _ = plan_of(checkpointing=checkpointing, reentrant=reentrant, max_reuse_distance=0, **off)
    numels = compile_network(toy(), toy_training()).numels
    gathered = [sum(numels[p] for g in (*v.demanded, *v.prefetched) for p in plan.gathers[g]) for v in plan.visits]
    assert sum(gathered) == total
    assert sum(gathered[25:]) == backward  # the forward has 25 visits


@pytest.mark.parametrize(
    ("reentrant", "block"),
    [
        (False, "g{k} q{k} -q{k} o{k} -o{k} f{k} -f{k} -g{k} f{k} -f{k} o{k} -o{k} q{k} -q{k}"),  # case T
        (True, "q{k} -q{k} o{k} -o{k} f{k} -f{k} g{k} -g{k} g{k} -g{k} f{k} -f{k} o{k} -o{k} q{k} -q{k}"),  # case U
    ],
)
def test_stage_3_checkpointing_without_prefetch_or_reuse(reentrant: bool, block: str) -> None:
    _, line = plan_of(checkpointing="full", reentrant=reentrant, prefetch_bucket_size=0, max_reuse_distance=0)
    forward = ["E -E", *(f"q{k} -q{k} o{k} -o{k} f{k} -f{k} g{k} -g{k}" for k in range(3)), "Hd -Hd"]
    backward = ["Hd -Hd", *(block.format(k=k) for k in (2, 1, 0)), "E"]
    assert [event.partition(":")[2] or event for event in line.split()] == " ".join([*forward, *backward]).split()


@pytest.mark.parametrize(
    ("bucket", "sizes"),
    [
        (20_000, [32768, 16512, 16512, 16512, 16384, 16512, 16512, 16384, 16512, 16512, 32768]),
        (60_000, [49280, 49408, 49408, 33024, 32768]),
    ],
)
def test_stage_3_reduce_scatters(bucket: int, sizes: list[int]) -> None:
    knobs: dict[str, Any] = {"param_persistence_threshold": 100, "prefetch_bucket_size": 30_000}
    step = step_of(DeepSpeed(zero=Zero(stage=3, reduce_bucket_size=bucket, overlap_comm=True, **knobs)))
    issued = collectives(step)
    assert [size for kind, size, _ in issued if kind == "reduce_scatter"] == sizes
    assert issued[-15:] == [("all_reduce", 1, "fp64")] + [("all_gather", 64, "bf16")] * 14


# --- DDP -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "sizes"),
    [
        (None, [8388608, 29380608, 16785408]),
        (4, [8388608, 4198400, 4194304, 4198400, 4198400, 4194304, 4198400, 4198400, 4194304, 4198400, 8392704]),
    ],
)
def test_ddp_buckets(cap: float | None, sizes: list[int]) -> None:
    step = build(Ddp(bucket_cap_mb=cap), toy(512, 4096), toy_training(), 2)[0]
    assert [4 * elements for kind, elements, _ in collectives(step) if kind == "all_reduce"] == sizes


def test_ddp_has_one_bucket_in_the_first_iteration() -> None:
    step = build(Ddp(first_iteration=True), toy(512, 4096), toy_training(), 2)[0]
    assert [4 * elements for kind, elements, _ in collectives(step) if kind == "all_reduce"] == [54_554_624]
