"""How much a point of a sweep costs: function calls, which do not depend on how busy the machine is.

Ten thousand points of the 7B step on two cores in ten minutes are 0.12 s of one core a point.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.counting import calls
from zerosim.spec.sweep_file import read_sweep
from zerosim.studies.sweep_questions import Answering, Question

SWEEP = Path(__file__).parents[2] / "scenarios" / "bucket-sweep.yaml"


@pytest.fixture(scope="module")
def first() -> tuple[Answering, list[Question]]:
    """The questions of a few points, of which the first is answered."""
    asked = read_sweep(SWEEP, ["axes.reduce.values=[5e7, 5e8]", "axes.kept.values=[1e5]", "axes.prefetch.values=[5e7]"])
    ask, questions = Answering(asked.document, asked.base), [Question.of("row", p.changes) for p in asked.points()]
    assert ask(questions[0])["step_seconds"] > 0
    return ask, questions


def test_a_point_on_another_network(first: tuple[Answering, list[Question]]) -> None:
    ask, questions = first
    made = calls(lambda: ask(questions[1]))
    print(f"\nanother network: {made} calls")
    assert made < 480_000


def test_a_point_with_other_buckets(first: tuple[Answering, list[Question]]) -> None:
    ask, questions = first
    ask(questions[1])
    made = calls(lambda: ask(questions[-1]))
    print(f"\nother buckets: {made} calls")
    assert made < 640_000


@pytest.fixture
def as_by_default() -> Iterator[None]:
    """Garbage is looked for as often as Python does where nobody asks for less (tests/conftest.py does)."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("as_by_default")
def test_garbage_is_looked_for_once_a_point_and_only_among_what_is_new(first: tuple[Answering, list[Question]]) -> None:
    ask, questions = first
    looked: list[int] = []

    def hear(phase: str, about: dict[str, int]) -> None:
        looked.extend([about["generation"]] if phase == "start" else [])

    gc.callbacks.append(hear)
    try:
        ask(questions[2])
        ask(questions[-2])
    finally:
        gc.callbacks.remove(hear)
    assert looked == [0, 0]
