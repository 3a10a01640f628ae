"""Answers side by side: the first is the baseline, and beside each other number stands its ratio to the baseline's.

Rule: quantities are rows, answers are columns with a letter each, so that three long titles still fit a terminal. A
ratio says how many times as much, not whether that is good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from string import ascii_uppercase
from typing import NamedTuple

from zerosim.report.parts import cause_name, time_parts
from zerosim.report.tables import Column, clip, table
from zerosim.units import show_count, show_flops, show_seconds, show_share, show_size
from zerosim.views.summary import Summary


class Quantity(NamedTuple):
    """A row: what it is called, its number in each answer (None where there is none), and how it is written."""

    name: str
    values: list[float | None]
    show: Callable[[float], str]


def render_comparison(summaries: Sequence[Summary], width: int = 100) -> str:
    """The comparison, ending in a line end."""
    letters = [_letter(index) for index in range(len(summaries))]
    titles = [
        clip(f"{letter}  {summary.scenario}{'' if index else ' (baseline)'}", width)
        for index, (letter, summary) in enumerate(zip(letters, summaries, strict=True))
    ]
    columns = [Column("")]
    for index, letter in enumerate(letters):
        columns += [Column(letter, "right")] + ([Column(f"{letter}/{letters[0]}", "right")] if index else [])
    rows = [_fits(summaries), *map(_cells, quantities(summaries)), _largest_stalls(summaries)]
    return "\n".join([*titles, "", table(columns, rows)]) + "\n"


def quantities(summaries: Sequence[Summary]) -> list[Quantity]:
    """Every number that is compared."""
    rows: list[tuple[str, Callable[[Summary], float], Callable[[float], str]]] = [
        ("step time", lambda s: s.step_seconds, show_seconds),
        ("tokens/s", lambda s: s.tokens_per_second, show_count),
        ("tokens/s per GPU", lambda s: s.tokens_per_second_per_gpu, show_count),
        ("model FLOP/s per GPU", lambda s: 1e12 * s.model_tflops_per_gpu, show_flops),
        ("MFU", lambda s: s.mfu, show_share),
    ]
    found = [Quantity(name, [take(summary) for summary in summaries], show) for name, take, show in rows]
    return [*found, *_times(summaries), *_sizes(summaries)]


def _times(summaries: Sequence[Summary]) -> Iterator[Quantity]:
    for parts in zip(*map(time_parts, summaries), strict=True):
        yield Quantity(parts[0].word, [part.amount for part in parts], show_seconds)
    yield Quantity("communication hidden", [summary.communication.overlap for summary in summaries], show_share)
    for phase in summaries[0].phases:
        yield Quantity(phase, [summary.phases.get(phase) for summary in summaries], show_seconds)


def _sizes(summaries: Sequence[Summary]) -> Iterator[Quantity]:
    for tier in dict.fromkeys(name for summary in summaries for name in summary.memory):
        uses = [summary.memory.get(tier) for summary in summaries]
        yield Quantity(f"{tier} at its peak", [use.peak_bytes if use else None for use in uses], show_size)


def _cells(quantity: Quantity) -> list[str]:
    first = quantity.values[0]
    row = [quantity.name]
    for index, value in enumerate(quantity.values):
        row.append("-" if value is None else quantity.show(value))
        if index:
            row.append("-" if value is None or not first else f"{value / first:.3g}x")
    return row


def _fits(summaries: Sequence[Summary]) -> list[str]:
    return _words("fits in memory", ["yes" if summary.fits else "NO" for summary in summaries])


def _largest_stalls(summaries: Sequence[Summary]) -> list[str]:
    return _words("largest wait", [cause_name(s.stalls[0].cause) if s.stalls else "none" for s in summaries])


def _words(name: str, words: Sequence[str]) -> list[str]:
    """A row of words, which have no ratio."""
    return [name, words[0], *(cell for word in words[1:] for cell in (word, ""))]


def _letter(index: int) -> str:
    """A to Z, then A1, B1 and so on."""
    turn, place = divmod(index, len(ascii_uppercase))
    return ascii_uppercase[place] + (str(turn) if turn else "")
