"""FSDP from the command line: a scenario with accelerate's file run, changed, compared on the ladder, refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.asking import ROOT, ask

SCENARIO = str(ROOT / "scenarios" / "llama-2-7b-fsdp.yaml")
HYBRID = str(ROOT / "scenarios" / "llama-2-7b-hybrid-two-nodes-10g.yaml")
SMALL = ("--set", "model.layers=2", "--set", "training.sequence_length=128")


def test_the_file_of_accelerate_is_changed_by_its_own_keys() -> None:
    base = ask("run", SCENARIO, "--json", *SMALL).json
    kept = ask("run", SCENARIO, "--json", *SMALL, "--set", "strategy.fsdp.fsdp_sharding_strategy=SHARD_GRAD_OP").json
    gathers = [answer["collectives"]["all_gather"]["count"] for answer in (base, kept)]
    # 3 units: 4 micro-steps gather the root once and both blocks twice, or (unsharded until the reduction) all once
    assert gathers == [4 * (1 + 2 * 2), 3]


def test_hybrid_sharding_gathers_within_a_node() -> None:
    hybrid, full = (
        ask("run", HYBRID, "--json", *SMALL, *more).json
        for more in ((), ("--set", "strategy.fsdp.sharding_strategy=FULL_SHARD"))
    )
    assert hybrid["step_seconds"] < full["step_seconds"]
    assert "all_reduce" in hybrid["collectives"]


def test_a_ladder_from_fsdp_has_a_rung_of_it() -> None:
    rungs = ask("ladder", SCENARIO, "--json", *SMALL, "--with", SCENARIO, "--checkpointing", "given").json
    names = [rung["rung"] for rung in rungs if rung["rung"].startswith("FSDP")]
    assert names == ["FSDP FULL_SHARD", "FSDP FULL_SHARD offload"]


def test_tiers_tell_what_is_played_for_fsdp() -> None:
    told = ask("ladder", SCENARIO, "--tiers", "--json", *SMALL)
    assert told.err == (
        "The scenario's strategy, fsdp-full_shard, has no choice of tiers: played is DeepSpeed at stage 3 instead.\n"
    )
    assert ask("ladder", SCENARIO, "--tiers", *SMALL).out.startswith("The scenario's strategy, fsdp-full_shard, ")


@pytest.mark.parametrize("verb", ["ops", "run"])
def test_what_torch_refuses_when_it_runs_has_its_place(verb: str, tmp_path: Path) -> None:
    """FlatParameters of version 1 are trainable or frozen as a whole."""
    scenario = tmp_path / "mixed.yaml"
    scenario.write_text(
        "topology: dgx-a100-80\n"
        "model: {parameters: [{name: 0.weight, shape: [4, 4], trainable: false}, {name: 0.bias, shape: [4]}]}\n"
        "training: {sequence_length: 16}\n"
        "strategy: {fsdp: {use_orig_params: false}}\n"
    )
    told = ask(verb, str(scenario))
    assert told.code == 2
    assert told.err.startswith(f"{scenario}: strategy.fsdp.use_orig_params: found false; expected true where")


def test_checkpoints_of_fsdp_are_refused_in_one_line() -> None:
    told = ask("run", SCENARIO, "--save-cost", *SMALL)
    assert told.code == 2
    assert told.err == "--save-cost: found the strategy fsdp; expected ddp or deepspeed, the only ones it knows\n"


def test_the_list_of_strategies_names_fsdp() -> None:
    assert "fsdp, HYBRID_SHARD" in ask("list", "strategies").out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("shard_stratgy=1", "unknown key"),
        ("fsdp_config.fsdp_version=3", "expected 1 or 2"),
        ("mixed_precision=no", "expected bf16, as training.precision says"),
    ],
)
def test_wrong_changes(change: str, said: str, tmp_path: Path) -> None:
    told = ask("run", SCENARIO, "--set", "training.precision=bf16", "--set", f"strategy.fsdp.{change}")
    assert told.code == 2
    assert told.err.startswith(f"--set strategy.fsdp.{change}: ")
    assert said in told.err
    assert told.err.count("\n") == 1
