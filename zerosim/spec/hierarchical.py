"""Hierarchical ZeRO-1: optimizer states sharded over a few ranks (those of a node), replicated over the others.

What Megatron-LM calls `--num-distributed-optimizer-instances` (ranks / shard_size) and InternEvo
`parallel.zero1.size` (shard_size). The two send different things; bucket sizes are elements. `None` is resolved by
whoever knows the number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from zerosim.spec.optimizer_value import Optimizer

Framework = Literal["megatron", "internevo"]


@dataclass(frozen=True, slots=True)
class HierarchicalZero1:
    """`shard_size`: ranks that share one copy of the optimizer's states; it divides the world.

    `megatron`: gradients are added to one contiguous buffer, reduce-scattered bucket by bucket over the shard group and
    all-reduced over the replicas; parameters are all-gathered. `internevo`: whole parameters belong to a rank; buckets
    of gradients are flattened and all-reduced over all ranks; each rank of a shard group broadcasts its parameters.
    Both reduce in the last micro-step only. Defaults are those of Megatron-core.
    """

    shard_size: int
    framework: Framework = "megatron"
    bucket_size: int | None = None  # of megatron max(40,000,000, 1,000,000 x ranks), of internevo 512 Mi
    overlap_grad_reduce: bool = False  # InternEvo: overlap_sync_grad
    overlap_param_gather: bool = False  # InternEvo: overlap_sync_param
    grad_reduce_in_fp32: bool = False  # megatron: the buffer of gradients, and what is sent, is fp32
    gradient_clipping: float = 1.0  # 0: no norm is computed
    optimizer: Optimizer = field(default_factory=Optimizer)

    def bucket(self, ranks: int) -> int:
        """Elements at which a bucket is full, over so many data-parallel ranks."""
        if self.bucket_size is not None:
            return self.bucket_size
        return max(40_000_000, 1_000_000 * ranks) if self.framework == "megatron" else 512 * 2**20
