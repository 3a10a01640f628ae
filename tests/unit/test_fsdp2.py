"""FSDP2 on the toy, with numbers worked out by hand: 213,888 parameters, of which each of three blocks has 49,408 and
the root, with embedding, last norm and head, 65,664. On two ranks nothing is padded: a shard is 106,944 elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.linears import SIDE, linears, square
from tests.programs import ancestors, levels, variant
from tests.toy import toy, toy_training
from zerosim.errors import InputError
from zerosim.spec.fully_sharded import Fsdp, Wrap
from zerosim.spec.model import Model, Module, Parameter
from zerosim.step import COMPUTE, REDUCE, Collective, HostCompute, Op, Step, Transfer, communicator
from zerosim.strategies import build
from zerosim.strategies.fsdp2_reductions import ALL_REDUCE

PSI, SHARD = 213_888, 106_944
BLOCK, ROOT = 49_408, 65_664
NCCL = communicator("dp")
LINEARS = Wrap(False, ("l0", "l1", "l2", "l3"))


def step_of(model: Model | None = None, ranks: int = 2, training: dict[str, Any] | None = None, **knobs: Any) -> Step:
    config = Fsdp(**{"version": 2, "param_dtype": "bf16", **knobs})
    return build(config, model or toy(), toy_training(**(training or {})), ranks)[0].check()


def collectives(step: Step, *kinds: str) -> list[Collective]:
    return [op.work for op in issued(step, *kinds) if isinstance(op.work, Collective)]


def issued(step: Step, *kinds: str) -> list[Op]:
    return [op for op in step.ops if isinstance(op.work, Collective) and (not kinds or op.work.kind in kinds)]


def short(ops: Sequence[Op]) -> list[str]:
    """AG b0, RS b0, AR b0."""
    words = {"all-gather": "AG", "reduce-scatter": "RS", "all-reduce": "AR"}
    return [" ".join([words[op.name.split()[0]], *op.name.split()[1:]]) for op in ops]


def of(step: Step, **wanted: Any) -> Op:
    """The only op with these attributes."""
    (op,) = [op for op in step.ops if all(getattr(op, key) == value for key, value in wanted.items())]
    return op


def held(step: Step, name: str, /, **wanted: Any) -> list[int]:
    """Bytes of buffers of a name at each op with these attributes."""
    pairs = zip(step.ops, levels(step), strict=False)
    return [level[name] for op, level in pairs if all(getattr(op, key) == value for key, value in wanted.items())]


# --- shards --------------------------------------------------------------------------------------------------------


def test_each_parameter_is_padded_by_whole_rows() -> None:
    """33 rows on 4 ranks are 9 each: 4 x 9 x 33 of the weight and 4 x 9 of the bias."""
    parameters = Parameter("l.weight", (33, 33)), Parameter("l.bias", (33,))
    layer = Module("l", "linear", parameters, inputs=33, outputs=33)
    model = Model("one", Module("root", "container", body=(layer,)), parameters, 1, 33, 1, 33)
    step = step_of(model, ranks=4, wrap=Wrap(False, ("l",)))
    assert {work.elements for work in collectives(step)} == {4 * 9 * 33 + 4 * 9} == {1224}


def test_a_rank_keeps_12_bytes_of_its_shard_and_4_more_from_backward_to_the_optimizer() -> None:
    step = step_of()
    resident = {step.buffers[b].name: 0 for b in step.resident}
    for buffer in step.resident:
        resident[step.buffers[buffer].name] += int(step.buffers[buffer].bytes)
    assert resident == {"parameter shard": 4 * SHARD, "optimizer states": 8 * SHARD}
    assert held(step, "gradient shard", phase="forward")[-1] == 0
    assert max(held(step, "gradient shard", phase="optimizer")) == 4 * SHARD


# --- order ---------------------------------------------------------------------------------------------------------


def test_in_a_backward_each_group_gathers_the_one_before_it() -> None:
    """The root is whole from the forward on; what its pre-hook gathers is the last block."""
    ops = short(issued(step_of()))
    assert ops[:4] == ["AG root", "AG b0", "AG b1", "AG b2"]
    assert ops[4:] == ["AG b2", "AG b1", "RS b2", "AG b0", "RS b1", "RS b0", "RS root"]


def test_after_a_forward_groups_stay_whole_if_they_are_told_to() -> None:
    whole = short(issued(step_of(reshard_after_forward=False), "all_gather"))
    assert whole == ["AG root", "AG b0", "AG b1", "AG b2"]
    root_too = short(issued(step_of(root_reshard_after_forward=True), "all_gather"))
    assert root_too[4:] == ["AG root", "AG b2", "AG b1", "AG b0"]


def test_a_number_is_the_ranks_of_a_smaller_mesh_which_hold_larger_pieces_in_the_dtype_of_computation() -> None:
    step = step_of(ranks=4, reshard_after_forward=2)
    sizes = [(op.phase, step.groups[op.work.group].size) for op in issued(step) if isinstance(op.work, Collective)]
    gathers = [("forward", 4)] * 4 + [("backward", 2)] * 2  # then each reduce-scatter is over all
    assert sizes[:8] == [*gathers, ("backward", 4), ("backward", 2)]
    assert {work.elements for work in collectives(step, "all_gather")} == {ROOT, BLOCK}
    assert max(held(step, "resharded parameters")) == 3 * 2 * BLOCK // 2
    assert held(step, "resharded parameters", phase="optimizer")[-1] == 0


@pytest.mark.parametrize("size", [3, 8])
def test_a_smaller_mesh_divides_the_shard_group(size: int) -> None:
    with pytest.raises(InputError, match=f"reshard_after_forward: found {size}"):
        step_of(ranks=4, reshard_after_forward=size)


def test_tied_parameters_are_in_one_group() -> None:
    assert len(issued(step_of(variant(toy(), tied=True)), "all_gather")) == 7
    with pytest.raises(InputError, match=r"found emb\.weight in root and in emb"):
        step_of(variant(toy(), tied=True), wrap=Wrap(True, ("emb",)))


def test_what_the_script_names_is_gathered_ahead() -> None:
    ahead = short(issued(step_of(square(4), wrap=LINEARS, prefetch_backward=2)))
    assert ahead[4:] == ["AG l3", "AG l2", "AG l1", "RS l3", "AG l0", "RS l2", "RS l1", "RS l0"]
    step = step_of(square(4), wrap=LINEARS, prefetch_forward=2)
    assert short(issued(step, "all_gather"))[:4] == ["AG l0", "AG l1", "AG l2", "AG l3"]
    first_copy_out = of(step, name="l0 copy out", phase="forward")
    ahead_of_it = [op for op in issued(step) if op.phase == "forward" and op.number < first_copy_out.number + 8]
    assert short(ahead_of_it) == ["AG l0", "AG l1", "AG l2"]


def test_told_which_backward_is_the_last_the_others_gather_one_group_too_many() -> None:
    """The order of forwards grows: before the first group of the second micro-step comes the last of the first. Its
    gather serves the next forward, or is thrown away by the last backward."""
    training = {"gradient_accumulation_steps": 3}
    plain = issued(step_of(square(3), training=training, wrap=LINEARS), "all_gather")
    step = step_of(square(3), training=training, wrap=LINEARS, set_is_last_backward=True)
    told = issued(step, "all_gather")
    assert len(plain) == 3 * 6
    assert len(told) == 3 * 6 + 1
    assert short(told)[6:16] == [f"AG l{i}" for i in (0, 1, 2, 2, 1, 0, 2, 0, 1, 2)]
    assert short(told)[-2:] == ["AG l0", "AG l2"]
    adam = of(step, name="AdamW step")
    assert ancestors(step)[adam.number][NCCL] >= told[-1].number


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks_are_gathered_no_third_time(reentrant: bool) -> None:
    training = {"activation_checkpointing": "full", "reentrant": reentrant}
    assert short(issued(step_of(training=training))) == short(issued(step_of()))


def test_frozen_groups_are_gathered_and_not_reduced() -> None:
    """Nothing comes back to l0: its gather is made in vain. What l1 reads has no gradient: it is reduced at the end."""
    frozen = short(issued(step_of(linears(*[SIDE] * 4, frozen=1), wrap=LINEARS)))
    assert frozen == ["AG l0", "AG l1", "AG l2", "AG l2", "AG l1", "RS l2", "AG l0", "RS l1"]
    partly = collectives(step_of(variant(toy(), ("b1.fc1",))), "reduce_scatter")
    assert [work.elements for work in partly] == [BLOCK, BLOCK - 64 * 256, BLOCK, ROOT]
    embedding = short(issued(step_of(variant(toy(), ("emb",))), "reduce_scatter"))
    assert embedding == ["RS b2", "RS b1", "RS root", "RS b0"]


def test_one_rank_communicates_nothing() -> None:
    step = step_of(ranks=1)
    assert not issued(step)
    assert max(held(step, "unsharded parameters")) == 2 * (ROOT + BLOCK)


# --- overlap -------------------------------------------------------------------------------------------------------


def test_a_gather_of_a_forward_waits_for_the_copy_out_two_groups_before() -> None:
    """So it may run beside the computation of the group before it, and of the one before that."""
    step = step_of()
    known = ancestors(step)
    gather = of(step, name="all-gather b2", phase="forward")
    assert known[gather.number][COMPUTE] == of(step, name="b0 copy out", phase="forward").number


def test_a_gather_of_a_backward_waits_for_the_copy_out_of_the_group_that_asks() -> None:
    step = step_of()
    gather = of(step, name="all-gather b1", phase="backward")
    assert ancestors(step)[gather.number][COMPUTE] == of(step, name="b2 copy out", phase="backward").number


def test_compute_waits_for_the_reduction_before_it_hands_over_the_next() -> None:
    """The kernels of b1 run beside the reduce-scatter of b2; what comes after them does not."""
    step = step_of()
    known = ancestors(step)
    copy_in = of(step, name="b1 copy in gradients")
    kernel = max(op.number for op in step.ops if op.name == "b1.ln1 bwd")
    before = of(step, name="reduce-scatter b2").number
    assert known[kernel][NCCL] < before == known[copy_in.number][NCCL]


def test_compute_waits_for_the_last_reduction_at_the_end_of_each_backward_it_takes_for_the_last() -> None:
    for told, waits in ((False, True), (True, False)):
        step = step_of(training={"gradient_accumulation_steps": 2}, set_is_last_backward=told)
        reduced = max(op.number for op in issued(step, "reduce_scatter") if op.micro_batch == 0)
        first = of(step, name="root copy in", micro_batch=1)
        assert (ancestors(step)[first.number][NCCL] >= reduced) is waits


def test_replicas_are_reduced_on_a_lane_of_their_own() -> None:
    """16-bit sums: each is cast after its all-reduce, and kept till compute has waited for it, at the end."""
    step = step_of(ranks=4, shard_size=2)
    known = ancestors(step)
    ops = issued(step, "reduce_scatter", "all_reduce")
    assert short(ops) == [f"{kind} {unit}" for unit in ("b2", "b1", "b0", "root") for kind in ("RS", "AR")]
    for scatter, reduce in zip(ops[::2], ops[1::2], strict=True):
        assert isinstance(scatter.work, Collective)
        assert isinstance(reduce.work, Collective)
        assert scatter.work.elements == 2 * reduce.work.elements
        assert (scatter.work.group, reduce.work.group) == ("shard", "replicas")
        assert known[reduce.number][communicator("shard")] >= scatter.number
    across = communicator("replicas")
    assert not any(across in known[op.number] for op in step.ops if op.stream == REDUCE or "copy in" in op.name)
    assert known[of(step, name="AdamW step").number][ALL_REDUCE] == of(step, name="root cast gradient shard").number
    assert max(held(step, "reduce-scatter output")) == 2 * SHARD


# --- memory --------------------------------------------------------------------------------------------------------


def test_the_output_of_the_gather_before_is_kept_in_a_forward() -> None:
    """Beside two of them, the root: with embedding and head it is whole till the end of the backward."""
    step = step_of()
    gather = of(step, name="b1 copy in", phase="forward")
    assert held(step, "all-gather output", number=gather.number) == [2 * 2 * BLOCK]
    kernel = of(step, name="b1.fc1 fwd")
    assert held(step, "all-gather output", number=kernel.number) == [2 * BLOCK]
    assert held(step, "unsharded parameters", number=kernel.number) == [2 * (BLOCK + ROOT)]
    assert held(step, "all-gather output", name="head fwd") == [2 * BLOCK]
    assert min(held(step, "unsharded parameters", phase="backward")[:-10]) >= 2 * ROOT
    assert held(step, "unsharded parameters", phase="optimizer")[-1] == 0


def test_the_output_of_a_gather_is_dropped_in_a_backward_but_the_next_one_is_there() -> None:
    step = step_of()
    kernel = max(op.number for op in step.ops if op.name == "b1.fc1 bwd")
    assert held(step, "all-gather output", number=kernel) == [2 * BLOCK]  # that of b0
    assert held(step, "unsharded parameters", number=kernel) == [2 * (BLOCK + ROOT)]


@pytest.mark.parametrize(("dtype", "width"), [("fp32", 4), (None, 2)])
def test_one_input_of_a_reduce_scatter_is_retained_in_its_dtype(dtype: str | None, width: int) -> None:
    step = step_of(reduce_dtype=dtype)
    kernel = max(op.number for op in step.ops if op.name == "b1.fc1 bwd")
    assert held(step, "reduce-scatter input", number=kernel) == [width * BLOCK]
    assert max(held(step, "reduce-scatter input")) == width * ROOT
    assert {work.dtype for work in collectives(step, "reduce_scatter")} == {dtype or "bf16"}
    assert held(step, "reduce-scatter input", phase="optimizer")[-1] == 0


@pytest.mark.parametrize(("dtype", "name", "width"), [("fp32", "accumulated gradients", 4), (None, "gradient", 2)])
def test_without_synchronization_whole_gradients_are_summed(dtype: str | None, name: str, width: int) -> None:
    """In the dtype they will be reduced in, if it was given."""
    step = step_of(training={"gradient_accumulation_steps": 3}, no_sync=True, reduce_dtype=dtype)
    assert set(held(step, name, phase="forward", micro_batch=2)) == {width * PSI}
    assert [op.micro_batch for op in issued(step, "reduce_scatter")] == [2] * 4
    assert [op.micro_batch for op in issued(step, "all_gather")] == [0] * 7 + [1] * 7 + [2] * 7
    assert held(step, name, phase="optimizer")[-1] == 0


def test_parameters_may_stay_whole_between_micro_steps() -> None:
    training = {"gradient_accumulation_steps": 2}
    knobs: dict[str, Any] = {"reshard_after_forward": False, "reshard_after_backward": False}
    step = step_of(training=training, **knobs)
    assert [op.micro_batch for op in issued(step, "all_gather")] == [0] * 4
    assert min(held(step, "unsharded parameters", phase="forward", micro_batch=1)) == 2 * PSI
    cut_again = issued(step_of(training=training, reshard_after_backward=False), "all_gather")
    assert [(op.phase, op.micro_batch) for op in cut_again] == (
        [("forward", 0)] * 4 + [("backward", 0)] * 3 + [("backward", 1)] * 3
    )


# --- offload, clipping, fp16 ---------------------------------------------------------------------------------------


def test_shards_come_from_the_host_and_their_gradients_go_there_one_by_one() -> None:
    """8 tensors a block, 4 in the root; blocks are gathered twice. Another micro-step adds on the CPU, which waits."""
    step = step_of(cpu_offload=True, training={"gradient_accumulation_steps": 2})
    up = [op.work for op in step.ops if isinstance(op.work, Transfer) and op.work.target == "gpu"]
    down = [op for op in step.ops if isinstance(op.work, Transfer) and op.work.target == "dram"]
    assert len(up) == 2 * (4 + 2 * 24)
    assert sum(work.bytes for work in up) == 2 * 4 * (SHARD + 3 * BLOCK // 2)
    assert all(work.pinned for work in up)
    pinned = [op.work.pinned for op in down if isinstance(op.work, Transfer)]
    assert pinned == [True] * 28 + [False] * 28
    adam = of(step, name="AdamW step on the CPU")
    assert isinstance(adam.work, HostCompute)
    assert adam.work.elements == SHARD
    waited = {number for op in step.ops for number in op.host_waits}
    assert {op.number for op in down} <= waited
    assert len([op for op in step.ops if op.name == "add gradient shard"]) == 28
    assert all(step.buffers[b].tier == "dram" for b in step.resident)


def test_gradients_in_host_memory_are_there_until_the_cpu_has_stepped() -> None:
    step = step_of(cpu_offload=True)
    assert held(step, "gradient shard", name="AdamW step on the CPU") == [4 * SHARD]
    *_, end = levels(step)
    assert end["gradient shard"] == 0


def test_pageable_shards_hold_the_host_at_each_copy() -> None:
    step = step_of(cpu_offload=True, pin_memory=False)
    copies = [op for op in step.ops if isinstance(op.work, Transfer)]
    assert not any(op.work.pinned for op in copies if isinstance(op.work, Transfer))
    assert all(copy.number in step.ops[copy.number + 1].host_waits for copy in copies)


@pytest.mark.parametrize("shard_size", [None, 2])
def test_clipping_reduces_the_norms_of_all_tensors_where_they_are_sharded(shard_size: int | None) -> None:
    step = step_of(ranks=4, gradient_clipping=1.0, shard_size=shard_size)
    (norms,) = [op.work for op in issued(step) if op.phase == "optimizer"]
    assert isinstance(norms, Collective)
    assert norms[:3] == ("all_reduce", 28, "fp32")
    assert step.groups[norms.group].size == (shard_size or 4)


def test_fp16_gradients_are_divided_before_and_after_they_are_summed() -> None:
    step = step_of(ranks=4, param_dtype="fp16", training={"precision": "fp16"})
    divided = [op.number for op in step.ops if op.name == "b2 divide gradients"]
    (reduced,) = [op.number for op in step.ops if op.name == "reduce-scatter b2"]
    assert divided[0] < reduced < divided[1]
    assert not [op for op in step_of(ranks=4).ops if op.name.endswith("divide gradients")]


def test_nothing_is_gathered_twice_at_once() -> None:
    """Between two gathers of a group its parameters were freed."""
    step = step_of(training={"gradient_accumulation_steps": 2}, set_is_last_backward=True, prefetch_backward=3)
    gathers = [op.number for op in issued(step, "all_gather") if op.name == "all-gather b1"]
    whole = [b for b, buffer in enumerate(step.buffers) if len(buffer.parameters) == 8]
    freed = [op.number for op in step.ops for b in op.releases if b in whole]
    assert len(gathers) == 4
    assert all(any(first < number < second for number in freed) for first, second in pairwise(gathers))
