"""Stage 3's gradients: into one bucket, reduced and scattered when it is full, my slices kept where the optimizer is.

Source: DeepSpeed runtime/zero/stage3.py, runtime/comm/coalesced_collectives.py. All of it runs on the reduction lane
(with `overlap_comm`), copies to and from host memory too. The compute lane never waits for a reduction before the
epilogue; the host does: at most two reductions may be outstanding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, REDUCE, Slice
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.stage3_parameters import OUTSTANDING, GatheredParameters


class Slices(ABC):
    """My slices of the reduced gradients."""

    @abstractmethod
    def residents(self) -> None:
        """What is there from step to step."""

    @abstractmethod
    def keep(self, parameters: Sequence[int]) -> None:
        """These were reduced in one bucket."""


class ReducedGradients(GatheredParameters):
    """What the gradient hooks do. `slices` is set by the stage that knows where its optimizer is."""

    slices: Slices

    def __init__(self, config: DeepSpeed, model: Model, training: Training, ranks: Ranks) -> None:
        super().__init__(config, model, training, ranks)
        self.lane = REDUCE if config.zero.overlap_comm else COMPUTE
        self.reduce_events: list[tuple[int, ...]] = []
        self.bucket: list[int] = []
        self.bucket_elements = 0
        self.loose: list[int] = []  # gradients of the bucket in their own memory: oversized, or nothing is contiguous

    @property
    def reductions(self) -> tuple[int, ...]:
        return tuple(range(self.last_micro_batch + 1))

    def prepare(self) -> None:
        super().prepare()
        self.slices.residents()
        if self.zero.contiguous_gradients:
            size = float(self.width * self.zero.reduce_bucket_size)
            self.builder.resident("gradient bucket", "buffers", size)

    def gradient(self, parameter: int, buffer: int) -> None:
        """Into the bucket, on the reduction lane; a gradient larger than the bucket stays where it is."""
        numel, limit = self.network.numels[parameter], self.zero.reduce_bucket_size
        self.builder.call(gradient_hooks=1)
        if self.bucket and self.bucket_elements + numel > limit:
            self._reduce()
        self.builder.wait(self.lane, COMPUTE)
        if self.bucket_elements + numel <= limit and self.zero.contiguous_gradients:
            self.elementwise(self.lane, "copy gradient to bucket", 2.0 * self.width * numel)
            self.builder.release(buffer, self.lane)
        else:
            self.loose.append(buffer)
        self.bucket.append(parameter)
        self.bucket_elements += numel

    def epilogue(self) -> None:
        """Reduce the rest; the host waits for the reduction lane; modules without a post-hook are released."""
        if self.bucket:
            self._reduce()
        self.builder.block(self.builder.tail(self.lane))
        self.reduce_events.clear()
        self.release_leftovers()

    def _reduce(self) -> None:
        """Reduce the bucket, put my slices where they belong."""
        members = sorted(self.bucket)
        if len(self.reduce_events) > OUTSTANDING:
            self.builder.block(self.reduce_events[-OUTSTANDING - 1])
        self.reduce_members(members)
        self.slices.keep(members)
        self.replicate(members)
        for buffer in self.loose:
            self.builder.release(buffer, self.lane)
        self.reduce_events.append(tuple(self.builder.tail(self.lane)))
        self.loose.clear()
        self.bucket.clear()
        self.bucket_elements = 0

    def reduce_members(self, members: list[int]) -> None:
        """The bucket on the wire; my slices are summed."""
        if not self.zero.reduce_scatter and self.bucket_elements <= self.zero.reduce_bucket_size:
            self._all_reduce(members)
        else:
            self.scatter(members)

    def replicate(self, members: Sequence[int]) -> None:
        """Sum my slices over replicas of them, where there are any."""

    def scatter(self, members: list[int]) -> None:
        """Interleave the ranks' chunks, divide, reduce-scatter."""
        padded = self.world_size * self.layout.elements(members)
        copied = len(members) > 1 or padded != self.network.numels[members[0]]
        temporary = (
            self.builder.acquire("interleaved gradients", "buffers", float(self.width * padded)) if copied else None
        )
        passes = 2 if copied else 1
        self.elementwise(
            self.lane, "interleave and divide gradients", 2.0 * self.width * padded * passes, len(members) + 1
        )
        received = padded // self.world_size
        self.reduce_on_wire(
            self.lane, "reduce_scatter", padded, self.pieces(members), "reduce-scatter gradients", received
        )
        if temporary is not None:
            self.builder.release_after(temporary, self.builder.next_op)

    def _all_reduce(self, members: list[int]) -> None:
        elements = self.bucket_elements
        self.pass_over("divide gradients", elements, 2 * self.width, lane=self.lane)
        self.reduce_on_wire(self.lane, "all_reduce", elements, self.pieces(members), "all-reduce gradients", elements)

    def pieces(self, members: list[int]) -> tuple[Slice, ...]:
        return tuple(self.whole(p) for p in members)
