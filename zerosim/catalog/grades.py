"""The grades of hardware.yaml figure by figure: that of the entry, or the one that stands beside it under `weaker`.

Rule: grades only. What a grade is worth is said in costs.yaml (group `uncertainty`), and drawn in studies/uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from zerosim.catalog.data import load
from zerosim.catalog.figures import described

FITTED_LATENCIES = "SWEEPS"  # latencies of ports whose efficiency comes from there are fitted, the others recalled


def sustained_grade(gpu: str) -> str:
    """Of what products hold in a step on a GPU of the catalogue. Derived where no step was published, recalled where no
    search was published either."""
    entry = _hardware()["gpus"][gpu]
    if "sustained" in entry:
        return str(entry.get("weaker", {}).get("sustained", entry["grade"]))
    return described("gemm.sustained" if "matmul" in entry else "gemm.efficiency").grade


def latency_grade(port: str) -> str:
    """Of the latencies of a network port of the catalogue."""
    return "F" if _hardware()["nics"][port]["source"] == FITTED_LATENCIES else "R"


@cache
def _hardware() -> Mapping[str, Any]:
    return load("hardware.yaml")
