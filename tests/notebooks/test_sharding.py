"""The core of the lesson: what the programs of all stages compute is what one device computes, and a wrong program is
found out.

In every micro-step stages 2 and 3 reduce, so their order of summation is `ranks first`; stages 0 and 1 add up their
micro-batches before they reduce. Where the order is kept, losses are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from sharding import WrongProgramError, program, small_network, some_text, train_sharded, train_unsharded
from sharding.arithmetic import bf16
from sharding.layouts import Flat, PerParameter, room
from sharding.network import Ids, Pass, first_weights, leaves
from sharding.unsharded import Order

from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, Offload, Zero
from zerosim.spec.training import Precision, Training
from zerosim.step import Collective, Op, Slice, Step
from zerosim.step import Pass as Kernels

RANKS, STEPS = 4, 3
NETWORK = small_network()
CPU = Offload("cpu")
ORDERS: tuple[Order, ...] = ("micro-batches first", "micro-batches first", "ranks first", "ranks first")  # by stage


def training(precision: Precision = "bf16", **keys: Any) -> Training:
    return Training(**{"sequence_length": 8, "gradient_accumulation_steps": 2, "precision": precision, **keys})


def zero(stage: int, clipping: float = 0.0, **keys: Any) -> DeepSpeed:
    """Buckets of less than a layer, gathers ahead, some parameters that persist, several sub-groups."""
    small = {"reduce_bucket_size": 100, "prefetch_bucket_size": 40, "param_persistence_threshold": 8}
    few = {"max_reuse_distance": 0, "max_live_parameters": 200, "sub_group_size": 60}
    return DeepSpeed(zero=Zero(**{"stage": stage, **small, **few, **keys}), gradient_clipping=clipping)


def text(ranks: int = RANKS, train: Training | None = None) -> Ids:
    return some_text(NETWORK, train or training(), ranks, STEPS)


@cache
def unsharded(order: Order, train: Training, ranks: int = RANKS, clipping: float = 0.0) -> list[float]:
    return train_unsharded(NETWORK, train, text(ranks, train), order, clipping)


# --- the yardstick -------------------------------------------------------------------------------------------------


def test_the_backward_is_the_derivative_of_the_forward() -> None:
    """Along random directions, in fp64: (L(w + h d) - L(w - h d)) / 2h."""
    random = np.random.default_rng(5)
    tokens = text()[0, 0, 0]
    weights: list[Any] = [array.astype(np.float64) + 0.1 for array in first_weights(NETWORK)]

    def loss(at: list[Any]) -> tuple[float, dict[int, Any]]:
        run, layers = Pass(tokens), [*leaves(NETWORK).values()]
        found: dict[int, Any] = {}
        shaped = [array.reshape(p.shape) for array, p in zip(at, NETWORK.parameters, strict=True)]
        for leaf in layers:
            run.forward(leaf, [shaped[p] for p in leaf.parameters])
        for leaf in reversed(layers):
            gradients = run.backward(leaf, [shaped[p] for p in leaf.parameters])
            found.update(zip(leaf.parameters, gradients, strict=True))
        return run.loss, found

    gradients = loss(weights)[1]
    for p, array in enumerate(weights):
        direction = random.normal(size=array.shape)
        ahead, behind = ([*weights[:p], array + h * direction, *weights[p + 1 :]] for h in (1e-5, -1e-5))
        slope = (loss(ahead)[0] - loss(behind)[0]) / 2e-5
        assert slope == pytest.approx(float(gradients[p].ravel() @ direction), rel=1e-4, abs=1e-8)


def test_training_learns() -> None:
    losses = train_unsharded(NETWORK, training("fp32"), some_text(NETWORK, training("fp32"), RANKS, 40), "ranks first")
    assert losses[0] == pytest.approx(np.log(13), rel=0.2)  # guesses among 13
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("number", "nearest"),
    [(1.0, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-12, 1 + 2**-7), (-3.14159, -3.140625)],
)
def test_bf16_has_8_bits_and_rounds_ties_to_even(number: float, nearest: float) -> None:
    assert bf16(np.array([number], np.float32)) == nearest


# --- layouts -------------------------------------------------------------------------------------------------------


def test_the_flat_layout_pads_once_and_cuts_parameters() -> None:
    """7 + 6 elements on 2 ranks: padded to 16, so 8 each."""
    layout = Flat([7, 6], [(0, 1)], ranks=2, align=2)
    assert [[piece.slice for piece in chunk] for chunk in layout.owned] == [
        [Slice(0, 0, 7), Slice(1, 0, 1)],
        [Slice(1, 1, 6), Slice(0, 0, 0)],
    ]
    assert [room(chunk) for chunk in layout.owned] == [8, 8]


def test_the_layout_of_stage_3_pads_each_parameter() -> None:
    """6 elements on 4 ranks: 2 each, and the last has none."""
    layout = PerParameter([6, 1], [1, 1], ranks=4)
    assert [(piece.slice.start, piece.slice.stop) for (piece, _) in layout.owned] == [(0, 2), (2, 4), (4, 6), (6, 6)]
    assert [room(chunk) for chunk in layout.owned] == [3] * 4


# --- sharding changes nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_losses_are_equal_bit_for_bit(stage: int, ranks: int, precision: Precision, micro_batches: int) -> None:
    train = training(precision, gradient_accumulation_steps=micro_batches)
    losses = train_sharded(zero(stage), NETWORK, train, text(ranks, train))
    assert losses == unsharded(ORDERS[stage], train, ranks)


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-5), ("bf16", 2e-2)])
def test_losses_of_one_large_batch_are_equal_to_rounding(stage: int, precision: Precision, within: float) -> None:
    losses = train_sharded(zero(stage), NETWORK, training(precision), text())
    at_once = unsharded("all at once", training(precision))
    assert losses == pytest.approx(at_once, abs=within)
    assert losses != at_once  # another order of summation is seen in the last bits


def test_the_order_of_summation_is_that_of_the_stage() -> None:
    """In bf16 the two orders differ, and each stage follows its own."""
    by_order = [unsharded(order, training()) for order in ("micro-batches first", "ranks first")]
    assert by_order[0] != by_order[1]
    assert by_order[0] == pytest.approx(by_order[1], abs=2e-2)
    assert train_sharded(zero(1), NETWORK, training(), text()) == by_order[0]
    assert train_sharded(zero(2), NETWORK, training(), text()) == by_order[1]


KNOBS: Sequence[tuple[int, dict[str, Any]]] = [
    (1, {"overlap_comm": True}),
    (1, {"round_robin_gradients": True}),
    (2, {"overlap_comm": True}),
    (2, {"reduce_scatter": False}),
    (2, {"contiguous_gradients": False}),
    (2, {"use_multi_rank_bucket_allreduce": False}),
    (2, {"use_multi_rank_bucket_allreduce": False, "round_robin_gradients": True}),
    (2, {"reduce_bucket_size": 1}),
    (2, {"reduce_bucket_size": 50}),
    (2, {"reduce_bucket_size": 10**6}),
    (3, {"overlap_comm": True}),
    (3, {"reduce_scatter": False}),
    (3, {"reduce_bucket_size": 1}),
    (3, {"allgather_sequential": True}),
    (3, {"use_all_reduce_for_fetch_params": True}),
    (3, {"prefetch_bucket_size": 0}),
    (3, {"param_persistence_threshold": 0}),
    (3, {"param_persistence_threshold": 10**5}),
    (3, {"max_live_parameters": 10**9, "max_reuse_distance": 10**9}),
    (3, {"sub_group_size": 1}),
    (3, {"sub_group_size": 10**9}),
    (2, {"offload_optimizer": CPU}),
    (3, {"offload_optimizer": CPU, "offload_param": CPU}),
]


@pytest.mark.parametrize(("stage", "keys"), KNOBS, ids=[f"stage {s} {', '.join(k)}" for s, k in KNOBS])
def test_no_knob_changes_a_bit(stage: int, keys: dict[str, Any]) -> None:
    losses = train_sharded(zero(stage, **keys), NETWORK, training(), text())
    assert losses == unsharded(ORDERS[stage], training())


@pytest.mark.parametrize("stage", [0, 3])
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_changes_no_bit(stage: int, reentrant: bool) -> None:
    train = training(activation_checkpointing="full", reentrant=reentrant)
    assert train_sharded(zero(stage), NETWORK, train, text()) == unsharded(ORDERS[stage], training())


def test_a_wider_wire_changes_no_bit() -> None:
    """Sums are taken in fp32 anyway and rounded once, here before or there after the wire."""
    wide = replace(zero(2), communication_data_type="fp32")
    assert train_sharded(wide, NETWORK, training(), text()) == unsharded(ORDERS[2], training())


def test_ddp_is_the_same_again() -> None:
    """DDP's buckets are in MiB: of 100 elements here. It keeps fp32 weights."""
    losses = train_sharded(Ddp(bucket_cap_mb=400 / 2**20), NETWORK, training(), text())
    assert losses == unsharded("micro-batches first", training("fp32"))


