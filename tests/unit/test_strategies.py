"""Small facts of the strategies with numbers worked out by hand on the toy: 213,888 parameters, blocks of 49,408.

On two ranks a partition of stages 1 and 2 is 106,944 elements. That of rank 0 ends inside fc1 of the second block;
with this tensor whole, 115,200 elements touch it (32,768 + 49,408 + 128 + 12,288 + 4,096 + 128 + 16,384).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.linears import linears
from tests.programs import ancestors, levels, variant
from tests.toy import toy, toy_training
from zerosim.spec.loading import inline
from zerosim.spec.model import Function, Model
from zerosim.spec.model_file import read_model
from zerosim.spec.optimizer_value import UNFUSED_KERNELS
from zerosim.spec.optimizers import optimizer
from zerosim.spec.strategy import Ddp, DeepSpeed, Strategy, Zero
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, GATHER, REDUCE, Attention, Collective, Matmul, Op, Pass, Step, communicator
from zerosim.strategies import build, model_flops

PSI = 213_888
PARTITION = PSI // 2  # q of two ranks
TOUCHED = 115_200  # q', the tensors of rank 0's partition whole
BUCKET = 20_000
NCCL = communicator("dp")


def zero(stage: int, synchronized_timer: bool = True, **keys: Any) -> DeepSpeed:
    config = Zero(stage=stage, reduce_bucket_size=BUCKET, param_persistence_threshold=100)  # type: ignore[arg-type]  # a row of the test
    return DeepSpeed(zero=replace(config, **keys), synchronized_timer=synchronized_timer)


def step_of(strategy: Strategy, ranks: int = 2, model: Model | None = None, **training: Any) -> Step:
    return build(strategy, model or toy(), toy_training(**training), ranks)[0]


def resident(step: Step) -> Counter[str]:
    held: Counter[str] = Counter()
    for buffer in step.resident:
        held[step.buffers[buffer].category] += int(step.buffers[buffer].bytes)
    return held


def at(step: Step, **wanted: Any) -> list[Counter[str]]:
    """What is held at each op that has these attributes."""
    pairs = zip(step.ops, levels(step), strict=False)
    return [held for op, held in pairs if all(getattr(op, key) == value for key, value in wanted.items())]


def collectives(ops: Sequence[Op], *kinds: str) -> list[Op]:
    return [op for op in ops if isinstance(op.work, Collective) and (not kinds or op.work.kind in kinds)]


def reductions(step: Step) -> list[Collective]:
    return [op.work for op in step.ops if op.reduces and isinstance(op.work, Collective)]


# --- memory --------------------------------------------------------------------------------------------------------


def test_stage_0_peaks_at_24_bytes_a_parameter_in_the_optimizer() -> None:
    step = step_of(zero(0))
    assert resident(step) == {"parameters": 2 * PSI, "optimizer": 12 * PSI}
    assert max(held.total() for held in at(step, phase="optimizer")) == 24 * PSI


@pytest.mark.parametrize("stage", [1, 2])
def test_stages_1_and_2_keep_12_bytes_a_parameter_of_their_partition(stage: int) -> None:
    assert resident(step_of(zero(stage))) == {"parameters": 2 * PSI, "optimizer": 12 * PARTITION}
    # 7 ranks: padded to a multiple of 14, 213,892, so 30,556 each
    assert resident(step_of(zero(stage), ranks=7)) == {"parameters": 2 * 213_892, "optimizer": 12 * 30_556}


@pytest.mark.parametrize(("overlap", "buffers"), [(False, 1), (True, 2)])
def test_the_bucket_is_there_from_the_first_gradient_to_the_epilogue(overlap: bool, buffers: int) -> None:
    step = step_of(zero(2, overlap_comm=overlap), gradient_accumulation_steps=2)
    size = buffers * 2 * BUCKET
    assert {held["gradient bucket"] for held in at(step, phase="forward")} == {0}
    backward = [held["gradient bucket"] for held in at(step, phase="backward", micro_batch=0)]
    assert (backward[0], set(backward[1:])) == (0, {size})  # the first op makes the first gradient
    assert {held["gradient bucket"] for held in at(step, phase="optimizer")} == {0}
    assert max(held["gradient bucket"] for held in levels(step_of(zero(2, contiguous_gradients=False)))) == 0


def test_stage_2_keeps_the_gradients_of_its_partition_and_twice_that_while_it_accumulates() -> None:
    step = step_of(zero(2), gradient_accumulation_steps=3)
    mine = [held["gradients of my partition"] for held in levels(step)]
    forward = [held["gradients of my partition"] for held in at(step, phase="forward", micro_batch=1)]
    assert set(forward) == {2 * TOUCHED}
    assert max(mine) == 4 * TOUCHED
    peak = max(held.total() for held in at(step, phase="optimizer"))
    # states, gradients of the partition, their flat copy in 16 bits and in fp32
    assert peak == 2 * PSI + 12 * PARTITION + 2 * TOUCHED + (2 + 4) * PARTITION


@pytest.mark.parametrize("overlap", [False, True])
def test_stage_1_holds_whole_gradients_until_the_boundary(overlap: bool) -> None:
    step = step_of(zero(1, overlap_comm=overlap), gradient_accumulation_steps=3)
    last = [held["gradient"] for held in at(step, phase="backward", micro_batch=2)]
    assert {held["gradient"] for held in at(step, phase="forward", micro_batch=2)} == {2 * PSI}
    assert max(last) > 2 * PSI  # beside the one that is added
    assert {held["gradient"] for held in at(step, phase="optimizer")} == {0}
    assert {held["gradients of my partition"] for held in at(step, micro_batch=1)} == {0}


def test_stage_3_keeps_16_bytes_of_its_shards_a_bucket_and_the_small_parameters() -> None:
    """14 norm tensors of 64 elements persist."""
    shards, states = {"parameters": 2 * PARTITION + 2 * 14 * 64}, {"optimizer": 12 * PARTITION}
    expected = {**shards, **states, "gradients": 2 * PARTITION, "buffers": 2 * BUCKET}
    assert resident(step_of(zero(3))) == expected


def test_shards_of_stage_3_are_rounded_up_parameter_by_parameter() -> None:
    """On 3 ranks 32,768 are 10,923 each, 12,288 4,096, 4,096 1,366, 16,384 5,462 and 64 22: 71,312 in all."""
    found = resident(step_of(zero(3), ranks=3))
    assert found["optimizer"] == 12 * 71_312
    assert found["gradients"] == 2 * 71_312
    assert found["parameters"] == 2 * 71_312 + 2 * 14 * 64


@pytest.mark.parametrize(("size", "largest"), [(10**9, PARTITION), (1, 16_384), (20_000, 34_944)])
def test_the_optimizer_of_stage_3_goes_by_sub_groups(size: int, largest: int) -> None:
    """A group closes once its shards reach the size. Of a group a flat copy is widened to fp32: 6 bytes an element.

    The last group of 20,000 is o, ln2, fc1 and fc2 of the last block, lnf and the head:
    2,048 + 64 + 8,192 + 8,192 + 64 + 16,384 = 34,944.
    """
    step = step_of(zero(3, sub_group_size=size))
    transient = [held["flat gradients"] + held["fp32 gradients"] for held in levels(step)]
    assert max(transient) == 6 * largest
    assert transient[-1] == 0


@pytest.mark.parametrize(("views", "each"), [(False, 20), (True, 16)])
def test_ddp_holds_16_or_20_bytes_a_parameter(views: bool, each: int) -> None:
    step = step_of(Ddp(gradient_as_bucket_view=views))
    assert max(held.total() for held in at(step, phase="optimizer")) == each * PSI
    assert resident(step).total() == (each - 4) * PSI  # without the gradients


def test_ddp_in_pure_16_bits_holds_fp32_masters() -> None:
    step = step_of(Ddp(parameter_dtype="bf16", gradient_as_bucket_view=True))
    assert resident(step) == {"parameters": 2 * PSI, "optimizer": (8 + 4) * PSI}


# --- activations ---------------------------------------------------------------------------------------------------

# 16 tokens of 64 in 16 bits are 2,048 bytes: both norms, qkv, o and fc1 save one each, fc2 four
SAVED_BY_A_BLOCK = (5 + 4) * 2_048
SAVED_OUTSIDE = 16 * 8 + 2 * 2_048  # indices of the embedding, inputs of the last norm and the head


def test_a_block_saves_the_inputs_of_its_leaves() -> None:
    turn = at(step_of(zero(2)), phase="forward")[-1]
    assert turn["saved activation"] == 3 * SAVED_BY_A_BLOCK + SAVED_OUTSIDE


def test_a_checkpointed_block_saves_its_input_and_one_block_at_a_time_is_recomputed() -> None:
    step = step_of(zero(2), activation_checkpointing="full")
    turn = at(step, phase="forward")[-1]
    assert turn["block input"] == 3 * 2_048
    assert turn["saved activation"] == SAVED_OUTSIDE
    backward = [held["saved activation"] for held in at(step, phase="backward")]
    assert max(backward[2:]) == SAVED_BY_A_BLOCK + 16 * 8  # the embedding's indices stay to the end


@pytest.mark.parametrize(("reentrant", "kernels"), [(False, 15), (True, 18)])
def test_recomputation_runs_the_forward_of_each_block_again(reentrant: bool, kernels: int) -> None:
    """Of six leaves a block; without reentry it stops before the last one, whose input is then there."""
    step = step_of(zero(2), activation_checkpointing="full", reentrant=reentrant)
    again = [op for op in step.ops if op.name.endswith(" recompute")]
    assert len(again) == kernels
    assert {op.phase for op in again} == {"backward"}
    assert not [op for op in step_of(zero(2)).ops if op.name.endswith(" recompute")]
    products = [op.work.flops for op in again if isinstance(op.work, Matmul)]
    each = 2 * 16 * (12_288 + 4_096 + 16_384 + (16_384 if reentrant else 0))  # 2 FLOP a weight and token
    assert sum(products) == 3 * each


def llama(layers: int) -> Model:
    shape = {"layers": layers, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "gated": True, "vocab": 512}
    return read_model(inline(shape, "llama"))


def test_a_llama_block_saves_what_was_measured() -> None:
    """18 s b h + (2 + 4 kv/a) s b h for q, k, v + 8 s b f + 4 a s b, with eager RMSNorm in fp32 and flash attention."""
    one, two = (at(step_of(zero(2), model=llama(n)), phase="forward")[-1]["saved activation"] for n in (1, 2))
    assert two - one == 18 * 16 * 64 + (2 + 2) * 16 * 64 + 8 * 16 * 128 + 4 * 4 * 16


@pytest.mark.parametrize(("direction", "made"), [("fwd", 4), ("bwd", 8)])
def test_logits_and_loss_take_10_and_14_bytes_a_token_and_word(direction: str, made: int) -> None:
    """16-bit logits and fp32 log-softmax, saved; an fp32 copy (forward), or the gradients of the two (backward: torch
    2.13's profiler sees 8 bytes a logit above what was saved)."""
    bare = toy()
    loss = Function("loss", "loss", outputs=512)
    model = replace(bare, root=replace(bare.root, body=(*bare.root.body, loss)))
    held = at(step_of(zero(2), model=model), name=f"loss {direction}")[0]
    others = 3 * SAVED_BY_A_BLOCK + SAVED_OUTSIDE
    assert held["saved activation"] - others == 6 * 16 * 512
    assert held["kernel scratch"] == made * 16 * 512


def test_model_flops_are_six_a_weight_and_token_and_full_scores() -> None:
    """Llama of two blocks: 12 s² h for scores and values of each block, causal or not; the table is only looked up."""
    training = Training(sequence_length=16)
    block = 64 * (64 + 2 * 32 + 64) + 3 * 64 * 128
    assert model_flops(llama(2), training) == 6 * 16 * (2 * block + 64 * 512) + 2 * 12 * 16 * 16 * 64
    step = step_of(zero(2), model=llama(2))
    scores = [op.work for op in step.ops if isinstance(op.work, Attention)]
    assert [work.flops for work in scores] == [2 * 16 * 16 * 64.0] * 2 + [5 * 16 * 16 * 64.0] * 2  # causal halves


# --- waiting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [1, 2])
def test_with_overlap_the_host_waits_for_the_device_after_a_reduced_backward(stage: int) -> None:
    step = step_of(zero(stage, synchronized_timer=False, overlap_comm=True))
    first = next(op for op in step.ops if op.phase == "optimizer")
    newest = {op.stream: op.number for op in step.ops[: first.number]}
    assert set(newest) == {COMPUTE, REDUCE, NCCL}
    assert set(first.host_waits) == set(newest.values())
    assert not [op for op in step.ops[: first.number] if op.host_waits]


def test_without_overlap_the_host_runs_ahead_until_it_reads_the_overflow_flag_and_the_norm() -> None:
    step = step_of(zero(2, synchronized_timer=False), gradient_accumulation_steps=2)
    waiting = [op for op in step.ops if op.host_waits]
    scalars = [op.number for op in step.ops if op.name in ("all-reduce overflow flag", "all-reduce norm")]
    assert [op.number for op in waiting] == [number + 1 for number in scalars]
    assert all(number in op.host_waits for number, op in zip(scalars, waiting, strict=True))
    assert {op.stream for op in step.ops} == {COMPUTE, NCCL}


def test_the_overflow_check_reads_each_tensor_twice_and_keeps_nothing() -> None:
    """The least and the greatest of 16 tensors; isfinite of either is four kernels, and two put these together."""
    step = step_of(zero(2))
    (check,) = [op for op in step.ops if op.name == "test gradient for inf and nan"]
    assert check.work == Pass(2 * 2 * PARTITION, "reduction", 16 * (2 + 2 * 4 + 2))
    assert check.acquires == ()


@pytest.mark.parametrize(("stage", "precision", "checks", "reads"), [
    (2, "bf16", True, 2), (2, "bf16", False, 0), (2, "fp16", True, 2), (2, "fp32", True, 1),
    (3, "bf16", True, 1), (3, "fp16", True, 2),
])  # fmt: skip
def test_the_host_reads_the_flag_and_whether_the_norm_is_finite(
    stage: int, precision: str, checks: bool, reads: int
) -> None:
    config = replace(zero(stage, synchronized_timer=False), check_grad_overflow=checks)
    assert sum(op.host.reads for op in step_of(config, precision=precision).ops) == reads


@pytest.mark.parametrize("dtype", [None, "fp32"])
def test_stage_3_in_fp16_checks_its_whole_partition(dtype: str | None) -> None:
    """Four times each gradient, four booleans; the largest at once: an abs and its booleans."""
    width = 4 if dtype else 2
    step = step_of(replace(zero(3), grad_accum_dtype=dtype), precision="fp16")
    (check,) = [op for op in step.ops if op.name == "overflow check"]
    share = sum(-(-parameter.numel // 2) for parameter in toy().parameters)
    assert check.work == Pass((4 * width + 4) * share, "reduction", 7)
    assert max(held["overflow check"] for held in levels(step)) == (width + 1) * share


def test_stage_0_in_fp16_asks_of_each_parameter_whether_it_is_finite() -> None:
    step = step_of(zero(0, synchronized_timer=False), precision="fp16")
    tests = [op.number for op in step.ops if op.name == "test gradient for inf and nan"]
    assert len(tests) == len(toy().parameters)
    assert all(number in step.ops[number + 1].host_waits for number in tests)
    assert sum(op.host.reads for op in step.ops) == len(tests) + 1


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("sums", [None, "fp32"])  # on stage 1 in fp32: BF16_Optimizer
def test_an_optimizer_that_is_not_fused_steps_one_flat_tensor(stage: int, sums: str | None) -> None:
    config = replace(zero(stage), optimizer=optimizer("adamw", torch_adam=True), grad_accum_dtype=sums)
    (step,) = [op for op in step_of(config).ops if op.name == "AdamW step"]
    assert step.host.kernels == UNFUSED_KERNELS


@pytest.mark.parametrize(
    ("tensors", "elements", "kernels"),
    [(1, 1, 8), (336, 336, 8), (337, 337, 16), (1, 2239 * 65_536, 8), (1, 2240 * 65_536, 16), (290, 7 * 10**9, 8 * 48)],
)
def test_a_foreach_kernel_takes_many_tensors_and_chunks(tensors: int, elements: int, kernels: int) -> None:
    """7 billion elements are 106,811 chunks, of which 2240 go into a kernel, of all eight."""
    assert optimizer("adamw", torch_adam=True).launches(tensors, elements) == kernels
    assert optimizer("onebitadam").launches(tensors, elements) == 8 * tensors
    assert optimizer("adamw").launches(tensors, elements) == 1


def test_the_throughput_timer_waits_for_the_device_at_each_forward_and_at_the_end() -> None:
    step = step_of(zero(2), gradient_accumulation_steps=3)
    starts = [next(op for op in step.ops if op.micro_batch == m and op.phase == "forward") for m in (1, 2)]
    assert all({COMPUTE, NCCL} == {step.ops[n].stream for n in op.host_waits} for op in starts)
    assert (step.ops[-1].stream, step.ops[-1].work) == ("host", None)
    assert step.ops[-2].number in step.ops[-1].host_waits


@pytest.mark.parametrize("stage", [1, 2])
def test_at_a_flush_compute_waits_for_the_previous_one(stage: int) -> None:
    """At most one reduction hides behind compute, which stalls where a reduction takes longer than to fill a bucket."""
    step = step_of(zero(stage, overlap_comm=True))
    seen = ancestors(step)
    issued = [op.number for op in step.ops if op.reduces]
    assert len(issued) == 11
    for before, number in zip([-1, *issued], issued[:-2], strict=False):  # between the last two nothing is computed
        after = next(op for op in step.ops[number:] if op.stream == COMPUTE)
        assert seen[after.number].get(NCCL, -1) == before
        assert seen[number][COMPUTE] > before  # its bucket was filled meanwhile


def test_without_overlap_compute_waits_for_each_reduction() -> None:
    step = step_of(zero(2))
    seen = ancestors(step)
    for op in step.ops:
        if op.reduces:
            after = next(other for other in step.ops[op.number :] if other.stream == COMPUTE)
            assert seen[after.number][NCCL] == op.number


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
def test_nothing_overlaps_the_all_gather_of_the_weights(stage: int, overlap: bool) -> None:
    step = step_of(zero(stage, overlap_comm=overlap), gradient_accumulation_steps=2)
    (gather,) = collectives(step.ops, "all_gather")
    newest = {op.stream: op.number for op in step.ops[: gather.number]}
    assert ancestors(step)[gather.number] == newest  # it waits for everything before it
    assert {op.work for op in step.ops[gather.number + 1 :]} <= {None}  # and nothing comes after it


def test_stage_3_lets_the_host_run_at_most_three_reductions_ahead() -> None:
    """Before each from the fourth on it waits for the one three before, and after the backward for the last one."""
    step = step_of(zero(3, synchronized_timer=False, overlap_comm=True))
    assert len(reductions(step)) == 11
    ends = [op.number for op in step.ops if op.name == "keep my gradients"]  # the last op of each reduction
    waits = [n for op in step.ops if op.phase == "backward" for n in op.host_waits if step.ops[n].stream == REDUCE]
    assert waits == ends[:8]
    for place, awaited in enumerate(waits):
        blocked = next(op for op in step.ops if awaited in op.host_waits)
        assert ends[place + 2] < blocked.number < ends[place + 3]
    boundary = next(op for op in step.ops if op.phase == "optimizer")
    assert ends[-1] in boundary.host_waits


def test_stage_3_gathers_and_reduces_on_the_compute_lane_without_overlap() -> None:
    lanes = [{op.stream for op in step_of(zero(3, overlap_comm=on)).ops} for on in (False, True)]
    assert lanes == [{COMPUTE, NCCL, "host"}, {COMPUTE, GATHER, REDUCE, NCCL, "host"}]


# --- which parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [zero(1, overlap_comm=True), zero(2), zero(3), Ddp(bucket_cap_mb=0.00001)])
def test_a_tied_embedding_is_reduced_once_and_last(strategy: Strategy) -> None:
    model = variant(toy(), tied=True)
    assert model.numel == PSI - 32_768
    reduced = [piece.parameter for op in step_of(strategy, model=model).ops for piece in op.reduces]
    assert (reduced[-1], reduced.count(0)) == (0, 1)
    untied = [piece.parameter for op in step_of(strategy).ops for piece in op.reduces]
    assert untied[0] == len(toy().parameters) - 1  # the head, whose gradient is the first to be ready


def test_frozen_parameters_are_gathered_and_never_reduced() -> None:
    """Backward needs them for the gradient of the input; their optimizer states and gradients do not exist."""
    model = variant(toy(), frozen=("fc1", "fc2"))
    step = step_of(zero(3, prefetch_bucket_size=0, max_reuse_distance=0), model=model)
    frozen = {number for number, parameter in enumerate(model.parameters) if not parameter.trainable}
    assert len(frozen) == 6
    assert frozen.isdisjoint(piece.parameter for op in step.ops for piece in op.reduces)
    gathers = Counter(op.name for op in collectives(step.ops, "all_gather") if op.phase != "optimizer")
    assert {gathers[f"all-gather {model.parameters[number].name}"] for number in frozen} == {2}
    trained = (PSI - 6 * 16_384) // 2
    assert resident(step)["optimizer"] == 12 * trained
    assert resident(step)["gradients"] == 2 * trained
    assert resident(step)["parameters"] == 2 * PARTITION + 2 * 14 * 64


def test_frozen_parameters_have_no_place_in_the_partitions_of_stage_2() -> None:
    model = variant(toy(), frozen=("emb", "b0"))
    step = step_of(zero(2), model=model)
    trained = PSI - 32_768 - 49_408
    assert resident(step) == {"parameters": 2 * PSI, "optimizer": 12 * (trained // 2)}
    assert sum(work.elements for work in reductions(step)) == trained
    (gather,) = collectives(step.ops, "all_gather")
    assert gather.work == Collective("all_gather", trained, "bf16", "dp")


# --- when nothing is communicated ----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [zero(0), zero(1, overlap_comm=True), zero(1), Ddp()])
def test_accumulation_is_silent_until_the_last_micro_step(strategy: Strategy) -> None:
    step = step_of(strategy, gradient_accumulation_steps=4)
    assert {op.micro_batch for op in collectives(step.ops)} == {3}
    assert {op.phase for op in collectives(step.ops)} <= {"backward", "optimizer"}


def test_autocast_keeps_a_copy_to_its_backward_and_casts_it_again_in_the_next_micro_step() -> None:
    """The first linear's input has no gradient: its module has no post-hook in the backward."""
    step = step_of(Ddp(), model=linears(8, 16, 32), gradient_accumulation_steps=2)
    held = [level["autocast weight"] // 2 for level in at(step, name="cast gradient")]
    assert held == [8 * 16, 0] * 2  # of the second linear, whose copy is gone; then of the first
    assert sum(op.name.endswith("autocast") for op in step.check().ops) == 4


def test_autocast_does_not_keep_the_copy_of_a_frozen_weight() -> None:
    step = step_of(Ddp(), model=linears(8, 16, 32, frozen=1))
    (held,) = at(step.check(), name="l1 autocast")
    assert held["autocast weight"] == 2 * 16 * 32


def test_ddp_without_no_sync_reduces_in_every_micro_step() -> None:
    step = step_of(Ddp(no_sync=False), gradient_accumulation_steps=3)
    assert Counter(op.micro_batch for op in collectives(step.ops)) == {0: 1, 1: 1, 2: 1}
    assert step.reductions == (0, 1, 2)


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
def test_another_communication_dtype_casts_around_each_reduction(wire: str) -> None:
    config = replace(zero(2), communication_data_type=wire)
    step = step_of(config)
    casts = [op for op in step.ops if "communication dtype" in op.name]
    assert {work.dtype for work in reductions(step)} == {wire}
    assert len(casts) == (2 * 11 if wire == "fp32" else 0)
