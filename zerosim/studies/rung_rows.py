"""Rows of the ladder, as `ladder --json` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NextRung:
    """What it would cost to go on from the first rung that fits: `throughput_change` of all GPUs together and of each.

    `freed_bytes` by tier, below 0 where it takes more; `limited_by` and `because`: what grows, where a GPU is slower.
    """

    rung: str
    checkpointing: str
    fits: bool
    throughput_change: float
    per_gpu_change: float
    freed_bytes: Mapping[str, float]
    limited_by: str
    because: str


@dataclass(frozen=True, slots=True)
class Rung:
    """One strategy of the ladder; `relative_throughput` compares with the first rung that fits (None before it, and of
    those that do not fit).

    `as_given`: with the checkpointing of its scenario. `peak_bytes_by_tier`: of a GPU, and of the host memory and
    drives of a node. `change` is that of a GPU's tokens per second `against` the rung below with the same
    checkpointing; where that is a `drop`, `limited_by` and `because` tell what grew between the two.
    """

    rung: str
    strategy: str
    fits: bool
    model_states_bytes: float
    peak_bytes: float
    step_seconds: float
    tokens_per_second: float
    relative_throughput: float | None
    reason: str
    checkpointing: str
    as_given: bool
    peak_bytes_by_tier: Mapping[str, float]
    against: str | None = None
    change: float | None = None
    drop: bool = False
    limited_by: str = ""
    because: str = ""
    chosen: bool = False
    next_costs: tuple[NextRung, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "built": True, "next_costs": [asdict(each) for each in self.next_costs]}


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """A rung that the scenario or its machine cannot have, with this checkpointing or (None) with any; its numbers are
    null."""

    rung: str
    strategy: str
    checkpointing: str | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        numbers = ("model_states_bytes", "peak_bytes", "step_seconds", "tokens_per_second", "relative_throughput")
        unknown = dict.fromkeys((*numbers, "against", "change"))
        nothing = {"as_given": False, "drop": False, "limited_by": "", "because": "", "chosen": False}
        return {
            "rung": self.rung, "strategy": self.strategy, "fits": False, "reason": self.reason,
            "checkpointing": self.checkpointing, **unknown, **nothing,
            "peak_bytes_by_tier": {}, "next_costs": [], "built": False,
        }  # fmt: skip
