"""Checkpoints: who writes which bytes, how long they take on machines whose rates are round, what the host holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.toy import toy
from zerosim.catalog import constant
from zerosim.checkpointing import Checkpointing
from zerosim.errors import InputError
from zerosim.report.saving import render_saving
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import simulate
from zerosim.spec.model import Model, Module, Parameter
from zerosim.spec.strategy import Ddp, DeepSpeed, Offload, Pipeline, Zero
from zerosim.spec.training import Training
from zerosim.step import WRITE, Collective, Transfer
from zerosim.strategies import saving as programs
from zerosim.strategies.checkpoint_files import checkpoint_files, weights_file
from zerosim.strategies.saving import Given, Place
from zerosim.studies.saving import NO_STORAGE, SavingCost, _loading, loading_peaks, saving_cost

BF16 = Training(sequence_length=8, precision="bf16")
TORCH_SAVE = constant("files.write_gbs") * 1e9 / constant("files.checksum")  # bytes/s of a process
TORCH_LOAD = constant("files.read_gbs") * 1e9


def of_size(parameters: int, count: int = 8, frozen: int = 0) -> Model:
    """`count` linear layers of equal size, of which the last `frozen` are frozen."""
    each = parameters // count
    weights = [Parameter(f"l{i}.weight", (each,), trainable=i < count - frozen) for i in range(count)]
    body = tuple(Module(p.name[:2], "linear", (p,), inputs=1, outputs=each) for p in weights)
    root = Module("root", "container", body=body)
    return Model("flat", root, tuple(weights), layers=1, hidden=1, heads=1, vocabulary=1)


SEVEN_B = of_size(7_000_000_000)


def zero(stage: Any, **more: Any) -> DeepSpeed:
    return DeepSpeed(zero=Zero(stage=stage, **more))


def sizes(
    strategy: Ddp | DeepSpeed, model: Model = SEVEN_B, training: Training = BF16, ranks: int = 8
) -> dict[str, float]:
    return {file.name: file.bytes for file in checkpoint_files(strategy, model, training, ranks)}


# --- files -----------------------------------------------------------------------------------------------------------


def test_zero_3_saves_twelve_bytes_a_parameter_over_all_ranks_and_no_weights_beside() -> None:
    assert sizes(zero(3)) == {
        "zero_pp_rank_R_mp_rank_00_model_states.pt": 0.0,
        "bf16_zero_pp_rank_R_mp_rank_00_optim_states.pt": 12 * 7e9 / 8,
    }


@pytest.mark.parametrize("stage", [1, 2])
def test_zero_1_and_2_save_the_weights_too_by_rank_0(stage: int) -> None:
    assert sizes(zero(stage)) == {
        "mp_rank_00_model_states.pt": 2 * 7e9,
        "bf16_zero_pp_rank_R_mp_rank_00_optim_states.pt": 12 * 7e9 / 8,
    }


def test_stage_0_and_ddp_leave_all_to_rank_0() -> None:
    assert sizes(zero(0)) == {"mp_rank_00_model_states.pt": 14 * 7e9}
    assert sizes(Ddp()) == {"checkpoint.pt": 12 * 7e9}  # fp32 weights and two moments
    assert sizes(Ddp(parameter_dtype="bf16")) == {"checkpoint.pt": 14 * 7e9}
    assert sizes(zero(0), training=replace(BF16, precision="fp32")) == {"mp_rank_00_model_states.pt": 12 * 7e9}


def test_names_tell_bf16_and_one_rank() -> None:
    assert list(sizes(zero(2), training=replace(BF16, precision="fp16")))[1] == (
        "zero_pp_rank_R_mp_rank_00_optim_states.pt"
    )
    assert list(sizes(zero(2), ranks=1))[1] == "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"


def test_frozen_parameters_are_saved_twice_on_stage_2_and_as_fragments_on_stage_3() -> None:
    model = of_size(800, 8, frozen=2)  # 600 trained, 200 frozen
    assert list(sizes(zero(1), model).values()) == [2 * 608 + 2 * 200, 12 * 76]  # 600 padded to 16 x 38
    assert list(sizes(zero(2), model).values()) == [2 * 608 + 2 * 2 * 200, 12 * 76]
    assert list(sizes(zero(3), model).values()) == [2 * 2 * 13, 12 * 6 * 13]  # 100 / 8 rounded up


def test_a_stage_3_optimizer_is_written_sub_group_by_sub_group() -> None:
    states = checkpoint_files(zero(3, sub_group_size=500_000_000), SEVEN_B, BF16, 8)[1]
    # eight shards of 109.375 million elements: five reach half a billion, and three are left
    assert [storage.bytes / 4 for storage in states.storages] == [546.875e6] * 3 + [328.125e6] * 3


def test_states_are_saved_from_where_they_live() -> None:
    def tiers(stage: int, device: Any) -> set[str]:
        files = checkpoint_files(zero(stage, offload_optimizer=Offload(device=device)), SEVEN_B, BF16, 8)
        return {storage.tier for file in files[1:] for storage in file.storages}

    assert [tiers(3, device) for device in ("none", "cpu", "nvme")] == [{"gpu"}, {"dram"}, {"nvme"}]
    assert tiers(2, "nvme") == {"dram"}


SWAPPED_STATES = zero(3, offload_optimizer=Offload(device="nvme"), sub_group_size=1)


def test_swap_files_lie_in_a_folder_beside_and_hold_whole_units() -> None:
    """Requests are multiples of 1024 bytes: 300 001 elements are 1 200 004 bytes, 1172 units of them."""
    strategy = SWAPPED_STATES
    states, swapped = checkpoint_files(strategy, of_size(8 * 300_001, 1), BF16, 8)[1:]
    assert (states.bytes, states.loaded) == (0, False)
    assert (swapped.name, swapped.swapped, swapped.sharded) == ("offloaded_tensors/rankR/*.swp", True, True)
    assert [storage.bytes for storage in swapped.storages] == [1172 * 1024] * 3


def test_states_too_small_to_be_swapped_are_serialised_and_not_loaded_again() -> None:
    """A swapped tensor has a MiB at least: 1000 elements are 4000 bytes."""
    small, large = Parameter("small", (1000,)), Parameter("large", (1_000_000,))
    body = tuple(Module(p.name, "linear", (p,), inputs=1, outputs=p.numel) for p in (small, large))
    model = Model("two", Module("root", "container", body=body), (small, large), 1, 1, 1, 1)
    _, states, swapped = checkpoint_files(SWAPPED_STATES, model, BF16, 1)
    assert [storage.bytes for storage in states.storages] == [4000] * 3
    assert sum(storage.bytes for storage in swapped.storages) == 3 * 3907 * 1024
    step = programs.resume(Given(SWAPPED_STATES, model, BF16, 1, Place("nvme"))).step
    assert not any("optim_states" in op.name for op in step.ops)


def test_the_file_of_weights_has_the_dtype_of_training() -> None:
    assert weights_file(zero(3), SEVEN_B, BF16).bytes == 14e9
    assert weights_file(Ddp(), SEVEN_B, BF16).bytes == 28e9


# --- programs --------------------------------------------------------------------------------------------------------

OFFLOADED = [zero(stage, offload_optimizer=Offload(device="cpu")) for stage in (1, 2, 3)]
SWAPPED = zero(3, offload_optimizer=Offload(device="nvme"), offload_param=Offload(device="nvme"))
EVERY = [Ddp(), zero(0), zero(1), zero(2), zero(3), *OFFLOADED, SWAPPED]


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.parametrize("tier", ["nvme", "dram", None])
def test_programs_are_sound_and_write_what_they_say(strategy: Any, ranks: int, tier: Any) -> None:
    given = Given(strategy, toy(), BF16, ranks, Place(tier, 5.0))
    written = programs.save(given)  # each program is linted when it is finished
    whole = programs.consolidate(given)
    programs.resume(given)
    if tier is None:
        return
    expected = sum(file.bytes for file in given.files())
    assert _requested(written.step, tier) == pytest.approx(expected)
    assert _requested(whole.step, tier) == weights_file(strategy, toy(), BF16).bytes


def _requested(step: Any, tier: str) -> float:
    works = [op.work for op in step.ops if op.stream == WRITE]
    return float(sum(work.bytes for work in works if (work.source, work.target) == ("dram", tier)))


def test_weights_are_gathered_parameter_by_parameter_and_broadcast_again() -> None:
    program = programs.consolidate(Given(zero(3), toy(), BF16, 8, Place("nvme")))
    kinds = [op.work.kind for op in program.step.ops if isinstance(op.work, Collective)]
    parameters = len(toy().parameters)
    assert sorted(set(kinds)) == ["all_gather", "broadcast"]
    assert kinds.count("all_gather") == kinds.count("broadcast") == parameters
    copies = [op.number for op in program.step.ops if isinstance(op.work, Transfer) and op.work.target == "dram"]
    assert program.first >= set(copies)
    assert len([op for op in program.step.ops if op.name == "copy to host"]) == parameters


def test_a_tied_parameter_is_gathered_twice_and_kept_once() -> None:
    tied = Parameter("wte", (64, 8))
    body = (
        Module("emb", "embedding", (tied,), outputs=8),
        Module("head", "linear", (tied,), inputs=8, outputs=64),
    )
    model = Model("tied", Module("root", "container", body=body), (tied,), layers=1, hidden=8, heads=1, vocabulary=64)
    step = programs.consolidate(Given(zero(3), model, BF16, 4, Place("nvme"))).step
    assert sum(isinstance(op.work, Collective) and op.work.kind == "all_gather" for op in step.ops) == 2
    assert sum(op.name == "copy to host" for op in step.ops) == 1


# --- seconds ---------------------------------------------------------------------------------------------------------


def scenario(strategy: dict[str, Any], gpus: int = 8, dram: str = "1 TB", **node: Any) -> Scenario:
    """Eight GPUs, one a switch, on one socket; 100 million parameters, so that latencies do not count."""
    switches = [{"gpus": [i], "socket": 0} for i in range(gpus)]
    template = {
        "gpus": {"device": "a100_sxm_80", "count": gpus},
        "nvlink": {"kind": "switch", "bandwidth": "300 GB/s"},
        "pcie": {"generation": 4, "switches": switches},
        "sockets": [{"device": "epyc_7742", "dram": {"capacity": dram}}],
    }
    return from_mapping(
        {
            "topology": {"name": "toy", "node": {**template, **node}},
            "model": {"layers": 2, "hidden": 1024, "heads": 16, "vocab": 32000},
            "training": {"sequence_length": 64},
            "strategy": strategy,
        }
    )


def deepspeed(stage: int, **more: Any) -> dict[str, Any]:
    return {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage, **more}}}


def drives(rate: str) -> list[dict[str, Any]]:
    return [{"socket": 0, "count": 1, "read": rate, "write": rate, "capacity": "10 TB"}]


FAST = drives("100 GB/s")


def test_a_rank_writes_as_fast_as_its_process_where_the_drive_is_fast() -> None:
    asked = Checkpointing(scenario(deepspeed(3), nvme=FAST))
    own = asked.files()[1].bytes
    assert asked.save().file_seconds == pytest.approx(own / TORCH_SAVE, rel=0.01)
    assert asked.resume().file_seconds == pytest.approx(own / TORCH_LOAD, rel=0.01)


def test_all_ranks_share_a_drive_that_is_slower_than_their_processes() -> None:
    asked = Checkpointing(scenario(deepspeed(3), nvme=drives("1 GB/s")))
    assert asked.save().file_seconds == pytest.approx(8 * asked.files()[1].bytes / 1e9, rel=0.02)


def test_a_shared_file_system_is_shared_by_all_ranks() -> None:
    asked = Checkpointing(scenario(deepspeed(3)), shared=2e9)
    assert asked.save().file_seconds == pytest.approx(8 * asked.files()[1].bytes / 2e9, rel=0.01)


def test_rank_0_writes_alone_what_only_it_has() -> None:
    asked = Checkpointing(scenario(deepspeed(2), nvme=FAST))
    weights, own = (file.bytes for file in asked.files())
    assert asked.save().file_seconds == pytest.approx((weights + own) / TORCH_SAVE, rel=0.01)
    ddp = Checkpointing(scenario({"ddp": {}}, nvme=FAST))
    assert ddp.save().file_seconds == pytest.approx(ddp.files()[0].bytes / TORCH_SAVE, rel=0.01)


def test_others_write_their_shards_while_rank_0_writes_the_weights() -> None:
    """On a file system of 0.6 GB/s: all bytes at its rate, as long as two ranks want more than it has."""
    asked = Checkpointing(scenario(deepspeed(1)), shared=0.6e9)
    weights, own = (file.bytes for file in asked.files())
    assert asked.save().seconds == pytest.approx((weights + 8 * own) / 0.6e9, rel=0.1)


def test_others_write_their_shards_beside_rank_0_to_the_same_drive() -> None:
    """A drive of 0.5 GB/s is less than one process wants, so that it never waits; rank 0's own shard comes last."""
    asked = Checkpointing(scenario(deepspeed(2), nvme=drives("0.5 GB/s")))
    weights, own = (file.bytes for file in asked.files())
    assert asked.save().seconds == pytest.approx((weights + 8 * own) / 0.5e9, rel=0.1)


