"""Stage 3 with states on NVMe, on linears of 524,288 elements a shard (1 MiB in 16 bits, 2 MiB in fp32), by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.linears import (
    CPU,
    CPU_PARAMETERS,
    GATHERS,
    MIB,
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
from tests.programs import ancestors, levels
from zerosim.errors import InputError
from zerosim.spec.optimizers import optimizer
from zerosim.spec.strategy import Aio
from zerosim.step import READ, REDUCE, WRITE, HostCompute, Op, Step, Transfer

# --- what lives where ------------------------------------------------------------------------------------------------


def test_with_everything_on_nvme_host_memory_has_gradients_and_swap_buffers() -> None:
    step, q = step_of(config(NVME, NVME_PARAMETERS)), 3 * SHARD
    assert resident(step, "gpu") == {"gradient bucket": 2 * NUMEL}
    assert resident(step, "dram") == {
        "gradient partition": 2 * q,
        "swap buffers of the optimizer": 4 * 4 * SHARD,
        "buffers of shards from NVMe": 5 * 2 * SHARD,
        "buffers of shards to NVMe": 2 * SHARD,
    }
    assert resident(step, "nvme") == {
        "parameter shards": 2 * q, "fp32 gradients": 4 * q, "fp32 master parameters": 4 * q, "optimizer states": 8 * q,
    }  # fmt: skip


def test_max_in_cpu_is_filled_by_whole_sub_groups() -> None:
    """Room for 1.5 shards: one sub-group of one, or none of the one that all three make."""
    parameters = replace(NVME_PARAMETERS, max_in_cpu=SHARD + SHARD // 2)
    several = step_of(config(NVME, parameters))
    assert resident(several, "dram")["parameter shards"] == 2 * parameters.max_in_cpu
    assert resident(several, "nvme")["parameter shards"] == 2 * 2 * SHARD
    together = step_of(config(NVME, parameters, sub_group_size=10**9))
    assert resident(together, "dram")["parameter shards"] == 2 * parameters.max_in_cpu  # which nothing uses
    assert resident(together, "nvme")["parameter shards"] == 2 * 3 * SHARD


def test_small_tensors_stay_in_memory() -> None:
    """On four ranks a shard is half a MiB: too small in 16 bits, and just large enough in fp32."""
    step = step_of(config(NVME, NVME_PARAMETERS), ranks=4)
    assert resident(step, "nvme").keys() == {"fp32 gradients", "fp32 master parameters", "optimizer states"}
    assert resident(step, "dram")["parameter shard"] == 3 * SHARD
    larger = step_of(config(NVME, NVME_PARAMETERS, Aio(block_size=2 * MIB)), ranks=4)
    assert not resident(larger, "nvme")
    assert resident(larger, "dram")["fp32 master parameters"] == 4 * 3 * SHARD // 2


# --- the optimizer on NVMe -------------------------------------------------------------------------------------------


def story(step: Step) -> str:
    """What the host does at the step: r, g, w ask for the states, the gradient, a write of a sub-group, c computes;
    <r and <w wait."""
    words: list[str] = []
    seen = {READ: -1, WRITE: -1}
    for op in (op for op in step.ops if op.phase == "optimizer"):
        for number in op.host_waits:
            other = step.ops[number]
            if other.stream in seen and number > seen[other.stream]:
                words.append(f"<{'r' if other.stream == READ else 'w'}{_sub_group(other)}")
                seen[other.stream] = number
        if op.stream in seen:
            kind = {READ: "r", WRITE: "w"}[op.stream]
            words.append(("g" if "gradient" in op.name and kind == "r" else kind) + _sub_group(op))
        elif isinstance(op.work, HostCompute) and op.work.kind == "optimizer":
            words.append("c")
    return " ".join(word for word, before in zip(words, ["", *words], strict=False) if word != before)


def _sub_group(op: Op) -> str:
    return "".join(re.findall(r"sub-group (\d+)$", op.name))


FLUSH = "w <w "  # what is left of the gradients is written first
STORIES = {
    (False, False): "r0 <r0 g0 <r0 c w0 <w0 r1 <r1 g1 <r1 c w1 <w1 r2 <r2 g2 <r2 c w2 <w2",
    (True, False): "r0 g0 <r0 r1 g1 c w0 <w0 <r1 r2 g2 c w1 <w1 <r2 c w2 <w2",
    (False, True): "r0 g0 <r0 c w0 r1 g1 <r1 c <w0 w1 r2 g2 <r2 c <w1 w2 <w2",
    (True, True): "r0 g0 <r0 r1 g1 c w0 <r1 r2 g2 c <w0 w1 <r2 c <w1 w2 <w2",
}


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("writes", [False, True])
def test_what_the_host_waits_for_before_what(reads: bool, writes: bool) -> None:
    where = replace(NVME, buffer_count=12, pipeline_read=reads, pipeline_write=writes)
    assert story(step_of(config(where))) == FLUSH + STORIES[reads, writes]


def test_gradients_are_written_when_a_buffer_is_full_and_waited_for_when_none_is_left() -> None:
    """A buffer holds one sub-group's: with two of them the third gradient waits for the writes of the first two."""
    deepspeed = replace(config(replace(NVME, buffer_count=2)), optimizer=optimizer("sgd"))
    step = step_of(deepspeed, square(4))
    backward = [op for op in step.ops if op.phase == "backward"]
    down = [op.number for op in backward if op.name == "copy gradient to swap buffer"]
    written = [op.number for op in backward if op.stream == WRITE]
    kinds = [number in down for number in sorted([*down, *written])]
    assert kinds == [True, False, True, False, True, False, True]  # the fourth is written at the step
    assert [op.number for op in backward if set(op.host_waits) & set(written)] == [down[2]]
    assert set(step.ops[down[2]].host_waits) >= set(written[:2])
    assert {op.stream for op in backward if op.number in down} == {REDUCE}
    assert set(down) <= awaited(step)


