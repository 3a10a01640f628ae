"""`zerosim doctor` as a user meets it: scenarios that ship, what it advises, and that its advice can be typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.asking import ROOT, SMALL, ask

KEYS = {"code", "severity", "symptom", "cause", "remedy", "changes", "before", "after", "gain", "tried"}
ADVICE = {  # scenarios that ship: the first trouble, and what helps
    "gpt2-large-ddp-4090.yaml": ("activations-not-sharded", ["training.activation_checkpointing=full"]),
    "seven-b/zero2-offload.yaml": (
        "offload-collapses",
        ["strategy.deepspeed.zero_optimization.offload_optimizer.device=none"],
    ),
    "seven-b/pipeline-naive.yaml": ("pipeline-bubble", ["strategy.pipeline.schedule=1f1b"]),
}


@pytest.mark.parametrize("name", ADVICE)
def test_advice_on_scenarios_that_ship(name: str) -> None:
    path = ROOT / "scenarios" / name
    shorter = ("--set", "training.gradient_accumulation_steps=4") if "pipeline" in name else ()
    first, *_ = rows = ask("doctor", path, "--json", *shorter).json
    assert all(row.keys() >= KEYS for row in rows)
    assert (first["code"], first["changes"]) == ADVICE[name]
    changes = [word for change in first["changes"] for word in ("--set", change)]
    again = ask("run", path, "--json", *shorter, *changes).json
    assert again["step_seconds"] == first["after"]["step_seconds"]
    assert again["fits"] == first["after"]["fits"]


def test_a_batch_of_the_deepspeed_file_is_changed_there_too() -> None:
    path = ROOT / "scenarios/gpt2-xl-zero2-4090.yaml"
    answer = ask("doctor", path, "--set", "model=gpt2", "--set", "model.layers=3", "--json")
    row = next(row for row in answer.json if row["code"] == "reduces-every-micro-step")
    batches = [each for each in row["tried"] if each["what"].startswith("micro-batch 4")]
    assert [each["refused"] for each in batches] == [""]
    assert "strategy.deepspeed.train_micro_batch_size_per_gpu=4" in batches[0]["changes"]


def test_blocks_of_text(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    answer = ask("doctor", tmp_path / "small.yaml")
    assert answer.code == 0
    assert answer.err == ""
    lines = answer.out.splitlines()
    assert lines[0].startswith("small: ")
    assert all(len(line) <= 100 for line in lines if not line.lstrip().startswith("--set"))
    assert "looked at" in answer.out


def test_nothing_found_on_a_scenario_that_ships() -> None:
    answer = ask("doctor", ROOT / "scenarios/seven-b/zero1.yaml", "--set", "training.gradient_accumulation_steps=2")
    assert answer.out.startswith("7B on one DGX A100, ZeRO-1: nothing found\n\nlooked at:\n  GPU memory    44.23 GB of")
    assert "  uneven ranks  all ranks are equally fast\n" in answer.out


def test_wrong_input_ends_with_2() -> None:
    ask("doctor", "no-such-file.yaml").refused()
    ask("doctor", ROOT / "scenarios/seven-b/zero3.yaml", "--set", "training.micro_batch=2").refused()
