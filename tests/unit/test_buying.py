"""What a machine costs and draws: tokens for a unit of the currency and for a joule, from numbers that are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sweeps import SCENARIO
from zerosim import Scenario, from_mapping, simulate
from zerosim.errors import InputError
from zerosim.spec.loading import parse
from zerosim.studies.uncertainty import sample
from zerosim.views.running import Running, bill
from zerosim.views.summary import Summary

RENTED = {"currency": "EUR", "gpu_hour": 2}


def scenario(*changes: str, **sections: Any) -> Scenario:
    """The small scenario of sweeps: two nodes of eight A100, of 400 W by the catalogue."""
    mapping = parse(SCENARIO, "small").data["scenario"]
    written = [f"topology.{name}={value}" for name, value in sections.items()]
    return from_mapping(mapping, Path(), [*changes, *written])


def summary(*changes: str, **sections: Any) -> Summary:
    return simulate(scenario(*changes, **sections)).summary()


# --- the bill ---


def test_eight_gpus_of_two_euros_an_hour() -> None:
    """16 EUR/h for 8000 tokens/s: 8000 x 3600 / 16 tokens for a euro."""
    cost, energy = bill(Running("EUR", an_hour=16.0), seconds=2.0, computing=1.0, tokens=16_000)
    assert cost is not None
    assert cost.tokens_per_currency == pytest.approx(1.8e6)
    assert cost.per_million_tokens == pytest.approx(1 / 1.8)
    assert cost.per_step == pytest.approx(16 * 2 / 3600)
    assert energy is None


def test_five_kilowatts() -> None:
    """8000 tokens/s at 5 kW are 1.6 tokens for a joule; nothing is known of money."""
    cost, energy = bill(Running(computing=5000.0, waiting=5000.0), seconds=2.0, computing=0.3, tokens=16_000)
    assert cost is None
    assert energy is not None
    assert (energy.watts, energy.joules_per_step) == (5000, 10_000)
    assert energy.tokens_per_joule == pytest.approx(1.6)


def test_a_gpu_that_waits_draws_less() -> None:
    """A quarter of the step at 6 kW, the rest at 2 kW: 3 kW."""
    _, energy = bill(Running(computing=6000.0, waiting=2000.0), seconds=1.0, computing=0.25, tokens=300)
    assert energy is not None
    assert energy.watts == pytest.approx(3000)
    assert energy.tokens_per_joule == pytest.approx(0.1)


def test_electricity_is_paid_beside_the_rent() -> None:
    """10 kW for an hour at 0.3 EUR/kWh are 3 EUR, beside 5 EUR of rent."""
    cost, _ = bill(Running("EUR", 5.0, 0.3, 10_000.0, 10_000.0), seconds=3600.0, computing=1.0, tokens=80)
    assert cost is not None
    assert (cost.per_hour, cost.per_step) == pytest.approx((8.0, 8.0))
    assert cost.tokens_per_currency == pytest.approx(10)


@given(
    st.floats(0.01, 1e4), st.floats(0, 1), st.floats(1, 1e5), st.floats(0, 1), st.floats(1e-3, 1e4), st.floats(1, 1e7)
)
def test_a_bill_adds_up(an_hour: float, kwh: float, watts: float, part: float, seconds: float, tokens: float) -> None:
    cost, energy = bill(Running("X", an_hour, kwh, watts, watts / 3), seconds, part, tokens)
    assert cost is not None
    assert energy is not None
    assert watts / 3 <= energy.watts * (1 + 1e-12)
    assert energy.watts <= watts * (1 + 1e-12)
    assert energy.joules_per_step * energy.tokens_per_joule == pytest.approx(tokens)
    assert cost.per_step * cost.tokens_per_currency == pytest.approx(tokens)
    assert cost.per_step == pytest.approx(an_hour * seconds / 3600 + energy.joules_per_step / 3.6e6 * kwh)


# --- as a topology says it ---


def test_a_machine_without_a_price_has_none() -> None:
    plain = summary()
    assert (plain.cost, plain.energy) == (None, None)
    assert not {"cost", "energy"} & plain.as_json().keys()


def test_gpus_that_are_used_are_paid() -> None:
    """16 GPUs of two nodes, and 4 of one: the rent of GPUs goes with them, that of nodes does not."""
    sixteen, four = summary(price=RENTED), summary("nodes=1", "gpus=4", price=RENTED)
    node = summary("nodes=1", "gpus=4", price={"currency": "EUR", "node_hour": 20})
    hourly = [each.cost.per_hour for each in (sixteen, four, node) if each.cost]
    assert hourly == [32, 8, 20]
    assert sixteen.cost is not None
    assert sixteen.cost.tokens_per_currency == pytest.approx(sixteen.tokens_per_second * 3600 / 32)


def test_a_node_that_was_bought() -> None:
    """175,320 EUR over 4 years of 8766 hours, of which half are used: 10 EUR an hour; two nodes."""
    bought = summary(price={"currency": "EUR", "node": 175_320, "years": 4, "use": "50%"})
    assert bought.cost is not None
    assert bought.cost.per_hour == pytest.approx(20)
    assert any("4 years, in use 50 % of them" in note for note in bought.assumptions)


def test_power_by_its_parts() -> None:
    """Boards of 400 W by the catalogue, 8 x 400 W + 1800 W = 5 kW a node; x 1.2 by the building."""
    rest, building = summary(power={"rest": "1.8 kW"}), summary(power={"rest": "1.8 kW", "pue": 1.2})
    whole = summary(power={"node": "5 kW"})
    limited = summary("topology.node.gpus.power=300 W", power={"rest": "1.8 kW"})
    watts = [each.energy.watts for each in (rest, building, whole, limited) if each.energy]
    assert watts == pytest.approx([10_000, 12_000, 10_000, 8_400])
    assert any(note.startswith("power is that of the GPUs: the most that") for note in rest.assumptions)
    assert not any(note.startswith("power is") for note in whole.assumptions)


def test_gpus_that_wait_by_the_step() -> None:
    found = summary(power={"gpu": 400, "idle": 100})
    computing = found.breakdown.compute / found.step_seconds
    assert found.energy is not None
    assert found.energy.watts == pytest.approx(16 * (100 + 300 * computing))
    assert computing < 1


def test_a_graph_has_a_price_too() -> None:
    devices = [
        {"name": "gpu0", "kind": "gpu", "device": "a100_sxm_80"},
        {"name": "cpu", "kind": "socket", "device": "epyc_7742"},
        {"name": "ram", "kind": "dram", "capacity": 1e12},
    ]
    links = [
        {"from": "gpu0", "to": "cpu", "bandwidth": 31.5e9, "generation": 4},
        {"from": "cpu", "to": "ram", "bandwidth": 204.8e9},
    ]
    machine = {"name": "one", "devices": devices, "links": links, "price": RENTED, "power": {"rest": 100}}
    mapping = {**parse(SCENARIO, "small").data["scenario"], "topology": machine, "nodes": 1}
    found = simulate(from_mapping(mapping, Path())).summary()
    assert found.cost is not None
    assert found.energy is not None
    assert (found.cost.per_hour, found.energy.watts) == (2, 500)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"price": {"currency": "EUR", "gpu_hour": -2}}, "price.gpu_hour: found -2; expected a number greater than or"),
        ({"price": {"currency": "EUR", "gpu_hour": 1e-308}}, "price.gpu_hour: found 1e-308; expected a number greater"),
        ({"price": {"currency": "EUR", "electricity": 1e-9}}, "price.electricity: found 1e-09; expected a number gre"),
        ({"price": {"currency": "EUR", "node": 5, "years": 1e-300}}, "price.years: found 1e-300; expected a number gr"),
        ({"price": {"currency": "EUR"}}, "found no price; expected one of gpu_hour, node_hour, node, electricity"),
        ({"price": {"gpu_hour": 2}}, "price.currency: found nothing; expected a value"),
        ({"price": {**RENTED, "currency": "2 EUR"}}, "expected the name of a currency such as EUR"),
        ({"price": {**RENTED, "node_hour": 9}}, "found gpu_hour and node_hour; expected one of"),
        ({"price": {**RENTED, "years": 3}}, 'found "years"; expected node beside it'),
        ({"price": {"currency": "EUR", "node": 1e5}}, "price.years: found nothing; expected the years of its life"),
        ({"price": {**RENTED, "electricity": 0.3}}, "power: found nothing; expected the power, as there is a price of"),
        ({"price": {**RENTED, "gpu_huor": 2}}, 'unknown key "gpu_huor"; .*; nearest gpu_hour'),
        ({"power": {"gpu": "650 W"}}, "power.gpu: found 650 W; expected at most 400 W, which the board draws"),
        ({"power": {"idle": "450 W"}}, "power.idle: found 450 W; expected at most 400 W"),
        ({"power": {"node": "6 kW", "rest": 5}}, "power.rest: .* expected node without it"),
        ({"power": {"node": "6 kWh"}}, "power.node: .* expected a power such as"),
        ({"power": {"pue": 0.9}}, "power.pue: found 0.9; expected a number greater than or equal to 1"),
    ],
)
def test_what_does_not_go_together_is_told(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        scenario(**sections)


def test_a_gpu_without_a_known_board_asks_for_its_power() -> None:
    own = {"flops": "300 TFLOPS", "memory": "80 GB", "hbm": "2 TB/s", "count": 8}
    with pytest.raises(InputError, match=r"power\.gpu: found nothing; expected a power"):
        scenario(f"topology.node.gpus={own}", power={"rest": 100})
    assert summary(f"topology.node.gpus={own}", power={"gpu": 350}).energy is not None


# --- ranges ---


def test_a_range_is_that_of_the_step() -> None:
    """Money goes with time: what is slower by so much buys as much less."""
    drawn = sample(scenario(price=RENTED, power={"node": "6 kW"}), samples=4).as_json()
    tokens, money, joules = (drawn[f"tokens_per_{unit}"] for unit in ("second", "currency", "joule"))
    assert drawn["currency"] == "EUR"
    for part in ("p10", "p50", "p90"):
        assert money[part] == pytest.approx(tokens[part] * 3600 / 32)
        assert joules[part] == pytest.approx(tokens[part] / 12_000)


def test_a_range_with_idle_gpus_lies_between_both_powers() -> None:
    drawn = sample(scenario(power={"gpu": 400, "idle": 100}), samples=4)
    watts = [each.energy.watts for each in drawn.bills if each.energy]
    assert len(watts) == 4
    assert all(1600 < each < 6400 for each in watts)


def test_a_range_without_a_price_says_nothing_of_it() -> None:
    assert not {"tokens_per_currency", "tokens_per_joule", "currency"} & sample(scenario(), samples=2).as_json().keys()
