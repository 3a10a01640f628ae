"""Leaf modules of stage 3: nothing below them is hooked, their parameters are one gather, their gradients come last.

The toy: a table of 32,768, three blocks of 49,408 in six modules with parameters, a norm of 128, a head of 32,768.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.toy import toy, toy_training
from zerosim.errors import InputError
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_mapping import as_mapping
from zerosim.spec.loading import inline
from zerosim.spec.model import Model, Module
from zerosim.spec.strategy import DeepSpeed, LeafModule, Zero
from zerosim.step import COMPUTE, GATHER, Collective, Step
from zerosim.strategies import build
from zerosim.strategies.events import GRADIENT, POST, PRE, micro_step
from zerosim.strategies.leaf_modules import leaf_names
from zerosim.strategies.network import compile_network

BLOCK = 49_408
SMALL = Zero(
    stage=3,
    overlap_comm=True,
    reduce_bucket_size=20_000,
    prefetch_bucket_size=0,
    param_persistence_threshold=0,
    max_reuse_distance=0,
)


def zero(**changes: Any) -> Zero:
    return replace(SMALL, **changes)


def step(model: Model | None = None, micro_steps: int = 1, **changes: Any) -> Step:
    training = toy_training(gradient_accumulation_steps=micro_steps)
    return build(DeepSpeed(zero=zero(**changes)), model or toy(), training, 2)[0].check()


def sizes(step: Step, kind: str) -> list[int]:
    return [op.work.elements for op in step.ops if isinstance(op.work, Collective) and op.work.kind == kind]


B1 = LeafModule(names=("b1",))
BLOCKS = LeafModule(name_suffixes=("b0", "b1", "b2"))


# --- which ----------------------------------------------------------------------------------------------------------


def test_by_name_and_by_suffix() -> None:
    assert leaf_names(toy(), zero(leaf_module=B1)) == {"b1"}
    assert leaf_names(toy(), zero(leaf_module=BLOCKS)) == {"b0", "b1", "b2"}
    assert leaf_names(toy(), zero(leaf_module=LeafModule(("b1",), ("ln1",)))) == {"b1", "b0.ln1", "b1.ln1", "b2.ln1"}
    assert leaf_names(toy(), replace(zero(leaf_module=B1), stage=2)) == frozenset()


@pytest.mark.parametrize(
    ("threshold", "chosen"),
    [
        (0, set()),
        (7_057, set()),  # a block: 49,408 elements in 7 modules are 7,058
        (7_058, {"b0", "b1", "b2"}),
        (8_554, {"b0", "b1", "b2"}),
        (8_555, {"root"}),  # 213,888 in 25
    ],
)
def test_by_granularity(threshold: int, chosen: set[str]) -> None:
    assert leaf_names(toy(), zero(module_granularity_threshold=threshold)) == chosen


def test_modules_without_parameters_do_not_count() -> None:
    model = toy(blocks=1)
    (block,) = [part for part in model.root.body if isinstance(part, Module) and part.name == "b0"]
    empty = Module("b0.act", "activation", outputs=64)
    root = replace(
        model.root, body=(*model.root.body[:1], replace(block, body=(*block.body, empty)), *model.root.body[2:])
    )
    assert leaf_names(replace(model, root=root), zero(module_granularity_threshold=7_058)) == {"b0"}


# --- the order of events ---------------------------------------------------------------------------------------------


def test_nothing_below_a_leaf_is_hooked() -> None:
    network = compile_network(toy(), toy_training(), own_linear=True, leaves=frozenset({"b1"}))
    forward, backward = micro_step(network, toy_training())
    hooked = [event.node.name for event in forward if event.kind == PRE and event.node.hooked]
    assert [name for name in hooked if name.startswith("b1")] == ["b1"]
    assert [name for name in hooked if name.startswith("b0")] == [
        "b0", "b0.ln1", "b0.qkv", "b0.o", "b0.ln2", "b0.fc1", "b0.fc2"
    ]  # fmt: skip
    posts = [event.node.name for event in backward if event.kind == POST and event.node.hooked]
    assert [name for name in posts if name.startswith("b1")] == ["b1"]


def test_gradients_of_a_leaf_are_ready_at_its_end_in_the_order_of_registration() -> None:
    network = compile_network(toy(), toy_training(), own_linear=True, leaves=frozenset({"b1"}))
    _, backward = micro_step(network, toy_training())
    kinds = [(event.kind, event.node.name, event.parameter) for event in backward if event.node.name.startswith("b1")]
    ready = [number for kind, _, number in kinds if kind == GRADIENT]
    assert ready == list(network.root.children[2].all_parameters) == sorted(ready)
    assert len(ready) == 8
    assert [kind for kind, *_ in kinds[-10:]] == [GRADIENT] * 8 + [POST, "left"]
    plain = compile_network(toy(), toy_training(), own_linear=True)
    others = [event.parameter for event in micro_step(plain, toy_training())[1] if event.kind == GRADIENT]
    assert sorted(others) == sorted(event.parameter for event in backward if event.kind == GRADIENT)


# --- the step --------------------------------------------------------------------------------------------------------


def test_a_leaf_is_one_gather() -> None:
    plain, leaf = step(), step(leaf_module=B1)
    own = [128, 12_288, 4_096, 128, 16_384, 16_384]  # of a block's modules
    forward = [32_768, *own * 3, 128, 32_768]
    backward = [32_768, 128, *own[::-1] * 3, 32_768]
    assert sizes(plain, "all_gather") == forward + backward
    forward = [32_768, *own, BLOCK, *own, 128, 32_768]
    backward = [32_768, 128, *own[::-1], BLOCK, *own[::-1], 32_768]
    assert sizes(leaf, "all_gather") == forward + backward


RUN = zero(
    prefetch_bucket_size=14_000, param_persistence_threshold=100, max_live_parameters=60_000, max_reuse_distance=60_000
)
# What DeepSpeed 0.19.8 issued for the toy in fp32 on two ranks, up to the step
ONE_LEAF = [
    32_768, 16_384, 16_384, 16_384, 12_288, 20_480, 16_384, 12_288, 20_480, 16_384, 32_768, 16_384, 16_384, -32_768,
    12_288, 20_480, -16_512, 16_384, -16_512, 16_384, -16_640, -16_512, -16_384, 16_384, 16_384, -16_384, 32_768,
    -16_384, -16_512, -16_512, -32_768,
]  # fmt: skip
THREE_LEAVES = [
    32_768, 16_384, 32_768, 12_288, 36_864, 12_288, 36_864, 32_768, 16_384, 16_384, 16_384, -32_768, 12_288, -16_768,
    -16_384, 36_864, 12_288, -16_512, -16_512, -16_384, 36_864, 32_768, -16_512, -16_512, -16_384, -16_384, -32_768,
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "recorded"),
    [
        ({"leaf_module": B1}, ONE_LEAF),
        ({"leaf_module": BLOCKS, "max_reuse_distance": 0}, THREE_LEAVES),
        ({"module_granularity_threshold": 8_000, "max_reuse_distance": 0}, THREE_LEAVES),
    ],
)
def test_gathers_and_reductions_are_those_of_a_run(changes: dict[str, Any], recorded: list[int]) -> None:
    """Reductions are negative: a bucket of 20,000 takes what block 2 leaves over, then the leaf's in their order."""
    training = toy_training(precision="fp32")
    written = build(DeepSpeed(zero=replace(RUN, **changes)), toy(), training, 2)[0].check()
    works = [op.work for op in written.ops if isinstance(op.work, Collective) and op.phase != "optimizer"]
    assert [work.elements if work.kind == "all_gather" else -work.elements for work in works] == recorded