def late(step: Step) -> list[Any]:
    """Gradients that come down at the step only."""
    return [op.work for op in step.ops if op.name == "copy gradient to host" and op.phase == "optimizer"]


def kept(step: Step) -> list[int]:
    """Bytes of fp32 gradients on the GPU, op by op of the step."""
    pairs = zip(levels(step), step.ops, strict=False)
    return [held["fp32 gradient"] for held, op in pairs if op.phase == "optimizer"]


def test_gradients_that_are_not_swapped_stay_on_the_gpu_until_their_sub_group() -> None:
    """1024 x 1025 is 2050 units of 256 a shard; 1024 x 3, with 1,536 elements a shard, is too small for a file."""
    even = step_of(config(NVME, sub_group_size=10**9), linears(SIDE, SIDE + 1, SIDE))
    assert moved(even, "gpu", "dram") == 2 * 524_800 * (2 + 4)
    assert not late(even)
    small = step_of(config(NVME, sub_group_size=10**9), linears(SIDE, SIDE, 3))
    assert late(small) == [Transfer(4 * 1_536, "gpu", "dram", pinned=False)]
    held = kept(small)
    assert (held[0], held[-1]) == (4 * 1_536, 0)


def test_the_rest_beyond_whole_units_keeps_the_whole_gradient() -> None:
    """1023 x 1025 on three ranks: 349,525 elements, which are 1365 units of 256 and 85."""
    step = step_of(config(NVME), linears(1_023, 1_025), ranks=3)
    assert late(step) == [Transfer(4 * 85, "gpu", "dram", pinned=False)]
    written = [op.work.bytes for op in copies(step, "dram", "nvme") if isinstance(op.work, Transfer)]
    assert written == [4 * 1_365 * 256, *3 * [4 * 1_366 * 256]]  # states are rounded up to units
    assert kept(step)[0] == 4 * 349_525


@pytest.mark.parametrize(
    ("name", "reads", "writes", "groups", "needed"),
    [
        ("adamw", False, False, 3, 4), ("adamw", True, False, 3, 8), ("adamw", False, True, 3, 8),
        ("adamw", True, True, 3, 12), ("adamw", True, True, 2, 8), ("adamw", True, True, 1, 4),
        ("lion", False, False, 3, 3), ("sgd", True, True, 3, 6),
    ],
)  # fmt: skip
def test_buffers_of_the_optimizer_have_to_hold_all_sub_groups_under_way(
    name: str, reads: bool, writes: bool, groups: int, needed: int
) -> None:
    offload = replace(NVME, pipeline_read=reads, pipeline_write=writes, buffer_count=needed)
    deepspeed = replace(config(offload), optimizer=optimizer(name))
    step_of(deepspeed, square(groups))
    few = replace(deepspeed.zero, offload_optimizer=replace(offload, buffer_count=needed - 1))
    with pytest.raises(InputError, match=rf"buffer_count: found {needed - 1}; expected at least {needed}: "):
        step_of(replace(deepspeed, zero=few), square(groups))


# --- parameters on NVMe ----------------------------------------------------------------------------------------------


def test_a_gather_waits_for_all_reads_and_the_next_shard_is_read_ahead() -> None:
    step = step_of(config(NOWHERE, NVME_PARAMETERS, prefetch_bucket_size=NUMEL))
    forward = [op for op in step.ops if op.phase == "forward"]
    reads = [op for op in forward if op.stream == READ]
    # the root's hook reads the first, and each module's the next; the last one reads what the backward needs next
    assert [op.name for op in reads] == [f"read l{i}.weight" for i in (0, 1, 2, 1)]
    for read, index in zip(reads[:3], (0, 1, 2), strict=True):
        up = next(op for op in forward if op.name == f"copy shard l{index}.weight to the GPU")
        assert read.number in up.host_waits
        assert up.number == read.number + 1 or index > 0
    assert all(op.work == Transfer(2 * SHARD, "nvme", "dram", batch=8 * MIB) for op in reads)