FSDP: Sequence[Fsdp] = [
    Fsdp(version=1),
    Fsdp(version=1, sharding_strategy="SHARD_GRAD_OP"),
    Fsdp(version=1, forward_prefetch=True, backward_prefetch="BACKWARD_POST"),
    Fsdp(version=1, no_sync=True),
    Fsdp(version=2),
    Fsdp(version=2, reshard_after_forward=False),
    Fsdp(version=2, prefetch_forward=2, prefetch_backward=2),
    Fsdp(version=2, no_sync=True),
]


def order_of(fsdp: Fsdp) -> Order:
    """Gradients that are not reduced add up first."""
    return "micro-batches first" if fsdp.no_sync else "ranks first"


@pytest.mark.parametrize("fsdp", FSDP, ids=str)
@pytest.mark.parametrize("ranks", [3, 4])
def test_fsdp_is_the_same_again(fsdp: Fsdp, ranks: int) -> None:
    """Version 1 cuts a flat parameter of a block, version 2 each parameter by rows. In fp32."""
    losses = train_sharded(fsdp, NETWORK, training("fp32"), text(ranks))
    assert losses == unsharded(order_of(fsdp), training("fp32"), ranks)


@pytest.mark.parametrize("version", [1, 2])
def test_fsdp_clips_as_well(version: Literal[1, 2]) -> None:
    fsdp = Fsdp(version=version, gradient_clipping=1.0)
    losses = train_sharded(fsdp, NETWORK, training("fp32"), text())
    assert losses == pytest.approx(unsharded("ranks first", training("fp32"), clipping=1.0), abs=1e-6)


