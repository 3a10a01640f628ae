"""ZeRO-Offload's published step, phase by phase: 10B on one V100 (zero-offload.yaml). `pytest -s` prints the table.

What the errors say. Full recomputation makes the backward's compute three times the forward's, so of the published
12.2 s of backward at most 4.1 s are one forward; 2.2 s or more of the published forward (6.23 s) are no compute of the
model, and nothing in the program explains them. The optimizer is 20 % too quick: the run is of 2020, with other code of
the CPU's optimizer, and its host is not named.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from zerosim import load, simulate
from zerosim.spec.loading import read
from zerosim.step import PHASES, Phase
from zerosim.units import parse_seconds, parse_size
from zerosim.views import Summary

HERE = Path(__file__).parent
PUBLISHED = read(HERE / "zero-offload.yaml").data


@cache
def step() -> Summary:
    return simulate(load(HERE.parents[1] / "scenarios" / "ten-b-one-v100.yaml")).summary()


def error(phase: Phase) -> float:
    return step().phases[phase] / parse_seconds(PUBLISHED[phase]) - 1


def test_the_phases_beside_the_published_ones() -> None:
    print("\nphase      published  predicted   error")
    for phase in PHASES:
        published = parse_seconds(PUBLISHED[phase])
        print(f"{phase:<9}  {published:>7.2f} s  {published * (1 + error(phase)):>7.2f} s  {100 * error(phase):+.0f} %")
    assert error("forward") == pytest.approx(-0.5, abs=0.05)  # stated, not good: see above
    assert error("backward") == pytest.approx(0, abs=0.1)
    assert error("optimizer") == pytest.approx(-0.2, abs=0.05)


def test_what_the_published_phases_do_not_tell_of_compute() -> None:
    """Of the backward no more than a third can be what the forward computes; the prediction is below that bound."""
    assert step().phases["forward"] < parse_seconds(PUBLISHED["backward"]) / 3 < parse_seconds(PUBLISHED["forward"])


def test_the_memory_of_the_gpu() -> None:
    assert step().fits
    assert step().memory["gpu"].peak_bytes == pytest.approx(parse_size(PUBLISHED["peak"]), rel=0.05)
