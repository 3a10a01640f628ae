"""What a user should know about the memory of a step: out of it, cache flushes, what rounding wastes.

Running out of memory is a finding, not an exception: the rest of the report is wanted all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerosim.errors import Finding
from zerosim.timeline import Timeline
from zerosim.units import show_seconds, show_share, show_size
from zerosim.views.choices import Choices, Surroundings
from zerosim.views.memory import GPU, Reserve, TierMemory
from zerosim.views.remedies import NO_ROUNDING, remedy

PARTS_NAMED = 3
ROOMIER = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or leave more room: smaller buckets or batches."
FRAGMENTATION = "fragmentation"  # the code of what may end a step whose bytes fit
ROUNDING = 0.1  # share of a tier's capacity lost to rounding that is worth a note; a choice


def memory_findings(
    timeline: Timeline, tiers: Mapping[str, TierMemory], world_size: int, ranks_per_node: int, choices: Choices
) -> Iterator[Finding]:
    """Tiers that overflow, a GPU on which the caching allocator cannot keep what it reserved, pinned blocks that are
    much larger than what they hold."""
    held = timeline.program(tiers[GPU].rank_class).parameters
    around = Surroundings(sum(held), world_size, ranks_per_node, _free(timeline, tiers))
    for tier in tiers.values():
        if tier.excess > 0:
            yield _out_of_memory(timeline, tier, around, choices)
        if tier.rounding > ROUNDING * tier.capacity:
            yield _pinned_rounding(tier, choices)
    gpu = tiers[GPU]
    if gpu.reserve is not None and gpu.reserve.flushes and not gpu.excess:
        if gpu.reserve.failures:
            yield _fragmentation(timeline, gpu, gpu.reserve)
        else:
            yield _allocator_flush(gpu, gpu.reserve.flushes)


def _free(timeline: Timeline, tiers: Mapping[str, TierMemory]) -> dict[str, float]:
    """Bytes left in every tier that the machine has."""
    supply = timeline.supply
    held = {name: supply.overheads.get(name, 0.0) for name in supply.capacities}
    held |= {name: tier.peak for name, tier in tiers.items()}
    return {name: size - held[name] for name, size in supply.capacities.items() if size > 0}


def _out_of_memory(timeline: Timeline, tier: TierMemory, around: Surroundings, choices: Choices) -> Finding:
    ops = timeline.program(tier.rank_class).ops
    where = "before the step begins"
    if tier.peak_op is not None:
        where = f"at {ops[tier.peak_op].name} ({show_seconds(tier.peak_seconds)} into the step)"
    largest = sorted(tier.parts.items(), key=lambda part: -part[1])[:PARTS_NAMED]
    held = ", ".join(f"{name} {show_size(size)}" for name, size in largest if size)
    return Finding(
        code="out-of-memory",
        severity="error",
        message=(
            f"{tier.tier}: {show_size(tier.peak)} needed {where}, "
            f"{show_size(tier.excess)} more than the {show_size(tier.capacity)} there are; held: {held}."
        ),
        remedy=remedy(tier, around, choices),
    )


def _pinned_rounding(tier: TierMemory, choices: Choices) -> Finding:
    worst = max(tier.held, key=lambda each: each.rounding_bytes)
    held, share = show_size(worst.bytes - worst.rounding_bytes), show_share(tier.rounding / tier.peak)
    smaller = ", or on stage 3 a sub_group_size of a power of two" if choices.stage == 3 else ""
    pageable = ", else pin_memory false (slower copies, for which the host waits)"
    if choices.fsdp and choices.fsdp.version == 1:  # which always pins
        pageable = ""
    return Finding(
        code="pinned-rounding",
        severity="warning",
        message=(
            f"{tier.tier}: torch rounds each page-locked block up to a power of two; "
            f"{show_size(tier.rounding)} per node hold nothing, {share} of what is taken; "
            f"worst: {worst.name}, {held} in {show_size(worst.bytes)}."
        ),
        remedy=f"{NO_ROUNDING} where torch knows it{pageable}{smaller}.",
    )


def _fragmentation(timeline: Timeline, gpu: TierMemory, reserve: Reserve) -> Finding:
    """What PyTorch may raise as out of memory while bytes enough are free, but not in one piece."""
    ops = timeline.program(gpu.rank_class).ops
    where = f" at {ops[reserve.failed].name} ({ops[reserve.failed].phase})" if reserve.failed is not None else ""
    requests = "one request" if reserve.failures == 1 else f"{reserve.failures} requests"
    return Finding(
        code=FRAGMENTATION,
        severity="warning",
        message=(
            f"gpu: the run may stop{where}, out of memory: {show_size(gpu.peak)} of "
            f"{show_size(gpu.capacity)} are in use, but PyTorch's allocator would find no room in one piece for "
            f"{requests} of the step, not even after flushing its cache."
        ),
        remedy=ROOMIER,
    )


def _allocator_flush(gpu: TierMemory, flushes: int) -> Finding:
    """A flush synchronises the device and costs tens to hundreds of milliseconds, which the step does not contain."""
    often = "once" if flushes == 1 else f"{flushes} times"
    return Finding(
        code="allocator-flush",
        severity="warning",
        message=(
            f"PyTorch's allocator would flush its cache {often} in the step, because reserved memory reaches "
            f"the {show_size(gpu.capacity)} of the GPU although only {show_size(gpu.peak)} are in use."
        ),
        remedy=ROOMIER,
    )
