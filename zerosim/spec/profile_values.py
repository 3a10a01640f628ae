"""Values of a trace's JSON, where anything may stand anywhere: a number, a name, or nothing that can be used."""

from __future__ import annotations

import math
from typing import Any

Named = int | str | None  # a stream, a process, a thread: most are numbers
_LARGEST = 1 << 53  # whole numbers up to here are floats
WIDEST = 1 << 64  # no number, id or count of a profiler has more bits


def plain(value: Any) -> Named:
    """A number or text; anything else as text, so that it can be a key."""
    return value if isinstance(value, int | str) or value is None else str(value)


def number(value: Any) -> float | None:
    """A finite number, also where it is written as text."""
    if (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < _LARGEST):
        return float(value)  # as nearly always
    if isinstance(value, bool):
        return None
    try:
        found = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """A whole number of at most 64 bits, also where it is written as text or as 3.0."""
    if type(value) is int:
        return value if abs(value) < WIDEST else None
    found = number(value)
    return int(found) if found is not None and abs(found) < WIDEST and found == int(found) else None
