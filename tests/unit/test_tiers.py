"""The same step in HBM, DRAM and NVMe: what is moved by the table of bytes, and what larger batches make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zerosim.report.tiers import render_amortised, render_tiers
from zerosim.scenario import Scenario, from_mapping, load
from zerosim.simulation import simulate
from zerosim.studies.tiers import amortised, tiers

ROOT = Path(__file__).parents[2]
WIDE = {"layers": 2, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 4096}  # shards of 2 million elements and more


def scenario(stage: int = 3, accumulation: int = 2, **more: Any) -> Scenario:
    training = {"sequence_length": 512, "gradient_accumulation_steps": accumulation}
    strategy = {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}}
    return from_mapping({"topology": "dgx-a100-80", "model": WIDE, "training": training, "strategy": strategy} | more)


def test_placements_of_a_machine_with_drives() -> None:
    rungs = tiers(scenario())
    assert [(rung.optimizer, rung.parameters) for rung in rungs] == [
        ("HBM", "HBM"), ("DRAM", "HBM"), ("DRAM", "DRAM"), ("NVMe", "HBM"), ("NVMe", "DRAM"), ("NVMe", "NVMe"),
    ]  # fmt: skip
    assert rungs[0].relative_throughput == 1.0
    assert rungs[0].dram_bytes == rungs[0].nvme_bytes == 0


def test_stages_1_and_2_offload_to_host_memory_only() -> None:
    assert [rung.optimizer for rung in tiers(scenario(stage=2))] == ["HBM", "DRAM"]


def test_tiers_below_mics_say_that_they_are_without_it() -> None:
    zero = {"stage": 3, "mics_shard_size": 4}
    strategy = {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}}
    rungs = tiers(scenario(strategy=strategy, versions={"deepspeed": "0.14.5"}))
    assert [rung.reason.startswith("without MiCS; ") for rung in rungs] == [False, *[True] * 5]


def test_a_machine_without_drives_has_no_rung_on_them() -> None:
    node = {
        "gpus": {"device": "a100_sxm_80", "count": 2},
        "pcie": {"generation": 4, "lanes": 16},
        "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB", "bandwidth": "204.8 GB/s"}}],
    }
    rungs = tiers(scenario(topology={"name": "plain", "node": node}))
    assert [(rung.optimizer, rung.parameters) for rung in rungs] == [("HBM", "HBM"), ("DRAM", "HBM"), ("DRAM", "DRAM")]


def test_bytes_moved_are_those_of_the_table() -> None:
    """A parameter of the partition, n = 2 micro-steps: 2n + 4 down; 2n + 2 up, or 2Gn with the parameters in DRAM."""
    given = scenario()
    by_place = {(rung.optimizer, rung.parameters): rung.moved for rung in tiers(given)}
    shard = given.model.numel / 8  # every parameter divides by eight
    assert by_place["HBM", "HBM"].gpu_to_dram_bytes == 0
    offloaded = by_place["DRAM", "HBM"]
    assert offloaded.gpu_to_dram_bytes == pytest.approx(8 * shard)
    assert offloaded.dram_to_gpu_bytes == pytest.approx(6 * shard)
    swapped = by_place["NVMe", "HBM"]
    assert swapped.nvme_write_bytes == pytest.approx(16 * shard, rel=0.01)  # small shards stay in memory
    assert swapped.nvme_read_bytes == pytest.approx(16 * shard, rel=0.01)


def test_the_rung_of_the_scenario_is_the_scenario() -> None:
    rungs = tiers(load(ROOT / "scenarios/seven-b/zero3-offload.yaml", ["training.gradient_accumulation_steps=1"]))
    given = simulate(load(ROOT / "scenarios/seven-b/zero3-offload.yaml", ["training.gradient_accumulation_steps=1"]))
    assert rungs[1].step_seconds == pytest.approx(given.makespan)
    assert [rung.step_seconds for rung in rungs] == pytest.approx(sorted(rung.step_seconds for rung in rungs), rel=0.1)


def test_each_tier_below_is_slower_and_frees_the_one_above() -> None:
    hbm, dram, _, nvme, *_ = tiers(scenario())
    assert hbm.gpu_bytes > dram.gpu_bytes
    assert hbm.step_seconds < dram.step_seconds < nvme.step_seconds
    assert nvme.nvme_bytes > 0


def test_larger_batches_spread_the_cost_of_the_optimizer() -> None:
    points = amortised(scenario(), accumulations=[1, 4, 16])
    share = [point.relative_throughput for point in points if (point.optimizer, point.parameters) == ("DRAM", "HBM")]
    assert share == sorted(share)
    assert share[0] < 0.7 * share[-1]
    micro_batches = amortised(scenario(accumulation=1), micro_batches=[1, 8])
    share = [p.relative_throughput for p in micro_batches if (p.optimizer, p.parameters) == ("NVMe", "HBM")]
    assert share[0] < share[1] < 1


def test_the_tables_say_what_the_rows_say() -> None:
    given = scenario()
    text = render_tiers([rung.as_json() for rung in tiers(given)])
    assert "NVMe, NVMe  " in text
    assert max(map(len, text.splitlines())) <= 100
    curve = render_amortised([point.as_json() for point in amortised(given, [1, 2])])
    assert curve.splitlines()[1].split("  ")[0] == "optimizer, params"
    assert [line.count(" x ") for line in curve.splitlines()[:2]] == [1, 2]  # the head, and a column for each batch
    narrow = render_amortised([point.as_json() for point in amortised(given, [1, 2, 3])], width=40)
    assert max(map(len, narrow.splitlines()[1:])) <= 40


def test_what_fits_is_what_others_are_compared_with() -> None:
    """80 GB hold 2 x 8 bytes of 6.4e9 parameters, not 16 of them: HBM is out on one GPU."""
    big = {"layers": 8, "hidden": 8192, "heads": 64, "ffn": 28672, "vocab": 4096}
    rungs = tiers(scenario(model=big, gpus=1, accumulation=1))
    assert [rung.fits for rung in rungs[:2]] == [False, True]
    assert rungs[1].relative_throughput == 1.0
    assert "fastest that fits: DRAM" in render_tiers([rung.as_json() for rung in rungs])