def test_a_leaf_is_dropped_whole_and_gathered_again() -> None:
    """With reuse over all of the model nothing is dropped, so that backward gathers nothing."""
    kept = step(leaf_module=BLOCKS, max_reuse_distance=10**9)
    assert sizes(kept, "all_gather") == [32_768, BLOCK, BLOCK, BLOCK, 128, 32_768]
    dropped = step(leaf_module=BLOCKS)
    assert sizes(dropped, "all_gather")[6:] == [32_768, 128, BLOCK, BLOCK, BLOCK, 32_768]


def test_on_the_way_to_its_next_use_a_leaf_meets_the_root_with_all_that_is_below() -> None:
    """The root's visit at the turn counts 213,888 elements for a leaf and none for others, and has the leaf's own."""
    # b2 after its forward: lnf 128, head 32,768, then the root: its parameters are there at a distance of 32,896
    near = step(leaf_module=BLOCKS, max_reuse_distance=32_897)
    assert sizes(near, "all_gather").count(BLOCK) == 3 + 2
    far = step(leaf_module=BLOCKS, max_reuse_distance=32_896)
    assert sizes(far, "all_gather").count(BLOCK) == 3 + 3


def test_checkpointed_blocks_may_be_leaves() -> None:
    training = toy_training(activation_checkpointing="full")
    config = DeepSpeed(zero=zero(leaf_module=BLOCKS))
    written = build(config, toy(), training, 2)[0].check()
    assert sizes(written, "all_gather").count(BLOCK) == 3 * 2  # the recomputation finds what its backward gathered
    whole = build(replace(config, zero=zero()), toy(), training, 2)[0].check()
    inputs = [[b.bytes for b in each.buffers if b.name == "block input"] for each in (written, whole)]
    assert inputs[0] == inputs[1] != []


