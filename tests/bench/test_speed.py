"""How much a simulation costs: CPU time, memory, and measures of work that do not depend on how busy the machine is.

A simulation is `simulate(scenario)`: build, price and play, after imports and loading. Work is held by counts. Tests
marked `timed` are for a quiet machine (`make bench`): CPU time is the least of several tries, for a neighbour can only
make it longer, and the tries end as soon as the target is met. Targets are seconds of the machine on which they were
set, known by a loop of the same kind of work (`reference`). Figures: `pytest -s`.
"""

from __future__ import annotations

import heapq
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.counting import calls
from zerosim import Scenario, Simulation, load, simulate

ROOT = Path(__file__).parents[2]
SEVEN_B = ROOT / "scenarios" / "seven-b" / "zero3.yaml"
ONE_MICRO_STEP = "training.gradient_accumulation_steps=1"
LARGE = ("model=gpt3-175b", "topology=dgx-a100-80", "nodes=128")  # 1,024 GPUs, 8 micro-steps, full checkpointing
HUGE = "nodes=2048"  # 16,384 GPUs

FEWEST, MOST = 3, 15  # tries
REFERENCE_SECONDS = 0.075  # of `reference` on the machine on which the targets were set


class Item(NamedTuple):
    number: int
    name: str
    after: tuple[int, ...]


def reference() -> int:
    """What a simulation is made of: small tuples, dictionaries, a heap."""
    queue: list[tuple[float, int]] = []
    seen: dict[int, Item] = {}
    for number in range(40_000):
        seen[number] = Item(number, "op", (number - 1,))
        heapq.heappush(queue, (number % 97 * 0.5, number))
        if number % 2:
            _, first = heapq.heappop(queue)
            seen[first] = seen[first]._replace(after=())
    return len(queue)


def cpu_seconds(run: Callable[[], object]) -> float:
    begun = time.process_time()
    result = run()
    seconds = time.process_time() - begun
    del result  # giving its memory back is no part of it
    return seconds


def least_seconds(run: Callable[[], object], target: float) -> float:
    """The least of a few tries, or of many while the target is not met, as the machine of the targets would take it.

    A slower machine, which takes longer for `reference` too, is told by tries of that between the others.
    """
    least = slowness = float("inf")
    for tried in range(MOST):
        if least / max(1.0, slowness) < target and tried >= FEWEST:
            break
        slowness = min(slowness, cpu_seconds(reference) / REFERENCE_SECONDS)
        least = min(least, cpu_seconds(run))
    return least / max(1.0, slowness)


def told(name: str, simulation: Simulation, seconds: float) -> None:
    ops = len(simulation.step.ops)
    print(
        f"\n{name}: {seconds:.3f} s, {ops} ops, {seconds / ops * 1e6:.1f} us and "
        f"{simulation.events / ops:.2f} events an op; the step takes {simulation.makespan:.3f} s"
    )


@pytest.fixture(scope="module")
def small() -> Scenario:
    return load(SEVEN_B, [ONE_MICRO_STEP])


@pytest.fixture(scope="module")
def large() -> Scenario:
    return load(SEVEN_B, LARGE)


@pytest.mark.timed
def test_a_micro_step_of_7b_on_8_gpus_takes_less_than_a_tenth_of_a_second(small: Scenario) -> None:
    seconds = least_seconds(lambda: simulate(small), 0.1)
    told("7B, 8 GPUs, 1 micro-step", simulate(small), seconds)
    whole = load(SEVEN_B)
    told("7B, 8 GPUs, 8 micro-steps", simulate(whole), least_seconds(lambda: simulate(whole), 1.0))
    assert seconds < 0.1


@pytest.mark.timed
def test_175b_on_1024_gpus_takes_less_than_a_second_and_a_half(large: Scenario) -> None:
    seconds = least_seconds(lambda: simulate(large), 1.5)
    simulation = simulate(large)
    told("175B, 1,024 GPUs, 8 micro-steps", simulation, seconds)
    summary = least_seconds(simulation.summary, 1.0)
    print(f"its summary: {summary:.3f} s")
    assert seconds < 1.5
    assert summary < 1.0


def test_175b_on_1024_gpus_is_played_op_by_op(large: Scenario) -> None:
    simulation = simulate(large)
    assert len(simulation.step.ops) > 40_000  # every kernel, hook and collective is there
    assert simulation.events < 2.3 * len(simulation.step.ops)


def test_16384_gpus_are_hardly_more_work_than_8(small: Scenario) -> None:
    huge = load(SEVEN_B, [ONE_MICRO_STEP, HUGE])
    few, many = simulate(small), simulate(huge)
    assert len(many.classes) == len(few.classes) == 1
    assert len(many.step.ops) == len(few.step.ops)
    assert many.events <= 1.2 * few.events
    on_few, on_many = (calls(partial(simulate, scenario)) for scenario in (small, huge))
    print(f"\n{on_many / on_few:.2f} times as many function calls on 16,384 GPUs as on 8")
    assert on_many <= on_few + 10 * 16_384  # a few walks over all ranks, and nothing that an op costs


@pytest.mark.timed
def test_16384_gpus_take_hardly_longer_than_8(small: Scenario) -> None:
    huge = load(SEVEN_B, [ONE_MICRO_STEP, HUGE])
    on_few = on_many = float("inf")
    for tried in range(MOST):
        if on_many <= 1.2 * on_few and tried >= FEWEST:
            break
        on_few = min(on_few, cpu_seconds(lambda: simulate(small)))
        on_many = min(on_many, cpu_seconds(lambda: simulate(huge)))
    told("7B, 16,384 GPUs, 1 micro-step", simulate(huge), on_many)
    assert on_many <= 1.2 * on_few


def test_the_work_for_an_op_is_small_on_any_machine(small: Scenario) -> None:
    one, eight, swapped = map(calls_an_op, (small, load(SEVEN_B), load(SEVEN_B.with_name("zero3-nvme.yaml"))))
    print(f"\nfunction calls an op: {one:.0f} in 1 micro-step, {eight:.0f} in 8, {swapped:.0f} with states on drives")
    assert one < 200
    assert eight < 120
    assert swapped < 190  # reads, writes and copies limit each other: the search for their rates is most of it


def calls_an_op(scenario: Scenario) -> float:
    return calls(lambda: simulate(scenario)) / len(simulate(scenario).step.ops)


MEMORY = """
import resource, sys
from zerosim import load, simulate
simulation = simulate(load(sys.argv[1], sys.argv[2:]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
simulation.summary()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no getrusage")
def test_175b_on_1024_gpus_needs_less_than_400_megabytes() -> None:
    command = [sys.executable, "-c", MEMORY, str(SEVEN_B), *LARGE]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes on Linux
    played, summarized = (int(line) * unit / 1e6 for line in run.stdout.split())
    print(f"\n175B, 1,024 GPUs: at most {played:.0f} MB, {summarized:.0f} MB with the summary")
    assert played < 400
