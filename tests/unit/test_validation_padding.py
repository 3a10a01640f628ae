"""Sequences of a row that are shorter than it says: what is computed of them."""

from __future__ import annotations

import pytest

from tests.measured import COLUMNS, SMALL
from zerosim.spec.measured_row import row_of
from zerosim.studies.validation.case import Case
from zerosim.studies.validation.cases import case_of

NVIDIA = {"framework": "NVIDIA DeepLearningExamples BERT (apex DDP, LAMB)", "model": "BERT-large", "strategy": "DDP"}


def case(**cells: str) -> Case:
    found = case_of(row_of({**dict.fromkeys(COLUMNS, "NA"), **SMALL, **cells}))
    assert isinstance(found, Case), found.reason
    return found


@pytest.mark.parametrize(
    ("told", "computed"),
    [
        ("512", 288),  # half of it real, all sequences shorter: 256 and half of a bin of 64
        ("128", 117),  # 106.24 real, 34 % of the sequences shorter: 0.34 x 32 more
        ("256", 256),  # nothing is known of its padding
    ],
)
def test_binned_batches_are_padded_to_their_longest(told: str, computed: int) -> None:
    found = case(**NVIDIA, seq_len=told)
    assert found.scenario.training.sequence_length == computed
    assert any("are computed" in text for text in found.assumptions) == (computed < int(told))


def test_a_sequence_is_still_a_sequence() -> None:
    """Steps are measured in sequences: what is padding changes what is predicted, not what was measured."""
    seconds = [
        next(metric.measured for metric in case(**{**NVIDIA, **more}, samples_per_s_total="100").metrics)
        for more in ({"seq_len": "512"}, {"seq_len": "512", "framework": "PyTorch DDP"})
    ]
    assert seconds[0] == seconds[1]


def test_others_compute_their_padding() -> None:
    assert case(seq_len="512").scenario.training.sequence_length == 512
