"""The ladder: one global batch on every rung, one GPU drawn out from a few micro-steps, and the first that fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zerosim.scenario import Scenario, from_mapping, load
from zerosim.simulation import simulate
from zerosim.spec.strategy import Ddp
from zerosim.studies import ladder as study
from zerosim.studies.ladder import SHARDED, Rung, _zero, ladder
from zerosim.studies.reference import RUNGS

ROOT = Path(__file__).parents[2]
ZERO_2: dict[str, Any] = {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}}


def scenario(strategy: dict[str, Any] = ZERO_2, **more: Any) -> Scenario:
    training = {"sequence_length": 512, "gradient_accumulation_steps": 3} | more.pop("training", {})
    mapping = {
        "topology": "dgx-a100-80",
        "model": {"layers": 2, "hidden": 512, "heads": 8, "vocab": 1000},
        "training": training,
        "strategy": strategy,
    }
    return from_mapping(mapping | more)


def names(rungs: list[Rung]) -> list[str]:
    return [rung.rung for rung in rungs]


def test_every_rung_has_the_same_global_batch() -> None:
    rungs = ladder(scenario())
    assert tuple(names(rungs)) == RUNGS
    tokens = 512 * 3 * 8  # sequence x micro-steps x GPUs
    assert [rung.tokens_per_second * rung.step_seconds for rung in rungs] == pytest.approx([tokens] * 5)


def test_one_gpu_is_drawn_out_from_a_few_micro_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few = ladder(scenario())[0]
    monkeypatch.setattr(study, "PLAYED", 1000)
    assert ladder(scenario())[0].step_seconds == pytest.approx(few.step_seconds, rel=1e-9)


def test_a_step_of_one_gpu_may_be_longer_than_any_that_can_be_played() -> None:
    many = scenario(nodes=64, training={"gradient_accumulation_steps": 64})  # 32,768 micro-steps of 2 layers
    first = study._plans(many)
    assert next(first).micro_steps == 64 * 512


def test_where_everything_fits_the_first_rung_is_the_base() -> None:
    rungs = ladder(scenario())
    assert rungs[0].relative_throughput == 1.0
    assert [rung.reason.startswith("first that fits; ") for rung in rungs] == [True, False, False, False, False]
    assert all((rung.relative_throughput or 0.0) > 1 for rung in rungs[1:])  # eight GPUs


def test_what_does_not_fit_has_no_relative_throughput() -> None:
    # 26 billion parameters: 413, 142 and 97 GB of states on stages 0, 1 and 2, and 52 GB on stage 3
    big = {"layers": 8, "hidden": 16384, "heads": 64}
    rungs = ladder(scenario(model=big, training={"gradient_accumulation_steps": 1}))
    assert [rung.fits for rung in rungs] == [False, False, False, False, True]
    assert [rung.relative_throughput for rung in rungs] == [None, None, None, None, 1.0]
    assert all("too much at " in rung.reason for rung in rungs[:4])


def test_one_gpu_has_no_ddp_rung_and_nothing_to_divide() -> None:
    rungs = ladder(scenario(gpus=1))
    assert names(rungs) == ["one GPU", "ZeRO-1", "ZeRO-2", "ZeRO-3"]
    assert len({rung.model_states_bytes for rung in rungs}) == 1


def test_a_ddp_scenario_keeps_its_settings_and_gets_plain_zero_above() -> None:
    given = scenario({"ddp": {"bucket_cap_mb": 1, "gradient_as_bucket_view": True}})
    rungs = ladder(given)
    assert [rung.strategy for rung in rungs] == ["ddp", "ddp", "zero1", "zero2", "zero3"]
    assert isinstance(given.strategy, Ddp)
    assert rungs[1].step_seconds == pytest.approx(simulate(given).makespan)


def test_the_rung_of_the_scenario_is_the_scenario() -> None:
    given = scenario()
    rung = next(rung for rung in ladder(given) if rung.rung == "ZeRO-2")
    assert rung.step_seconds == pytest.approx(simulate(given).makespan)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_every_precision_climbs(precision: str) -> None:
    section: dict[str, Any] = {} if precision == "fp32" else {precision: {"enabled": True}}
    zero: dict[str, Any] = {"deepspeed": {**section, "zero_optimization": {"stage": 1}}}
    ddp: dict[str, Any] = {"ddp": {}}
    for strategy in (zero, ddp):
        assert len(ladder(scenario(strategy, gpus=2, training={"precision": precision}))) == 5


@pytest.mark.parametrize(("given", "expected"), [("true", [True] * 3), ("null", [False, False, True])])
def test_overlap_comm_stays_as_given_and_else_is_the_stage_s_own(given: str, expected: list[bool]) -> None:
    change = f"strategy.deepspeed.zero_optimization.overlap_comm={given}"
    for name in ("zero1", "zero3"):
        strategy = load(ROOT / f"scenarios/seven-b/{name}.yaml", [change]).strategy
        assert [_zero(strategy, stage).zero.overlap_comm for stage in SHARDED] == expected
