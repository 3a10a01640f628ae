"""Columns of numbers as they travel in JSON: a typed array in base64, or one number where all are the same.

Rules: little-endian, as every browser's machine is; whole numbers take the narrowest unsigned type that holds them;
moments are ticks, 2^40 - 1 of them a figure (5 ps in a step of 5.7 s), so that what ends when something else begins
does so in the narrowest window too, and the difference of two moments has more digits than are ever shown; bytes are
floats of 32 bits, whose seven digits are three more.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Column = list[Any] | float | int  # ["u16", base64], ["some", where, what] of mostly zeros, or what every row has

TICKS = 2**40 - 1
_WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u40": 5}  # bytes of a whole number


def whole(numbers: Sequence[int] | npt.NDArray[np.int64]) -> Column:
    """Numbers from 0 to 2^40 - 1."""
    values = np.ascontiguousarray(numbers, dtype="<i8")
    if alike(values):
        return int(values[0]) if len(values) else 0
    some = np.flatnonzero(values)
    if 4 * len(some) <= len(values):
        return ["some", whole(some), whole(values[some])]
    highest = int(values.max())
    name, width = next((name, width) for name, width in _WIDTHS.items() if highest < 256**width)
    return [name, _text(values.view(np.uint8).reshape(-1, values.itemsize)[:, :width])]


def sizes(numbers: npt.NDArray[np.float64]) -> Column:
    """Bytes."""
    if alike(numbers):
        return float(numbers[0]) if len(numbers) else 0.0
    return ["f32", _text(numbers.astype("<f4"))]


def moments(seconds: Sequence[float] | npt.NDArray[np.float64], step: float) -> Column:
    """Moments of a step that takes `step` seconds, in ticks."""
    values = np.asarray(seconds, dtype=np.float64)
    return whole(np.clip(np.rint(values * (TICKS / step if step else 0.0)), 0, TICKS).astype(np.int64))


def alike(values: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> bool:
    """Whether one number says them all."""
    return not len(values) or bool((values == values[0]).all())


def _text(values: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
