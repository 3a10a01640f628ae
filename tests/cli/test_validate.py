"""`zerosim validate` as a user meets it: rows in, errors out, nothing dropped, and wrong input told."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.asking import ask
from tests.measured import written

ROWS: tuple[Mapping[str, str], ...] = (
    {"id": "one"},
    {"id": "more layers", "n_layers": "3", "step_time_s": "0.06"},
    {"id": "another study", "dataset": "other", "quality": "B", "gpu": "H100-SXM5-80GB"},
    {"id": "unknown machine", "gpu": "Abacus-9"},
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("measured"), ROWS)


def asked(table: Path, *words: str | Path) -> Any:
    return ask("validate", table, "--processes", "1", "--json", *words).json


def test_json_is_one_object_with_the_keys_of_the_contract(table: Path) -> None:
    answer = asked(table)
    assert list(answer)[:2] == ["summary", "rows"]
    assert {"group", "rows", "median", "p90"} <= answer["summary"][0].keys()
    steps = [row for row in answer["rows"] if is_step(row)]
    assert [row["id"] for row in steps] == ["one", "more layers", "another study"]
    for row in steps:
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
        assert {"assumptions", "reason"} <= row.keys()
    (everything,) = (group for group in answer["summary"] if group["group"] == "all")
    assert everything["rows"] == 3
    assert everything["median"] == pytest.approx(sorted(abs(row["error"]) for row in steps)[1])


def test_what_cannot_be_played_is_listed_with_its_reason(table: Path) -> None:
    (refused,) = asked(table)["refused"]
    assert refused["id"] == "unknown machine"
    assert "Abacus-9" in refused["reason"]
    assert "Abacus-9" in ask("validate", table, "--processes", "1").out


def test_a_row_has_the_same_number_whoever_else_is_asked_for(table: Path) -> None:
    (alone,) = (r for r in asked(table, "--gpu", "h100")["rows"] if is_step(r))
    assert alone in asked(table)["rows"]
    (alone,) = (r for r in asked(table, "--gpu", "h100", "--calibrated")["worst"] if is_step(r))


def test_two_processes_answer_as_one_does(table: Path) -> None:
    assert ask("validate", table, "--json", "--processes", "2").json == asked(table)


def test_one_row_calibrates_and_is_in_no_statistics(tmp_path: Path) -> None:
    large = {"hidden": "4096", "n_heads": "32", "n_kv_heads": "32", "ffn_hidden": "16384", "seq_len": "2048"}
    rows = [{**large, "id": "one", "step_time_s": "1"}, {**large, "id": "two", "step_time_s": "1", "n_layers": "4"}]
    shipped = {row["id"]: row["predicted"] for row in asked(written(tmp_path, rows))["rows"] if is_step(row)}
    slower = [{**row, "step_time_s": str(1.1 * shipped[row["id"]])} for row in rows]
    answer = asked(written(tmp_path, slower), "--calibrated")
    (by,) = answer["calibrated_by"]
    assert by["factor"] < 1
    assert by["as_shipped_error"] == pytest.approx(1 / 1.1 - 1)
    (other,) = (row for row in answer["rows"] if is_step(row))
    assert {by["id"], other["id"]} == shipped.keys()
    assert other["as_shipped"] == shipped[other["id"]]
    assert abs(other["error"]) < 0.05


def is_step(row: Mapping[str, Any]) -> bool:
    return bool(row["metric"] == "step_seconds")


def test_a_range_is_around_the_prediction(table: Path) -> None:
    answer = asked(table, "--range", "--samples", "6", "--study", "other")
    (step,) = (row for row in answer["rows"] if is_step(row))
    assert step["p10"] < step["predicted"] < step["p90"]
    assert step["inside"] is (step["p10"] <= step["measured"] <= step["p90"])
    assert answer["coverage"][0] == {"group": "all", "rows": 1, "inside": int(step["inside"])}


def test_the_table_that_comes_with_it_is_taken_where_none_is_named() -> None:
    answer = ask("validate", "--study", "llmc", "--study", "hfnvlink", "--processes", "1")
    assert answer.code == 0
    assert answer.out.startswith("training.csv: 2 rows played, 0 not; as shipped")


def test_rows_go_to_a_file(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "errors.csv"
    answer = ask("validate", table, "--processes", "1", "--out", out)
    assert answer.code == 0
    rows = list(csv.DictReader(out.open()))
    assert list(rows[0])[:6] == ["id", "metric", "measured", "predicted", "error", "assumptions"]
    assert f"{len(rows)} rows written to {out}" in answer.err


def test_cells_that_are_not_read_are_told(tmp_path: Path) -> None:
    nothing = {"step_time_s": "abc", "outcome": "NA"}
    table = written(tmp_path, [{"id": "one", "fwd_s": "fast"}, {"id": "nothing", **nothing}])
    answer = asked(table)
    assert 'fwd_s: found "fast", not read' in answer["rows"][0]["assumptions"]
    (refused,) = answer["refused"]
    assert refused["reason"] == 'nothing measured that can be compared; step_time_s: found "abc", not read'


def test_a_step_that_no_rate_of_kernels_explains_is_told_plainly(tmp_path: Path) -> None:
    large = {"hidden": "4096", "n_heads": "32", "n_kv_heads": "32", "ffn_hidden": "16384", "seq_len": "2048"}
    found = ask("validate", written(tmp_path, [{**large, "step_time_s": "0.01"}]), "--processes", "1", "--calibrated")
    told = " ".join(found.out.replace("\u00a0", " ").split())
    assert "rows that could calibrate nothing" in told
    assert "measured 10 ms is shorter than any kernel rate explains (" in told
    assert "at best): check checkpointing, attention, fused kernels" in told
    assert "calibrated_rows" not in told


def test_columns_are_shown_with_a_file_that_can_be_played(tmp_path: Path) -> None:
    shown = ask("validate", "--columns").out
    assert ["step_time_s", "s", "1.25"] in [line.split()[:3] for line in shown.splitlines()]
    (tmp_path / "mine.csv").write_text("\n".join(shown.splitlines()[-2:]), encoding="utf-8")
    (row, *_) = asked(tmp_path / "mine.csv")["rows"]
    assert (row["id"], row["metric"], row["measured"]) == ("run-7", "step_seconds", 1.25)


def test_a_column_that_is_nearly_known_is_told_beside_the_answer(table: Path, tmp_path: Path) -> None:
    text = table.read_text(encoding="utf-8").replace("peak_mem_gb", "peak_memory_gb", 1)
    (tmp_path / "mine.csv").write_text(text, encoding="utf-8")
    answer = ask("validate", tmp_path / "mine.csv", "--processes", "1")
    assert answer.code == 0
    assert 'nearest "peak_mem_gb"' in answer.err


def test_a_calibrated_range_says_what_it_holds(tmp_path: Path) -> None:
    table = written(tmp_path, [{"id": "one"}, {"id": "two", "n_layers": "3", "step_time_s": "0.06"}])
    told = " ".join(ask("validate", table, "--processes", "1", "--calibrated", "--range", "--samples", "2").out.split())
    assert "its ranges hold only what else is uncertain" in told


def test_text_and_table(table: Path) -> None:
    assert "other estimators" in ask("validate", table, "--processes", "1", "--peers").out
    shown = ask("validate", table, "--processes", "1", "--table").out.splitlines()
    assert shown[0] == "|  | rows | median | p90 | bias |"
    assert shown[2].startswith("| all | 3 |")


def test_so_many_of_the_worst(table: Path) -> None:
    assert asked(table, "--worst", "0")["worst"] == []
    (worst,) = (row for row in asked(table, "--worst", "1")["worst"] if is_step(row))
    assert abs(worst["error"]) == max(abs(row["error"]) for row in asked(table)["rows"] if is_step(row))


def test_wrong_input_is_told(table: Path, tmp_path: Path) -> None:
    ask("validate", tmp_path / "nothing.csv").refused()
    (tmp_path / "letter.csv").write_text("dear sir\n", encoding="utf-8")
    assert ask("validate", tmp_path / "letter.csv").code == 2
    (line,) = ask("validate", table, "--study", "othr").refused()
    assert line == '--study: found "othr"; expected one of made-up, other; nearest other'
    (line,) = ask("validate", table, "--gpu", "").refused()
    assert line.startswith('--gpu: found ""; expected one of A100-SXM4-40GB')
    twice = ask("validate", written(tmp_path, [{"id": "a"}, {"id": "a"}]))
    assert twice.code == 2
    assert 'rows.csv:3: id: found "a" again, as in line 2' in twice.err
    (line,) = ask("validate", table, "--json", "--table").refused()
    assert line.startswith("--table: found --json")
    (line,) = ask("validate", table, "--out", "errors.txt").refused()
    assert line.startswith("--out")
