"""Derived vectors at real size: Llama-2-7B under stage 3 (gathers) and stages 2 and 3 (reductions)."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from zerosim.spec.model_file import catalogue_model
from zerosim.spec.strategy import DeepSpeed, Zero
from zerosim.spec.training import Training
from zerosim.strategies import build
from zerosim.strategies.events import micro_step
from zerosim.strategies.fetch import plan_fetches
from zerosim.strategies.network import compile_network

MODEL = catalogue_model("llama-2-7b")
PERSISTENT = 266_240  # 65 norms of 4096


class Row(NamedTuple):
    prefetch: int
    live: int
    reuse: int
    checkpointing: str
    gathers: int
    elements: int
    peak: int


ROWS = (
    Row(50_000_000, 10**9, 10**9, "none", 395, 12_490_637_312, 1_126_436_864),
    Row(50_000_000, 10**9, 10**9, "full", 314, 12_490_637_312, 1_126_436_864),
    Row(15_099_494, 10**9, 10**9, "none", 422, 12_490_637_312, 1_126_436_864),
    Row(15_099_494, 10**9, 10**9, "full", 422, 12_490_637_312, 1_126_436_864),
    Row(15_099_494, 10**9, 0, "none", 422, 12_490_637_312, 1_126_436_864),
    Row(15_099_494, 10**9, 0, "full", 422, 12_490_637_312, 1_126_436_864),
    Row(500_000_000, 10**9, 10**9, "none", 385, 12_490_637_312, 1_126_436_864),
    Row(50_000_000, 3 * 10**9, 3 * 10**9, "none", 213, 10_511_974_400, 3_121_876_992),
    Row(0, 10**9, 10**9, "none", 439, 12_974_030_848, 502_534_144),
    Row(0, 10**9, 10**9, "full", 443, 13_097_762_816, 378_802_176),
    Row(50_000_000, 0, 0, "none", 452, 13_476_298_752, 131_338_240),
    Row(50_000_000, 0, 0, "full", 644, 18_509_463_552, 131_338_240),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.prefetch}-{row.live}-{row.reuse}-{row.checkpointing}")
def test_gathers_of_one_micro_step(row: Row) -> None:
    training = Training(2048, activation_checkpointing=row.checkpointing)  # type: ignore[arg-type]  # a test's row, checked by the class
    network = compile_network(MODEL, training)
    events = [event for part in micro_step(network, training) for event in part]
    knobs = {"prefetch_bucket_size": row.prefetch, "max_live_parameters": row.live, "max_reuse_distance": row.reuse}
    plan = plan_fetches(events, network.numels, Zero(stage=3, **knobs))  # type: ignore[arg-type]  # a test's row, checked by the class
    assert sum(network.numels[p] for p in plan.persistent) == PERSISTENT
    gathered = sum(network.numels[p] for gather in plan.gathers for p in gather)
    assert (len(plan.gathers), gathered, plan.peak_elements) == (row.gathers, row.elements, row.peak)


class Reductions(NamedTuple):
    bucket: int
    number: int
    first: list[int]
    last: list[int]
    largest: int


REDUCTIONS = (
    Reductions(
        500_000_000,
        14,
        [485507072, 455102464, 494944256, 483414016, 483414016],
        [471879680, 494944256, 445661184],
        494948352,
    ),
    Reductions(
        200_000_000,
        39,
        [176164864, 157294592, 185602048, 185606144, 185606144],
        [157294592, 185602048, 147853312],
        185606144,
    ),
    Reductions(
        50_000_000,
        162,
        [131072000, 45092864, 45088768, 45092864, 33554432],
        [33554432, 33558528, 131072000],
        131072000,
    ),
    Reductions(
        16_777_216,
        291,
        [131072000, 4096, 45088768, 45088768, 45088768],
        [16777216, 4096, 131072000],
        131072000,
    ),
)


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("row", REDUCTIONS, ids=lambda row: str(row.bucket))
def test_reductions_of_one_micro_step(stage: int, row: Reductions) -> None:
    zero = Zero(stage=stage, reduce_bucket_size=row.bucket, overlap_comm=True)  # type: ignore[arg-type]  # a test's row, checked by the class
    step = build(DeepSpeed(zero=zero), MODEL, Training(2048), 8)[0]
    sizes = [sum(piece.stop - piece.start for piece in op.reduces) for op in step.ops if op.reduces]
    assert sum(sizes) == MODEL.numel
    small = row.bucket == 16_777_216
    if small and stage == 2:
        return  # oversized gradients that cross a partition border are split there
    assert (len(sizes), sizes[:5], sizes[-3:], max(sizes)) == row[1:]
    if small:
        assert sum(size > row.bucket for size in sizes) == 98
        assert sum(size == row.bucket for size in sizes) == 128
