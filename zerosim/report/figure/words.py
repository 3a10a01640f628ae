"""Texts and rows that many spans have in common, each kept once: a span then says a few small numbers.

A name such as `model.layers.11.mlp.up_proj fwd` is the text before its first number, the number, and the text after
it, so that the forty layers of a model share one row. What a row tells of an op is in the order of `Told`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_NUMBER = re.compile(r"(?<![\w])(?:0|[1-9]\d{0,8})(?![\w])")


class Told(NamedTuple):
    """What a tooltip tells of an op beside its times; `before`, `after` and the like are numbers of texts.

    `amount` is in `unit`; `busy`: seconds that the limiting resource at its whole rate takes for the op, of which 0
    says nothing; `alone`: seconds on an idle machine; `host`: seconds that the host takes to issue it.
    """

    before: int
    after: int
    kind: int
    lane: int
    phase: int
    amount: float
    unit: str
    limit: int
    busy: float
    alone: float
    host: float
    detail: int
    follows: int  # 1: the host waits before it issues this op


class Named(NamedTuple):
    """A name whose first number is taken out; `number` is one more than it, and 0 where there is none."""

    before: str
    after: str
    number: int


class Words:
    """Texts and rows, numbered as they are first met."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.rows: dict[Told, int] = {}

    def text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def row(self, row: Told) -> int:
        return self.rows.setdefault(row, len(self.rows))


@lru_cache(1 << 16)
def named(name: str) -> Named:
    """The parts of a name: those of one step are met again in the next."""
    found = _NUMBER.search(name)
    if found is None:
        return Named(name, "", 0)
    return Named(name[: found.start()], name[found.end() :], int(found.group()) + 1)