def test_storages_leave_the_gpu_one_after_the_other_at_the_pageable_rate() -> None:
    asked = Checkpointing(scenario(deepspeed(3), nvme=FAST))
    saved = asked.save()
    rate = 31.5e9 * constant("copies.d2h_eff.pcie4") * constant("copies.pageable_factor")
    assert saved.copy_seconds == pytest.approx(asked.files()[1].bytes / rate, rel=0.01)
    assert saved.seconds == pytest.approx(saved.copy_seconds + saved.file_seconds, rel=0.01)


def test_offloaded_states_are_written_where_they_are() -> None:
    on_gpu, offloaded = (
        Checkpointing(scenario(deepspeed(3, **more), nvme=FAST)).save()
        for more in ({}, {"offload_optimizer": {"device": "cpu"}})
    )
    assert offloaded.copy_seconds == 0
    assert offloaded.file_seconds == pytest.approx(on_gpu.file_seconds, rel=0.01)


def test_gathering_costs_each_parameter_its_all_gather_and_its_broadcast() -> None:
    """k equal parameters take k times what one takes."""
    base = scenario(deepspeed(3), nvme=FAST)
    one, ten = (
        Checkpointing(replace(base, model=of_size(1_000_000 * k, k))).consolidate().gather_seconds for k in (1, 10)
    )
    assert one > 0
    assert ten == pytest.approx(10 * one, rel=1e-6)


