"""Tables align in terminal cells; numbers keep their digits and lose their exponent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosim.report.ladder import digits, render_ladder, render_ledger
from zerosim.report.tables import Column, cell_width, clip, pad, table

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)
RUNGS = [
    {
        "rung": "one GPU", "strategy": "ddp", "fits": False, "model_states_bytes": 112e9, "peak_bytes": 130.24e9,
        "step_seconds": None, "tokens_per_second": None, "relative_throughput": None, "reason": "112 GB of states",
    },
    {
        "rung": "ZeRO-3", "strategy": "zero3", "fits": True, "model_states_bytes": 14e9, "peak_bytes": 31.5e9,
        "step_seconds": 1.2345, "tokens_per_second": 13270.0, "relative_throughput": 0.87, "reason": "",
    },
]  # fmt: skip


def test_words_stand_left_and_numbers_right() -> None:
    shown = table([Column("op", "right"), Column("name")], [(1, "gather"), (10, "x")], indent="> ")
    assert shown == "> op  name\n>  1  gather\n> 10  x"


def test_a_table_without_rows_is_its_header() -> None:
    assert table([Column("a"), Column("b", "right")], []) == "a  b"


def test_a_row_with_a_missing_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        table([Column("a"), Column("b")], [("only one",)])


def test_wide_and_combining_characters_are_counted_in_cells() -> None:
    assert [cell_width(text) for text in ("ab", "模型", "e\u0301")] == [2, 4, 1]
    assert table([Column("a"), Column("b")], [("模型", "x"), ("abcd", "y")]).split("\n")[1:] == ["模型  x", "abcd  y"]


def test_clipping_shows_that_something_is_missing() -> None:
    assert [clip("abcdef", width) for width in (6, 5, 1, 0)] == ["abcdef", "abcd…", "…", ""]


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=6))
def test_the_last_column_begins_in_the_same_cell_in_every_line(rows: list[tuple[str, str, str]]) -> None:
    marked = [
        (a, b, f"|{c.replace('|', '/')}|")
        for a, b, c in ((a.replace("|", "/"), b.replace("|", "/"), c) for a, b, c in rows)
    ]
    lines = table([Column("a"), Column("b", "right"), Column("|c|")], marked).split("\n")
    assert len({cell_width(line[: line.index("|")]) for line in lines}) == 1


@given(TEXTS, st.integers(0, 20))
def test_a_clipped_text_fits_and_a_padded_one_fills(text: str, width: int) -> None:
    assert cell_width(clip(text, width)) <= width
    assert cell_width(pad(text, width)) == max(width, cell_width(text))


def test_digits() -> None:
    written = {0.0: "0", 0.87: "0.870", 1.2345: "1.23", 31.5: "31.5", 130.24: "130", 999.6: "1000", 13270.4: "13270"}
    assert {value: digits(value) for value in written} == written
    assert digits(2e-6) == "2e-06"


def test_ladder() -> None:
    assert render_ladder(RUNGS) == (
        "rung     fits  states GB  peak GB  step s  tokens/s  relative\n"
        "one GPU  NO          112      130       -         -         -\n"
        "ZeRO-3   yes        14.0     31.5    1.23    13.27k     0.870\n"
        "\n"
        "one GPU  112 GB of states\n"
        "ZeRO-3\n"
    )


def test_below_a_rung_stand_what_was_measured_and_the_deviation() -> None:
    lines = render_ladder(RUNGS, {"ZeRO-3": {"peak_bytes": 30e9}}).split("\n")
    assert lines[3].split() == ["measured", "30.0"]
    assert lines[4].split() == ["deviation", "+5.0", "%"]  # 31.5 / 30 - 1
    end = lines[0].index("peak GB") + len("peak GB")  # a column stays a column
    assert {line[:end].split()[-1] for line in lines[2:4]} == {"31.5", "30.0"}
    assert lines[4][:end].endswith("+5.0 %")


def test_ladder_shows_what_was_measured_to_fit() -> None:
    right = render_ladder(RUNGS, {"one GPU": {"fits": False}}).split("\n")
    assert (right[2].split(), right[3].split()[0]) == (["measured", "NO"], "ZeRO-3")  # no deviation, so no line
    wrong = render_ladder(RUNGS, {"one GPU": {"fits": True}}).split("\n")
    assert [line.split() for line in wrong[2:4]] == [["measured", "yes"], ["deviation", "differs"]]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_ladder_keeps_to_the_screen(width: int) -> None:
    long = [row | {"reason": "word " * 60} for row in RUNGS]
    measured = {"peak_bytes": 30e9, "step_seconds": 1.5, "tokens_per_second": 9e4, "relative_throughput": 0.9}
    lines = render_ladder(long, {"ZeRO-3": measured}, width)
    assert max(map(len, lines.split("\n"))) <= max(width, 70)


def test_ledger() -> None:
    rows = [{"stage": 3, "offload": "cpu", "gpu_bytes_per_gpu": 1.75e9, "dram_bytes_per_node": 112e9}]
    assert render_ledger(rows) == (
        "stage  offload  GB per GPU  GB of DRAM per node\n    3  cpu            1.75                  112\n"
    )
