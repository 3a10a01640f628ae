"""What a step holds at the least in each tier, by its program alone: nothing has to be played to know it is too much.

On the GPU the least is the peak itself: memory comes and goes there as the host says it (`memory`), whose order is that
of the program. In host tiers memory is free again only when the op that releases it has ended, so that the peak may be
higher, never lower. Where several programs share a host tier, when they meet decides, and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.resources import Supply
from zerosim.step import Step
from zerosim.views.holders import GPU


def least_peaks(steps: Sequence[Step], supply: Supply, ranks_per_node: int = 1) -> dict[str, float]:
    """Bytes by tier, with the tier's overhead; of host tiers those that all ranks of a node hold together."""
    found = {GPU: supply.overheads.get(GPU, 0.0) + max(_peak(step, GPU) for step in steps)}
    if len(steps) > 1:
        return found
    for tier in dict.fromkeys(buffer.tier for buffer in steps[0].buffers if buffer.tier != GPU):
        found[tier] = supply.overheads.get(tier, 0.0) + ranks_per_node * _peak(steps[0], tier)
    return found


def _peak(step: Step, tier: str) -> float:
    sizes = [buffer.taken if buffer.tier == tier else 0.0 for buffer in step.buffers]
    held = most = sum(sizes[buffer] for buffer in step.resident)
    for op in step.ops:
        for buffer in op.acquires:
            held += sizes[buffer]
        most = max(most, held)
        for buffer in op.releases:
            held -= sizes[buffer]
    return most
