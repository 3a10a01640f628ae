"""The least rate at which a step is slow by no more than is wanted: enough there, and not enough a tenth below."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.sweeps import SCENARIO
from zerosim import Scenario, from_mapping, simulate
from zerosim.errors import InputError
from zerosim.spec.loading import parse
from zerosim.studies.requirement import FINE, SLOWEST, Played, Requirement, _search, least_rate

NIC, NVLINK = "topology.node.nics.bandwidth", "topology.node.nvlink.bandwidth"
WITHOUT = ["topology.node.nvlink.hosts=2"]  # the network, as NVLink joins the nodes
LARGER = ["model.layers=8", "model.hidden=2048", "training.sequence_length=1024", "training.micro_batch_size=4"]


def scenario(*changes: str) -> Scenario:
    return from_mapping(parse(SCENARIO, "small").data["scenario"], Path(), [*LARGER, *changes])


@cache
def seconds(*changes: str) -> float:
    return simulate(scenario(*changes)).makespan


@cache
def found(path: str, slowdown: float, *changes: str) -> Requirement:
    return least_rate(scenario(*changes), path, slowdown, seconds(*WITHOUT, *changes))


STAGES = [f"strategy.deepspeed.zero_optimization.stage={stage}" for stage in (1, 3)]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("slowdown", [0.5, 1.5])
def test_the_rate_is_enough_and_a_tenth_less_is_not(stage: str, slowdown: float) -> None:
    answer, most = found(NIC, slowdown, stage), (1 + slowdown) * seconds(*WITHOUT, stage)
    assert answer.required is not None
    assert seconds(stage, f"{NIC}={answer.required!r}") == answer.seconds <= most
    assert seconds(stage, f"{NIC}={0.9 * answer.required!r}") > most


def test_who_may_be_slower_needs_less() -> None:
    some, more = (found(NIC, slowdown, STAGES[1]).required for slowdown in (0.5, 1.5))
    assert some is not None
    assert more is not None
    assert more < some


def test_the_answer_tells_what_was_played() -> None:
    answer = found(NIC, 0.5, STAGES[0])
    assert answer.today == 12.5e9
    assert answer.limited_by == ""
    assert Played(answer.required or 0.0, answer.seconds) in answer.curve
    assert sorted(answer.curve) == list(answer.curve)
    assert answer.as_json()["curve"][0] == list(answer.curve[0])
    assert answer.resource == NIC


def test_where_no_rate_is_enough_it_says_what_limits() -> None:
    answer = least_rate(scenario(STAGES[1]), NIC, 0.01, 0.5 * seconds(*WITHOUT, STAGES[1]))
    assert answer.required is None
    assert answer.limited_by.endswith("at most 252 Gb/s, which PCIe 4 x16 carries")
    assert [rate for rate, _ in answer.curve] == [pytest.approx(252e9 / 8, rel=1e-3)]
    assert answer.seconds == answer.curve[0].seconds


def test_a_resource_that_nothing_uses_may_have_any_rate() -> None:
    answer = least_rate(scenario("gpus=1", "nodes=1"), NIC, 0.01, seconds("gpus=1", "nodes=1"))
    assert answer.required == SLOWEST


def test_other_rates_than_those_of_networks() -> None:
    one = ["nodes=1", STAGES[1]]
    answer = least_rate(scenario(*one), NVLINK, 0.1, seconds(*one))
    assert answer.required is not None
    assert seconds(*one, f"{NVLINK}={0.9 * answer.required!r}") > 1.1 * seconds(*one)
    assert answer.required < (answer.today or 0.0)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("training.micro_batch_size", r"expected one of node\.nics\.bandwidth, node\.nvlink\.bandwidth, "),
        (
            "topology.node.nics.bandwith",
            r'found the rate "topology.node.nics.bandwith"; .*; nearest node\.nics\.bandwidth',
        ),
    ],
)
def test_a_path_that_is_no_rate_is_refused(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        least_rate(scenario(), path, 0.1, 1.0)


@pytest.mark.parametrize("kink", [2e6, 1.7e8, 3e9, 9.9e11])
@pytest.mark.parametrize("first", [1e7, 12.5e9, 1e14])
def test_the_search_is_short(kink: float, first: float) -> None:
    """A step of 1 s that waits for the resource where this is slower than `kink`; up to 1.05 s is wanted."""
    tried: list[float] = []

    def step(rate: float) -> Played:
        tried.append(rate)
        return Played(rate, max(1.0, 0.5 + 0.5 * kink / rate))

    answer = _search(step, 1.05, Played(1e15, 1.0), first)
    least = 0.5 * kink / 0.55
    assert least <= answer.rate <= FINE * least * 1.0001
    assert len(tried) <= 20
