"""What a step requires of a resource: which paths are rates, what they are today, what a free one is, three wishes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sweeps import SCENARIO
from zerosim import Scenario, from_mapping, simulate
from zerosim.errors import InputError
from zerosim.spec.loading import parse
from zerosim.studies.require import Required, Wish, require, require_all
from zerosim.studies.requirement import FINE, Played, _search
from zerosim.studies.resource import Resource

LARGER = ["model.layers=8", "model.hidden=2048", "training.sequence_length=1024", "training.micro_batch_size=4"]
STAGE3 = "strategy.deepspeed.zero_optimization.stage=3"
NIC = "node.nics.bandwidth"
OFFLOAD = ["nodes=1", "strategy.deepspeed.zero_optimization.offload_optimizer={device: cpu, pin_memory: true}"]


def scenario(*changes: str) -> Scenario:
    """Two nodes of eight A100, one port of 100 Gb/s each."""
    return from_mapping(parse(SCENARIO, "small").data["scenario"], Path(), [*LARGER, *changes])


@cache
def found(path: str, wish: Wish, *changes: str) -> Required:
    return require(scenario(*changes), path, wish)


# --- which resource ---


@pytest.mark.parametrize(
    ("path", "today"),
    [
        (NIC, 12.5e9),  # 100 Gb/s
        ("topology.node.nics.bandwidth", 12.5e9),
        ("node.nvlink.bandwidth", 300e9),
        ("node.pcie.bandwidth", 31.5e9),  # PCIe 4 x16, which the file does not say
        ("node.sockets.dram.bandwidth", 204.8e9),
        ("node.sockets.1.dram.bandwidth", 204.8e9),
        ("node.sockets.interconnect", 64e9 * 2),  # of the catalogue
        ("node.nvme.read", 6.5e9),
        ("node.nvme.*.write", None),
        ("node.gpus.hbm", 2039e9),  # of the catalogue
        ("node.gpus.flops", 312e12),
    ],
)
def test_rates_of_today(path: str, today: float | None) -> None:
    resource = Resource.of(scenario(), path)
    assert resource.today is not None
    if today is not None:
        assert resource.today == pytest.approx(today, rel=0.05)


def test_a_list_that_is_left_out_means_all_of_it() -> None:
    every, first = (Resource.of(scenario(), f"node.sockets.{which}dram.bandwidth") for which in ("", "0."))
    assert [path[2] for path in every.paths] == ["0", "1"]
    assert [path[2] for path in first.paths] == ["0"]
    rates = [link.bandwidth for link in every.at(1e12).topology.nodes[0].links if link.kind == "dram"]
    assert rates == [1e12] * 4


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("node.nics.bandwith", r"nearest node\.nics\.bandwidth"),
        ("node.nics", r"nearest node\.nics\.bandwidth"),
        ("node.nics.count", r"expected one of node\.nics\.bandwidth, "),
        ("node.c2c.bandwidth", "expected one of"),  # an A100 has none
        ("fabric.oversubscription", "expected one of"),  # one switch has no uplinks
        ("links.0.bandwidth", "expected one of"),
        ("training.micro_batch_size", "expected one of"),
        ("node.sockets.2.dram.bandwidth", 'found "2"; expected an index below 2'),
        ("", "expected one of"),
    ],
)
def test_what_is_no_rate_is_refused_with_what_is(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        require(scenario(), path, Wish("slowdown", 0.1))


def test_pcie_goes_with_its_generation_and_takes_the_ports_with_it() -> None:
    resource = Resource.of(scenario(), "node.pcie.bandwidth")
    newer, older = (resource.at(rate).topology for rate in (60e9, 4e9))
    generation = {link.generation for link in newer.nodes[0].links if link.kind == "pcie"}
    assert generation == {5}
    assert older.nodes[0].ports == (("nic0", 4e9),)  # 100 Gb/s in a slot of 32 Gb/s
    most, why = resource.most()
    assert most == pytest.approx(4 * 31.5e9, rel=0.05)  # generation 6
    assert why.endswith("as PCIe 6 x16")


# --- what is required ---


def test_a_free_network_is_faster_than_the_fastest_port() -> None:
    answer = found(NIC, Wish("slowdown", 2.0), STAGE3)
    most = simulate(scenario(STAGE3, f"topology.{NIC}={answer.most!r}")).makespan
    assert answer.most == pytest.approx(31.5e9, rel=1e-3)  # what PCIe 4 x16 carries
    assert answer.today_seconds is not None
    assert answer.free_seconds < most < answer.today_seconds
    assert answer.required is not None
    assert answer.seconds <= 3 * answer.free_seconds
    below = simulate(scenario(STAGE3, f"topology.{NIC}={answer.required / FINE**2!r}")).makespan
    assert below > 3 * answer.free_seconds


def test_a_network_that_no_port_replaces() -> None:
    answer = found(NIC, Wish("slowdown", 0.01), STAGE3)
    assert answer.required is None
    assert "at most 252 Gb/s, which PCIe 4 x16 carries" in answer.limited_by


@pytest.mark.parametrize("goal", ["seconds", "mfu"])
def test_to_be_as_fast_as_today_needs_the_rate_of_today(goal: Any) -> None:
    today = simulate(scenario(STAGE3)).summary()
    amount = today.step_seconds if goal == "seconds" else today.mfu
    answer = found(NIC, Wish(goal, amount * (1 + 1e-9 if goal == "seconds" else 1 - 1e-9)), STAGE3)
    assert answer.required is not None
    assert 12.5e9 / FINE <= answer.required <= 12.5e9
    assert answer.mfu >= today.mfu * (1 - 1e-6) or answer.required < 12.5e9
    assert answer.slowdown == pytest.approx(answer.target_seconds / answer.free_seconds - 1)


def test_seconds_that_nothing_reaches_are_said_to_be_so() -> None:
    answer = found("node.nvlink.bandwidth", Wish("seconds", 1e-3), "nodes=1", STAGE3)
    assert answer.required is None
    assert answer.limited_by.startswith("computes ")
    assert answer.slowdown < 0


def test_what_nothing_waits_for_may_have_any_rate() -> None:
    answer = found(NIC, Wish("slowdown", 0.1), "nodes=1", STAGE3)
    assert answer.any_rate
    assert answer.required == 1e6


def test_host_memory_of_an_offloaded_optimizer() -> None:
    path = "node.sockets.dram.bandwidth"
    answer = found(path, Wish("slowdown", 0.2), *OFFLOAD)
    assert answer.required is not None
    rates = [rate for rate, _ in answer.curve]
    assert rates == sorted(rates)
    assert 204.8e9 in rates
    assert answer.required in rates
    slow, fast = answer.curve[0].seconds, answer.curve[-1].seconds
    assert slow > 2 * fast


def test_of_uplinks_the_most_oversubscription() -> None:
    fabric = "topology.fabric={kind: fat_tree, leaf_nodes: 1}"
    answer = found("fabric.oversubscription", Wish("slowdown", 0.5), STAGE3, fabric)
    assert answer.required is not None
    assert (answer.unit, answer.today) == ("ratio", 1.0)
    assert 1 < answer.required < 8
    assert [ratio for ratio, _ in answer.curve] == sorted(ratio for ratio, _ in answer.curve)
    assert answer.curve[-1].seconds > 1.5 * answer.free_seconds


def test_the_mfu_of_other_gpus_is_not_asked() -> None:
    with pytest.raises(InputError, match="expected --slowdown or --seconds, as the MFU is a share of that rate"):
        require(scenario(), "node.gpus.flops", Wish("mfu", 0.3))


def test_all_scenarios_are_looked_at_before_one_is_played() -> None:
    alone = scenario("nodes=1", "topology=pcie-1x-rtx4090")
    heard: list[tuple[int, int]] = []
    with pytest.raises(InputError, match="expected one of"):
        require_all([scenario(), alone], NIC, Wish("slowdown", 0.1), lambda done, of: heard.append((done, of)))
    assert not heard


# --- the search ---


@given(kink=st.floats(1e7, 1e12), flat=st.floats(0.1, 1.0), slowdown=st.floats(0.01, 4.0), known=st.floats(1.5, 1e4))
@settings(max_examples=60, deadline=None)
def test_the_search_ends_right_above_what_is_too_little(
    kink: float, flat: float, slowdown: float, known: float
) -> None:
    """A step of max(1, flat + kink / rate), and a rate below that was found to be too little."""
    target = 1.0 + slowdown

    def step(rate: float) -> Played:
        return Played(rate, max(1.0, flat + kink / rate))

    least = kink / (target - flat)
    answer = _search(step, target, Played(1e15, 1.0), kink, step(least / known))
    assert least * (1 - 1e-9) <= answer.rate <= FINE * least * (1 + 1e-9)
