"""From a measured step to the rate of kernels."""

from __future__ import annotations

import math

import pytest

from zerosim.errors import InputError
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import facts, simulate
from zerosim.spec.calibration import Calibration, Compute
from zerosim.studies.calibration_step import fit_step, seconds_of

COMPUTES = {
    "title": "computes",
    "topology": "dgx-a100-80",
    "gpus": 1,
    "model": {"layers": 2, "hidden": 2048, "heads": 16, "vocab": 1000},
    "training": {"sequence_length": 2048, "micro_batch_size": 4, "precision": "bf16", "attention": "flash"},
    "strategy": {"ddp": {}},
}
WAITS = {**COMPUTES, "topology": "ethernet-10g-a100", "gpus": None, "title": "waits", "nodes": 2}


def scenario(given: dict[str, object]) -> Scenario:
    return from_mapping({key: value for key, value in given.items() if value is not None})


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.1])
def test_the_factor_of_a_measured_step_comes_back(factor: float) -> None:
    asked = scenario(COMPUTES)
    entry = Compute("a100_sxm_80", factor, "x")
    seconds = simulate(asked.replace(calibration=Calibration("", compute=(entry,)))).makespan
    found = fit_step(asked, seconds, "x")
    assert found.entry.gpu == "a100_sxm_80"
    assert found.entry.factor == pytest.approx(factor, rel=1e-3)
    assert found.usual_seconds == simulate(asked).makespan
    assert found.response > 0.5


def test_a_scenario_with_it_takes_as_long_as_it_was_measured() -> None:
    asked = scenario(COMPUTES)
    seconds = 1.2 * simulate(asked).makespan
    entry = fit_step(asked, seconds, "x").entry
    assert simulate(asked.replace(calibration=Calibration("", compute=(entry,)))).makespan == pytest.approx(
        seconds, rel=1e-3
    )


def test_what_else_was_measured_stays_beside_it() -> None:
    base = scenario(COMPUTES).replace(calibration=Calibration("", compute=(Compute("all", 0.7, "before"),)))
    assert fit_step(base, simulate(base).makespan, "x").entry.factor == pytest.approx(0.7, rel=1e-3)


def test_a_step_that_waits_for_the_network_tells_nothing_of_kernels() -> None:
    asked = scenario(WAITS)
    with pytest.raises(InputError, match=r"answers to the rate of kernels; expected one that mostly computes"):
        fit_step(asked, 2 * simulate(asked).makespan, "x")


@pytest.mark.parametrize(("times", "look"), [(9.0, "the network and the offload"), (0.5, "the GPU, the model")])
def test_outside_of_the_range_it_says_where_to_look(times: float, look: str) -> None:
    asked = scenario(COMPUTES)
    with pytest.raises(InputError, match="which kernels alone can explain; look at") as told:
        fit_step(asked, times * simulate(asked).makespan, "x")
    assert look in str(told.value)


def test_seconds_of_tokens_and_of_utilization() -> None:
    asked = scenario(COMPUTES)
    played = simulate(asked)
    summary = played.summary()
    assert seconds_of(asked, "tokens_per_second", summary.tokens_per_second) == pytest.approx(played.makespan)
    assert seconds_of(asked, "mfu", summary.mfu) == pytest.approx(played.makespan)
    assert seconds_of(asked, "step_seconds", 1.5) == 1.5
    assert math.isclose(facts(asked).tokens, 4 * 2048)
