"""What a strategy is made of: all that a row's words say of it, before anybody builds it.

ZeRO's stage is read from words such as "ZeRO-3", "DS z1", "FULL_SHARD", "DDP"; it is the same whoever shards. Rule:
nothing here knows a framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim.spec.measured_row import Row
from zerosim.studies.validation.assumptions import CannotError, Ledger, Program
from zerosim.studies.validation.row_machine import Machine
from zerosim.studies.validation.row_training import Chosen, Precision

_NUMBER = r"\b(zero|z|stage)[- _]?([0-3])\b"
SHARDINGS = ("_HYBRID_SHARD_ZERO2", "HYBRID_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "NO_SHARD")  # longer names first
_STAGE_OF = {"FULL_SHARD": 3, "HYBRID_SHARD": 3, "SHARD_GRAD_OP": 2, "_HYBRID_SHARD_ZERO2": 2, "NO_SHARD": 0}
WORDS = ("strategy", "strategy_raw")


class Offloads(NamedTuple):
    """Where optimizer states and parameters lie: none, cpu, nvme."""

    optimizer: str
    parameters: str


class Plan(NamedTuple):
    """The `strategy` of a scenario; `other` is the same without overlap and prefetch, where that has a name. `versions`
    where only another release can do it."""

    strategy: Mapping[str, Any]
    other: Mapping[str, Any] | None = None
    versions: Mapping[str, str] | None = None


class Asked(NamedTuple):
    """All that a strategy is made of."""

    row: Row
    program: Program
    machine: Machine
    precision: Precision
    optimizer: Chosen
    offloads: Offloads
    stage: int
    ledger: Ledger

    def says(self, words: str) -> bool:
        """In the words of the strategy and the flags."""
        return self.row.says(words, *WORDS, "other_flags")


def stage_of(row: Row, ledger: Ledger) -> int:
    """ZeRO's stage, as the strategy says it; what is not sharded is 0."""
    if row.says(r"stage (is )?(not stated|unknown)", *WORDS):
        return int(ledger.ask("stage"))
    for column in WORDS:
        words = row.raw.get(column, "").lower()
        if hit := re.search(_NUMBER, words):
            return int(hit[2])
        named = next((name for name in SHARDINGS if name.lower() in words), None)
        if named:
            return _STAGE_OF[named]
        if re.search(r"zero[- ]?\+\+|infinity|fsdp|hsdp|mics|fully", words):
            return 3
        if re.search(r"zero[- ]?offload", words):
            return 2
        if re.search(r"distributed optim", words):
            return 1
        if re.search(r"\bddp\b|data[- ]parallel|^none|no_?shard|^dp\b|replicat|single", words):
            return 0
    raise CannotError(f'no strategy in "{row.strategy}"')


def offloads_of(row: Row, ledger: Ledger) -> Offloads:
    said = []
    for column in ("offload_optimizer", "offload_param"):
        words = row.raw.get(column, "").strip().lower()
        if re.search(r"^(unknown|\?)", words):
            words = str(ledger.ask("offload_optimizer")) if column == "offload_optimizer" else "no"
        said.append(next((tier for tier in ("nvme", "cpu") if tier in words), "none"))
    return Offloads(*said)
