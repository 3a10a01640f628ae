"""What the words of a row mean and deny, and that what nobody understands is told or refused, never guessed."""

from __future__ import annotations

import re

import pytest

from tests.unit.test_validation_cases import case, measured, refused
from zerosim.catalog.data import sources
from zerosim.spec.strategy import Fsdp
from zerosim.studies.validation.assumptions import entries
from zerosim.studies.validation.flops import counted
from zerosim.studies.validation.words import denied, said

CITED = re.compile(r"[A-Z][a-z]+ \d{4}\b|config\.json|\w/\w")  # author and year, or a file


@pytest.mark.parametrize(
    ("words", "stands"),
    [
        ("flash attention", True), ("no flash attention", False), ("flash attention off", False),
        ("flash=False", False), ("without any flash kernels", False), ("flash attention, no dropout", True),
        ("flash (not used)", False),
        ("no dropout but flash", True), ("unflash", False), ("non-flash", False), ("flash: none", False),
        ("not flash; flash later", True), ("eager", False),
    ],
)  # fmt: skip
def test_words_that_are_denied_do_not_stand(words: str, stands: bool) -> None:
    assert (said("flash", words) is not None) is stands
    assert denied("flash", words) is (not stands and "flash" in words)


@pytest.mark.parametrize(
    ("words", "formula", "attention", "passes"),
    [
        ("6N, attention not counted", "parameters", False, 3), ("6N without attention", "parameters", False, 3),
        ("6N (incl. attention, recompute excluded)", "parameters", True, 3), ("6ND + 12LHT", "parameters", True, 3),
        ("6 * N * D", "parameters", False, 3), ("6 x params x tokens", "parameters", False, 3),
        ("6N + attention, with recompute", "parameters", True, 4), ("8N", "parameters", False, 4),
        ("MFU (PaLM)", "parameters", True, 3), ("model FLOPs", "parameters", True, 3),
        ("6N without activation recompute", "parameters", False, 3), ("Megatron, x 32 GPUs", "megatron", True, 4),
        ("Megatron formula, excluding activation recomputation", "megatron", True, 3), ("HFU", "megatron", True, 4),
        ("6N, excl. activation recomputation, with attention", "parameters", True, 3), ("fwd x3", "megatron", True, 3),
    ],
)  # fmt: skip
def test_what_a_definition_counts(words: str, formula: str, attention: bool, passes: int) -> None:
    assert counted(words, recomputed=True)[:3] == (formula, attention, passes)


@pytest.mark.parametrize(
    ("words", "precision", "tf32"),
    [
        ("full bf16", "bf16", False), ("fp32 master, bf16 compute", "bf16", False), ("mixed fp32/fp16", "fp16", False),
        ("full precision", "fp32", False), ("TF32", "fp32", True), ("fp32 (tf32 off)", "fp32", False),
        ("16-mixed", "fp16", False), ("no fp8, bf16", "bf16", False), ("fp32 (no bf16)", "fp32", False),
    ],
)  # fmt: skip
def test_a_type_of_16_bits_is_what_is_computed_in(words: str, precision: str, tf32: bool) -> None:
    training = case(precision=words).scenario.training
    assert (training.precision, training.tf32) == (precision, tf32)


@pytest.mark.parametrize(
    ("cells", "kernels", "fused"),
    [
        ({"other_flags": "fused AdamW"}, "eager", True), ({"other_flags": "fused=False"}, "eager", False),
        ({"other_flags": "no fused kernels"}, "eager", False), ({"other_flags": "fused kernels"}, "fused", False),
        ({"optimizer": "AdamW fused=False"}, "eager", False), ({"optimizer": "AdamW (unfused)"}, "eager", False),
        ({"optimizer": "non-fused AdamW"}, "eager", False), ({"optimizer": "AdamW (fused)"}, "eager", True),
    ],
)  # fmt: skip
def test_an_optimizer_says_nothing_of_the_models_kernels(cells: dict[str, str], kernels: str, fused: bool) -> None:
    scenario = case(**cells).scenario
    assert scenario.training.kernels == kernels
    assert isinstance(scenario.strategy, Fsdp)
    assert scenario.strategy.optimizer.fused is fused


