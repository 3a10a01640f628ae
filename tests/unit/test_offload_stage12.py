"""Stages 1 and 2 with the optimizer in host memory: bytes, waits and memory worked out by hand on the toy.

On one rank a partition is the whole model: q = q' = 213,888. On two, rank 0 owns q = 106,944 elements, which lie in 16
tensors of q' = 115,200: the embedding, the 8 of the first block, 7 of the second (see test_strategies.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.programs import ancestors, levels
from tests.toy import toy, toy_training
from zerosim.spec.strategy import UNLIMITED, DeepSpeed, Offload, Optimizer, Zero
from zerosim.step import COMPUTE, HOST_STREAM, REDUCE, Collective, HostCompute, Op, Pass, Step, Transfer, communicator
from zerosim.strategies import base, build

PSI = 213_888
PARTITION, TOUCHED, TENSORS = PSI // 2, 115_200, 16
LARGEST = 32_768
BUCKET = 20_000


def offloaded(stage: int, pin_memory: bool = True, device: str = "cpu", **keys: Any) -> DeepSpeed:
    place = Offload(device=device, pin_memory=pin_memory)  # type: ignore[arg-type]  # rows are checked by the class
    zero = Zero(stage=stage, reduce_bucket_size=BUCKET, offload_optimizer=place)  # type: ignore[arg-type]  # a row of the test
    return DeepSpeed(zero=replace(zero, **keys), synchronized_timer=False)


def step_of(config: DeepSpeed, ranks: int = 2, accumulation: int = 1, **training: Any) -> Step:
    step = build(config, toy(), toy_training(gradient_accumulation_steps=accumulation, **training), ranks)[0]
    assert step.lint() == []
    return step


def copies(step: Step, target: str | None = None) -> list[tuple[Op, Transfer]]:
    """All, or those to `target`."""
    found = [(op, op.work) for op in step.ops if isinstance(op.work, Transfer)]
    assert all({work.source, work.target} == {"gpu", "dram"} for _, work in found)
    return [(op, work) for op, work in found if target in (None, work.target)]


def moved(step: Step) -> tuple[float, float]:
    """Bytes down and up."""
    down, up = (sum(work.bytes for _, work in copies(step, target)) for target in ("dram", "gpu"))
    return down, up


def held(step: Step, tier: str) -> dict[tuple[str, bool], float]:
    """Resident bytes by name, pinned or not."""
    found: Counter[tuple[str, bool]] = Counter()
    for buffer in (step.buffers[number] for number in step.resident):
        if buffer.tier == tier:
            found[buffer.name, buffer.pinned] += int(buffer.bytes)
    return dict(found)


def waits(step: Step) -> Iterator[tuple[Op, Op]]:
    """(op whose issue waits, what it waits for)."""
    return ((op, step.ops[number]) for op in step.ops for number in op.host_waits)


# --- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("stage", "accumulation", "down", "up"),
    [(1, 1, 4, 2), (1, 4, 4, 2), (2, 1, 4, 2), (2, 4, 2 * 4 + 4, 2 * 3 + 2)],
)
def test_bytes_down_and_up_per_parameter_of_the_partition(
    stage: int, accumulation: int, down: int, up: int, overlap: bool
) -> None:
    step = step_of(offloaded(stage, overlap_comm=overlap), 1, accumulation)
    assert moved(step) == (down * PSI, up * PSI)


@pytest.mark.parametrize(("stage", "accumulation", "sums"), [(1, 4, 0), (2, 1, 0), (2, 4, 4), (2, 7, 7)])
@pytest.mark.parametrize(("precision", "width"), [("bf16", 2), ("fp16", 2), ("fp32", 4)])
def test_sums_travel_as_whole_tensors_and_the_rest_as_slices(
    stage: int, accumulation: int, sums: int, precision: str, width: int
) -> None:
    step = step_of(offloaded(stage), 2, accumulation, precision=precision)
    down = width * sums * TOUCHED + 4 * PARTITION
    up = width * max(sums - 1, 0) * TOUCHED + width * PARTITION
    assert moved(step) == (down, up)


def test_sums_come_up_from_the_second_micro_step_on_and_gradients_go_down_in_the_last() -> None:
    step = step_of(offloaded(2), 2, 4)
    names = Counter((op.name, op.micro_batch) for op, _ in copies(step) if op.phase == "backward")
    assert names == {
        **{("copy accumulated gradient to host", m): TENSORS for m in range(4)},
        **{("copy accumulated gradient to the GPU", m): TENSORS for m in (1, 2, 3)},
        ("copy gradient to host", 3): TENSORS,
    }
    sums = [op for op in step.ops if op.name == "accumulate gradient"]
    assert Counter(op.micro_batch for op in sums) == {1: TENSORS, 2: TENSORS, 3: TENSORS}


def test_stage_1_accumulates_on_the_gpu_and_copies_in_the_last_micro_step_only() -> None:
    step = step_of(offloaded(1), 2, 4)
    down = copies(step, "dram")
    assert {(op.phase, op.micro_batch) for op, _ in down} == {("backward", 3)}
    assert {op.name for op, _ in down} == {"copy gradient to host"}


@pytest.mark.parametrize("accumulation", [1, 4])
def test_fp32_sums_stay_on_the_gpu_and_go_down_once(accumulation: int) -> None:
    config = replace(offloaded(2), grad_accum_dtype="fp32")
    step = step_of(config, 2, accumulation)
    assert moved(step) == (4 * PARTITION, 2 * PARTITION)
    held_there = [names["fp32 gradients of my partition"] for names in levels(step)]
    assert max(held_there) == 4 * PARTITION
    assert held_there[-1] == 0
    assert not [op for op in step.ops if op.name == "cast gradient to fp32"]


def test_dram_carries_48_bytes_a_parameter() -> None:
    """Gradient 4 (landing), scaling 8, Adam 28, cast 6, copy up 2; each micro-step more 4, but for the first's 2."""

    def traffic(accumulation: int) -> float:
        step = step_of(offloaded(2), 1, accumulation)
        computed = [op.work for op in step.ops if isinstance(op.work, HostCompute)]
        assert [work.dram_bytes for work in computed] == [8 * PSI, 28 * PSI, 6 * PSI]
        return sum(moved(step)) + sum(work.dram_bytes for work in computed)

    assert traffic(1) == 48 * PSI
    assert traffic(4) == (48 + 2 + 3 * 4) * PSI


