"""The published rows that come with the project are the collected ones, but for the corrections told here."""

from __future__ import annotations

import csv
import os
from importlib.resources import files
from pathlib import Path

import pytest

SHARED = os.environ.get("ZEROSIM_SHARED")
pytestmark = pytest.mark.skipif(not SHARED, reason="ZEROSIM_SHARED is not set: no collected measurements")

# What torchtitan prints for Llama-2 on a GPU of 95.04 GiB: its share in percent where the table has GiB (rows 045 to
# 048), and reserved memory where the table has active (049 to 052).
CORRECTED = {f"titan-{number:03}": {"peak_mem_gb", "peak_mem_def"} for number in range(45, 53)}
SHORTENED = {"source", "metric_other"}  # the second has what a note says of how well a figure could be read
PRINTED = 95.04 / 100


def _rows(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_rows_are_the_collected_ones() -> None:
    ours = _rows(Path(str(files("zerosim.catalog").joinpath("published", "training.csv"))))
    theirs = _rows(Path(SHARED or "") / "measured" / "training.csv")
    assert ours.keys() == theirs.keys()
    for name, row in ours.items():
        different = {column for column in row.keys() - SHORTENED if row[column] != theirs[name][column]}
        assert different <= CORRECTED.get(name, set()), name
    for number in range(45, 49):
        told, collected = (float(rows[f"titan-{number:03}"]["peak_mem_gb"]) for rows in (ours, theirs))
        assert abs(told - PRINTED * collected) < 0.01
