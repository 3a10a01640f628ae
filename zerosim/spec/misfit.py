"""A value of a strategy that does not go with the rest of the scenario, wherever it was written."""

from __future__ import annotations

from typing import NamedTuple


class Misfit(NamedTuple):
    """`key` of the strategy's settings; what stands there, and what would do, as an error says it."""

    key: str
    found: str
    expected: str
