"""ZeRO++ and MiCS with numbers worked out by hand.

Four linears of 64 x 64 without bias are 4 x 4,096 elements; every one is gathered where it is used, forward and
backward, so that a micro-step without ZeRO++ gathers Psi twice and reduces it once. `machine` is two nodes of two.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.linears import linears
from tests.toy import toy_training
from zerosim.costs.price import price
from zerosim.errors import InputError
from zerosim.scenario import from_mapping
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_zeropp import WITH_MICS
from zerosim.spec.loading import inline
from zerosim.spec.model import Model
from zerosim.spec.release import release_of
from zerosim.spec.strategy import DeepSpeed, Offload, Zero
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import named_topology
from zerosim.step import Buffer, Collective, Op, Step
from zerosim.strategies import build
from zerosim.strategies.quantized import Blocks, blocks_of, gradient_blocks

SIDE, COUNT = 64, 4
NUMEL = SIDE * SIDE
PSI = COUNT * NUMEL
Q4: dict[str, Any] = {"zero_quantized_gradients": True}
MICS: dict[str, Any] = {"mics_shard_size": 2}


def config(**keys: Any) -> DeepSpeed:
    values: dict[str, Any] = {
        "overlap_comm": True, "prefetch_bucket_size": 0, "max_reuse_distance": 0, "param_persistence_threshold": 0,
        "reduce_bucket_size": NUMEL, **keys,
    }  # fmt: skip
    release = release_of(WITH_MICS) if "mics_shard_size" in keys else release_of("0.19.8")
    return DeepSpeed(zero=Zero(stage=3, **values), synchronized_timer=False, release=release)


def step_of(
    ranks: int = 4, per_node: int = 2, model: Model | None = None, training: dict[str, Any] | None = None, **keys: Any
) -> Step:
    run = toy_training(**{"precision": "fp16", **(training or {})})
    return build(config(**keys), model or linears(*[SIDE] * (COUNT + 1)), run, ranks, per_node)[0].check()


def collectives(step: Step) -> list[tuple[Op, Collective]]:
    return [(op, op.work) for op in step.ops if isinstance(op.work, Collective) and op.work.elements > 1]


def volume(step: Step) -> Counter[tuple[str, str, str]]:
    """Elements by kind, group and dtype."""
    total: Counter[tuple[str, str, str]] = Counter()
    for _, work in collectives(step):
        total[work.kind, work.group, work.dtype] += work.elements
    return total


def named(step: Step, name: str) -> list[Buffer]:
    return [buffer for buffer in step.buffers if buffer.name == name]


# --- hpZ -------------------------------------------------------------------------------------------------------------


def test_only_the_first_gather_of_a_step_goes_over_all_ranks() -> None:
    step = step_of(zero_hpz_partition_size=2, training={"gradient_accumulation_steps": 3})
    gathers = [(op.micro_batch, op.phase, w.group) for op, w in collectives(step) if w.kind == "all_gather"]
    assert {(m, phase): group for m, phase, group in gathers} == {
        (0, "forward"): "dp", (0, "backward"): "hpz", (1, "forward"): "hpz", (1, "backward"): "hpz",
        (2, "forward"): "hpz", (2, "backward"): "hpz",
    }  # fmt: skip
    assert volume(step)["all_gather", "dp", "fp16"] == PSI
    assert volume(step)["all_gather", "hpz", "fp16"] == 5 * PSI
    assert volume(step)["reduce_scatter", "dp", "fp16"] == 3 * PSI  # unchanged
    assert step.groups["hpz"].size == 2


def test_secondary_shards_take_psi_over_their_group_until_the_step() -> None:
    step = step_of(zero_hpz_partition_size=2)
    shards = named(step, "secondary shard")
    assert [buffer.bytes for buffer in shards] == [2 * NUMEL / 2] * COUNT
    freed = {step.buffers[b].name: op for op in step.ops for b in op.releases}
    assert freed["secondary shard"].phase == "optimizer"


def test_the_host_waits_for_each_cut_of_a_secondary_shard() -> None:
    step = step_of(zero_hpz_partition_size=2)
    cuts = [op for op in step.ops if op.name.startswith("secondary shard of")]
    assert [op.phase for op in cuts] == ["forward"] * COUNT
    assert all(op.work is not None and op.work.hbm_bytes == 3 * NUMEL for op in cuts)  # type: ignore[union-attr]  # cleared, read, written: 2 B x NUMEL/2 each
    waited = {waiting for op in step.ops for waiting in op.host_waits}
    assert {op.number for op in cuts} <= waited


def test_secondary_shards_of_frozen_parameters_stay() -> None:
    step = step_of(zero_hpz_partition_size=2, model=linears(*[SIDE] * (COUNT + 1), frozen=2))
    resident = [b for b in step.resident if step.buffers[b].name == "secondary shard"]
    assert len(resident) == 2
    assert volume(step)["all_gather", "dp", "fp16"] == PSI - 2 * NUMEL


def test_offloaded_parameters_have_their_secondary_shards_in_host_memory() -> None:
    step = step_of(zero_hpz_partition_size=2, offload_param=Offload("cpu", buffer_count=5))
    assert {buffer.tier for buffer in named(step, "secondary shard")} == {"dram"}
    assert any(op.name.startswith("copy secondary shard of l0.weight to the GPU") for op in step.ops)


def test_a_group_larger_than_the_world_is_the_world() -> None:
    assert step_of(zero_hpz_partition_size=8).groups["hpz"].size == 4


@pytest.mark.parametrize(
    ("size", "reuse", "told"),
    [(2, 0, []), (4, 0, ["its group is all ranks"]), (2, 10**9, ["nothing is gathered twice in a step"])],
)
def test_secondary_shards_that_save_nothing_are_noted(size: int, reuse: int, told: list[str]) -> None:
    step = step_of(zero_hpz_partition_size=size, max_reuse_distance=reuse)
    useless = [note for note in step.notes if note.startswith("zero_hpz_partition_size only takes memory: ")]
    assert [note.split(": ")[1] for note in useless] == told


# --- qwZ -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elements", "blocks"),
    [
        (8, 1),
        (1024, 1),
        (8000, 1),
        (8008, 7),
        (16_384, 4),
        (4096 * 11008 // 16, 512),
        (12, 0),
        (0, 0),
        (8 * 1009, 1009),
    ],
)
def test_blocks_are_equal_have_at_most_8000_elements_and_a_multiple_of_8(elements: int, blocks: int) -> None:
    """8008 = 8 x 7 x 11 x 13; 2^14 in 3 blocks is uneven; 4096 x 11008 / 16 = 2^16 x 43 needs 353 blocks at least, and
    no number from that to 511 divides 2^13 x 43; 1009 is a prime."""
    assert blocks_of(elements) == blocks


def test_weights_go_as_int8_with_a_scale_for_each_block() -> None:
    """A shard of 1,024 elements is one block: of a gather over 4 ranks come 4,096 bytes and 4 scales."""
    step = step_of(zero_quantized_weights=True)
    assert volume(step)["all_gather", "dp", "int8"] == 2 * PSI
    assert volume(step)["all_gather", "dp", "fp32"] == 2 * COUNT * 4
    assert volume(step)["reduce_scatter", "dp", "fp16"] == PSI
    kinds = [(w.dtype, w.elements) for op, w in collectives(step) if w.kind == "all_gather"]
    assert kinds[:2] == [("int8", NUMEL), ("fp32", 4)]


def test_quantization_is_memory_bound_work_on_the_gather_lane() -> None:
    """fp16: read 2, write 1 and a scale; widened: read 1, write 2 of all ranks. bf16 is cast before and after."""
    narrow = {op.name: op.work for op in step_of(zero_quantized_weights=True).ops if op.stream == "gather"}
    assert {name: work.hbm_bytes for name, work in narrow.items() if work} == {  # type: ignore[union-attr]  # all are passes
        "quantize shards": 3 * NUMEL / 4 + 4, "dequantize": 3 * NUMEL + 4 * 4,
    }  # fmt: skip
    wide = {op.name for op in step_of(zero_quantized_weights=True, training={"precision": "bf16"}).ops}
    assert {"cast shards to fp16", "cast parameter"} <= wide


def test_persistent_parameters_are_gathered_in_full_width() -> None:
    step = step_of(zero_quantized_weights=True, param_persistence_threshold=NUMEL)
    assert volume(step)["all_gather", "dp", "fp16"] == PSI
    assert not volume(step)["all_gather", "dp", "int8"]


def test_a_shard_that_8_does_not_divide_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"weights: found 9 on a rank in all-gather l0\.weight; expected .* that 8 divides"
    ):
        step_of(zero_quantized_weights=True, model=linears(6, 6))


def test_frozen_weights_are_kept_in_int8() -> None:
    model = linears(*[SIDE] * (COUNT + 1), frozen=2)
    step = step_of(zero_quantized_nontrainable_weights=True, model=model)
    (shards,) = (step.buffers[b] for b in step.resident if step.buffers[b].name == "parameter shards")
    assert shards.bytes == 2 * (2 * NUMEL / 4) + 2 * (NUMEL / 4 + 4)
    assert volume(step)["all_gather", "dp", "int8"] == 2 * NUMEL  # no gradient flows below the first that is trained
    plain = step_of(zero_quantized_nontrainable_weights=True)
    assert "zero_quantized_nontrainable_weights changes nothing: no parameter is frozen" in plain.notes


def test_what_is_kept_in_int8_is_gathered_before_the_rest() -> None:
    model = linears(*[SIDE] * (COUNT + 1), frozen=2)
    step = step_of(model=model, prefetch_bucket_size=PSI, zero_quantized_nontrainable_weights=True)
    gathers = [op.name for op, w in collectives(step) if w.kind == "all_gather"]
    first = "all-gather l0.weight and 1 more"
    assert gathers[:3] == [first, f"{first} (scales)", "all-gather l2.weight and 1 more"]


# --- qgZ -------------------------------------------------------------------------------------------------------------


def test_a_gradient_is_exchanged_in_the_node_and_then_across() -> None:
    """64 x 64 in blocks of its 64 rows: 2,048 bytes and 64 scales in the node, half of both across two nodes."""
    step = step_of(**Q4)
    first = [(w.kind, w.group, w.dtype, w.elements) for op, w in collectives(step) if op.phase == "backward"]
    exchange = [row for row in first if row[0] == "all_to_all"][:4]
    assert exchange == [
        ("all_to_all", "local", "int8", NUMEL // 2), ("all_to_all", "local", "fp32", SIDE),
        ("all_to_all", "across", "int8", NUMEL // 4), ("all_to_all", "across", "fp32", SIDE // 2),
    ]  # fmt: skip
    assert not volume(step)["reduce_scatter", "dp", "fp16"]
    assert (step.groups["local"].members(3), step.groups["across"].members(3)) == (range(2, 4), range(1, 5, 2))


def test_kernels_of_a_quantized_gradient_by_hand() -> None:
    """Bytes: 2 x read, half written, scales; that read and half of it written; that read and 2 B written; the mean of
    two nodes (2 + 3 + 2 passes) over a quarter."""
    first = [op for op in step_of(**Q4).ops if op.stream == "reduce" and op.phase == "backward"][1:5]
    sent, summed = NUMEL / 2 + 4 * SIDE, NUMEL / 4 + 4 * SIDE / 2
    assert [op.work.hbm_bytes for op in first] == [  # type: ignore[union-attr]  # all are passes
        2 * NUMEL + sent, sent + summed, summed + 2 * NUMEL / 2, 2 * 7 * NUMEL / 4,
    ]  # fmt: skip


def test_gradients_go_by_reduce_scatters_on_one_node() -> None:
    step = step_of(4, 4, **Q4)
    assert volume(step)["reduce_scatter", "dp", "fp16"] == PSI
    assert "zero_quantized_gradients changes nothing on one node" in step.notes


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((64,), None),
        ((6, 7), None),  # 42 is no multiple of 2 x 4
        ((64, 128), Blocks(8192, 2, 128)),
        ((2, 4), Blocks(8, 2, 4)),
    ],
)
def test_vectors_and_uneven_gradients_are_not_quantized(shape: tuple[int, ...], blocks: Blocks | None) -> None:
    assert gradient_blocks(shape, local=2, nodes=2) == blocks


def test_what_is_not_quantized_goes_alone() -> None:
    """Buckets hold both, and are not coalesced."""
    step = step_of(model=linears(6, 6, 6), reduce_bucket_size=1000, **Q4)
    assert [w.elements for _, w in collectives(step) if w.kind == "reduce_scatter"] == [36, 36]


def test_scales_that_cannot_be_dealt_out_are_refused() -> None:
    """66 blocks over 4 ranks: torch's all-to-all would stop."""
    with pytest.raises(
        InputError, match=r"gradients: found 66 blocks of l0\.weight; expected a number that the 4 GPUs divide"
    ):
        step_of(model=linears(64, 66), **Q4)