@pytest.mark.parametrize(
    ("words", "attention"),
    [
        ("without flash attention", "eager"), ("flash attention off", "eager"), ("sdpa (math)", "eager"),
        ("SDPA", "flash"), ("TE fused attention", "flash"),
        ("flash attention 2 (no dropout)", "flash"), ("flash attention (Triton)", "flash1"),
    ],
)  # fmt: skip
def test_attention_that_is_denied_is_not_flash(words: str, attention: str) -> None:
    assert case(attn_kernel=words).scenario.training.attention == attention


@pytest.mark.parametrize(
    ("words", "checkpointing"),
    [
        ("checkpointing off", "none"), ("no recompute", "none"), ("without", "none"), ("not used", "none"),
        ("selective, not full", "selective"), ("full", "full"), ("enabled", "full"), ("every other layer", "alternate"),
    ],
)  # fmt: skip
def test_recomputation_that_is_denied_is_none(words: str, checkpointing: str) -> None:
    assert case(act_ckpt=words).scenario.training.activation_checkpointing == checkpointing


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"act_ckpt": "partial"}, 'act_ckpt: found "partial", not read'),
        ({"attn_kernel": "wonder"}, 'attn_kernel: found "wonder", not read'),
        ({"precision": "full"}, 'precision: found "full", not read'),
        ({"compile": "perhaps"}, 'compile: found "perhaps", not read'),
        ({"outcome": "crashed"}, 'outcome: found "crashed", not read'),
        ({"seq_len": "256-512"}, 'seq_len: found "256-512", not read'),
        ({"fwd_s": "-1"}, 'fwd_s: found "-1", not read'),
        ({"global_batch_seqs": "1024"}, "2 x 2 x 8 sequences a step, not 1024 as the global batch says"),
        ({"model": "mine"}, "a model like gpt2, as llm-foundry trains them; its name says no more"),
        (
            {"peak_mem_gb": "8", "peak_mem_def": "GB"},
            "peak memory in GiB, which torch's programs print as GB",
        ),
        ({"offload_optimizer": "yes"}, "FSDP offloads parameters and optimizer states together"),
        ({"strategy_raw": "SHARD_GRAD_OP"}, "stage 2; strategy says 3 and strategy_raw 2"),
        (
            {"gpu": "V100-32GB", "gpu_mem_gb": "32", "precision": "bf16"},
            "bf16 computed at the rate of fp32, as V100-SXM2-32GB has no units for it",
        ),
        (
            {"gpu": "V100-32GB", "gpu_mem_gb": "32", "precision": "bf16", "step_time_s": "NA", "mfu": "40"},
            "mfu not read: V100-SXM2-32GB has no peak at bf16",
        ),
    ],
)
def test_what_is_not_understood_or_concluded_is_told(cells: dict[str, str], told: str) -> None:
    assert told in case(**cells).assumptions


@pytest.mark.parametrize("words", ["OOM-free", "ran (no OOM)", "did not OOM", "ran", "ok", "completed"])
def test_a_run_that_ran(words: str) -> None:
    assert measured(case(outcome=words), "fits") == 1.0
    assert measured(case(outcome=words), "step_seconds") == 0.05


@pytest.mark.parametrize("words", ["NA", "", "unknown", "crashed"])
def test_only_words_that_say_so_are_a_run_that_fits(words: str) -> None:
    assert [metric.name for metric in case(outcome=words).metrics] == ["step_seconds"]


@pytest.mark.parametrize(
    "words", ["OOM", "CUDA OutOfMemoryError", "oom_error", "failed: out of memory", "does not fit"]
)
def test_a_run_out_of_memory(words: str) -> None:
    assert [(metric.name, metric.measured) for metric in case(outcome=words).metrics] == [("fits", 0.0)]