def test_one_rank_gathers_nothing() -> None:
    assert Checkpointing(scenario(deepspeed(3), gpus=1, nvme=FAST)).consolidate().gather_seconds == 0


def test_without_storage_only_the_copies_take_time() -> None:
    asked = Checkpointing(scenario(deepspeed(2)))
    saved = asked.save()
    assert asked.tier is None
    assert saved.file_seconds == 0
    assert saved.copy_seconds > 0
    assert saved.seconds == pytest.approx(saved.copy_seconds, rel=0.01)
    assert NO_STORAGE in cost(scenario(deepspeed(2))).notes


def test_swap_files_are_copied_at_the_rate_of_the_drives() -> None:
    nvme = {"device": "nvme", "nvme_path": "/local"}
    fast, slow = (
        Checkpointing(scenario(deepspeed(3, offload_optimizer=nvme), nvme=drives(rate)))
        for rate in ("100 GB/s", "1 GB/s")
    )
    whole = 8 * slow.files()[2].bytes
    assert fast.save().file_seconds < whole / 8 / TORCH_SAVE  # no process looks at them
    assert slow.save().file_seconds == pytest.approx(2 * whole / 1e9, rel=0.02)  # read, write
    assert slow.resume().file_seconds == pytest.approx(4 * whole / 1e9, rel=0.02)  # and both again


