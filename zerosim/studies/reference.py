"""Measured values to print beside a ladder: a YAML file, by rung.

`{ZeRO-1: {peak_bytes: 47 GB, relative_throughput: 1.0, fits: true}, ...}`; any of the keys of a rung.
"""

from __future__ import annotations

from typing import Any

from zerosim.errors import InputError, nearest
from zerosim.spec.loading import Schema, Size, read, validated

RUNGS = ("one GPU", "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")


class Measured(Schema):
    """What was measured of one rung."""

    fits: bool | None = None
    peak_bytes: Size | None = None
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    relative_throughput: float | None = None


def read_reference(path: str) -> dict[str, dict[str, Any]]:
    """The measured values by rung; InputError with every mistake in the file."""
    document = read(path)
    if not isinstance(document.data, dict):
        raise InputError(
            [document.problem((), "no mapping", "measured values by rung, e.g. ZeRO-1: {peak_bytes: 47 GB}")]
        )
    unknown = [rung for rung in document.data if rung not in RUNGS]
    if unknown:
        raise InputError(
            document.problem((rung,), f'"{rung}"', f"one of {', '.join(RUNGS)}", nearest(str(rung), RUNGS))
            for rung in unknown
        )
    return {rung: validated(document.below(rung), Measured).model_dump(exclude_none=True) for rung in document.data}
