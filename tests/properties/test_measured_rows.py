"""Whatever stands in the cells of a row, it becomes a case or is refused with a reason; nothing is ever raised."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measured import COLUMNS, SMALL
from zerosim.spec.measured_numbers import GBPS, MEMORY, NUMBER, SHARE, TIME, TOKENS, WHOLE, Form, printed, read_number
from zerosim.spec.measured_row import row_of
from zerosim.studies.validation.case import METRICS, Case, Refused
from zerosim.studies.validation.cases import case_of

WORDS = (
    "NA", "unknown", "", "none", "unknown (24)", "~1.0B", "512/micro-batch", "2K tokens", "0", "-1", "1e300", "0.5",
    "nan", "inf", "7", "1000000", "64-128", "full", "selective (per-op)", "selective (every other layer)", "cpu",
    "nvme", "DDP", "ZeRO-1", "ZeRO-2 (1 rank)", "ZeRO-3", "HYBRID_SHARD", "ZeRO++ hpZ", "zero1=8", "mics 4",
    "fp16 mixed", "bf16 true", "TF32", "fp8", "V100 (SXM2, 8 per server)", "H100-SXM5-96GB-HBM2e (500W cap, 2.4TB/s)",
    "RTX 4090", "MI250", "GB200", "Megatron-LM", "InternEvo", "torchtitan + FSDP2",
    "HF Transformers 4.12 + DeepSpeed", "Lightning", "DeepSpeed ZeRO-Infinity", "PyTorch DDP 1.5", "T5-11B",
    "BERT-large", "Llama-2 7B", "Mixtral-8x7B", "LAMB", "SGD", "InfiniBand, 4 x 100Gbps per node", "AWS EFA",
    "NVLink NV2", "PCIe", "speedup_overlap_on_over_off=1.2", "OOM", "1F1B",
)  # fmt: skip
cells = st.sampled_from(WORDS) | st.text(max_size=20) | st.integers(-9, 10**9).map(str) | st.floats().map(str)
mangled = st.dictionaries(st.sampled_from(COLUMNS), cells, max_size=8)


FORMS = st.sampled_from((NUMBER, WHOLE, TOKENS, TIME, MEMORY, SHARE, GBPS))


@given(st.text(max_size=30) | cells, FORMS)
def test_a_number_is_positive_and_finite_or_none(text: str, form: Form) -> None:
    value, guessed, unread = read_number(text, form)
    assert value is None or (value > 0 and math.isfinite(value) and not unread)
    assert not guessed or value is not None
    assert printed(text) is None or printed(text) >= (0, 0)  # type: ignore[operator]  # None is ruled out before


@given(st.integers(1, 10**9), st.sampled_from(("", " GPUs", " (as told)", ".0")))
def test_a_whole_number_is_read_as_it_is(number: int, after: str) -> None:
    assert read_number(f"{number}{after}", WHOLE).value == number
    assert read_number(f"{number:,}{after}", WHOLE).value == number


@given(st.floats(1e-6, 1e6), st.sampled_from((("ms", 1e-3), (" s", 1.0), (" min", 60.0))))
def test_a_unit_scales(number: float, unit: tuple[str, float]) -> None:
    read = read_number(f"{number!r}{unit[0]}", TIME).value
    assert read is not None
    assert math.isclose(read, number * unit[1], rel_tol=1e-12)


@settings(max_examples=300, deadline=None)
@given(mangled)
def test_a_mangled_row_is_a_case_or_refused(changed: dict[str, str]) -> None:
    row = row_of({**dict.fromkeys(COLUMNS, "NA"), **SMALL, **changed})
    found = case_of(row)
    assert isinstance(found, Case | Refused)
    if isinstance(found, Refused):
        assert found.reason
        return
    assert all(metric.name in METRICS and math.isfinite(metric.measured) for metric in found.metrics)
    assert all(metric.slack >= 0 for metric in found.metrics)
    assert all(text.strip() for text in found.assumptions)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(("id", "dataset", "quality", "source")), st.text(max_size=10)))
def test_nothing_hangs_on_the_name_of_a_row_or_a_study(changed: dict[str, str]) -> None:
    base, other = (row_of({**dict.fromkeys(COLUMNS, "NA"), **SMALL, **each}) for each in ({}, changed))
    one, two = case_of(base), case_of(other)
    assert isinstance(one, Case)
    assert isinstance(two, Case)
    same = ("model", "training", "strategy", "topology")
    assert all(one.scenario.text[key] == two.scenario.text[key] for key in same)
    assert (one.metrics, one.assumptions) == (two.metrics, two.assumptions)
