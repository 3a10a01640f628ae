"""What makes one step longer than another: seconds by what the GPU computed or waited for, held against each other.

A step is its compute and its stalls, each with the resource that limited it; both come from the timeline. Steps of
unequal work are compared at the tokens of one GPU. Of what grew, the resource (or the host, another rank, compute) with
the largest sum is named: a network, a tier, a lane. Nothing is read from configurations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from zerosim.report.parts import OWN_CAUSES, cause_name, sharer_name
from zerosim.units import show_seconds
from zerosim.views.contention import OTHER_RANKS, Loss
from zerosim.views.stalls import Stall

_Key = TypeVar("_Key")
COMPUTE = "compute"
KERNELS = frozenset({"matmul", "attention", "memory_bound"})  # the parties of `contention` that compute on the GPU
TOLD = 0.1  # of what a resource adds: a cause, or a sharer, that adds less is not told; a choice


class Part(NamedTuple):
    """Compute, or a wait of one `cause`; `limit` is what a person calls the resource behind it, "" where none is."""

    cause: str
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the seconds of a step went, and what its kernels lost to others; `tokens` are those of one GPU."""

    tokens: float
    parts: Mapping[Part, float]
    losses: Mapping[tuple[str, str], float]  # by winner and resource
    checkpointing: str

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Growth:
    """`limit` makes a step `seconds` longer; `text` says by what. "" and 0 where nothing grew."""

    limit: str = ""
    seconds: float = 0.0
    text: str = ""


def parts(seconds: float, stalls: Iterable[Stall]) -> dict[Part, float]:
    """They sum to the step."""
    found: defaultdict[Part, float] = defaultdict(float)
    for stall in stalls:
        limit = "" if stall.cause in OWN_CAUSES else stall.label
        found[Part(stall.cause, limit)] += stall.seconds
    return {Part(COMPUTE): seconds - sum(found.values()), **found}


def losses(contended: Iterable[Loss]) -> dict[tuple[str, str], float]:
    """Seconds that kernels lost to collectives and copies; those among themselves are compute anyway."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for loss in contended:
        if loss.loser in KERNELS and loss.winner not in {*KERNELS, OTHER_RANKS}:
            found[loss.winner, loss.label] += loss.seconds
    return dict(found)


def extended(played: Mapping[_Key, float], shorter: Mapping[_Key, float], times: float) -> dict[_Key, float]:
    """A step of which only a part was played: it, and `times` what it is more than a shorter one."""
    return {key: played.get(key, 0.0) + times * more for key, more in _grown(played, shorter, 1.0).items()}


def growth(now: Spent, before: Spent) -> Growth:
    """What a GPU spends more in `now`, for the tokens of `now`."""
    scale = now.tokens / before.tokens
    grown = _grown(now.parts, before.parts, scale)
    by_limit: defaultdict[str, float] = defaultdict(float)
    for part, seconds in grown.items():
        by_limit[part.limit or part.cause] += seconds
    limit, seconds = max(by_limit.items(), key=lambda item: item[1], default=("", 0.0))
    if seconds <= 0:
        return Growth()
    if limit == COMPUTE:
        return Growth(limit, seconds, _computing(now, before, scale, seconds))
    own = sorted(((more, part) for part, more in grown.items() if limit == (part.limit or part.cause)), reverse=True)
    told = [f"{_called(part)} {_signed(more)}" for more, part in own if abs(more) >= TOLD * seconds]
    if not own[0][1].limit:
        return Growth(_called(own[0][1]), seconds, ", ".join(told))
    return Growth(limit, seconds, f"{', '.join(told)}, limited by {limit}")


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{show_seconds(abs(seconds))}"


def _computing(now: Spent, before: Spent, scale: float, seconds: float) -> str:
    """Why compute takes longer: it is done again, or others take what it needs."""
    longer = f"compute +{show_seconds(seconds)}"
    if now.checkpointing != before.checkpointing:
        return f"{longer}, recomputation"
    shared = _grown(now.losses, before.losses, scale)
    (winner, label), most = max(shared.items(), key=lambda item: item[1], default=(("", ""), 0.0))
    return f"{longer}, sharing {label} with {sharer_name(winner)}" if most > TOLD * seconds else longer


def _grown(now: Mapping[_Key, float], before: Mapping[_Key, float], scale: float) -> dict[_Key, float]:
    return {key: now.get(key, 0.0) - scale * before.get(key, 0.0) for key in {**now, **before}}


def _called(part: Part) -> str:
    """`exposed all-gather`, `CPU compute`."""
    name = cause_name(part.cause)
    collective = part.limit and part.cause not in {"transfer", "host_compute"}
    return f"exposed {name}" if collective else name
