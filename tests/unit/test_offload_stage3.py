"""Stage 3 with states in host memory, on linears whose shards are 524,288 elements, by hand; the swaps to NVMe are in
test_swap_stage3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.linears import (
    CPU,
    CPU_PARAMETERS,
    GATHERS,
    NOWHERE,
    NUMEL,
    NVME,
    NVME_PARAMETERS,
    SHARD,
    SIDE,
    awaited,
    config,
    copies,
    linears,
    moved,
    resident,
    square,
    step_of,
)
from tests.programs import levels
from tests.toy import toy, toy_training
from zerosim.spec.strategy import Offload
from zerosim.step import COMPUTE, GATHER, REDUCE, Collective, HostCompute, Pass, Step, Transfer
from zerosim.strategies import build

# --- the table of bytes over each link, per element of the shards ----------------------------------------------------


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize(
    ("where", "parameters", "row"),
    [
        (NOWHERE, NOWHERE, lambda n: (0, 0, 0, 0)),
        (CPU, NOWHERE, lambda n: (2 * n + 4, 2 * n + 2, 0, 0)),
        (CPU, CPU_PARAMETERS, lambda n: (2 * n + 4, 2 * n + 2 * GATHERS * n, 0, 0)),
        (NVME, NOWHERE, lambda n: (2 * n + 4, 2 * n + 2, 4 + 12, 16)),
        (NVME, CPU_PARAMETERS, lambda n: (2 * n + 4, 2 * n + 2 * GATHERS * n, 16, 16)),
        (NVME, NVME_PARAMETERS, lambda n: (2 * n + 4, 2 * n + 2 * GATHERS * n, 16 + 2, 16 + 2 * GATHERS * n)),
        # an optimizer that stays on the GPU sends its fp32 parameters down, to be cast there
        (NOWHERE, CPU_PARAMETERS, lambda n: (4, 2 * GATHERS * n, 0, 0)),
        (NOWHERE, NVME_PARAMETERS, lambda n: (4, 2 * GATHERS * n, 2, 2 * GATHERS * n)),
    ],
    ids=["none", "cpu", "cpu-cpu", "nvme", "nvme-cpu", "nvme-nvme", "none-cpu", "none-nvme"],
)
def test_bytes_over_each_link(where: Offload, parameters: Offload, row: Any, n: int) -> None:
    step = step_of(config(where, parameters), gradient_accumulation_steps=n)
    links = (("gpu", "dram"), ("dram", "gpu"), ("dram", "nvme"), ("nvme", "dram"))
    assert tuple(moved(step, *link) for link in links) == tuple(3 * SHARD * each for each in row(n))
    assert moved(step, "nvme", "gpu") == moved(step, "gpu", "nvme") == 0


def test_gathers_that_are_reused_bring_their_shards_up_once() -> None:
    step = step_of(config(CPU, CPU_PARAMETERS, max_reuse_distance=10**9))
    assert moved(step, "dram", "gpu") == 3 * SHARD * (2 + 2)


# --- what lives where ------------------------------------------------------------------------------------------------


def test_with_the_optimizer_in_host_memory_the_gpu_keeps_shards_and_a_bucket() -> None:
    step, q = step_of(config(CPU)), 3 * SHARD
    assert resident(step, "gpu") == {"parameter shards": 2 * q, "gradient bucket": 2 * NUMEL}
    assert resident(step, "dram") == {
        "gradient partition": 2 * q,
        "fp32 gradients": 4 * q,
        "fp32 master parameters": 4 * q,
        "optimizer states": 8 * q,
    }
    pinned = {buffer.name for buffer in step.buffers if buffer.pinned}
    assert pinned == {"gradient partition", "fp32 gradients"}  # of each sub-group one
    assert not any(buffer.pinned for buffer in step_of(config(replace(CPU, pin_memory=False))).buffers)


def test_shards_in_host_memory_are_pinned_whatever_the_configuration_says() -> None:
    pageable = replace(CPU_PARAMETERS, pin_memory=False)
    step = step_of(config(CPU, pageable), linears(*[SIDE] * 4, frozen=1))
    shards = [buffer for buffer in step.buffers if buffer.name.startswith("parameter shard")]
    assert [(b.bytes, b.tier, b.pinned) for b in shards] == [
        (2 * 2 * SHARD, "dram", True),
        (2 * SHARD, "dram", False),  # that of the frozen one is not in the flat buffer
    ]
    assert resident(step, "gpu") == {"gradient bucket": 2 * NUMEL}
    pinned = {op.name: op.work.pinned for op in step.ops if isinstance(op.work, Transfer) and op.stream == GATHER}
    assert [pinned[f"copy shard l{i}.weight to the GPU"] for i in range(3)] == [False, True, True]


@pytest.mark.parametrize(
    ("parameters", "precision", "pinned"),
    [
        (CPU_PARAMETERS, "bf16", False),  # to where they are cast
        (CPU_PARAMETERS, "fp32", True),  # straight into the flat buffer
        (NVME_PARAMETERS, "fp32", False),  # into a swap buffer
    ],
)
def test_an_optimizer_on_the_gpu_sends_its_parameters_down_in_fp32(
    parameters: Offload, precision: str, pinned: bool
) -> None:
    step = step_of(config(NOWHERE, parameters), precision=precision)
    down = copies(step, "gpu", "dram")
    assert [op.work for op in down] == 3 * [Transfer(4 * SHARD, "gpu", "dram", pinned)]
    assert {op.number for op in down} <= awaited(step)
    assert max(held["parameters on their way"] for held in levels(step)) == (4 * SHARD if precision == "bf16" else 0)


# --- gradients -------------------------------------------------------------------------------------------------------


def names(step: Step, lane: str, micro_batch: int) -> list[str]:
    """What a lane does in a backward for the last gradient that is reduced."""
    ops = [op for op in step.ops if op.phase == "backward" and op.micro_batch == micro_batch]
    last = max(op.number for op in ops if op.reduces)
    return [op.name for op in ops if op.stream == lane and op.number > last]


def test_a_slice_goes_down_and_comes_up_again_and_goes_down_in_fp32() -> None:
    step = step_of(config(CPU), gradient_accumulation_steps=3)
    handing = ["gradient norm", "cast gradient to fp32", "copy fp32 gradient to host"]
    adding = ["read gradient back", "accumulate gradient", "copy accumulated gradient to host"]
    assert names(step, REDUCE, 0) == ["copy gradient to host", "read gradient back"]
    assert names(step, REDUCE, 1) == adding
    assert names(step, REDUCE, 2) == adding + handing
    assert names(step_of(config(CPU)), REDUCE, 0) == ["copy gradient to host", "read gradient back", *handing]


def test_norms_are_taken_of_250_million_elements_at_once() -> None:
    step = step_of(config(CPU), linears(2**15, 2**14))  # shards of 268 million
    assert max(held["fp64 norm"] for held in levels(step)) == 8 * 250_000_000


def test_sums_in_fp32_travel_as_they_are() -> None:
    step = step_of(replace(config(CPU), grad_accum_dtype="fp32"), gradient_accumulation_steps=2)
    q = 3 * SHARD
    assert (moved(step, "gpu", "dram"), moved(step, "dram", "gpu")) == ((2 * 4 + 4) * q, (2 * 4 + 2) * q)
    assert "cast gradient to fp32" not in names(step, REDUCE, 1)


def test_the_host_waits_for_copies_of_gradients_only_where_they_are_pageable() -> None:
    pinned, pageable = step_of(config(CPU)), step_of(config(replace(CPU, pin_memory=False)))
    for step, waits in ((pinned, False), (pageable, True)):
        found = [op.number for op in step.ops if isinstance(op.work, Transfer) and op.stream == REDUCE]
        assert len(found) == 3 * 3
        inside = set(found[:-1])  # the epilogue waits for the last one anyway
        assert inside & awaited(step) == (inside if waits else set())


def test_an_offloaded_norm_is_read_before_and_after_its_reduction() -> None:
    step = step_of(config(CPU))
    norms = [op.number for op in step.ops if op.name == "all-reduce norm"]
    assert len(norms) == 3
    for number in norms:
        assert step.ops[number].host.reads == step.ops[number + 1].host.reads == 1
        assert step.ops[number].work == Collective("all_reduce", 1, "fp32", "dp")
        assert number in step.ops[number + 1].host_waits


# --- the optimizer in host memory ------------------------------------------------------------------------------------


def updates(step: Step) -> list[str]:
    return [op.name for op in step.ops if op.phase == "optimizer" and op.name != "all-reduce norm"][3:]


def test_sub_groups_are_updated_one_after_the_other_and_nothing_overlaps_them() -> None:
    one = ["scale gradients", "AdamW step on the CPU", "cast parameters to 16 bit", "copy parameters to the GPU"]
    step = step_of(config(CPU))
    assert [name for name in updates(step) if name != "end of step"] == 3 * one
    work = [op.work.dram_bytes for op in step.ops if isinstance(op.work, HostCompute)]
    assert work == 3 * [8 * SHARD, 28 * SHARD, 6 * SHARD]
    up = [op for op in step.ops if op.name == "copy parameters to the GPU"]
    assert {op.number for op in up} <= awaited(step)
    assert [op.work for op in up] == 3 * [Transfer(2 * SHARD, "dram", "gpu", pinned=False)]
    in_place = step_of(config(CPU, CPU_PARAMETERS))
    assert [name for name in updates(in_place) if name != "end of step"] == 3 * one[:3]


def test_parameters_of_fp32_are_copied_and_not_cast() -> None:
    step = step_of(config(CPU, CPU_PARAMETERS), precision="fp32")
    work = [op.work for op in step.ops if isinstance(op.work, HostCompute)]
    assert work[2] == HostCompute("stream", SHARD, 8 * SHARD)
    assert moved(step_of(config(CPU), precision="fp32"), "dram", "gpu") == 3 * SHARD * (4 + 4)


@pytest.mark.parametrize(("ratio", "on_gpu"), [(1.0, 0), (0.8, 0), (0.75, 1), (0.5, 2), (0.0, 4)])
def test_twin_flow_leaves_the_first_sub_groups_on_the_gpu(ratio: float, on_gpu: int) -> None:
    """int((1 - ratio) x 4) of them: their gradients do not come down in fp32, nor do their parameters come up."""
    step = step_of(config(replace(CPU, ratio=ratio)), square(4))
    down, up = moved(step, "gpu", "dram") / SHARD, moved(step, "dram", "gpu") / SHARD
    assert (down, up) == (4 * 2 + 4 * (4 - on_gpu), 4 * 2 + 2 * (4 - on_gpu))
    assert resident(step, "gpu")["fp32 master parameters"] == 4 * SHARD * on_gpu
    assert resident(step, "gpu")["fp32 gradients"] == 4 * SHARD * on_gpu
    assert resident(step, "dram")["optimizer states"] == 8 * SHARD * (4 - on_gpu)
    stepped = [op.name for op in step.ops if op.name.startswith("AdamW step")]
    assert stepped == on_gpu * ["AdamW step"] + (4 - on_gpu) * ["AdamW step on the CPU"]
    kernels = [op.work for op in step.ops if op.name == "AdamW step"]
    assert kernels == on_gpu * [Pass(72 * SHARD, "adam", 8)]  # torch's, pass by pass


def test_a_swapped_sub_group_of_twin_flow_is_updated_by_torch_on_the_cpu() -> None:
    step = step_of(config(replace(NVME, ratio=0.5)), square(4))
    kinds = [op.work.kind for op in step.ops if isinstance(op.work, HostCompute) and "step" in op.name]
    assert kinds == ["torch_optimizer", "torch_optimizer", "optimizer", "optimizer"]


# --- parameters in host memory ---------------------------------------------------------------------------------------


def test_the_host_waits_for_each_shard_on_its_way_to_a_gather() -> None:
    step = step_of(config(CPU, CPU_PARAMETERS, prefetch_bucket_size=2 * NUMEL))
    up = [op for op in step.ops if op.name.startswith("copy shard l")]
    assert {op.stream for op in up} == {GATHER}
    assert {op.number for op in up} <= awaited(step)
    together = [op for op in step.ops if op.name == "copy shards to bucket"]
    for op in together:  # two shards come up, are put side by side, and are gathered
        assert [step.ops[op.number + by].name[:10] for by in (-2, -1, 1)] == ["copy shard", "copy shard", "all-gather"]
    assert together


def test_shards_on_their_way_are_freed_when_they_are_in_the_bucket() -> None:
    step = step_of(config(CPU, CPU_PARAMETERS, prefetch_bucket_size=2 * NUMEL))
    assert max(held["shard on its way"] for held in levels(step)) == 2 * 2 * SHARD
    alone = step_of(config(CPU, CPU_PARAMETERS))
    assert max(held["shard on its way"] for held in levels(alone)) == 2 * SHARD


def test_an_all_reduce_that_gathers_is_fed_without_a_copy_on_the_gpu() -> None:
    deepspeed = config(CPU, CPU_PARAMETERS, prefetch_bucket_size=2 * NUMEL, use_all_reduce_for_fetch_params=True)
    step = step_of(deepspeed)
    assert any(isinstance(op.work, Collective) and op.work.elements == 2 * NUMEL for op in step.ops)
    assert not [op for op in step.ops if op.name == "copy shards to bucket"]


def test_persistent_parameters_come_up_at_the_end_of_the_step() -> None:
    step = step_of(config(CPU, CPU_PARAMETERS, param_persistence_threshold=NUMEL))
    tail = [op.name for op in step.ops if op.phase == "optimizer"][-7:-1]
    weights = [f"l{i}.weight" for i in range(3)]
    assert tail == [*(f"copy shard {w} to the GPU" for w in weights), *(f"all-gather {w}" for w in weights)]
    assert [op.stream for op in copies(step, "dram", "gpu") if op.phase == "optimizer"] == 3 * [COMPUTE]
    assert resident(step, "gpu")["persistent parameter"] == 3 * 2 * NUMEL


def test_one_rank_copies_whole_parameters_and_waits_where_they_are_used() -> None:
    step = step_of(config(CPU, CPU_PARAMETERS, prefetch_bucket_size=NUMEL), square(2), ranks=1)
    assert not [op for op in step.ops if isinstance(op.work, Collective) and op.work.kind == "all_gather"]
    up = [op.number for op in step.ops if op.name.startswith("copy shard l")]
    first, second = up[:2]
    assert [step.ops[n].work for n in (first, second)] == 2 * [Transfer(2 * NUMEL, "dram", "gpu")]
    kernels = [op.number for op in step.ops if op.name == "l0 fwd"]
    assert second < kernels[0]  # ahead of its use, and not waited for
    assert any(first in step.ops[n].host_waits for n in range(first + 1, kernels[0] + 1))
    assert all(second not in step.ops[n].host_waits for n in range(kernels[0] + 1))
    assert moved(step, "dram", "gpu") >= 2 * NUMEL * 2


# --- without offload nothing has changed -----------------------------------------------------------------------------


def test_sections_that_offload_nothing_change_nothing() -> None:
    plain = build(config(), toy(), toy_training(), 2)[0]
    named = config(Offload("none", ratio=0.5, pipeline_read=True), Offload("none", max_in_cpu=0))
    assert build(named, toy(), toy_training(), 2)[0] == plain