def nvme_node(**rates: Any) -> list[dict[str, Any]]:
    return [{"socket": 0, "count": 1, "capacity": "10 TB", **rates}]


def test_swap_files_go_to_a_shared_file_system_while_they_are_read() -> None:
    """Drives of 10 GB/s, a file system of 1: its rate is what a save takes, and the first half of a load."""
    nvme = {"device": "nvme", "nvme_path": "/local"}
    asked = Checkpointing(scenario(deepspeed(3, offload_optimizer=nvme), nvme=drives("10 GB/s")), shared=1e9)
    whole = 8 * asked.files()[2].bytes
    assert asked.save().file_seconds == pytest.approx(whole / 1e9, rel=0.02)
    assert asked.resume().file_seconds == pytest.approx(whole / 1e9 + 2 * whole / 10e9, rel=0.02)
    assert asked.save().limited_by == asked.resume().limited_by == "file system 1 GB/s"


def test_it_is_told_which_way_of_a_drive_limits() -> None:
    nvme = {"device": "nvme", "nvme_path": "/local"}
    rates = {"read": "1 GB/s", "write": "20 GB/s"}, {"read": "20 GB/s", "write": "1 GB/s"}
    cached = {"read": "20 GB/s", "write": "4 GB/s", "sustained_write": "1 GB/s", "cache": "100 MB"}
    limits = [
        Checkpointing(scenario(deepspeed(3, offload_optimizer=nvme), nvme=nvme_node(**each))).save().limited_by
        for each in (*rates, cached)
    ]
    assert limits == ["NVMe reads, 1 GB/s", "NVMe writes, 1 GB/s", "NVMe writes, 1 GB/s (sustained)"]


