"""Predictions beside measurements: errors and groups by hand, who calibrates, who is asked for, what is printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.measured import written
from zerosim.errors import InputError
from zerosim.report.validation import markdown, render_validation
from zerosim.spec.measured_row import Row, read_rows
from zerosim.studies.validation.groups import Fitting, coverage, fitting, groups, statistics, worst
from zerosim.studies.validation.lines import Labels, Line, labels, lines
from zerosim.studies.validation.peers import peers
from zerosim.studies.validation.prediction import Answer, Band, Pair, Prediction, Unplayed
from zerosim.studies.validation.shares import COMMUNICATION, MATMUL, likely
from zerosim.studies.validation.validate import Calibrating, Validation, calibrating
from zerosim.studies.validation.wanted import check, wanted

OF = Labels("made-up", "A", "ZeRO-3", "A100-SXM4-40GB")


def line(name: str, measured: float, predicted: float, **more: Any) -> Line:
    """A line on a step time, or what `more` says."""
    error = Pair("step_seconds", measured, 0.0, predicted).error
    known: dict[str, Any] = {
        "id": name, "labels": OF, "metric": "step_seconds", "measured": measured, "slack": 0.0, "predicted": predicted,
        "error": error, "assumptions": (), "reason": "", "fullness": 0.5, "formula_seconds": measured / 2,
    }  # fmt: skip
    return Line(**{**known, **more})


def prediction(*pairs: Pair, shares: Mapping[str, float] | None = None, nodes: int = 1, gpus: int = 8) -> Prediction:
    return Prediction(
        pairs=pairs or (Pair("step_seconds", 1.0, 0.0, 1.1),), assumptions=("dropout 0.1",), shares=shares or {},
        held={"activations": 0.8}, fullness=0.5, formula_seconds=0.4, nodes=nodes, gpus=gpus,
    )  # fmt: skip


def rows(folder: Path, *given: Mapping[str, str]) -> tuple[Row, ...]:
    return tuple(read_rows(written(folder, given)))


# --- errors and groups ---


def test_statistics_by_hand() -> None:
    found = statistics([0.10, -0.20, 0.30, -0.40, 0.05])
    assert found.rows == 5
    assert found.median == pytest.approx(0.20)
    assert found.p90 == pytest.approx(0.36)  # between 0.30 and 0.40: 0.9 x 4 = 3.6
    assert found.bias == pytest.approx(0.05)  # of -0.40 -0.20 0.05 0.10 0.30
    assert found.mean == pytest.approx(0.21)


def test_an_error_is_predicted_over_measured_less_one() -> None:
    assert Pair("step_seconds", 2.0, 0.0, 3.0).error == 0.5
    assert Pair("fits", 0.0, 0.0, 0.0).error == 0.0
    assert Pair("fits", 0.0, 0.0, 1.0).error is None


def test_groups_are_of_the_step_time_and_other_metrics_have_their_own() -> None:
    found = {
        group.name: group.found
        for group in groups(
            [
                line("a", 1.0, 1.1),
                line("b", 1.0, 0.7, labels=OF._replace(quality="B", gpu="V100")),
                line("a", 1.0, 2.0, metric="reserved_memory_bytes"),
                line("b", 1.0, 1.0, metric="peak_memory_bytes", labels=OF._replace(quality="B")),
                line("a", 1.0, 1.5, metric="forward_seconds"),
                line("a", 1.0, 0.0, metric="fits"),
            ]
        )
    }
    assert list(found) == [
        "all", "constants not fitted to it", "quality A", "quality B", "study made-up", "strategy ZeRO-3",
        "gpu A100-SXM4-40GB", "gpu V100",
        "metric forward_seconds", "metric memory", "metric forward_seconds, quality A", "metric memory, quality A",
        "metric memory, quality B",
    ]  # fmt: skip
    assert found["all"].rows == 2
    assert found["all"].median == pytest.approx(0.2)
    assert found["gpu V100"].bias == pytest.approx(-0.3)
    assert found["metric memory"].median == pytest.approx(0.5)


def test_a_calibrated_group_keeps_what_the_catalogue_says() -> None:
    (group, *_) = groups([line("a", 1.0, 1.1, shipped=1.4), line("b", 1.0, 0.9, shipped=0.8)])
    assert group.found.median == pytest.approx(0.1)
    assert group.shipped is not None
    assert group.shipped.median == pytest.approx(0.3)
    assert group.as_json()["as_shipped_bias"] == pytest.approx(0.1)


def test_who_is_right_on_what_fits() -> None:
    asked = [
        line("ran", 1.0, 1.0, metric="fits", fullness=0.8),
        line("ran too full", 1.0, 0.0, metric="fits", fullness=1.2),
        line("out", 0.0, 0.0, metric="fits", fullness=1.6),
        line("out with room", 0.0, 1.0, metric="fits", fullness=0.7),
        line("near", 1.0, 0.0, metric="fits", fullness=1.04),
        line("near, too", 1.0, 1.0, metric="fits", fullness=0.96),
    ]
    found = fitting(asked)
    assert found == Fitting(("ran",), ("ran too full",), ("out",), ("out with room",), ("near", "near, too"))
    told = found.as_json()
    assert (told["rows"], told["right"], told["wrong"]) == (6, 2, 2)


def test_the_worst_are_those_whose_errors_are_largest() -> None:
    found = worst(
        [
            line("a", 1.0, 1.1),
            line("b", 1.0, 0.5),
            line("c", 1.0, 1.5),
            line("m", 1.0, 9.0, metric="peak_memory_bytes"),
        ],
        2,
    )
    assert [each.id for each in found] == ["b", "c", "m"]


def test_no_more_than_two_of_the_worst_are_of_a_studys_strategy() -> None:
    alike = [line(str(n), 1.0, 2.0 + n) for n in range(4)]
    other = line("other", 1.0, 1.1, labels=OF._replace(study="other"))
    assert [each.id for each in worst([*alike, other], 10)] == ["3", "2", "other"]


def test_a_band_holds_what_its_source_tells_widely() -> None:
    band = Band(1.0, 2.0)
    assert band.holds(1.0)
    assert not band.holds(2.1)
    assert band.holds(2.1, slack=0.1)


def test_coverage_is_told_by_group() -> None:
    known = [line("a", 1.0, 1.1, band=Band(0.9, 1.3)), line("b", 1.0, 1.1, band=Band(1.1, 1.3)), line("c", 1.0, 1.0)]
    known[1] = known[1]._replace(labels=OF._replace(quality="B"))
    found = {each.group: (each.rows, each.inside) for each in coverage(known)}
    assert found["all"] == (2, 1)
    assert (found["quality A"], found["quality B"]) == ((1, 1), (1, 0))
    text = render_validation(Validation("x", "as shipped", tuple(known)).as_json())
    assert ["all", "2", "1", "50.0", "%"] in [row.split() for row in text.splitlines()]
    assert coverage([line("c", 1.0, 1.0)]) == ()


# --- rows ---


def test_labels_are_the_words_before_a_bracket(tmp_path: Path) -> None:
    (row,) = rows(
        tmp_path,
        {"strategy": "ZeRO-2 (1 rank)", "gpu": "V100 (SXM2, 8 per server)", "offload_optimizer": "cpu"},
    )
    assert labels(row) == Labels("made-up", "A", "ZeRO-2 + offload", "V100")


def test_a_line_a_metric_with_its_likely_reason(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, {"confidence": "read-from-figure"})
    pairs = Pair("step_seconds", 2.0, 0.05, 1.0), Pair("allocated_memory_bytes", 10.0, 0.0, 12.0)
    step, memory = lines(row, prediction(*pairs, shares={MATMUL: 0.7, COMMUNICATION: 0.05}))
    assert (step.error, step.slack) == (-0.5, 0.05)
    assert step.reason == "read from a figure; matrix products 70 % of the step; assumed: dropout 0.1"
    assert memory.reason == "read from a figure; activations 80 % of the peak; assumed: dropout 0.1"
    keys = list(step.as_json())
    assert keys[:6] == ["id", "metric", "measured", "predicted", "error", "assumptions"]


def test_exposed_communication_over_a_network_that_was_assumed_is_told() -> None:
    parts = {COMMUNICATION: 0.4, MATMUL: 0.5, "attention": 0.09}
    assert likely(parts, "step", ()) == "matrix products 50 %, exposed communication 40 % of the step"
    assert "(over an assumed network)" in likely(parts, "step", ("inter-node network 800 Gb/s",))
    assert "assumed: a, b, c, and 2 more" in likely(parts, "step", ("a", "b", "c", "d", "e"))


@pytest.mark.parametrize(
    ("words", "raw", "name"),
    [
        ("zero stage 3", "NA", "ZeRO-3"), ("stage3", "NA", "ZeRO-3"), ("ZeRO-3", "NA", "ZeRO-3"),
        ("FULL_SHARD", "NA", "ZeRO-3"), ("FSDP", "NA", "ZeRO-3"), ("ours", "SHARD_GRAD_OP", "ZeRO-2"),
        ("PyTorch DDP", "NA", "DDP"), ("z0", "NA", "DDP"), ("DP + ZeRO-1", "NA", "ZeRO-1"),
        ("deepspeed_stage_3", "NA", "ZeRO-3"), ("zero3_init", "NA", "ZeRO-3"), ("ZeRO-DP", "NA", "ZeRO-DP"),
        ("none (PyTorch)", "NA", "none"), ("ours", "NA", "ours"),
        ("ZeRO-1 hierarchical (8 ranks)", "zero1=8", "ZeRO-1 hierarchical"), ("ZeRO++ hpZ", "NA", "ZeRO++"),
    ],
)  # fmt: skip
def test_a_strategy_is_called_as_it_is_played(tmp_path: Path, words: str, raw: str, name: str) -> None:
    (row,) = rows(tmp_path, {"strategy": words, "strategy_raw": raw})
    assert labels(row).strategy == name


def test_offload_that_only_the_strategy_says_is_in_its_name(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, {"strategy": "ZeRO-3 + offload", "offload_optimizer": "NA", "offload_param": "NA"})
    assert labels(row).strategy == "ZeRO-3 + offload"


# --- who calibrates ---


def test_one_node_calibrates_before_fewer_gpus_and_quality_before_matrix_products(tmp_path: Path) -> None:
    known = rows(tmp_path, *({"id": name, "quality": "B" if name == "b" else "A"} for name in "abcd"))
    said = [
        prediction(shares={MATMUL: 0.99}, nodes=2, gpus=2),
        prediction(shares={MATMUL: 0.95}, gpus=1),
        prediction(shares={MATMUL: 0.4}, gpus=8),
        prediction(shares={MATMUL: 0.6}, gpus=8),
    ]
    assert chosen(known, said) == ["d"]
    assert chosen(known[:3], said[:3]) == ["c"]
    assert chosen(known[:2], said[:2]) == ["b"]
    assert chosen(known[:1], said[:1]) == ["a"]


def test_the_middle_one_of_those_that_mostly_multiply_calibrates(tmp_path: Path) -> None:
    known = rows(tmp_path, *({"id": name} for name in "abcde"))
    shares = (0.9, 0.3, 0.7, 0.6, 0.45)
    said = [prediction(shares={MATMUL: share}) for share in shares]
    assert chosen(known, said) == ["c"]
    assert chosen(known[::-1], said[::-1]) == ["c"]
    assert chosen((known[1], known[4]), [said[1], said[4]]) == ["e"]


def chosen(known: tuple[Row, ...], said: list[Prediction]) -> list[str]:
    return [row.id for row, _ in calibrating(zip(known, said, strict=True)).values()]


def test_each_study_and_gpu_has_a_row_of_its_own_and_errors_do_not_choose(tmp_path: Path) -> None:
    known = rows(
        tmp_path,
        {"id": "a"},
        {"id": "b"},
        {"id": "c", "gpu": "H100-SXM5-80GB"},
        {"id": "d", "dataset": "other"},
        {"id": "e", "dataset": "third"},
    )
    for off in (0.5, 1.0, 3.0):
        said: list[Answer] = [prediction(Pair("step_seconds", 1.0, 0.0, off)), *(prediction() for _ in range(3))]
        said.append(Unplayed("no"))
        found = calibrating(zip(known, said, strict=True))
        assert {place: row.id for place, (row, _) in found.items()} == {
            ("made-up", "A100-SXM4-40GB"): "b",
            ("made-up", "H100-SXM5-80GB"): "c",
            ("other", "A100-SXM4-40GB"): "d",
        }


# --- who is asked for ---


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ({}, True),
        ({"gpu": ["a100"]}, True),
        ({"gpu": ["H100", "A100"], "strategy": ["zero-3"]}, True),
        ({"quality": ["B"]}, False),
        ({"study": ["made"]}, False),
        ({"strategy": ["ZeRO-3"], "study": ["other"]}, False),
    ],
)
def test_filters(asked: Mapping[str, list[str]], passes: bool) -> None:
    assert wanted(asked, OF) is passes


def test_names_of_no_row_are_told_at_once() -> None:
    with pytest.raises(InputError) as refused:
        check({"study": ["made"], "gpu": ["A100", "B200"]}, [OF])
    assert [str(problem) for problem in refused.value.problems] == [
        '--study: found "made"; expected one of made-up; nearest made-up',
        '--gpu: found "B200"; expected one of A100-SXM4-40GB',
    ]
    with pytest.raises(InputError) as refused:
        check({"study": ["made-up"], "gpu": ["V100"]}, [OF, OF._replace(study="other", gpu="V100")])
    assert [str(problem) for problem in refused.value.problems] == [
        '--study: found none that is all of what is asked for with "made-up"; expected one of other',
        '--gpu: found none that is all of what is asked for with "V100"; expected one of A100-SXM4-40GB',
    ]
    with pytest.raises(InputError) as refused:
        check({"gpu": ["", "b100-sxm4-40gb"]}, [OF])
    assert [str(problem) for problem in refused.value.problems] == [
        '--gpu: found ""; expected one of A100-SXM4-40GB',
        '--gpu: found "b100-sxm4-40gb"; expected one of A100-SXM4-40GB; nearest A100-SXM4-40GB',
    ]


# --- peers ---


def test_one_mfu_makes_as_many_too_long_as_too_short() -> None:
    known = [line(str(n), 1.0, 1.1, formula_seconds=share) for n, share in enumerate((0.2, 0.4, 0.5))]
    found = {peer.method.partition(" (")[0]: peer for peer in peers(known, {}) if peer.of == "all"}
    assert found["zerosim, as shipped"].mean == pytest.approx(0.1)
    formula = found["FLOPs / peak"].found
    assert formula is not None
    assert formula.bias == pytest.approx(-0.6)
    one = found["FLOPs / peak, one MFU"].found
    assert one is not None
    assert (one.bias, one.median) == pytest.approx((0.0, 0.25))  # 0.2, 0.4 and 0.5 over 0.4


def test_published_figures_stand_at_their_study_or_at_the_end() -> None:
    here = peers([line("a", 1.0, 1.1, labels=OF._replace(study="vtrain"))], {})
    assert [peer.of for peer in here if peer.found is None][-1] == "study megatron-sc21"
    calculon = next(peer for peer in here if peer.method == "Calculon")
    assert (calculon.of, calculon.mean, calculon.rows) == ("study vtrain", 0.265, 240)
    elsewhere = peers([line("a", 1.0, 1.1)], {})
    assert not any(peer.found for peer in elsewhere if peer.of.startswith("study"))
    assert peers([], {}) == ()


def test_a_study_that_is_calibrated_calibrates_the_formula_too() -> None:
    known = [line("a", 1.0, 1.1, shipped=1.2, formula_seconds=0.4)]
    found = {peer.method: peer.mean for peer in peers(known, {("made-up", "A100-SXM4-40GB"): 0.5})}
    assert found["FLOPs / peak, MFU of the calibrating row"] == pytest.approx(0.2)
    assert found["zerosim, as shipped"] == pytest.approx(0.2)
    assert found["zerosim, calibrated"] == pytest.approx(0.1)


def test_rows_that_nothing_calibrates_are_not_in_the_formula_by_a_calibrating_row() -> None:
    known = [line("a", 1.0, 1.1, formula_seconds=0.4), line("b", 1.0, 1.1, labels=OF._replace(study="other"))]
    found = {peer.method: peer.rows for peer in peers(known, {("made-up", "A100-SXM4-40GB"): 0.5}) if peer.of == "all"}
    assert found["FLOPs / peak, MFU of the calibrating row"] == 1
    assert found["zerosim, as shipped"] == 2


# --- what is printed ---

LINES = (
    line("a", 1.0, 1.1, reason="attention 60 % of the step", assumptions=("dropout 0.1",)),
    line("b", 2.0, 1.0, labels=OF._replace(quality="B")),
    line("a", 8e10, 1e11, metric="reserved_memory_bytes"),
    line("a", 1.0, 1.0, metric="fits"),
    line("c", 1.19, 1.1, metric="speedup"),
)


def test_text_tells_each_kind_of_answer() -> None:
    found = Validation("rows.csv", "as shipped", LINES)
    text = render_validation(found.as_json(beside=True))
    assert text.startswith("rows.csv: 3 rows played, 0 not; as shipped (catalogue only).")
    shown = [row.split() for row in text.splitlines()]
    assert ["all", "2", "30.0", "%", "46.0", "%", "-20.0", "%"] in shown
    assert ["memory", "1", "25.0", "%", "25.0", "%", "+25.0", "%"] in shown
    assert ["c", "+19.0", "%", "+10.0", "%", "-7.6", "%"] in shown
    assert "attention 60 % of the step" in text
    assert "1 row ran: 1 right" in text
    assert "1 row: dropout 0.1" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_calibrated_text_shows_both_answers_and_who_calibrated() -> None:
    by = Calibrating(line("z", 1.0, 0.8), 0.8), Calibrating(line("y", 1.0, 0.7), None, "a step that waits")
    known = tuple(each._replace(shipped=each.measured, calibrated=each.labels.quality == "A") for each in LINES)
    answer = Validation("rows.csv", "calibrated", known, calibrated_by=by).as_json()
    text = render_validation(answer)
    shown = [row.split() for row in text.splitlines()]
    assert ["as", "shipped", "calibrated"] in shown
    assert ["all", "2", "0.0", "%", "0.0", "%", "+0.0", "%", "30.0", "%", "46.0", "%", "-20.0", "%"] in shown
    assert ["quality", "B", "1", "0.0", "%", "0.0", "%", "+0.0", "%", "-", "-", "-"] in shown  # as shipped
    assert ["made-up", "A100-SXM4-40GB", "z", "-20.0", "%", "0.800"] in shown
    assert "rows that could calibrate nothing (their study and GPU stay as shipped)" in text
    assert "made-up, A100-SXM4-40GB: y, as shipped -30.0 %; a step that waits" in text.replace("\u00a0", " ")
    assert max(map(len, text.splitlines())) <= 100


def test_the_table_of_a_readme() -> None:
    table = markdown(Validation("rows.csv", "as shipped", LINES).as_json())
    first, rule, row, *_ = table.splitlines()
    assert first == "|  | rows | median | p90 | bias |"
    assert rule == "| --- | ---: | ---: | ---: | ---: |"
    assert row == "| all | 2 | 30.0 % | 46.0 % | -20.0 % |"
