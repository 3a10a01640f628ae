"""`zerosim tune` as a user meets it: text, JSON, the file that it writes, and what wrong words do."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.asking import ROOT, SMALL, ask
from zerosim import load, simulate
from zerosim.spec.places import CHECKPOINTING
from zerosim.studies.tuning.knobs import BATCH, OWNERS

SCENARIOS = ROOT / "scenarios"
XL = SCENARIOS / "gpt2-xl-zero2-4090.yaml"
ONE = ("--processes", "1")
KEYS = {"baseline_seconds", "best_seconds", "best", "evaluated", "pruned", "history", "config"}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def shape(text: str) -> str:
    """Times, rates and shares as #, so that a better price of an op is no other text; blanks that align as one."""
    return re.sub(r" +", " ", re.sub(r"[-+]?\d[\d.]*(?:e\+\d+)? ?(?:[mu]?s|%|GB)(?!\w)|\b\d[\d.]*k\b", "#", text))


GOLDEN = {
    "gpt2-large-ddp-4090.yaml --knob bucket_cap_mb=5,100 --knob activation_checkpointing": """\
GPT-2 large on four RTX 4090, DDP

 step tokens/s
baseline # # does not fit (gpu)
best # # # GPU peak #

change from to with the old value, others as in the best
activation_checkpointing none full does not fit, or is refused
bucket_cap_mb 25 100 # (#)

Step against each knob around the best, the others fixed ([best]; - does not fit, or is refused):
knob moves it by value: step
activation_checkpointing - none: - [full: #]
bucket_cap_mb # 5: # 25: # [100: #]

All 6 points of the grid: 4 played, 2 too large for a tier. The best is exact.
""",
    "slow-network/zero3.yaml --knob reduce_bucket_size=2e8 --knob overlap_comm": """\
Llama-2-13B on four nodes with 100 Gb/s each, ZeRO-3

 step tokens/s
baseline # #
best # # # GPU peak #

change from to with the old value, others as in the best
reduce_bucket_size 10M 200M # (#)

Step against each knob around the best, the others fixed ([best]; - does not fit, or is refused):
knob moves it by value: step
reduce_bucket_size # 10M: # [200M: #]
overlap_comm flat (< #) false: # [true: #]

All 4 points of the grid: 3 played, 1 cannot win (their least time is no better). The best is exact.
Flat, so that any of the values that fit will do: overlap_comm.
""",
    "llama-2-7b-hybrid-two-nodes-10g.yaml --knob sharding_strategy --knob cpu_offload": """\
Llama-2-7B on two nodes with 10 Gb/s, FSDP HYBRID_SHARD

 step tokens/s
baseline # #
best # # GPU peak #

Nothing is better than the scenario as it is.

Step against each knob around the best, the others fixed ([best]; - does not fit, or is refused):
knob moves it by value: step
cpu_offload # [false: #] true: #
sharding_strategy # FULL_SHARD: # SHARD_GRAD_OP: #
 [HYBRID_SHARD: #] _HYBRID_SHARD_ZERO2: #

All 8 points of the grid: 5 played, 3 cannot win (their least time is no better). The best is exact.
""",
}


@pytest.mark.parametrize("words", GOLDEN)
def test_scenarios_that_ship_are_tuned(words: str) -> None:
    name, *options = words.split()
    assert shape(ask("tune", SCENARIOS / name, *options, *ONE).out) == GOLDEN[words]


def test_the_answer_says_what_to_turn_and_how_sure_that_is(small: Path) -> None:
    answer = ask("tune", small, "--knob", "reduce_bucket_size=2e5,2e6", "--knob", "overlap_comm", *ONE)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "small"
    assert lines[2].split() == ["step", "tokens/s"]
    assert [line.split()[0] for line in lines[3:5]] == ["baseline", "best"]
    assert "Step against each knob around the best, the others fixed" in answer.out
    assert re.search(r"All 6 points of the grid: \d+ played, .*The best is exact\.", " ".join(answer.out.split()))