def test_only_what_rank_0_writes_fills_the_cache_of_a_drive() -> None:
    """0.2 GB of weights go into a cache of 1 GB; eight times as much would not."""
    node = nvme_node(read="1 GB/s", write="0.2 GB/s", sustained_write="10 MB/s", cache="1 GB")
    asked = Checkpointing(scenario({"ddp": {}}, nvme=node))
    written = asked.weights().bytes
    assert written < 1e9 < 8 * written
    assert asked.consolidate().file_seconds == pytest.approx(written / 0.2e9, rel=0.01)


# --- host memory -----------------------------------------------------------------------------------------------------


def test_host_peaks_while_saving_are_one_storage_a_rank() -> None:
    asked = Checkpointing(scenario(deepspeed(3), nvme=FAST))
    own = asked.files()[1].bytes
    assert asked.save().host_peak == 8 * own / 3  # master and two moments, one at a time


def test_rank_0_holds_the_weights_while_the_others_hold_a_storage_each() -> None:
    asked = Checkpointing(scenario(deepspeed(2), nvme=FAST))
    weights, own = (file.bytes for file in asked.files())
    assert asked.save().host_peak == weights + 7 * own / 3


def test_rank_0_keeps_the_whole_model_while_it_is_gathered() -> None:
    asked = Checkpointing(scenario(deepspeed(3), nvme=FAST))
    assert asked.consolidate().host_peak == asked.weights().bytes


def test_what_training_keeps_on_the_host_is_counted_for_every_rank() -> None:
    asked = Checkpointing(scenario(deepspeed(3), nvme=FAST), held=7.0)
    assert asked.consolidate().host_peak == asked.weights().bytes + 8 * 7


def test_every_rank_loads_its_file_whole_unless_they_take_turns() -> None:
    at_once, in_turns = (
        Checkpointing(scenario(deepspeed(3, pipeline_loading_checkpoint=turns), nvme=FAST)) for turns in (False, True)
    )
    own = at_once.files()[1].bytes
    assert at_once.resume().host_peak == 8 * own
    assert in_turns.resume().host_peak == own
    assert in_turns.resume().file_seconds == pytest.approx(8 * at_once.resume().file_seconds, rel=0.01)


def test_ddp_loads_everything_on_every_rank() -> None:
    asked = Checkpointing(scenario({"ddp": {}}, nvme=FAST))
    assert asked.resume().host_peak == 8 * asked.files()[0].bytes


def test_elastic_checkpoints_are_loaded_whole_by_every_rank() -> None:
    asked = Checkpointing(scenario(deepspeed(1, elastic_checkpoint=True), nvme=FAST))
    assert asked.resume().host_peak == 8 * 8 * asked.files()[1].bytes


def test_ways_to_load_seven_billion_parameters_on_eight_ranks() -> None:
    assert dict(loading_peaks(7e9, 2, 8, 3)) == {
        "from_pretrained in fp32": 8 * 28e9,
        "from_pretrained in 16 bit (torch_dtype)": 8 * 14e9,
        "from_pretrained in fp32 (low_cpu_mem_usage=False)": 2 * 8 * 28e9,
        "from_pretrained under zero.Init": 5e9,
        "zero_to_fp32.py": 28e9 + 5e9,
    }
    assert dict(loading_peaks(7e9, 2, 8, 3, on_host=0.5))["from_pretrained under zero.Init"] == 5e9 + 7e9
    assert dict(loading_peaks(7e9, 2, 8, 2))["zero_to_fp32.py"] == 2 * 28e9  # merged into one vector
    assert "zero_to_fp32.py" not in dict(loading_peaks(7e9, 2, 8, 0))
    assert "zero_to_fp32.py" not in dict(loading_peaks(7e9, 2, 8, 3, swapped=True))


def test_reports_of_loading_lie_between_the_model_once_and_twice_a_rank() -> None:
    """DeepSpeed issue 1814: 3 billion parameters on 4 ranks took 70 GB; issue 3722: 15 billion on 8 more than 500."""
    for parameters, ranks, seen in ((3e9, 4, 70e9), (15e9, 8, 500e9)):
        peaks = dict(loading_peaks(parameters, 2, ranks, 3))
        once, twice = (peaks[f"from_pretrained in fp32{way}"] for way in ("", " (low_cpu_mem_usage=False)"))
        assert once < seen < twice


# --- the study -------------------------------------------------------------------------------------------------------


