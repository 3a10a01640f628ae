"""DeepSpeed files to values: defaults, spellings, "auto", batch, optimizers; and what is said of idle keys."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosim.errors import InputError, Problem
from zerosim.spec.deepspeed import DeepSpeedRead, Given, read_deepspeed
from zerosim.spec.deepspeed_mapping import as_mapping
from zerosim.spec.deepspeed_section import Log
from zerosim.spec.deepspeed_text import read_file, read_text
from zerosim.spec.deepspeed_zero import read_zero
from zerosim.spec.loading import inline
from zerosim.spec.strategy import DeepSpeed, Offload, Optimizer, Zero


def read(mapping: dict[str, Any], **known: Any) -> DeepSpeedRead:
    return read_deepspeed(inline(mapping, "ds_config.json"), Given(**({"world_size": 8} | known)))


def zero(**section: Any) -> Zero:
    return read({"zero_optimization": section}).deepspeed.zero


def codes(result: DeepSpeedRead) -> list[str]:
    return [finding.code for finding in result.findings]


def said(result: DeepSpeedRead, code: str) -> str:
    return "\n".join(finding.message for finding in result.findings if finding.code == code)


def test_an_empty_file_is_deepspeeds_default() -> None:
    result = read({})
    assert result.deepspeed == DeepSpeed()
    assert result.training_values == {"micro_batch_size": 1, "gradient_accumulation_steps": 1, "precision": "fp32"}


@pytest.mark.parametrize(("stage", "overlap"), [(0, False), (1, False), (2, False), (3, True)])
def test_overlap_comm_of_null_is_true_on_stage_3_only(stage: int, overlap: bool) -> None:
    assert zero(stage=stage).overlap_comm is overlap
    assert zero(stage=stage, overlap_comm=None).overlap_comm is overlap
    assert zero(stage=stage, overlap_comm=not overlap).overlap_comm is not overlap


@pytest.mark.parametrize("stage", [2, 2.0, "2"])
def test_stage_may_be_a_number_or_its_text(stage: object) -> None:
    assert zero(stage=stage).stage == 2


@pytest.mark.parametrize("size", [500000000, 5e8, "500000000", "500_000_000", "500000000.0", " 500000000 "])
def test_integers_as_deepspeed_accepts_them(size: object) -> None:
    result = read({"zero_optimization": {"stage": 2, "reduce_bucket_size": size}})
    assert result.deepspeed.zero.reduce_bucket_size == 500_000_000
    assert "number-as-text" not in codes(result)


@pytest.mark.parametrize(("text", "value"), [("5e8", 500_000_000), ("500m", 500_000_000), ("2k", 2_000)])
def test_text_that_deepspeed_refuses_is_understood_and_said(text: str, value: int) -> None:
    result = read({"zero_optimization": {"stage": 2, "reduce_bucket_size": text}})
    assert result.deepspeed.zero.reduce_bucket_size == value
    assert f"write {value}" in said(result, "number-as-text")


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("True", True), (1, True), ("off", False), (0, False)])
def test_booleans_as_pydantic_accepts_them(word: object, value: bool) -> None:
    assert zero(stage=2, overlap_comm=word).overlap_comm is value


@pytest.mark.parametrize("key", ["max_live_parameters", "stage3_max_live_parameters"])
def test_both_spellings_of_stage_3_keys(key: str) -> None:
    assert zero(stage=3, **{key: 7}).max_live_parameters == 7


def test_auto_takes_transformers_values_for_the_hidden_size() -> None:
    autos = dict.fromkeys(
        ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"), "auto"
    )
    result = read({"zero_optimization": {"stage": 3, **autos}}, hidden=4096)
    section = result.deepspeed.zero
    assert section.reduce_bucket_size == 16_777_216  # 4096^2
    assert section.prefetch_bucket_size == 15_099_494  # int(0.9 x 4096^2)
    assert section.param_persistence_threshold == 40_960  # 10 x 4096
    assert "reduce_bucket_size = 16777216" in said(result, "auto-values")
    assert codes(result).count("auto-values") == 1


def test_auto_that_nobody_fills_in_is_the_default() -> None:
    result = read({"zero_optimization": {"stage": 3, "sub_group_size": "auto", "reduce_bucket_size": "auto"}})
    assert result.deepspeed.zero == Zero(stage=3, overlap_comm=True)
    assert "sub_group_size = 1000000000" in said(result, "auto-defaults")


def test_auto_of_other_keys() -> None:
    file = {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "gradient_clipping": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
    }  # fmt: skip
    result = read(file, micro_batch_size=2, gradient_accumulation_steps=4, precision="fp16")
    assert result.training_values == {
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "precision": "fp16",
    }
    assert result.deepspeed.gradient_clipping == 1.0


def test_deprecated_spellings_are_translated_and_said() -> None:
    result = read({"zero_optimization": {"stage": 2, "cpu_offload": True, "cpu_offload_use_pin_memory": True}})
    assert result.deepspeed.zero.offload_optimizer == Offload(device="cpu")
    assert "cpu_offload" in said(result, "deprecated-key")
    assert "not-modelled" not in codes(result)
    for flag, stage in ((True, 1), (False, 0)):
        legacy = read({"zero_optimization": flag})
        assert legacy.deepspeed.zero.stage == stage
        assert codes(legacy).count("deprecated-key") == 1


def test_the_old_name_of_bf16() -> None:
    result = read({"bfloat16": {"enabled": True, "check_grad_overflow": False}})
    assert result.training_values["precision"] == "bf16"
    assert result.deepspeed.check_grad_overflow is False
    assert "bfloat16" in said(result, "deprecated-key")


@pytest.mark.parametrize(
    ("file", "flag"),
    [
        ({"bf16": {"enabled": True}}, True),
        ({"bf16": {"enabled": True, "check_grad_overflow": False}}, False),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": False, "check_grad_overflow": False}}, True),
    ],
)
def test_overflow_is_checked_unless_bf16_says_no(file: dict[str, Any], flag: bool) -> None:
    assert read(file).deepspeed.check_grad_overflow is flag


@pytest.mark.parametrize(
    ("file", "world", "micro", "steps"),
    [
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, 8, 2, 4),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, 8, 2, 4),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, 8, 2, 4),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, 8, 2, 4),
        ({"train_batch_size": 64}, 8, 8, 1),
        ({"train_micro_batch_size_per_gpu": 3}, 8, 3, 1),
    ],
)
def test_batch_arithmetic(file: dict[str, Any], world: int, micro: int, steps: int) -> None:
    values = read(file, world_size=world).training_values
    assert (values["micro_batch_size"], values["gradient_accumulation_steps"]) == (micro, steps)


def test_training_fills_the_batch_of_the_file() -> None:
    values = read({"train_batch_size": 64}, micro_batch_size=4).training_values
    assert values["gradient_accumulation_steps"] == 2  # 64 // 4 // 8


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_any_two_of_three_batch_sizes_give_the_third(micro: int, steps: int, world: int) -> None:
    sizes = {
        "train_batch_size": micro * steps * world,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
    }
    for left_out in sizes:
        values = read({key: size for key, size in sizes.items() if key != left_out}, world_size=world).training_values
        assert (values["micro_batch_size"], values["gradient_accumulation_steps"]) == (micro, steps)


@pytest.mark.parametrize(
    ("section", "optimizer"),
    [
        ({"type": "AdamW"}, Optimizer("AdamW", 8, 28, True)),
        ({"type": "adam", "params": {"torch_adam": True}}, Optimizer("Adam", 8, 72, False, "torch", scratch_bytes=4)),
        ({"type": "Lion"}, Optimizer("Lion", 4, 20, True)),
        ({"type": "SGD", "params": {"momentum": 0.9}}, Optimizer("SGD", 4, 32, False, "torch")),
        ({"type": "SGD", "params": {"lr": 0.1}}, Optimizer("SGD", 0, 12, False, "torch")),
        ({"type": "Lamb"}, Optimizer("Lamb", 8, 40, True)),
    ],
)
def test_optimizers(section: dict[str, Any], optimizer: Optimizer) -> None:
    assert read({"optimizer": section}).deepspeed.optimizer == optimizer


def test_optimizers_with_mechanisms_that_are_not_simulated_are_told() -> None:
    assert "1-bit" in said(read({"optimizer": {"type": "OneBitAdam"}}), "not-modelled")
    assert "Muon" in said(read({"optimizer": {"type": "Muon"}}), "not-modelled")
    stopped = read({"optimizer": {"type": "SGD"}, "zero_optimization": {"stage": 2}})
    assert "untested-optimizer" in codes(stopped)


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ({"zero_optimization": {"stage": 2, "allgather_partitions": True}}, "zero_optimization.allgather_partitions"),
        ({"zero_optimization": {"stage": 1, "allgather_bucket_size": 2e8}}, "zero_optimization.allgather_bucket_size"),
        ({"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1}}, "zero_optimization.stage3_max_live"),
        ({"zero_optimization": {"stage": 0, "reduce_bucket_size": 1}}, "zero_optimization.reduce_bucket_size"),
        ({"zero_optimization": {"stage": 2, "load_from_fp32_weights": True}}, "load_from_fp32_weights"),
        ({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, "zero_optimization.offload_param"),
        ({"scheduler": {"type": "WarmupLR"}}, "scheduler"),
        ({"steps_per_print": 10}, "steps_per_print"),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, "activation_checkpointing.cpu_checkpointing"),
        ({"aio": {"thread_count": 1}}, "aio.thread_count"),
        ({"fp16": {"enabled": True, "loss_scale": 0}}, "fp16.loss_scale"),
    ],
)
def test_keys_that_change_nothing_are_told(file: dict[str, Any], key: str) -> None:
    assert key in said(read(file), "key-no-effect")


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"super_offload": True}}}, "SuperOffload"),
        ({"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}}, "ZenFlow"),
        ({"elasticity": {"enabled": True}}, "elastic"),
        ({"compression_training": {"x": 1}}, "compression"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor parallelism"),
    ],
)
def test_mechanisms_that_are_not_simulated_are_told(file: dict[str, Any], key: str) -> None:
    result = read(file)
    assert key in said(result, "not-modelled")
    assert all(f.severity == "warning" for f in result.findings if f.code == "not-modelled")


@pytest.mark.parametrize(
    "file",
    [
        {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 1, "zero_quantized_weights": False}},
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}},
        {"elasticity": {"enabled": False}, "sequence_parallel_size": 1},
    ],
)
def test_mechanisms_that_are_switched_off_are_no_news(file: dict[str, Any]) -> None:
    assert "not-modelled" not in codes(read(file))


def test_keys_on_the_wrong_level_are_told() -> None:
    result = read({"reduce_bucket_size": 1, "stage3_max_live_parameters": 1, "gradient_cliping": 1, "_comment": "x"})
    (first, second) = [finding for finding in result.findings if finding.code == "misplaced-key"]
    assert (first.remedy, second.remedy) == (
        "Move it to zero_optimization.reduce_bucket_size.",
        "Move it to zero_optimization.stage3_max_live_parameters.",
    )
    assert any(finding.remedy == "The nearest key is gradient_clipping." for finding in result.findings)


def test_a_file_that_only_hjson_reads() -> None:
    text = """{
      # a comment
      zero_optimization: {
        stage: 2  // no comma
        "reduce_bucket_size": 5e8,
      },
    }"""
    document, findings = read_text(text, "ds.json")
    assert document.data == {"zero_optimization": {"stage": 2, "reduce_bucket_size": 500_000_000}}
    assert [finding.code for finding in findings] == ["not-strict-json"]
    assert document.keys["zero_optimization", "reduce_bucket_size"] == (5, 9)
    assert document.positions["zero_optimization", "stage"] == (4, 16)


def test_a_root_without_braces_and_lists() -> None:
    document, _ = read_text("a: [1, {b: 2}]\n'c': text # not a comment: part of the word\n", "x")
    assert document.data["a"] == [1, {"b": 2}]
    assert document.keys["a", 1, "b"] == (1, 9)
    assert document.keys["c",] == (2, 1)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(min_size=1, max_size=6), _JSON, max_size=4), st.sampled_from([None, 1]))
def test_strict_json_reads_as_json(data: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(data, indent=indent)
    document, findings = read_text(text, "x")
    assert document.data == data
    assert not findings
    lines = text.split("\n")
    for path, (line, column) in document.keys.items():
        assert lines[line - 1][column - 1 :].startswith(json.dumps(path[-1]))


_ZEROS = st.builds(
    Zero,
    stage=st.integers(0, 3),
    overlap_comm=st.booleans(),
    overlap_comm_given=st.just(True),
    contiguous_gradients=st.booleans(),
    reduce_scatter=st.booleans(),
    reduce_bucket_size=st.integers(0, 10**10),
    allgather_bucket_size=st.integers(0, 10**9).map(lambda half: 2 * half),
    prefetch_bucket_size=st.integers(0, 10**10),
    param_persistence_threshold=st.integers(0, 10**10),
    max_live_parameters=st.integers(0, 10**10),
    round_robin_gradients=st.booleans(),
    offload_optimizer=st.builds(Offload, device=st.sampled_from(["none", "cpu"])),
)


@given(_ZEROS, st.sampled_from(["fp32", "fp16", "bf16"]), st.sampled_from(["AdamW", "Lion", "SGD"]))
def test_a_value_written_out_reads_back(section: Zero, precision: str, name: str) -> None:
    from zerosim.spec.optimizers import optimizer

    deepspeed = DeepSpeed(zero=section, optimizer=optimizer(name, momentum=True), synchronized_timer=False)
    mapping = as_mapping(deepspeed, precision)
    result = read(json.loads(json.dumps(mapping)))
    assert result.deepspeed == deepspeed
    assert result.training_values["precision"] == precision


@pytest.fixture
def corpus() -> Path:
    shared = os.environ.get("ZEROSIM_SHARED")
    if not shared:
        pytest.skip("ZEROSIM_SHARED is not set: no collection of public DeepSpeed files")
    return Path(shared) / "corpus"


def _effective(section: Zero) -> dict[str, Any]:
    values = asdict(section)
    for key in ("offload_optimizer", "offload_param"):
        values[key] = None if values[key]["device"] == "none" else values[key]
    return values


def _same(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Keys of which both know something and say different things. An offload to nowhere is none."""
    wrong = []
    for key, value in theirs.items():
        if isinstance(value, dict):
            value = None if value["device"] == "none" else value
        if isinstance(value, dict) and isinstance(ours.get(key), dict):
            wrong += [f"{key}.{name}" for name in value if name in ours[key] and ours[key][name] != value[name]]
        elif key in ours and ours[key] != value:
            wrong.append(key)
    return wrong


