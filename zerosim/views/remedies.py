"""What would make a step fit: changes and the bytes each one saves, computed from what was held at the peak.

A change is proposed only if its saving covers what is missing; where none does alone, the smallest combination of the
largest savings is, those that slow the step down by moving states elsewhere last. The view knows no scenario, only the
`Choices` and `Surroundings` that it is told. Where these do not say that a state is sharded, its bytes per element do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from zerosim.units import show_count, show_share, show_size
from zerosim.views.choices import Change, Choices, Surroundings
from zerosim.views.fsdp import on_shards
from zerosim.views.memory import DRAM, GPU, TierMemory
from zerosim.views.offload import back_to_host_memory, fp32_gradients, off_the_gpu, out_of_host_memory

# Bytes per element of a state that is not sharded: Adam's two moments in fp32 (8; with a master copy 12), and a copy
# of the gradients or parameters in 16 bits (2). Rajbhandari et al. 2020, ZeRO, section 3.1.
WHOLE = {"optimizer": 8.0, "gradients": 2.0, "parameters": 2.0}
STAGE = {"optimizer": 1, "gradients": 2, "parameters": 3}  # the ZeRO stage that shards it

# Full recomputation keeps 2 of about 34 bytes per token and hidden unit of a layer (Korthikanti et al. 2022, table 2).
KEPT_WHEN_RECOMPUTED = 2 / 34
BUCKET_BYTES = 2  # an element of a bucket in 16 bits
SHARDED_BYTES = {"parameters": 2, "gradients": 2, "optimizer": 12}  # per element under DeepSpeed, as above
DEFAULT_BUCKET = 500_000_000  # elements: DeepSpeed's reduce_bucket_size
# page-locked blocks of more than 1 MiB as they are (torch, c10/core/AllocatorConfig)
NO_ROUNDING = "PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1"


def remedy(tier: TierMemory, around: Surroundings, choices: Choices) -> str:
    """What to do when `tier` overflows."""
    excess = tier.excess
    changes = _changes(tier, around, choices)
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
    return "; ".join(
        f"{change.what} (saves about {show_size(change.saves)}{f', {change.costs}' if change.costs else ''})"
        for change in changes
    )


def _more(tier: str) -> str:
    return "GPUs with more memory" if tier == GPU else f"nodes with more {tier}"


def _changes(tier: TierMemory, around: Surroundings, choices: Choices) -> list[Change]:
    """Those that save something: first what costs nothing elsewhere, the largest saving first."""
    if tier.tier == GPU:
        found = [
            *_on_activations(tier, choices),
            *_on_states(tier, around, choices),
            *_on_buffers(tier, choices),
        ]
    else:
        found = [*_on_host(tier, around, choices)]
    useful = (change for change in found if change.saves > 0)
    return sorted(useful, key=lambda change: (bool(change.costs), -change.saves))


def _on_activations(tier: TierMemory, choices: Choices) -> Iterator[Change]:
    held, part = tier.parts["activations"], frozenset({"activations"})
    if not choices.checkpointing:
        yield Change("full activation checkpointing", held * (1 - KEPT_WHEN_RECOMPUTED), part)
    if choices.pipeline and choices.pipeline.schedule == "gpipe":
        fewer = choices.pipeline._replace(schedule="1f1b").in_flight
        yield Change("schedule 1f1b", held * (1 - fewer / choices.pipeline.in_flight), part)
    if choices.micro_batch is None:
        yield Change("half the micro-batch", held / 2, part)
    elif choices.micro_batch > 1:
        size = choices.micro_batch // 2
        while size > 1 and held * (1 - size / choices.micro_batch) < tier.excess:
            size //= 2
        yield Change(f"micro-batch {size}", held * (1 - size / choices.micro_batch), part)


def _on_states(tier: TierMemory, around: Surroundings, choices: Choices) -> Iterator[Change]:
    elements, world_size = around.elements, around.world_size
    if choices.ddp:
        yield from _from_ddp(tier, elements, world_size)
        return
    if choices.fsdp:
        yield from on_shards(tier, around, choices.fsdp, choices.accumulation)
        return
    if choices.pipeline:
        yield Change("twice as many stages", sum(tier.parts[s] for s in WHOLE) / 2, frozenset(WHOLE))
        if not choices.pipeline.sharded:
            saved = tier.parts["optimizer"] * (1 - 1 / choices.pipeline.replicas)
            yield Change("zero_stage 1", saved, frozenset({"optimizer"}))
        return
    if choices.stage is None:
        sharded = {s for s, whole in WHOLE.items() if elements and tier.parts[s] < 0.99 * whole * elements}
    else:
        sharded = {s for s, stage in STAGE.items() if stage <= choices.stage}
    yield from _stages(tier, 1 - 1 / world_size, sharded)
    yield Change("twice as many GPUs", sum(tier.parts[s] for s in sharded) / 2, frozenset(sharded))
    yield from off_the_gpu(tier, around, choices)


def _from_ddp(tier: TierMemory, elements: int, world_size: int) -> Iterator[Change]:
    """From DDP to ZeRO also its buckets, fp32 weights and their 16-bit copies go."""
    acts_on = frozenset({*WHOLE, "buffers"})
    held = sum(tier.parts[part] for part in acts_on)
    for stage in STAGE.values() if world_size > 1 else ():
        shards = {s: world_size if STAGE[s] <= stage else 1 for s in WHOLE}
        states = sum(elements * SHARDED_BYTES[s] / shards[s] for s in WHOLE)
        yield Change(f"ZeRO stage {stage}", held - states - BUCKET_BYTES * DEFAULT_BUCKET, acts_on)


def _stages(tier: TierMemory, saved: float, sharded: Collection[str]) -> Iterator[Change]:
    """A stage shards what the stages below it shard and one state more."""
    states: list[str] = []
    for state, stage in STAGE.items():
        states += [state] if state not in sharded else []
        if state not in sharded:
            yield Change(f"ZeRO stage {stage}", saved * sum(tier.parts[s] for s in states), frozenset(states))


def _on_buffers(tier: TierMemory, choices: Choices) -> Iterator[Change]:
    held, part = tier.parts["buffers"], frozenset({"buffers"})
    cut = min(tier.excess, held)
    if choices.ddp:
        if not choices.bucket_view:
            yield Change("gradient_as_bucket_view", held, part)
    elif cut and choices.stage != 0 and not (choices.fsdp or choices.pipeline):  # they have no bucket to set
        elements, share = show_count(cut / BUCKET_BYTES), show_share(cut / held)
        yield Change(f"smaller buckets, by {elements} elements over all of them or {share}", cut, part)


def _on_host(tier: TierMemory, around: Surroundings, choices: Choices) -> Iterator[Change]:
    """Host memory and drives, both of a node."""
    states = frozenset(WHOLE)
    if choices.stage or choices.fsdp:
        yield Change("twice as many nodes", sum(tier.parts[state] for state in states) / 2, states)
    if tier.tier != DRAM:
        yield from back_to_host_memory(tier, around, choices)
        return
    if choices.accumulation > 1 and choices.stage == 2:  # sums of 16 bits beside the fp32 gradients
        sums = tier.parts["gradients"] - fp32_gradients(around, pinned="optimizer" in choices.pinned)
        yield Change("gradient_accumulation_steps 1", sums, frozenset({"gradients"}))
    yield Change(f"{NO_ROUNDING} where torch knows it", tier.rounding, frozenset(tier.parts))
    if choices.pinned:
        slower = "its copies become slower and the host waits for each"
        yield Change("pin_memory false", tier.rounding, frozenset(tier.parts), slower)
    yield from out_of_host_memory(tier, around, choices)