def test_an_fp32_model_is_copied_to_the_buffer_it_leaves_from() -> None:
    step = step_of(offloaded(2), precision="fp32")
    works = [op.work for op in step.ops if isinstance(op.work, HostCompute)]
    assert [(work.kind, work.dram_bytes) for work in works] == [
        ("stream", 8 * PARTITION), ("optimizer", 28 * PARTITION), ("stream", 8 * PARTITION),
    ]  # fmt: skip
    assert not [op for op in step.ops if op.name.startswith(("cast", "all-reduce overflow"))]


def test_an_optimizer_of_torch_is_another_kind_of_work() -> None:
    step = step_of(replace(offloaded(2), optimizer=Optimizer("AdamW", 8, 40, on_cpu="torch")))
    (work,) = [op.work for op in step.ops if op.name == "AdamW step on the CPU"]
    assert work == HostCompute("torch_optimizer", PARTITION, 40 * PARTITION)


@pytest.mark.parametrize("device", ["cpu", "none"])
@pytest.mark.parametrize("stage", [1, 2])
def test_gradients_are_scaled_where_something_asks_for_it(stage: int, device: str) -> None:
    """A clipping, or the loss scale of fp16."""
    for precision, clipping, scaled in (("bf16", 1.0, 1), ("bf16", 0.0, 0), ("fp32", 0.0, 0), ("fp16", 0.0, 1)):
        config = replace(offloaded(stage, device=device), gradient_clipping=clipping)
        step = step_of(config, precision=precision)
        assert sum(op.name == "scale gradients" for op in step.ops) == scaled


# --- the host ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
def test_the_host_reads_twice_a_tensor_and_both_flags(stage: int, overlap: bool) -> None:
    """If it is finite, at the boundary's flush, and its norm, in the step; overflow and norm of all."""
    step = step_of(offloaded(stage, overlap_comm=overlap), 2, 4)
    reads = Counter((op.phase, op.micro_batch) for op in step.ops for _ in range(op.host.reads))
    assert reads == {("backward", 3): TENSORS, ("optimizer", 3): 1 + TENSORS + 1}


@pytest.mark.parametrize("overlap", [False, True])
def test_at_the_boundary_the_host_stops_at_each_tensor(overlap: bool) -> None:
    """It waits for the test of the tensor, so for its reduction: what is cast and copied is issued after that."""
    step = step_of(offloaded(2, overlap_comm=overlap))
    tests = [op.number for op in step.ops if op.name == "test gradient for inf and nan"]
    assert len(tests) == TENSORS
    for number in tests:
        assert step.ops[number + 1].name == "cast gradient to fp32"
        assert number in step.ops[number + 1].host_waits
        assert step.ops[number].stream == (REDUCE if overlap else COMPUTE)


