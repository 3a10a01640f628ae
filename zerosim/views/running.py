"""What a step costs and draws: tokens for a unit of the currency, and for a joule.

Rule: what is not known is None, and nothing is made up for it. A machine draws one power while its GPUs compute and
another while they wait (the same, where nobody says otherwise), so that its mean hangs on how the step is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

HOUR, KWH, MILLION = 3600.0, 3.6e6, 1e6  # seconds, joules, tokens


class Running(NamedTuple):
    """A machine while it trains. `an_hour`: its price without electricity, `kwh`: that of a kWh, both in `currency`
    (empty: not known). `computing` and `waiting`: watts (None: not known)."""

    currency: str = ""
    an_hour: float = 0.0
    kwh: float = 0.0
    computing: float | None = None
    waiting: float | None = None

    @property
    def uneven(self) -> bool:
        """Whether it matters how the step is spent."""
        return self.computing != self.waiting


@dataclass(frozen=True, slots=True)
class Energy:
    """`watts`: the mean over the step."""

    watts: float
    joules_per_step: float
    tokens_per_joule: float


@dataclass(frozen=True, slots=True)
class Cost:
    """In `currency`; electricity is in it, where it has a price."""

    currency: str
    per_hour: float
    per_step: float
    per_million_tokens: float
    tokens_per_currency: float


class Bill(NamedTuple):
    """Of a step; None where it is not known."""

    cost: Cost | None
    energy: Energy | None


def bill(running: Running, seconds: float, computing: float, tokens: float) -> Bill:
    """Of a step of `tokens` that takes `seconds`, of which the share `computing` is spent with computing."""
    energy = _energy(running, seconds, computing, tokens)
    if not running.currency:
        return Bill(None, energy)
    per_hour = running.an_hour + (energy.watts * HOUR / KWH * running.kwh if energy else 0.0)
    per_step = per_hour * seconds / HOUR
    each = per_step / tokens
    return Bill(Cost(running.currency, per_hour, per_step, MILLION * each, 1 / each if each else 0.0), energy)


def _energy(running: Running, seconds: float, computing: float, tokens: float) -> Energy | None:
    if running.computing is None or running.waiting is None:
        return None
    watts = running.computing * computing + running.waiting * (1 - computing)
    joules = watts * seconds
    return Energy(watts, joules, tokens / joules if joules else 0.0)
