"""Traces of tests/profiled.py, read: as a measured step, or as its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.profiled import Event, document, write
from zerosim.measured import Measured, read_trace
from zerosim.views.recorded import Recorded


def read(folder: Path, events: list[Event], step: int | None = None, **head: Any) -> Measured:
    return read_trace(write(folder / "t.json", document(events) | head), step=step)


def summary(folder: Path, events: list[Event], step: int | None = None, **head: Any) -> Recorded:
    return read(folder, events, step, **head).summary()


def us(seconds: float) -> float:
    """Microseconds, to a hundredth."""
    return round(seconds * 1e6, 2)
