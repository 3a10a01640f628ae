"""Answers side by side: the first is the baseline, and beside each other number stands its ratio to the baseline's.

Rule: quantities are rows, answers are columns with a letter each, so that three long titles still fit a terminal. A
ratio says how many times as much, not whether that is good. A step may be played or measured; what a trace does not
tell of a measured one is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from string import ascii_uppercase
from typing import NamedTuple, TypeVar

from zerosim.report.parts import cause_name, time_parts
from zerosim.report.recorded import origin
from zerosim.report.running import tokens_per
from zerosim.report.tables import Column, cell_width, clip, table
from zerosim.units import show_count, show_flops, show_seconds, show_share, show_size
from zerosim.views.recorded import Answer
from zerosim.views.running import Cost, Energy
from zerosim.views.summary import Summary

Known = TypeVar("Known")
TIERS = {"gpu": "GPU memory", "dram": "DRAM", "nvme": "NVMe"}


class Quantity(NamedTuple):
    """A row: what it is called, its number in each answer (None where there is none), and how it is written."""

    name: str
    values: list[float | None]
    show: Callable[[float], str]


def render_comparison(summaries: Sequence[Answer], width: int = 100) -> str:
    """The comparison, ending in a line end."""
    letters = [letter(index) for index in range(len(summaries))]
    titles = [
        clip(f"{letter}  {title(summary)}{'' if index else ' (baseline)'}", width)
        for index, (letter, summary) in enumerate(zip(letters, summaries, strict=True))
    ]
    tables = _tables(letters, rows(summaries), width)
    return "\n\n".join(["\n".join(titles), *tables]) + "\n"


def rows(summaries: Sequence[Answer]) -> list[list[str]]:
    """A name, the baseline's number, and of each other answer its number and how many times the baseline's that is."""
    return [_fits(summaries), *map(_cells, quantities(summaries)), _largest_stalls(summaries)]


def title(summary: Answer) -> str:
    """The scenario's, or that of a trace with which of its steps it is."""
    return summary.scenario if isinstance(summary, Summary) else f"{summary.scenario} ({origin(summary)})"


