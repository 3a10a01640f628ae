"""What the playground keeps: the user's own files with the values of the knobs that were turned, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.asking import ROOT, SMALL
from zerosim.playground.downloads import deepspeed_json, scenario_yaml
from zerosim.playground.player import Player
from zerosim.playground.start import Start, begin, kept
from zerosim.playground.state import scenario_of
from zerosim.playground.turned import turned_text
from zerosim.scenario import from_mapping
from zerosim.simulation import simulate

OWN = """{
  "train_micro_batch_size_per_gpu": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
  "bf16": {"enabled": true},
  "steps_per_print": 10,
  "zero_optimization": {"stage": 3, "prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 100000}
}
"""
ZERO = "zero_optimization"


@pytest.fixture
def own(tmp_path: Path) -> Start:
    """A scenario that names a DeepSpeed file, written as people write them."""
    data = yaml.safe_load(SMALL) | {"nodes": 2, "strategy": {"deepspeed": "ds.json"}}
    (tmp_path / "ds.json").write_text(OWN)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(data))
    return begin(tmp_path / "own.yaml")


def files(start: Start, **knobs: Any) -> tuple[str, dict[str, Any]]:
    """The DeepSpeed JSON, and the scenario; this plays the same step as the page."""
    played = Player(start).play({**start.state, **knobs})
    text = yaml.safe_load(scenario_yaml(played, start))
    assert simulate(from_mapping(text)).makespan == played.summary.step_seconds
    return deepspeed_json(played, start).decode(), text


def test_knobs_that_nobody_turned_change_no_letter_of_the_users_file(own: Start) -> None:
    config, scenario = files(own)
    assert config == OWN
    assert scenario["strategy"]["deepspeed"] == json.loads(OWN)
    assert scenario["training"] == yaml.safe_load(SMALL)["training"]
    assert scenario.keys() == {"title", "topology", "nodes", "model", "training", "strategy"}


def test_a_knob_that_is_turned_changes_its_own_key_under_the_users_name(own: Start) -> None:
    config, scenario = files(own, prefetch_bucket="20M", micro_batch=2)
    wanted = OWN.replace('"auto"', "2").replace("5e7", "20000000")
    assert config == wanted
    assert scenario["strategy"]["deepspeed"]["optimizer"]["params"] == {"lr": 1e-4, "betas": [0.9, 0.95]}
    assert scenario["training"]["micro_batch_size"] == 2
    config, _ = files(own, strategy="zero2", reduce_bucket=1e6)
    data = json.loads(config)
    assert (data[ZERO]["stage"], data[ZERO]["reduce_bucket_size"]) == (2, 1_000_000)
    assert {**data, ZERO: {}} == {**json.loads(OWN), ZERO: {}}


def test_the_whole_batch_follows_its_factors(tmp_path: Path) -> None:
    given = {"bf16": {"enabled": True}, "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}
    data = yaml.safe_load(SMALL) | {"strategy": {"deepspeed": given}}
    del data["training"]["gradient_accumulation_steps"]
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(data))
    config, _ = files(begin(tmp_path / "own.yaml"), nodes=2)  # 2 sequences x 4 micro-steps x 16 GPUs
    assert json.loads(config) == {**given, "train_batch_size": 128}


def test_without_a_file_only_what_was_set_is_said() -> None:
    start = begin()
    config, scenario = files(start, accumulation=2)
    batch = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2}
    assert json.loads(config) == {**start.written.scenario["strategy"]["deepspeed"], **batch}
    assert scenario["training"] == {**start.written.scenario["training"], "gradient_accumulation_steps": 2}


@pytest.mark.parametrize(
    ("knobs", "strategy"),
    [
        ({"strategy": "ddp"}, {"ddp": {}}),
        ({"strategy": "ddp", "ddp_bucket": 50}, {"ddp": {"bucket_cap_mb": 50}}),
        ({"strategy": "pipeline", "stages": 2}, {"pipeline": {"stages": 2, "schedule": "1f1b"}}),
    ],
)
def test_another_strategy_says_what_was_turned(knobs: dict[str, Any], strategy: Any) -> None:
    start = begin(ROOT / "scenarios/seven-b/zero3.yaml")
    state = {**start.state, **knobs}
    assert turned_text(start, state, scenario_of(start, state))["strategy"] == strategy


def test_an_offload_that_is_turned_off_loses_nothing_else() -> None:
    start = begin(ROOT / "scenarios/seven-b/zero3-nvme.yaml")
    state = {**start.state, "offload_optimizer": "none", "offload_param": "none"}
    before, after = (each["strategy"]["deepspeed"] for each in
                     (start.written.scenario, turned_text(start, state, scenario_of(start, state))))  # fmt: skip
    assert after[ZERO]["offload_param"] == {**before[ZERO]["offload_param"], "device": "none"}
    assert {**after, ZERO: {}} == {**before, ZERO: {}}


def test_the_page_lists_what_changes_no_step_too(own: Start) -> None:
    said = kept(scenario_of(own, own.state).text, own.written.scenario)
    assert "strategy.deepspeed.optimizer.params.lr: 0.0001" in said
    assert "strategy.deepspeed.steps_per_print: 10" in said
    assert not any("train_micro_batch_size_per_gpu" in line for line in said)
    away = kept(scenario_of(own, {**own.state, "strategy": "ddp"}).text, own.written.scenario)
    assert not any("deepspeed" in line for line in away)
