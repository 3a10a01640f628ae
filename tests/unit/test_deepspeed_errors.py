"""Wrong DeepSpeed files: each mistake with line, column, what was found and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosim.errors import InputError, Problem
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_text import read_text
from zerosim.spec.loading import inline


def complaints(text: str, directory: Path, **known: Any) -> list[str]:
    file = directory / "ds_config.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_deepspeed(file, Given(**({"world_size": 8} | known)))
    return [str(problem).removeprefix(f"{directory}/") for problem in caught.value.problems]


WRONG = {
    "stage 4": (
        '{"zero_optimization": {"stage": 4}}',
        "ds_config.json:1:33: zero_optimization.stage: found 4; expected 0, 1, 2 or 3",
    ),
    "misspelt key": (
        '{"zero_optimization": {\n  "stage": 2,\n  "reduce_buket_size": 5e8}}',
        'ds_config.json:3:3: zero_optimization.reduce_buket_size: found unknown key "reduce_buket_size"; '
        "expected a key of zero_optimization; nearest reduce_bucket_size",
    ),
    "fraction": (
        '{"zero_optimization": {\n  "reduce_bucket_size": 15099494.4}}',
        "ds_config.json:2:25: zero_optimization.reduce_bucket_size: found 15099494.4; expected an integer, 0 or more",
    ),
    "negative": (
        '{"zero_optimization": {"sub_group_size": -1}}',
        "ds_config.json:1:42: zero_optimization.sub_group_size: found -1; expected an integer, 0 or more",
    ),
    "beyond 64 bits": (
        '{"zero_optimization": {"sub_group_size": 1e30}}',
        "ds_config.json:1:42: zero_optimization.sub_group_size: found 1e+30; expected an integer, 0 or more",
    ),
    "unit of bytes": (
        '{"zero_optimization": {"reduce_bucket_size": "500MB"}}',
        'ds_config.json:1:46: zero_optimization.reduce_bucket_size: found "500MB"; expected an integer, 0 or more',
    ),
    "device in capitals": (
        '{"zero_optimization": {"offload_optimizer": {"device": "CPU"}}}',
        'ds_config.json:1:56: zero_optimization.offload_optimizer.device: found "CPU"; expected none, cpu or nvme; '
        "nearest cpu",
    ),
    "key of the other offload": (
        '{"zero_optimization": {"offload_optimizer": {"max_in_cpu": 1e9}}}',
        'ds_config.json:1:46: zero_optimization.offload_optimizer.max_in_cpu: found unknown key "max_in_cpu"; '
        "expected a key of offload_optimizer; max_in_cpu stands in offload_param",
    ),
    "aio inside": (
        '{"zero_optimization": {"aio": {}}}',
        'ds_config.json:1:24: zero_optimization.aio: found unknown key "aio"; expected a key of '
        "zero_optimization; aio stands at the top level",
    ),
    "two spellings": (
        '{"zero_optimization": {"stage3_max_live_parameters": 1, "max_live_parameters": 1}}',
        "ds_config.json:1:57: zero_optimization.max_live_parameters: found max_live_parameters beside "
        "stage3_max_live_parameters, which is the same key; expected one of the two",
    ),
    "deprecated beside its replacement": (
        '{"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "cpu"}}}',
        "ds_config.json:1:24: zero_optimization.cpu_offload: found the deprecated cpu_offload beside "
        "offload_optimizer; expected offload_optimizer only",
    ),
    "both precisions": (
        '{"bf16": {"enabled": true},\n "fp16": {"enabled": true}}',
        "ds_config.json:2:22: fp16.enabled: found true beside bf16.enabled: true; expected one of the two",
    ),
    "loss scale of bf16": (
        '{"bf16": {"enabled": true, "loss_scale": 0}}',
        'ds_config.json:1:28: bf16.loss_scale: found unknown key "loss_scale"; expected a key of bf16',
    ),
    "no such dtype": (
        '{"communication_data_type": "fp64"}',
        'ds_config.json:1:29: communication_data_type: found "fp64"; expected fp16, bf16 or fp32; nearest fp16',
    ),
    "max_grad_norm": (
        '{"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1}}}',
        "ds_config.json:1:44: optimizer.params.max_grad_norm: found max_grad_norm; expected no max_grad_norm among "
        "the optimizer's params; write gradient_clipping at the top level",
    ),
    "placeholder of a template": (
        '{\n"zero_optimization": {\n"stage": ZERO_STAGE,\n}\n}',
        'ds_config.json:3:10: zero_optimization.stage: found "ZERO_STAGE,"; expected 0, 1, 2 or 3; this is a '
        "placeholder of a template, not filled in",
    ),
    "key twice": (
        '{"bf16": {"enabled": true},\n  "bf16": {"enabled": false}}',
        'ds_config.json:2:3: bf16: found the key "bf16" again; expected each key once',
    ),
    "batch that does not multiply": (
        '{"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4}',
        "ds_config.json:1:22: train_batch_size: found 10; expected micro-batch * accumulation * world size = "
        "4 * 0 * 8 = 0",
    ),
    "partial offload": (
        '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.3}}}',
        "ds_config.json:1:84: zero_optimization.offload_optimizer.ratio: found 0.3 on stage 2; expected 1, or stage 3",
    ),
    "pre-scaling with reduce_scatter": (
        '{"zero_optimization": {"stage": 2}, "prescale_gradients": true}',
        "ds_config.json:1:59: prescale_gradients: found true; expected false on stage 2 with reduce_scatter",
    ),
    "not a mapping": ("[1, 2]", "ds_config.json: found a list; expected a mapping of DeepSpeed's keys"),
    "unknown optimizer": (
        '{"optimizer": {"type": "AdmaW"}}',
        'ds_config.json:1:24: optimizer.type: found "AdmaW"; expected an optimizer: Adam, AdamW, MuAdam, MuAdamW, '
        "Lamb, Lion, Adagrad, SGD, MuSGD, Muon, OneBitAdam, ZeroOneAdam, OneBitLamb; nearest AdamW",
    ),
    "zero of null": (
        '{"zero_optimization": null}',
        "ds_config.json:1:23: zero_optimization: found null; expected a mapping such as {stage: 2}",
    ),
    "open string": (
        '{"bf16": "',
        "ds_config.json:1:10: found a syntax error (unterminated string); expected hjson or JSON",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(case: str, tmp_path: Path) -> None:
    text, expected = WRONG[case]
    assert complaints(text, tmp_path) == [expected]


def test_deepspeeds_own_example_of_a_wrong_batch(tmp_path: Path) -> None:
    (problem,) = complaints('{"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4}', tmp_path, world_size=1)
    assert "found 10" in problem
    assert "4 * 2 * 1 = 8" in problem


def test_all_mistakes_at_once_in_reading_order(tmp_path: Path) -> None:
    text = """{
  "bf16": {"enabled": "maybe"},
  "zero_optimization": {
    "stage": 5,
    "overlap_com": true,
    "offload_param": {"device": "disk"}
  },
  "gradient_clipping": "one"
}"""
    problems = complaints(text, tmp_path)
    places = [problem.split(": ")[0].removeprefix("ds_config.json:") for problem in problems]
    assert places == ["2:23", "4:14", "5:5", "6:33", "8:24"]


def test_a_clash_with_training_shows_both_values_and_places(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": 4,\n "fp16": {"enabled": true}}'
    places = {"micro_batch_size": "scenario.yaml:7", "precision": "scenario.yaml:9"}
    assert complaints(text, tmp_path, micro_batch_size=2, precision="bf16", places=places) == [
        "ds_config.json:1:36: train_micro_batch_size_per_gpu: found 4; expected 2, as training.micro_batch_size says "
        "(scenario.yaml:7)",
        "ds_config.json:2:22: fp16.enabled: found true; expected precision bf16, as training.precision says "
        "(scenario.yaml:9)",
    ]


def test_bf16_switched_off_clashes_with_training_bf16(tmp_path: Path) -> None:
    (problem,) = complaints('{"bf16": {"enabled": false}}', tmp_path, precision="bf16")
    assert (
        problem == "ds_config.json:1:22: bf16.enabled: found false; expected precision bf16, as training.precision says"
    )


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_deepspeed(tmp_path / "nowhere.json")


_JUNK: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("auto"),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4) | st.just("enabled"), inner, max_size=2)
    ),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    ["zero_optimization", "bf16", "fp16", "optimizer", "aio", "timers", "data_types", "train_batch_size", "elasticity",
     "activation_checkpointing", "gradient_clipping", "scheduler", "bfloat16", "communication_data_type", "other"]
)  # fmt: skip
_ZERO_KEYS = st.sampled_from(
    ["stage", "overlap_comm", "offload_param", "offload_optimizer", "cpu_offload", "reduce_bucket_size", "leaf_module",
     "stage3_prefetch_bucket_size", "prefetch_bucket_size", "mics_shard_size", "legacy_stage1", "zenflow", "other"]
)  # fmt: skip
_FILES = st.dictionaries(_KEYS, _JUNK | st.dictionaries(_ZERO_KEYS, _JUNK, max_size=3), max_size=4)


def problems_of(read: Callable[[], object]) -> tuple[Problem, ...] | None:
    """The problems of what is refused, None for what is read; any other exception comes through."""
    try:
        read()
    except InputError as error:
        return error.problems
    return None


@given(_FILES)
def test_whatever_is_written_only_input_errors_come(data: dict[str, Any]) -> None:
    assert problems_of(lambda: read_deepspeed(inline(data, "x"), Given(4, hidden=64))) != ()


@given(st.text(alphabet="{}[]:,\"'#/* \nabz019e.-\\", max_size=40))
def test_whatever_text_only_input_errors_come(text: str) -> None:
    assert problems_of(lambda: read_text(text, "x")) != ()


@given(st.sampled_from(sorted(WRONG)), st.integers(0, 200))
def test_a_file_cut_anywhere_is_read_or_refused(case: str, length: int) -> None:
    assert problems_of(lambda: read_text(WRONG[case][0][:length], "x")) != ()
