"""Each trouble where it is and in a near twin where it is not; and that a remedy's gain is that of the played step."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from zerosim.report.doctor import render_doctor
from zerosim.report.require import show_least
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import simulate
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.checks import CHECKS
from zerosim.studies.doctor.examine import EQUAL, WORTH, Diagnosis, Examined, Outcome, examine
from zerosim.studies.doctor.host_memory import POWERS, pinned
from zerosim.studies.doctor.network import PORT, SLOWDOWN, too_slow
from zerosim.studies.doctor.offload import slow_tiers
from zerosim.studies.doctor.trouble import Candidate, Check, Price, Trouble
from zerosim.studies.require import Required, Wish, require
from zerosim.studies.tuning.looking import played as looked_at
from zerosim.units import show_seconds
from zerosim.views.memory_findings import FRAGMENTATION

SMALL = {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 8192}
ZERO = "strategy.deepspeed.zero_optimization"
OPTIMIZER = "strategy.deepspeed.optimizer.type"
WHOLE_WEIGHTS = f"{ZERO}.stage3_gather_16bit_weights_on_model_save=true"
PCIE = ("topology=pcie-4x-rtx4090", f"{ZERO}.reduce_bucket_size=20000000")
OFFLOAD = f"{ZERO}.offload_optimizer={{device: cpu}}"
SOCKET = "{device: epyc_7742, dram: {capacity: 4 GB, bandwidth: 204.8 GB/s}}"
V100 = ("topology=dgx-v100-16", "training.precision=fp16", "strategy.deepspeed={fp16: {enabled: true}}")
WIDE = ("model.layers=8", "model.hidden=4096", "model.heads=32", "model.ffn=16384")
LONG = ("training.sequence_length=4096", "training.activation_checkpointing=none")
PIECES = ("gpus=2", f"{ZERO}.stage=2", "training.sequence_length=2048", "training.micro_batch_size=4",
          "training.activation_checkpointing=none")  # fmt: skip
BUSY = ("training.sequence_length=4096", "training.micro_batch_size=4")

Changes = tuple[str, ...]
PAIRS: dict[str, tuple[Changes, Changes]] = {  # the trouble, and what makes the twin of it
    "activations-not-sharded": (
        (*V100, f"{ZERO}.stage=3", "training.micro_batch_size=8", *LONG),
        ("training.micro_batch_size=1",),
    ),
    "states-do-not-fit": (
        ("topology=pcie-4x-rtx4090", *WIDE, f"{ZERO}.stage=0"),
        (f"{ZERO}.stage=3",),
    ),
    "fragmentation": (
        (*PIECES, "topology.node.gpus.memory=10.055 GB"),
        ("topology.node.gpus.memory=10.5 GB",),
    ),
    "pinned-memory": (
        (OFFLOAD, f"topology.node.sockets=[{SOCKET}, {SOCKET}]"),
        tuple(f"topology.node.sockets.{number}.dram.capacity=64 GB" for number in (0, 1)),
    ),
    "optimizer-not-partitioned": ((f"{OPTIMIZER}=Lamb", f"{ZERO}.stage=1"), (f"{OPTIMIZER}=AdamW",)),
    "network-cannot-carry": (("topology=ethernet-10g-a100", "nodes=2"), ("topology=dgx-a100-80",)),
    "uneven-ranks": (
        ("nodes=4", "topology.overrides=[{node: 3, nics: {bandwidth: 5 Gbps}}]"),
        ("topology.overrides=[{node: 3, nics: {bandwidth: 195 Gbps}}]",),
    ),
    "reduces-every-micro-step": (
        (*PCIE, f"{ZERO}.stage=2", "training.gradient_accumulation_steps=4"),
        (f"{ZERO}.stage=1",),
    ),
    "not-overlapped": ((*PCIE, f"{ZERO}.stage=2", f"{ZERO}.overlap_comm=false"), (f"{ZERO}.overlap_comm=true",)),
    "buckets-too-small": (
        ("nodes=2", f"{ZERO}.stage=2", f"{ZERO}.reduce_bucket_size=100000"),
        (f"{ZERO}.reduce_bucket_size=20000000",),
    ),
    "buckets-too-large": (
        (*PCIE, f"{ZERO}.stage=2", f"{ZERO}.reduce_bucket_size=1000000000"),
        (f"{ZERO}.reduce_bucket_size=20000000",),
    ),
    "prefetch-starved": (
        (f"{ZERO}.stage3_prefetch_bucket_size=0", f"{ZERO}.stage3_max_reuse_distance=0"),
        (f"{ZERO}.stage3_prefetch_bucket_size=50000000",),
    ),
    "offload-collapses": ((OFFLOAD,), (f"{ZERO}.offload_optimizer.device=none",)),
    "cpu-oversubscribed": ((OFFLOAD,), ("launch.bind_cores_to_rank=true",)),
    "sharded-checkpoints": (("title=no file has all weights",), (WHOLE_WEIGHTS,)),
}  # fmt: skip


def scenario(*changes: str) -> Scenario:
    strategy = {
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW"},
        "zero_optimization": {"stage": 3, "overlap_comm": True},
    }
    given: dict[str, Any] = {
        "topology": "dgx-a100-80",
        "model": SMALL,
        "training": {"sequence_length": 1024, "activation_checkpointing": "full"},
        "strategy": {"deepspeed": strategy},
    }
    return from_mapping(given, Path(), changes)


@cache
def examined(*changes: str) -> Examined:
    return examine(scenario(*changes), lambda more: scenario(*changes, *more))


def found(code: str) -> Diagnosis:
    return next(each for each in examined(*PAIRS[code][0]).troubles if each.trouble.code == code)


def codes(*changes: str) -> set[str]:
    """What the checks say at first sight; tried is only what makes a trouble of what is seen."""
    case = Case(simulate(scenario(*changes)), lambda more: scenario(*changes, *more))
    said = [(check, check.look(case)) for check in CHECKS]
    troubles = {each.code: check for check, each in said if isinstance(each, Trouble) and not each.confirmed}
    doubted = [check for check, each in said if isinstance(each, Trouble) and each.confirmed]
    return troubles.keys() | {each.trouble.code for each in examine(scenario(*changes), checks=doubted).troubles}


@pytest.mark.parametrize("code", PAIRS)
def test_the_trouble_is_found_and_its_remedy_helps(code: str) -> None:
    diagnosis = found(code)
    assert diagnosis.best is not None
    after = diagnosis.best.after
    assert after is not None
    match diagnosis.trouble.aim:
        case "faster":
            assert after.tokens_per_second > WORTH * diagnosis.before.tokens_per_second
        case "smaller":
            tier = diagnosis.trouble.tier
            assert diagnosis.before.peak[tier] > WORTH * after.peak.get(tier, 0.0)
        case "fits":
            assert not diagnosis.before.fits
        case "measured":
            assert diagnosis.measured is not None
            assert diagnosis.measured.troubled
            assert diagnosis.best.measured is not None
            assert not diagnosis.best.measured.troubled
    assert after.fits


@pytest.mark.parametrize("code", PAIRS)
def test_the_twin_does_not_have_it(code: str) -> None:
    ill, change = PAIRS[code]
    assert code not in codes(*ill, *change)


@pytest.mark.parametrize("code", PAIRS)
def test_the_gain_is_that_of_the_step_with_these_changes(code: str) -> None:
    diagnosis = found(code)
    assert diagnosis.best is not None
    assert diagnosis.best.after is not None
    played = simulate(scenario(*PAIRS[code][0], *diagnosis.base, *diagnosis.best.changes)).summary()
    after = diagnosis.best.after
    assert after.step_seconds == pytest.approx(played.step_seconds)
    assert after.tokens_per_second == pytest.approx(played.tokens_per_second)
    assert after.peak == pytest.approx({name: tier.peak_bytes for name, tier in played.memory.items()})
    assert diagnosis.gain == pytest.approx(after.tokens_per_second / diagnosis.before.tokens_per_second - 1)


def test_a_healthy_step_has_nothing_and_is_told_what_was_looked_at() -> None:
    answer = examined(*BUSY, WHOLE_WEIGHTS)
    assert answer.as_json() == []
    assert [name for name, _ in answer.clear] == [check.name for check in CHECKS]
    assert all(said for _, said in answer.clear)
    assert render_doctor(answer.title, [], answer.clear).startswith("scenario: nothing found\n")


# --- what each says --------------------------------------------------------------------------------------------------


def test_slow_ranks_are_named() -> None:
    node = found("uneven-ranks")
    assert "for node 3, slow at" in node.trouble.symptom
    assert node.machine is not None
    assert node.machine.changes == ("topology.overrides=[]",)
    gpu = examined("nodes=2", *BUSY, "topology.overrides=[{gpu: '0.5', compute: 0.5}]").troubles[0]
    assert gpu.trouble.code == "uneven-ranks"
    assert "for gpu 0.5, late at" in gpu.trouble.symptom
    assert gpu.best is None  # no setting makes a throttled GPU faster
    assert gpu.machine is not None


def test_the_network_is_told_what_rate_would_be_enough() -> None:
    slow = ("topology=ethernet-10g-a100", "nodes=2", "topology.node.nics.bandwidth=2 Gbps", f"{ZERO}.stage=1")
    much = ("training.sequence_length=4096", "training.micro_batch_size=8", "training.gradient_accumulation_steps=4")
    diagnosis, needed = answered_network(*slow, *much)
    assert needed.required is not None
    assert f"A port of {show_least(needed.as_json())} brings it within 10 % of" in diagnosis.trouble.cause
    assert f"the {show_seconds(needed.free_seconds)} of a free one" in diagnosis.trouble.cause
    assert diagnosis.machine is not None
    assert diagnosis.machine.after is not None
    assert diagnosis.machine.after.step_seconds <= (1 + SLOWDOWN) * needed.free_seconds


def test_where_no_port_is_fast_enough_it_says_so_as_require_does() -> None:
    diagnosis, needed = answered_network(*PAIRS["network-cannot-carry"][0])
    assert needed.required is None
    assert "No rate of a port brings it within 10 % of" in diagnosis.trouble.cause
    assert f"the {show_seconds(needed.free_seconds)} of a free one" in diagnosis.trouble.cause
    assert f"the step takes {show_seconds(needed.seconds)}" in diagnosis.trouble.cause
    assert diagnosis.machine is None


def answered_network(*changes: str) -> tuple[Diagnosis, Required]:
    """What the doctor says of the network, and what `require` says of its ports."""
    answer = examine(scenario(*changes), checks=(Check("network", too_slow),))
    return answer.troubles[0], require(scenario(*changes), PORT, Wish("slowdown", SLOWDOWN))


def remedies(*changes: str) -> dict[str, tuple[Changes, ...]]:
    """What would be tried against slow tiers and full host memory, by name."""
    case = Case(simulate(scenario(*changes)), lambda more: scenario(*changes, *more))
    said = [look(case) for look in (slow_tiers, pinned)]
    return {c.what: c.spellings for each in said if isinstance(each, Trouble) for c in each.candidates}


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ("{type: AdamW, params: {lr: 1.0e-4, torch_adam: true}}", "optimizer.params.torch_adam=false"),
        ("{type: SGD, params: {lr: 1.0e-4}}", "optimizer.type=AdamW"),
    ],
)
def test_another_adam_keeps_the_parameters_of_the_optimizer(given: str, change: str) -> None:
    changes = (OFFLOAD, f"strategy.deepspeed.optimizer={given}")
    ((spelling,),) = remedies(*changes)["DeepSpeed's own CPU Adam"]
    assert spelling == f"strategy.deepspeed.{change}"
    strategy = scenario(*changes, spelling).strategy
    assert strategy.optimizer.on_cpu == "deepspeed"


def test_an_adam_of_the_script_is_exchanged_by_the_key_that_kept_it() -> None:
    changes = (OFFLOAD, "strategy.deepspeed.optimizer=null", "strategy.deepspeed.zero_force_ds_cpu_optimizer=false")
    (spelling,) = remedies(*changes)["DeepSpeed's own CPU Adam"]
    assert spelling == ("strategy.deepspeed.zero_force_ds_cpu_optimizer=true",)
    assert scenario(*changes, *spelling).strategy.optimizer.on_cpu == "deepspeed"


def test_drives_are_a_remedy_only_where_a_folder_on_them_is_named() -> None:
    full = PAIRS["pinned-memory"][0]
    name = "optimizer states on NVMe"
    assert name not in remedies(*full)
    (spelling,) = remedies(*full, f"{ZERO}.offload_optimizer.nvme_path=/scratch")[name]
    assert spelling == (f"{ZERO}.sub_group_size={POWERS[-1]}", f"{ZERO}.offload_optimizer.device=nvme")
    (spelling,) = remedies(*full, f"{ZERO}.offload_param={{device: none, nvme_path: /scratch}}")[name]
    assert spelling[-1] == f"{ZERO}.offload_optimizer.nvme_path=/scratch"


def test_an_optimizer_that_deepspeed_only_warns_of_is_allowed() -> None:
    (diagnosis,) = (
        each
        for each in examined(f"{OPTIMIZER}=SGD", f"{ZERO}.stage=2").troubles
        if each.trouble.code == "optimizer-not-partitioned"
    )
    assert diagnosis.best is not None
    assert diagnosis.best.changes == ("strategy.deepspeed.zero_allow_untested_optimizer=true",)


def test_a_compressing_optimizer_is_whole_on_every_gpu_and_alone_no_trouble() -> None:
    whole = (f"{OPTIMIZER}=OneBitAdam", f"{ZERO}.stage=0")
    diagnosis = next(e for e in examined(*whole).troubles if e.trouble.code == "optimizer-not-partitioned")
    assert "whole on each of 8 GPUs" in diagnosis.trouble.symptom
    assert diagnosis.best is not None
    assert diagnosis.best.after is not None
    assert diagnosis.best.after.peak["gpu"] < diagnosis.before.peak["gpu"]
    assert "optimizer-not-partitioned" not in codes(*whole, "gpus=1")


def test_what_makes_it_fit_is_taken_before_anything_else_is_looked_at() -> None:
    answer = examined(*PAIRS["activations-not-sharded"][0])
    first, *others = answer.troubles
    assert first.trouble.code == "activations-not-sharded"
    assert first.best is not None
    assert others
    assert all(each.base == first.best.changes and each.before.fits for each in others)


def test_whatever_makes_it_fit_is_taken_though_the_trouble_is_another() -> None:
    """The first check asks for less memory, not for room; its remedy makes room all the same."""
    ill = PAIRS["activations-not-sharded"][0]
    first = Trouble("first", "note", "a symptom", "a cause", (SLOWER,), aim="smaller")
    second = replace(first, code="second", severity="error")
    checks = [Check(each.code, lambda case, each=each: each) for each in (first, second)]  # type: ignore[misc]  # a lambda with a default is not inferred
    mending, other = examine(scenario(*ill), checks=checks).troubles
    assert (mending.trouble.code, other.trouble.code) == ("first", "second")
    assert other.base == SLOWER.spellings[0]
    assert (mending.before.fits, other.before.fits) == (False, True)


def test_what_may_end_the_run_comes_before_what_makes_it_slow() -> None:
    first = examined(*PAIRS["fragmentation"][0]).troubles[0]
    assert (first.trouble.code, first.trouble.severity) == ("fragmentation", "warning")
    assert first.measured is not None
    assert first.measured.numbers["failed_requests"] > 0


@pytest.mark.parametrize("memory", ["9 GB", "10.055 GB", "10.5 GB"])
def test_run_doctor_and_tune_mean_the_same_by_fitting(memory: str) -> None:
    """Too small; large enough, but in pieces; and roomy."""
    asked = scenario(*PIECES, f"topology.node.gpus.memory={memory}")
    played = simulate(asked)
    summary = played.summary()
    assert summary.fits == Outcome.of(played).fits == (looked_at(asked)["unfit"] == "") == (memory != "9 GB")
    assert any(each.code == FRAGMENTATION for each in summary.findings) == (memory == "10.055 GB")
    assert [each.code for each in summary.findings if each.severity == "error"] == (
        [] if summary.fits else ["out-of-memory"]
    )


def test_checkpoints_tell_time_and_host_memory_of_whole_weights() -> None:
    row = next(r for r in examined("title=no file has all weights").as_json() if r["code"] == "sharded-checkpoints")
    assert row["before"]["writes_whole_weights"] is False
    assert row["after"]["writes_whole_weights"] is True
    assert row["after"]["whole_weights_seconds"] > 0
    assert row["after"]["whole_weights_host_bytes"] > 0
    assert "load on 8 ranks only" in row["cause"]


# --- how the best is chosen ------------------------------------------------------------------------------------------

SLOWER = Candidate("slower", (("training.micro_batch_size=1",),))
FASTER = Candidate("faster", (("training.micro_batch_size=2",),))


def treated(*candidates: Candidate) -> Diagnosis:
    trouble = Trouble("made-up", "note", "a symptom", "a cause", candidates)
    answer = examine(scenario(), checks=(Check("made up", lambda case: trouble),))
    return answer.troubles[0]


def test_what_does_not_help_is_not_advised() -> None:
    diagnosis = treated(SLOWER)
    assert diagnosis.best is None
    assert diagnosis.gain is None
    row = diagnosis.as_json()
    assert (row["remedy"], row["changes"], row["after"], row["gain"]) == ("", [], None, None)
    assert "slower was played and is no help" in render_doctor("t", [row], [])


def test_the_first_of_nearly_equal_ones_is_kept_and_a_price_has_to_be_worth_it() -> None:
    same = FASTER._replace(what="the same")
    best = treated(SLOWER, FASTER, same).best
    assert best is not None
    assert best.candidate is FASTER
    gain = treated(FASTER).gain
    assert gain is not None
    more = Candidate("more", (("training.micro_batch_size=4",),))
    for worth, kept in ((1.0, "more"), ((1 + gain) / EQUAL, "faster")):
        chosen = treated(FASTER, more.at(Price("dear", 2 * worth if kept == "faster" else worth))).best
        assert chosen is not None
        assert chosen.candidate.what == kept


def test_what_cannot_be_read_is_told_and_the_next_spelling_is_taken() -> None:
    wrong = Candidate("no such key", (("training.micro_batch=2",),))
    both = Candidate("two spellings", (("training.micro_batch=2",), ("training.micro_batch_size=2",)))
    diagnosis = treated(wrong, both)
    assert "micro_batch_size" in diagnosis.tried[0].refused
    assert diagnosis.best is not None
    assert diagnosis.best.changes == ("training.micro_batch_size=2",)


def test_changes_of_two_remedies_go_together() -> None:
    both = FASTER.also(Candidate("b", (("x=1",), ("y=1",)), (Price("dear", 2.0),)).last(3))
    assert both.spellings == (("training.micro_batch_size=2", "x=1"), ("training.micro_batch_size=2", "y=1"))
    assert [price.words for price in both.prices] == ["dear"]
    assert both.resort == 3
