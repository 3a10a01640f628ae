"""Rows made into cases: the FLOPs of a definition by hand, machines, batches and strategies by their words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.measured import COLUMNS, SMALL
from zerosim.spec.hierarchical import HierarchicalZero1
from zerosim.spec.measured_row import Row, row_of
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, Pipeline
from zerosim.studies.validation.assumptions import entries
from zerosim.studies.validation.case import Case, Refused
from zerosim.studies.validation.cases import case_of
from zerosim.studies.validation.flops import Counted, counted, flops_of_step
from zerosim.studies.validation.row_model import Shape

GPT3 = Shape("gpt2", 96, 12288, 96, 96, 49152, 51200, 2048, True)


def row(**cells: str) -> Row:
    return row_of({**dict.fromkeys(COLUMNS, "NA"), **SMALL, **cells})


def case(**cells: str) -> Case:
    found = case_of(row(**cells))
    assert isinstance(found, Case), found.reason
    return found


def refused(**cells: str) -> str:
    found = case_of(row(**cells))
    assert isinstance(found, Refused)
    return found.reason


def measured(found: Case, name: str) -> float:
    return next(metric.measured for metric in found.metrics if metric.name == name)


# --- FLOPs ---


def test_flops_of_gpt3_by_hand() -> None:
    count = Counted("megatron", True, 4)
    # Narayanan 2021, eq. 3: 96 x 1536 x 2048 x 96 x 12288^2 x (1 + 2048 / 73728 + 51200 / 18874368) = 4.5110e18
    assert flops_of_step(count, GPT3, 0, 1536, 2048) == pytest.approx(4.5110e18, rel=1e-4)
    without = flops_of_step(Counted("megatron", True, 3), GPT3, 0, 1, 2048)
    # 72 x 2048 x 96 x 12288^2 x (1 + 2048 / 73728) + 6 x 2048 x 12288 x 51200 = 2.2044e15
    assert without == pytest.approx(2.2044e15, rel=1e-4)


def test_flops_by_parameters_by_hand() -> None:
    # a sequence of 2048: 6 x 1e9 x 2048 + 12 x 96 x 12288 x 2048^2
    count = counted("model FLOPs (6N + attention), no recompute", recomputed=True)
    assert flops_of_step(count, GPT3, 1e9, 1, 2048) == 6e9 * 2048 + 12 * 96 * 12288 * 2048**2
    assert flops_of_step(counted("6ND", True), GPT3, 1e9, 2, 10) == 6e9 * 20


@pytest.mark.parametrize(
    ("words", "recomputed", "passes", "sure"),
    [
        ("authors (Megatron style, includes recompute)", True, 4, True),
        ("authors (Megatron style, includes recompute)", False, 3, True),
        ("Megatron formula (with recompute when ckpt on)", True, 4, True),
        ("Megatron formula without recompute", True, 3, True),
        ("authors", True, 4, False),
        ("", False, 3, False),
    ],
)
def test_passes_that_words_count(words: str, recomputed: bool, passes: int, sure: bool) -> None:
    found = counted(words, recomputed)
    assert (found.formula, found.passes, found.sure) == ("megatron", passes, sure)


# --- the step ---


def test_the_first_column_that_says_the_step_is_taken() -> None:
    # micro-batch 2, accumulation 2, 8 GPUs, 256 tokens a sequence
    assert measured(case(), "step_seconds") == 0.05
    assert measured(case(step_time_s="NA", tokens_per_s_per_gpu="2048"), "step_seconds") == 0.5
    assert measured(case(step_time_s="NA", samples_per_s_total="64"), "step_seconds") == 0.5
    flops = flops_of_step(Counted("megatron", True, 3), Shape("", 2, 512, 8, 8, 2048, 1000, 256, True), 0, 4, 256)
    found = case(step_time_s="NA", tflops_per_gpu="10", tflops_def="Megatron formula")
    assert measured(found, "step_seconds") == pytest.approx(flops / 1e13)


def test_slack_is_half_a_digit_or_the_range_or_the_reading() -> None:
    def slack(**cells: str) -> float:
        return case(step_time_s="NA", **cells).metrics[0].slack

    assert slack(samples_per_s_total="25") == 0.5 / 25
    assert slack(tokens_per_s_per_gpu="6150", metric_other="tokens_per_s_per_gpu range 6100-6200") == 50 / 6150
    figure = {"tokens_per_s_per_gpu": "2000.0", "confidence": "read-from-figure"}
    assert slack(**figure) == 0.01
    assert slack(**figure, metric_other="reading_error=100") == 0.05


def test_memory_by_what_was_counted() -> None:
    def of(**cells: str) -> dict[str, float]:
        return {m.name: m.measured for m in case(**cells).metrics if m.name.endswith("memory_bytes")}

    gib = 2**30
    assert of(peak_mem_gb="10", peak_mem_def="GiB peak active; reserved 12 GiB") == {
        "active_memory_bytes": 10 * gib, "reserved_memory_bytes": 12 * gib}  # fmt: skip
    smi = of(peak_mem_gb="32.4", peak_mem_def="nvidia-smi MiB/1000 (allocator reserved, upper bound)")
    assert smi == {"peak_memory_bytes": 32.4 * 1000 * 2**20}
    assert of(peak_mem_gb="8", peak_mem_def="max allocated GB (reserved 18 GB)") == {
        "allocated_memory_bytes": 8 * gib, "reserved_memory_bytes": 18 * gib}  # fmt: skip


def test_a_run_out_of_memory_says_only_that() -> None:
    assert [(m.name, m.measured) for m in case(outcome="OOM").metrics] == [("fits", 0.0)]
    assert measured(case(), "fits") == 1.0


def test_a_ratio_has_a_second_run() -> None:
    found = case(step_time_s="NA", metric_other="speedup_overlap_on_over_off=1.2")
    assert measured(found, "speedup") == 1.2
    assert found.other is not None
    assert isinstance(found.other.strategy, Fsdp)
    assert found.other.strategy != found.scenario.strategy


# --- the batch ---


@pytest.mark.parametrize(
    ("cells", "batch"),
    [
        ({"micro_batch_per_gpu": "2", "grad_accum": "unknown", "global_batch_seqs": "64"}, (2, 4)),
        ({"micro_batch_per_gpu": "unknown", "grad_accum": "4", "global_batch_seqs": "64"}, (2, 4)),
        ({"micro_batch_per_gpu": "4", "grad_accum": "512/micro-batch", "global_batch_seqs": "NA"}, (4, 16)),
        ({"micro_batch_per_gpu": "1K tokens", "grad_accum": "NA", "global_batch_seqs": "NA"}, (4, 1)),
    ],
)
def test_the_batch_that_is_missing_follows(cells: dict[str, str], batch: tuple[int, int]) -> None:
    training = case(**cells).scenario.training
    assert (training.micro_batch_size, training.gradient_accumulation_steps) == batch


# --- the machine ---


def test_a_known_machine_with_the_ports_of_the_row() -> None:
    cells = {"inter_node_net": "RoCE 4x100Gb", "inter_node_gbps_per_node": "400"}
    topology = case(n_gpus="16", **cells).scenario.topology
    nics = topology.devices("nic", 0)
    assert len(nics) == 4
    assert {nic.figures.name for nic in nics if nic.figures} == {"roce_100"}
    assert len(topology.nodes) == 2
    unsaid = case(n_gpus="16", inter_node_net="unknown", inter_node_gbps_per_node="unknown")
    assert "network gbps 1600 (eight HDR ports of a DGX A100)" in unsaid.assumptions
    assert len(unsaid.scenario.topology.devices("nic", 0)) == 8


def test_figures_in_the_words_of_a_gpu() -> None:
    gpu = case(gpu="H100-SXM5-96GB-HBM2e (500W cap, 2.4TB/s)", gpu_mem_gb="96").scenario.topology.gpus[0]
    assert gpu.capacity == pytest.approx(0.99 * 96 * 2**30)
    assert gpu.figures is not None
    figures: Any = gpu.figures
    assert (figures.memory_bandwidth, figures.power) == (2.4e12, 500)


@pytest.mark.parametrize(
    ("words", "memory", "name"),
    [
        ("V100", "16", "V100-SXM2-16GB"), ("V100", "32", "V100-SXM2-32GB"), ("8x A100", "40", "A100-SXM4-40GB"),
        ("A100 80GB", "NA", "A100-SXM4-80GB"), ("NVIDIA L4", "24", "L4"), ("MI300X", "192", "MI300X"),
        ("RTX 3090 Ti", "24", "RTX 3090 Ti"), ("A10G", "24", "A10G"), ("GH200", "96", "GH200-96GB"),
    ],
)  # fmt: skip
def test_gpus_by_their_words(words: str, memory: str, name: str) -> None:
    found = case(gpu=words, gpu_mem_gb=memory, n_gpus="1", global_batch_seqs="4").scenario.topology.gpus[0].figures
    assert found is not None
    assert found.name == name


def test_cards_joined_by_a_bridge_and_by_nothing() -> None:
    cells = {"gpu": "TITAN RTX 24GB", "gpu_mem_gb": "24", "n_gpus": "2", "gpus_per_node": "2", "precision": "fp32",
             "global_batch_seqs": "8"}  # fmt: skip
    joined = case(**cells, intra_node_link="NVLink NV2").scenario.topology
    assert joined.link("0.gpu0", "0.gpu1").bandwidth == 50e9  # two links of 25 GB/s
    apart = case(**cells, intra_node_link="none").scenario.topology
    assert len(apart.nvlink_domains()) == 2


# --- the strategy ---


@pytest.mark.parametrize(
    ("cells", "stage"),
    [
        ({"framework": "HF Transformers + DeepSpeed", "strategy": "DDP", "strategy_raw": "z0 best"}, 0),
        ({"framework": "HF Transformers + DeepSpeed", "strategy": "ZeRO-1", "strategy_raw": "DS z1"}, 1),
        ({"framework": "DeepSpeed ZeRO-Offload", "strategy": "ZeRO-2 (1 rank)", "strategy_raw": "unknown"}, 2),
        ({"framework": "PyTorch", "strategy": "ZeRO-3", "strategy_raw": "unknown"}, 3),
    ],
)
def test_stages_of_deepspeed(cells: dict[str, str], stage: int) -> None:
    strategy = case(**cells, precision="fp16").scenario.strategy
    assert isinstance(strategy, DeepSpeed)
    assert strategy.zero.stage == stage


def test_parts_of_zero_plus_plus_and_buckets() -> None:
    cells = {"framework": "DeepSpeed ZeRO / ZeRO++", "strategy": "ZeRO-3", "n_gpus": "16", "precision": "fp16"}
    plus = case(**cells, strategy_raw="ZeRO++ hpZ+qwZ, reduce_bucket_size 2e8").scenario.strategy
    assert isinstance(plus, DeepSpeed)
    assert plus.zero.zero_hpz_partition_size == 8
    assert (plus.zero.zero_quantized_weights, plus.zero.zero_quantized_gradients) == (True, False)
    assert plus.zero.reduce_bucket_size == 200_000_000
    base = case(**cells, strategy_raw="ZeRO-3 baseline").scenario.strategy
    assert isinstance(base, DeepSpeed)
    assert not base.zero.zero_quantized_weights


def test_who_shards_is_said_by_the_framework() -> None:
    half = {"precision": "bf16", "strategy_raw": "unknown"}
    megatron = case(framework="Megatron-LM", strategy="DDP", **half).scenario.strategy
    assert isinstance(megatron, HierarchicalZero1)
    assert (megatron.framework, megatron.shard_size) == ("megatron", 1)
    evo = case(framework="InternEvo", strategy="ZeRO-1", precision="bf16", strategy_raw="zero1=4").scenario.strategy
    assert isinstance(evo, HierarchicalZero1)
    assert (evo.framework, evo.shard_size) == ("internevo", 4)
    ddp = case(framework="PyTorch DDP 1.5", strategy="DDP", precision="fp32", strategy_raw="unknown",
               other_flags="bucket_cap_mb=10")  # fmt: skip
    assert isinstance(ddp.scenario.strategy, Ddp)
    assert ddp.scenario.strategy.bucket_cap_mb == 10
    titan = case(framework="torchtitan + FSDP2", strategy="ZeRO-3", **half).scenario.strategy
    assert isinstance(titan, Fsdp)
    assert titan.version == 2
    piped = case(framework="Megatron-LM", strategy="DDP", pp="2", precision="fp32", strategy_raw="1F1B")
    assert isinstance(piped.scenario.strategy, Pipeline)
    assert (piped.scenario.strategy.stages, piped.scenario.replicas) == (2, 4)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"tp": "2"}, "spread over GPUs"),
        ({"model": "Mixtral-8x7B"}, "mixture of experts"),
        ({"model": "ResNet50"}, "convolutional"),
        ({"precision": "fp8"}, "8 bits"),
        ({"gpu": "Gaudi 2"}, "no GPU like Gaudi 2"),
        ({"n_gpus": "NA"}, "number of its GPUs"),
        ({"optimizer": "Adafactor"}, "Adafactor"),
        ({"strategy": "magic", "strategy_raw": "unknown"}, "no strategy"),
        ({"other_flags": "offload + DPU"}, "delayed parameter update"),
        ({"n_layers": "NA", "params": "NA"}, "parameters"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_reason(cells: dict[str, str], reason: str) -> None:
    assert reason in refused(**cells)


# --- assumptions ---


def test_each_assumption_has_a_reason_and_a_grade() -> None:
    for entry in entries():
        assert entry.why, entry.field
        assert entry.grade in "EARDF", entry.field
        assert not entry.when.keys() & {"id", "dataset", "source"}, f"{entry.field} hangs on a row or a study"


def test_the_last_entry_of_each_field_holds_for_any_row() -> None:
    last = {entry.field: entry for entry in entries()}
    assert all(not entry.when for entry in last.values())


def test_numbers_of_parameters_say_whether_embeddings_are_tied() -> None:
    # 2 layers: 12 x 512^2 x 2 = 6.29M; a table of 1,000,000 rows is 512M, and a second one as much
    one = case(vocab="1000000", params="518M").scenario.model.numel
    two = case(vocab="1000000", params="1.03B").scenario.model.numel
    assert one == pytest.approx(518e6, rel=0.01)
    assert two == pytest.approx(1.03e9, rel=0.01)


def test_mics_is_of_the_last_release_that_had_it() -> None:
    found = case(framework="MiCS (DeepSpeed)", strategy="MiCS", strategy_raw="partition group 4", n_gpus="16")
    assert isinstance(found.scenario.strategy, DeepSpeed)
    assert found.scenario.strategy.zero.mics_shard_size == 4
    assert found.scenario.strategy.release.version == "0.14.5"


def test_a_vocabulary_that_quantized_gradients_cannot_cut_is_padded() -> None:
    cells = {"framework": "DeepSpeed ZeRO / ZeRO++", "strategy": "ZeRO++", "strategy_raw": "qgZ", "vocab": "50257"}
    found = case(**cells, n_gpus="96", precision="fp16", global_batch_seqs="384")
    assert found.scenario.model.vocabulary == 50304  # 393 x 128, by Megatron; 524 x 96
    odd = case(**cells, n_gpus="72", precision="fp16", global_batch_seqs="288")
    assert odd.scenario.model.vocabulary == 50328  # 699 x 72
    assert any("50328" in text for text in odd.assumptions)
