"""What would make a step fit: changes and the bytes each one saves, computed from what was held at the peak.

A change is proposed only if its saving covers what is missing; where none does alone, the smallest combination of the
largest savings is. The view knows no scenario: `applied` names the changes that it has made (see `APPLIED`). Where it
does not say that a state is sharded, the state's bytes per element of the model do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from zerosim.units import show_count, show_share, show_size
from zerosim.views.memory import GPU, TierMemory

APPLIED = (
    "activation_checkpointing", "smallest_micro_batch", "zero_stage_1", "zero_stage_2", "zero_stage_3",
    "optimizer_offload", "parameter_offload",
)  # fmt: skip

# Bytes per element of a state that is not sharded: Adam's two moments in fp32 (8; with a master copy 12), and a copy
# of the gradients or parameters in 16 bits (2). Rajbhandari et al. 2020, ZeRO, section 3.1.
WHOLE = {"optimizer": 8.0, "gradients": 2.0, "parameters": 2.0}
STAGE = {"optimizer": 1, "gradients": 2, "parameters": 3}  # the ZeRO stage that shards it

# Full recomputation keeps 2 of about 34 bytes per token and hidden unit of a layer (Korthikanti et al. 2022, table 2).
KEPT_WHEN_RECOMPUTED = 2 / 34
BUCKET_BYTES = 2  # an element of a bucket in 16 bits


@dataclass(frozen=True, slots=True)
class Change:
    """Something the user can do, and the bytes it saves at the peak."""

    what: str
    saves: float
    acts_on: frozenset[str]  # parts; two changes of one part do not add up


def remedy(tier: TierMemory, elements: int, world_size: int, applied: Collection[str]) -> str:
    """What to do when `tier` overflows; `elements` are the model's trainable parameters, 0 if unknown."""
    excess = tier.excess
    changes = _changes(tier, elements, world_size, applied)
    enough = [change for change in changes if change.saves >= excess]
    if enough:
        return f"{'Any of: ' if len(enough) > 1 else ''}{_shown(enough)}."
    together = _together(changes, excess)
    if together:
        return f"No single change is enough; together: {_shown(together)}."
    return f"Nothing that acts on what is held saves {show_size(excess)}: use {_more(tier.tier)} or a smaller model."


def _together(changes: Sequence[Change], excess: float) -> list[Change]:
    """The largest savings of different parts that cover the excess; nothing if all do not."""
    chosen: list[Change] = []
    for change in changes:
        if not any(change.acts_on & other.acts_on for other in chosen):
            chosen.append(change)
            if sum(each.saves for each in chosen) >= excess:
                return chosen
    return []


def _shown(changes: Sequence[Change]) -> str:
    told = "; ".join(f"{change.what} (saves about {show_size(change.saves)})" for change in changes)
    return told + (", which is not simulated yet" if any("in host memory" in change.what for change in changes) else "")


def _more(tier: str) -> str:
    return "GPUs with more memory" if tier == GPU else f"nodes with more {tier}"


def _changes(tier: TierMemory, elements: int, world_size: int, applied: Collection[str]) -> list[Change]:
    """Those that save something, the largest saving first."""
    if tier.tier == GPU:
        found = [
            *_on_activations(tier, applied),
            *_on_states(tier, elements, world_size, applied),
            *_on_buffers(tier),
        ]
    else:
        found = _on_host(tier)
    return sorted((change for change in found if change.saves > 0), key=lambda change: -change.saves)


def _on_activations(tier: TierMemory, applied: Collection[str]) -> list[Change]:
    held, part = tier.parts["activations"], frozenset({"activations"})
    found = []
    if "activation_checkpointing" not in applied:
        found.append(Change("full activation checkpointing", held * (1 - KEPT_WHEN_RECOMPUTED), part))
    if "smallest_micro_batch" not in applied:
        found.append(Change("half the micro-batch", held / 2, part))
    return found


def _on_states(tier: TierMemory, elements: int, world_size: int, applied: Collection[str]) -> list[Change]:
    small = {s for s, whole in WHOLE.items() if elements and tier.parts[s] < 0.99 * whole * elements}
    sharded = small | {s for s, stage in STAGE.items() if f"zero_stage_{stage}" in applied}
    saved = 1 - 1 / world_size
    found = list(_stages(tier, saved, sharded))
    found.append(Change("twice as many GPUs", sum(tier.parts[s] for s in sharded) / 2, frozenset(sharded)))
    if "optimizer_offload" not in applied:
        found.append(Change("the optimizer in host memory", tier.parts["optimizer"], frozenset({"optimizer"})))
    if "parameter_offload" not in applied and "zero_stage_3" in applied:  # DeepSpeed offloads shards only
        found.append(Change("the parameters in host memory", tier.parts["parameters"], frozenset({"parameters"})))
    return found


def _stages(tier: TierMemory, saved: float, sharded: Collection[str]) -> Iterator[Change]:
    """A stage shards what the stages below it shard and one state more."""
    states: list[str] = []
    for state, stage in STAGE.items():
        states += [state] if state not in sharded else []
        if state not in sharded:
            yield Change(f"ZeRO stage {stage}", saved * sum(tier.parts[s] for s in states), frozenset(states))


def _on_buffers(tier: TierMemory) -> list[Change]:
    held = tier.parts["buffers"]
    cut = min(tier.excess, held)
    if not cut:
        return []
    what = f"buckets smaller by {show_count(cut / BUCKET_BYTES)} elements, {show_share(cut / held)} of all buffers"
    return [Change(what, cut, frozenset({"buffers"}))]


def _on_host(tier: TierMemory) -> list[Change]:
    held = sum(tier.parts[state] for state in WHOLE)
    found = [Change("twice as many nodes", held / 2, frozenset(WHOLE))]
    if tier.tier != "nvme":
        found.append(Change("the optimizer on NVMe", tier.parts["optimizer"], frozenset({"optimizer"})))
        found.append(Change("the parameters on NVMe", tier.parts["parameters"], frozenset({"parameters"})))
    return found
