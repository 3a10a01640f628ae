"""Curves as a study: each point is the step that the scenario alone gives there, and what is asked wrongly is told."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from zerosim import InputError, Scenario, from_mapping, simulate
from zerosim.spec import calibration
from zerosim.studies.curves import Curve, Peak, Point, curve, curves
from zerosim.studies.require import Wish, require
from zerosim.studies.turned import Unit
from zerosim.views import Breakdown

MODEL = {"layers": 2, "hidden": 2048, "heads": 16, "ffn": 5504, "vocab": 4096}
PORTS = "node.nics.bandwidth"
GBPS = 1e9 / 8


@cache
def scenario(stage: int = 3, nodes: int = 2) -> Scenario:
    """Two nodes over one port of 100 Gb/s each."""
    zero = {"stage": stage, "reduce_bucket_size": 5e7}
    strategy: dict[str, Any] = {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}}
    training = {"sequence_length": 512, "micro_batch_size": 2, "gradient_accumulation_steps": 2}
    return from_mapping(
        {"topology": "roce-100g-a100", "nodes": nodes, "model": MODEL, "training": training, "strategy": strategy}
    )


@cache
def of_the_network() -> Curve:
    return curve(scenario(), PORTS)


def test_a_network_has_the_rates_that_are_sold() -> None:
    """PCIe 4 x16 carries no 400 Gb/s."""
    found = of_the_network()
    assert [point.value for point in found.points] == [GBPS * rate for rate in (10, 25, 50, 100, 200)]
    assert (found.today, found.network, found.unit, found.label) == (100 * GBPS, True, "B/s", "ZeRO-3")


def test_a_point_is_the_step_of_the_changed_scenario() -> None:
    """To the last digit of its summary."""
    text = scenario().text
    for point, rate in zip(of_the_network().points, ("10 Gbps", "25 Gbps"), strict=False):
        alone = simulate(from_mapping(text, changes=[f"topology.node.nics.bandwidth={rate}"])).summary()
        assert point.seconds == pytest.approx(alone.step_seconds, rel=1e-12)
        assert point.breakdown == alone.breakdown
        assert point.tokens_per_second == pytest.approx(alone.tokens_per_second, rel=1e-12)
        assert point.memory["gpu"] == Peak(alone.memory["gpu"].peak_bytes, alone.memory["gpu"].capacity_bytes)
        assert point.fits is alone.fits


def test_values_are_read_with_their_units_and_stand_in_order() -> None:
    found = curve(scenario(), f"topology.{PORTS}", ["100 Gbps", 25 * GBPS, "25 Gbps"])
    assert [point.value for point in found.points] == [25 * GBPS, 100 * GBPS]
    assert found.points[1].seconds == of_the_network().points[3].seconds


def test_a_free_network_is_that_of_require() -> None:
    required = require(scenario(), PORTS, Wish("slowdown", 1.0))
    assert of_the_network().free_seconds == required.free_seconds
    assert of_the_network().slowdown(of_the_network().points[0]) == pytest.approx(
        of_the_network().points[0].seconds / required.free_seconds - 1
    )


def test_what_was_measured_at_todays_rates_is_left_out_and_told() -> None:
    """Gathers of 1 GB/s are the scenario's own; a rate of the machine is turned without them, as in `require`."""
    slow = calibration.Curve("all_gather", 16, 2, 50e-6, 1e9, 0.5, (2**20, 2**30), 0.01, "a.log")
    measured = scenario().replace(calibration=calibration.Calibration("rack 7", (slow,)))
    found, plain = curve(measured, PORTS, ["100 Gbps"]), simulate(scenario()).makespan
    assert simulate(measured).makespan > 1.1 * plain
    assert found.points[0].seconds == pytest.approx(plain, rel=1e-12)
    assert found.notes == ("rack 7: measured at today's rates, and left out here but for the factors of GPUs",)
    assert of_the_network().notes == ()
    bucket = curve(measured, "reduce_bucket_size", ["50m"])
    assert (bucket.points[0].seconds, bucket.notes) == (simulate(measured).makespan, ())  # no rate: nothing is left out


def test_where_a_curve_comes_to_a_step_is_near_what_is_required() -> None:
    """`require` plays until it knows to 3 %; here two points are all that is known."""
    found = of_the_network()
    for before, after in pairwise(found.points):
        target = (before.seconds + after.seconds) / 2
        required = require(scenario(), PORTS, Wish("seconds", target)).required
        assert required is not None
        assert found.crossing(target) == pytest.approx(required, rel=0.1)


def test_a_knob_of_tune_has_its_values_and_its_own_place() -> None:
    found = curve(scenario(), "reduce_bucket_size")
    assert found.today == 50_000_000
    assert found.today in [point.value for point in found.points]
    assert (found.unit, found.network, found.free_seconds) == ("elements", False, None)
    own = next(point for point in found.points if point.value == found.today)
    assert own.seconds == simulate(scenario()).makespan


