"""Memory at every moment of a step as DeepSpeed holds it: tables of moments by hand, from its source.

Four linears of 2²⁰ weights on two ranks, bf16 and Adam, all in MiB. PSI: bytes of one of the model's elements (4 MiB an
element and byte), Q of the rank's partition. A bucket is one linear (2 MiB). Activations are not counted. Sources:
DeepSpeed 0.19.8 runtime/fp16/fused_optimizer.py (stage 0), runtime/zero/stage_1_and_2.py, runtime/zero/stage3.py and
partitioned_param_coordinator.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.costs_machines import switched
from tests.linears import CPU, MIB, NUMEL, linears, square
from tests.programs import levels
from tests.toy import toy, toy_training
from zerosim.costs import price
from zerosim.engine import play
from zerosim.spec.launch import Launch
from zerosim.spec.model import Model
from zerosim.spec.release import Release
from zerosim.spec.strategy import DeepSpeed, Offload, Stage, Zero
from zerosim.step import Op, Step
from zerosim.strategies import build
from zerosim.views import memory

LINEAR = 2  # MiB of a linear in 16 bits, and of a bucket
PSI, Q = 4, 2
STATES = 12  # bytes an element: master and two moments


def zero(stage: Stage, **keys: Any) -> DeepSpeed:
    """Nothing persists, nothing is kept for reuse, one sub-group."""
    top = {key: keys.pop(key) for key in ("grad_accum_dtype", "gradient_clipping") if key in keys}
    given = {"reduce_bucket_size": NUMEL, "param_persistence_threshold": 0, "max_reuse_distance": 0, **keys}
    return DeepSpeed(zero=Zero(stage=stage, **given), synchronized_timer=False, **top)


def program(deepspeed: DeepSpeed, model: Model | None = None, ranks: int = 2, **training: Any) -> Step:
    return build(deepspeed, model or square(4), toy_training(**training), ranks)[0].check()


Moment = tuple[Op, Counter[str]]


def moments(step: Step, tier: str = "gpu", unit: int = MIB) -> list[Moment]:
    """What is held of a tier in each op, by name; no activations."""
    counted = {
        number: (buffer.name, int(buffer.taken))
        for number, buffer in enumerate(step.buffers)
        if buffer.tier == tier and buffer.category != "activations"
    }
    held: Counter[str] = Counter()
    for name, size in (counted[number] for number in step.resident if number in counted):
        held[name] += size
    found = []
    for op in step.ops:
        for name, size in (counted[number] for number in op.acquires if number in counted):
            held[name] += size
        found.append((op, Counter({name: size // unit for name, size in held.items() if size})))
        for name, size in (counted[number] for number in op.releases if number in counted):
            held[name] -= size
    return found


def at(found: Sequence[Moment], name: str = "", phase: str = "", micro_batch: int | None = None) -> list[Counter[str]]:
    """The moments of some ops."""
    return [
        held for op, held in found if name in op.name and phase in op.phase and micro_batch in (None, op.micro_batch)
    ]


def totals(held: Sequence[Counter[str]]) -> list[int]:
    return [each.total() for each in held]


# --- stage 0 -------------------------------------------------------------------------------------------------------


def test_stage_0_holds_14_bytes_then_16_then_24_then_18() -> None:
    """Weights and states 14 PSI; whole gradients from the first backward on, and one more while it is added; their flat
    copy while they are reduced; at the step two fp32 copies beside them, and one when the optimizer runs."""
    found = moments(program(zero(0), gradient_accumulation_steps=2))
    assert set(totals(at(found, phase="forward", micro_batch=0))) == {14 * PSI}
    assert set(totals(at(found, phase="forward", micro_batch=1))) == {16 * PSI}
    assert totals(at(found, "bwd", micro_batch=1)) == [16 * PSI + LINEAR] * 4
    assert totals(at(found, "all-reduce gradients")) == [(16 + 2) * PSI]
    assert totals(at(found, "cast gradients to fp32")) == [20 * PSI]
    assert totals(at(found, phase="optimizer"))[1] == max(totals(at(found))) == 24 * PSI
    assert totals(at(found, "AdamW")) == [18 * PSI]


# --- stages 1 and 2 ------------------------------------------------------------------------------------------------

REST = 2 * PSI + STATES * Q  # M0: 32 MiB


@pytest.mark.parametrize(("overlap", "buckets"), [(False, 1), (True, 2)])
def test_stage_1_keeps_whole_gradients_and_its_buckets_to_the_boundary(overlap: bool, buckets: int) -> None:
    """The buckets come with the second gradient (the hook of the first asks for them) and go with the last reduction.
    Gradients go one by one as they are copied into the bucket; mine come back as they are reduced (2 Q)."""
    found = moments(program(zero(1, overlap_comm=overlap), gradient_accumulation_steps=2))
    bucket = buckets * LINEAR
    assert set(totals(at(found, phase="forward", micro_batch=0))) == {REST}
    done = [REST + (i + 1) * LINEAR + (bucket if i else 0) for i in range(4)]
    assert totals(at(found, "bwd", micro_batch=0)) == done
    assert set(totals(at(found, phase="forward", micro_batch=1))) == {REST + bucket + 2 * PSI}
    reducing = at(found, "all-reduce gradients")
    assert [held["gradient"] for held in reducing] == [3 * LINEAR, 2 * LINEAR, LINEAR, 0]
    assert at(found, phase="optimizer")[0]["gradients of my partition"] == 2 * Q


@pytest.mark.parametrize(("overlap", "buckets"), [(False, 1), (True, 2)])
def test_stage_2_keeps_a_gradient_its_buckets_and_its_partition(overlap: bool, buckets: int) -> None:
    """Rank 0 owns the first two linears, whose gradients are the last: its 2 Q come with the first of these, whole, and
    in the second micro-step once more, until they are added to the first."""
    found = moments(program(zero(2, overlap_comm=overlap), gradient_accumulation_steps=3))
    bucket = buckets * LINEAR
    assert set(totals(at(found, phase="forward", micro_batch=0))) == {REST}
    assert totals(at(found, "bwd", micro_batch=0)) == [REST + LINEAR, *[REST + bucket + LINEAR] * 3]
    for micro_batch in (1, 2):
        assert set(totals(at(found, phase="forward", micro_batch=micro_batch))) == {REST + 2 * Q}
    kept = at(found, "keep my gradients")
    mine, owned = "gradients of my partition", 2  # of the linears
    assert [held[mine] for held in kept] == [2 * Q] * owned + [4 * Q] * owned * 2
    assert max(totals(at(found, phase="backward"))) == REST + bucket + LINEAR + 4 * Q
    assert totals(at(found, "accumulate gradient")) == [REST + bucket + 4 * Q] * 2


@pytest.mark.parametrize("stage", [1, 2])
def test_the_step_of_stages_1_and_2(stage: Stage) -> None:
    """M0 + 2 Q (gradients) + 2 Q (flat) + 4 Q (fp32), M0 + 4 Q while the optimizer runs, M0 when weights are gathered.
    The norm widens the largest slice to fp64; the overflow check of this release needs nothing."""
    found = moments(program(zero(stage)))
    assert totals(at(found, "test gradient")) == [REST + 2 * Q]
    assert totals(at(found, "gradient norm")) == [REST + 2 * Q + 8]
    assert totals(at(found, "flatten gradients")) == [REST + 4 * Q]
    assert totals(at(found, "cast gradients to fp32")) == [REST + 8 * Q]
    assert totals(at(found, "AdamW")) == [REST + 4 * Q]
    assert totals(at(found, "all-gather updated")) == [REST]


def test_a_bucket_of_two_owners_is_flattened_and_whole_tensors_are_kept() -> None:
    """Three linears: the border of the two partitions is in the middle of the second, so that its bucket needs a copy
    of its own size on the reduction lane, and rank 0 keeps two linears for its one and a half."""
    found = moments(program(zero(2, overlap_comm=True), square(3)))
    assert [held["flattened bucket"] for held in at(found, "all-reduce gradients")] == [0, LINEAR, 0]
    assert {held["gradients of my partition"] for held in at(found, "keep my gradients")} == {2 * LINEAR}


def test_a_gradient_larger_than_the_bucket_stays_where_it_is() -> None:
    """Of 1024, 4096 and 1024: two linears of 8 MiB in 16 bits. It is freed when it is reduced, which is after the next
    one was made. The bucket of 2 MiB is allocated all the same."""
    found = moments(program(zero(2), linears(1024, 4096, 1024)))
    assert [held["gradient"] for held in at(found, "bwd")] == [8, 16]
    assert [held["gradient bucket"] for held in at(found, "bwd")] == [0, LINEAR]
    assert [held["gradient"] for held in at(found, "all-reduce gradients")] == [16, 8]


# --- stage 3 -------------------------------------------------------------------------------------------------------

SHARDS = (2 + 2 + STATES) * Q + LINEAR  # 2 Q of weights, 2 Q of gradients, states, the bucket: 34 MiB


def test_stage_3_at_rest_and_a_linear_at_a_time() -> None:
    """Without prefetch: the linear that runs, and in the backward its gradient; both go before the next is gathered."""
    found = moments(program(zero(3, prefetch_bucket_size=0)))
    assert totals(at(found, "fwd")) == [SHARDS + LINEAR] * 4
    assert totals(at(found, "bwd")) == [SHARDS + 2 * LINEAR] * 4
    assert totals(at(found, phase="optimizer"))[-1] == SHARDS


def test_persistent_parameters_are_full_but_for_the_step() -> None:
    """The toy's 14 norm tensors of 64 elements, 128 bytes each."""
    found = moments(program(zero(3, param_persistence_threshold=100), toy()), unit=1)

    def full(name: str = "", phase: str = "") -> list[int]:
        return [held["persistent parameter"] for held in at(found, name, phase)]

    assert set(full(phase="forward")) == set(full(phase="backward")) == {14 * 128}
    assert set(full("norm", "optimizer")) == set(full("AdamW")) == {0}
    assert full("all-gather", "optimizer") == [128 * count for count in range(1, 15)]  # one by one