def test_gradients_in_another_dtype_are_cast_there_and_back() -> None:
    strategy = replace(config(**Q4), communication_data_type="fp16")
    step = build(strategy, linears(SIDE, SIDE), toy_training(precision="bf16"), 4, 2)[0].check()
    names = [op.name for op in step.ops]
    assert {"cast to the communication dtype", "cast from the communication dtype"} <= set(names)


def test_nodes_of_uneven_size_are_refused() -> None:
    told = "zero_optimization: zero_quantized_gradients: found 3 GPUs; expected a multiple of the 2 GPUs of a node"
    with pytest.raises(InputError, match=told):
        step_of(3, 2, **Q4)


def test_nodes_of_which_the_first_is_the_smallest_are_refused() -> None:
    """Three GPUs are three nodes of one, but not these: on one node there are two."""
    gpus = ["0.gpu0", "1.gpu0", "1.gpu1"]
    devices = [{"name": name, "kind": "gpu", "device": "gb200"} for name in gpus]
    links = [{"from": name, "to": "tray", "bandwidth": "900 GB/s"} for name in gpus]
    tray = {"name": "tray", "kind": "nvswitch", "node": 1}
    zero = {"stage": 3, "zero_quantized_gradients": True}
    asked = {
        "topology": {"name": "rack", "devices": [*devices, tray], "links": links},
        "model": {"layers": 2, "hidden": 48, "heads": 4, "vocab": 96},
        "training": {"sequence_length": 16},
        "strategy": {"deepspeed": {"fp16": {"enabled": True}, "zero_optimization": zero}},
    }
    with pytest.raises(InputError, match="found nodes of 1, 2 GPUs; expected as many GPUs on every node") as error:
        from_mapping(asked)
    assert len(error.value.problems) == 1
    zero["zero_quantized_gradients"] = False
    assert from_mapping(asked).world_size == 3