def test_while_it_accumulates_the_host_waits_for_the_copy_of_the_tensor_before() -> None:
    """15 of the 16 within a micro-step, one from one to the next, and the last at the step."""
    step = step_of(offloaded(2, overlap_comm=True), 2, 3)
    down = [op.number for op, _ in copies(step, "dram") if op.name == "copy accumulated gradient to host"]
    waited = [what.number for op, what in waits(step) if what.number in down and op.phase == "backward"]
    assert sorted(set(waited)) == down[:-TENSORS]  # in the boundary each is followed by a copy that counts
    boundary = [op for op, work in copies(step, "dram") if op.name == "copy gradient to host"]
    awaited = {what.number for _, what in waits(step)}
    assert {op.number for op in boundary} <= awaited


def test_the_first_micro_step_does_not_wait_before_its_second_tensor() -> None:
    step = step_of(offloaded(2), 1, 2)
    first = [op for op, _ in copies(step) if op.micro_batch == 0]
    assert first[0].host_waits == ()
    assert [op.host_waits for op in first[1:]] == [(before.number,) for before in first[:-1]]


def test_the_host_updates_alone_and_then_sends_the_weights() -> None:
    step = step_of(offloaded(2, overlap_comm=True))
    first = next(op.number for op in step.ops if isinstance(op.work, HostCompute))
    update = step.ops[first - 2 :]
    assert [op.name for op in update] == [
        "all-reduce overflow flag", "all-reduce norm", "scale gradients", "AdamW step on the CPU",
        "cast parameters to 16 bit", "copy parameters to the GPU", "all-gather updated parameters",
    ]  # fmt: skip
    nccl = communicator("dp")
    assert [op.stream for op in update] == [nccl, nccl, *[HOST_STREAM] * 3, COMPUTE, nccl]
    for op, before in zip(update[1:-1], update[:-2], strict=True):
        assert before.number in op.host_waits
    assert update[-1].after == (update[-2].number,)  # the host need not wait for a pinned copy
    assert update[-2].work == Transfer(2 * PARTITION, "dram", "gpu")


@pytest.mark.parametrize("accumulation", [1, 3])
def test_from_pageable_memory_each_copy_holds_the_host(accumulation: int) -> None:
    step = step_of(offloaded(2, pin_memory=False), 2, accumulation)
    pageable = copies(step)
    assert {work.pinned for _, work in pageable} == {False}
    assert {op.number for op, _ in pageable} <= {what.number for _, what in waits(step)}
    for op, _ in pageable:
        assert op.number in step.ops[op.number + 1].host_waits
    assert not [name for name, pinned in held(step, "dram") if pinned]
    assert moved(step) == moved(step_of(offloaded(2), 2, accumulation))


# --- lanes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
def test_copies_run_on_the_lane_that_reduces(stage: int, overlap: bool) -> None:
    step = step_of(offloaded(stage, overlap_comm=overlap), 2, 3)
    lanes = {(op.phase, op.stream) for op, _ in copies(step)}
    assert lanes == {("backward", REDUCE if overlap else COMPUTE), ("optimizer", COMPUTE)}


def test_a_reduction_waits_for_what_filled_its_bucket_and_for_no_kernel_after_it() -> None:
    """On the GPU it waits for the compute lane, so for the kernels of the gradient that did not fit, too."""
    for config, later in ((offloaded(2, overlap_comm=True), 0), (offloaded(2, device="none", overlap_comm=True), 1)):
        step = step_of(config)
        seen = ancestors(step)
        second = [op for op in step.ops if op.reduces][1]
        compute = [op for op in step.ops[: second.number] if op.stream == COMPUTE]
        filled = max(op.number for op in compute if op.name == "copy gradient to bucket")
        assert compute[-1].number > filled
        assert seen[second.number][COMPUTE] == (compute[-1].number if later else filled)


def test_a_gradient_larger_than_the_bucket_is_copied_to_memory_of_its_own() -> None:
    """The table and the head, 32,768 each; the one they came in is free."""
    step = step_of(offloaded(2))
    own = [op for op in step.ops if op.name == "copy gradient larger than the bucket"]
    assert len(own) == 2
    assert not [op for op in step_of(offloaded(2, device="none")).ops if op.name == own[0].name]
    gradients = [names["gradient"] for names in levels(step)]
    assert max(gradients) == 2 * 2 * LARGEST


