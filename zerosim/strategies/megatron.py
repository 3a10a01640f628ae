"""Hierarchical ZeRO-1 as Megatron-core does it: the distributed optimizer, in several instances.

Source: megatron-core 0.16.1 core/distributed/param_and_grad_buffer.py, distributed_data_parallel.py,
core/optimizer/distrib_optimizer.py, clip_grads.py. Parameters and gradients are two contiguous buffers in reverse
order of registration, cut into buckets; each bucket is sharded by itself. A bucket's reduce-scatter in the shard group
is followed by the all-reduce of my part over the replicas, on one stream. Without overlap there is one bucket. Gathers
that overlap the forward go one bucket ahead of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from zerosim.spec.hierarchical import HierarchicalZero1
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, REDUCE
from zerosim.strategies.events import Event
from zerosim.strategies.flat import padded
from zerosim.strategies.optimizer_part import PartedOptimizer
from zerosim.strategies.placement import MASTER_BYTES
from zerosim.strategies.ranks import Ranks

PARAMETER_ALIGNMENT, BUCKET_ALIGNMENT = 64, 128  # elements (param_and_grad_buffer.py)


class Bucket(NamedTuple):
    """Parameters in the order of the buffer, and its elements, padded."""

    parameters: tuple[int, ...]
    elements: int


def buckets(numels: tuple[int, ...], order: list[int], ranks: int, limit: float) -> list[Bucket]:
    """A bucket closes when it has `limit` elements, and is padded so that each of the `ranks` data-parallel ranks could
    have an equal, aligned part."""
    made: list[Bucket] = []
    members: list[int] = []
    end, unit = 0, math.lcm(ranks, BUCKET_ALIGNMENT)
    for parameter in order:
        end = padded(end, PARAMETER_ALIGNMENT) + numels[parameter]
        members.append(parameter)
        if end >= limit:
            made.append(Bucket(tuple(members), padded(end, unit)))
            members, end = [], 0
    if members:
        made.append(Bucket(tuple(members), padded(end, unit)))
    return made


class Megatron(PartedOptimizer):
    """One step."""

    def __init__(self, config: HierarchicalZero1, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        limit = config.bucket(ranks.world) if config.overlap_grad_reduce else math.inf
        self.buckets = buckets(self.network.numels, self.trainable[::-1], ranks.world, limit)
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket.parameters}
        self.held_dtype = "fp32" if config.grad_reduce_in_fp32 else self.dtype
        self.held_width = DTYPE_BYTES[self.held_dtype]
        self.lane = REDUCE if config.overlap_grad_reduce else COMPUTE
        self.builder.groups = {group.name: group for group in (self.shards, self.replicas) if group.size > 1}
        self.builder.groups.setdefault(self.shards.name, self.shards)
        self.missing: list[int] = []
        self.gathers: dict[int, int] = {}  # of this step, by bucket
        self.waiting: set[int] = set()  # buckets whose gather nobody has waited for

    @property
    def elements(self) -> int:
        return sum(bucket.elements for bucket in self.buckets)

    @property
    def part(self) -> int:
        return self.elements // self.shards.size

    def prepare(self) -> None:
        resident = self.builder.resident
        resident("parameters", "parameters", float(self.width * (self.elements + self.frozen)))
        resident("gradient buffer", "gradients", float(self.held_width * self.elements))
        self.optimizer_residents()

    def begin(self) -> None:
        self.missing = [len(bucket.parameters) for bucket in self.buckets]
        if self.micro_batch == 0:
            self.gathers = {}
            self.elementwise(COMPUTE, "clear gradients", float(self.held_width * self.elements))
            self.waiting = set(range(len(self.buckets))) if self.config.overlap_param_gather else set()

    # --- parameters --------------------------------------------------------------------------------------------------

    def before(self, event: Event) -> None:
        """Wait for the buckets of the module's parameters, and have the next one gathered, in the order in which the
        forward runs through the buffer: from its end."""
        for bucket in dict.fromkeys(self.bucket_of[p] for p in event.node.parameters if p in self.bucket_of):
            if bucket in self.waiting:
                self.waiting.discard(bucket)
                self._dispatch(bucket)
                self.builder.wait_for(COMPUTE, [self.gathers[bucket]])
                if bucket > 0:
                    self._dispatch(bucket - 1)

    def _dispatch(self, bucket: int) -> None:
        if bucket not in self.gathers:
            self.gathers[bucket] = self._gather(bucket, asynchronous=True)

    def _gather(self, number: int, asynchronous: bool) -> int:
        bucket = self.buckets[number]
        return self.builder.collective(
            COMPUTE, "all_gather", bucket.elements, self.dtype, self.shards.name,
            name=f"all-gather bucket {number}", asynchronous=asynchronous, gathers=bucket.parameters,
        )  # fmt: skip

    # --- gradients ---------------------------------------------------------------------------------------------------

    def gradient(self, parameter: int, buffer: int) -> None:
        """Into the buffer; the bucket's last one has it reduced, where that overlaps."""
        moved = (self.width + 2 * self.held_width) * self.network.numels[parameter]
        self.builder.call(gradient_hooks=1)
        self.elementwise(COMPUTE, "add gradient to buffer", float(moved))
        self.builder.release(buffer, COMPUTE)
        bucket = self.bucket_of[parameter]
        self.missing[bucket] -= 1
        if self.boundary_micro_batch and self.config.overlap_grad_reduce and not self.missing[bucket]:
            self._reduce(bucket)

    def _reduce(self, number: int) -> None:
        bucket, build = self.buckets[number], self.builder
        build.wait(self.lane, COMPUTE)
        self.elementwise(self.lane, "divide gradients", 2.0 * self.held_width * bucket.elements)
        pieces = tuple(self.whole(p) for p in sorted(bucket.parameters))
        name = f"bucket {number}"
        build.collective(
            self.lane, "reduce_scatter", bucket.elements, self.held_dtype, self.shards.name,
            name=f"reduce-scatter {name}", reduces=pieces,
        )  # fmt: skip
        if self.replicas.size > 1:
            mine = bucket.elements // self.shards.size
            build.collective(
                self.lane,
                "all_reduce",
                mine,
                self.held_dtype,
                self.replicas.name,
                name=f"all-reduce {name} over replicas",
            )

    def epilogue(self) -> None:
        if not self.boundary_micro_batch:
            return
        if not self.config.overlap_grad_reduce:
            for number in range(len(self.buckets)):
                self._reduce(number)
        self.builder.wait(COMPUTE, self.lane)

    # --- the step ----------------------------------------------------------------------------------------------------

    def boundary(self) -> None:
        """My part of the gradients in fp32, norm, optimizer, and the parameters of everyone."""
        self.overflow_check(self.part, self.held_width)
        wide = None
        if self.held_width < MASTER_BYTES:
            wide = self.builder.acquire("fp32 gradients", "optimizer", float(MASTER_BYTES * self.part))
            self.elementwise(COMPUTE, "cast gradients to fp32", float((self.held_width + MASTER_BYTES) * self.part))
        self.norm(self.part, MASTER_BYTES)
        self.optimizer_step()
        if wide is not None:
            self.builder.release(wide, COMPUTE)
        if not self.config.overlap_param_gather:
            for number in range(len(self.buckets)):
                self._gather(number, asynchronous=False)
        self.builder.synchronize()  # the loss is read once a step