def test_accumulation_repeats_what_a_leaf_does() -> None:
    once, thrice = step(leaf_module=B1), step(leaf_module=B1, micro_steps=3)
    assert sizes(thrice, "reduce_scatter") == sizes(once, "reduce_scatter") * 3


def test_a_leaf_without_a_gradient_of_its_input_is_refused() -> None:
    for changes in ({"leaf_module": LeafModule(("emb",))}, {"module_granularity_threshold": 9_000}):
        with pytest.raises(InputError) as caught:
            step(**changes)
        (problem,) = caught.value.problems
        assert problem.found in ("emb", "root")


def test_names_that_no_module_has_are_told() -> None:
    assert "no module is named b7, as leaf_module says" in step(leaf_module=LeafModule(("b7",))).notes


# --- beside them -----------------------------------------------------------------------------------------------------


def test_without_overlap_gathers_are_on_the_compute_lane() -> None:
    """parameter_offload.py: the all-gather stream is the default one then."""
    assert GATHER in {op.stream for op in step(prefetch_bucket_size=30_000).ops}
    plain = step(prefetch_bucket_size=30_000, overlap_comm=False)
    assert {op.stream for op in plain.ops} == {COMPUTE, "nccl.dp", "host"} - (
        set() if any(op.stream == "host" for op in plain.ops) else {"host"}
    )
    gathers = [op for op in plain.ops if isinstance(op.work, Collective) and op.work.kind == "all_gather"]
    kernels = [op.number for op in plain.ops if op.stream == COMPUTE]
    for op in gathers[4:]:  # what was launched before it has ended
        assert max(n for n in kernels if n < op.number) in op.after or any(
            after > max(n for n in kernels if n < op.number) for after in op.after
        )


@pytest.mark.parametrize("linear", [True, False])
def test_torchs_linear_changes_no_collective(linear: bool) -> None:
    """The toy's linears have no bias, so that the order of gradients is the same."""
    written = step(memory_efficient_linear=linear)
    assert sizes(written, "all_gather") == sizes(step(), "all_gather")


def test_bias_comes_before_weight_in_torchs_linear() -> None:
    module = Module("l", "linear", toy().root.body[0].parameters, inputs=64, outputs=64)  # type: ignore[union-attr]  # a linear
    bias = replace(module.parameters[0], name="l.bias", shape=(64,))
    model = replace(
        toy(), root=replace(module, parameters=(*module.parameters, bias)), parameters=(*module.parameters, bias)
    )
    for own, order in ((True, (0, 1)), (False, (1, 0))):
        assert compile_network(model, toy_training(), own_linear=own).root.arrivals == order


# --- the keys --------------------------------------------------------------------------------------------------------


def read(section: Any, **more: Any) -> Any:
    keys = {"zero_optimization": {"stage": 3, "leaf_module": section, **more}}
    return read_deepspeed(inline(keys, "ds.json"), Given(world_size=2))


def test_the_key_takes_lists_and_single_texts() -> None:
    assert read({"names": ["b1", "b1"], "name_suffixes": "mlp"}).deepspeed.zero.leaf_module == LeafModule(
        ("b1",), ("mlp",)
    )
    assert read(None).deepspeed.zero.leaf_module == LeafModule()
    config = read({"names": ["b1"]}, stage3_module_granularity_threshold=5).deepspeed
    again = read_deepspeed(inline(as_mapping(config, "fp32"), "x"), Given(world_size=2)).deepspeed
    assert again == config


@pytest.mark.parametrize("wrong", [3, ["b1"], {"name": "b1"}, {"names": 3}, {"names": [3]}])
def test_other_values_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="a mapping of classes, names, name_suffixes to lists of texts"):
        read(wrong)


def test_classes_are_not_looked_for_and_told() -> None:
    (told,) = [f for f in read({"classes": ["my.Block"]}).findings if f.code == "not-modelled"]
    assert "my.Block" in told.message
    moe = {"classes": "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock"}
    assert "not-modelled" not in [finding.code for finding in read(moe).findings]