def test_shards_in_swap_buffers_are_pageable_to_cuda() -> None:
    """They are locked, but CUDA does not know them."""
    step = step_of(config(NOWHERE, NVME_PARAMETERS))
    assert {op.work.pinned for op in copies(step, "dram", "gpu") if isinstance(op.work, Transfer)} == {False}
    held = step_of(config(NOWHERE, CPU_PARAMETERS))
    assert {op.work.pinned for op in copies(held, "dram", "gpu") if isinstance(op.work, Transfer)} == {True}


def test_updated_shards_are_written_before_the_host_goes_on() -> None:
    step = step_of(config(CPU, NVME_PARAMETERS, sub_group_size=10**9))
    written = [op.number for op in step.ops if op.stream == WRITE]
    assert [step.ops[n].name for n in written] == [f"write l{i}.weight" for i in range(3)]
    assert set(step.ops[written[-1] + 1].host_waits) >= set(written)


def test_each_shard_has_to_fit_a_buffer() -> None:
    with pytest.raises(
        InputError, match=f"buffer_size: found {SHARD - 1}; expected at least {SHARD}, the largest shard"
    ):
        step_of(config(NOWHERE, replace(NVME_PARAMETERS, buffer_size=SHARD - 1, max_in_cpu=10**9)))
    fast = replace(NVME, fast_init=True)
    with pytest.raises(InputError, match=f"expected at least {3 * SHARD}, the largest sub-group, with fast_init"):
        step_of(config(fast, NVME_PARAMETERS, sub_group_size=10**9))


def test_both_swappers_complain_at_once() -> None:
    with pytest.raises(InputError) as found:
        step_of(config(replace(NVME, buffer_count=3), replace(NVME_PARAMETERS, buffer_size=1)))
    assert [problem.path for problem in found.value.problems] == ["buffer_count", "buffer_size"]


def test_kept_parameters_keep_their_buffers() -> None:
    """Nothing is released before its backward: three shards, three buffers."""
    keeping: dict[str, Any] = {"max_reuse_distance": 10**9, "prefetch_bucket_size": NUMEL}
    step_of(config(NOWHERE, replace(NVME_PARAMETERS, buffer_count=3), **keeping))
    with pytest.raises(InputError, match="buffer_count: found 2; expected 3, which is enough"):
        step_of(config(NOWHERE, replace(NVME_PARAMETERS, buffer_count=2), **keeping))


def test_a_shard_that_the_read_ahead_meets_twice_is_read_once_and_said() -> None:
    """The first shard fills max_in_cpu and is on its way as a gather; twice its elements reach over both uses of l1."""
    parameters = replace(NVME_PARAMETERS, max_in_cpu=SHARD)
    step = step_of(config(NOWHERE, parameters, prefetch_bucket_size=NUMEL), square(2))
    assert [op.name for op in step.ops if op.stream == READ and op.phase == "forward"] == ["read l1.weight"]
    assert "the shard of l1.weight is read once; DeepSpeed 0.19.8 would ask twice for it, and stop" in step.notes
    assert not any("ask twice" in note for note in step_of(config(NOWHERE, NVME_PARAMETERS)).notes)


def test_direct_storage_reads_into_the_gpu_and_writes_from_host_memory() -> None:
    step = step_of(config(NVME, NVME_PARAMETERS, Aio(use_gds=True)))
    assert moved(step, "nvme", "gpu") == 3 * SHARD * 2 * GATHERS
    assert moved(step, "dram", "gpu") == 3 * SHARD * 2  # gradients read back
    assert moved(step, "dram", "nvme") == 3 * SHARD * 18
    assert moved(step, "nvme", "dram") == 3 * SHARD * 16  # the optimizer's swapper knows no direct storage
    assert resident(step, "gpu")["buffers of shards from NVMe"] == 5 * 2 * SHARD
    alone = step_of(config(NVME, replace(NVME_PARAMETERS, buffer_size=NUMEL), Aio(use_gds=True)), ranks=1)
    assert moved(alone, "dram", "gpu") == 3 * NUMEL * 2
    assert max(held["gathered parameter"] for held in levels(alone)) == 0  # used where they were read to
    before = ancestors(alone)
    for i in range(3):
        read = next(op.number for op in alone.ops if op.name == f"read l{i}.weight")
        kernel = next(op.number for op in alone.ops if op.name == f"l{i} fwd")
        assert before[kernel][READ] >= read


@pytest.mark.parametrize(
    ("aio", "batch", "in_turn"),
    [
        (Aio(), 8 * MIB, False),
        (Aio(single_submit=True), 8 * MIB, False),  # more system calls, no more waiting
        (Aio(queue_depth=1), MIB, True),
        (Aio(overlap_events=False), 8 * MIB, True),
        (Aio(overlap_events=False, queue_depth=4, intra_op_parallelism=3, block_size=MIB // 2), 6 * MIB, True),
    ],
)
def test_a_batch_is_what_is_asked_for_at_once(aio: Aio, batch: float, in_turn: bool) -> None:
    step = step_of(config(NVME, NVME_PARAMETERS, aio))
    works = [op.work for op in step.ops if op.stream in (READ, WRITE) and isinstance(op.work, Transfer)]
    assert {(work.batch, work.in_turn) for work in works} == {(batch, in_turn)}
