"""Eager and fused attention: passes over the scores counted by hand, and what they keep."""

from __future__ import annotations

from typing import Any

import pytest

from zerosim.spec.architectures.parts import Scope
from zerosim.spec.model import Function
from zerosim.spec.training import Training
from zerosim.step import Attention, Pass
from zerosim.strategies.kernels import work_of
from zerosim.strategies.work import Work, shape_of

HEADS, SEQUENCE, WIDTH = 4, 128, 16
SCORES = HEADS * SEQUENCE**2


def attention(dropout: float = 0.0, fp32_softmax: bool = False, **training: Any) -> Work:
    core: Function = Scope("").attention(HEADS, HEADS, WIDTH, fp32_softmax=fp32_softmax, dropout=dropout)
    settings = {"attention": "eager", "precision": "fp16", **training}
    return work_of(core, shape_of(Training(SEQUENCE, **settings)), 2)


def score_bytes(work: Work, direction: str) -> float:
    kernels = getattr(work, direction)
    return sum(kernel.work.hbm_bytes for kernel in kernels if isinstance(kernel.work, Pass)) / SCORES


def test_eager_passes_scale_mask_and_softmax() -> None:
    assert score_bytes(attention(), "forward") == 4 + 6 + 4
    assert score_bytes(attention(fp32_softmax=True), "forward") == 4 + 6 + (2 + 4) + 8 + (4 + 2)


def test_a_fused_softmax_passes_once() -> None:
    work = attention(kernels="fused")
    assert score_bytes(work, "forward") == 4
    assert score_bytes(work, "backward") == 6


@pytest.mark.parametrize("kernels", ["eager", "fused"])
def test_dropout_of_probabilities_is_a_pass_and_a_mask(kernels: str) -> None:
    plain, drops = attention(kernels=kernels), attention(0.1, kernels=kernels)
    for direction in ("forward", "backward"):
        assert score_bytes(drops, direction) == score_bytes(plain, direction) + 5
    assert drops.saved == plain.saved + 3 * SCORES  # 5 a s^2 b in all: Korthikanti 2022, section 4.1


def test_selective_checkpointing_keeps_no_score_and_computes_them_again() -> None:
    kept, again = attention(0.1), attention(0.1, activation_checkpointing="selective")
    assert again.saved == 3 * HEADS * SEQUENCE * WIDTH * 2
    assert score_bytes(again, "backward") == score_bytes(kept, "forward") + score_bytes(kept, "backward")


@pytest.mark.parametrize("kernel", ["flash1", "flash", "flash3"])
def test_flash_kernels_write_no_scores(kernel: str) -> None:
    work = attention(0.1, attention=kernel)
    assert all(isinstance(each.work, Attention) and each.work.kernel == kernel for each in work.forward + work.backward)
