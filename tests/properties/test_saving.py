"""What holds of every checkpoint: nothing is lost, more bytes or less rate never help, peaks are bounded."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosim.checkpointing import Checkpointing
from zerosim.scenario import Scenario, from_mapping
from zerosim.spec.model import Model, Module, Parameter
from zerosim.spec.strategy import Ddp, DeepSpeed, Offload, Stage, Zero
from zerosim.spec.training import Training
from zerosim.strategies.checkpoint_files import checkpoint_files
from zerosim.studies.saving import loading_peaks

BF16 = Training(sequence_length=8, precision="bf16")
NUMELS = st.lists(st.integers(1, 10_000), min_size=1, max_size=12)
RANKS = st.integers(1, 64)
STAGES: tuple[Stage, ...] = (0, 1, 2, 3)
EVERY: list[Ddp | DeepSpeed] = [Ddp(), *(DeepSpeed(zero=Zero(stage=stage)) for stage in STAGES)]


def model(numels: list[int]) -> Model:
    weights = tuple(Parameter(f"p{i}", (numel,)) for i, numel in enumerate(numels))
    body = tuple(Module(p.name, "linear", (p,), inputs=1, outputs=p.numel) for p in weights)
    return Model("any", Module("root", "container", body=body), weights, layers=1, hidden=1, heads=1, vocabulary=1)


@given(NUMELS, RANKS, st.sampled_from([1, 2, 3]), st.integers(1, 5000))
def test_shards_hold_every_state_and_at_most_a_little_padding(
    numels: list[int], ranks: int, stage: Any, sub_group: int
) -> None:
    strategy = DeepSpeed(zero=Zero(stage=stage, sub_group_size=sub_group))
    states = checkpoint_files(strategy, model(numels), BF16, ranks)[-1]
    elements = states.bytes / 12
    padding = ranks * len(numels) if stage == 3 else 2 * ranks
    assert sum(numels) <= elements * ranks <= sum(numels) + padding
    assert all(storage.bytes > 0 for storage in states.storages)
    if stage == 3:  # the shard that closes a sub-group may reach beyond its size
        assert max(storage.bytes for storage in states.storages) < 4 * (sub_group + -(-max(numels) // ranks))


@given(NUMELS, RANKS)
def test_no_stage_saves_less_than_the_states_and_ddp_saves_them_once(numels: list[int], ranks: int) -> None:
    for strategy in EVERY:
        files = checkpoint_files(strategy, model(numels), BF16, ranks)
        whole = sum(file.bytes * (ranks if file.sharded else 1) for file in files)
        assert whole >= 12 * sum(numels)
    assert checkpoint_files(Ddp(), model(numels), BF16, ranks)[0].bytes == 12 * sum(numels)


@cache
def scenario() -> Scenario:
    node = {
        "gpus": {"device": "a100_sxm_80", "count": 4},
        "nvlink": {"kind": "switch", "bandwidth": "300 GB/s"},
        "pcie": {"generation": 4, "switches": [{"gpus": [0, 1], "socket": 0}, {"gpus": [2, 3], "socket": 1}]},
        "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB"}}] * 2,
    }
    return from_mapping(
        {
            "topology": {"name": "two sockets", "node": node},
            "model": {"layers": 1, "hidden": 64, "heads": 4, "vocab": 100},
            "training": {"sequence_length": 16},
            "strategy": {"ddp": {}},
        }
    )


STRATEGIES = st.sampled_from(
    [
        *EVERY,
        DeepSpeed(zero=Zero(stage=3, offload_optimizer=Offload(device="cpu"), offload_param=Offload(device="cpu"))),
    ]
)
LARGE = st.lists(st.integers(10_000, 100_000_000), min_size=1, max_size=4)
RATE = st.floats(1e8, 1e11)


def saved(strategy: Any, numels: list[int], rate: float) -> Checkpointing:
    asked = replace(scenario(), strategy=strategy, model=model(numels), training=BF16)
    return Checkpointing(asked, shared=rate)


@settings(max_examples=25, deadline=None)
@given(STRATEGIES, LARGE, RATE, st.floats(1.0, 10.0))
def test_a_faster_file_system_never_makes_it_slower(strategy: Any, numels: list[int], rate: float, more: float) -> None:
    slow, fast = saved(strategy, numels, rate), saved(strategy, numels, rate * more)
    assert fast.save().seconds <= slow.save().seconds * (1 + 1e-9)
    assert fast.resume().seconds <= slow.resume().seconds * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(STRATEGIES, LARGE, RATE, st.integers(2, 4))
def test_a_larger_model_takes_longer_and_more_memory(strategy: Any, numels: list[int], rate: float, times: int) -> None:
    small, large = saved(strategy, numels, rate), saved(strategy, [times * numel for numel in numels], rate)
    for one, other in ((small.save(), large.save()), (small.consolidate(), large.consolidate())):
        assert one.seconds <= other.seconds
        assert one.host_peak <= other.host_peak


@settings(max_examples=25, deadline=None)
@given(STRATEGIES, LARGE, RATE)
def test_no_save_is_faster_than_its_bytes_through_the_file_system(
    strategy: Any, numels: list[int], rate: float
) -> None:
    asked = saved(strategy, numels, rate)
    whole = sum(file.bytes * (4 if file.sharded else 1) for file in asked.files())
    assert asked.save().seconds >= whole / rate * (1 - 1e-9)
    assert asked.consolidate().seconds >= asked.weights().bytes / rate * (1 - 1e-9)
    assert asked.consolidate().host_peak <= asked.weights().bytes


@given(st.floats(1e6, 1e12), st.sampled_from([2, 4]), st.integers(1, 16), st.integers(0, 3))
def test_low_memory_ways_to_load_need_no_more_than_the_plain_one(
    parameters: float, width: int, ranks: int, stage: int
) -> None:
    peaks = dict(loading_peaks(parameters, width, ranks, stage))
    plain = peaks["from_pretrained in fp32"]
    assert plain == pytest.approx(4 * ranks * parameters)
    assert peaks["from_pretrained in fp32 (low_cpu_mem_usage=False)"] == 2 * plain
    assert peaks.get("from_pretrained under zero.Init", 0) <= plain
