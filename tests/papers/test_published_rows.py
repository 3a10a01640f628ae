"""The published measurements that come with zerosim: each becomes a case, or is refused for what is not built."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from zerosim.spec.measured_row import Row, read_rows
from zerosim.studies.validation.case import Case, Refused
from zerosim.studies.validation.cases import case_of

PATH = Path(str(files("zerosim.catalog").joinpath("published", "training.csv")))
MOST_REFUSED = 8


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    return read_rows(PATH)


@pytest.fixture(scope="module")
def found(rows: tuple[Row, ...]) -> tuple[Case | Refused, ...]:
    return tuple(map(case_of, rows))


def test_all_rows_are_there(rows: tuple[Row, ...]) -> None:
    assert len(rows) == len({row.id for row in rows}) == 389
    assert sum(row.quality == "A" for row in rows) == 162
    assert all(row.raw["source"] for row in rows)


def test_few_are_refused_and_for_what_is_not_built(found: tuple[Case | Refused, ...]) -> None:
    refused = [each for each in found if isinstance(each, Refused)]
    assert len(refused) <= MOST_REFUSED
    for each in refused:
        assert "delayed parameter update" in each.reason or "16 bits" in each.reason, each.row.id


def test_each_case_has_something_measured(found: tuple[Case | Refused, ...]) -> None:
    for each in found:
        if isinstance(each, Case):
            assert each.metrics, each.row.id
            assert {metric.name for metric in each.metrics} != {"fits"} or not each.metrics[0].measured, each.row.id


def test_a_run_has_the_ranks_and_the_batch_of_its_row(found: tuple[Case | Refused, ...]) -> None:
    for each in found:
        if isinstance(each, Case):
            training, row = each.scenario.training, each.row
            assert each.scenario.world_size == row.gpus, row.id
            if row.micro_batch and row.accumulation and row.global_batch:
                sequences = training.micro_batch_size * training.gradient_accumulation_steps
                assert sequences * each.scenario.replicas == row.global_batch, row.id


def test_models_are_of_the_size_that_is_told(found: tuple[Case | Refused, ...]) -> None:
    for each in found:
        if isinstance(each, Case) and each.row.parameters:
            assert each.scenario.model.numel == pytest.approx(each.row.parameters, rel=0.16), each.row.id


def test_the_mpt_trees_are_exact(found: tuple[Case | Refused, ...]) -> None:
    """llm-foundry prints every parameter: biases, norms and learnt positions are in it."""
    exact = [each for each in found if isinstance(each, Case) and "MPT" in each.row.model]
    assert len(exact) == 130
    assert all(each.scenario.model.numel == each.row.parameters for each in exact)


def test_assumptions_are_told_where_the_row_says_unknown(found: tuple[Case | Refused, ...]) -> None:
    for each in found:
        if isinstance(each, Case) and each.row.raw["seq_len"].startswith("unknown"):
            assert any(text.startswith("sequence length") for text in each.assumptions), each.row.id
