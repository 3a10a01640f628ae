"""ZeRO-Offload on stages 1 and 2: gradients and optimizer of the partition in host memory.

Source: DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py (`copy_grads_in_partition`, `step`); op numbers are those of the
specification in the tests' vectors. Copies have no stream of their own: they run on the lane that reduces. What
surprises: where micro-steps accumulate, whole tensors travel both ways in the model's dtype, and the host waits for
each copy before the next tensor; at the boundary it reads for each tensor whether it is finite. So a backward hides
little of the copies. Gradients go down in fp32, twice what the ZeRO-Offload paper sends. Nothing overlaps the update.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.step import COMPUTE, HostCompute, Tier, Transfer
from zerosim.strategies.deepspeed import DeepSpeedProgram
from zerosim.strategies.flat import FlatLayout
from zerosim.strategies.partition import RANK, Partition
from zerosim.strategies.placement import MASTER_BYTES, HostOptimizer


class HostPartition(Partition):
    """Gradients and optimizer in host memory; `accumulates`: sums over micro-steps, too, in the model's dtype."""

    def __init__(
        self, program: DeepSpeedProgram, layout: FlatLayout, lane: str, *, accumulates: bool, pinned: bool
    ) -> None:
        super().__init__(program, layout, lane)
        self.pinned = pinned
        self.accumulates = accumulates and not self.widens
        self.pending: int | None = None  # the last copy down, if the host has not waited for it

    def repeated(self, by: int) -> None:
        if self.pending is not None:
            self.pending += by

    def residents(self) -> None:
        """A buffer of the largest tensor on either side; only the one on the GPU is used."""
        width, numels = self.program.width, self.program.network.trainable_numels
        old = self.program.release.copies_fp32_weights
        self.optimizer.residents(self.layout.share, self.pinned, master_pinned=self.pinned or old)
        if not old:
            self._resident("parameters on their way to the GPU", "buffers", width * self.layout.share)
        largest = width * max(numels, default=0)
        self._resident("gradient on its way", "buffers", largest)
        self._resident("gradient on its way", "buffers", largest, "gpu")
        for parameter in self.tensors if self.accumulates else ():
            self._resident("accumulated gradient", "gradients", width * numels[parameter])

    def _resident(self, name: str, category: str, size: float, tier: Tier = "dram") -> None:
        self.builder.resident(name, category, float(size), tier, self.pinned and tier == "dram")

    @property
    def optimizer(self) -> HostOptimizer:
        return HostOptimizer(self.builder, self.program.config.optimizer, self.program.width)

    # --- gradients (O1-O6) -------------------------------------------------------------------------------------------

    def keep(self, parameters: Sequence[int]) -> None:
        if self.widens:
            self.widen(parameters)
        for parameter in parameters:
            if self.accumulates:
                self._accumulate(parameter)
            if self.program.boundary_micro_batch:
                self._hand_over(parameter)

    def _accumulate(self, parameter: int) -> None:
        """The whole tensor: up and added to, but for the first micro-step; down."""
        size = float(self.program.width * self.program.network.numels[parameter])
        if self.program.release.guards_offload:
            self._await_copies()
        if self.program.micro_batch > 0:
            up = Transfer(size, "dram", "gpu", self.pinned)
            self.builder.copy(self.lane, "copy accumulated gradient to the GPU", up)
            self.program.elementwise(self.lane, "accumulate gradient", 3 * size)
        if not (self.program.boundary_micro_batch and self.program.release.host_sums == "unless_last"):
            self._down("copy accumulated gradient to host", size)

    def _hand_over(self, parameter: int) -> None:
        """My slice of the sum, in fp32, to the optimizer; its norm stays on the GPU, the host reads if it is finite."""
        program, lane = self.program, self.lane
        mine = self.layout.in_partition(parameter, RANK)
        width, tested = (4, mine) if self.widens else (program.width, program.network.numels[parameter])
        program.norm_kernels(mine, mine, 1, lane)
        program.finite_test(lane, tested, width)
        self.builder.read(lane)
        cast = None
        if width < MASTER_BYTES:
            cast = self.builder.acquire("fp32 gradient", "gradients", float(MASTER_BYTES * mine))
            program.pass_over("cast gradient to fp32", mine, width + MASTER_BYTES, lane=lane)
        self._down("copy gradient to host", float(MASTER_BYTES * mine))
        if cast is not None:
            self.builder.release(cast, lane)

    def _down(self, name: str, size: float) -> None:
        copy = self.builder.copy(self.lane, name, Transfer(size, "gpu", "dram", self.pinned))
        self.pending = copy if self.pinned else None

    def _await_copies(self) -> None:
        if self.pending is not None:
            self.builder.block([self.pending])
            self.pending = None

    # --- the optimizer (P1-P4) ---------------------------------------------------------------------------------------

    def update(self) -> None:
        build = self.builder
        if self.program.release.guards_offload:
            self._await_copies()
        if self.checks_overflow:
            self.program.overflow_flag()
        for _ in self.tensors:
            build.read(COMPUTE)  # the square of its norm
        self.all_reduce_norm()
        build.read(COMPUTE)
        if self.program.release.copies_fp32_weights:
            self._update_and_cast_on_gpu()
        else:
            self._update_and_copy()
        if self.sums is not None:
            build.release(self.sums, COMPUTE)
            self.sums = None

    def _update_and_copy(self) -> None:
        build, share, width = self.builder, self.layout.share, self.program.width
        self.optimizer.update(share, scale=self.program.scales)
        if width == MASTER_BYTES:  # nothing to cast, but copied all the same
            build.host_compute("copy parameters", HostCompute("stream", share, float(2 * width * share)))
        up = Transfer(float(width * share), "dram", "gpu", self.pinned)
        build.copy(COMPUTE, "copy parameters to the GPU", up)

    def _update_and_cast_on_gpu(self) -> None:
        """0.14.5: `.to(device)` of the masters, which are always pinned and for which the host waits; then a copy."""
        build, share = self.builder, self.layout.share
        self.optimizer.update(share, scale=self.program.scales, cast=False)
        whole = build.acquire("fp32 parameters", "optimizer", float(MASTER_BYTES * share))
        up = Transfer(float(MASTER_BYTES * share), "dram", "gpu")
        build.copy(COMPUTE, "copy fp32 parameters to the GPU", up, blocking=True)
        self.program.pass_over("write parameters", share, MASTER_BYTES + self.program.width)
        build.release(whole, COMPUTE)
