"""How processes are started: threads of a rank, the `launch` section of a scenario, its defaults and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosim.errors import InputError
from zerosim.scenario import Scenario, from_mapping, load
from zerosim.spec.launch import Launch, usual_launch
from zerosim.spec.strategy import Ddp, DeepSpeed, Offload, Zero

OFFLOADED = {
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "optimizer": {"type": "AdamW"},
    "bf16": {"enabled": True},
}


def scenario(strategy: Any = None, changes: tuple[str, ...] = (), **more: Any) -> Scenario:
    question = {
        "title": "t",
        "topology": "dgx-a100-80",
        "model": "gpt2",
        "training": {"sequence_length": 1024, "micro_batch_size": 1},
        "strategy": {"deepspeed": OFFLOADED} if strategy is None else strategy,
        **more,
    }
    return from_mapping(question, changes=changes)


def assumed(asked: Scenario) -> list[str]:
    return [text for text in asked.assumptions if "launch" in text]


@pytest.mark.parametrize(
    ("launch", "threads"),
    [
        (Launch(), 128),  # OpenMP's own default: a thread for each core of the node
        (Launch(bind_cores_to_rank=True), 16),  # 128 cores for 8 ranks
        (Launch(omp_num_threads=4), 4),
        (Launch(bind_cores_to_rank=True, omp_num_threads=4), 16),  # the launcher sets the variable
        (Launch("torchrun"), 1),
        (Launch("torchrun", omp_num_threads=12), 12),
    ],
)
def test_threads_of_a_rank(launch: Launch, threads: int) -> None:
    assert launch.threads(cores=128, ranks=8) == threads


def test_torchrun_leaves_a_single_process_alone() -> None:
    assert Launch("torchrun").threads(cores=128, ranks=1) == 128
    assert Launch(bind_cores_to_rank=True).threads(cores=4, ranks=8) == 1


def test_nobody_says_how_it_is_launched() -> None:
    asked = scenario()
    assert asked.launch == Launch("deepspeed")
    assert "launch" not in asked.text
    (said,) = assumed(asked)
    assert said == (
        "Not given in launch, so taken: launcher deepspeed, bind_cores_to_rank false, omp_num_threads unset."
    )
    assert scenario({"ddp": {}}).launch == Launch("torchrun")
    assert assumed(scenario({"ddp": {}})) == []


def test_what_is_said_is_not_assumed() -> None:
    (said,) = assumed(scenario(launch={"bind_cores_to_rank": True}))
    assert said == "Not given in launch, so taken: launcher deepspeed."
    every = {"launcher": "torchrun", "bind_cores_to_rank": False, "omp_num_threads": 8}
    assert assumed(scenario(launch=every)) == []
    assert scenario(launch=every).launch == Launch("torchrun", False, 8)
    assert assumed(scenario(launch=None)) == assumed(scenario(launch={})) == assumed(scenario())


def test_a_launch_without_work_for_the_cpu_is_told() -> None:
    strategies: tuple[dict[str, Any], ...] = ({"ddp": {}}, {"deepspeed": {"zero_optimization": {"stage": 2}}})
    for strategy in strategies:
        (said,) = [
            text for text in scenario(strategy, launch={"omp_num_threads": 4}).findings if "launch" in text.message
        ]
        assert said.code == "key-no-effect"
        assert said.message.startswith("launch (omp_num_threads) changes nothing in a step: ")
    both = scenario(launch={"bind_cores_to_rank": True, "omp_num_threads": 4})
    assert any(text.message.startswith("launch.omp_num_threads changes nothing") for text in both.findings)
    assert not [text for text in scenario(launch={"omp_num_threads": 4}).findings if "launch" in text.message]


def test_a_change_of_the_launch() -> None:
    assert scenario(changes=("launch.bind_cores_to_rank=true",)).launch == Launch(bind_cores_to_rank=True)
    asked = scenario(changes=("launch.omp_num_threads=16", "launch.launcher=torchrun"))
    assert asked.launch == Launch("torchrun", omp_num_threads=16)


@given(st.builds(Launch, st.sampled_from(["deepspeed", "torchrun"]), st.booleans(), st.none() | st.integers(1, 256)))
def test_a_launch_reads_back_from_text(launch: Launch) -> None:
    if launch.launcher == "torchrun" and launch.bind_cores_to_rank:
        with pytest.raises(InputError, match="torchrun binds no cores"):
            BASE.replace(launch={"launcher": "torchrun", "bind_cores_to_rank": True})
        return
    other = BASE.replace(launch=launch)
    assert other.launch == launch
    assert from_mapping(other.text).launch == launch


BASE = scenario()


def test_replace_takes_a_value_or_the_fields_that_change() -> None:
    threads = BASE.replace(launch={"omp_num_threads": 8})
    assert threads.launch == Launch(omp_num_threads=8)
    bound = threads.replace(launch={"omp_num_threads": None, "bind_cores_to_rank": True})
    assert bound.launch == BASE.replace(launch=Launch(bind_cores_to_rank=True)).launch
    assert bound.text["launch"] == {"launcher": "deepspeed", "bind_cores_to_rank": True}
    assert "launch" not in BASE.replace(gpus=4).text
    with pytest.raises(InputError, match="nearest launcher"):
        BASE.replace(launch={"luncher": "torchrun"})


def test_another_strategy_is_started_in_its_own_way_unless_somebody_said_how() -> None:
    offloaded = DeepSpeed(zero=Zero(stage=2, offload_optimizer=Offload(device="cpu")))
    assert BASE.replace(strategy=Ddp()).launch == usual_launch(Ddp()) == Launch("torchrun")
    assert scenario({"ddp": {}}).replace(strategy=offloaded).launch == Launch("deepspeed")
    said = scenario({"ddp": {}}, launch={"launcher": "torchrun"})
    assert said.replace(strategy=offloaded).launch == Launch("torchrun")
    assert said.replace(strategy=offloaded, launch=Launch()).launch == Launch("deepspeed")


TEXT = """\
title: small
topology: dgx-a100-80
model: gpt2
training: {sequence_length: 1024}
strategy:
  deepspeed: {zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}, bf16: {enabled: true}}
