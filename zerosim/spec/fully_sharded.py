"""PyTorch FSDP as a value: version 1 (`FullyShardedDataParallel`) and version 2 (`fully_shard`).

Names are those of torch's arguments (torch/distributed/fsdp/api.py, torch/distributed/fsdp/_fully_shard). Everything is
resolved: no `auto`, no null that means something else, but for dtypes, where None keeps what there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from zerosim.spec.optimizer_value import Optimizer

Sharding = Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"]
HYBRIDS: tuple[Sharding, ...] = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
BackwardPrefetch = Literal["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]
FloatType = Literal["fp32", "fp16", "bf16"]


@dataclass(frozen=True, slots=True)
class Wrap:
    """Which modules become units of their own; what is in none of them belongs to the root's.

    Each transformer block (`blocks`); modules called by one of `modules`; or, where `least` > 0, what torch's
    size_based_auto_wrap_policy picks at `min_num_params` = least.
    """

    blocks: bool = True
    modules: tuple[str, ...] = ()
    least: int = 0


@dataclass(frozen=True, slots=True)
class Fsdp:
    """Fully sharded data parallelism.

    `shard_size`: ranks over which parameters are sharded, consecutive ones; replicas of them all-reduce (HYBRID_SHARD,
    a 2-D mesh). None: all ranks, for version 1's hybrids the ranks of a node. `parameter_dtype` is that of the shards
    and their optimizer; gathered parameters and computation have `param_dtype`, gradients on the wire `reduce_dtype`;
    None is the dtype before it. `no_sync`: gradients are reduced in the last micro-step only, and accumulate unsharded
    until then (version 2: set_requires_gradient_sync(False)).
    """

    version: Literal[1, 2] = 1
    wrap: Wrap = field(default_factory=Wrap)
    shard_size: int | None = None
    parameter_dtype: FloatType = "fp32"
    param_dtype: FloatType | None = None
    reduce_dtype: FloatType | None = None
    cpu_offload: bool = False
    pin_memory: bool = True  # of offloaded shards; version 1 always pins
    no_sync: bool = False
    gradient_clipping: float = 0.0
    optimizer: Optimizer = field(default_factory=Optimizer)
    # version 1
    sharding_strategy: Sharding = "FULL_SHARD"
    backward_prefetch: BackwardPrefetch = "BACKWARD_PRE"
    forward_prefetch: bool = False
    limit_all_gathers: bool = True
    use_orig_params: bool = False
    # version 2
    reshard_after_forward: bool | int = True  # int: ranks of the smaller mesh to which blocks are resharded
    root_reshard_after_forward: bool | int = False  # what None is for a root
    reshard_after_backward: bool = True
    prefetch_forward: int = 0  # units named by set_modules_to_forward_prefetch; 0: none, gathers follow the host
    prefetch_backward: int = 0  # by set_modules_to_backward_prefetch; 0: the one before, implicitly
    set_is_last_backward: bool = False  # whether the script tells which backward of the micro-steps is the last

    @property
    def hybrid(self) -> bool:
        """Whether shard groups may have replicas: a hybrid of version 1, a mesh of two dimensions in version 2."""
        return self.sharding_strategy in HYBRIDS if self.version == 1 else self.shard_size is not None

    @property
    def sharded(self) -> bool:
        return self.version == 2 or self.sharding_strategy != "NO_SHARD"

    @property
    def frees(self) -> bool:
        """Whether gathered parameters of a unit are dropped after its forward; a mesh of 1 rank keeps them."""
        if self.version == 1:
            return self.sharding_strategy in ("FULL_SHARD", "HYBRID_SHARD")
        return self.reshard_after_forward is True or self.reshard_after_forward > 1

    def shards(self, world_size: int, ranks_per_node: int) -> int:
        """Ranks that hold the parameters once."""
        if not self.sharded:
            return 1
        return (self.shard_size or min(ranks_per_node, world_size)) if self.hybrid else world_size

    @property
    def compute_dtype(self) -> FloatType:
        """Of gathered parameters."""
        return self.param_dtype or self.parameter_dtype

    @property
    def wire_dtype(self) -> FloatType:
        """Of gradients as they are reduced."""
        return self.reduce_dtype or self.compute_dtype
