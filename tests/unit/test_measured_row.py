"""Rows of published measurements: numbers by the form in which people write them, and what is wrong with a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measured import written
from zerosim.errors import InputError
from zerosim.spec.measured_columns import COLUMNS, NEEDED
from zerosim.spec.measured_numbers import (
    GBPS,
    GPUS,
    MEMORY,
    NUMBER,
    SAMPLE_RATE,
    SHARE,
    TFLOPS,
    TIME,
    TOKEN_RATE,
    TOKENS,
    WHOLE,
    Form,
    printed,
    range_width,
    read_number,
)
from zerosim.spec.measured_row import Row, read_rows, row_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~1.0B", 1e9), ("6738415616", 6738415616), ("1,024", 1024), ("7e9", 7e9), ("1024 (script default)", 1024),
        ("350M", 350e6), ("~336M-384M", 360e6), ("6e-5", 6e-5), ("1.5B params", 1.5e9), (".91", 0.91),
        ("1.3 billion", 1.3e9), ("336-384M", 360e6), ("0", None), ("-5", None), ("1e400", None), ("GPT-2", None),
        ("10,5", None), ("1,5", None), ("1,024,5", None), ("1 000", None), ("several", None), ("", None),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(text: str, value: float | None) -> None:
    assert read_number(text, NUMBER).value == value


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("250 ms", TIME, 0.25), ("250ms/step", TIME, 0.25), ("10 min", TIME, 600), ("1.5 h", TIME, 5400),
        ("0.5-0.6 s", TIME, 0.55), ("1 day", TIME, None), ("10 tokens", TIME, None),
        ("250 ± 10 ms", TIME, 0.25), ("250 ms +- 4 %", TIME, 0.25), ("avg 2 s", TIME, 2), ("< 2 s", TIME, None),
        ("20480 MiB", MEMORY, 20), ("80GB", MEMORY, 80), ("61.4 GiB", MEMORY, 61.4),
        ("16.0", WHOLE, 16), ("8 GPUs", WHOLE, 8), ("8-16", WHOLE, None), ("1.5", WHOLE, None),
        ("8x A100", WHOLE, None), ("8x A100", GPUS, 8), ("64 H100 SXM", GPUS, 64), ("8 nodes x 8", GPUS, None),
        ("2K tokens", TOKENS, 2048), ("128K", TOKENS, 131072),
        ("42.5", SHARE, 0.425), ("42.5 %", SHARE, 0.425), ("0.425", SHARE, 0.425), ("0.5 %", SHARE, 0.005),
        ("300", SHARE, None),
        ("4 x 100Gbps", GBPS, 400), ("25 GB/s", GBPS, 200), ("2 Tb/s", GBPS, 2000), ("1600", GBPS, 1600),
        ("3.1k tok/s", TOKEN_RATE, 3100), ("3100 tokens/s/GPU", TOKEN_RATE, 3100), ("3100 in total", TOKEN_RATE, None),
        ("12 samples/s", SAMPLE_RATE, 12), ("12 samples/s/GPU", SAMPLE_RATE, None),
        ("160 TFLOP/s/GPU", TFLOPS, 160), ("1.2 PFLOPS", TFLOPS, 1200),
    ],
)  # fmt: skip
def test_units_are_read_or_the_cell_is_not(text: str, form: Form, value: float | None) -> None:
    read = read_number(text, form)
    assert read.value == (value if value is None else pytest.approx(value))
    assert read.unread is (value is None)


def test_what_a_printed_number_leaves_open_has_no_unit() -> None:
    assert printed("42.5 %") == pytest.approx((42.5, 0.05))
    assert printed("1.50e3 ms") == pytest.approx((1500, 5))
    assert printed("fast") is None
    assert range_width("0.5-0.6 s", TIME) == pytest.approx(0.05 / 0.55)
    assert range_width("0.5 s", TIME) == 0
    assert range_width("250 ± 10 ms", TIME) == pytest.approx(0.04)
    assert range_width("250 ms ± 4 %", TIME) == pytest.approx(0.04)


def test_words_for_unknown_are_silent_and_others_are_told() -> None:
    cells = {"step_time_s": "abc", "hidden": "nan", "n_layers": "-3", "seq_len": "1024-2048", "vocab": "NA", "tp": "-"}
    row = row_of({"id": "a", **cells, "ffn_hidden": "", "n_heads": "unknown (usual)", "mfu": "not reported"})
    assert row.unread == ("n_layers", "hidden", "seq_len", "step_time_s")
    assert (row.layers, row.hidden, row.sequence_length, row.step_seconds) == (None,) * 4


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
    assert row.unread == ()
    other = row_of({"id": "a", "global_batch_seqs": "4M tokens", "micro_batch_per_gpu": "tokens", "grad_accum": "1/2"})
    assert (other.global_batch, other.global_batch_tokens) == (None, 4 * 2**20)
    assert other.unread == ("micro_batch_per_gpu", "grad_accum")


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


def test_columns_that_are_nearly_known_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,model,gpu,n_gpus,framework,strategy,Step Time (s),mood,seqlen\na,b,c,1,d,e,1,good,2\n")
    told: list[str] = []
    read_rows(path, lambda problem: told.append(str(problem)))
    expected = "found a column that is not read; expected those of `zerosim validate --columns`; nearest"
    assert told == [f'{path}:1: Step Time (s): {expected} "step_time_s"', f'{path}:1: seqlen: {expected} "seq_len"']


def test_names_that_stand_twice_are_all_told_with_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path, [{"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": "b"}])
    with pytest.raises(InputError) as error:
        read_rows(path)
    assert [str(problem) for problem in error.value.problems] == [
        f'{path}:{line}: id: found "{name}" again, as in line {line - 2}; expected a name of its own for each row'
        for line, name in ((4, "a"), (5, "b"))
    ]


def test_every_column_has_an_example_that_is_read() -> None:
    row = row_of({column.name: column.example for column in COLUMNS})
    assert row.unread == ()
    assert all(getattr(row, column.field) is not None for column in COLUMNS if column.field)
    assert {column.field for column in COLUMNS if column.field} <= set(Row.__dataclass_fields__)
    assert {*NEEDED} <= {column.name for column in COLUMNS}


def test_all_mistakes_of_a_table_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,model,gpus,framework,strategy,gpu\na,b,1,d,e,f\na,b\n")
    with pytest.raises(InputError) as error:
        read_rows(path)
    first, second = map(str, error.value.problems)
    assert first == f'{path}:1: n_gpus: found no such column; expected a column of this name; nearest "gpus"'
    assert second == f"{path}:3: found 2 cells; expected 6, as many as there are columns"


def test_an_empty_file_is_told_as_no_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n")
    with pytest.raises(InputError, match="found an empty file; expected CSV"):
        read_rows(tmp_path / "t.csv")


@pytest.mark.parametrize("text", ["id,model,gpu,n_gpus,framework,strategy\n", 'id,model\n"a,b\n', "\n\n \n"])
def test_a_table_without_rows_or_with_open_quotes_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError):
        read_rows(path)
