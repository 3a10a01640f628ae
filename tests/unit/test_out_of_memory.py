"""Running out of memory is an answer: where, by how much, what was held, and a change that makes it fit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from zerosim import Finding, Scenario, Simulation, load, simulate
from zerosim.spec.strategy import DeepSpeed, Zero

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "seven-b"
CHANGES = {
    "ddp": (),
    "zero1": ("training.micro_batch_size=4", "training.activation_checkpointing=none"),
    "zero2": ("strategy.deepspeed.zero_optimization.reduce_bucket_size=14e9",),
}


def scenario(name: str) -> Scenario:
    """A scenario of the 7B study that does not fit, with two micro-steps."""
    return load(SCENARIOS / f"{name}.yaml", ("training.gradient_accumulation_steps=2", *CHANGES[name]))


@cache
def overfull(name: str) -> Simulation:
    return simulate(scenario(name))


def finding(name: str) -> Finding:
    (found,) = [each for each in overfull(name).summary().findings if each.code == "out-of-memory"]
    return found


def at_stage(question: Scenario, stage: Any) -> Scenario:
    given = question.strategy
    config = given if isinstance(given, DeepSpeed) else DeepSpeed(zero=Zero(overlap_comm=True))
    return question.replace(strategy=replace(config, zero=replace(config.zero, stage=stage)))


def test_ddp_of_7_billion_does_not_fit_and_is_played_all_the_same() -> None:
    summary = overfull("ddp").summary()
    assert not summary.fits
    assert summary.step_seconds > 0
    assert sum(summary.phases.values()) == pytest.approx(summary.step_seconds)


def test_the_peak_names_its_op_and_its_parts_sum_to_it() -> None:
    """In the second forward gradients and all autocast copies are there: 20 Ψ bytes, and 2 of each matrix."""
    question, gpu = scenario("ddp"), overfull("ddp").summary().memory["gpu"]
    peak = gpu.peak_at
    assert (peak.op, peak.phase, peak.micro_batch) == ("loss fwd", "forward", 1)
    numel = question.model.numel
    matrices = sum(parameter.numel for parameter in question.model.parameters[1:] if len(parameter.shape) == 2)
    assert (gpu.optimizer_bytes, gpu.gradients_bytes, gpu.buffers_bytes) == (8 * numel, 4 * numel, 4 * numel)
    assert gpu.parameters_bytes == 4 * numel + 2 * matrices
    parts = gpu.parameters_bytes + gpu.gradients_bytes + gpu.optimizer_bytes + gpu.activations_bytes
    assert gpu.peak_bytes == pytest.approx(parts + gpu.buffers_bytes + gpu.overhead_bytes)
    assert sum(held.bytes for held in gpu.held) == pytest.approx(gpu.peak_bytes - gpu.overhead_bytes, rel=1e-3)
    assert [(held.name, held.count) for held in gpu.held[:2]] == [("optimizer states", 1), ("gradient", 291)]


def test_the_finding_says_tier_op_excess_and_what_was_held() -> None:
    found = finding("ddp")
    assert found.severity == "error"
    told = (
        "gpu: 157.6 GB",
        "at loss fwd",
        "72.59 GB more than the 85.04 GB",
        "optimizer 55.92 GB, parameters 41.68 GB",
    )
    assert [part for part in told if part not in found.message] == []


@pytest.mark.parametrize("stage", [2, 3])
def test_a_stage_proposed_to_ddp_fits(stage: int) -> None:
    assert f"ZeRO stage {stage}" in finding("ddp").remedy
    assert simulate(at_stage(scenario("ddp"), stage)).summary().fits


@pytest.mark.parametrize(
    ("remedy", "training"),
    [
        ("full activation checkpointing (saves", {"activation_checkpointing": "full"}),
        ("micro-batch 2 (saves", {"micro_batch_size": 2}),
    ],
)
def test_less_activations_fit_where_activations_are_too_many(remedy: str, training: dict[str, Any]) -> None:
    assert remedy in finding("zero1").remedy
    assert simulate(scenario("zero1").replace(training=training)).summary().fits


@pytest.mark.parametrize("stage", [2, 3])
def test_a_higher_stage_proposed_to_a_lower_one_fits(stage: int) -> None:
    assert f"ZeRO stage {stage} (saves" in finding("zero1").remedy
    assert simulate(at_stage(scenario("zero1"), stage)).summary().fits


def test_smaller_buckets_fit_where_buckets_are_too_large() -> None:
    assert "smaller buckets, by 6.711B elements" in finding("zero2").remedy
    question = scenario("zero2")
    assert isinstance(question.strategy, DeepSpeed)
    smaller = replace(question.strategy.zero, reduce_bucket_size=14_000_000_000 - 6_711_000_000)
    assert simulate(question.replace(strategy=replace(question.strategy, zero=smaller))).summary().fits


def test_a_stage_that_is_in_use_is_not_proposed() -> None:
    """On two GPUs half of the states and the optimizer's temporaries are as much as the whole states would be."""
    question = load(SCENARIOS / "zero1.yaml", ("training.gradient_accumulation_steps=2", "gpus=2"))
    summary = simulate(question).summary()
    (found,) = [each for each in summary.findings if each.code == "out-of-memory"]
    assert summary.memory["gpu"].optimizer_bytes > 8 * question.model.numel
    assert "ZeRO stage 1" not in found.remedy
    assert "twice as many GPUs" in found.remedy