@pytest.mark.parametrize("stage", range(4))
def test_clipping_is_equal_to_rounding(stage: int) -> None:
    """The squares are added up partition by partition, in fp64. Adam hardly notices a scale, only that it changes."""
    losses = train_sharded(zero(stage, clipping=1.0), NETWORK, training("fp32"), text())
    clipped = unsharded(ORDERS[stage], training("fp32"), clipping=1.0)
    assert losses == pytest.approx(clipped, abs=1e-6)
    assert max(np.abs(np.subtract(clipped, unsharded(ORDERS[stage], training("fp32"))))) > 1e-4


# --- a wrong program is found out ----------------------------------------------------------------------------------


def found_out(stage: int, wrong: Step, clipping: float = 0.0, **keys: Any) -> bool:
    right = unsharded(ORDERS[stage], training(), clipping=clipping)
    return differs(zero(stage, clipping, **keys), training(), wrong, right)


def differs(strategy: DeepSpeed | Fsdp, train: Training, wrong: Step, right: list[float]) -> bool:
    """Whether the trainer refuses the program, or computes something else with it."""
    try:
        losses = train_sharded(strategy, NETWORK, train, text()[:2], wrong)
    except WrongProgramError:
        return True
    return not np.allclose(losses, right[:2], rtol=0, atol=1e-3)


def changed(step: Step, number: int, *ops: Op) -> Step:
    """These instead of one op."""
    return replace(step, ops=(*step.ops[:number], *ops, *step.ops[number + 1 :]))


def moving(step: Step) -> list[Op]:
    """The collectives that carry gradients or weights."""
    return [op for op in step.ops if op.reduces or op.gathers]


def optimizers(step: Step) -> list[Op]:
    found = [op for op in step.ops if isinstance(op.work, Kernels) and op.work.flavour == "adam"]
    assert found
    return found


@cache
def step_of(stage: int) -> Step:
    return program(zero(stage), NETWORK, training(), RANKS)


@pytest.mark.parametrize("stage", range(4))
def test_a_right_program_is_not_found_out(stage: int) -> None:
    assert not found_out(stage, step_of(stage))


@pytest.mark.parametrize("stage", range(4))
def test_no_collective_can_be_left_out(stage: int) -> None:
    step = step_of(stage)
    assert all(found_out(stage, changed(step, op.number)) for op in moving(step))


@pytest.mark.parametrize("version", [1, 2])
def test_nor_of_fsdp(version: Literal[1, 2]) -> None:
    fsdp, train = Fsdp(version=version), training("fp32")
    step = program(fsdp, NETWORK, train, RANKS)
    right = unsharded("ranks first", train)
    assert not differs(fsdp, train, step, right)
    assert all(differs(fsdp, train, changed(step, op.number), right) for op in moving(step))


