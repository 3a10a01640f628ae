"""Optimizer sub-groups on NVMe: read before the update, written after it, or pipelined with their neighbours.

Source: DeepSpeed 0.19.8 runtime/swap_tensor/{optimizer_utils,partitioned_optimizer_swapper,
pipelined_optimizer_swapper}.py. Of each sub-group a file holds the master and one each state; gradients are files of
their own. What surprises: a gradient that is too small to be swapped, or the rest beyond whole units of a larger one,
stays on the GPU in fp32 until its sub-group is updated, and with such a rest the whole gradient does. The buffers of
both swappers are locked, but not registered with CUDA (csrc/pin_memory/page_alloc.cpp, posix_memalign and mlock):
copies between them and the GPU are pageable, and no power of two is rounded up to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zerosim.spec.strategy import DeepSpeed
from zerosim.spec.swap_rules import FP32, aligned, is_swapped, unit
from zerosim.step import COMPUTE, READ, WRITE, Transfer
from zerosim.strategies.builder import Builder
from zerosim.strategies.requests import request
from zerosim.strategies.stage3_layout import Stage3Layout, SubGroup
from zerosim.strategies.swap_gradients import GradientWriter


class Gradient(NamedTuple):
    """An fp32 gradient on the GPU: its elements and buffer."""

    elements: int
    buffer: int


class OptimizerSwapper:
    """The sub-groups whose states are on NVMe."""

    def __init__(self, builder: Builder, config: DeepSpeed, layout: Stage3Layout) -> None:
        self.builder = builder
        self.config = config
        self.layout = layout
        self.offload = config.zero.offload_optimizer
        self.groups = [group for group in layout.groups if group.optimizer == "nvme"]
        self.following = dict(zip([g.number for g in self.groups], self.groups[1:], strict=False))
        self.states = config.optimizer.state_bytes // FP32
        self.capacity = aligned(layout.largest, FP32, config.aio)
        self.writer = GradientWriter(builder, config.aio, self.capacity, self.offload.buffer_count)
        self.in_files: dict[int, list[int]] = {}  # elements of the gradients of a sub-group that were written
        self.kept: dict[int, list[Gradient]] = {}  # and of those that stay on the GPU
        self.ahead: dict[int, list[int]] = {}  # reads of a sub-group that is not needed yet
        self.behind: list[int] = []  # writes of a sub-group that nobody has waited for

    def residents(self) -> None:
        resident, aio = self.builder.resident, self.config.aio
        size = FP32 * self.capacity * self.offload.buffer_count
        resident("swap buffers of the optimizer", "buffers", float(size), "dram")
        elements = sum(aligned(group.elements, FP32, aio) for group in self.groups)
        written = sum(self._whole(self.layout.shards[p].elements) for group in self.groups for p in group.parameters)
        for name, category, size in (
            ("fp32 master parameters", "optimizer", FP32 * elements),
            ("optimizer states", "optimizer", FP32 * self.states * elements),
            ("fp32 gradients", "gradients", FP32 * written),
        ):
            if size:
                resident(name, category, float(size), "nvme")

    def _whole(self, elements: int) -> int:
        """Elements of a gradient that are swapped: whole units of it, or nothing."""
        aio = self.config.aio
        return elements - elements % unit(FP32, aio) if is_swapped(FP32 * elements, aio) else 0

    # --- during the backward -----------------------------------------------------------------------------------------

    def put(self, lane: str, group: SubGroup, gradients: Sequence[Gradient]) -> None:
        """Gradients of a sub-group that were reduced together."""
        for elements, buffer in gradients:
            whole = self._whole(elements)
            if whole:
                self.writer.put(lane, whole)
                self.in_files.setdefault(group.number, []).append(whole)
            if whole < elements:
                self.kept.setdefault(group.number, []).append(Gradient(elements - whole, buffer))
            else:
                self.builder.release(buffer, lane)

    # --- the update --------------------------------------------------------------------------------------------------

    def swap_in(self, group: SubGroup) -> None:
        """The host has the sub-group's states and gradient in its memory when it goes on."""
        self.writer.flush()
        if not (self.offload.pipeline_read or self.offload.pipeline_write):
            self.builder.block(self._read_states(group))
            self.builder.block(self._read_gradients(group))
            self._bring_down(group)
            return
        self.builder.block(self.ahead.pop(group.number) if group.number in self.ahead else self._read(group))
        following = self.following.get(group.number)
        if self.offload.pipeline_read and following:
            self.ahead[following.number] = self._read(following)

    def swap_out(self, group: SubGroup) -> None:
        """The updated states go to the drives; without `pipeline_write`, or after the last, the host waits."""
        self.builder.block(self.behind)
        self.behind = self._write_states(group)
        if not (self.offload.pipeline_write and group.number in self.following):
            self.builder.block(self.behind)
            self.behind = []
        for gradient in self.kept.pop(group.number, []):
            self.builder.release(gradient.buffer, COMPUTE)

    def _read(self, group: SubGroup) -> list[int]:
        """Ask for all of a sub-group at once."""
        reads = [*self._read_states(group), *self._read_gradients(group)]
        self._bring_down(group)
        return reads

    def _read_states(self, group: SubGroup) -> list[int]:
        aio = self.config.aio
        work = request(aio, FP32 * aligned(group.elements, FP32, aio), "nvme", "dram")
        return [self.builder.launch(READ, f"read {file} {group.number}", work) for file in self._files()]

    def _write_states(self, group: SubGroup) -> list[int]:
        aio = self.config.aio
        work = request(aio, FP32 * aligned(group.elements, FP32, aio), "dram", "nvme")
        return [self.builder.launch(WRITE, f"write {file} {group.number}", work) for file in self._files()]

    def _files(self) -> list[str]:
        return ["master of sub-group", *["state of sub-group"] * self.states]

    def _read_gradients(self, group: SubGroup) -> list[int]:
        works = [request(self.config.aio, FP32 * n, "nvme", "dram") for n in self.in_files.get(group.number, [])]
        return [self.builder.launch(READ, f"read gradient of sub-group {group.number}", work) for work in works]

    def _bring_down(self, group: SubGroup) -> None:
        """What is left of its gradient on the GPU."""
        for gradient in self.kept.get(group.number, []):
            down = Transfer(float(FP32 * gradient.elements), "gpu", "dram", pinned=False)
            self.builder.copy(COMPUTE, "copy gradient to host", down, blocking=True)
