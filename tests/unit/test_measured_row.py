"""Rows of published measurements: numbers by the form in which people write them, and what is wrong with a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measured import written
from zerosim.errors import InputError
from zerosim.spec.measured_row import number, read_rows, row_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~1.0B", 1e9), ("6738415616", 6738415616), ("1,024", 1024), ("7e9", 7e9), ("1024 (script default)", 1024),
        ("350M", 350e6), ("~336M-384M", 360e6), ("6e-5", 6e-5), ("1.5B params", 1.5e9), (".91", 0.91),
        ("0", None), ("-5", None), ("1e400", None), ("GPT-2", None), ("", None),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(text: str, value: float | None) -> None:
    assert number(text) == value


def test_what_stands_in_brackets_after_unknown_is_a_guess() -> None:
    row = row_of({"id": "a", "n_layers": "unknown (24)", "vocab": "unknown (GPT-2 50257)", "hidden": "1024 (usual)"})
    assert (row.layers, row.vocabulary, row.hidden) == (24, 50257, 1024)
    assert row.guessed == {"layers", "vocabulary"}
    assert row_of({"id": "a", "seq_len": "unknown (GLUE fine-tune)"}).sequence_length is None


def test_batches_that_are_not_told_as_numbers() -> None:
    row = row_of({"id": "a", "micro_batch_per_gpu": "2K tokens", "grad_accum": "512/micro-batch", "seq_len": "8K"})
    assert (row.micro_batch, row.micro_batch_tokens) == (None, 2048)
    assert (row.accumulation, row.batch_by_accumulation) == (None, 512)
    assert row.sequence_length == 8192


def test_unreadable_cells_keep_their_text() -> None:
    row = row_of({"id": "a", "n_gpus": "several", "step_time_s": "slow", "precision": "NA"})
    assert (row.gpus, row.step_seconds, row.precision) == (None, None, "")
    assert row.raw["n_gpus"] == "several"


def test_named_numbers_of_other_metrics() -> None:
    text = "tokens_per_s_per_gpu range 6100-6200; reserved_gib=33.82; nonsense; fwd 482-560ms"
    told = row_of({"id": "a", "metric_other": text}).told
    assert told == {"tokens_per_s_per_gpu range": "6100-6200", "reserved_gib": "33.82", "fwd": "482-560"}


def test_columns_that_are_not_known_are_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, [{}])
    head, *rest = path.read_text().splitlines()
    path.write_text("\n".join([f"mood,{head}", *(f"good,{line}" for line in rest)]))
    (row,) = read_rows(path)
    assert (row.model, row.gpus, row.step_seconds) == ("GPT", 8, 0.05)


def test_all_mistakes_of_a_table_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,model,gpus,framework,strategy,gpu\na,b,1,d,e,f\na,b\n")
    with pytest.raises(InputError) as error:
        read_rows(path)
    first, second = map(str, error.value.problems)
    assert first == f'{path}:1: n_gpus: found no such column; expected a column of this name; nearest "gpus"'
    assert second == f"{path}:3: found 2 cells; expected 6, as many as there are columns"


@pytest.mark.parametrize("text", ["id,model,gpu,n_gpus,framework,strategy\n", 'id,model\n"a,b\n', "\n\n \n"])
def test_a_table_without_rows_or_with_open_quotes_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError):
        read_rows(path)