# --- MiCS ------------------------------------------------------------------------------------------------------------


def test_everything_stays_in_the_shard_group_but_a_sum_over_replicas() -> None:
    step = step_of(**MICS)
    total = volume(step)
    assert total["all_gather", "shard", "fp16"] == 2 * PSI
    assert total["reduce_scatter", "shard", "fp16"] == PSI
    assert total["all_reduce", "replicas", "fp16"] == PSI / 2
    assert (step.groups["shard"].members(3), step.groups["replicas"].members(3)) == (range(2, 4), range(1, 5, 2))
    assert "dp" not in step.groups


def test_replicas_are_summed_at_the_boundary_only() -> None:
    step = step_of(training={"gradient_accumulation_steps": 2}, **MICS)
    assert {op.micro_batch for op, w in collectives(step) if w.group == "replicas"} == {1}
    assert volume(step)["all_reduce", "replicas", "fp16"] == PSI / 2
    assert volume(step)["reduce_scatter", "shard", "fp16"] == 2 * PSI


def test_one_shard_group_has_no_replicas() -> None:
    assert "replicas" not in step_of(mics_shard_size=4).groups


def test_parameters_arrive_in_their_places() -> None:
    """A batch is a gather a parameter, and no kernel copies anything."""
    step = step_of(prefetch_bucket_size=PSI, **MICS)
    sizes = [w.elements for op, w in collectives(step) if w.kind == "all_gather" and op.phase == "forward"]
    assert sizes == [NUMEL] * COUNT
    assert not [op for op in step.ops if op.stream == "gather" and op.work is not None]


