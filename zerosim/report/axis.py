"""A time axis: ticks at round numbers, in the unit that suits the whole step."""

from __future__ import annotations

import math

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def ticks(seconds: float, at_most: int) -> list[tuple[float, str]]:
    """Up to `at_most` + 1 ticks from 0 on, 1, 2 or 5 times a power of ten apart, each with its label."""
    if seconds <= 0:
        return [(0.0, "0 s")]
    step = _round_up(seconds / max(at_most, 1))
    scale, unit = next((known for known in _UNITS if step >= known[0] * (1 - 1e-9)), _UNITS[-1])
    if seconds >= 1.0 and step >= 0.1:  # seconds with a fraction rather than thousands of milliseconds
        scale, unit = _UNITS[0]
    count = math.floor(seconds / step * (1 + 1e-9))
    return [(tick * step, f"{tick * step / scale:.6g} {unit}") for tick in range(count + 1)]


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= value * (1 - 1e-9))
