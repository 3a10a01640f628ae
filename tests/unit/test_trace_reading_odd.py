"""Odd events in a trace that can be read all the same: what is left out is told, and nothing is guessed. By hand."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.profiled import GEMM, MAIN, REDUCE, complete, document, kernel, launch, memory, three_steps, write
from tests.timelines import skewed
from tests.traced import summary, us
from zerosim.errors import InputError
from zerosim.measured import read_trace
from zerosim.report import recorded, trace
from zerosim.report.comparison import quantities, render_comparison, title
from zerosim.spec.profile import read_profile
from zerosim.spec.profile_kernels import is_communication
from zerosim.views.recorded import Recorded

ANYTHING: tuple[Any, ...] = (
    None, True, -1, 3.5, 1e308, -1e308, 10**40, float("nan"), "", "1e999", "\x1b]0;x\x07", "\ud800", [], [7], {},
)  # fmt: skip


def told(known: Recorded) -> dict[str, str]:
    return {finding.code: finding.message for finding in known.findings}


# --- anything anywhere ------------------------------------------------------------------------------------------------


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a file."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, each in inside for path in [(*before, key), *paths(each, (*before, key))]]


def test_anything_in_any_field_is_an_answer_or_a_refusal(tmp_path: Path) -> None:
    more: dict[str, Any] = {"op": "a", "phase": "forward", "micro-batch": 0, "layer": 1}
    own = kernel("gemm fwd a", 41, 50, 3, **more)
    wait = complete("cudaStreamSynchronize", "cuda_runtime", MAIN, 20, 40, correlation=9)
    step = complete("ProfilerStep#1", "user_annotation", MAIN, 0, 90)
    said: dict[str, Any] = {"op": "r", "waited for ranks": 2, "Collective name": "allreduce", "dtype": "Float"}
    said |= {"In msg nelems": 8, "Group size": 2}
    events = [step, launch(0, 1), kernel(GEMM, 10, 20, 1), kernel(REDUCE, 20, 40, 2, **said), wait, own]
    whole = document([*events, memory(5, 10, 20)]) | {"contextBytes": 1, "traceName": "zerosim rank 0"}
    for turn, path in enumerate(paths(whole)):
        for value in ANYTHING[turn % 6 :: 6]:
            odd = deepcopy(whole)
            place: Any = odd
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            try:
                known = read_trace(write(tmp_path / "t.json", json.dumps(odd))).summary()
            except InputError:
                continue
            assert recorded.render(known).encode()
            json.dumps(known.as_json(), allow_nan=False)


def test_a_step_with_a_number_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    digits = "7" * 5000
    odd = complete(f"ProfilerStep#{digits}", "user_annotation", MAIN, 0, 100)
    assert summary(tmp_path, [odd, kernel(GEMM, 10, 20, 1)]).step == "the whole trace"
    file = write(tmp_path / "t.json", '{"traceEvents": [{"ts": ' + digits + "}]}")
    with pytest.raises(InputError, match="1:18: found a number of thousands of digits"):
        read_trace(file)


# --- what is left out is told -----------------------------------------------------------------------------------------


def test_gpu_events_without_a_place_in_time_are_counted(tmp_path: Path) -> None:
    bad = [kernel(GEMM, 0, 10, number) for number in range(6)]
    del bad[0]["dur"]
    bad[1]["dur"], bad[2]["ts"], bad[3]["ts"], bad[4]["name"], bad[5]["dur"] = -1, None, 1e300, 5, "x"
    known = summary(tmp_path, [*three_steps(), *bad, {"ph": "X", "cat": "cpu_op", "name": "not of the GPU"}])
    assert told(known) == {
        "events-left-out": "GPU events of t.json are left out: 2 have no duration, 1 has a negative duration, "
        "2 have no time, 1 has no name."
    }
    with pytest.raises(InputError, match="no GPU event that can be used: 1 has no duration; expected ts and dur in"):
        summary(tmp_path, bad[:1])


def test_of_steps_of_one_number_the_earliest_is_taken_and_told(tmp_path: Path) -> None:
    again = complete("ProfilerStep#5", "user_annotation", MAIN, 5000, 5100)
    known = summary(tmp_path, [again, *three_steps()], step=5)
    assert us(known.step_seconds) == 1000
    assert told(known)["steps-repeated"] == "ProfilerStep#5 is in t.json more than once; the earliest is taken."


def test_a_rank_beyond_the_world_is_told(tmp_path: Path) -> None:
    known = read_trace(write(tmp_path / "t.json", document(three_steps(), 5, 2))).summary()
    assert told(known) == {"rank-unlikely": "t.json says that it is of rank 5 of 2, which are counted from 0."}


@pytest.mark.parametrize("form", [document(three_steps()), three_steps()])
def test_what_follows_the_end_is_refused(form: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match='found "and more" after the end of the JSON'):
        read_trace(write(tmp_path / "t.json", json.dumps(form) + "\n and more"))


def test_no_name_is_no_folder() -> None:
    with pytest.raises(InputError, match="found no name; expected the name of a file or a folder"):
        read_trace("")


# --- names, sizes and what is not known -------------------------------------------------------------------------------


def test_names_are_shown_with_their_controls_as_escapes(tmp_path: Path) -> None:
    """An escape sequence, a bell, an override of direction: of a kernel, a stream, a GPU and a file."""
    row = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 9, "args": {"name": "stream 9 \x1b[31m"}}
    odd = kernel("odd\x1b]0;title\x07\u202ekernel", 0, 10, 1, stream=9)
    whole = document([odd, kernel(GEMM, 10, 90, 2), row])
    whole["deviceProperties"][0]["name"] = "GPU\x00"
    measured = read_trace(write(tmp_path / "a\x07.json", whole))
    known = measured.summary()
    assert (known.scenario, known.product) == (r"a\x07.json", r"GPU\x00")
    op = measured.step.ops[0]
    assert (op.name, op.stream) == (r"odd\x1b]0;title\x07\u202ekernel", r"\x1b[31m")
    assert recorded.render(known).replace("\n", "").isprintable()


def test_a_capacity_is_called_one_and_is_no_less_than_something(tmp_path: Path) -> None:
    head = recorded.render(summary(tmp_path, three_steps())).splitlines()[1]
    assert head.endswith("NVIDIA A100-SXM4-80GB   capacity 85 GB")
    known = summary(tmp_path, three_steps(), deviceProperties=[{"id": 0, "name": "H100", "totalGlobalMem": -5}])
    assert known.memory.capacity_bytes is None
    assert recorded.render(known).splitlines()[1].endswith("H100")


def test_an_unknown_resource_is_null_and_is_not_printed(tmp_path: Path) -> None:
    known = summary(tmp_path, three_steps())
    stalls = known.as_json()["stalls"]
    assert {(each["cause"], each["resource"], each["label"]) for each in stalls} == {
        ("host", "host", "host"), ("launch", None, None), ("transfer", None, None), ("all_reduce", None, None),
    }  # fmt: skip
    assert "none" not in recorded.render(known)


def test_without_launches_the_end_of_the_step_blames_nobody_either(tmp_path: Path) -> None:
    """The host leaves the step 40 us after the last kernel; whether it was late nobody knows."""
    step = complete("ProfilerStep#1", "user_annotation", MAIN, 0, 100)
    known = summary(tmp_path, [step, kernel(GEMM, 10, 60, 1)])
    assert [(stall.cause, stall.resource, us(stall.seconds)) for stall in known.stalls] == [("idle", "", 50)]


@pytest.mark.parametrize("name", ["nvshmem_x", "void nvshmemi_put", "msccl_x", "void mscclpp::allreduce<half>(int)"])
def test_kernels_of_other_libraries_of_collectives(name: str) -> None:
    assert is_communication(name)


def test_without_communication_no_share_of_it_is_hidden(tmp_path: Path) -> None:
    alone = summary(tmp_path, [kernel(GEMM, 0, 10, 1)])
    hidden = next(each for each in quantities([alone, alone]) if each.name == "communication hidden")
    assert hidden.values == [None, None]
    assert "0x" not in render_comparison([alone, alone])


# --- of a simulated step ----------------------------------------------------------------------------------------------


def test_who_waited_in_a_simulated_step_is_told_by_its_trace(tmp_path: Path) -> None:
    """`fast` has come to each collective before `slow`; the kernels of both begin together, as the summary counts."""
    played = skewed()
    files = trace.write(played, f"{tmp_path}/")
    known = read_trace(tmp_path).summary()
    waited = {each.name: sum(span.start - span.ready for span in played.spans[each.name]) for each in played.classes}
    assert [each.waited_seconds for each in known.classes] == pytest.approx(list(waited.values()))
    assert min(waited.values()) == 0 < max(waited.values())
    assert title(known) == f"{tmp_path.name} (simulated, step 0)"
    assert known.as_json()["measured"] is False
    old = [json.loads(file.read_text().replace('"waited for ranks"', '"waited"')) for file in files]
    for file, content in zip(files, old, strict=True):
        write(file, content)
    assert [each.waited_seconds for each in read_trace(tmp_path).summary().classes] == [None, None]


def test_the_peak_of_a_simulated_step_has_its_context(tmp_path: Path) -> None:
    events = [*three_steps(), memory(1200, 60, 80)]
    own = summary(tmp_path, events, contextBytes=7, traceName="zerosim rank 0").memory
    assert (own.allocated_bytes, own.peak_bytes) == (53, 60)
    assert summary(tmp_path, events).memory.peak_bytes is None
    fraction = memory(1200, 60.4, 80.6)
    assert read_profile(write(tmp_path / "t.json", document([*three_steps(), fraction]))).levels[0].allocated == 60
