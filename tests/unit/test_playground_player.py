"""What the playground plays: how large a step may be, what is kept, what nobody waits for any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import yaml

from tests.cli.asking import ROOT, SMALL
from zerosim.errors import InputError
from zerosim.playground import player
from zerosim.playground.controls import BY_NAME, CONTROLS, ZERO
from zerosim.playground.limits import MOST_GPUS, MOST_OPS, MOST_TOKENS, check_programs, check_size
from zerosim.playground.machines import machines
from zerosim.playground.player import Newest, Player, SupersededError
from zerosim.playground.start import Start, begin, start_of
from zerosim.playground.state import Complaint, complaints, scenario_of
from zerosim.playground.thread import PlayThread
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import programs, simulate

SMALL_ONE = yaml.safe_load(SMALL)


def small(**changes: Any) -> Start:
    return start_of(from_mapping({**SMALL_ONE, **changes}))


# --- how large a step may be -----------------------------------------------------------------------------------------


def too_large(scenario: Scenario) -> Complaint:
    with pytest.raises(InputError) as error:
        check_size(scenario)
    (beside,) = complaints(error.value)
    return beside


def test_what_would_take_too_long_is_refused_before_it_is_written() -> None:
    start = begin()
    long = too_large(scenario_of(start, {**start.state, "accumulation": 81}))
    assert long == Complaint("accumulation", long.text)
    assert long.text.startswith("found 81; expected at most 80 for 32 layers")
    wide = too_large(scenario_of(start, {**start.state, "nodes": MOST_GPUS // 8 + 1}))
    assert (wide.control, "65544 GPUs" in wide.text) == ("nodes", True)
    for name, least in (("sequence", 1), ("micro_batch", start.state["sequence"])):
        most = MOST_TOKENS // int(least or 1)
        much = too_large(scenario_of(start, {**start.state, name: most + 1}))
        assert (much.control, f"found {most + 1}; expected at most {most:,} on this page" in much.text) == (name, True)
    check_size(scenario_of(start, {**start.state, "accumulation": 80, "nodes": MOST_GPUS // 8}))


def test_ranks_of_many_kinds_are_played_one_by_one_and_count_as_often() -> None:
    slow = [{"gpu": f"0.{gpu}", "compute": 0.9 - gpu / 100} for gpu in range(8)]
    machine = yaml.safe_load((ROOT / "topologies/dgx-a100-80.yaml").read_text()) | {"overrides": slow}
    scenario = small(topology=machine).scenario
    steps = programs(scenario)
    check_programs(scenario, steps)
    with pytest.raises(InputError, match=r"topology: found .* ops for each of 8 kinds of ranks"):
        check_programs(scenario, steps * (MOST_OPS // len(steps[0].ops) // 8 + 1))


# --- playing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """The scenarios whose programs were written."""
    seen: list[Scenario] = []

    def noted(scenario: Scenario) -> Any:
        seen.append(scenario)
        return programs(scenario)

    monkeypatch.setattr(player, "programs", noted)
    return seen


def test_programs_are_written_once_for_all_rates_and_machines_of_as_many_ranks(written: list[Scenario]) -> None:
    start = small(nodes=2)
    playing = Player(start)
    steps = [playing.play({**start.state, "network": rate}).summary.step_seconds for rate in (None, 100, 25, 10)]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    playing.play({**start.state, "topology": "dgx-h100"})
    assert len(written) == 1
    playing.play({**start.state, "micro_batch": 2})
    playing.play(start.state)
    assert len(written) == 2


def test_what_nobody_waits_for_any_more_is_not_played(written: list[Scenario]) -> None:
    playing, newest = Player(small()), Newest()
    newest.asks("page", 2)
    newest.asks("page", 1)
    assert [newest.wants("page", number) for number in (1, 2, 3)] == [False, True, True]
    assert newest.wants("another", 1)
    with pytest.raises(SupersededError):
        playing.play(playing.start.state, lambda: newest.wants("page", 1))
    assert written == []
    playing.play(playing.start.state, lambda: newest.wants("page", 2))
    assert len(written) == 1


def test_an_answer_is_that_of_the_scenario_played_alone() -> None:
    start = small()
    state: Mapping[str, Any] = {**start.state, "strategy": "zero3", "reduce_bucket": 1e6, "micro_batch": 3}
    alone = simulate(scenario_of(start, state))
    played = Player(start).play(state)
    assert played.summary == alone.summary()
    assert played.simulation.spans == alone.spans


# --- the table -------------------------------------------------------------------------------------------------------


def test_sliders_have_stops_in_order_and_machines_say_what_they_offer() -> None:
    for control in CONTROLS:
        assert list(control.stops) == sorted(set(control.stops)), control.name
        assert control.kind == "number" or not control.stops
    assert BY_NAME["reduce_bucket"].path == (*ZERO, "reduce_bucket_size")
    assert machines()["dgx-a100-80"].network == pytest.approx(200)
    assert machines()["pcie-1x-rtx4090"].network is None
    assert machines()["dgx-a100-80"].tiers == ("cpu", "nvme")


# --- ending ----------------------------------------------------------------------------------------------------------


def test_nobody_who_leaves_waits_for_what_is_being_played() -> None:
    """A program whose thread is at something endless ends."""
    words = (
        "import time; from zerosim.playground.thread import PlayThread; PlayThread().does(lambda: time.sleep(3600)); "
    )
    told = subprocess.run(
        [sys.executable, "-c", f"{words}print('left')"], capture_output=True, text=True, timeout=60, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (told.stdout, told.stderr) == ("left\n", "")


def test_work_is_done_in_turn_and_what_fails_is_told() -> None:
    thread, seen = PlayThread(), list[int]()
    results = [thread.does(partial(seen.append, each)) for each in range(3)]
    failed = thread.does(partial(int, "x"))
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(20)
    assert (seen, [each.done() for each in results]) == ([0, 1, 2], [True] * 3)
