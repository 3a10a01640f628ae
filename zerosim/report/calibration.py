"""What `calibrate` prints, a row a curve with its quality, a line a number; and what others say of numbers they used.

Rule: the answer comes in as `--json` has it, so text and JSON cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.tables import Column, table
from zerosim.report.words import INDENT, wrapped
from zerosim.resources import Calibrated
from zerosim.units import show_binary_size, show_rate, show_seconds, show_share

HEADS = (
    Column("collective"),
    Column("GPUs", "right"),
    Column("nodes", "right"),
    Column("alpha", "right"),
    Column("bus bandwidth", "right"),
    Column("kappa", "right"),
    Column("sizes", "right"),
    Column("error", "right"),
    Column("worst", "right"),
)
UNKNOWN = "-"


def render_calibration(answer: Mapping[str, Any], width: int) -> str:
    """The whole answer."""
    lines = [*_fits(answer["fits"], width), *_others(answer, width)]
    return "".join(f"{line}\n" for line in lines)


def measured(entries: Sequence[Calibrated], by: str = "this step") -> Iterator[str]:
    """Each measured number that was used, with its source; in one line those that were not."""
    for each in entries:
        if each.used:
            remark = f"; {each.remark}" if each.remark else ""
            yield f"measured, {each.entry}: {each.value} ({each.source}){remark}"
    idle = [each.entry + (f" ({each.remark})" if each.remark else "") for each in entries if not each.used]
    if idle:
        yield f"measured, but of no use to {by}: {', '.join(idle)}"


def _fits(fits: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    if not fits:
        return
    yield from table(HEADS, [_row(each) for each in fits]).split("\n")
    for each in fits:
        told = "; ".join((each["source"].partition(", ")[0], *each["remarks"]))
        yield from wrapped(f"{each['collective']} of {each['gpus']} GPUs: {told}", width, INDENT, hang=INDENT)


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    alpha, bandwidth, kappa, worst = (
        each["alpha_seconds"],
        each["bandwidth_bytes_per_second"],
        each["kappa"],
        each["worst"],
    )
    return (
        each["collective"],
        str(each["gpus"]),
        str(each["nodes"]),
        UNKNOWN if alpha is None else show_seconds(alpha),
        UNKNOWN if bandwidth is None else show_rate(bandwidth),
        UNKNOWN if kappa is None else f"{kappa:.2f}",
        str(each["points"]),
        show_share(each["error"]),
        f"{100 * worst['error']:+.0f} % at {show_binary_size(int(worst['size_bytes']))}",
    )


def _others(answer: Mapping[str, Any], width: int) -> Iterator[str]:
    for each in answer["compute"]:
        said = f"compute of {each['gpu']}: {show_share(each['factor'])} of the catalogue's rates ({each['source']})"
        yield from wrapped(said, width, "")
    for each in answer["rates"]:
        yield from wrapped(f"{each['name']}: {show_rate(each['rate'])}, {each['of']} ({each['source']})", width, "")