def cost(asked: Scenario, **more: Any) -> SavingCost:
    return saving_cost(simulate(asked), **more)


def seven_b(dram: str) -> Scenario:
    return replace(scenario(deepspeed(3), dram=dram, nvme=FAST), model=SEVEN_B)


@pytest.mark.parametrize(("dram", "fits"), [("2 TB", True), ("128 GB", False)])
def test_eight_whole_models_fit_into_two_terabytes_and_not_into_128_gigabytes(dram: str, fits: bool) -> None:
    found = cost(scenario(deepspeed(3), dram=dram, nvme=FAST))
    assert found.host_capacity_bytes == {"2 TB": 2e12, "128 GB": 128e9}[dram]
    asked = Checkpointing(seven_b(dram))
    ways = {way.way: way.fits for way in _loading(asked, found.host_capacity_bytes)}
    assert ways["from_pretrained in fp32"] is fits
    assert ways["from_pretrained under zero.Init"] is True


def test_a_finding_names_the_ways_that_do_not_fit_and_no_other() -> None:
    found = cost(scenario(deepspeed(3), dram="2 GB", nvme=FAST))
    (finding,) = (each for each in found.findings if each.code == "host-memory-loading")
    assert "from_pretrained in fp32 with " in finding.message
    assert "zero.Init" not in finding.message


def test_a_peak_that_leaves_next_to_nothing_is_told() -> None:
    peak = cost(scenario(deepspeed(3), nvme=FAST)).operations[2].host_peak_bytes
    for capacity, left in ((peak / 0.96, True), (peak / 0.94, False), (peak * 0.99, False)):
        found = cost(scenario(deepspeed(3), dram=f"{capacity / 1e6:.3f} MB", nvme=FAST))
        told = [each.message for each in found.findings if each.code == "host-memory-tight"]
        assert any("load checkpoint leaves " in message for message in told) is left


def test_of_swapped_states_it_is_told_what_is_different() -> None:
    found = cost(scenario(deepspeed(3, offload_optimizer={"device": "nvme", "nvme_path": "/l"}), nvme=FAST))
    assert any("swap files" in note for note in found.notes)
    assert not any("swap files" in note for note in cost(scenario(deepspeed(3), nvme=FAST)).notes)


def test_rates_of_processes_have_two_digits_and_a_grade() -> None:
    (note,) = (each for each in cost(scenario(deepspeed(3), nvme=FAST)).notes if "torch.save" in each)
    assert "torch.save writes 0.55 GB/s a process (derived)" in note


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_there_is_and_no_label_is_cut(width: int) -> None:
    found = cost(scenario({"ddp": {}}, dram="1 GB", nvme=FAST)).as_json()
    text = render_saving(found, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "NO" in text


def test_the_share_of_training_falls_with_the_interval() -> None:
    played = simulate(scenario(deepspeed(3), nvme=FAST))
    often, seldom = (saving_cost(played, interval=steps) for steps in (100, 1000))
    assert often.overhead == pytest.approx(10 * seldom.overhead)
    assert often.overhead == often.operations[0].seconds / (100 * played.makespan)


def test_it_is_told_whether_gathered_weights_were_asked_for() -> None:
    key = "stage3_gather_16bit_weights_on_model_save"
    asked = cost(scenario(deepspeed(3, **{key: True}), nvme=FAST))
    assert asked.gather_16bit_weights_on_model_save
    assert not any(key in note for note in asked.notes)
    assert any(key in note for note in cost(scenario(deepspeed(3), nvme=FAST)).notes)


def test_bytes_add_up_over_the_ranks() -> None:
    strategies: list[dict[str, Any]] = [deepspeed(2), deepspeed(3), {"ddp": {}}]
    for strategy in strategies:
        found = cost(scenario(strategy, nvme=FAST))
        save = found.operations[0]
        assert save.bytes_total == save.bytes_first_rank + 7 * save.bytes_per_rank
        assert save.bytes_total == sum(file["count"] * file["bytes"] for file in found.files)


def test_a_strategy_without_checkpoints_is_refused() -> None:
    with pytest.raises(InputError, match="found the strategy pipeline; expected ddp or deepspeed, the only ones"):
        Checkpointing(replace(scenario({"ddp": {}}), strategy=Pipeline(stages=2)))
    with pytest.raises(InputError, match="found the strategy hierarchical_zero1;"):
        Checkpointing(scenario({"hierarchical_zero1": {"shard_size": 1}}))
