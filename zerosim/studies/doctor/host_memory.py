"""Host memory or drives too full: mostly page-locked memory, which torch takes in powers of two and keeps.

Pinned memory cannot be swapped out either, so a node that is nearly all pinned has little left for data loaders and
the page cache. Sources: c10 CachingHostAllocator; DeepSpeed issue 7307.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.strategy import Fsdp, Zero
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.settings import fsdp, smaller_batches, zero
from zerosim.studies.doctor.trouble import Candidate, Trouble
from zerosim.units import show_count, show_share, show_size
from zerosim.views.summary import TierUse

NAMES = {"dram": "host memory", "nvme": "NVMe"}
FULL = 0.8  # of host memory, from which on pinning is a trouble; a choice
PINNED = 0.25  # of what is taken, from which on pinning is a reason; a choice
POWERS = (2**30, 2**29, 2**28, 2**27)  # elements of a sub-group: fp32 blocks of a power of two bytes


def pinned(case: Case) -> Trouble | str:
    """A tier beside the GPU that overflows, or host memory that is nearly all page-locked."""
    tiers = case.summary.memory
    over = next((name for name, tier in tiers.items() if name != "gpu" and tier.peak_bytes > tier.capacity_bytes), None)
    if "dram" not in tiers:
        return "nothing is kept there"
    dram, locked = tiers["dram"], _locked(case)
    full = dram.peak_bytes > FULL * dram.capacity_bytes
    if over is None and not (full and locked > PINNED * dram.peak_bytes):
        used, room = show_size(dram.peak_bytes), show_size(dram.capacity_bytes)
        return f"{used} of {room} of a node at the peak, {show_size(locked)} of them pinned"
    name = over or "dram"
    tier = tiers[name]
    of_pinned = name == "dram" and locked > PINNED * dram.peak_bytes
    return Trouble(
        code="pinned-memory" if of_pinned else "host-memory" if name == "dram" else "drives-full",
        severity="error" if over else "warning",
        symptom=(
            f"{show_size(tier.peak_bytes)} of {show_size(tier.capacity_bytes)} of {NAMES[name]} of a node at the peak"
            f"{f', {show_size(locked)} of them pinned' if name == 'dram' else ''}."
        ),
        cause=_why(case, tier, of_pinned),
        candidates=tuple(_remedies(case)),
        aim="fits" if over else "smaller",
        tier=name,
    )


def _locked(case: Case) -> float:
    """Page-locked bytes of a node that live through the step."""
    step, ranks = case.simulation.step, case.scenario.ranks_per_node
    buffers = (step.buffers[number] for number in step.resident)
    return ranks * sum(buffer.taken for buffer in buffers if buffer.pinned and buffer.tier == "dram")


def _why(case: Case, tier: TierUse, of_pinned: bool) -> str:
    if of_pinned:
        lost = show_share(tier.rounding_bytes / tier.peak_bytes)
        return f"pin_memory: blocks are powers of two, of which {lost} hold nothing, and none can be swapped out."
    return f"{case.scenario.ranks_per_node} ranks keep their states there: {show_size(tier.optimizer_bytes)} of Adam."


def _remedies(case: Case) -> Iterator[Candidate]:
    strategy = case.scenario.strategy
    if isinstance(strategy, Fsdp):
        if strategy.cpu_offload and strategy.version == 2 and strategy.pin_memory:
            yield fsdp("pageable host memory", pin_memory=False)
        yield fsdp("states on the GPU", cpu_offload=False)
    elif case.zero is not None:
        yield from _of_zero(case, case.zero)


def _of_zero(case: Case, given: Zero) -> Iterator[Candidate]:
    states, weights = given.offload_optimizer, given.offload_param
    if given.stage == 3:
        partition = -(-case.scenario.model.numel // case.scenario.world_size)
        yield from (
            zero(f"sub-groups of {show_count(p)} elements", sub_group_size=p) for p in POWERS if p < 2 * partition
        )
    unpin: dict[str, object] = {}
    if states.device != "none" and states.pin_memory:
        unpin["offload_optimizer__pin_memory"] = False
    if given.stage == 3 and weights.device != "none" and weights.pin_memory:
        unpin["offload_param__pin_memory"] = False
    if unpin:
        yield zero("pageable host memory", **unpin)
    if given.stage == 3 and weights.device != "none":
        yield zero("parameters on the GPU", offload_param__device="none")
        yield from (
            zero("parameters on the GPU", offload_param__device="none").also(each) for each in smaller_batches(case)
        )
    if states.device != "none":
        also = {"offload_param__device": "none"} if given.stage == 3 and weights.device != "none" else {}
        yield zero("states on the GPU", offload_optimizer__device="none", **also)
    path = states.nvme_path or weights.nvme_path  # where none is named, nobody knows where the drives are
    if given.stage == 3 and states.device != "nvme" and path and case.scenario.topology.devices("nvme"):
        drives: dict[str, object] = {"offload_optimizer__device": "nvme"}
        if states.nvme_path is None:
            drives["offload_optimizer__nvme_path"] = path
        yield zero("optimizer states on NVMe", sub_group_size=POWERS[-1], **drives)
