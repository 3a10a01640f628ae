"""Output of benchmarks in JSON: `nvbandwidth -j` and `fio --output-format=json`, other lines before it or not.

Told like their text: of copies the median GPU; of drives what jobs that ran together gave, of several runs the best.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

COPIES = {  # test of nvbandwidth: what it measures
    "host_to_device_memcpy_ce": "copies.h2d",
    "device_to_host_memcpy_ce": "copies.d2h",
}


def json_rates(text: str) -> dict[str, float] | None:
    """Bytes/s by name; None where the text is no JSON of these."""
    start = text.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, Mapping):
        return None
    if "nvbandwidth" in found:
        return dict(_copies(_mapping(found["nvbandwidth"]).get("testcases")))
    return _drives(found["jobs"]) if "jobs" in found and "fio version" in found else None


def _copies(tests: object) -> Iterator[tuple[str, float]]:
    """Matrices of one row, GB/s by GPU."""
    for test in _mappings(tests):
        name, matrix = test.get("name"), test.get("bandwidth_matrix")
        if isinstance(name, str) and name in COPIES and isinstance(matrix, list) and matrix:
            row = matrix[0] if isinstance(matrix[0], list) else []
            rates = [rate for value in row if (rate := _number(value))]
            if rates:
                yield COPIES[name], median(rates) * 1e9


def _drives(jobs: object) -> dict[str, float]:
    """Jobs of a group run at once; groups one after the other. Before fio 3 there is only `bw`, in KiB/s."""
    groups: defaultdict[tuple[str, float], float] = defaultdict(float)
    for job in _mappings(jobs):
        for way in ("read", "write"):
            said = _mapping(job.get(way))
            rate = _number(said["bw_bytes"]) if "bw_bytes" in said else 1024 * _number(said.get("bw"))
            groups[f"nvme.{way}", _number(job.get("groupid"))] += rate
    best: dict[str, float] = {}
    for (name, _), rate in groups.items():
        best[name] = max(best.get(name, 0.0), rate)
    return best


def _mappings(value: object) -> Iterable[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float:
    """A number, or text of one; 0 for everything else."""
    try:
        number = float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0
