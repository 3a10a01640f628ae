"""A sweep played: its rows, errors as rows, what it is compared with, and that no accident changes them."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
from functools import partial
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.sweeps import AGAINST, GRID, STAGE, written
from zerosim import from_mapping, simulate
from zerosim.errors import InputError
from zerosim.report.sweep import Sheet, render_sweep, show_label, show_value
from zerosim.spec.changes import parse_change
from zerosim.spec.sweep import Sweep
from zerosim.spec.sweep_file import read_sweep
from zerosim.studies import sweep_questions
from zerosim.studies.journal import Journal, kept
from zerosim.studies.processes import Lost, answers
from zerosim.studies.sweep import Swept, sweep
from zerosim.studies.sweep_questions import Answering, Question
from zerosim.studies.sweep_tables import legend, sheets

WRONG = "points: [{stage: 3, nodes: 900000000}]\n"  # beside the grid

AHEAD, PORT = "strategy.deepspeed.zero_optimization.stage3_prefetch_bucket_size", "topology.node.nics.bandwidth"


def asked(folder: Path, *parts: str, changes: tuple[str, ...] = ()) -> Sweep:
    return read_sweep(written(folder, *parts), changes)


# --- rows ---


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, Swept]:
    found = asked(tmp_path_factory.mktemp("sweep"), GRID, AGAINST, WRONG)
    return found, sweep(found)


def test_rows_stand_in_the_order_of_the_points(swept: tuple[Sweep, Swept]) -> None:
    rows = swept[1].rows
    assert [(row["stage"], row["nodes"]) for row in rows[:6]] == [(s, n) for s in (1, 2, 3) for n in (1, 2)]
    assert len(rows) == 7


def test_a_row_is_the_whole_summary_flattened(swept: tuple[Sweep, Swept]) -> None:
    found, (row, *_) = swept[0], swept[1].rows
    scenario = from_mapping(found.document.data, found.base, [f"{STAGE}=1", "nodes=1"])
    summary = simulate(scenario).summary().as_json()
    assert row["step_seconds"] == summary["step_seconds"]
    assert row["memory.gpu.peak_at.op"] == summary["memory"]["gpu"]["peak_at"]["op"]
    assert row["collectives.all_reduce.bytes"] == summary["collectives"]["all_reduce"]["bytes"]
    assert row["stalls.0.cause"] == summary["stalls"][0]["cause"]
    assert row["findings"].split() == [finding["code"] for finding in summary["findings"]]
    assert row["error"] is None
    assert not any(isinstance(value, list | dict) for value in row.values())


def test_a_row_has_the_longest_wait(tmp_path: Path) -> None:
    slow = "axes: {topology.overrides: [[], [{node: 1, nics: {bandwidth: 1 Gbps}}]]}\n"
    equal, unequal = sweep(asked(tmp_path, slow)).rows
    assert "waits.0.waited_for" not in equal
    assert (unequal["waits.0.waited_for"], unequal["waits.0.cause"]) == ("node 1", "slow")
    assert unequal["waits.0.seconds"] > 0


def test_only_a_change_that_was_typed_is_told_as_set(tmp_path: Path) -> None:
    rows = sweep(asked(tmp_path, "axes: {nodes: [1]}\n", changes=("gpus=99",))).rows
    assert rows[0]["error"].startswith("--set gpus=99: gpus: found 99")


def test_an_error_in_a_point_is_its_row(swept: tuple[Sweep, Swept]) -> None:
    row = swept[1].rows[-1]
    assert row["error"].startswith("nodes=900000000: nodes: found 900000000; expected from 1 to")
    assert (row["stage"], row["nodes"], row["slowdown"]) == (3, 900000000, None)
    assert swept[1].errors == (row["error"],)


def test_a_slowdown_is_the_step_by_the_step_of_the_same_point_with_other_changes(swept: tuple[Sweep, Swept]) -> None:
    found, (row, other, *_) = swept[0], swept[1].rows
    changes = [f"{STAGE}=1", "nodes=2", "topology.node.nvlink.hosts=2"]
    seconds = simulate(from_mapping(found.document.data, found.base, changes)).makespan
    assert row["against_seconds"] == other["against_seconds"] == seconds
    assert other["slowdown"] == other["step_seconds"] / seconds
    assert other["slowdown"] > 1  # 100 Gb/s for eight GPUs instead of NVLink


def test_points_that_are_alike_are_played_once(tmp_path: Path) -> None:
    twice = "axes:\n  nodes: [1, 2]\npoints: [{nodes: 1}, {nodes: 2}]\n"
    heard: list[tuple[int, int]] = []
    rows = sweep(asked(tmp_path, twice), told=lambda done, of: heard.append((done, of))).rows
    assert heard[0] == (0, 2)
    assert heard[-1] == (2, 2)
    assert [row["step_seconds"] for row in rows] == [rows[place]["step_seconds"] for place in (0, 1, 0, 1)]
    assert rows[0]["step_seconds"] != rows[1]["step_seconds"]


def test_what_is_wrong_with_the_other_step_is_told(tmp_path: Path) -> None:
    found = asked(tmp_path, "axes: {nodes: [1]}\n", "against: {name: NVLink, changes: {gpus: 99}}\n")
    (row,) = sweep(found).rows
    assert row["error"].startswith("NVLink: gpus=99: gpus: found 99")
    assert (row["slowdown"], row["fits"], row["step_seconds"] > 0) == (None, True, True)
    (sheet,) = sheets(found, Swept((row,)))
    assert [sheet.lines[0][1][place] != "!" for place in (0, -1)] == [True, False]


@pytest.mark.parametrize("name", ["error", "fits", "step_seconds", "memory.gpu.peak_bytes", "nodes"])
def test_no_axis_is_called_as_a_number_of_rows(tmp_path: Path, name: str) -> None:
    found = asked(tmp_path, f"axes: {{{name}: {{path: training.micro_batch_size, values: [1, 2]}}}}\n")
    with pytest.raises(InputError, match=f'axes.{name}: found the name "{name}", which rows have'):
        sweep(found, told=lambda done, of: pytest.fail("played"))


def test_a_defect_is_a_row_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("zerosim.studies.sweep_questions.simulate", fail)
    rows = sweep(asked(tmp_path, GRID)).rows
    assert {row["error"].partition(" (")[0] for row in rows} == {"ZeroDivisionError: division by zero"}


def test_the_value_of_a_table_is_checked_before_anything_is_played(tmp_path: Path) -> None:
    found = asked(tmp_path, GRID, "table: {rows: stage, columns: nodes, value: step_second}\n")
    with pytest.raises(InputError, match=r'table.value: found "step_second".*nearest step_seconds'):
        sweep(found, told=lambda done, of: pytest.fail("played"))


# --- processes and journals ---


def test_two_processes_find_what_one_finds(tmp_path: Path, swept: tuple[Sweep, Swept]) -> None:
    assert sweep(swept[0], processes=2) == swept[1]


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def broken_off(found: Sweep, journal: Path, after: int) -> None:
    """A sweep that ends in the middle, as by Ctrl-C."""

    def told(done: int, of: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(found, journal=journal, told=told)


def test_a_sweep_goes_on_where_it_was(tmp_path: Path, swept: tuple[Sweep, Swept]) -> None:
    journal = tmp_path / "rows.journal"
    broken_off(swept[0], journal, after=3)
    assert len(lines(journal)) == 3
    with journal.open("a") as file:
        file.write('["0123", {"step_sec')  # a line that was torn
    heard: list[int] = []
    assert sweep(swept[0], journal=journal, told=lambda done, of: heard.append(done)) == swept[1]
    assert heard[0] == 3
    assert not journal.exists()


@pytest.mark.parametrize("change", ["training.sequence_length=256", "version"])
def test_answers_to_other_questions_are_not_taken(tmp_path: Path, change: str) -> None:
    journal, small = tmp_path / "rows.journal", "axes: {nodes: [1, 2]}\n"
    broken_off(asked(tmp_path, small), journal, after=1)
    heard: list[int] = []
    other = asked(tmp_path, small, changes=(change,) if "=" in change else ())
    sweep(other, journal=journal, version=change, told=lambda done, of: heard.append(done))
    assert heard[0] == 0


def test_a_file_that_is_named_counts_with_what_is_in_it(tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    config.write_text(json.dumps({"zero_optimization": {"stage": 1}}))
    small = "axes: {strategy: [{deepspeed: ds.json}], nodes: [1, 2]}\n"
    journal = tmp_path / "rows.journal"
    broken_off(asked(tmp_path, small), journal, after=1)
    config.write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    heard: list[int] = []
    sweep(asked(tmp_path, small), journal=journal, told=lambda done, of: heard.append(done))
    assert heard[0] == 0


def test_a_journal_that_is_no_journal_is_kept_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.journal"
    path.write_bytes(b'\xff\n[1]\n{}\n5\n[["x"], 1]\n["a", 1]\n["a", {"b": 1}]\nrest')
    with kept(path) as journal:
        assert journal.known == {"a": {"b": 1}}
        journal.add("c", {"d": 2.5})
        assert path.read_bytes().endswith(b'["a", {"b": 1}]\n["c", {"d": 2.5}]\n')


def test_a_journal_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a path that can be written"), kept(tmp_path):
        pass


def test_a_journal_has_one_sweep_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="no locks")
    path = tmp_path / "rows.journal"
    with kept(path) as journal:
        journal.add("a", {})
        with pytest.raises(InputError, match="found a journal that another run is writing; expected one at a time"):
            kept(path).__enter__()
        assert lines(path) == [["a", {}]]


class FullDisk(FileIO):
    """Has room for eight bytes, as a disk has that fills up."""

    def write(self, line: Any) -> int:
        if self.tell() >= 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(line[: 8 - self.tell()])


def test_a_disk_that_fills_up_is_told_and_leaves_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.journal"
    with pytest.raises(InputError, match="no space left on device"), FullDisk(path, "w+b") as file:
        Journal(file, path).add("a", {"b": 1})
    with kept(path) as journal:
        assert journal.known == {}
        assert path.read_bytes() == b""


def test_rows_that_cannot_be_written_are_not_lost(tmp_path: Path, swept: tuple[Sweep, Swept]) -> None:
    journal = tmp_path / "rows.journal"

    def keep(rows: Swept) -> None:
        assert rows == swept[1]
        raise InputError([])

    with pytest.raises(InputError):
        sweep(swept[0], journal=journal, keep=keep)
    heard: list[tuple[int, int]] = []
    assert sweep(swept[0], journal=journal, told=lambda done, of: heard.append((done, of))) == swept[1]
    assert heard[0][0] == heard[0][1]


def square(number: int) -> int:
    return number * number


def perish(at: int, number: int) -> int:
    if number == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("processes", [1, 3])
def test_each_question_is_answered_once(processes: int) -> None:
    found = list(answers(square, list(range(20)), processes))
    assert sorted(found) == [(number, number * number) for number in range(20)]


def test_a_process_that_is_ended_from_outside_loses_one_question() -> None:
    found = dict(answers(partial(perish, 5), list(range(12)), 2))
    assert found.pop(5) == Lost(f"its process was ended from outside (exit code {-signal.SIGKILL})")
    assert found == {number: number for number in range(12) if number != 5}


def test_a_lost_answer_is_a_row_and_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "zerosim.studies.sweep.answers",
        lambda ask, asked, processes: [
            (n, ask(each) if n else Lost("its process was ended")) for n, each in enumerate(asked)
        ],
    )
    rows = sweep(asked(tmp_path, GRID), journal=tmp_path / "rows.journal").rows
    assert [row["error"] for row in rows] == ["its process was ended", *[None] * 5]
    monkeypatch.undo()
    heard: list[int] = []
    journal = tmp_path / "rows.journal"
    assert sweep(asked(tmp_path, GRID), journal=journal, told=lambda done, of: heard.append(done)).errors == ()
    assert heard == [5, 6, 6]
    assert not journal.exists()


# --- tables ---

TWO = "axes:\n  stage: {cases: {two: {gpus: 2}, four: {gpus: 4}}}\n  nodes: [1, 2]\n  model: [a, b]\n"


def row(stage: str, nodes: int, model: str, **values: Any) -> dict[str, Any]:
    plain = {"error": None, "fits": True, "against_seconds": 2.0, "slowdown": 1.5}
    return {"stage": stage, "nodes": nodes, "model": model, **plain, **values}


def test_a_table_of_the_best_by_hand(tmp_path: Path) -> None:
    table = "table: {rows: stage, columns: nodes, value: mfu, best: most}\n"
    found = asked(tmp_path, TWO, table)
    rows = [
        row("two", 1, "a", mfu=0.25),
        row("two", 1, "b", mfu=0.5),
        row("two", 2, "a", mfu=0.5),
        row("two", 2, "b", mfu=0.5),  # no better
        row("four", 1, "a", mfu=0.9, fits=False),
        row("four", 1, "b", mfu=0.125),  # but it fits
        row("four", 2, "a", error="wrong"),
        row("four", 2, "b", error="wrong"),
    ]
    best, where = sheets(found, Swept(tuple(rows)))
    assert (best.heading, best.columns) == ("mfu: the most over model", ["1", "2"])
    assert best.lines == [("two", ["50 %", "50 %"]), ("four", ["12.5 %", "!"])]
    assert (where.heading, where.lines) == ("model: where that is", [("two", ["b", "a"]), ("four", ["b", "!"])])


def test_the_best_is_the_least_or_the_most(tmp_path: Path) -> None:
    table = "table: {rows: stage, columns: nodes, best: lowest}\n"
    with pytest.raises(InputError, match=r"table.best: found .*lowest.*; expected .*least.*most"):
        asked(tmp_path, GRID, table)


def test_what_is_kept_of_the_last_answer_is_not_sent(tmp_path: Path) -> None:
    found = asked(tmp_path, GRID)
    ask = Answering(found.document, found.base)
    before = pickle.dumps(ask)
    said = ask(Question.of("row", ()))
    assert len(pickle.dumps(ask)) == len(before)
    assert pickle.loads(before)(Question.of("row", ())) == said


def test_who_answers_stands_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And answers nothing where a file that is named there is another one."""
    found = asked(tmp_path, GRID)
    file = tmp_path / "named.json"
    file.write_text("{}")
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(Answering(found.document, Path(), {str(file): sha256(b"{}").hexdigest()}))
    monkeypatch.chdir(tmp_path.parent)
    assert pickle.loads(sent).base == tmp_path
    assert "error" not in pickle.loads(sent)(Question.of("row", ()))
    file.write_text("[]")
    said = pickle.loads(sent)(Question.of("row", ()))
    assert said == {"error": f"{file}: found another file; expected the same file here as where it was asked"}


