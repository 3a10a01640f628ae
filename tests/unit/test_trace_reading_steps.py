"""Which step of a trace is read: by hand, on the trace of tests/profiled.py."""

from pathlib import Path

import pytest

from tests.profiled import GEMM, MAIN, STEP, complete, document, kernel, launch, step_events, three_steps, write
from tests.traced import read, summary, us
from zerosim.errors import InputError
from zerosim.measured.steps import window
from zerosim.spec.profile import read_profile


@pytest.mark.parametrize(("wanted", "label"), [(None, "step 5"), (4, "step 4"), (6, "step 6")])
def test_the_step_that_is_asked_for(tmp_path: Path, wanted: int | None, label: str) -> None:
    known = summary(tmp_path, three_steps(), wanted)
    assert (known.step, us(known.step_seconds), us(known.breakdown.compute)) == (label, STEP, 540)


def test_only_one_step_has_a_number(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path / "t.json", document(three_steps())))
    assert (window(profile, 0).number, window(profile, 0, 4).number, window(profile, 0, "all").number) == (5, 4, None)
    events = [kernel(GEMM, 10, 30, 1)]
    assert window(read_profile(write(tmp_path / "t.json", document(events))), 0).number is None


def test_the_middle_of_many_steps_is_taken(tmp_path: Path) -> None:
    events = [event for place in range(6) for event in step_events(place, place)]
    assert summary(tmp_path, events).step == "step 2"  # of 0 to 4


def test_kernels_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    """The GPU is behind: what step 1 launched ends at 130, so step 2 begins there; both together are the whole."""
    events = [
        complete("ProfilerStep#1", "user_annotation", MAIN, 0, 100),
        complete("ProfilerStep#2", "user_annotation", MAIN, 100, 200),
        launch(10, 1), kernel(GEMM, 20, 130, 1),
        launch(105, 2), kernel(GEMM, 140, 190, 2),
    ]  # fmt: skip
    first, second = (summary(tmp_path, events, step) for step in (1, 2))
    assert [us(first.step_seconds), us(second.step_seconds)] == [130, 70]
    assert [us(first.breakdown.compute), us(second.breakdown.compute)] == [110, 50]
    assert {stall.cause: us(stall.seconds) for stall in second.stalls} == {"launch": 10, "host": 10}


def test_without_steps_the_trace_is_one(tmp_path: Path) -> None:
    known = summary(tmp_path, [kernel(GEMM, 10, 30, 1), kernel(GEMM, 40, 60, 2)])
    assert (known.step, us(known.step_seconds)) == ("the whole trace", 50)


def test_without_launches_a_gap_is_idle_and_nobody_is_blamed(tmp_path: Path) -> None:
    known = summary(tmp_path, [kernel(GEMM, 10, 30, 1), kernel(GEMM, 40, 60, 2)])
    assert [(stall.cause, us(stall.seconds)) for stall in known.stalls] == [("idle", 10)]
    assert "launches-unknown" in {finding.code for finding in known.findings}


def test_a_step_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--step: found 50; expected a step of .*t.json: 4, 5, 6; nearest 5"):
        read(tmp_path, three_steps(), 50)