def test_public_files_mean_what_deepspeed_makes_of_them(corpus: Path) -> None:
    """Against what DeepSpeed 0.19.8's own classes computed of the zero section, `"auto"` as its defaults."""
    expected = json.loads((corpus / "ds_config_effective.json").read_text())["files"]
    accepted = rejected = understood = 0
    for name, truth in expected.items():
        try:
            document, _ = read_file(corpus / "ds_config" / name, name)
        except InputError:
            assert not truth["hjson"], name
            rejected += 1
            continue
        log = Log()
        section = read_zero(document, log, None)
        if truth["zero_accepted"]:
            assert not log.problems, name
            assert not _same(_effective(section), truth["effective_zero"]), name
            accepted += 1
        elif log.problems:
            rejected += 1
        else:
            assert any(finding.code == "number-as-text" for finding in log.findings), name
            understood += 1
    print(f"{accepted} accepted with equal values, {rejected} rejected, {understood} understood")
    assert accepted >= 50
    assert accepted + rejected + understood == len(expected)


def test_public_files_raise_nothing_but_input_errors(corpus: Path) -> None:
    expected = json.loads((corpus / "ds_config_effective.json").read_text())["files"]
    refused: dict[str, tuple[Problem, ...]] = {}
    for name, truth in expected.items():
        try:
            read_deepspeed(corpus / "ds_config" / name, Given(truth.get("implied_dp_world_size"), hidden=4096))
        except InputError as error:
            refused[name] = error.problems
    for name, problems in refused.items():
        template = all("placeholder" in str(problem) for problem in problems)
        assert template or not expected[name].get("whole_accepted_with_mbs1"), name
        assert all(problem.line for problem in problems), name
    print(f"{len(expected) - len(refused)} of {len(expected)} read as a whole")
    assert len(refused) <= 16