def test_the_window_of_the_prefetch() -> None:
    """Two linears are gathered at once by the root's hook, into a bucket, from which they are copied: twice as much for
    a moment. From then on a hook may gather as much as `max_live_parameters` leaves: three linears."""
    window = {"prefetch_bucket_size": 2 * NUMEL, "max_live_parameters": 3 * NUMEL}
    found = moments(program(zero(3, **window), square(6)))
    gathered = [held["gathered parameter"] + held["gathered bucket"] for held in at(found)]
    assert [held["gathered bucket"] for held in at(found, "all-gather l0.weight and 1 more")] == [2 * LINEAR]
    (landing,) = at(found, "assemble")
    assert (landing["gathered bucket"], landing["gathered parameter"]) == (2 * LINEAR, 2 * LINEAR)
    assert [held["gathered parameter"] for held in at(found, "fwd")] == [3 * LINEAR] * 6
    assert max(gathered) == 4 * LINEAR  # at the landing


def test_one_parameter_may_exceed_what_may_live() -> None:
    """`max_live_parameters` of one and a half linears: a hook adds while the sum is below what is left."""
    window = {"prefetch_bucket_size": 10 * NUMEL, "max_live_parameters": NUMEL + NUMEL // 2}
    found = moments(program(zero(3, **window), square(6)))
    assert max(held["gathered parameter"] for held in at(found, "fwd")) == 2 * LINEAR


def test_a_model_that_may_live_is_gathered_once_and_kept_to_the_backward() -> None:
    found = moments(program(zero(3, max_reuse_distance=10**9)))
    assert [held["gathered parameter"] for held in at(found, "fwd")] == [4 * LINEAR] * 4
    assert [held["gathered parameter"] for held in at(found, "bwd")] == [4 * LINEAR, 3 * LINEAR, 2 * LINEAR, LINEAR]


def test_several_gradients_of_a_bucket_are_interleaved_in_a_copy() -> None:
    """A bucket of two linears: 4 MiB, at rest already; the copy has its size. One gradient alone needs none."""
    found = moments(program(zero(3, prefetch_bucket_size=0, reduce_bucket_size=2 * NUMEL)))
    assert [held["interleaved gradients"] for held in at(found, "reduce-scatter")] == [2 * LINEAR] * 2
    assert {held["gradient bucket"] for held in at(found)} == {2 * LINEAR}
    alone = moments(program(zero(3, prefetch_bucket_size=0)))
    assert {held["interleaved gradients"] for held in at(alone)} == {0}


def test_a_padded_gradient_is_interleaved_too() -> None:
    """On 3 ranks a linear is 3 x 349,526 elements, two more than it has."""
    found = moments(program(zero(3), ranks=3), unit=1)
    assert {held["interleaved gradients"] for held in at(found, "reduce-scatter")} == {2 * 3 * 349_526}


@pytest.mark.parametrize(("size", "groups"), [(10**9, [Q]), (NUMEL, [1, 1]), (1, [0.5] * 4)])
def test_the_step_of_stage_3_takes_6_bytes_of_a_sub_group(size: int, groups: list[float]) -> None:
    """A flat copy in 16 bits and in fp32, then fp32 alone; before it the norm, 8 bytes of the largest shard."""
    found = moments(program(zero(3, prefetch_bucket_size=0, sub_group_size=size)))
    assert totals(at(found, "gradient norm")) == [SHARDS + 8 * 0.5] * len(groups)
    assert totals(at(found, "cast gradients to fp32")) == [SHARDS + 6 * each for each in groups]
    assert totals(at(found, "AdamW")) == [SHARDS + 4 * each for each in groups]


# --- gradients in fp32 ---------------------------------------------------------------------------------------------


def test_wider_gradients_of_stage_2_are_one_flat_buffer_that_nothing_is_copied_from() -> None:
    """`grad_accum_dtype: fp32` (_build_compact_grad_partition_buffer): 4 Q from the first reduction of the step to its
    end, into which every micro-step adds; the optimizer takes it as it is."""
    found = moments(program(zero(2, grad_accum_dtype="fp32"), gradient_accumulation_steps=3))
    assert set(totals(at(found, phase="forward", micro_batch=0))) == {REST}
    for micro_batch in (1, 2):
        assert set(totals(at(found, phase="forward", micro_batch=micro_batch))) == {REST + 4 * Q}
    assert max(totals(at(found, phase="backward"))) == REST + LINEAR + LINEAR + 4 * Q
    assert totals(at(found, "AdamW")) == [REST + 4 * Q]
    assert max(totals(at(found, phase="optimizer"))) == REST + 4 * Q + 8  # the norm
    assert totals(at(found, "all-gather updated")) == [REST]


def test_wider_gradients_of_stage_1_have_buckets_in_fp32() -> None:
    """Whole gradients in fp32 (4 PSI), from which they go to buckets of 4 MiB; on the wire they are 16 bits."""
    found = moments(program(zero(1, grad_accum_dtype="fp32", offload_optimizer=CPU), gradient_accumulation_steps=2))
    rest = 2 * PSI + LINEAR
    assert set(totals(at(found, phase="forward", micro_batch=1))) == {rest + 4 * PSI + 4}
    reducing = at(found, "all-reduce gradients")
    assert {held["gradient bucket"] for held in reducing} == {4}
    assert {held["gradients in the communication dtype"] for held in reducing} == {LINEAR}
    assert [held["accumulated gradient"] for held in reducing] == [12, 8, 4, 0]


def test_before_there_was_a_compact_buffer_whole_tensors_were_widened() -> None:
    older = replace(zero(2, grad_accum_dtype="fp32"), release=Release(compact_sums=False))
    found = moments(program(older, gradient_accumulation_steps=2))
    assert set(totals(at(found, phase="forward", micro_batch=1))) == {REST + 4 * Q}
    assert max(totals(at(found, phase="backward"))) == REST + 2 * LINEAR + 8 * Q


# --- host memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pinned", "taken"), [(True, 8 + 8 + 12 + 4 + 2), (False, 6 + 6 + 12 + 3 + 2)])
def test_pinned_memory_is_a_power_of_two(pinned: bool, taken: int) -> None:
    """Three linears, a partition of 1.5 Mi elements: master 6 MiB, gradients 6, moments 12 (never pinned), weights on
    their way 3, a tensor's gradient 2; where they are pinned c10's CachingHostAllocator takes 8, 8, 4 and 2."""
    step = program(zero(2, offload_optimizer=Offload("cpu", pin_memory=pinned)), square(3))
    resident = [step.buffers[number] for number in step.resident]
    assert sum(buffer.taken for buffer in resident if buffer.tier == "dram") == taken * MIB


@pytest.mark.parametrize("stage", [2, 3])
def test_host_memory_of_a_node_is_that_of_its_ranks(stage: Stage) -> None:
    """In the timeline: two ranks of a node, each with the most that one has."""
    step = program(zero(stage, offload_optimizer=CPU), square(3))
    found = played(step)["dram"]
    assert found.peak - found.overhead == 2 * max(totals(at(moments(step, "dram", unit=1))))


def test_offloaded_gradients_of_stage_2_leave_the_gpu_in_fp32_one_by_one() -> None:
    """No partition of gradients on the GPU: a buffer of a tensor, at rest, and a cast slice for a moment."""
    found = moments(program(zero(2, offload_optimizer=CPU)))
    rest = 2 * PSI + LINEAR
    assert set(totals(at(found, phase="forward"))) == set(totals(at(found, phase="optimizer"))) == {rest}
    bucket, waiting = LINEAR, LINEAR  # the first of mine is reduced when the gradient after it is there
    assert totals(at(found, "copy gradient to host")) == [rest + bucket + waiting + 4, rest + bucket + 4]


# --- the timeline --------------------------------------------------------------------------------------------------


def played(step: Step) -> dict[str, Any]:
    topology = switched("a100_sxm_80", 2)
    priced = price([step], topology, Launch())
    return memory(play([step], priced.classes, priced.demands, priced.supply), ranks_per_node=2)


@pytest.mark.parametrize(
    "deepspeed",
    [
        zero(0),
        zero(1, overlap_comm=True),
        zero(2, overlap_comm=True),
        zero(3, overlap_comm=True, prefetch_bucket_size=2 * NUMEL, max_live_parameters=3 * NUMEL),
    ],
    ids=["stage 0", "stage 1", "stage 2", "stage 3"],
)
def test_the_peak_of_the_timeline_is_the_greatest_of_the_moments(deepspeed: DeepSpeed) -> None:
    """What is allocated goes by the host: its order is the program's, however long each op takes. With activations."""
    step = program(deepspeed, gradient_accumulation_steps=2)
    found = played(step)["gpu"]
    assert found.peak - found.overhead == max(held.total() for held in levels(step))
