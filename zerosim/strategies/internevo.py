"""Hierarchical ZeRO-1 as InternEvo does it: whole parameters belong to ranks of a shard group.

Source: InternLM/InternEvo internlm/solver/optimizer/hybrid_zero_optim.py, internlm/core/communication/utils.py
(ParamAsyncBcastHandler). Gradients go into a bucket as they become ready; a full one is flattened and all-reduced over
all ranks, and copied back when the next one has been sent. After the step each rank of the shard group broadcasts what
belongs to it; with overlap a module waits for the broadcasts of its parameters.
"""

from __future__ import annotations

from typing import NamedTuple

from zerosim.spec.hierarchical import HierarchicalZero1
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.events import Event
from zerosim.strategies.optimizer_part import PartedOptimizer
from zerosim.strategies.placement import MASTER_BYTES
from zerosim.strategies.ranks import Ranks

SLACK = 1.01  # a rank takes parameters in order until it has this much more than its share


class Sent(NamedTuple):
    """A bucket on its way: the op, the buffer it is in, elements and tensors."""

    op: int
    flat: int
    elements: int
    tensors: int


def dealt_in_order(numels: list[int], ranks: int) -> list[int]:
    """The owner of each parameter, where broadcasts overlap the forward."""
    owners, share = [], sum(numels) // ranks
    owner = taken = 0
    for numel in numels:
        taken += numel
        if taken > share * SLACK and owner < ranks - 1:
            owner, taken = owner + 1, 0
        owners.append(owner)
    return owners


def dealt_by_size(numels: list[int], ranks: int) -> list[int]:
    """The owner of each parameter otherwise: the largest first, each to the rank that has least."""
    owners, loads = [0] * len(numels), [0] * ranks
    for place in sorted(range(len(numels)), key=lambda p: -numels[p]):
        owners[place] = loads.index(min(loads))
        loads[owners[place]] += numels[place]
    return owners


class InternEvo(PartedOptimizer):
    """One step of the rank that has most to update."""

    def __init__(self, config: HierarchicalZero1, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        numels = [self.network.numels[p] for p in self.trainable]
        deal = dealt_in_order if config.overlap_param_gather else dealt_by_size
        self.owner = dict(zip(self.trainable, deal(numels, self.shards.size), strict=True))
        self.parts = [0] * self.shards.size
        for parameter, owner in self.owner.items():
            self.parts[owner] += self.network.numels[parameter]
        self.builder.groups[self.shards.name] = self.shards
        self.limit = config.bucket(ranks.world)
        self.held: dict[int, int] = {}  # accumulated gradients
        self.bucket: list[int] = []
        self.out: Sent | None = None  # the all-reduce under way
        self.broadcasts: dict[int, int] = {}
        self.notes.append("the rank that owns most parameters is played for all")

    @property
    def part(self) -> int:
        return max(self.parts)

    def prepare(self) -> None:
        self.builder.resident("parameters", "parameters", float(self.width * sum(self.network.numels)))
        self.optimizer_residents()

    # --- parameters --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self.micro_batch == 0 and self.config.overlap_param_gather:
            self.broadcasts = self._broadcast()

    def before(self, event: Event) -> None:
        owners = {self.owner[p] for p in event.node.parameters if p in self.owner}
        self.builder.wait_for(
            COMPUTE, [self.broadcasts.pop(each) for each in sorted(owners) if each in self.broadcasts]
        )

    def _broadcast(self) -> dict[int, int]:
        return {
            owner: self.builder.collective(
                COMPUTE, "broadcast", elements, self.dtype, self.shards.name,
                name=f"broadcast parameters of {owner}", asynchronous=True,
            )
            for owner, elements in enumerate(self.parts) if elements
        }  # fmt: skip

    # --- gradients ---------------------------------------------------------------------------------------------------

    def gradient(self, parameter: int, buffer: int) -> None:
        kept = self.held.setdefault(parameter, buffer)
        if kept != buffer:
            self.accumulate(kept, buffer, self.network.numels[parameter], self.width)
        self.builder.call(gradient_hooks=1)
        if self.boundary_micro_batch and self.config.overlap_grad_reduce:
            self._collect(parameter)

    def _collect(self, parameter: int) -> None:
        filled = sum(self.network.numels[p] for p in self.bucket)
        if self.bucket and filled + self.network.numels[parameter] > self.limit:
            self._reduce()
        self.bucket.append(parameter)

    def _reduce(self) -> None:
        """Flatten and send; then wait for the bucket before, and copy it back."""
        elements = sum(self.network.numels[p] for p in self.bucket)
        flat = self.builder.acquire("flattened bucket", "buffers", float(self.width * elements))
        self.elementwise(COMPUTE, "flatten gradients", 2.0 * self.width * elements)
        pieces = tuple(self.whole(p) for p in sorted(self.bucket))
        sent = self.builder.collective(
            COMPUTE, "all_reduce", elements, self.dtype, DATA_PARALLEL,
            name="all-reduce gradients", asynchronous=True, reduces=pieces,
        )  # fmt: skip
        self._finish()
        self.out = Sent(sent, flat, elements, len(self.bucket))
        self.bucket = []

    def _finish(self) -> None:
        if self.out is not None:
            op, flat, elements, tensors = self.out
            self.builder.wait_for(COMPUTE, [op])
            self.elementwise(COMPUTE, "copy gradients back", 2.0 * self.width * elements, tensors)
            self.builder.release(flat, COMPUTE)
            self.out = None

    def epilogue(self) -> None:
        if not self.boundary_micro_batch:
            return
        if not self.config.overlap_grad_reduce:
            for parameter in self.trainable:
                self._collect(parameter)
        if self.bucket:
            self._reduce()
        self._finish()

    # --- the step ----------------------------------------------------------------------------------------------------

    def boundary(self) -> None:
        """Norm of what is mine, flatten, cast, step; then everyone broadcasts."""
        build = self.builder
        self.overflow_check(self.part, self.width)
        self.norm(self.part, self.width)
        flat = build.acquire("flat gradients", "optimizer", float(self.width * self.part))
        self.elementwise(COMPUTE, "flatten gradients", 2.0 * self.width * self.part)
        for buffer in self.held.values():
            build.release(buffer, COMPUTE)
        self.held.clear()
        wide = build.acquire("fp32 gradients", "optimizer", float(MASTER_BYTES * self.part))
        self.elementwise(COMPUTE, "cast gradients to fp32", float((self.width + MASTER_BYTES) * self.part))
        build.release(flat, COMPUTE)
        self.optimizer_step()
        build.release(wide, COMPUTE)
        build.synchronize()
        if not self.config.overlap_param_gather:
            build.wait_for(COMPUTE, self._broadcast().values())
            build.synchronize()
