"""What the drawing is handed over, by hand on timelines whose every number can be checked with a pencil."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import timelines
from zerosim.report.figure import figure, script, style
from zerosim.report.figure.columns import TICKS, moments, sizes, whole
from zerosim.report.figure.curves import thinned
from zerosim.report.figure.words import Named, Told, named
from zerosim.report.palette import INKS
from zerosim.resources import RankClass
from zerosim.step import Step
from zerosim.timeline import Timeline
from zerosim.views.memory import Curve

KINDS = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f32": "<f4"}
Numbers = npt.NDArray[np.float64]


def unpacked(column: Any, count: int) -> Numbers:
    """What the page makes of a column."""
    if isinstance(column, int | float):
        return np.full(count, float(column))
    if column[0] == "some":
        values = np.zeros(count)
        some = 1 if isinstance(column[1], int) else len(base64.b64decode(column[1][1])) // int(KINDS[column[1][0]][2])
        values[unpacked(column[1], some).astype(int)] = unpacked(column[2], some)
        return values
    if column[0] == "u40":
        return np.frombuffer(base64.b64decode(column[1]), np.uint8).reshape(-1, 5) @ 256.0 ** np.arange(5)
    return np.frombuffer(base64.b64decode(column[1]), dtype=KINDS[column[0]]).astype(np.float64)


def seconds(drawn: dict[str, Any], column: Any, count: int) -> Numbers:
    tick: float = drawn["seconds"] / TICKS
    return unpacked(column, count) * tick


def told(drawn: dict[str, Any], rank_class: int, op: int) -> dict[str, Any]:
    """The row of an op, its texts spelled out."""
    known = drawn["classes"][rank_class]
    row = Told(*drawn["rows"][int(unpacked(known["row"], known["ops"])[op])])
    texts = {name: drawn["texts"][getattr(row, name)] for name in ("before", "after", "phase", "limit", "detail")}
    return row._asdict() | texts | {"lane": drawn["texts"][row.lane] if row.lane >= 0 else ""}


# --- one class -------------------------------------------------------------------------------------------------------


def test_when_and_why_each_op_ran() -> None:
    drawn = figure(timelines.tiny(), "tiny")
    known = drawn["classes"][0]
    assert (drawn["title"], drawn["seconds"], known["ops"]) == ("tiny", 27.0, 10)
    start = seconds(drawn, known["start"], 10)
    assert start == pytest.approx([0, 2, 2, 5, 8, 14, 14, 20, 24, 26], abs=1e-9)
    length = seconds(drawn, known["end"], 10) - start
    assert length == pytest.approx([2, 2, 3, 3, 6, 3, 6, 3, 2, 1], rel=1e-10)
    assert seconds(drawn, known["issued"], 10) == pytest.approx([0, 0, 1, 1, 2, 3, 4, 5, 24, 24], abs=1e-9)
    assert known["waited"] == 0.0  # one class waits for nobody
    # forward 0 for gather 0, reduce 1 for backward 1, ...; gather 0 and adam began when the host had issued them
    assert unpacked(known["cause"], 10).tolist() == [0, 1, 2, 1, 1, 1, 2, 1, 0, 1]
    assert known["awaited"] == [[8, 7]]  # the host waits for reduce 0 before it issues adam
    assert [drawn["texts"][lane] for lane in known["lanes"]] == ["compute", "nccl.dp", "d2h"]
    assert unpacked(known["layer"], 10).tolist() == [1, 2, 1, 2, 2, 2, 1, 1, 0, 0]  # one more; 0 is none


def test_what_is_told_of_an_op() -> None:
    drawn = figure(timelines.tiny())
    gather = told(drawn, 0, 1)
    assert (gather["before"], gather["lane"], gather["phase"]) == ("gather ", "nccl.dp", "forward")
    assert (gather["amount"], gather["unit"], gather["limit"]) == (40.0, "B", "NIC 20 B/s")
    assert (gather["busy"], gather["alone"]) == (2.0, 2.0)  # 40 B at 20 B/s
    assert gather["detail"] == "bf16 over 2 ranks, group dp, ring"
    forward = told(drawn, 0, 2)
    assert (forward["amount"], forward["unit"], forward["busy"], forward["alone"]) == (240.0, "FLOP", 2.4, 3.0)
    assert (forward["host"], forward["follows"]) == (1.0, 0)
    assert told(drawn, 0, 8)["follows"] == 1
    assert told(drawn, 0, 9)["detail"] == "gpu to dram"
    names = [kind["name"] for kind in drawn["kinds"]]
    assert names[gather["kind"]] == "all_gather"
    assert names[: len(INKS)] == list(INKS)


def test_what_stands_above_and_below_the_lanes() -> None:
    drawn = figure(timelines.tiny())
    known = drawn["classes"][0]
    assert known["phases"] == [["forward", 0.0, 8.0], ["backward", 8.0, 23.0], ["optimizer", 23.0, 27.0]]
    bare = known["exposed"]
    kinds = [drawn["kinds"][int(kind)]["name"] for kind in unpacked(bare["kind"], bare["count"])]
    starts = seconds(drawn, bare["start"], bare["count"])
    ends = seconds(drawn, bare["end"], bare["count"])
    found = list(zip(kinds, starts.round(6), ends.round(6), strict=True))
    assert found == [("exposed", 0.0, 2.0), ("exposed", 20.0, 23.0), ("copying", 26.0, 27.0)]
    layers = known["layers"]
    assert unpacked(layers["layer"], layers["count"]).tolist() == [0, 1, 0]  # adjacent work of layer 1 is one band


def test_memory_and_its_capacity() -> None:
    gpu, dram = figure(timelines.tiny())["memory"][0]
    assert (gpu["tier"], gpu["capacity"], gpu["peak"]) == ("gpu", 1e9, 550e6)
    assert gpu["peakOp"] == "backward 1"
    assert [curve["name"] for curve in gpu["curves"]] == ["allocated + overhead", "busy", "reserved"]
    allocated = gpu["curves"][0]
    assert unpacked(allocated["bytes"], allocated["points"]).max() == 550e6
    assert (dram["title"], dram["peak"], len(dram["curves"])) == ("host memory", 40e6, 1)


def test_a_tier_seen_already_is_not_looked_at_again() -> None:
    assert figure(timelines.tiny(), tiers={})["memory"] == [[]]


# --- any timeline ----------------------------------------------------------------------------------------------------


def test_the_slowest_class_first_and_as_many_as_there_is_room_for() -> None:
    drawn = figure(timelines.skewed())
    assert [known["name"] for known in drawn["classes"]] == ["fast", "slow"]  # they end together, at 45 s
    assert drawn["untold"] == ""
    fast = drawn["classes"][0]
    waited = seconds(drawn, fast["waited"], fast["ops"])
    assert [waited[5], waited[7]] == pytest.approx([12.0, 9.0])  # reduce 1 from 14 to 26, reduce 0 from 29 to 38
    small = figure(timelines.skewed(), most=10)
    assert [known["name"] for known in small["classes"]] == ["fast"]
    assert small["untold"] == "1 more kinds of ranks (1 ranks) are not drawn: the slowest are"


def test_without_memory_and_host_times() -> None:
    drawn = figure(timelines.host_optimizer())
    assert (drawn["memory"], drawn["classes"][0]["memory"], drawn["classes"][0]["host"]) == ([], -1, False)
    assert told(drawn, 0, 1)["lane"] == "CPU"


def test_a_step_of_nothing() -> None:
    step = Step((), (), frozenset(), {}, micro_batches=1)
    nothing = Timeline((step,), (RankClass("all", (0,)),), {"all": ()}, {"all": ()}, timelines.supply())
    drawn = figure(nothing)
    assert (drawn["seconds"], drawn["classes"][0]["lanes"], drawn["classes"][0]["exposed"]["count"]) == (0.0, [], 0)


def test_what_a_drive_and_a_marker_are_told_as() -> None:
    drawn = figure(timelines.offloaded())
    lanes = [drawn["texts"][lane] for lane in drawn["classes"][0]["lanes"]]
    assert lanes == ["compute", "reduce", "gather", "NVMe reads", "NVMe writes", "CPU"]
    assert told(drawn, 0, 2)["detail"] == "gpu to dram, pageable"
    assert told(drawn, 0, 9)["lane"] == ""  # the marker at the end has no lane: only the host meets it


# --- size ------------------------------------------------------------------------------------------------------------


def test_twenty_thousand_ops_are_well_under_a_megabyte() -> None:
    timeline = timelines.many(20_000)
    drawn = figure(timeline)
    text = json.dumps(drawn, separators=(",", ":"))
    assert len(text) < 750_000
    assert len(drawn["rows"]) < 20  # names differ in their numbers alone
    assert text == json.dumps(figure(timeline), separators=(",", ":"))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("model.layers.11.mlp.up_proj fwd", Named("model.layers.", ".mlp.up_proj fwd", 12)),
        ("gather 0", Named("gather ", "", 1)),
        ("cast to fp32", Named("cast to fp32", "", 0)),
        ("step 007", Named("step 007", "", 0)),  # would come back as 7
        ("12 of 13", Named("", " of 13", 13)),
    ],
)
def test_names_are_parted_at_their_first_number(name: str, parts: Named) -> None:
    assert named(name) == parts


@given(st.text(max_size=30))
def test_a_name_comes_back_as_it_was(name: str) -> None:
    found = named(name)
    assert found.before + (str(found.number - 1) if found.number else "") + found.after == name


@given(st.lists(st.sampled_from([0, 255, 256, 2**16, 2**32 - 1, 2**32, TICKS]) | st.integers(0, TICKS), min_size=1))
def test_whole_numbers_come_back(numbers: list[int]) -> None:
    assert unpacked(whole(numbers), len(numbers)).tolist() == numbers


@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.5, 2.25, 1e-6]), min_size=1))
def test_sizes_come_back_with_seven_digits(numbers: list[float]) -> None:
    assert unpacked(sizes(np.array(numbers)), len(numbers)) == pytest.approx(numbers, rel=1e-7)


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(1e-6, 1e4))
def test_moments_come_back_to_a_tick(shares: list[float], step: float) -> None:
    found = unpacked(moments([share * step for share in shares], step), len(shares)) * (step / TICKS)
    assert found == pytest.approx([share * step for share in shares], abs=step / TICKS)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), min_size=1, max_size=80), st.integers(1, 8))
def test_a_thinned_curve_keeps_its_peaks(points: list[tuple[float, int]], slices: int) -> None:
    points.sort(key=lambda point: point[0])
    curve = Curve(np.array([0.0, *(at for at, _ in points)]), np.array([0.0, *(float(level) for _, level in points)]))
    short = thinned(curve, 1.0, slices)
    assert short.bytes.max() == curve.bytes.max()
    assert short.bytes[-1] == curve.bytes[-1]
    assert len(short.bytes) <= 2 * slices
    assert (np.diff(short.seconds) >= 0).all()


# --- the script ------------------------------------------------------------------------------------------------------


def test_the_script_may_stand_in_a_strict_page() -> None:
    text = script()
    assert text.startswith('(() => {\n"use strict";')
    assert not any(word in text for word in ("</script", "innerHTML", "eval(", "new Function", "http:", "https:"))
    assert "</style" not in style()
    colours = {ink.colour for ink in INKS.values()}
    assert not any(colour in text + style() for colour in colours)  # the palette is handed over, not repeated


def test_dark_is_the_same_by_preference_and_by_choice() -> None:
    blocks = [set(re.findall(r"--zerosim-[\w-]+: [^;]+;", block)) for block in style().split("{")]
    dark = [block for block in blocks if "--zerosim-paper: #16181c;" in block]
    assert len(dark) == 2
    assert dark[0] == dark[1]
