"""`zerosim sweep` as a user meets it: rows in files, tables, and what a kill, a wrong point and a wrong name do."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.asking import ROOT, ask
from tests.sweeps import AGAINST, GRID, written
from zerosim.report.rows import write_rows

SMALL = "axes: {nodes: [1, 2]}\n"
MANY = "axes:\n  nodes: [1, 2]\n  training.micro_batch_size: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]\n"


def test_rows_go_to_a_file_and_tables_to_the_screen(tmp_path: Path) -> None:
    table = "table: {rows: stage, columns: nodes, value: slowdown}\n"
    out = tmp_path / "rows.csv"
    answer = ask("sweep", written(tmp_path, GRID, AGAINST, table), "--out", out, "--processes", "1")
    assert answer.code == 0
    assert answer.out.splitlines()[2].split() == ["stage", "NVLink", "1", "2"]
    assert f"6 rows written to {out}" in answer.err
    rows = list(csv.DictReader(out.open()))
    assert [(row["stage"], row["nodes"]) for row in rows] == [(str(s), str(n)) for s in (1, 2, 3) for n in (1, 2)]
    assert all(float(row["slowdown"]) > 0 and row["fits"] == "true" and not row["error"] for row in rows)
    assert [path.name for path in tmp_path.iterdir() if "journal" in path.name] == []


def test_json_is_one_object(tmp_path: Path) -> None:
    require = "require: {resource: topology.node.nics.bandwidth, slowdown: 900 %}\n"
    answer = ask("sweep", written(tmp_path, SMALL, AGAINST, require), "--json", "--processes", "1")
    assert answer.json.keys() == {"rows", "required"}
    assert [row["nodes"] for row in answer.json["rows"]] == [1, 2]
    assert answer.json["required"][0].keys() >= {"nodes", "resource", "today", "required", "slowdown", "curve"}


def test_changes_are_made(tmp_path: Path) -> None:
    changes = ("--set", "axes.nodes=[2]", "--set", "training.gradient_accumulation_steps=1")
    answer = ask("sweep", written(tmp_path, SMALL), "--json", *changes, "--processes", "1")
    assert [row["nodes"] for row in answer.json["rows"]] == [2]


def test_a_wrong_point_is_told_and_is_not_the_end(tmp_path: Path) -> None:
    answer = ask("sweep", written(tmp_path, "axes: {nodes: [1, -1]}\n"), "--processes", "1")
    assert answer.code == 0
    assert answer.err.startswith("nodes=-1: nodes: found -1; expected")
    assert "!" in answer.out


def test_only_wrong_points_are_wrong_input(tmp_path: Path) -> None:
    answer = ask("sweep", written(tmp_path, "axes: {nodes: [0, -1]}\n"), "--processes", "1")
    assert answer.code == 2
    assert "no point without an error" in answer.err


@pytest.mark.parametrize("name", ["rows", "rows.txt", "rows.xlsx"])
def test_a_name_that_says_no_format_is_refused_before_anything_is_played(tmp_path: Path, name: str) -> None:
    (line,) = ask("sweep", written(tmp_path, SMALL), "--out", tmp_path / name).refused()
    assert line == f'--out: found "{name}"; expected a name that ends in .csv, .jsonl, .parquet'


def test_a_folder_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").mkdir()
    (line,) = ask("sweep", written(tmp_path, SMALL), "--out", tmp_path / "rows.csv").refused()
    assert line == '--out: found "rows.csv", a folder; expected the name of a file'


def test_parquet_without_pyarrow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (line,) = ask("sweep", written(tmp_path, SMALL), "--out", tmp_path / "rows.parquet").refused()
    assert "expected pyarrow, which writes Parquet (pip install zerosim[parquet]); or .csv, .jsonl" in line


ROWS: list[dict[str, Any]] = [{"a": 1, "b": "x"}, {"a": 2.5, "c": True, "d": None}]


def test_formats_hold_the_same_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == ROWS
    write_rows(tmp_path / "rows.csv", ROWS)
    assert (tmp_path / "rows.csv").read_text() == "a,b,c,d\n1,x,,\n2.5,,true,\n"


def test_parquet_holds_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    write_rows(tmp_path / "rows.parquet", [*ROWS, {"b": 3}])
    table = parquet.read_table(tmp_path / "rows.parquet").to_pydict()
    assert table == {"a": [1.0, 2.5, None], "b": ["x", None, "3"], "c": [None, True, None], "d": [None] * 3}


def test_a_scenario_is_no_sweep_and_the_other_way_round(tmp_path: Path) -> None:
    scenario, sweep = ROOT / "scenarios" / "seven-b" / "zero3.yaml", written(tmp_path, SMALL)
    said = "expected a scenario, and axes or points; nearest zerosim run"
    assert ask("sweep", scenario).refused() == [f"{scenario}:1:1: found a scenario; {said}"]
    said = "expected topology, model, training, strategy; nearest zerosim sweep"
    assert ask("run", sweep).refused() == [f"{sweep}:1:1: found a sweep; {said}"]
    assert ask("compare", sweep, scenario).refused() == [f"{sweep}:1:1: found a sweep; {said}"]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "zerosim", "sweep", *map(str, words)]


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)


def children(process: subprocess.Popen[bytes]) -> list[str]:
    """Processes that another one has started, where Linux tells."""
    told = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return told.read_text().split() if told.exists() else []


def alive(pid: str) -> bool:
    """Whether a process is there, and not only waits for its end to be noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_was_ended_goes_on_and_comes_to_the_same_bytes(tmp_path: Path, end: signal.Signals) -> None:
    file, whole, broken = written(tmp_path, MANY), tmp_path / "whole.csv", tmp_path / "broken.csv"
    assert ask("sweep", file, "--out", whole, "--processes", "1").code == 0
    journal = Path(f"{broken}.journal.jsonl")
    with subprocess.Popen(
        command(file, "--out", broken, "--processes", 2), cwd=ROOT, stderr=subprocess.PIPE
    ) as process:
        wait_for_lines(journal, 4, process)
        others = children(process)
        process.send_signal(end)
        said = process.communicate(timeout=60)[1]
    assert process.returncode in ((130, -end) if end == signal.SIGINT else (-end,))  # a shell shows both as 130
    assert b"Traceback" not in said
    until = time.monotonic() + 60
    while any(map(alive, others)):  # they end with what they are at
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not broken.exists()
    known = journal.read_bytes().count(b"\n")
    assert 4 <= known < 30
    done = subprocess.run(command(file, "--out", broken, "--processes", 2), cwd=ROOT, capture_output=True, check=True)
    assert broken.read_bytes() == whole.read_bytes()
    assert b"30 rows written" in done.stderr
    assert not journal.exists()