def test_a_hierarchical_gather_goes_across_nodes_and_then_in_the_node() -> None:
    """8 ranks on 4 nodes, shards over 4 of them on 2 nodes: a shard is 1,024; across come 2 of them, inside 2 x 2."""
    step = step_of(8, 2, mics_shard_size=4, mics_hierarchical_params_gather=True)
    gathers = [(w.group, w.elements) for op, w in collectives(step) if w.kind == "all_gather"][:3]
    assert gathers == [("across", NUMEL // 2), ("local", NUMEL // 2), ("local", NUMEL // 2)]
    assert (step.groups["local"].members(6), step.groups["across"].members(6)) == (range(6, 8), range(4, 8, 2))
    copies = [op.work.hbm_bytes for op in step.ops if op.name == "spread out shards"]  # type: ignore[union-attr]  # passes
    assert copies[0] == 4 * 2 * NUMEL / 2  # cloned and copied: 2 x (read, write) of 2 B


def test_offloads_that_deepspeed_does_not_do_are_refused() -> None:
    """Also of a configuration that stands in no file; a ladder of offloads goes on without the keys."""
    nvme = Offload("nvme", buffer_count=5, max_in_cpu=0)
    for keys in ({**MICS, "offload_optimizer": Offload("cpu")}, {"zero_hpz_partition_size": 2, "offload_param": nvme}):
        with pytest.raises(InputError, match=r"mics_shard_size|zero_hpz_partition_size"):
            step_of(**keys)
        kept = config(**keys).zero.offloadable
        assert (kept.mics_shard_size, kept.zero_hpz_partition_size) == (-1, 1)
    together = step_of(mics_shard_size=4, offload_optimizer=Offload("cpu"))
    assert "replicas" not in together.groups


def test_states_are_sharded_over_the_group() -> None:
    (master,) = named(step_of(**MICS), "fp32 master parameters")
    assert master.bytes == 4 * PSI / 2


# --- the file --------------------------------------------------------------------------------------------------------


def read(
    zero: dict[str, Any], version: str = "0.19.8", world: int | None = 4, **more: Any
) -> tuple[Zero, dict[str, str]]:
    file = {"zero_optimization": {"stage": 3, **zero}, "fp16": {"enabled": True}, **more}
    found = read_deepspeed(inline(file, "ds.json"), Given(world_size=world), release_of(version))
    return found.deepspeed.zero, {finding.code: finding.message for finding in found.findings}


def test_keys_are_read() -> None:
    zero, said = read({"zero_hpz_partition_size": 2, "zero_quantized_weights": True, "zero_quantized_gradients": True})
    assert (zero.zero_hpz_partition_size, zero.zero_quantized_weights, zero.zero_quantized_gradients) == (2, True, True)
    assert not {"not-modelled", "quantized-gradients-are-fp16"} & said.keys()
    zero, said = read({"mics_shard_size": 2, "zero_hpz_partition_size": 2}, WITH_MICS)
    assert zero.mics_shard_size == 2
    assert "zero_hpz_partition_size changes nothing" in said["key-no-effect"]


PATH = {"nvme_path": "/local"}


@pytest.mark.parametrize(
    ("zero", "version", "told"),
    [
        ({"mics_shard_size": 2}, "0.19.8", r"0\.19\.8 has removed; expected no such key, or a scenario with versions"),
        ({"mics_shard_size": -1}, "0.19.8", "removed"),
        ({"mics_hierarchical_params_gather": False}, "0.19.8", "removed"),
        ({"zeropp_loco_param": {"err_beta": 0.8}}, "0.19.8", "removed"),
        ({"mics_shard_size": 3}, WITH_MICS, "found 3; expected a number that divides the 4 GPUs"),
        ({"mics_shard_size": 2, "offload_optimizer": {"device": "cpu"}}, WITH_MICS, "sums gradients on the GPU only"),
        ({"mics_shard_size": 2, "offload_param": {"device": "cpu"}}, WITH_MICS, "none with mics_shard_size"),
        ({"zero_hpz_partition_size": 3}, "0.19.8", "found 3; expected a number that divides the 4 GPUs"),
        ({"zero_hpz_partition_size": 2, "offload_param": {"device": "nvme", **PATH}}, "0.19.8", "none or cpu"),
        ({"zero_quantized_gradients": True, "reduce_scatter": False}, "0.19.8", "true with zero_quantized_gradients"),
        ({"zero_hpz_partition_sise": 3}, "0.19.8", "nearest zero_hpz_partition_size"),
    ],
)  # fmt: skip
def test_what_deepspeed_refuses(zero: dict[str, Any], version: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(zero, version)


def test_the_kernels_of_gradients_take_everything_for_fp16() -> None:
    bf16: dict[str, Any] = {"fp16": {"enabled": False}, "bf16": {"enabled": True}}
    assert "these are bf16" in read({"zero_quantized_gradients": True}, **bf16)[1]["quantized-gradients-are-fp16"]
    cast: dict[str, Any] = {**bf16, "communication_data_type": "fp16"}
    assert "quantized-gradients-are-fp16" not in read({"zero_quantized_gradients": True}, **cast)[1]


# --- bytes on the links ----------------------------------------------------------------------------------------------


def four_nodes() -> Topology:
    return named_topology("roce-100g-a100")


def leaving(topology: Topology, **keys: Any) -> float:
    """Bytes that leave the first node in a step, for each element of the model."""
    side = 128 * len(topology.gpus)  # what every group can cut
    model = linears(side, side, side)
    values = {"prefetch_bucket_size": 0, "max_reuse_distance": 0, "param_persistence_threshold": 0, **keys}
    strategy = DeepSpeed(zero=Zero(stage=3, **values), synchronized_timer=False)
    (step,) = build(strategy, model, toy_training(precision="fp16"), len(topology.gpus), 8)
    priced = price([step], topology)
    (demands,) = priced.demands.values()
    wired = sum(use.amount for demand in demands for use in demand.uses if use.resource.startswith("nic"))
    return wired / model.numel


ALL: dict[str, Any] = {"zero_hpz_partition_size": 8, "zero_quantized_weights": True, "zero_quantized_gradients": True}


@pytest.mark.parametrize("nodes", [2, 4])
def test_zeropp_sends_a_quarter_of_what_stage_3_sends_between_nodes(nodes: int) -> None:
    """Ring over N ranks: a node passes on (N-1)/N of each buffer: two gathers and a reduce-scatter of 2 bytes; or one
    gather of 1 byte, and of half a byte that the node has summed what other nodes get, (nodes-1)/nodes (scales are
    0.1 %). At many nodes 1.5 of 6."""
    topology = four_nodes().select(nodes)
    ring = (8 * nodes - 1) / (8 * nodes)
    assert leaving(topology) == pytest.approx(6 * ring, rel=1e-3)
    assert leaving(topology, zero_hpz_partition_size=8) == pytest.approx(4 * ring, rel=1e-3)
    assert leaving(topology, zero_quantized_weights=True) == pytest.approx(4 * ring, rel=3e-3)
    exchanged = 0.5 * (nodes - 1) / nodes
    assert leaving(topology, zero_quantized_gradients=True) == pytest.approx(4 * ring + exchanged, rel=3e-3)
    assert leaving(topology, **ALL) == pytest.approx(ring + exchanged, rel=3e-3)


def test_each_group_has_a_communicator_that_takes_memory() -> None:
    topology = four_nodes().select(2)
    taken = []
    rows: tuple[dict[str, Any], ...] = ({}, {"zero_hpz_partition_size": 8}, ALL)
    for keys in rows:
        (step,) = build(config(**keys), linears(2048, 2048, 2048), toy_training(precision="fp16"), 16, 8)
        taken.append(price([step], topology).supply.overheads["gpu"])
    assert taken[0] < taken[1] < taken[2]
