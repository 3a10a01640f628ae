"""Columns of numbers as they travel in JSON: a typed array in base64, or one number where all are the same.

Rules: little-endian, as every browser's machine is; whole numbers take the narrowest unsigned type that holds them;
moments are ticks, 2^32 - 1 of them a figure (1.3 ns in a step of 5.7 s); lengths of time are floats of 32 bits, whose
seven digits are three more than are ever shown.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Column = list[Any] | float | int  # ["u16", base64], ["some", where, what] of mostly zeros, or what every row has

TICKS = 2**32 - 1
_WHOLE = (("u8", np.uint8), ("u16", np.uint16), ("u32", np.uint32))


def whole(numbers: Sequence[int] | npt.NDArray[np.int64]) -> Column:
    """Numbers from 0 to 2^32 - 1."""
    values = np.asarray(numbers, dtype=np.int64)
    if alike(values):
        return int(values[0]) if len(values) else 0
    highest = int(values.max())
    name, kind = next((name, kind) for name, kind in _WHOLE if highest <= np.iinfo(kind).max)
    return [name, _text(values.astype(kind))]


def lengths(seconds: Iterable[float] | npt.NDArray[np.float64]) -> Column:
    """Seconds, or bytes."""
    values = np.asarray(seconds if isinstance(seconds, np.ndarray) else list(seconds), dtype=np.float64)
    if alike(values):
        return float(values[0]) if len(values) else 0.0
    some = np.flatnonzero(values)
    if 4 * len(some) <= len(values):
        return ["some", whole(some), lengths(values[some])]
    return ["f32", _text(values.astype(np.float32))]


def moments(seconds: Iterable[float] | npt.NDArray[np.float64], step: float) -> Column:
    """Moments of a step that takes `step` seconds, in ticks."""
    values = np.asarray(seconds if isinstance(seconds, np.ndarray) else list(seconds), dtype=np.float64)
    return whole(np.clip(np.rint(values * (TICKS / step if step else 0.0)), 0, TICKS).astype(np.int64))


def alike(values: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> bool:
    """Whether one number says them all."""
    return not len(values) or bool((values == values[0]).all())


def _text(values: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode("ascii")
