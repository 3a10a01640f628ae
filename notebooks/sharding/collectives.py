"""The collectives on a list with the buffer of each rank. Gradients are averaged, summed in the order of the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sharding.arithmetic import Array, mean


def all_reduce(buffers: Sequence[Array], dtype: str) -> list[Array]:
    """Everyone gets the average."""
    return [mean(buffers, dtype)] * len(buffers)


def reduce(buffers: Sequence[Array], dtype: str, root: int) -> list[Array]:
    """Only the root gets it; the others are left with what they had, which is of no use."""
    return [mean(buffers, dtype) if rank == root else buffer for rank, buffer in enumerate(buffers)]


def reduce_scatter(buffers: Sequence[Array], dtype: str) -> list[Array]:
    """Rank r gets the r-th part."""
    return np.split(mean(buffers, dtype), len(buffers))


def all_gather(shards: Sequence[Array]) -> list[Array]:
    """Everyone gets all shards, one behind the other."""
    return [np.concatenate(shards) for _ in shards]