def test_slack_of_a_share_is_of_what_is_printed() -> None:
    def slack(**cells: str) -> float:
        return case(step_time_s="NA", **cells).metrics[0].slack

    assert slack(mfu="42.5") == pytest.approx(0.05 / 42.5)
    assert slack(mfu="0.425") == pytest.approx(0.0005 / 0.425)
    assert slack(hfu="50") == pytest.approx(0.5 / 50)
    assert slack(samples_per_s_total="25-27") == pytest.approx(1 / 26)


def test_units_of_a_cell_count() -> None:
    assert measured(case(step_time_s="250 ms"), "step_seconds") == 0.25
    assert measured(case(peak_mem_gb="20480 MiB"), "allocated_memory_bytes") == 20 * 2**30


def test_offload_that_only_the_strategy_says_is_played() -> None:
    cells = {"offload_optimizer": "NA", "offload_param": "NA", "precision": "fp16", "strategy_raw": "NA"}
    found = case(framework="DeepSpeed", strategy="ZeRO-3 + offload", **cells)
    assert "optimizer states on cpu, as the strategy says" in found.assumptions
    assert found.scenario.text["strategy"]["deepspeed"]["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    without = case(framework="DeepSpeed", strategy="ZeRO-3, no offload", **cells)
    assert "offload_optimizer" not in without.scenario.text["strategy"]["deepspeed"]["zero_optimization"]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"offload_optimizer": "maybe"}, 'offload_optimizer: found "maybe"'),
        ({"framework": "PyTorch", "strategy": "DDP", "strategy_raw": "NA", "offload_optimizer": "cpu"}, "offloaded"),
        ({"framework": "DeepSpeed", "strategy": "ZeRO-1", "strategy_raw": "NA", "offload_optimizer": "nvme"}, "ZeRO-1"),
        ({"framework": "DeepSpeed", "strategy": "ZeRO-2", "strategy_raw": "NA", "offload_param": "cpu"}, "parameters"),
        ({"other_flags": "LoRA r=16"}, "adapters only"), ({"strategy": "ZeRO-3 LoRA"}, "adapters only"),
        ({"other_flags": "MoE"}, "mixture of experts"), ({"other_flags": "expert parallel 8"}, "spread over GPUs"),
        ({"other_flags": "context parallel 4"}, "spread over GPUs"), ({"precision": "int4"}, "8 bits"),
        ({"strategy": "ZeRO-4", "strategy_raw": "stage not stated"}, "zero-4"),
        ({"strategy": "pipeline", "strategy_raw": "stage not stated"}, "pipeline"),
        ({"strategy": "", "strategy_raw": "stage not stated"}, "no strategy"),
        ({"n_gpus": "8-16"}, 'n_gpus: found "8-16", not read'), ({"n_layers": "-3"}, 'n_layers: found "-3", not read'),
    ],
)  # fmt: skip
def test_what_would_be_played_as_something_else_is_refused(cells: dict[str, str], reason: str) -> None:
    assert reason in refused(**cells)


@pytest.mark.parametrize("flags", ["tensor parallel 1", "no tensor parallel", "sequence_parallel=False"])
def test_parallelism_of_one_is_none(flags: str) -> None:
    assert case(other_flags=flags).scenario.world_size == 8


@pytest.mark.parametrize(
    ("framework", "strategy"),
    [("Dynamics FSDP", "ZeRO-3"), ("DeepSpeed + apex", "ZeRO-2"), ("PyTorch DDP + apex", "DDP")],
)
def test_programs_are_named_by_whole_words(framework: str, strategy: str) -> None:
    found = case(framework=framework, strategy=strategy, strategy_raw="NA", precision="fp16", act_ckpt="NA")
    told = " ".join(found.assumptions)
    assert "MiCS" not in told
    assert "BERT" not in told


def test_a_bare_transformer_of_lightning_encodes_and_decodes() -> None:
    found = case(model="demo Transformer", framework="Lightning Fabric", seq_len="64")
    assert "a model like t5, as Lightning trains them; its name says no more" in found.assumptions


def test_every_source_of_an_assumption_is_known_or_cited() -> None:
    known = sources()
    for entry in entries():
        assert entry.source in known or CITED.search(entry.source), f"{entry.field}: {entry.source!r}"
