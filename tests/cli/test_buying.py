"""Prices and power at the command: what `run`, `compare` and `sweep` say of them, and that they say nothing unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.asking import ROOT, SMALL, ask
from tests.sweeps import written

RENT = ("--set", "topology.price={currency: EUR, gpu_hour: 2}")
PLUG = ("--set", "topology.power={node: 5 kW}")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


def test_run_says_what_a_step_costs(small: Path) -> None:
    """Eight GPUs: 16 EUR and 5 kWh an hour."""
    told = ask("run", small, *RENT, *PLUG, "--json").json
    assert told["cost"]["currency"] == "EUR"
    assert told["cost"]["per_hour"] == 16
    assert told["cost"]["tokens_per_currency"] == pytest.approx(told["tokens_per_second"] * 3600 / 16)
    assert told["energy"]["tokens_per_joule"] == pytest.approx(told["tokens_per_second"] / 5000)
    third = ask("run", small, *RENT, *PLUG).out.splitlines()[2]
    assert third.split("   ")[2] == "16 EUR/h"
    assert third.endswith(" tokens/J   5 kW")


def test_nothing_is_said_of_what_is_not_known(small: Path) -> None:
    plain = ask("run", small, "--json").json
    assert not {"cost", "energy"} & plain.keys()
    assert "tokens/J" not in ask("run", small).out
    assert "tokens/J" not in ask("compare", small, small).out
    assert "energy" not in ask("run", small, *RENT, "--json").json


def test_compare_shows_what_each_buys(small: Path) -> None:
    """The same step at half the price, and one of which no price is known."""
    cheap, unknown = (small.with_name(f"{name}.yaml") for name in ("cheap", "unknown"))
    machine = "topology: dgx-a100-80\n"
    half = (ROOT / "topologies" / "dgx-a100-80.yaml").read_text() + "price: {currency: EUR, gpu_hour: 1}\n"
    cheap.with_name("half.yaml").write_text(half)
    cheap.with_name("one.yaml").write_text(half.replace("gpu_hour: 1", "gpu_hour: 2"))
    unknown.write_text(small.read_text())
    cheap.write_text(small.read_text().replace(machine, "topology: half.yaml\n"))
    small.write_text(small.read_text().replace(machine, "topology: one.yaml\n"))
    lines = ask("compare", small, cheap, unknown).out.splitlines()
    (money,) = [line.split() for line in lines if line.startswith("tokens/EUR")]
    assert money[3:] == ["2x", "-", "-"]
    ranges = ask("compare", small, cheap, "--range", "--samples", "2", "--json").json
    (one, two) = (each["range"]["tokens_per_currency"]["p50"] for each in ranges)
    assert two == pytest.approx(2 * one)


def test_two_currencies_are_not_compared(small: Path) -> None:
    text = (ROOT / "topologies" / "dgx-a100-80.yaml").read_text()
    for currency in ("EUR", "USD"):
        machine = small.with_name(f"{currency}.yaml")
        machine.write_text(text + f"price: {{currency: {currency}, gpu_hour: 2}}\n")
        scenario = small.with_name(f"in-{currency}.yaml")
        scenario.write_text(small.read_text().replace("dgx-a100-80", machine.name))
    one, other = (small.with_name(f"in-{currency}.yaml") for currency in ("EUR", "USD"))
    (line,) = ask("compare", one, other).refused()
    assert line == f'{other}: topology.price.currency: found "USD"; expected "EUR", as {one} has'
    (line,) = ask("compare", one, one, "--set", "topology.price.gpu_hour=-1").refused()
    assert line.endswith("price.gpu_hour: found -1; expected a number greater than or equal to 0.000001")


def test_the_range_is_told_of_money_too(small: Path) -> None:
    said = ask("run", small, *RENT, *PLUG, "--range", "--samples", "2").out
    below = " ".join(said[said.index("\nrange:") :].split())
    assert below.index(" tokens/s (") < below.index(" tokens/EUR (") < below.index(" tokens/J (")


AXES = """\
axes:
  nodes: [1, 2]
"""
PAYS = "  pays: {cases: {rent: {topology.price: {currency: EUR, gpu_hour: 2}}, buy: {topology.price: BOUGHT}}}\n"


def test_a_sweep_has_a_column_of_money(tmp_path: Path) -> None:
    file = written(tmp_path, AXES)
    said = ask("sweep", file, *RENT, *PLUG, "--processes", "1").out
    assert said.splitlines()[2].split()[-2:] == ["tokens/EUR", "tokens/J"]
    rows = ask("sweep", file, *RENT, "--processes", "1", "--json").json["rows"]
    assert [row["cost.per_hour"] for row in rows] == [16, 32]
    table = ("--set", "table={rows: nodes, columns: pays, value: cost.tokens_per_currency}")
    bought = PAYS.replace("BOUGHT", "{currency: USD, node: 100000, years: 3}")
    both = written(tmp_path, AXES, bought)
    assert "currency  tokens/currency" in ask("sweep", both, "--processes", "1").out
    assert "cost.tokens_per_currency in EUR and USD, which do not compare." in (
        ask("sweep", both, *table, "--processes", "1").out
    )


@pytest.mark.parametrize(
    "path", ["seven-b/zero3.yaml", "gpt2-large-ddp-4090.yaml", "ten-b-one-v100.yaml", "slow-network/zeropp.yaml"]
)
def test_machines_that_come_with_zerosim_know_their_boards(path: str) -> None:
    watts = {"seven-b/zero3.yaml": 8 * 400, "gpt2-large-ddp-4090.yaml": 4 * 450, "ten-b-one-v100.yaml": 300}
    told = ask("run", ROOT / "scenarios" / path, "--set", "topology.power={}", "--json").json
    assert told["energy"]["watts"] == pytest.approx(watts.get(path, 32 * 400))
    assert told["energy"]["joules_per_step"] == pytest.approx(told["energy"]["watts"] * told["step_seconds"])
    assert any(note.startswith("power is that of the GPUs: the most that") for note in told["assumptions"])
