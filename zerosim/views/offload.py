"""What it saves on the GPU to keep states elsewhere, what that takes there, and whether there is room for it.

Bytes per element of a rank's partition, DeepSpeed 0.19 with Adam (runtime/zero/stage_1_and_2.py, stage3.py,
ops/adam/cpu_adam.py): in host memory the fp32 master copy and gradients (4 + 4), two moments (8, never pinned) and a
16-bit staging or accumulation buffer (2); on drives master, moments and gradients (16), with only buffers in host
memory. The GPU is rid of master and moments, and from stage 2 on of the 16-bit partition of the gradients (2).
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.step import Buffer
from zerosim.units import show_size
from zerosim.views.choices import Change, Choices, Surroundings
from zerosim.views.memory import TierMemory

PINNED_BYTES = (4, 4, 2)  # master, gradients, staging: each a block of its own
MOMENTS_BYTES = 8
SWAPPED_BYTES = 16
NARROW_BYTES = 2  # a 16-bit gradient or parameter
OPTIMIZER, PARAMETERS = frozenset({"optimizer"}), frozenset({"parameters"})
WITH_GRADIENTS = OPTIMIZER | {"gradients"}


def off_the_gpu(tier: TierMemory, around: Surroundings, choices: Choices) -> Iterator[Change]:
    """`offload_optimizer` where DeepSpeed partitions it, and `offload_param` on stage 3, if the node has room."""
    stage, shard = choices.stage or 0, NARROW_BYTES * around.share
    if "optimizer" not in choices.offloaded and stage > 0:
        gradients = min(shard, tier.parts["gradients"]) if stage > 1 else 0.0
        saved, taken = tier.parts["optimizer"] + gradients, in_host_memory(around)
        acts_on = WITH_GRADIENTS if gradients else OPTIMIZER
        yield from _moved("offload_optimizer", "dram", saved, taken, acts_on, around)
        if stage == 3 and taken > around.free.get("dram", 0.0):
            swapped = SWAPPED_BYTES * around.share * around.ranks_per_node
            yield from _moved("offload_optimizer", "nvme", saved, swapped, acts_on, around)
    if "parameters" not in choices.offloaded and stage == 3:
        saved, taken = min(shard, tier.parts["parameters"]), around.ranks_per_node * _pinned(shard)
        yield from _moved("offload_param", "dram", saved, taken, PARAMETERS, around)


def out_of_host_memory(tier: TierMemory, around: Surroundings, choices: Choices) -> Iterator[Change]:
    """To the drives, which stage 3 alone does: on stages 1 and 2 DeepSpeed takes nvme for cpu."""
    if not choices.stage:
        return
    ranks = around.ranks_per_node
    key = "offload_optimizer" if choices.stage == 3 else "ZeRO stage 3 with offload_optimizer"
    if "optimizer" in choices.offloaded - choices.on_nvme:
        held = tier.parts["optimizer"] + min(tier.parts["gradients"], 4 * around.share * ranks)
        swapped = SWAPPED_BYTES * around.share * ranks
        yield from _moved(key, "nvme", held, swapped, WITH_GRADIENTS, around)
    if "parameters" in choices.offloaded - choices.on_nvme:
        shards = NARROW_BYTES * around.share * ranks
        yield from _moved("offload_param", "nvme", tier.parts["parameters"], shards, PARAMETERS, around)


def back_to_host_memory(tier: TierMemory, around: Surroundings, choices: Choices) -> Iterator[Change]:
    """From the drives."""
    if "optimizer" in choices.on_nvme:
        saved, taken = tier.parts["optimizer"] + tier.parts["gradients"], in_host_memory(around)
        yield from _moved("offload_optimizer", "dram", saved, taken, WITH_GRADIENTS, around)
    if "parameters" in choices.on_nvme:
        taken = around.ranks_per_node * _pinned(NARROW_BYTES * around.share)
        yield from _moved("offload_param", "dram", tier.parts["parameters"], taken, PARAMETERS, around)


def in_host_memory(around: Surroundings) -> float:
    """Bytes of a node's host memory for the optimizer of its ranks."""
    blocks = sum(_pinned(size * around.share) for size in PINNED_BYTES)
    return around.ranks_per_node * (blocks + MOMENTS_BYTES * around.share)


def fp32_gradients(around: Surroundings, *, pinned: bool) -> float:
    """Bytes of a node's host memory for the gradients that the optimizer of its ranks takes."""
    rank = 4 * around.share
    return around.ranks_per_node * (_pinned(rank) if pinned else rank)


def _pinned(size: float) -> float:
    return Buffer("", "buffers", size, "dram", pinned=True).taken


def _moved(
    key: str, target: str, saved: float, taken: float, acts_on: frozenset[str], around: Surroundings
) -> Iterator[Change]:
    """The change, in DeepSpeed's own words, if the target has room for it."""
    if 0 < taken <= around.free.get(target, 0.0):
        device, name = ("cpu", "DRAM") if target == "dram" else ("nvme", "NVMe")
        costs = f"takes about {show_size(taken)} of {name} per node"
        yield Change(f"{key}.device {device}", saved, acts_on, costs)
