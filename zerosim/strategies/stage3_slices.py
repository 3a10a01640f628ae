"""Where a rank of stage 3 keeps its slices of the reduced gradients: on the GPU, or in host memory with the optimizer.

Source: DeepSpeed 0.19.8 runtime/zero/stage3.py (`partition_grads`, `_offload_grad_partition_at_boundary`). Offloaded, a
slice goes down in the dtype in which it accumulates and comes up again at once, in the first micro-step too; later
ones are added to it on the GPU. At the boundary its norm is taken there, and it goes down once more in fp32: to the
optimizer in host memory, or into the buffers of one on NVMe. Pinned, none of this makes the host wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from zerosim.step import HOST_STREAM, HostCompute, Transfer
from zerosim.strategies.placement import MASTER_BYTES
from zerosim.strategies.stage3_gradients import ReducedGradients, Slices
from zerosim.strategies.swap_optimizer import Gradient, OptimizerSwapper

NORM_CHUNK = 250_000_000  # elements that are widened to fp64 at once (stage3.py, _constant_buffered_norm2)


class GpuSlices(Slices):
    """A flat buffer on the GPU."""

    def __init__(self, program: ReducedGradients) -> None:
        self.program = program

    def residents(self) -> None:
        size = float(self.program.held_width * self.program.layout.share)
        self.program.builder.resident("gradient partition", "gradients", size)

    def keep(self, parameters: Sequence[int]) -> None:
        """Copy, or read, add and write."""
        program = self.program
        moved = program.width + program.held_width * (1 if program.micro_batch == 0 else 2)
        elements = program.layout.elements(parameters)
        program.pass_over("keep my gradients", elements, moved, len(parameters), program.lane)


class HostSlices(Slices):
    """A flat buffer in host memory, and from there or from the GPU to the optimizer."""

    def __init__(self, program: ReducedGradients, swapper: OptimizerSwapper) -> None:
        self.program = program
        self.builder = program.builder
        self.swapper = swapper
        self.pinned = program.layout.placement.optimizer_pinned
        self.group_of = program.layout.group_of()

    def residents(self) -> None:
        layout, held = self.program.layout, self.program.held_width
        resident, pinned = self.builder.resident, self.pinned
        resident("gradient partition", "gradients", float(held * layout.share), "dram", pinned)
        for group in layout.groups:
            size = float(MASTER_BYTES * group.elements)
            if group.optimizer == "dram":
                resident("fp32 gradients", "gradients", size, "dram", pinned)
            elif group.optimizer == "gpu":
                resident("fp32 gradients", "gradients", size)

    def keep(self, parameters: Sequence[int]) -> None:
        program = self.program
        if program.held_width != program.width:
            moved = program.width + program.held_width
            program.pass_over(
                "cast gradients to accumulate", program.layout.elements(parameters), moved, lane=program.lane
            )
        to_drives: dict[int, list[Gradient]] = {}
        for parameter in parameters:
            buffer = self._accumulate(program.layout.shards[parameter].elements)
            if program.boundary_micro_batch:
                self._hand_over(parameter, buffer, to_drives)
            else:
                self.builder.release(buffer, program.lane)
        for number, gradients in to_drives.items():
            self.swapper.put(program.lane, program.layout.groups[number], gradients)

    def _accumulate(self, elements: int) -> int:
        """The buffer on the GPU in which the sum is afterwards."""
        first = self.program.micro_batch == 0
        size = float(self.program.held_width * elements)
        if first:
            self._down("copy gradient to host", size)
        buffer = self.builder.acquire("gradient read back", "gradients", size)
        up = Transfer(size, "dram", "gpu", self.pinned)
        self.builder.copy(self.program.lane, "read gradient back", up)
        if not first:
            self.program.elementwise(self.program.lane, "accumulate gradient", 3 * size)
            self._down("copy accumulated gradient to host", size)
        return buffer

    def _hand_over(self, parameter: int, buffer: int, to_drives: dict[int, list[Gradient]]) -> None:
        """The norm, and the slice in fp32 to the optimizer of its sub-group."""
        program, lane, group = self.program, self.program.lane, self.group_of[parameter]
        elements = program.layout.shards[parameter].elements
        program.norm_kernels(elements, min(elements, NORM_CHUNK), 1, lane)
        if group.optimizer == "dram" and not program.release.async_gradient_copies:
            self._down_and_cast(elements)
            self.builder.release(buffer, lane)
            return
        wide, width = buffer, program.held_width
        if width < MASTER_BYTES:
            wide = self.builder.acquire("fp32 gradient", "gradients", float(MASTER_BYTES * elements))
            program.pass_over("cast gradient to fp32", elements, width + MASTER_BYTES, lane=lane)
            self.builder.release(buffer, lane)
        if group.optimizer == "nvme":
            to_drives.setdefault(group.number, []).append(Gradient(elements, wide))
            return
        if group.optimizer == "dram":
            self._down("copy fp32 gradient to host", float(MASTER_BYTES * elements))
        else:
            program.pass_over("copy fp32 gradient", elements, 2 * MASTER_BYTES, lane=lane)
        self.builder.release(wide, lane)

    def _down_and_cast(self, elements: int) -> None:
        """A plain copy_ to another dtype: the host waits, and casts from memory that nobody pinned (ATen,
        native/cuda/Copy.cu: a blocking copy converts on the CPU). Of the same dtype it goes straight to its place."""
        width = self.program.held_width
        size, casts = float(width * elements), width < MASTER_BYTES
        held = self.builder.acquire("gradient to cast", "gradients", size, "dram") if casts else None
        down = Transfer(size, "gpu", "dram", self.pinned and not casts)
        self.builder.copy(self.program.lane, "copy gradient to host", down, blocking=True)
        if held is not None:
            work = HostCompute("cast", elements, float((width + MASTER_BYTES) * elements))
            self.builder.host_compute("cast gradient to fp32", work)
            self.builder.release(held, HOST_STREAM)

    def _down(self, name: str, size: float) -> None:
        self.builder.copy(self.program.lane, name, Transfer(size, "gpu", "dram", self.pinned))
