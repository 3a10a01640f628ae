"""What stage 3 makes of sizes: sub-groups, what is swapped to drives and in which units, buffers that it refuses.

Source: DeepSpeed 0.19.8 runtime/zero/stage3.py, runtime/swap_tensor/{utils,optimizer_utils,
partitioned_optimizer_swapper,pipelined_optimizer_swapper,partitioned_param_swapper}.py,
csrc/aio/common/deepspeed_aio_common.cpp. Its asserts depend on the model. Who reads a file and who writes the program
ask the same rules here; sizes are a rank's elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from zerosim.errors import Problem
from zerosim.spec.strategy import Aio, Offload, Optimizer, Zero

UNIT = 1024  # bytes of which a request is a multiple, for each thread (AIO_ALIGNED_BYTES)
FP32 = 4


class Refused(NamedTuple):
    """A value in a section of `zero_optimization` at which DeepSpeed would stop."""

    section: str
    key: str
    found: str
    expected: str

    def problem(self) -> Problem:
        """As told of a configuration that stands in no file."""
        return Problem(f"zero_optimization.{self.section}", self.key, self.found, self.expected)


def sub_groups(sizes: Sequence[int], trainable: Sequence[bool], limit: int) -> list[list[int]]:
    """Parameters that the optimizer updates together: one closes when the sum of its shards reaches `limit`."""
    groups: list[list[int]] = [[]]
    elements = 0
    for parameter, size in enumerate(sizes):
        if not trainable[parameter]:
            continue
        groups[-1].append(parameter)
        elements += size
        if elements >= limit:
            groups.append([])
            elements = 0
    return [group for group in groups if group]


# --- requests --------------------------------------------------------------------------------------------------------


def is_swapped(size: float, aio: Aio) -> bool:
    """Whether a tensor of `size` bytes is worth a file."""
    return size >= aio.least_swapped


def unit(width: int, aio: Aio) -> int:
    """Elements of which a request is a multiple."""
    return max(1, UNIT * aio.intra_op_parallelism // width)


def aligned(elements: int, width: int, aio: Aio) -> int:
    """Elements that are moved for `elements`."""
    step = unit(width, aio)
    return -(-elements // step) * step


# --- buffers ---------------------------------------------------------------------------------------------------------


def sub_groups_at_once(offload: Offload, groups: int) -> int:
    """Of `groups` on drives those in memory at once: the one updated, one read ahead, one still being written."""
    return min(1 + offload.pipeline_read + offload.pipeline_write, groups)


def tensors_of(optimizer: Optimizer) -> int:
    """Buffers that a sub-group takes: master, gradient, states."""
    return 2 + optimizer.state_bytes // FP32


def few_buffers(offload: Offload, optimizer: Optimizer, groups: int) -> Refused | None:
    """`offload_optimizer` with too few of them for `groups` on drives."""
    sets, each = sub_groups_at_once(offload, groups), tensors_of(optimizer)
    if offload.buffer_count >= sets * each:
        return None
    ahead = f", for {sets} sub-groups at once" if sets > 1 else ""
    expected = f"at least {sets * each}: {each} tensors of a sub-group of {optimizer.name}{ahead}"
    return Refused("offload_optimizer", "buffer_count", str(offload.buffer_count), expected)


def small_buffers(zero: Zero, aio: Aio, largest: int, called: str, groups: Sequence[int]) -> Refused | None:
    """`offload_param` with buffers too small for the `largest` shard on drives, or for a sub-group of `fast_init`."""
    size, made = zero.offload_param.buffer_size, _made_from_drives(zero, aio, groups)
    if size >= max(largest, made):
        return None
    expected = f"{largest}, {called}" if largest > size else f"{made}, the largest sub-group, with fast_init"
    return Refused("offload_param", "buffer_size", str(size), f"at least {expected}")


def _made_from_drives(zero: Zero, aio: Aio, groups: Sequence[int]) -> int:
    """Elements of the largest sub-group whose master on NVMe is made from shards there, through the shards' buffers."""
    if zero.offload_optimizer.device != "nvme" or not zero.offload_optimizer.fast_init:
        return 0
    there = zip(groups, accumulate(groups), strict=True)
    beyond = (size for size, passed in there if passed > zero.offload_param.max_in_cpu)
    return max((size for size in beyond if is_swapped(FP32 * size, aio)), default=0)


def empty_pool(offload: Offload, enough: int) -> Refused:
    """`offload_param`: a gather finds too few buffers."""
    why = f"{enough}, which is enough: a shard keeps its buffer as long as its gathered parameter is kept"
    return Refused("offload_param", "buffer_count", str(offload.buffer_count), why)
