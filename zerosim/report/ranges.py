"""Ranges in words: what a step takes in eight of ten samples, what that hangs on, and which of two scenarios is slower.

Rule: answers come in as `--json` has them, so text and JSON cannot differ. Where eight of ten samples do not agree on
which is slower there is no order, and that is said. Per cent are of the baseline's step, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.comparison import letter
from zerosim.report.running import tokens_per
from zerosim.report.words import INDENT, bound, unbroken, wrapped
from zerosim.units import show_count, show_seconds, show_share

SAME = 1e-9  # a share of a step
TIMES = 1.0  # from twice as long on, per cent say less than times


def render_range(found: Mapping[str, Any], width: int = 100) -> str:
    """The range of a scenario, as text below its screen."""
    step, tokens = found["step_seconds"], found["tokens_per_second"]
    words = (
        f"step {show_seconds(step['p50'])} ({_between(step, show_seconds)}: P10-P90 of {_drawn(found)}), "
        f"{show_count(tokens['p50'])} tokens/s ({_between(tokens, show_count)})"
    ) + "".join(f", {each}" for each in _bought(found))
    lines = [*wrapped(f"range: {bound(words)}", width, "", INDENT), *_hangs(found["drivers"], width)]
    return "\n" + "".join(f"{line}\n" for line in lines)


def render_orders(rows: Sequence[Mapping[str, Any]], width: int = 100) -> str:
    """What `compare --json` has, as text: a line for each scenario but the first, which is the baseline."""
    lines = [f"ranges: P10-P90 of {_drawn(rows[0]['range'])}, the same draws for all"]
    for index, row in enumerate(rows):
        step = row["range"]["step_seconds"]
        words = f"{letter(index)}  step {show_seconds(step['p50'])} ({_between(step, show_seconds)})"
        words += "".join(f", {each}" for each in _bought(row["range"]))
        if index:
            words += f", {order(row['range']['slower_than_baseline'], letter(0))}"
        lines += wrapped(bound(words), width, INDENT, INDENT)
        lines += _hangs(row["range"]["slower_than_baseline"]["drivers"], width, INDENT) if index else ()
    return "\n" + "".join(f"{line}\n" for line in lines)


def _bought(found: Mapping[str, Any]) -> Iterator[str]:
    """Tokens for money and for energy, where they are known."""
    for key, unit in (("tokens_per_currency", found.get("currency", "")), ("tokens_per_joule", "J")):
        if key in found:
            yield f"{show_count(found[key]['p50'])} {tokens_per(unit)} ({_between(found[key], show_count)})"


def order(against: Mapping[str, float], baseline: str) -> str:
    """ "slower than A by 18-31 % (P10-P90)"."""
    low, high = against["p10"], against["p90"]
    if max(abs(low), abs(high)) < SAME:
        return f"as fast as {baseline}"
    if low > TIMES:
        return f"takes {1 + low:.3g}-{1 + high:.3g} times as long as {baseline} (P10-P90)"
    if low > 0:
        return f"slower than {baseline} by {_joined(low, high)} (P10-P90)"
    if high < 0:
        return f"faster than {baseline} by {_joined(-high, -low)} (P10-P90)"
    return f"between {_percent(-low)} faster and {_percent(high)} slower than {baseline}: no clear order"


def _hangs(drivers: Sequence[Mapping[str, Any]], width: int, indent: str = "") -> Iterator[str]:
    """What the answer hangs on: name, grade and spread, and the rank correlation."""
    if drivers:
        parts = (
            unbroken(f"{each['name']} ({each['grade']}, +-{show_share(each['spread'])}) {each['correlation']:+.2f}")
            for each in drivers
        )
        said = f"hangs most on (grade, spread; rank correlation): {', '.join(parts)}"
        yield from wrapped(said, width, indent + INDENT, INDENT)


def _drawn(found: Mapping[str, Any]) -> str:
    return f"{found['samples']} samples, seed {found['seed']}"


def _between(found: Mapping[str, float], show: Callable[[float], str]) -> str:
    """ "3.7-4.6 s": the unit once, where both have the same."""
    low, high = show(found["p10"]), show(found["p90"])
    number, blank, unit = low.partition(" ")
    return f"{number}-{high}" if blank and high.endswith(f" {unit}") else f"{low} - {high}"


def _joined(low: float, high: float) -> str:
    small, large = _percent(low), _percent(high)
    return large if small == large else f"{small.removesuffix(' %')}-{large}"


def _percent(share: float) -> str:
    """Whole ones; one digit more below ten."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"
