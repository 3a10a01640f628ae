"""Kernels: published matrix products, and times computed by hand."""

from __future__ import annotations

import pytest

from tests.costs_machines import machine, priced, seconds, switched
from zerosim.resources import Demand
from zerosim.spec.topology import Topology
from zerosim.step import Attention, Matmul, Pass


@pytest.fixture(scope="module")
def a100() -> Topology:
    return switched("a100_sxm_80", 1)


@pytest.fixture(scope="module")
def alone() -> Topology:
    """The same where nothing but the shape of a product limits it, as in a benchmark of it alone."""
    return machine({"device": "a100_sxm_80", "sustained": 0.869}, 1)


def one(topology: Topology, work: Matmul | Attention | Pass) -> Demand:
    return priced(topology, work).demands["all"][0]


def tflops(topology: Topology, shape: tuple[int, int, int, int]) -> float:
    work = Matmul((shape,), "bf16")
    return work.flops / seconds(topology, work) / 1e12


@pytest.mark.parametrize(
    ("shape", "model", "measured"),
    [
        ((1, 8192, 4096, 12288), 250.1, 241.6),
        ((1, 8192, 4096, 4096), 241.2, 234.9),
        ((1, 8192, 4096, 16384), 254.5, 241.1),
        ((1, 8192, 16384, 4096), 252.9, 252.8),
        ((1, 8192, 4096, 51200), 254.1, 255.4),
        ((64, 2048, 256, 2048), 134.8, 130.2),
        ((64, 2048, 2048, 256), 227.1, 219.0),
        ((1, 1024, 1024, 1024), 57.4, 59.9),
        ((1, 1024, 1280, 1024), 60.9, 69.0),
        ((1, 1024, 1536, 1024), 63.4, 52.4),
        ((1, 1024, 1792, 1024), 65.4, 63.3),
        ((128, 1024, 1024, 1024), 215.9, 227.3),
        ((128, 1024, 2048, 1024), 240.2, 243.3),
    ],
)
def test_published_products_of_an_a100(
    alone: Topology, shape: tuple[int, int, int, int], model: float, measured: float
) -> None:
    found = tflops(alone, shape)  # EleutherAI/cookbook benchmarks/sizing; `model` is what 4 us, K0 256 and tiles give
    assert found == pytest.approx(model, rel=0.01)
    assert found == pytest.approx(measured, rel=0.22)


def test_a_product_on_a_hopper_gpu() -> None:
    alone = machine({"device": "h200_sxm", "sustained": 0.803}, 1)
    assert tflops(alone, (1, 8192, 8192, 8192)) == pytest.approx(774, rel=0.01)  # measured 769-798


def test_products_of_a_step_are_held_below_the_best_found(a100: Topology) -> None:
    assert tflops(a100, (1, 8192, 8192, 8192)) == pytest.approx(0.68 * 312, rel=0.01)
    assert tflops(a100, (1, 1024, 1024, 1024)) == pytest.approx(57.4, rel=0.01)  # far below it: as alone


def test_a_limit_of_power_slows_products_by_its_cube_root_and_nothing_else(a100: Topology) -> None:
    limited = machine({"device": "a100_sxm_80", "power": "200 W"}, 1)
    large = (1, 8192, 8192, 8192)
    assert tflops(limited, large) == pytest.approx(0.68 * 312 * 0.5 ** (1 / 3), rel=0.01)
    assert seconds(limited, Pass(1e9, "stream")) == seconds(a100, Pass(1e9, "stream"))
    generous = machine({"device": "a100_sxm_80", "power": "600 W"}, 1)
    assert tflops(generous, large) == pytest.approx(tflops(a100, large))


def test_a_product_by_hand(a100: Topology) -> None:
    work = Matmul(((1, 256, 256, 128),), "bf16")  # one tile: one wave of 108 SMs, K + K0 = 512
    arithmetic = 108 * 2 * 256 * 128 * 512 / (0.869 * 312e12)
    assert seconds(a100, work) == pytest.approx(4e-6 + arithmetic, rel=1e-6)


def test_products_in_a_row_add_up(a100: Topology) -> None:
    shapes = ((1, 4096, 4096, 4096), (1, 4096, 1, 4096), (64, 128, 64, 128))
    apart = sum(seconds(a100, Matmul((shape,), "bf16")) for shape in shapes)
    assert seconds(a100, Matmul(shapes, "bf16")) == pytest.approx(apart)


def test_a_deep_product_with_few_tiles_is_cut_in_its_depth(alone: Topology) -> None:
    """3 x 6 tiles for 108 SMs: six parts of 5,000 are one wave, and their fp32 sums pass the memory twice."""
    work = Matmul(((1, 768, 30_000, 768),), "bf16")
    arithmetic = 108 * 2 * 256 * 128 * (30_000 / 6 + 256) / (0.869 * 312e12)
    sums = 2 * 6 * 4 * 768 * 768 / (0.88 * 2039e9)
    assert seconds(alone, work) == pytest.approx(4e-6 + arithmetic + sums, rel=1e-6)


def test_a_product_with_tiles_for_every_sm_is_not_cut(alone: Topology) -> None:
    """9 x 12 tiles fill 108 SMs."""
    arithmetic = 108 * 2 * 256 * 128 * (30_000 + 256) / (0.869 * 312e12)
    assert seconds(alone, Matmul(((1, 9 * 256, 30_000, 12 * 128),), "bf16")) == pytest.approx(4e-6 + arithmetic)