def test_recipes_that_switch_prefetch_off_are_told() -> None:
    section = {"stage": 3, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "sub_group_size": 0}
    assert {"no-prefetch", "sub-group-a-parameter"} <= set(codes(read({"zero_optimization": section})))
    assert not {"no-prefetch", "sub-group-a-parameter"} & set(codes(read({"zero_optimization": {"stage": 3}})))


@pytest.mark.parametrize(
    ("timer", "synchronized"),
    [({}, True), ({"enabled": False}, False), ({"synchronized": "no"}, False), ({"enabled": True}, True)],
)
def test_the_throughput_timer(timer: dict[str, Any], synchronized: bool) -> None:
    assert read({"timers": {"throughput": timer}}).deepspeed.synchronized_timer is synchronized


@pytest.mark.parametrize(("dtype", "short"), [("fp32", "fp32"), ("float32", "fp32"), ("bfloat16", "bf16")])
def test_accumulation_dtype(dtype: str, short: str) -> None:
    assert read({"data_types": {"grad_accum_dtype": dtype}}).deepspeed.grad_accum_dtype == short


@pytest.mark.parametrize(
    ("file", "said_by_training", "precision", "code"),
    [
        ({}, "bf16", "bf16", "precision-not-enabled"),
        ({"fp16": {"enabled": "auto"}}, None, "fp16", "auto-values"),
        ({"fp16": {"enabled": False}}, "fp32", "fp32", None),
        ({"bf16": {"enabled": "auto"}}, "fp32", "fp32", None),
        ({}, None, "fp32", "precision-assumed"),
    ],
)
def test_precision(file: dict[str, Any], said_by_training: Any, precision: str, code: str | None) -> None:
    result = read(file, precision=said_by_training)
    assert result.training_values["precision"] == precision
    spoken = {"precision-not-enabled", "auto-values", "precision-assumed"} & set(codes(result))
    assert spoken == ({code} if code else set())
