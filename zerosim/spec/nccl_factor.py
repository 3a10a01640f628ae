"""What busbw / algbw says of a log: which collectives it allows, and how many GPUs.

The factor is 2 (n-1)/n for an all-reduce, (n-1)/n where each GPU sends or receives all but its own part, else 1
(nccl-tests doc/PERFORMANCE.md). It is printed with two digits, so that large n leave a range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from zerosim.spec.nccl_rows import ROUNDING, Row

SHARE = ("all_gather", "reduce_scatter", "all_to_all")  # bus factor (n-1)/n
USUAL_NODE = 8  # GPUs of a node where nothing says how many
MOST_GPUS = 1_000_000


def factor(rows: Sequence[Row]) -> tuple[float, float]:
    """Between what busbw / algbw lies, after rounding: what all rows allow; the row with most digits where none is."""
    known = [row for row in rows if row.algbw > 2 * ROUNDING]
    if not known:
        return 0.0, 2.0
    low = max((row.busbw - ROUNDING) / (row.algbw + ROUNDING) for row in known)
    high = min((row.busbw + ROUNDING) / (row.algbw - ROUNDING) for row in known)
    if low > high:
        best = max(known, key=lambda row: row.algbw)
        low, high = (best.busbw - ROUNDING) / best.algbw, (best.busbw + ROUNDING) / best.algbw
    return low, high


def fits(kind: str, low: float, high: float) -> bool:
    """Whether a kind can have a factor between these."""
    if kind == "all_reduce":
        return high >= 1
    return low < 1 if kind in SHARE else low <= 1 <= high


def gpus_of(kind: str, rows: Sequence[Row]) -> tuple[int, int] | None:
    """The least and the most GPUs that busbw / algbw allows; None where it says nothing."""
    low, high = factor(rows)
    if kind == "all_reduce":
        low, high = low / 2, high / 2
    elif kind not in SHARE:
        return None
    if high <= 0:
        return None
    least = math.ceil(1 / (1 - low) - 1e-9) if low < 1 else MOST_GPUS
    most = math.floor(1 / (1 - high) + 1e-9) if high < 1 else MOST_GPUS
    return max(2, least), min(MOST_GPUS, most)


def single(allowed: tuple[int, int]) -> int | None:
    """The only number there, else the only multiple of 8, else of 4."""
    for step in (1, USUAL_NODE, 4):
        first = -(-allowed[0] // step) * step
        if first <= allowed[1] < first + step:
            return first
    return None


def span(allowed: tuple[int, int]) -> str:
    """A range of GPUs in words."""
    least, most = allowed
    if least > most:
        return "no whole number of GPUs"
    return f"{least} GPUs" if least == most else f"{least} to {most} GPUs" if most < MOST_GPUS else f"{least} or more"
