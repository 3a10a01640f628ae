"""What a step costs and draws, in words: nothing where it is not known."""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.units import show_count, show_power
from zerosim.views.summary import Summary


def tokens_per(unit: str) -> str:
    """What tokens for a unit of a currency or for a joule are called."""
    return f"tokens/{unit}"


def running(summary: Summary) -> Iterator[str]:
    """ "1.8M tokens/EUR", "16 EUR/h", "1.54 tokens/J", "5.2 kW"."""
    if summary.cost:
        cost = summary.cost
        yield f"{show_count(cost.tokens_per_currency)} {tokens_per(cost.currency)}"
        yield f"{cost.per_million_tokens:.4g} {cost.currency} per 1M tokens"
        yield f"{cost.per_hour:.4g} {cost.currency}/h"
    if summary.energy:
        yield f"{show_count(summary.energy.tokens_per_joule)} {tokens_per('J')}"
        yield show_power(summary.energy.watts)