def test_json_has_the_keys_of_the_contract(small: Path) -> None:
    told = ask("tune", small, "--knob", "reduce_bucket_size=2e5,2e6", "--json", *ONE).json
    assert told.keys() >= KEYS
    assert isinstance(told["history"], list)
    assert told["evaluated"] + told["pruned"] + told["alike"] + told["too_large"] + told["refused"] == told["points"]
    assert told["best_seconds"] <= told["baseline_seconds"]
    assert told["baseline_seconds"] == simulate(load(small)).makespan
    assert told["config"]["zero_optimization"]["reduce_bucket_size"] == told["best"]["reduce_bucket_size"]


def test_the_deepspeed_file_differs_in_what_was_tuned_alone_and_gives_the_step(tmp_path: Path) -> None:
    out = tmp_path / "best.json"
    knobs = ("--knob", "reduce_bucket_size=3.2e7", "--knob", "micro_batch_size=4", "--out", out)
    told = ask("tune", XL, "--set", "model={layers: 4, hidden: 512, heads: 8, vocab: 5000}", *knobs, *ONE)
    assert told.code == 0
    before = (SCENARIOS / "ds" / "zero2-fp16.json").read_text().splitlines()
    after = out.read_text().splitlines()
    assert len(before) == len(after)
    differing = {line.split(":")[0].strip() for line, other in zip(after, before, strict=True) if line != other}
    assert differing <= {'"reduce_bucket_size"', '"train_micro_batch_size_per_gpu"', '"gradient_accumulation_steps"'}
    assert differing
    written = json.loads(out.read_text())
    assert (
        written["train_batch_size"]
        == 4 * written["train_micro_batch_size_per_gpu"] * (written["gradient_accumulation_steps"])
    )
    assert_the_command_plays_the_best(told.out)


def printed_command(out: str) -> list[str]:
    """The words of the command that is to be copied, as a shell reads them."""
    (command,) = re.findall(r"^  zerosim (.*)$", out, re.MULTILINE)
    return shlex.split(command)


def assert_the_command_plays_the_best(out: str) -> None:
    again = ask(*printed_command(out), "--json").json
    (best,) = re.findall(r"^best +(\S+) (\S+)", out, re.MULTILINE)
    assert float(best[0]) == pytest.approx(again["step_seconds"] * {"s": 1, "ms": 1e3}[best[1]], rel=1e-3)


def test_the_printed_command_has_the_changes_that_the_user_made(tmp_path: Path) -> None:
    """Those of DeepSpeed's keys are in the file; what is tuned beside it replaces the user's."""
    own = ("model={layers: 4, hidden: 512, heads: 8, vocab: 5000}", "topology.node.pcie.bandwidth=15 GB/s",
           "training.sequence_length=512")  # fmt: skip
    replaced = ("strategy.deepspeed.zero_optimization.reduce_bucket_size=4e6", "training.activation_checkpointing=full")
    changes = [word for each in (*own, *replaced) for word in ("--set", each)]
    knobs = ("--knob", "stage=1,2", "--knob", "micro_batch_size=4", "--knob", "activation_checkpointing=none")
    out = tmp_path / "best.json"
    told = ask("tune", XL, *changes, *knobs, "--out", out, *ONE)
    assert_the_command_plays_the_best(told.out)
    written = f"strategy.deepspeed={os.path.relpath(out, SCENARIOS)}"
    assert printed_command(told.out)[3::2] == [*own, written, "training.activation_checkpointing=none"]


def test_auto_stays_unless_it_is_tuned(tmp_path: Path) -> None:
    out = tmp_path / "best.json"
    scenario = SCENARIOS / "llama-2-13b-zero3-hf-auto.yaml"
    shape = "model={layers: 2, hidden: 1024, heads: 8, vocab: 1000}"
    told = ask("tune", scenario, "--set", shape, "--knob", "reduce_bucket_size=1e5", "--out", out, *ONE)
    assert told.code == 0
    written, before = json.loads(out.read_text()), json.loads((SCENARIOS / "ds" / "zero3-hf-auto.json").read_text())
    tuned = written["zero_optimization"].pop("reduce_bucket_size")
    assert tuned in ("auto", 100_000)
    assert before["zero_optimization"].pop("reduce_bucket_size") == "auto"
    assert written == before