def _tables(letters: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """One table, or several that each repeat the baseline, where one would be wider than the screen."""
    others = list(range(1, len(letters)))
    while others:
        shown = next((n for n in range(len(others), 1, -1) if _width(_table(letters, rows, others[:n])) <= width), 1)
        yield _table(letters, rows, others[:shown])
        others = others[shown:]


def _table(letters: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[int]) -> str:
    """The baseline and some of the others; an answer after the first has two cells in a row."""
    columns = [Column(""), Column(letters[0], "right")]
    for index in shown:
        columns += [Column(letters[index], "right"), Column(f"{letters[index]}/{letters[0]}", "right")]
    return table(
        columns, ([*row[:2], *(cell for index in shown for cell in row[2 * index : 2 * index + 2])] for row in rows)
    )


def _width(lines: str) -> int:
    return max(map(cell_width, lines.split("\n")))


def quantities(summaries: Sequence[Answer]) -> list[Quantity]:
    """Every number that is compared."""
    rates: list[tuple[str, Callable[[Summary], float], Callable[[float], str]]] = [
        ("tokens/s", lambda s: s.tokens_per_second, show_count),
        ("tokens/s per GPU", lambda s: s.tokens_per_second_per_gpu, show_count),
        ("model FLOP/s per GPU", lambda s: 1e12 * s.model_tflops_per_gpu, show_flops),
        ("MFU", lambda s: s.mfu, show_share),
    ]
    found = [Quantity("step time", [summary.step_seconds for summary in summaries], show_seconds)]
    found += [Quantity(name, [_of(summary, take) for summary in summaries], show) for name, take, show in rates]
    return [*found, *_running(summaries), *_times(summaries), *_sizes(summaries), *_allocated(summaries)]


def _of(summary: Answer, take: Callable[[Summary], Known]) -> Known | None:
    """What only a played step knows."""
    return take(summary) if isinstance(summary, Summary) else None


def _running(summaries: Sequence[Answer]) -> Iterator[Quantity]:
    """What is known of cost and energy."""
    costs: list[Cost | None] = [_of(summary, lambda s: s.cost) for summary in summaries]
    energies: list[Energy | None] = [_of(summary, lambda s: s.energy) for summary in summaries]
    for currency in dict.fromkeys(cost.currency for cost in costs if cost):
        own = [cost if cost and cost.currency == currency else None for cost in costs]
        yield Quantity(tokens_per(currency), [cost.tokens_per_currency if cost else None for cost in own], show_count)
    if any(energies):
        yield Quantity(tokens_per("J"), [each.tokens_per_joule if each else None for each in energies], show_count)


def _times(summaries: Sequence[Answer]) -> Iterator[Quantity]:
    for parts in zip(*map(time_parts, summaries), strict=True):
        yield Quantity(parts[0].word, [part.amount for part in parts], show_seconds)
    moved = [summary.communication for summary in summaries]
    yield Quantity("communication hidden", [each.overlap if each.total_seconds else None for each in moved], show_share)
    phases = [summary.phases or {} for summary in summaries]
    for phase in dict.fromkeys(name for known in phases for name in known):
        yield Quantity(phase, [known.get(phase) for known in phases], show_seconds)


def _sizes(summaries: Sequence[Answer]) -> Iterator[Quantity]:
    tiers = [summary.memory if isinstance(summary, Summary) else {"gpu": summary.memory} for summary in summaries]
    for tier in dict.fromkeys(name for known in tiers for name in known):
        uses = [known.get(tier) for known in tiers]
        yield Quantity(
            f"{TIERS.get(tier, tier)} at its peak", [use.peak_bytes if use else None for use in uses], show_size
        )


def _allocated(summaries: Sequence[Answer]) -> Iterator[Quantity]:
    """Beside a measured step: what PyTorch counts, which is without the context and the libraries."""
    if all(isinstance(summary, Summary) for summary in summaries):
        return
    sizes = [
        summary.memory["gpu"].allocated_bytes if isinstance(summary, Summary) else summary.memory.allocated_bytes
        for summary in summaries
    ]
    yield Quantity("GPU memory allocated", sizes, show_size)


def _cells(quantity: Quantity) -> list[str]:
    first = quantity.values[0]
    row = [quantity.name]
    for index, value in enumerate(quantity.values):
        row.append("-" if value is None else quantity.show(value))
        if index:
            row.append("-" if value is None or not first else ratio(value / first))
    return row


def ratio(times: float) -> str:
    """Three digits, without an exponent."""
    if 0 < times < 1e-4:
        return "<0.0001x"
    rounded = float(f"{times:.3g}")
    return f"{rounded:.0f}x" if 1000 <= rounded < 1e9 else f"{rounded:.3g}x"


def _fits(summaries: Sequence[Answer]) -> list[str]:
    return _words("fits in memory", [_fit(summary) for summary in summaries])


def _fit(summary: Answer) -> str:
    """What ran had room; how much is not known. Of a played step a trace does not tell it of all memories."""
    if isinstance(summary, Summary):
        return "yes" if summary.fits else "NO"
    return "ran" if summary.measured else "-"


def _largest_stalls(summaries: Sequence[Answer]) -> list[str]:
    return _words("largest wait", [cause_name(s.stalls[0].cause) if s.stalls else "none" for s in summaries])


def _words(name: str, words: Sequence[str]) -> list[str]:
    """A row of words, which have no ratio."""
    return [name, words[0], *(cell for word in words[1:] for cell in (word, ""))]


def letter(index: int) -> str:
    """A to Z, then A1, B1 and so on."""
    turn, place = divmod(index, len(ascii_uppercase))
    return ascii_uppercase[place] + (str(turn) if turn else "")
