"""What DeepSpeed swaps to drives, in which units, and which sizes of its buffers it refuses.

Source: DeepSpeed 0.19.8 runtime/swap_tensor/{utils,optimizer_utils,partitioned_optimizer_swapper,
pipelined_optimizer_swapper,partitioned_param_swapper}.py, csrc/aio/common/deepspeed_aio_common.cpp. Its asserts depend
on the model, so that they are known here first. The buffers of both swappers are locked, but not registered with CUDA
(csrc/pin_memory/page_alloc.cpp, posix_memalign and mlock): a copy between them and the GPU is a pageable one, and no
power of two is rounded up to.
"""

from __future__ import annotations

from zerosim.errors import Problem
from zerosim.spec.strategy import Aio, Offload

LEAST = 1024**2  # bytes of the smallest tensor that is swapped (MIN_AIO_BYTES), unless a block is larger
UNIT = 1024  # bytes of which a request is a multiple, for each thread (AIO_ALIGNED_BYTES)
FP32 = 4


def is_swapped(size: float, aio: Aio) -> bool:
    """Whether a tensor of `size` bytes is worth a file."""
    return size >= max(LEAST, aio.block_size)


def unit(width: int, aio: Aio) -> int:
    """Elements of which a request is a multiple."""
    return max(1, UNIT * aio.intra_op_parallelism // width)


def aligned(elements: int, width: int, aio: Aio) -> int:
    """Elements that are moved for `elements`."""
    step = unit(width, aio)
    return -(-elements // step) * step


def asked_at_once(aio: Aio) -> float:
    """Bytes of a batch that a drive finishes before it is asked for more; 0 where each block that ends is followed by
    another (`overlap_events`). `single_submit` changes only the number of system calls."""
    return 0.0 if aio.overlap_events else float(aio.block_size * aio.queue_depth * aio.intra_op_parallelism)


def optimizer_buffers(offload: Offload, tensors: int, groups: int) -> int:
    """Buffers in use at once: those of a sub-group, of the one read ahead, of the one still being written."""
    in_use = 1 + offload.pipeline_read + offload.pipeline_write
    return tensors * min(in_use, groups)


def optimizer_problems(offload: Offload, tensors: int, groups: int) -> list[Problem]:
    """`tensors` a sub-group: master, states, gradient."""
    needed = optimizer_buffers(offload, tensors, groups)
    if offload.buffer_count >= needed:
        return []
    ways = [name for name in ("pipeline_read", "pipeline_write") if getattr(offload, name)]
    why = f"{tensors} a sub-group" + (f" with {' and '.join(ways)}" if ways else "")
    return [_problem("offload_optimizer", "buffer_count", offload.buffer_count, f"at least {needed}: {why}")]


def shard_problems(offload: Offload, largest: int, fast_init: int) -> list[Problem]:
    """`largest` shard on NVMe; elements of the largest sub-group that `fast_init` makes from shards on NVMe, or 0."""
    if largest > offload.buffer_size:
        why = f"at least {largest}: the largest shard has to fit"
        return [_problem("offload_param", "buffer_size", offload.buffer_size, why)]
    if fast_init > offload.buffer_size:
        why = f"at least {fast_init}: with fast_init the largest sub-group has to fit"
        return [_problem("offload_param", "buffer_size", offload.buffer_size, why)]
    return []


def pool_problem(offload: Offload, enough: int) -> Problem:
    """A gather finds too few buffers."""
    why = f"{enough}, which is enough: a shard keeps its buffer as long as its gathered parameter is kept"
    return _problem("offload_param", "buffer_count", offload.buffer_count, why)


def _problem(section: str, key: str, found: int, expected: str) -> Problem:
    return Problem(f"zero_optimization.{section}", key, str(found), expected)
