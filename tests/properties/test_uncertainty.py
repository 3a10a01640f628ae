"""Ranges, for any spreads and seeds: in order, above 0, and the same again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from zerosim.catalog import using
from zerosim.scenario import from_mapping
from zerosim.studies.uncertain import drawn_constants, figures_of_constants, is_share
from zerosim.studies.uncertainty import draw, drivers, sample

SCENARIO = from_mapping(
    {
        "title": "small",
        "topology": "dgx-a100-80",
        "model": {"layers": 1, "hidden": 256, "heads": 4, "vocab": 1000},
        "training": {"sequence_length": 128, "attention": "flash", "precision": "bf16"},
        "strategy": {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}},
    }
)
SPREADS = st.floats(0, 2)


@settings(max_examples=25)
@given(SPREADS, SPREADS, SPREADS, st.integers(0, 2**63 - 1))
def test_intervals_are_in_order(host: float, fitted: float, recalled: float, seed: int) -> None:
    spreads = {"uncertainty.host": host, "uncertainty.grade.F": fitted, "uncertainty.grade.R": recalled}
    with using(spreads):
        found = sample(SCENARIO, 3, seed)
        again = sample(SCENARIO, 3, seed)
    assert found == again
    assert 0 < found.interval.p10 <= found.interval.p50 <= found.interval.p90
    assert found.tokens_per_second.p10 <= found.tokens_per_second.p90


@given(st.floats(-8, 8))
def test_drawn_constants_stay_what_they_are(z: float) -> None:
    drawn = drawn_constants({figure.name: z for figure in figures_of_constants().values()})
    assert all(value > 0 for value in drawn.values())
    assert all(value <= 1 for path, value in drawn.items() if is_share(path))


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
def test_correlations_are_correlations(answers: list[float]) -> None:
    from zerosim.studies.uncertain import Figure

    draws = {Figure(name, "F", 0.1): draw(name, len(answers), 0).tolist() for name in "abcde"}
    found = drivers(answers, draws)
    assert len(found) <= 3
    assert all(-1 - 1e-9 <= each.correlation <= 1 + 1e-9 for each in found)
