"""What a rank keeps of the gradients that stages 1 and 2 reduce, and how it updates its partition from them.

Source: DeepSpeed runtime/zero/stage_1_and_2.py; op numbers are those of the specification in the tests' vectors. Where
the optimizer is on the GPU so are the gradients, whole tensors of them; offloaded.py is the other place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from zerosim.step import COMPUTE
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.flat import FlatLayout
from zerosim.strategies.placement import MASTER_BYTES

RANK = 0  # whose partition is played


class Partition(ABC):
    """The rank's part of the flat buffer, and the `tensors` that intersect it; gradients are reduced on `lane`."""

    def __init__(self, program: DeepSpeedProgram, layout: FlatLayout, lane: str) -> None:
        self.program = program
        self.builder = program.builder
        self.layout = layout
        self.lane = lane
        self.tensors = tuple(p for p in layout.order if layout.in_partition(p, RANK))
        self.widens = program.width < program.held_width  # sums in fp32
        self.sums: int | None = None  # fp32 gradients of my partition, on the GPU from the first reduction to the step

    @abstractmethod
    def residents(self) -> None:
        """What is there from step to step."""

    @abstractmethod
    def keep(self, parameters: Sequence[int]) -> None:
        """The gradients of these tensors of mine have been reduced, all in one bucket (F7)."""

    @abstractmethod
    def update(self) -> None:
        """The optimizer step, up to the new parameters in my part of the flat buffer (S1-S9)."""

    def finish(self) -> None:
        """The end of a backward that reduced (E3)."""

    def repeated(self, by: int) -> None:
        """As for a program: ops that are remembered are `by` later."""

    def widen(self, parameters: Sequence[int]) -> None:
        """Cast my slices of these tensors, add them to the sums (`_build_compact_grad_partition_buffer`)."""
        program, share = self.program, self.layout.share
        if self.sums is None:
            self.sums = self.builder.acquire("fp32 gradients of my partition", "gradients", float(MASTER_BYTES * share))
            program.pass_over("clear gradients of my partition", share, MASTER_BYTES, lane=self.lane)
        elements = sum(self.layout.in_partition(p, RANK) for p in parameters)
        moved = (program.reduced_width + MASTER_BYTES) + 3 * MASTER_BYTES
        program.pass_over("accumulate gradients in fp32", elements, moved, 2 * len(parameters), self.lane)

    def all_reduce_norm(self) -> None:
        self.builder.collective(COMPUTE, "all_reduce", 1, "fp32", DATA_PARALLEL, name="all-reduce norm")

    @property
    def checks_overflow(self) -> bool:
        return self.program.dtype != "fp32" and self.program.config.check_grad_overflow


class GpuPartition(Partition):
    """Gradients and optimizer on the GPU: whole tensors, or where they accumulate in fp32 one flat buffer."""

    def __init__(self, program: DeepSpeedProgram, layout: FlatLayout, lane: str) -> None:
        super().__init__(program, layout, lane)
        self.widens = self.widens and program.release.compact_sums
        self.fresh: int | None = None  # gradients of my tensors, this backward
        self.held: int | None = None  # the same, accumulated over micro-steps

    def residents(self) -> None:
        self.program.optimizer_residents(self.layout.share)

    def keep(self, parameters: Sequence[int]) -> None:
        """Tensors that intersect my partition are copied whole."""
        program, held_width = self.program, self.program.held_width
        if self.widens:
            self.widen(parameters)
            return
        if self.fresh is None:
            size = float(held_width * self.layout.touched(RANK))
            self.fresh = self.builder.acquire("gradients of my partition", "gradients", size)
        elements = sum(program.network.numels[p] for p in parameters)
        program.pass_over("keep my gradients", elements, program.width + held_width, len(parameters), self.lane)

    def finish(self) -> None:
        if self.held is None:
            self.held = self.fresh
        elif self.fresh is not None:
            self.program.accumulate(self.held, self.fresh, self.layout.touched(RANK), self.program.held_width)
        self.fresh = None

    def update(self) -> None:
        program, tensors = self.program, len(self.tensors)
        share = self.layout.share
        if self.checks_overflow:
            program.finite_test(COMPUTE, share, program.held_width, tensors)
            program.overflow_flag()
        if program.zero.compute_grad_norm:  # which it is always, clipping or not
            self._norm(share, tensors)
        program.update(share, () if self.held is None else (self.held,), widened=self.sums)
        self.held = self.sums = None

    def _norm(self, share: int, tensors: int) -> None:
        program = self.program
        program.norm_kernels(share, self.layout.largest_slice(RANK), tensors)
        self.all_reduce_norm()
        if program.release.reads_norm and (program.dtype != "bf16" or program.config.check_grad_overflow):
            self.builder.read(COMPUTE)  # runtime/utils.py, is_invalid_grad_norm
