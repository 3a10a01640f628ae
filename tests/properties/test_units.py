"""What is shown can be read back, to the digits shown; what is read is never negative or without end."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosim import units

DIGITS = 5.1e-4  # half a unit in the fourth significant digit
QUANTITIES = st.floats(min_value=1e-9, max_value=1e18)


@pytest.mark.parametrize(
    ("parse", "show"),
    [
        (units.parse_size, units.show_size),
        (units.parse_rate, units.show_rate),
        (units.parse_rate, lambda rate: units.show_rate(rate, bits=True)),
        (units.parse_seconds, units.show_seconds),
        (units.parse_count, units.show_count),
        (units.parse_flops, units.show_flops),
    ],
)
@given(value=QUANTITIES)
def test_shown_is_read_back(parse: Callable[[object], float], show: Callable[[float], str], value: float) -> None:
    assert math.isclose(parse(show(value)), value, rel_tol=DIGITS)


@given(value=st.floats(min_value=1e-6, max_value=100))
def test_share_is_read_back(value: float) -> None:
    assert math.isclose(units.parse_share(units.show_share(value)), value, rel_tol=5.1e-3)


@given(value=QUANTITIES)
def test_shown_twice_is_shown_the_same(value: float) -> None:
    text = units.show_seconds(value)
    assert units.show_seconds(units.parse_seconds(text)) == text


@given(dimension=st.sampled_from([units.SIZE, units.RATE, units.SECONDS, units.COUNT, units.FLOPS]), data=st.data())
def test_every_unit_reads_as_its_factor(dimension: units.Dimension, data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(sorted(dimension.units)))
    number = data.draw(st.integers(0, 10**6))
    assert math.isclose(dimension.parse(f"{number}{unit}"), number * dimension.units[unit], rel_tol=1e-12)
    assert dimension.parse(f" {number} {unit} ") == dimension.parse(f"{number}{unit}")


@given(text=st.text(max_size=20) | st.from_regex(r"[-+]?[0-9.e_]{1,12} ?[kKMGTib/sp]{0,5}", fullmatch=True))
def test_any_text_is_a_quantity_or_a_unit_error(text: str) -> None:
    for dimension in (units.SIZE, units.RATE, units.SECONDS, units.COUNT, units.FLOPS, units.SHARE):
        try:
            value = dimension.parse(text)
        except units.UnitError:
            continue
        assert math.isfinite(value)
        assert value >= 0