def test_gradients_are_contiguous_whatever_the_file_says() -> None:
    assert step_of(offloaded(2, contiguous_gradients=False)).ops == step_of(offloaded(2)).ops


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("accumulation_dtype", "read"), [(None, 2), ("fp32", 4)])
def test_the_gpu_prepares_what_goes_down(accumulation_dtype: str | None, read: int, overlap: bool) -> None:
    """Norm and cast of a slice; the least and the greatest of a whole tensor, or of the slice that fp32 sums are."""
    config = replace(offloaded(2, overlap_comm=overlap), grad_accum_dtype=accumulation_dtype)
    step = step_of(config, 2, 2)
    moved_there: Counter[str] = Counter()
    lane = [op for op in step.ops if op.stream == (REDUCE if overlap else COMPUTE) and isinstance(op.work, Pass)]
    for op in lane:
        assert isinstance(op.work, Pass)
        moved_there[op.name] += int(op.work.hbm_bytes)
    assert moved_there["gradient norm"] == 18 * PARTITION
    assert {op.host.kernels for op in lane if op.name == "test gradient for inf and nan"} == {2 + 2 * 4 + 2}
    assert moved_there["test gradient for inf and nan"] == 2 * read * (PARTITION if read == 4 else TOUCHED)
    if read == 2:
        assert moved_there["accumulate gradient"] == 3 * 2 * TOUCHED  # once, in the second micro-step
        assert moved_there["cast gradient to fp32"] == 6 * PARTITION
    else:
        assert moved_there["accumulate gradients in fp32"] == 2 * (6 + 12) * PARTITION
        assert moved_there["clear gradients of my partition"] == 4 * PARTITION


# --- memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stage", "accumulation", "sums"), [(1, 4, 0), (2, 1, 0), (2, 4, 2 * TOUCHED)])
def test_what_is_resident(stage: int, accumulation: int, sums: int) -> None:
    step = step_of(offloaded(stage), 2, accumulation)
    assert held(step, "gpu") == {("parameters", False): 2 * PSI, ("gradient on its way", False): 2 * LARGEST}
    expected = {
        ("fp32 master parameters", True): 4 * PARTITION,
        ("fp32 gradients", True): 4 * PARTITION,
        ("optimizer states", False): 8 * PARTITION,
        ("parameters on their way to the GPU", True): 2 * PARTITION,
        ("gradient on its way", True): 2 * LARGEST,
        ("accumulated gradient", True): sums,
    }
    assert held(step, "dram") == {key: size for key, size in expected.items() if size}
    assert held(step, "nvme") == {}


def test_pinned_blocks_take_powers_of_two() -> None:
    """427,776 bytes of masters take 524,288."""
    step = step_of(offloaded(2), 2, 4)
    master = next(b for b in step.buffers if b.name == "fp32 master parameters")
    assert (master.bytes, master.taken) == (427_776, 524_288)
    sums = [b.taken for b in step.buffers if b.name == "accumulated gradient"]
    assert len(sums) == TENSORS
    assert sum(sums) == 2 * TOUCHED + 2 * (2 * (16_384 - 12_288))  # the two qkv are no power of two


@pytest.mark.parametrize("accumulation", [1, 4])
def test_no_gradients_of_the_partition_are_kept_on_the_gpu(accumulation: int) -> None:
    step = step_of(offloaded(2), 2, accumulation)
    peak = max(names["gradients of my partition"] + names["flat gradients"] for names in levels(step))
    assert peak == 0
    assert max(names["fp32 gradient"] for names in levels(step)) == 4 * LARGEST
    gpu = {b.name for b in step.buffers if b.tier == "gpu"}
    assert gpu.isdisjoint({"fp32 master parameters", "optimizer states", "fp32 gradients"})


# --- which programs are equal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
def test_an_optimizer_on_nvme_is_one_in_host_memory(stage: int) -> None:
    assert step_of(offloaded(stage, device="nvme")) == step_of(offloaded(stage))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("pinned", [False, True])
def test_micro_steps_that_are_repeated_equal_those_written(
    stage: int, overlap: bool, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 6, number 0 brings nothing up and number 5 hands over: 3 and 4 repeat 2."""
    config = offloaded(stage, pinned, overlap_comm=overlap)
    repeated = step_of(config, 2, 6)
    monkeypatch.setattr(base, "STEADY", UNLIMITED)
    assert step_of(config, 2, 6) == repeated


@pytest.mark.parametrize("stage", [1, 2])
def test_the_collectives_are_those_without_offload(stage: int) -> None:
    there, here = (step_of(offloaded(stage, device=device), 2, 3) for device in ("cpu", "none"))
    assert [op.work for op in there.ops if isinstance(op.work, Collective)] == [
        op.work for op in here.ops if isinstance(op.work, Collective)
    ]


@pytest.mark.parametrize("stage", [1, 2])
def test_one_rank_owns_everything(stage: int) -> None:
    step = step_of(offloaded(stage), 1)
    down = [work.bytes for _, work in copies(step, "dram")]
    assert sorted(down) == sorted(4.0 * parameter.numel for parameter in toy().parameters)