@pytest.mark.parametrize("stage", range(4))
def test_no_reduction_can_be_done_twice(stage: int) -> None:
    step = step_of(stage)
    assert all(found_out(stage, changed(step, op.number, op, op)) for op in moving(step) if op.reduces)


@pytest.mark.parametrize("stage", range(4))
def test_every_collective_must_have_its_size(stage: int) -> None:
    step = step_of(stage)
    for op in moving(step):
        assert isinstance(op.work, Collective)
        other = op._replace(work=op.work._replace(elements=op.work.elements + RANKS))
        assert found_out(stage, changed(step, op.number, other))


def _cut(op: Op) -> Op:
    """Without its last element."""
    assert isinstance(op.work, Collective)
    last = op.reduces[-1]
    rest = (*op.reduces[:-1], last._replace(stop=last.stop - 1))
    return op._replace(reduces=rest, work=op.work._replace(elements=op.work.elements - 1))


def _other_kind(op: Op) -> Op:
    assert isinstance(op.work, Collective)
    scatters = op.work.kind == "reduce_scatter"
    return op._replace(work=op.work._replace(kind="all_reduce" if scatters else "reduce_scatter"))


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("change", [_cut, _other_kind])
def test_no_bucket_can_be_changed(stage: int, change: Callable[[Op], Op]) -> None:
    step = step_of(stage)
    assert all(found_out(stage, changed(step, op.number, change(op))) for op in moving(step) if op.reduces)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_buckets_cannot_change_places(stage: int) -> None:
    """The first is reduced where the last was and the other way round: what is not there yet cannot be reduced. The
    stages that reduce during the backward."""
    step = program(zero(stage, overlap_comm=True), NETWORK, training(), RANKS)
    buckets = [op for op in step.ops if op.reduces and op.micro_batch == 1]
    first, last = buckets[0], buckets[-1]
    swapped = changed(changed(step, first.number, last), last.number, first)
    assert found_out(stage, swapped, overlap_comm=True)


def test_a_gather_must_come_before_its_use() -> None:
    """Every gather of stage 3 after the next use of what it brings."""
    step = step_of(3)
    names = leaves(NETWORK)
    for gather in (op for op in step.ops if op.gathers and op.phase != "optimizer"):
        uses = (
            op.number
            for op in step.ops[gather.number :]
            if (leaf := names.get(op.name.rpartition(" ")[0])) and set(leaf.parameters) & set(gather.gathers)
        )
        use = next(uses)
        late = (*step.ops[: gather.number], *step.ops[gather.number + 1 : use + 1], gather, *step.ops[use + 1 :])
        assert found_out(3, replace(step, ops=late))


def test_a_parameter_that_is_dropped_is_gone() -> None:
    """Freed as soon as it is there."""
    step = step_of(3)
    holds = {number: buffer.parameters for number, buffer in enumerate(step.buffers)}
    op = next(op for op in step.ops if any(holds[buffer] for buffer in op.acquires))
    early = op._replace(releases=tuple({*op.releases, *op.acquires}))
    assert found_out(3, changed(step, op.number, early))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_clipping_needs_every_norm(stage: int) -> None:
    step = program(zero(stage, clipping=0.3), NETWORK, training(), RANKS)
    norms = [op for op in step.ops if op.name == "all-reduce norm"]
    assert len(norms) == (1 if stage < 3 else len(optimizers(step)))
    assert all(found_out(stage, changed(step, op.number), clipping=0.3) for op in norms)


@pytest.mark.parametrize("stage", range(4))
def test_the_optimizer_must_run_once_for_everything(stage: int) -> None:
    step = step_of(stage)
    assert all(found_out(stage, changed(step, op.number)) for op in optimizers(step))
    assert all(found_out(stage, changed(step, op.number, op, op)) for op in optimizers(step))


def test_a_larger_network_too() -> None:
    """With room for several layers in a bucket, and one block more."""
    model: Model = small_network(vocabulary=29, hidden=10, wide=27, blocks=3)
    tokens = some_text(model, training(), RANKS, STEPS)
    right = train_unsharded(model, training(), tokens, "ranks first")
    for stage in (2, 3):
        assert train_sharded(zero(stage, reduce_bucket_size=500), model, training(), tokens) == right