def test_counts_are_read() -> None:
    found = curve(scenario(), "reduce_bucket_size", ["5e6", "50m"])
    assert [point.value for point in found.points] == [5_000_000, 50_000_000]


def test_a_micro_batch_keeps_the_batch() -> None:
    found = curve(scenario(), "micro_batch_size")
    assert [point.value for point in found.points] == [1, 2, 4]
    tokens = {round(point.seconds * point.tokens_per_second) for point in found.points}
    assert tokens == {512 * 4 * scenario().world_size}


def test_any_path_and_more_tokens() -> None:
    found = curve(scenario(), "training.gradient_accumulation_steps", [4, 1])
    assert [point.value for point in found.points] == [1, 4]
    assert found.today == 2
    one, four = found.points
    assert four.seconds * four.tokens_per_second == pytest.approx(4 * one.seconds * one.tokens_per_second)
    assert found.best is four


def test_choices_without_numbers_keep_their_order() -> None:
    found = curve(scenario(), "overlap_comm")
    assert [point.value for point in found.points] == [False, True]
    assert not found.numeric


def test_several_scenarios_have_a_curve_each() -> None:
    by_name = curves({"a": scenario(), "b": scenario(2)}, PORTS, ["25 Gbps"])
    assert [each.label for each in by_name] == ["a", "b"]
    assert [each.label for each in curves([scenario(), scenario(2)], PORTS, ["25 Gbps"])] == ["ZeRO-3", "ZeRO-2"]


def made(seconds: list[float], unit: Unit = "B/s", fits: bool = True) -> Curve:
    """Points at 1, 2, 4, ... B/s."""
    points = [
        Point(2.0**place, each, Breakdown(each, 0, 0, 0, 0), 1 / each, {"gpu": Peak(1, 2)}, fits)
        for place, each in enumerate(seconds)
    ]
    return Curve("a", "a", PORTS, unit, True, 1.0, 1.0, tuple(points))


def test_between_points_a_step_is_a_line_in_one_by_the_rate() -> None:
    """1 + 8 / rate: 9, 5, 3 s; 4 s at 8 / 3."""
    known = made([9, 5, 3])
    assert known.crossing(4) == pytest.approx(8 / 3)
    assert known.crossing(5) == pytest.approx(2)
    assert known.crossing(9) == 1
    assert known.crossing(10) == 1
    assert known.crossing(2.9) is None


def test_a_rate_is_enough_if_all_above_it_are() -> None:
    """An anomaly at 4 B/s: 3 s at 2 are not enough for ever."""
    assert made([9, 3, 5, 2]).crossing(3) == pytest.approx(1 / (1 / 4 + 2 / 3 * (1 / 8 - 1 / 4)))
    assert made([9, 5, 3], unit="elements").crossing(4) is None


def test_without_a_resource_there_is_no_slowdown() -> None:
    """9 s where a free network takes 1 are 8 more; a knob has no free one; a step may be nothing but messages."""
    known = made([9, 5, 3])
    assert known.slowdown(known.points[0]) == 8
    assert replace(known, free_seconds=None).slowdown(known.points[0]) is None
    assert replace(known, free_seconds=0.0).slowdown(known.points[0]) is None


def test_what_does_not_fit_is_not_the_best() -> None:
    assert made([9, 5, 3]).best == made([9, 5, 3]).points[2]
    assert made([9, 5, 3], fits=False).best is None


@pytest.mark.parametrize(
    ("path", "values", "said"),
    [
        ("node.nics.bandwith", [], "nearest node.nics.bandwidth"),
        ("topology.node.nics.bandwith", ["1 Gbps"], 'unknown key "bandwith"'),
        ("reduce_bucket_siz", [], "nearest reduce_bucket_size"),
        ("allgather_bucket_size", [], "of this one"),
        ("training.micro_batch_siz", [1], "nearest micro_batch_size"),
        ("nodes", [], "found no values; expected the values of the curve"),
        (PORTS, ["25 GBs"], 'found "25 GBs"; expected a rate'),
        (PORTS, [0], "found 0; expected a rate above 0"),
        ("reduce_bucket_size", ["many"], 'found "many"; expected a count'),
        ("nodes", [{"a": 1}], "found a mapping; expected one value, such as 4"),
        ("nodes", [2, [1, 2]], "expected one value, such as 4"),
    ],
)
def test_what_is_asked_wrongly(path: str, values: list[Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        curve(scenario(), path, values)
    assert said in str(error.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InputError) as error:
        curve(scenario(), "nodes", [0, 1, -1])
    assert [problem.found for problem in error.value.problems] == ["-1", "0"]