def test_a_thin_product_waits_for_memory(a100: Topology) -> None:
    demand = one(a100, Matmul(((1, 1, 8192, 8192),), "bf16"))
    moved = 2 * (8192 + 8192 * 8192 + 8192)
    assert demand.uses[1].amount == moved
    assert demand.alone(priced(a100).supply) == pytest.approx(4e-6 + moved / (0.88 * 2039e9))


def test_fp32_products_do_without_tf32(a100: Topology) -> None:
    shape = ((1, 8192, 8192, 8192),)
    ratio = seconds(a100, Matmul(shape, "fp32")) / seconds(a100, Matmul(shape, "bf16"))
    assert ratio == pytest.approx(0.68 * 312 / (0.89 * 19.5) * (1 + 256 / 8192), rel=0.01)  # without the tensor cores
    assert any("TF32" in note for note in priced(a100, Matmul(shape, "fp32")).notes)


def test_fp32_products_reach_what_the_user_says() -> None:
    shape = ((1, 8192, 8192, 8192),)
    known, half = (machine({"device": "a100_sxm_80", **more}, 1) for more in ({}, {"matmul_efficiency": 0.5}))
    ratio = seconds(half, Matmul(shape, "fp32")) / seconds(known, Matmul(shape, "fp32"))
    assert ratio == pytest.approx(0.89 / 0.5, rel=1e-3)


def test_bf16_on_a_v100_runs_at_the_fp32_rate() -> None:
    v100 = switched("v100_sxm2_32", 1)
    shape = ((1, 8192, 8192, 8192),)
    assert seconds(v100, Matmul(shape, "bf16")) == pytest.approx(seconds(v100, Matmul(shape, "fp32")), rel=0.01)
    assert priced(v100, Matmul(shape, "bf16")).notes == (
        "V100-SXM2-32GB has no bf16 arithmetic; it is priced at the fp32 rate",
    )
    assert not priced(v100, Matmul(shape, "fp16")).notes


def test_a_throttled_gpu_has_fewer_flops_and_all_its_memory() -> None:
    slow = machine("a100_sxm_80", 1, overrides=[{"gpu": "0.0", "compute": 0.5}])
    product, copy = Matmul(((1, 8192, 8192, 8192),), "bf16"), Pass(1e9, "stream")
    fast = machine("a100_sxm_80", 1)
    assert seconds(slow, product) - 4e-6 == pytest.approx(2 * (seconds(fast, product) - 4e-6))
    assert seconds(slow, copy) == seconds(fast, copy)
    assert priced(slow).supply.rates["sm"] == 156e12


def test_attention_grows_towards_a_share_of_the_peak(a100: Topology) -> None:
    work = Attention(1, 32, 2048, 2048, 128, True, False, "bf16")
    rate = 0.55 * 312e12 * 2048 / (2048 + 330)
    assert seconds(a100, work) == pytest.approx(4e-6 + 0.5 * 4 * 32 * 2048**2 * 128 / rate)


def test_the_forward_of_flash_attention_3_is_as_measured_less_what_a_step_loses() -> None:
    h100 = switched("h100_sxm", 1)
    for sequence, measured in ((512, 430), (1024, 517), (2048, 566), (4096, 590), (8192, 614), (16384, 621)):
        work = Attention(16384 // sequence, 16, sequence, sequence, 128, False, False, "bf16", "flash3")
        rate = work.flops / seconds(h100, work) / 1e12
        assert rate == pytest.approx(0.77 * measured, rel=0.04)  # pytorch/benchmark PR 2391


@pytest.mark.parametrize("gpu", ["a100_sxm_80", "h100_sxm", "b200_sxm", "v100_sxm2_32", "mi300x"])
def test_newer_attention_kernels_are_not_slower(gpu: str) -> None:
    topology = switched(gpu, 1)
    times = [
        seconds(topology, Attention(1, 16, 8192, 8192, 128, True, True, "fp16", kernel))
        for kernel in ("flash1", "flash", "flash3")
    ]
    assert times == sorted(times, reverse=True)


def test_tf32_products_are_slower_than_16_bit_ones(a100: Topology) -> None:
    shape = ((1, 8192, 8192, 8192),)
    assert seconds(a100, Matmul(shape, "tf32")) == pytest.approx(2 * seconds(a100, Matmul(shape, "bf16")), rel=0.01)


def test_passes_are_bytes_over_bandwidth_or_gaps(a100: Topology) -> None:
    assert seconds(a100, Pass(1e9, "stream")) == pytest.approx(1e9 / (0.88 * 2039e9))
    assert seconds(a100, Pass(1e9, "reduction")) == pytest.approx(1e9 / (0.70 * 2039e9))
    assert seconds(a100, Pass(30e9, "adam")) == pytest.approx(30e9 / (0.80 * 2039e9))  # 1 G parameters: 18 ms
    assert seconds(a100, Pass(1000, "stream", kernels=7)) == pytest.approx(7 * 3e-6)


def test_nothing_takes_no_resource(a100: Topology) -> None:
    assert one(a100, Pass(0, "stream", kernels=1)).uses == ()
    assert one(a100, Matmul(((0, 8, 8, 8),), "bf16")).uses == ()
