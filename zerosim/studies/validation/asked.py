"""What a strategy is made of: all that a row's words say of it, before anybody builds it.

ZeRO's stage is read from words such as "ZeRO-3", "DS z1", "FULL_SHARD", "DDP"; it is the same whoever shards. Rule:
nothing here knows a framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim.spec.document import shown
from zerosim.spec.measured_row import Row
from zerosim.studies.validation.assumptions import CannotError, Ledger, Program
from zerosim.studies.validation.row_machine import Machine
from zerosim.studies.validation.row_training import Chosen, Precision
from zerosim.studies.validation.words import denied, said

_NUMBER = r"(?<![a-z0-9])(zero|z|stage)[- _]?([0-3])(?![0-9a-z]|\.[0-9])"
_BEYOND = r"(?<![a-z0-9])(zero|stage)[- _]?([4-9]|[0-9]{2,})(?![0-9a-z])"
_REPLICATED = r"\bddp\b|data[- ]parallel|^none|no[-_ ]?shard|(?<!zero-)(?<!zero )\bdp\b|replicat|single"
_OFFLOADED = ("offload_optimizer", "offload_param")
_DRIVES = "nvmes?|ssds?|disks?|drives?"
_UNTOLD = r"^(na|n/a|nan|-|)$"
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
    """ZeRO's stage, as the strategy says it; what is not sharded is 0. The column `strategy` comes first, but for a
    number in neither of them."""
    if beyond := next((hit for column in WORDS if (hit := re.search(_BEYOND, _words(row, column)))), None):
        raise CannotError(f'no strategy like "{beyond[0]}"')
    if not (row.pipeline_parallel or 1) > 1 and said(r"pipeline", _words(row, "strategy")):
        raise CannotError("a pipeline without the number of its stages in the column pp")
    if row.says(r"stage (is )?(not stated|unknown)", *WORDS):
        if not re.search(rf"\bzero\b|deepspeed|{_REPLICATED}", _words(row, "strategy")):
            raise CannotError(f'no strategy in "{row.strategy}"')
        return int(ledger.ask("stage"))
    told = {column: stage for column in WORDS if (stage := stage_in(_words(row, column))) is not None}
    if not told:
        raise CannotError(f'no strategy in "{row.strategy}"')
    named = (column for column in told if _sharding(_words(row, column)))  # by name before what it is like
    taken = told[next(named, next(iter(told)))]
    if len(set(told.values())) > 1:
        ledger.note(f"stage {taken}; strategy says {told['strategy']} and strategy_raw {told['strategy_raw']}")
    elif "strategy" not in told and row.strategy:
        ledger.unread("strategy")
    return taken


def stage_in(words: str) -> int | None:
    """The stage that small letters say; None where they say none."""
    if hit := re.search(_NUMBER, words):
        return int(hit[2])
    if named := _sharding(words):
        return _STAGE_OF[named]
    if re.search(r"zero[- ]?\+\+|infinity|fsdp|hsdp|\bmics\b|fully[- _]?shard", words):
        return 3
    if re.search(r"zero[- ]?offload", words):
        return 2
    if re.search(r"distributed optim", words):
        return 1
    return 0 if re.search(_REPLICATED, words) else None


def _sharding(words: str) -> str:
    """FSDP's name of a way to shard, "" for none."""
    return next((name for name in SHARDINGS if name.lower() in words), "")


def _words(row: Row, column: str) -> str:
    return row.raw.get(column, "").lower()


def offloads_of(row: Row, ledger: Ledger) -> Offloads:
    """By the two columns; where they say nothing, by the words of the strategy."""
    optimizer, parameters = (_words(row, column).strip() for column in _OFFLOADED)
    if re.search(r"^(unknown|\?)", optimizer):
        optimizer = str(ledger.ask("offload_optimizer"))
    elif re.search(_UNTOLD, optimizer) and (tier := offload_in_words(row)):
        optimizer = tier
        ledger.note(f"optimizer states on {tier}, as the strategy says")
    if re.search(r"^(unknown|\?)", parameters):
        parameters = "no"
    return Offloads(_tier("offload_optimizer", optimizer), _tier("offload_param", parameters))


def offload_in_words(row: Row) -> str:
    """The tier that the words of the strategy and the flags say, without those of activations; "" for none."""
    text = " ; ".join(_words(row, column) for column in (*WORDS, "other_flags"))
    text = re.sub(r"activation[\w ]*offload\w*\s*[=:]?\s*\w*|offload\w*[- _](of )?activations?", " ", text)
    if not said(r"offload|zero[- ]?infinity", text):
        return ""
    return "nvme" if said(rf"\b({_DRIVES})\b", text) else "cpu"


def _tier(column: str, words: str) -> str:
    """none, cpu or nvme; CannotError where the words are others."""
    if re.search(rf"{_UNTOLD}|^(no|none|false|off|0|gpu|disabled)\b", words) or denied(r"offload", words):
        return "none"
    if re.search(rf"\b({_DRIVES})\b", words):
        return "nvme"
    if re.search(r"\b(cpu|host|dram|ram)\b|^(yes|true|on|1)\b", words):
        return "cpu"
    raise CannotError(f"{column}: found {shown(words)}, which is none of no, cpu and nvme")
