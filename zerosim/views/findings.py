"""What a user should know about a played step: out of memory, cache flushes, bound by communication or by the host.

Running out of memory is a finding, not an exception: the rest of the report is wanted all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from zerosim.errors import Finding
from zerosim.timeline import Timeline
from zerosim.units import show_seconds, show_share, show_size
from zerosim.views.breakdown import Breakdown
from zerosim.views.memory import GPU, TierMemory
from zerosim.views.remedies import Choices, remedy
from zerosim.views.stalls import HOST, Stall
from zerosim.views.utilization import ResourceUse, Volume

COMMUNICATION_BOUND = 0.3  # share of the step exposed to communication that is worth a note; a choice
HOST_BOUND = 0.2  # share of the step spent waiting for the host that is worth a note; a choice
PARTS_NAMED = 3
NEARLY_ALL = 0.99  # of what is exposed: no second cause is worth a word


def memory_findings(
    timeline: Timeline, tiers: Mapping[str, TierMemory], world_size: int, choices: Choices
) -> Iterator[Finding]:
    """Tiers that overflow, and a GPU on which the caching allocator cannot keep what it reserved."""
    for tier in tiers.values():
        if tier.excess > 0:
            yield _out_of_memory(timeline, tier, world_size, choices)
    gpu = tiers[GPU]
    if gpu.reserve is not None and gpu.reserve.flushes and not gpu.excess:
        yield _allocator_flush(gpu, gpu.reserve.flushes, gpu.reserve.failures)


def _out_of_memory(timeline: Timeline, tier: TierMemory, world_size: int, choices: Choices) -> Finding:
    where = f"at {timeline.step.ops[tier.peak_op].name}" if tier.peak_op is not None else "before the step begins"
    largest = sorted(tier.parts.items(), key=lambda part: -part[1])[:PARTS_NAMED]
    held = ", ".join(f"{name} {show_size(size)}" for name, size in largest if size)
    return Finding(
        code="out-of-memory",
        severity="error",
        message=(
            f"{tier.tier}: {show_size(tier.peak)} needed {where} ({show_seconds(tier.peak_seconds)} into the step), "
            f"{show_size(tier.excess)} more than the {show_size(tier.capacity)} there are; held: {held}."
        ),
        remedy=remedy(tier, sum(timeline.step.parameters), world_size, choices),
    )


def _allocator_flush(gpu: TierMemory, flushes: int, failures: int) -> Finding:
    """A flush synchronises the device and costs tens to hundreds of milliseconds, which the step does not contain."""
    often = "once" if flushes == 1 else f"{flushes} times"
    lost = f"; {failures} requests would not fit even then, by fragmentation" if failures else ""
    return Finding(
        code="allocator-flush",
        severity="warning",
        message=(
            f"PyTorch's allocator would flush its cache {often} in the step, because reserved memory reaches "
            f"the {show_size(gpu.capacity)} of the GPU although only {show_size(gpu.peak)} are in use{lost}."
        ),
        remedy="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or leave more room: smaller buckets or batches.",
    )


def time_findings(
    breakdown: Breakdown,
    stalls: Sequence[Stall],
    resources: Mapping[str, ResourceUse],
    volumes: Mapping[str, Volume],
    seconds: float,
) -> Iterator[Finding]:
    """What most of the step waits for, where it is one thing."""
    if breakdown.exposed_communication > COMMUNICATION_BOUND * seconds:
        yield _communication_bound(breakdown, stalls, resources, volumes, seconds)
    host = sum(stall.seconds for stall in stalls if stall.cause == HOST)
    if host > HOST_BOUND * seconds:
        yield Finding(
            code="host-bound",
            severity="note",
            message=f"{show_share(host / seconds)} of the step the GPU waits for the host to issue the next op.",
            remedy="More work per launch: a larger micro-batch, fused kernels, fewer and larger modules for the hooks.",
        )


def _communication_bound(
    breakdown: Breakdown,
    stalls: Sequence[Stall],
    resources: Mapping[str, ResourceUse],
    volumes: Mapping[str, Volume],
    seconds: float,
) -> Finding:
    exposed: defaultdict[tuple[str, str], float] = defaultdict(float)
    for stall in stalls:
        if stall.cause in volumes:
            exposed[stall.resource, stall.label] += stall.seconds
    (resource, label), worst = max(exposed.items(), key=lambda item: item[1])
    use = resources.get(resource)
    busy = f" (busy {show_share(use.utilization)} of the step)" if use else ""
    whole = breakdown.exposed_communication
    part = "it" if worst >= NEARLY_ALL * whole else f"most of it ({show_share(worst / seconds)})"
    return Finding(
        code="communication-bound",
        severity="note",
        message=(
            f"{show_share(whole / seconds)} of the step waits for collectives; what limits {part} is {label}{busy}."
        ),
        remedy=(
            "Larger buckets or fewer collectives, where latency limits them."
            if resource == "latency"
            else "More bandwidth there, or more compute for each byte: a larger micro-batch, or more accumulation "
            "where gradients are reduced once a step."
        ),
    )
