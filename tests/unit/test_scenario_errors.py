"""Wrong scenarios: each mistake with the file, line and column where it stands, or the change that made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerosim.errors import InputError
from zerosim.scenario import from_mapping, load

HEAD = """\
title: seven
topology: dgx-a100-80
model: llama-2-7b
training:
  sequence_length: 2048
  micro_batch_size: 2
  precision: bf16
strategy:
  deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: true}}
"""


def complaints(text: str, directory: Path, *changes: str) -> list[str]:
    file = directory / "scenario.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load(file, changes)
    return [str(problem).replace(f"{directory}/", "") for problem in caught.value.problems]


def complaint(text: str, directory: Path, *changes: str) -> str:
    (problem,) = complaints(text, directory, *changes)
    return problem


WRONG = {  # what is written instead of what, and what is said of it
    "misspelt key": (
        ("title: seven", "titel: seven"),
        'scenario.yaml:1:1: titel: found unknown key "titel"',
        "nearest title",
    ),
    "misspelt topology": (
        ("dgx-a100-80", "dgx-a100-8O"),
        'scenario.yaml:2:11: topology: found "dgx-a100-8O"; expected a topology: a name, a path or a mapping',
        "nearest dgx-a100-80",
    ),
    "missing topology file": (
        ("dgx-a100-80", "box.yaml"),
        'scenario.yaml:2:11: topology: found "box.yaml"; expected a file below',
        "",
    ),
    "misspelt model": (
        ("llama-2-7b", "lama-2-7b"),
        'scenario.yaml:3:8: model: found "lama-2-7b"; expected a model',
        "nearest llama-2-7b",
    ),
    "no sequence length": (
        ("  sequence_length: 2048\n", ""),
        "training.sequence_length: found nothing",
        "",
    ),
    "zero micro-batch": (
        ("micro_batch_size: 2", "micro_batch_size: 0"),
        "scenario.yaml:6:21: training.micro_batch_size: found 0",
        "",
    ),
    "half a token": (
        ("2048", "2048.5"),
        "scenario.yaml:5:20: training.sequence_length: found 2048.5",
        "whole number",
    ),
    "unknown precision": (
        ("precision: bf16", "precision: bf61"),
        'scenario.yaml:7:14: training.precision: found "bf61"',
        'nearest "bf16"',
    ),
    "misspelt training key": (
        ("micro_batch_size", "microbatch_size"),
        'scenario.yaml:6:3: training.microbatch_size: found unknown key "microbatch_size"',
        "nearest micro_batch_size",
    ),
    "unknown strategy": (
        ("deepspeed:", "deepsped:"),
        'scenario.yaml:9:3: strategy.deepsped: found unknown key "deepsped"',
        "nearest deepspeed",
    ),
    "keys of FSDP that are DeepSpeed's": (
        ("  deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: true}}", "  fsdp: {zero_optimization: {}}"),
        'scenario.yaml:9:10: strategy.fsdp.zero_optimization: found unknown key "zero_optimization"; expected a key of',
        "",
    ),
    "stage inside an inline DeepSpeed mapping": (
        ("stage: 2", "stage: 4"),
        "scenario.yaml:9:42: strategy.deepspeed.zero_optimization.stage: found 4; expected 0, 1, 2 or 3",
        "",
    ),
    "clash of precisions": (
        ("bf16: {enabled: true}", "fp16: {enabled: true}"),
        "scenario.yaml:9:62: strategy.deepspeed.fp16.enabled: found true; expected precision bf16, as "
        "training.precision says (",
        "scenario.yaml:7)",
    ),
    "clash of micro-batches": (
        ("{zero_opt", "{train_micro_batch_size_per_gpu: 4, zero_opt"),
        "scenario.yaml:9:47: strategy.deepspeed.train_micro_batch_size_per_gpu: found 4; expected 2, as "
        "training.micro_batch_size says (",
        "scenario.yaml:6)",
    ),
    "batch that does not multiply": (
        ("{zero_opt", "{train_batch_size: 20, zero_opt"),
        "scenario.yaml:9:33: strategy.deepspeed.train_batch_size: found 20; expected micro-batch * accumulation * "
        "world size = 2 * 1 * 8 = 16",
        "micro_batch_size 2, as training.micro_batch_size says",
    ),
    "more GPUs than nodes hold": (
        ("title: seven", "gpus: 16\nnodes: 1"),
        "scenario.yaml:1:7: gpus: found 16",
        "up to 8",
    ),
    "GPUs that do not spread evenly": (
        ("title: seven", "nodes: 2\ngpus: 5"),
        "scenario.yaml:2:7: gpus: found 5; expected a multiple of 2 (nodes)",
        "",
    ),
    "two strategies": (
        ("  deepspeed: {zero", "  ddp: {}\n  deepspeed: {zero"),
        "strategy: found ddp and deepspeed; expected exactly one of deepspeed, fsdp, ddp, hierarchical_zero1, pipeline",
        "",
    ),
    "missing DeepSpeed file": (
        ("{zero_optimization: {stage: 2}, bf16: {enabled: true}}", "ds.json"),
        'scenario.yaml:9:14: strategy.deepspeed: found "ds.json"; expected a file below',
        "",
    ),
    "ddp key": (
        ("deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: true}}", "ddp: {bucket_cap: 25}"),
        'scenario.yaml:9:9: strategy.ddp.bucket_cap: found unknown key "bucket_cap"',
        "nearest bucket_cap_mb",
    ),
    "ddp parameter dtype": (
        ("deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: true}}", "ddp: {parameter_dtype: fp16}"),
        "scenario.yaml:9:26: strategy.ddp.parameter_dtype: found fp16; expected fp32, or bf16",
        "",
    ),
    "ddp optimizer": (
        ("deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: true}}", "ddp: {optimizer: adamww}"),
        'scenario.yaml:9:20: strategy.ddp.optimizer: found "adamww"; expected an optimizer',
        "nearest AdamW",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(case: str, tmp_path: Path) -> None:
    (right, wrong), said, also = WRONG[case]
    assert right in HEAD
    problem = complaint(HEAD.replace(right, wrong, 1), tmp_path)
    assert said in problem
    assert also in problem


def test_a_sequence_beyond_learnt_positions(tmp_path: Path) -> None:
    problem = complaint(HEAD.replace("llama-2-7b", "gpt2"), tmp_path)
    assert problem == (
        "scenario.yaml:5:20: training.sequence_length: found 2048; expected at most 1024, the learnt positions of gpt2"
    )


def test_mistakes_of_all_files_at_once(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text("name: box\nnode:\n  gpus: {device: a100_sxm_80, count: 8}\n  pice: {}\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {\n  "stage": 7}}')
    (tmp_path / "config.json").write_text('{"model_type": "gpt2",\n "n_embd": "wide"}')
    text = (
        HEAD.replace("dgx-a100-80", "box.yaml")
        .replace("llama-2-7b", "config.json")
        .replace("{zero_optimization: {stage: 2}, bf16: {enabled: true}}", "ds.json")
        .replace("precision: bf16", "precison: bf16")
    )
    problems = complaints(text, tmp_path)
    places = [problem.split(": ")[0] for problem in problems]
    assert places[0] == "scenario.yaml:7:3"
    assert {"box.yaml:4:3", "ds.json:2:12"} <= set(places)
    assert any(place.startswith("config.json:") for place in places)


CHANGES = {
    "no equals sign": ("nodes", "--set nodes: found"),
    "no such part": ("trainning.precision=bf16", "--set trainning.precision=bf16: trainning: found"),
    "no such training key": ("training.micro_batch=4", "nearest micro_batch_size"),
    "no such zero key": ("strategy.deepspeed.zero_optimization.reduce_bucket=1", "nearest reduce_bucket_size"),
    "no such DeepSpeed key": ("strategy.deepspeed.zero_optimisation.stage=1", "nearest zero_optimization"),
    "zero key one level too high": ("strategy.deepspeed.overlap_comm=true", "nearest zero_optimization.overlap_comm"),
    "no such topology key": ("topology.node.nic.bandwidth=25 Gbps", "nearest nics"),
    "no such model key": ("model.layer=2", "nearest layers"),
    "wrong unit": ("topology.node.nics.bandwidth=25 GBs", "--set topology.node.nics.bandwidth=25 GBs: "),
    "wrong value": ("training.precision=int4", "--set training.precision=int4: training.precision: found"),
    "through a number": (
        "training.sequence_length.x=1",
        "--set training.sequence_length.x=1: training.seq",
    ),
    "clash with the file": ("strategy.deepspeed.train_micro_batch_size_per_gpu=8", "scenario.yaml:6"),
    "learnt positions": ("model=gpt2", "scenario.yaml:5:20: training.sequence_length"),
    "a key of a list": (
        "topology.node.nvme.count=4",
        'found "count"; expected an index below 1, as nvme is a list; nearest topology.node.nvme.0.count',
    ),
    "beyond the end of a list": ("topology.node.nvme.1.count=4", 'found "1"; expected an index below 1, as nvme is a'),
    "too few nodes": ("nodes=0", "--set nodes=0: nodes: found 0"),
    "broken YAML": ("training={", "--set training={"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_wrong_changes(case: str, tmp_path: Path) -> None:
    change, said = CHANGES[case]
    assert said in complaint(HEAD, tmp_path, change)


def test_a_change_is_named_where_its_value_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    text = HEAD.replace("{zero_optimization: {stage: 2}, bf16: {enabled: true}}", "ds.json")
    change = "strategy.deepspeed.zero_optimization.stage=9"
    assert complaint(text, tmp_path, change) == (
        f"--set {change}: zero_optimization.stage: found 9; expected 0, 1, 2 or 3"
    )


@pytest.mark.parametrize(("key", "line"), [("training", 4), ("strategy", 8)])
def test_text_instead_of_a_section(key: str, line: int, tmp_path: Path) -> None:
    head, _, rest = HEAD.partition(f"{key}:\n")
    rest = rest.partition("strategy:")[2] and f"strategy:{rest.partition('strategy:')[2]}"
    problem = complaint(f"{head}{key}: everything\n{rest}", tmp_path)
    assert f'scenario.yaml:{line}:{len(key) + 3}: {key}: found "everything"; expected a mapping' in problem


@pytest.mark.parametrize("data", [{}, {"topology": 3}, {"strategy": [], "training": None, "model": 1.5}])
def test_junk_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        from_mapping(data)
    assert len(caught.value.problems) >= 4 - len(data)


def test_a_missing_scenario(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(HEAD)
    with pytest.raises(InputError, match=r"no such file.*nearest .*scenario\.yaml"):
        load(tmp_path / "scenari.yaml")