launch:
  launcher: deepspeed
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "launcher: deepspeed",
            "luncher: deepspeed",
            '8:3: launch.luncher: found unknown key "luncher"; expected one of',
        ),
        (
            "launcher: deepspeed",
            "launcher: depspeed",
            '8:13: launch.launcher: found "depspeed"; expected "deepspeed" or',
        ),
        ("launcher: deepspeed", "omp_num_threads: 0", "8:20: launch.omp_num_threads: found 0; expected"),
        ("launcher: deepspeed", "omp_num_threads: 1.5", "8:20: launch.omp_num_threads: found 1.5; expected a whole"),
        ("launcher: deepspeed", "bind_cores_to_rank: 7", "8:23: launch.bind_cores_to_rank: found 7; expected true or"),
        (
            "launcher: deepspeed",
            "launcher: torchrun\n  bind_cores_to_rank: true",
            "9:23: launch.bind_cores_to_rank: found true; expected false, or launcher: deepspeed; torchrun binds no",
        ),
        ("\n  launcher: deepspeed", " torchrun", '7:9: launch: found "torchrun"; expected a mapping'),
    ],
)
def test_wrong_launches(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert f"scenario.yaml:{said}" in str(problem)


def test_a_wrong_launch_is_told_beside_a_wrong_strategy(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(TEXT.replace("stage: 2", "stage: 4").replace("launcher: deepspeed", "omp_num_threads: -1"))
    with pytest.raises(InputError) as caught:
        load(file)
    assert [problem.line for problem in caught.value.problems] == [6, 8]
