"""The layout of stage 3: a shard of each parameter, sub-groups of shards for the optimizer, and the tier each lives in.

Source: DeepSpeed 0.19.8 runtime/zero/stage3.py (_create_fp16_partitions_with_defragmentation, _create_fp32_partitions),
partition_parameters.py. What surprises: the trainable shards in host memory are one flat buffer that is always pinned,
whatever `pin_memory` says; `max_in_cpu` is filled sub-group by sub-group, so that a large first one leaves it empty;
Twin-Flow's `ratio` counts sub-groups, so that one sub-group stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zerosim.errors import InputError
from zerosim.spec.strategy import DeepSpeed, Zero
from zerosim.spec.swap_rules import few_buffers, is_swapped, small_buffers, sub_groups
from zerosim.step import Tier
from zerosim.strategies.placement import MASTER_BYTES, Placement, placement_of
from zerosim.strategies.quantized import quantized


class SubGroup(NamedTuple):
    """Parameters that the optimizer updates together: `elements` of this rank's shards.

    `optimizer`: the tier of its fp32 master, states and gradient. `twin`: one of the first, which Twin-Flow gives to
    torch's AdamW. `flat`: its 16-bit shards are one piece of memory; else each is alone, on NVMe or in host memory.
    """

    number: int
    parameters: tuple[int, ...]
    elements: int
    optimizer: Tier
    twin: bool
    flat: bool


class Shard(NamedTuple):
    """This rank's part of a parameter in 16 bits (or its model's precision); `quantized`: in 8, with scales."""

    elements: int
    tier: Tier
    pinned: bool
    bytes: float
    quantized: bool = False


@dataclass(frozen=True, slots=True)
class Stage3Layout:
    """`share`: elements of all trainable shards. `flat`: of the flat buffer in host memory, which may exceed what lies
    in it."""

    shards: tuple[Shard, ...]
    groups: tuple[SubGroup, ...]
    placement: Placement
    share: int
    flat: int

    def group_of(self) -> dict[int, SubGroup]:
        """The sub-group of each trainable parameter."""
        return {parameter: group for group in self.groups for parameter in group.parameters}

    def elements(self, parameters: Sequence[int]) -> int:
        return sum(self.shards[p].elements for p in parameters)

    @property
    def quantized(self) -> frozenset[int]:
        """Parameters whose shards are kept in 8 bits."""
        return frozenset(p for p, shard in enumerate(self.shards) if shard.quantized)

    @property
    def swapped(self) -> frozenset[int]:
        """Parameters whose shards are on NVMe."""
        return frozenset(p for p, shard in enumerate(self.shards) if shard.tier == "nvme")

    @property
    def largest(self) -> int:
        """Elements of the largest sub-group."""
        return max((group.elements for group in self.groups), default=0)


def stage3_layout(
    config: DeepSpeed, numels: Sequence[int], trainable: Sequence[bool], ranks: int, width: int
) -> Stage3Layout:
    """The layout over `ranks` of parameters of `width` bytes an element. InputError where DeepSpeed would stop."""
    zero, placement = config.zero, placement_of(config.zero)
    sizes = [-(-numel // ranks) for numel in numels]  # ceil; padding is per parameter
    members = sub_groups(sizes, trainable, zero.sub_group_size)
    share = sum(size for size, t in zip(sizes, trainable, strict=True) if t)
    flat = _flat_elements(zero, placement, share)
    twins = 0 if placement.optimizer == "gpu" else int((1 - zero.offload_optimizer.ratio) * len(members))
    groups, passed = [], 0
    for number, parameters in enumerate(members):
        elements = sum(sizes[p] for p in parameters)
        passed += elements
        tier = _optimizer_tier(config, placement, elements, number < twins)
        together = placement.parameters != "nvme" or passed <= flat
        groups.append(SubGroup(number, tuple(parameters), elements, tier, number < twins, together))
    in_flat = frozenset(p for group in groups if group.flat for p in group.parameters)
    low = frozenset(p for p, t in enumerate(trainable) if not t and zero.zero_quantized_nontrainable_weights)
    given = (_shard(size, p in in_flat, config, placement, width) for p, size in enumerate(sizes))
    shards = tuple(_quantized(shard) if p in low else shard for p, shard in enumerate(given))
    layout = Stage3Layout(shards, tuple(groups), placement, share, flat)
    _check(config, layout, sizes, width)
    return layout


def _flat_elements(zero: Zero, placement: Placement, share: int) -> int:
    if placement.parameters == "gpu":
        return 0
    return share if placement.parameters == "dram" else min(share, zero.offload_param.max_in_cpu)


def _optimizer_tier(config: DeepSpeed, placement: Placement, elements: int, twin: bool) -> Tier:
    if placement.optimizer == "gpu":
        return "gpu"
    if placement.optimizer == "nvme" and is_swapped(MASTER_BYTES * elements, config.aio):
        return "nvme"
    return "gpu" if twin else "dram"


def _shard(size: int, flat: bool, config: DeepSpeed, placement: Placement, width: int) -> Shard:
    if placement.parameters == "gpu":
        return Shard(size, "gpu", False, float(width * size))
    if placement.parameters == "dram" or flat or not is_swapped(width * size, config.aio):
        return Shard(size, "dram", flat or placement.parameters_pinned, float(width * size))
    return Shard(size, "nvme", False, float(width * size))


def _quantized(shard: Shard) -> Shard:
    """As a frozen parameter is kept on the GPU or in host memory; what goes to drives stays as it is."""
    if shard.tier == "nvme":
        return shard
    return shard._replace(bytes=quantized(shard.elements).bytes, quantized=True)


def _check(config: DeepSpeed, layout: Stage3Layout, sizes: Sequence[int], width: int) -> None:
    """Every parameter is written to NVMe once, at construction, even those that stay in host memory later."""
    zero, aio, refused = config.zero, config.aio, []
    swapped = sum(group.optimizer == "nvme" for group in layout.groups)
    if swapped:
        refused.append(few_buffers(zero.offload_optimizer, config.optimizer, swapped))
    if layout.placement.parameters == "nvme":
        largest = max((size for size in sizes if is_swapped(width * size, aio)), default=0)
        groups = [group.elements for group in layout.groups]
        refused.append(small_buffers(zero, aio, largest, "the largest shard", groups))
    problems = [each.problem() for each in refused if each is not None]
    if problems:
        raise InputError(problems)
