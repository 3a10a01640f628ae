"""The process groups of stage 3: what shards are gathered and gradients reduced over, and what ZeRO++ and MiCS add.

Source: DeepSpeed utils/groups.py (`_create_zero_param_parallel_group`, `_get_local_all_to_all_group`); 0.14.5
runtime/zero/mics_utils.py. Each group has a communicator of its own, so that its collectives may overlap those of the
others. InputError where DeepSpeed would stop for want of whole groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.strategy import Zero
from zerosim.step import Group
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.ranks import Ranks

_SECTION = "zero_optimization"  # where the keys stand in a file


class Levels(NamedTuple):
    """The ranks of a node, and those of equal place on every node."""

    local: Group
    across: Group


class Stage3Groups(NamedTuple):
    """`shards`: over which everything is sharded; all ranks, but for MiCS. `replicas`: across those of MiCS.

    `secondary`: which share the secondary shards of hpZ. `reduction`: of qgZ. `gathers`: of a hierarchical gather of
    MiCS, within its shards.
    """

    shards: Group
    replicas: Group | None = None
    secondary: Group | None = None
    reduction: Levels | None = None
    gathers: Levels | None = None

    @property
    def of_mics(self) -> bool:
        return self.shards.name != DATA_PARALLEL

    def all(self) -> Iterator[Group]:
        yield from (group for group in self[:3] if group is not None)
        for levels in (self.reduction, self.gathers):
            yield from levels or ()


def stage3_groups(zero: Zero, ranks: Ranks) -> Stage3Groups:
    """The groups that a configuration makes of these ranks."""
    if zero.mics_shard_size <= 0 and zero != zero.offloadable:
        expected = "none or cpu with zero_hpz_partition_size"
        raise InputError([Problem(f"{_SECTION}.offload_param", "device", "nvme", expected)])
    if zero.mics_shard_size > 0:
        return _of_mics(zero, ranks)
    secondary = min(zero.zero_hpz_partition_size, ranks.world)
    groups = Stage3Groups(Group(DATA_PARALLEL, ranks.world))
    if secondary > 1:
        ranks.divides(f"{_SECTION}.zero_hpz_partition_size", secondary)
        groups = groups._replace(secondary=ranks.shards("hpz", secondary))
    if zero.zero_quantized_gradients and ranks.world > ranks.per_node:
        if ranks.world % ranks.per_node:
            expected = f"a multiple of the {ranks.per_node} GPUs of a node"
            raise InputError([Problem(_SECTION, "zero_quantized_gradients", f"{ranks.world} GPUs", expected)])
        levels = Levels(ranks.shards("local", ranks.per_node), ranks.replicas("across", ranks.per_node))
        groups = groups._replace(reduction=levels)
    return groups


def _of_mics(zero: Zero, ranks: Ranks) -> Stage3Groups:
    size = zero.mics_shard_size
    ranks.divides(f"{_SECTION}.mics_shard_size", size)
    groups = Stage3Groups(ranks.shards("shard", size))
    summed_on_host = zero.offload_optimizer.device != "none" and size < ranks.world
    if summed_on_host or zero.offload_param.device != "none":
        raise InputError([Problem(_SECTION, "mics_shard_size", str(size), "no offload beside it")])
    if size < ranks.world:
        groups = groups._replace(replicas=ranks.replicas("replicas", size))
    if zero.mics_hierarchical_params_gather:
        nodes = size // ranks.per_node
        if nodes < 2 or size % nodes:  # asserted in create_mics_comm_groups
            expected = f"a whole number of nodes of {ranks.per_node}, at least two, for mics_hierarchical_params_gather"
            raise InputError([Problem(_SECTION, "mics_shard_size", str(size), expected)])
        inside = size // nodes
        levels = Levels(Group("local", inside), Group("across", nodes, stride=inside))
        groups = groups._replace(gathers=levels)
    return groups