def test_the_same_program_on_the_same_machine_is_played_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathers ahead of more than the model has write one program; on two networks it is played twice."""
    ask, play = Answering(asked(tmp_path, GRID).document, tmp_path), Mock(side_effect=simulate)
    monkeypatch.setattr(sweep_questions, "simulate", play)
    said = [
        ask(Question.of("row", map(parse_change, (f"{STAGE}=3", f"{AHEAD}={ahead}", f"{PORT}={port}"))))
        for ahead in ("1e9", "2e9")
        for port in ("25 Gbps", "50 Gbps")
    ]
    assert play.call_count == 2
    assert said[:2] == said[2:]
    assert said[0]["step_seconds"] > said[1]["step_seconds"]


def test_a_table_by_hand(tmp_path: Path) -> None:
    table = "table: {rows: stage, columns: nodes, value: slowdown}\n"
    require = "require: {resource: nodes, slowdown: 5 %}\n"  # searched along nodes
    found = asked(tmp_path, TWO, table, "against: {name: NVLink, changes: {gpus: 1}}\n", require)
    rows = [
        row("two", 1, "a"),
        row("two", 1, "b", error="wrong", slowdown=None),
        row("two", 2, "a", fits=False, slowdown=12.345),
        row("two", 2, "b"),
        row("four", 1, "a"),
        row("four", 1, "b"),
        row("four", 2, "a", against_seconds=3.0),
        row("four", 2, "b", slowdown=1.0),
    ]
    search = {"error": None, "resource": "topology.node.nics.bandwidth", "baseline_seconds": 2.0, "limited_by": "PCIe"}
    enough = {**search, "required": 1.234e9, "seconds": 2.1, "curve": [[1.234e9, 2.1]]}
    none = {**search, "required": None, "seconds": 2.2, "curve": [[1e9, 4.0], [12.5e9, 2.2]]}
    required = [{"stage": stage, "model": model, **enough} for stage in ("two", "four") for model in ("a", "b")]
    required[2] = {"stage": "four", "model": "a", **none}
    swept = Swept(tuple(rows), tuple(required))
    shown = render_sweep(found.title, sheets(found, swept), legend(found))
    assert shown == (
        "sweep\n\n"
        "model: a\n"
        "stage  NVLink     1       2    +5 % at\n"
        "two       2 s  1.5x  12.3x*  9.9 Gb/s\n"
        "four   varies  1.5x    1.5x      none\n"
        "four: still 10 % longer at 100 Gb/s: PCIe.\n\n"
        "model: b\n"
        "stage  NVLink     1     2   +5 % at\n"
        "two       2 s     !  1.5x  9.9 Gb/s\n"
        "four      2 s  1.5x    1x  9.9 Gb/s\n\n"
        "slowdown: the step / the step with NVLink.\n"
        "+5 % at: the least nodes at which the step is at most 5 % longer than with NVLink.\n"
        "* does not fit in memory; what the step would take with more of it.\n"
        "! could not be played.\n"
    ).replace("       2    +5 % at", "       2   +5 % at")


def test_listed_points_are_beside_the_table(tmp_path: Path) -> None:
    more = "points: [{stage: two, nodes: 1, title: x}]\ntable: {rows: stage, columns: nodes}\n"
    found = asked(tmp_path, "axes:\n  stage: {cases: {two: {gpus: 2}}}\n  nodes: [1]\n", more)
    rows = [row("two", 1, "a", step_seconds=2.0), row("two", 1, "a", step_seconds=9.0, title="x")]
    grid, points = sheets(found, Swept(tuple(rows)))
    assert grid.lines == [("two", ["2 s"])]
    assert points.lines[0][1][:3] == ["1", "x", "9 s"]


def test_a_number_that_no_row_has_is_told(tmp_path: Path) -> None:
    table = "table: {rows: stage, columns: nodes, value: memory.gpu.peek_bytes}\n"
    found = asked(tmp_path, "axes:\n  stage: {cases: {two: {gpus: 2}}}\n  nodes: [1]\n", table)
    (sheet,) = sheets(found, Swept((row("two", 1, "a", **{"memory.gpu.peak_bytes": 1.0}),)))
    assert sheet.notes == ["No row has memory.gpu.peek_bytes; nearest memory.gpu.peak_bytes."]


def test_a_table_that_is_too_wide_goes_on_below() -> None:
    lines = [("a", ["b", "1 s", "2 s", "3 s"])]
    text = render_sweep("t", [Sheet("", "first", ["second", "x", "y", "z"], lines, labels=1)], width=24)
    assert text == (
        "t\n\n"
        "first  second    x    y\n"
        "a           b  1 s  2 s\n\n"
        "first  second    z\n"
        "a           b  3 s\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (5e8, "500000000"),
        (0.1, "0.1"),
        ("a\nb\x1b c", "a b c"),
        ("x" * 40 + "y" * 12, "x" * 19 + "…" + "y" * 12),
    ],
)
def test_labels_are_short_and_on_one_line(label: Any, shown: str) -> None:
    assert show_label(label) == shown


def test_paths_are_headed_by_what_tells_them_apart(tmp_path: Path) -> None:
    axes = "axes: {topology.node.nics.bandwidth: [1], topology.node.nvlink.bandwidth: [1], nodes: [1], v1.5: {%s}}\n"
    found = asked(tmp_path, axes % "path: gpus, values: [1]")
    (sheet,) = sheets(found, Swept((dict.fromkeys([axis.name for axis in found.axes], 1) | {"error": "x"},)))
    assert (sheet.corner, *sheet.columns[:3]) == ("nics.bandwidth", "nvlink.bandwidth", "nodes", "v1.5")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("slowdown", 2.0, "2x"),
        ("step_seconds", 0.25, "250 ms"),
        ("breakdown.compute", 0.25, "250 ms"),
        ("memory.gpu.peak_bytes", 8e9, "8 GB"),
        ("mfu", 0.5, "50 %"),
        ("fits", False, "NO"),
        ("world_size", 16, "16.0"),
        ("stalls.0.cause", "all_gather", "all_gather"),
        ("stalls.0.cause", None, "-"),
    ],
)
def test_values_are_shown_by_their_kind(name: str, value: Any, shown: str) -> None:
    assert show_value(name, value) == shown


def test_without_a_table_points_are_listed(tmp_path: Path) -> None:
    found = asked(tmp_path, "axes: {nodes: [1], training.micro_batch_size: [1]}\npoints: [{nodes: 1, gpus: 1}]\n")
    (sheet,) = sheets(found, sweep(found))
    assert (sheet.corner, *sheet.columns[:3]) == ("nodes", "micro_batch_size", "gpus", "step")
    assert [(name, *cells[:2]) for name, cells in sheet.lines] == [("1", "1", ""), ("1", "", "1")]


def test_of_many_points_the_first_are_listed(tmp_path: Path) -> None:
    found = asked(tmp_path, f"axes: {{training.micro_batch_size: {list(range(1, 101))}}}\n")
    rows = [{"training.micro_batch_size": n, "error": None, "fits": True} for n in range(1, 101)]
    (sheet,) = sheets(found, Swept(tuple(rows)))
    assert len(sheet.lines) == 40
    assert sheet.notes == ["60 more rows: --out writes all."]


def test_searches_that_have_no_column_are_listed(tmp_path: Path) -> None:
    require = "require: {resource: topology.node.nics.bandwidth, slowdown: 900 %}\n"
    found = asked(tmp_path, "axes: {nodes: [1, 2]}\n", AGAINST, require)
    points, searches = sheets(found, sweep(found))
    assert searches.columns == ["+900 % at", "step"]
    assert searches.lines[0][1][0] == "any"  # one node has no use for a network
    assert searches.lines[1][1][0].endswith("b/s")
    assert points.columns == ["step", "tokens/s", "mfu", "overlap", "GPU peak", "slowdown"]
