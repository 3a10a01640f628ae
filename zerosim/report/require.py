"""What a step requires of a resource, as text: one line a strategy, why no rate is enough, and the step by rate.

Rule: answers come in as `--json` has them. Rates of networks are in bits. The least one is rounded up in its last
digit, so that who buys what is shown has enough. A bar is as long as its step, against the longest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.tables import Column, pad, table
from zerosim.report.words import INDENT, bound, wrapped
from zerosim.units import show_count, show_flops, show_rate, show_seconds, show_share

Answer = Mapping[str, Any]
NONE, ANY, TOO_LARGE = "none", "any", "*"
SAME = 1.0001  # rates so close are one
DIGITS, RATIO_DIGITS = 4, 3  # as `show_rated` shows them
TIMES = 2.0  # from here on a step is so many times as long, not so many percent longer
WIDEST = 40  # cells of a bar
WISHES: Mapping[str, Callable[[Answer], str]] = {
    "slowdown": lambda row: f"is at most {show_share(row['slowdown'])} longer than with a free one",
    "mfu": lambda row: f"reaches {show_share(row['mfu_wanted'])} MFU",
    "seconds": lambda row: f"takes at most {show_seconds(row['target_seconds'])}",
}


def render_required(rows: Sequence[Answer], width: int = 100) -> str:
    """The answers, ending in a line end; all of one resource and one wish."""
    first = rows[0]
    extreme = "most" if first["unit"] == "ratio" else "least"
    heading = f"{first['resource']}: the {extreme} at which the step {WISHES[first['goal']](first)}"
    parts = [heading, _answers(rows), *_reasons(rows, width), _curve(first) if len(rows) == 1 else _curves(rows)]
    return "\n\n".join(parts) + "\n"


def show_rated(row: Answer, rate: float | None) -> str:
    """A rate of the resource as people write it; "-" where nobody knows it."""
    if rate is None:
        return "-"
    if row["unit"] == "ratio":
        return f"{rate:.3g}:1"
    return show_flops(rate) if row["unit"] == "FLOP/s" else show_rate(rate, bits=row["network"])


def show_least(row: Answer) -> str:
    """The rate that is required, as people write it."""
    if row["required"] is None:
        return NONE
    return ANY if row["any_rate"] else show_rated(row, rounded_least(row))


def rounded_least(row: Answer) -> float:
    """The rate that is required, rounded to the safe side, and never above the most that there can be."""
    rate = row["required"]
    unit = 1 / 8 if row["network"] else 1.0
    ratio = row["unit"] == "ratio"
    digit = 10.0 ** (math.floor(math.log10(rate / unit)) + 1 - (RATIO_DIGITS if ratio else DIGITS))
    if ratio:
        return float(math.floor(rate / digit + 1e-9) * digit)
    return float(min(math.ceil(rate / unit / digit - 1e-9) * digit * unit, row["most"]))


def _answers(rows: Sequence[Answer]) -> str:
    columns = (
        Column("strategy"),
        Column("today", "right"),
        Column("step", "right"),
        Column("free", "right"),
        Column("required", "right"),
        Column("step", "right"),
        Column("MFU", "right"),
    )
    return table(columns, [list(_line(row, label)) for row, label in zip(rows, _labels(rows), strict=True)])


def _labels(rows: Sequence[Answer]) -> list[str]:
    """The strategy of each; `zero3 (2)` where another one is called the same."""
    names = [row["strategy"] for row in rows]
    before = [names[:place].count(name) for place, name in enumerate(names)]
    return [name if not times else f"{name} ({times + 1})" for name, times in zip(names, before, strict=True)]


def _line(row: Answer, label: str) -> Iterator[str]:
    yield label
    yield show_rated(row, row["today"])
    yield "-" if row["today_seconds"] is None else show_seconds(row["today_seconds"])
    found, star = row["required"] is not None, "" if row["fits"] else TOO_LARGE
    yield show_seconds(row["free_seconds"]) + ("" if found else star)
    yield show_least(row)
    yield show_seconds(row["seconds"]) + star if found else "-"
    yield show_share(row["mfu"]) if found else "-"


def _reasons(rows: Sequence[Answer], width: int) -> Iterator[str]:
    """Why no rate is enough; what is left out; what does not fit."""
    said = [each for row, label in zip(rows, _labels(rows), strict=True) for each in _said(row, label)]
    if any(not row["fits"] for row in rows):
        said.append(f"{TOO_LARGE} does not fit in memory; what the step would take with more of it.")
    if said:
        yield "\n".join(line for each in said for line in wrapped(bound(each), width, "", INDENT))


def _said(row: Answer, name: str) -> Iterator[str]:
    if row["required"] is None:
        yield f"{name}: no rate is enough; {why_none(row)}."
    yield from (f"{name}: {note}." for note in row["notes"])


def why_none(row: Answer) -> str:
    """Why no rate is enough."""
    vain = row["free_seconds"] > row["target_seconds"]
    where = "with a free one" if vain else f"at {show_rated(row, row['most'])}"
    seconds = row["free_seconds"] if vain else row["seconds"]
    takes = f"{where} the step takes {show_seconds(seconds)}, {_longer(seconds / row['target_seconds'])} it may"
    return f"{takes}: {row['limited_by']}"


def _longer(times: float) -> str:
    return f"{show_count(times)} times as long as" if times >= TIMES else f"{show_share(times - 1)} more than"


def _curve(row: Answer) -> str:
    """The step at each rate, as bars: those that were asked for or are sold, and the one that is required."""
    points = _shown(row)
    longest = max(seconds for _, seconds in points)
    cells = [(_at_mark(row, rate), show_seconds(seconds)) for rate, seconds in points]
    widths = [max(len(line[place]) for line in cells) for place in (0, 1)]
    lines = ["the step by rate"]
    for (rate, seconds), (shown, took) in zip(points, cells, strict=True):
        bar = "=" * max(1, round(WIDEST * seconds / longest))
        mark = _mark(row, rate)
        lines.append(
            f"{INDENT}{pad(shown, widths[0], 'right')}  {pad(took, widths[1], 'right')}  {bar} {mark}".rstrip()
        )
    return "\n".join(lines)


def _mark(row: Answer, rate: float) -> str:
    marks = {"today": row["today"], "required": row["required"], "most": row["most"] if row["bounded"] else None}
    return ", ".join(name for name, each in marks.items() if each is not None and _same(each, rate))


def _at_mark(row: Answer, rate: float) -> str:
    """A rate of the curve; the required one as the table has it."""
    required = row["required"]
    return show_rated(row, rate) if required is None or row["any_rate"] or rate != required else show_least(row)


def _shown(row: Answer) -> list[tuple[float, float]]:
    """Points of the curve that are far enough apart, from today's and the required one on."""
    kept: list[tuple[float, float]] = []
    points = [(rate, seconds) for rate, seconds in row["curve"] if not _idle(row, rate)]
    first = [point for point in points if _mark(row, point[0])]
    grid = [point for point in points if any(_same(point[0], rate) for rate in row["grid"])]
    for point in (*first, *grid):
        if not any(_same(point[0], other[0]) for other in kept):
            kept.append(point)
    return sorted(kept) or points


def _idle(row: Answer, rate: float) -> bool:
    """The end of the scale, where nothing stands for a machine."""
    return row["unit"] != "ratio" and rate >= row["most"] and not row["bounded"]


def _same(one: float, other: float) -> bool:
    return max(one, other) <= SAME * min(one, other)


def _curves(rows: Sequence[Answer]) -> str:
    """The steps of several strategies at the rates that all of them were played at."""
    rates = [rate for rate, _ in _shown(rows[0])]
    shared = [rate for rate in rates if all(_at(row, rate) is not None for row in rows)]
    columns = [Column("step at", "right"), *(Column(label, "right") for label in _labels(rows))]
    lines = [
        [show_rated(rows[0], rate), *(show_seconds(seconds) for row in rows if (seconds := _at(row, rate)))]
        for rate in shared
    ]
    return table(columns, lines)


def _at(row: Answer, rate: float) -> float | None:
    return next((seconds for each, seconds in row["curve"] if _same(each, rate)), None)
