"""The 7B study: DDP and ZeRO-1 to 3 on eight A100 of 80 GB (seven-b.yaml), and what network and buckets explain."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from zerosim import Simulation, load, simulate
from zerosim.studies.ladder import ladder
from zerosim.studies.ledger import model_states
from zerosim.studies.reference import read_reference
from zerosim.studies.rung_rows import Rung
from zerosim.views import Summary

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios" / "seven-b"
MEASURED = read_reference(str(Path(__file__).parent / "seven-b.yaml"))
FITTING = ("ZeRO-1", "ZeRO-2", "ZeRO-3")
OFFLOADED, LAYERED = "ZeRO-3 + offload", "layer-wise"
BELOW = (OFFLOADED, "ZeRO-3 + offload all", "ZeRO-3 + NVMe")


@cache
def rungs() -> dict[str, Rung]:
    offloaded = load(SCENARIOS / "zero3-offload.yaml")
    return {rung.rung: rung for rung in ladder(load(SCENARIOS / "zero1.yaml"), [offloaded])}


# --- the measured rungs --------------------------------------------------------------------------------------------


def test_the_first_rung_that_fits_is_zero_1() -> None:
    """DDP keeps more than 112 GB on each GPU of 80."""
    found = rungs()
    assert list(found) == ["one GPU", "DDP", *FITTING, *BELOW, LAYERED]
    assert [rung for rung, each in found.items() if each.fits] == [*FITTING, *BELOW, LAYERED]
    assert MEASURED["DDP"]["fits"] is False
    assert found["DDP"].peak_bytes > 112e9
    assert found["ZeRO-1"].reason.startswith("first that fits")


@pytest.mark.parametrize("rung", FITTING)
def test_peak_memory_is_within_12_percent(rung: str) -> None:
    assert rungs()[rung].peak_bytes == pytest.approx(MEASURED[rung]["peak_bytes"], rel=0.12)


@pytest.mark.parametrize("rung", FITTING)
def test_relative_throughput_is_within_5_points(rung: str) -> None:
    assert rungs()[rung].relative_throughput == pytest.approx(MEASURED[rung]["relative_throughput"], abs=0.05)


def test_the_last_rung_the_optimizer_in_host_memory() -> None:
    """Measured: 14 GB, 0.70. How the processes were started and the batch are not known. The micro-batch was read off
    the 14 GB (the scenario says how), so that the peak is no prediction; the throughput is. Bands: set beforehand."""
    rung, measured = rungs()[OFFLOADED], MEASURED[OFFLOADED]
    assert rung.peak_bytes == pytest.approx(measured["peak_bytes"], rel=0.15)
    assert rung.relative_throughput == pytest.approx(measured["relative_throughput"], abs=0.08)
    assert rung.model_states_bytes == pytest.approx(2 * 7e9 / 8, rel=0.002)
    assert "CPU compute, limited by host memory" in rung.reason


def test_layers_on_eight_gpus_fit_and_are_no_quicker_than_one() -> None:
    """What people did before: an eighth of the states on each GPU, and seven of eight wait."""
    found = rungs()
    assert found[LAYERED].peak_bytes < found["ZeRO-3"].peak_bytes
    assert found[LAYERED].relative_throughput == pytest.approx(1 / 8, abs=0.03)
    assert found[LAYERED].reason.startswith("waits 8")


def test_each_stage_needs_less_memory_and_none_is_quicker_than_zero_1() -> None:
    peaks = [rungs()[rung].peak_bytes for rung in FITTING]
    assert peaks == sorted(peaks, reverse=True)
    assert max(rungs()[rung].relative_throughput or 0.0 for rung in FITTING) == 1.0


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 112.0), (1, 38.5), (2, 26.25), (3, 14.0)])
def test_the_ledger_of_model_states(stage: int, gigabytes: float) -> None:
    """16 Ψ; 4 Ψ + 12 Ψ/8; 2 Ψ + 14 Ψ/8; 16 Ψ/8, with Ψ = 7e9."""
    assert model_states(stage, 7e9, 8) == gigabytes * 1e9
    rung = ("DDP", *FITTING)[stage]
    assert rungs()[rung].model_states_bytes == pytest.approx(gigabytes * 1e9, rel=0.002)  # of 6.99e9 parameters
    assert rungs()[rung].peak_bytes > rungs()[rung].model_states_bytes


# --- a slow network ------------------------------------------------------------------------------------------------


@cache
def two_nodes(network: str) -> Summary:
    return simulate(load(SCENARIOS / f"zero3-two-nodes-{network}.yaml")).summary()


def test_zero_3_over_10_gigabit_ethernet_waits_for_the_port() -> None:
    """The global batch is the same on one node and on two, where twice the GPUs compute."""
    slow = two_nodes("10g")
    assert slow.step_seconds > 10 * rungs()["ZeRO-3"].step_seconds
    worst = slow.stalls[0]
    assert worst.cause in ("all_gather", "reduce_scatter")
    assert worst.resource == "nic"
    assert worst.label == "NIC 10 Gb/s Ethernet, one per node"
    assert slow.resources["nic"].utilization > 0.9
    (finding,) = [finding for finding in slow.findings if finding.code == "communication-bound"]
    assert worst.label in finding.message


def test_eight_ports_of_200_gigabit_hide_what_one_of_10_exposes() -> None:
    slow, fast = two_nodes("10g").communication, two_nodes("ib").communication
    assert (slow.overlap < 0.1, fast.overlap > 0.9) == (True, True)
    assert two_nodes("ib").step_seconds < 0.6 * rungs()["ZeRO-3"].step_seconds  # nearly twice as quick on two nodes


def test_what_10_gigabit_ethernet_carries_bounds_the_step() -> None:
    """A ring over 16 ranks brings 15/16 of 2 Ψ bytes through each node's port in every gather and scatter of Ψ.

    Each micro-step gathers at least twice and scatters once; nothing but the port's 1.25e9 bytes/s is assumed.
    """
    seconds = 4 * 3 * (15 / 16) * 2 * 6.99e9 / 1.25e9
    assert seconds < two_nodes("10g").step_seconds < 1.2 * seconds


# --- buckets -------------------------------------------------------------------------------------------------------

BUCKETS = (1e6, 5e7, 2e8, 5e8, 2e9, 1e10)


@cache
def bucketed(stage: int, overlap: bool, bucket: float) -> Summary:
    """One micro-step on two p4d nodes, four ports of 100 Gb/s each: a network that takes as long as the backward."""
    zero = {"stage": stage, "overlap_comm": str(overlap).lower(), "reduce_bucket_size": int(bucket)}
    return played(*(f"strategy.deepspeed.zero_optimization.{key}={value}" for key, value in zero.items())).summary()


def played(*changes: str) -> Simulation:
    machine: tuple[Any, ...] = ("topology=aws-p4d", "nodes=2", "training.gradient_accumulation_steps=1")
    return simulate(load(SCENARIOS / "zero2.yaml", (*machine, *changes)))


def test_the_bucket_curve_has_two_ends() -> None:
    steps = {bucket: bucketed(2, True, bucket).step_seconds for bucket in BUCKETS}
    best = min(BUCKETS, key=steps.__getitem__)
    assert 1e6 < best < 1e10
    assert steps[1e6] > 1.1 * steps[best]
    assert steps[1e10] > 1.1 * steps[best]
    before, after = BUCKETS[: BUCKETS.index(best) + 1], BUCKETS[BUCKETS.index(best) :]
    assert [steps[bucket] for bucket in before] == sorted((steps[bucket] for bucket in before), reverse=True)
    assert [steps[bucket] for bucket in after] == sorted(steps[bucket] for bucket in after)


def test_small_buckets_pay_latency_for_many_collectives() -> None:
    """Every tensor but the norms is larger than 1e6: 226 matrices, and the 65 norms of 4,096 in between."""
    counts = [bucketed(2, True, bucket).collectives["all_reduce"].count for bucket in BUCKETS]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 226
    assert counts[-1] == 3  # all gradients, the overflow flag, the norm
    busy = [bucketed(2, True, bucket).communication.total_seconds for bucket in BUCKETS]
    assert busy == sorted(busy, reverse=True)  # the fewer, the less time in all


def test_a_bucket_larger_than_the_model_leaves_nothing_to_hide_behind() -> None:
    whole = bucketed(2, True, 1e10).communication
    assert whole.exposed_seconds == pytest.approx(whole.total_seconds)
    assert bucketed(2, True, 2e8).communication.overlap > 0.5
    memory = [bucketed(2, True, bucket).memory["gpu"].peak_bytes for bucket in (2e8, 1e10)]
    assert memory[1] > memory[0] + 2 * 2 * (1e10 - 2e8)  # two buffers in 16 bits


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_without_overlap_more_is_exposed(stage: int) -> None:
    on, off = bucketed(stage, True, 2e8), bucketed(stage, False, 2e8)
    assert off.communication.exposed_seconds > 1.2 * on.communication.exposed_seconds
    assert off.step_seconds > on.step_seconds
    assert off.collectives == on.collectives