def test_a_configuration_in_the_scenario_becomes_a_file_that_deepspeed_takes(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "ds_config.json"
    told = ask("tune", small, "--knob", "reduce_bucket_size=2e5", "--out", out, *ONE)
    assert "DeepSpeed configuration written to" in told.err
    written = json.loads(out.read_text())
    assert (written["train_micro_batch_size_per_gpu"], written["gradient_accumulation_steps"]) == (1, 2)
    scenario = load(small, [f"strategy.deepspeed={out}"])
    assert simulate(scenario).makespan <= simulate(load(small)).makespan
    assert not (tmp_path / "ds_config.json.journal.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "knob", "shape"),
    [
        ("gpt2-large-ddp-4090.yaml", "bucket_cap_mb=1,100", "model={layers: 4, hidden: 512, heads: 8, vocab: 5000}"),
        ("llama-2-7b-fsdp.yaml", "backward_prefetch", "model.layers=2"),
        ("llama-2-70b-hsdp.yaml", "reshard_after_forward", "model.layers=2"),
        ("seven-b/pipeline-naive.yaml", "schedule", "model={layers: 8, hidden: 256, heads: 4, vocab: 1000}"),
    ],
)
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_other_strategies_become_a_scenario(tmp_path: Path, name: str, knob: str, shape: str, suffix: str) -> None:
    out = tmp_path / f"best{suffix}"
    told = ask("tune", SCENARIOS / name, "--set", shape, "--knob", knob, "--out", out, *ONE)
    assert told.code == 0
    assert f"scenario written to {out}" in told.err
    (best,) = re.findall(r"^best +(\S+) (\S+)", told.out, re.MULTILINE)
    seconds = simulate(load(out)).makespan
    assert float(best[0]) == pytest.approx(seconds * {"s": 1, "ms": 1e3}[best[1]], rel=1e-3)


def test_a_scenario_is_written_for_deepspeed_too(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "best.yaml"
    ask("tune", small, "--knob", "reduce_bucket_size=2e5,2e6", "--out", out, *ONE)
    assert yaml.safe_load(out.read_text())["strategy"].keys() == {"deepspeed"}
    assert simulate(load(out)).makespan <= simulate(load(small)).makespan


def test_a_front_is_shown(small: Path) -> None:
    knobs = ("--knob", "activation_checkpointing", "--knob", "micro_batch_size", "--pareto")
    answer = ask("tune", small, *knobs, *ONE)
    assert "No point is both faster and smaller than one of these" in answer.out
    front = ask("tune", small, *knobs, "--json", *ONE).json["pareto"]
    seconds, sizes = ([each[key] for each in front] for key in ("seconds", "gpu_peak_bytes"))
    assert seconds == sorted(seconds)
    assert sizes == sorted(sizes, reverse=True)


WRONG: list[tuple[list[Any], str]] = [
    (["--knob", "buckets"], '--knob: found "buckets"; expected a knob of this strategy: micro_batch_size, '),
    (["--knob", "=3"], '--knob: found "=3"; expected NAME or NAME=V,V, such as reduce_bucket_size=2e8,5e8'),
    (["--knob", "stage", "--knob", "stage=1"], '--knob: found "stage" again; expected NAME or NAME=V,V'),
    (["--out", "best.txt"], '--out: found "best.txt"; expected a name that ends in .json, .yaml, .yml'),
    (["--out", "."], '--out: found "", a folder; expected the name of a file'),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_wrong_words_are_told_before_anything_is_played(small: Path, words: list[str], said: str) -> None:
    (line,) = ask("tune", small, *words, *ONE).refused()
    assert line.startswith(said)


def test_help_names_every_knob() -> None:
    text = ask("tune", "--help").out
    assert {name for name in (BATCH, CHECKPOINTING, *OWNERS) if not re.search(rf"\b{name}\b", text)} == set()
    assert max(map(len, text.splitlines())) <= 100


def test_a_scenario_that_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SMALL.replace("stage: 2", "stage: 7"))
    assert "stage: found 7" in ask("tune", path, *ONE).refused()[0]
