"""FSDP1: the order of collectives, the rate limiter, what is cast, padded, divided, copied and held.

The toy's units, in elements: the root has embedding, last norm and head, 32,768 + 128 + 32,768 = 65,664; a block has
128 + 12,288 + 4,096 + 128 + 16,384 + 16,384 = 49,408. Expected orders and queues were recorded from torch 2.13.0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.linears import copies, linears, moved, resident
from tests.programs import ancestors, levels, variant
from tests.toy import toy, toy_training
from zerosim.errors import InputError
from zerosim.spec.fully_sharded import Fsdp, Wrap
from zerosim.spec.model import Model
from zerosim.spec.strategy import Optimizer
from zerosim.step import COMPUTE, Collective, HostCompute, Op, Pass, Step
from zerosim.strategies import build
from zerosim.strategies.fsdp import divisors
from zerosim.strategies.fsdp1 import FullySharded
from zerosim.strategies.network import compile_network
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.units import units

ROOT, BLOCK = 65_664, 49_408
ALL = ROOT + 3 * BLOCK
BF16 = {"param_dtype": "bf16"}


def step_of(model: Model | None = None, ranks: int = 2, training: dict[str, Any] | None = None, **config: Any) -> Step:
    settings = Fsdp(**{**BF16, **config})
    return build(settings, model or toy(), toy_training(**(training or {})), ranks)[0].check()


def calls(step: Step, phase: str = "", micro_batch: int | None = None) -> list[str]:
    """`AG b2` for the all-gather of a block."""
    short = {"all-gather": "AG", "reduce-scatter": "RS", "all-reduce": "AR"}
    chosen = [
        op.name.split(maxsplit=1)
        for op in step.ops
        if isinstance(op.work, Collective) and phase in ("", op.phase) and micro_batch in (None, op.micro_batch)
    ]
    return [f"{short[kind]} {unit}" for kind, unit in chosen]


def collectives(step: Step, kind: str) -> list[Collective]:
    return [op.work for op in step.ops if isinstance(op.work, Collective) and op.work.kind == kind]


def named(step: Step, name: str) -> list[Op]:
    return [op for op in step.ops if op.name.startswith(name)]


def sizes(wrap: Wrap, model: Model | None = None) -> list[tuple[str, int]]:
    network = compile_network(model or toy(), toy_training())
    return [(unit.node.name, sum(network.numels[p] for p in unit.parameters)) for unit in units(network, wrap)]


FORWARD = ["AG root", "AG b0", "AG b1", "AG b2"]
BACKWARD = {
    "BACKWARD_PRE": ["AG b2", "AG b1", "RS b2", "AG b0", "RS b1", "RS b0", "RS root"],
    "BACKWARD_POST": ["AG b2", "AG b1", "RS b2", "AG b0", "RS b1", "RS b0", "RS root"],
    "NO_PREFETCH": ["AG b2", "RS b2", "AG b1", "RS b1", "AG b0", "RS b0", "RS root"],
}


class TestOrder:
    @pytest.mark.parametrize("prefetch", BACKWARD)
    def test_full_shard_gathers_blocks_again_and_keeps_the_root(self, prefetch: str) -> None:
        step = step_of(backward_prefetch=prefetch)
        assert calls(step, "forward") == FORWARD
        assert calls(step, "backward") == BACKWARD[prefetch]
        assert calls(step, "optimizer") == []

    def test_prefetch_before_or_after_a_blocks_backward(self) -> None:
        """Before: the gather of b1 is issued ahead of b2's kernels. After: behind them. The order of calls is one."""
        for prefetch, ahead in (("BACKWARD_PRE", True), ("BACKWARD_POST", False)):
            step = step_of(backward_prefetch=prefetch)
            again = named(step, "all-gather b1")[1]
            assert (again.number < named(step, "b2.fc2 bwd")[0].number) is ahead

    @pytest.mark.parametrize(
        ("prefetch", "expected"),
        [
            ("BACKWARD_PRE", ["AG b2", "AG b1", "AG b0", "RS b2", "RS b1", "RS b0", "RS root"]),
            ("BACKWARD_POST", ["AG b2", "AG b1", "RS b2", "AG b0", "RS b1", "RS b0", "RS root"]),
        ],
    )
    def test_forward_prefetch_reduces_a_unit_later(self, prefetch: str, expected: list[str]) -> None:
        step = step_of(forward_prefetch=True, backward_prefetch=prefetch)
        assert calls(step, "forward") == FORWARD
        assert calls(step, "backward") == expected
        assert named(step, "all-gather b1")[0].number < named(step, "b0.ln1 fwd")[0].number
        assert named(step, "reduce-scatter b2")[0].number > named(step, "b1.ln1 bwd")[-1].number

    def test_a_reentrant_checkpoint_ends_with_its_block(self) -> None:
        """Its graph is its own, so that forward prefetching delays nothing; the block is there when it runs again."""
        training = {"activation_checkpointing": "full", "reentrant": True}
        step = step_of(forward_prefetch=True, training=training)
        assert calls(step, "backward") == BACKWARD["BACKWARD_PRE"]
        assert named(step, "all-gather b2")[1].number < named(step, "b2.ln1 recompute")[0].number

    def test_recomputation_gathers_nothing(self) -> None:
        assert calls(step_of(training={"activation_checkpointing": "full"})) == FORWARD + BACKWARD["BACKWARD_PRE"]

    def test_units_within_a_checkpoint_are_gathered_a_third_time_but_for_the_last(self) -> None:
        """As recorded of attention and MLP as units of checkpointed blocks."""
        wrap = Wrap(blocks=False, modules=tuple(f"b{i}.{leaf}" for i in range(3) for leaf in ("qkv", "fc2")))
        plain = Counter(calls(step_of(wrap=wrap)))
        again = Counter(calls(step_of(wrap=wrap, training={"activation_checkpointing": "full"})))
        assert again - plain == Counter({f"AG b{i}.qkv": 1 for i in range(3)})

    def test_shard_grad_op_gathers_once(self) -> None:
        step = step_of(sharding_strategy="SHARD_GRAD_OP")
        assert calls(step) == [*FORWARD, "RS b2", "RS b1", "RS b0", "RS root"]

    def test_without_synchronization_shard_grad_op_gathers_in_the_first_micro_step(self) -> None:
        training = {"gradient_accumulation_steps": 5}
        step = step_of(sharding_strategy="SHARD_GRAD_OP", no_sync=True, training=training)
        assert calls(step, micro_batch=0) == FORWARD
        assert [calls(step, micro_batch=m) for m in (1, 2, 3)] == [[], [], []]
        assert calls(step, "backward", 4) == ["RS b2", "RS b1", "RS b0", "RS root"]

    def test_without_synchronization_full_shard_gathers_twice_as_ever(self) -> None:
        step = step_of(no_sync=True, training={"gradient_accumulation_steps": 4})
        assert calls(step, micro_batch=2) == [*FORWARD, "AG b2", "AG b1", "AG b0"]
        assert calls(step, micro_batch=3) == FORWARD + BACKWARD["BACKWARD_PRE"]

    def test_all_in_one_unit(self) -> None:
        assert calls(step_of(wrap=Wrap(blocks=False))) == ["AG root", "RS root"]

    @pytest.mark.parametrize(("strategy", "again"), [("HYBRID_SHARD", 3), ("_HYBRID_SHARD_ZERO2", 0)])
    def test_hybrids_reduce_over_replicas_after_each_reduce_scatter(self, strategy: str, again: int) -> None:
        step = step_of(ranks=8, sharding_strategy=strategy, shard_size=4)
        assert (step.groups["shard"].size, step.groups["replicas"].size) == (4, 2)
        assert list(step.groups["replicas"].members(1)) == [1, 5]
        backward = calls(step, "backward")
        assert [call for call in backward if not call.startswith("AG")] == [
            f"{kind} {unit}" for unit in ("b2", "b1", "b0", "root") for kind in ("RS", "AR")
        ]
        assert len(backward) == 8 + again
        assert {work.group for work in collectives(step, "all_gather")} == {"shard"}
        assert {(work.group, work.elements) for work in collectives(step, "all_reduce")} == {
            ("replicas", BLOCK // 4), ("replicas", ROOT // 4),
        }  # fmt: skip

    def test_a_hybrid_of_nodes_shards_over_a_node(self) -> None:
        (step,) = build(Fsdp(sharding_strategy="HYBRID_SHARD"), toy(), toy_training(), 8, ranks_per_node=2)
        assert (step.groups["shard"].size, step.groups["replicas"].size) == (2, 4)

    @pytest.mark.parametrize("changes", [{"sharding_strategy": "NO_SHARD"}, {"ranks": 1}])
    def test_no_shard_and_one_rank_all_reduce(self, changes: dict[str, Any]) -> None:
        step = step_of(**changes)
        assert calls(step) == ["AR b2", "AR b1", "AR b0", "AR root"]
        assert [work.elements for work in collectives(step, "all_reduce")] == [BLOCK] * 3 + [ROOT]


class TestRateLimiter:
    """The host waits for the oldest free event where two are queued."""

    @pytest.mark.parametrize(
        ("changes", "left_over"),
        [
            ({}, 4), ({"backward_prefetch": "BACKWARD_POST"}, 3), ({"backward_prefetch": "NO_PREFETCH"}, 3),
            ({"forward_prefetch": True}, 5), ({"sharding_strategy": "NO_SHARD"}, 0),
        ],
    )  # fmt: skip
    def test_events_left_over_from_the_step_before(self, changes: dict[str, Any], left_over: int) -> None:
        """As counted in torch's queue at the start of the third step of a network of a root and four blocks."""
        program = FullySharded(Fsdp(**changes), toy(blocks=4), toy_training(), Ranks(2, 2))
        assert len(program.free_events) == left_over

    def test_a_gather_waits_for_the_third_unit_before_it(self) -> None:
        """Of eight blocks: with four events left over and one taken at the root, b3 is the first to wait for b0."""
        step = step_of(toy(blocks=8))
        for i in range(8):
            waits = named(step, f"all-gather b{i}")[0].host_waits + named(step, "cast shard")[i + 1].host_waits
            kernels = [step.ops[number].name for number in waits]
            assert kernels == ([f"b{i - 3}.fc2 fwd"] if i >= 3 else [])

    def test_without_it_the_host_waits_for_nothing(self) -> None:
        step = step_of(limit_all_gathers=False)
        assert [op.name for op in step.ops if op.host_waits] == ["end of step"]

    @pytest.mark.parametrize(("limited", "most"), [(True, 4), (False, 9)])
    def test_units_that_may_be_there_at_once(self, limited: bool, most: int) -> None:
        """The root and three of eight blocks, or all: a gather that has not surely been waited for may have come."""
        step = step_of(toy(blocks=8), limit_all_gathers=limited)
        gathers = [op for op in step.ops if op.name.startswith("all-gather") and op.phase == "forward"]
        freed = {buffer: op.number for op in step.ops for buffer in op.releases}
        waited = -1
        held: list[int] = []  # number of units when each is gathered
        alive: dict[int, int] = {}
        for op in step.ops:
            waited = max(waited, *op.host_waits, -1)
            if op in gathers:
                alive = {buffer: end for buffer, end in alive.items() if end > waited}
                alive |= {buffer: freed[buffer] for buffer in op.acquires}
                held.append(len(alive))
        assert max(held) == most


class TestSizes:
    def test_mixed_precision(self) -> None:
        """Shards and optimizer in fp32, gathers in bf16, reductions in fp32."""
        step = step_of(reduce_dtype="fp32")
        assert {work.dtype for work in collectives(step, "all_gather")} == {"bf16"}
        assert {work.dtype for work in collectives(step, "reduce_scatter")} == {"fp32"}
        assert resident(step, "gpu") == {"parameter shard": 4 * ALL // 2, "optimizer states": 8 * ALL // 2}
        casts = [op.work for op in named(step, "cast shard") if isinstance(op.work, Pass)]
        assert sum(work.hbm_bytes for work in casts) == 6 * (ROOT + 2 * 3 * BLOCK) // 2  # 4 read, 2 written
        widened = [op.work.hbm_bytes for op in named(step, "cast gradient") if isinstance(op.work, Pass)]
        assert widened == [6 * BLOCK] * 3 + [6 * ROOT]

    def test_a_16_bit_model_has_16_bit_states_and_no_master(self) -> None:
        step = step_of(param_dtype=None, parameter_dtype="bf16")
        assert resident(step, "gpu") == {"parameter shard": 2 * ALL // 2, "optimizer states": 4 * ALL // 2}
        assert not named(step, "cast")
        (update,) = named(step, "AdamW step")
        assert isinstance(update.work, Pass)
        assert update.work.hbm_bytes == 14 * ALL // 2  # seven times 2 bytes

    def test_fp32_parameters_are_cast_where_they_are_used_under_autocast(self) -> None:
        step = step_of(param_dtype=None)
        assert {work.dtype for work in collectives(step, "all_gather")} == {"fp32"}
        assert len([op for op in step.ops if op.name.endswith("autocast")]) == 3 * 4 + 1

    def test_padding(self) -> None:
        """One unit of 3 x 5 and 5 x 7 = 15 + 35 = 50 elements on 4 ranks: 13 each, 52 in all; a copy pads the gradient.

        With use_orig_params each parameter begins at a multiple of 16 bytes, 8 elements of bf16: 16 + 35 = 51.
        """
        one = Wrap(blocks=False)
        step = step_of(linears(3, 5, 7), 4, wrap=one)
        assert [work.elements for work in collectives(step, "all_gather")] == [52]
        assert len(named(step, "pad gradient")) == 1
        step = step_of(linears(3, 5, 7), 4, wrap=one, use_orig_params=True)
        assert [work.elements for work in collectives(step, "reduce_scatter")] == [52]  # 51, padded
        assert not named(step, "pad gradient")
        step = step_of(linears(3, 7, 7), 4, wrap=one, use_orig_params=True)
        assert [work.elements for work in collectives(step, "reduce_scatter")] == [76]  # 21 to 24, + 49 = 73

    def test_division_is_before_and_after(self) -> None:
        """default_hooks.py: 8 = 4 x 2, 2 = 2 x 1, 3 = 2 x 1.5, 1 = 1 x 1."""
        assert [divisors(n) for n in (1, 2, 3, 4, 8, 16)] == [(1, 1), (2, 1), (2, 1.5), (2, 2), (4, 2), (4, 4)]
        assert len(named(step_of(ranks=8), "divide gradient by 4")) == 4
        assert len(named(step_of(ranks=2), "divide")) == 4

    def test_gathered_units_are_freed(self) -> None:
        """Allocated at a time: root and one block in the forward, root and two in the backward; all with
        SHARD_GRAD_OP."""
        full = max(held["gathered unit"] for held in levels(step_of()))
        assert full == 2 * (ROOT + 2 * BLOCK)
        kept = max(held["gathered unit"] for held in levels(step_of(sharding_strategy="SHARD_GRAD_OP")))
        assert kept == 2 * ALL

    def test_gradients_of_one_unit_at_a_time(self) -> None:
        """Of a block twice, its parameters' and its flat parameter's, which is put together from them; of the root
        those of head and norm, 32,896 elements, which came first."""
        most = max(held["gradient"] + held["flat gradient"] for held in levels(step_of()))
        assert most == 2 * (2 * BLOCK + 32_896)

    def test_unsharded_gradients_accumulate_in_the_dtype_of_computation(self) -> None:
        training = {"gradient_accumulation_steps": 2}
        step = step_of(no_sync=True, reduce_dtype="fp32", training=training)
        forward = next(op.number for op in step.ops if op.micro_batch == 1)
        held = [*levels(step)][forward]
        assert held["flat gradient"] == 2 * ALL
        assert step.reductions == (1,)
        sums = [op.work.hbm_bytes for op in named(step, "accumulate gradient") if isinstance(op.work, Pass)]
        assert sums == [6 * BLOCK] * 3 + [6 * ROOT]

    def test_gradient_shards_accumulate_where_every_micro_step_reduces(self) -> None:
        step = step_of(training={"gradient_accumulation_steps": 2})
        assert len(named(step, "accumulate gradient shard")) == 4
        held = [*levels(step)][next(op.number for op in step.ops if op.phase == "optimizer")]
        assert held["gradient shard"] == 4 * ALL // 2
        assert step.reductions == (0, 1)


class TestUnits:
    """Names and elements, in the order of the forward."""

    def test_modules_by_name_may_stand_in_one_another(self) -> None:
        """A block without its qkv, 12,288; what is in no unit is the root's."""
        assert sizes(Wrap(modules=("b0.qkv",))) == [
            ("root", ROOT), ("b0", BLOCK - 12_288), ("b0.qkv", 12_288), ("b1", BLOCK), ("b2", BLOCK),
        ]  # fmt: skip

    def test_by_size_children_go_first(self) -> None:
        """Of 16,384 at least: fc1 and fc2 of each block, table and head; what is left of a block is 16,640."""
        rest = BLOCK - 2 * 16_384
        blocks = [(name, size) for i in range(3) for name, size in
                  ((f"b{i}", rest), (f"b{i}.fc1", 16_384), (f"b{i}.fc2", 16_384))]  # fmt: skip
        assert sizes(Wrap(least=16_384)) == [("root", 128), ("emb", 32_768), *blocks, ("head", 32_768)]
        assert sizes(Wrap(least=40_000)) == [("root", ROOT), ("b0", BLOCK), ("b1", BLOCK), ("b2", BLOCK)]

    def test_a_tied_weight_is_in_one_unit(self) -> None:
        """torch 2.13 stops in the forward of a module that another unit's flat parameter took the weight of."""
        model = variant(toy(), tied=True)
        assert dict(sizes(Wrap(), model))["root"] == 128 + 32_768
        for modules in (("emb",), ("head",), ("emb", "head")):
            with pytest.raises(InputError, match=r"found emb\.weight in (root|emb) and in"):
                step_of(model, wrap=Wrap(modules=modules))


class TestFrozen:
    def test_a_frozen_unit_is_gathered_twice_and_not_reduced(self) -> None:
        model = variant(toy(), frozen=("b1",))
        assert calls(step_of(model), "backward") == ["AG b2", "AG b1", "RS b2", "AG b0", "RS b0", "RS root"]
        assert resident(step_of(model), "gpu")["optimizer states"] == 8 * (ALL - BLOCK) // 2

    def test_what_comes_before_the_first_trainable_parameter_has_no_backward(self) -> None:
        model = variant(toy(), frozen=("emb", "b0", "lnf", "head"))
        assert calls(step_of(model), "backward") == ["AG b2", "AG b1", "RS b2", "RS b1"]

    def test_units_may_mix_with_use_orig_params_only(self) -> None:
        """Then all of a unit's gradients are reduced, and the embedding's, the first of all, are computed."""
        model = variant(toy(), frozen=("emb", "b0", "lnf"))
        with pytest.raises(InputError, match="use_orig_params"):
            step_of(model)
        step = step_of(model, use_orig_params=True)
        assert calls(step, "backward") == ["AG b2", "AG b1", "RS b2", "AG b0", "RS b1", "RS root"]
        assert resident(step, "gpu")["optimizer states"] == 8 * (2 * BLOCK + 32_768) // 2  # b1, b2, head

    def test_shard_grad_op_never_frees_what_has_no_backward(self) -> None:
        """So it is not gathered in later steps."""
        model = variant(toy(), frozen=("emb", "b0", "lnf", "head"))
        assert "AG b0" not in calls(step_of(model, sharding_strategy="SHARD_GRAD_OP"))


class TestOffload:
    def test_shards_come_up_and_gradients_go_down(self) -> None:
        step = step_of(cpu_offload=True, reduce_dtype="fp32")
        up = ROOT * 2 + 3 * 2 * BLOCK  # the root's comes up for the backward, too, where it is not gathered
        assert moved(step, "dram", "gpu") == 4 * up // 2
        assert moved(step, "gpu", "dram") == 4 * ALL // 2
        assert all(op.work.pinned for op in (*copies(step, "dram", "gpu"), *copies(step, "gpu", "dram")))  # type: ignore[union-attr]  # copies
        assert resident(step, "gpu") == {}
        assert resident(step, "dram") == {
            "parameter shard": 4 * ALL // 2, "gradient shard": 4 * ALL // 2, "optimizer states": 8 * ALL // 2,
        }  # fmt: skip

    def test_the_host_steps_when_all_gradients_are_there(self) -> None:
        step = step_of(cpu_offload=True)
        (update,) = (op for op in step.ops if isinstance(op.work, HostCompute))
        assert update.work == HostCompute("torch_optimizer", ALL // 2, 28 * ALL // 2)
        last = max(op.number for op in copies(step, "gpu", "dram"))
        assert ancestors(step)[update.number][step.ops[last].stream] == last
        assert "gradient shard" not in {step.buffers[b].name for op in step.ops[update.number :] for b in op.releases}

    def test_without_shards_the_copy_down_holds_the_host(self) -> None:
        step = step_of(ranks=1, cpu_offload=True)
        downs = [op.number for op in copies(step, "gpu", "dram")]
        assert set(downs) <= {number for op in step.ops for number in op.host_waits}


class TestStep:
    def test_clipping_sums_one_norm_that_nobody_reads(self) -> None:
        step = step_of(gradient_clipping=1.0)
        (norm,) = collectives(step, "all_reduce")
        assert norm == Collective("all_reduce", 1, "fp32", "dp")
        assert not any(op.host.reads for op in step.ops)
        assert step_of(gradient_clipping=1.0, sharding_strategy="NO_SHARD").groups.keys() == {"dp"}
        hybrid = step_of(ranks=4, gradient_clipping=1.0, sharding_strategy="HYBRID_SHARD", shard_size=2)
        assert [w.group for w in collectives(hybrid, "all_reduce") if w.elements == 1] == ["shard"]

    def test_clipping_reads_it_where_gradients_are_on_the_cpu(self) -> None:
        step = step_of(gradient_clipping=1.0, cpu_offload=True)
        assert sum(op.host.reads for op in step.ops) == 1
        assert [op.work.kind for op in step.ops if isinstance(op.work, HostCompute)] == [
            "stream", "stream", "torch_optimizer",
        ]  # fmt: skip

    @pytest.mark.parametrize(("fused", "clip", "sums"), [(False, 0.0, 1), (True, 0.0, 0), (True, 1.0, 2)])
    def test_the_loss_scaler_sums_what_it_found(self, fused: bool, clip: float, sums: int) -> None:
        """As recorded of torch: nothing for a fused optimizer, which finds for itself; another sum is the norm's."""
        optimizer, training = Optimizer(fused=fused), {"precision": "fp16"}
        step = step_of(param_dtype="fp16", optimizer=optimizer, gradient_clipping=clip, training=training)
        assert collectives(step, "all_reduce") == [Collective("all_reduce", 1, "fp32", "dp")] * sums
        assert sum(op.host.reads for op in step.ops) == (0 if fused else 1)

    def test_the_host_waits_at_the_end_only(self) -> None:
        step = step_of(limit_all_gathers=False)
        assert step.ops[-1].host_waits
        assert step.ops[-1].stream != COMPUTE


def test_a_hybrid_needs_groups_of_two() -> None:
    with pytest.raises(InputError, match="shard_size"):
        step_of(ranks=4, sharding_strategy="HYBRID_SHARD", shard_size=1)
    with pytest.raises(InputError, match="divides"):
        step_of(ranks=4, sharding_strategy="HYBRID_SHARD", shard_size=3)
