"""Gradients on their way to NVMe: one swap buffer is filled while those before it are written.

Source: DeepSpeed 0.19.8 runtime/swap_tensor/async_swapper.py. The host waits for each copy into a buffer, and for all
writes when no buffer is left. A buffer is handed to the drives when the next tensor does not fit, so that the last one
is written at the step.
"""

from __future__ import annotations

from zerosim.spec.strategy import Aio
from zerosim.spec.swap_rules import FP32
from zerosim.step import WRITE, Transfer
from zerosim.strategies.builder import Builder
from zerosim.strategies.requests import request


class GradientWriter:
    """`count` buffers of `capacity` fp32 elements each, borrowed between a reduction and the optimizer."""

    def __init__(self, builder: Builder, aio: Aio, capacity: int, count: int) -> None:
        self.builder = builder
        self.aio = aio
        self.capacity = capacity
        self.count = count
        self.free = count
        self.tensors: list[int] = []  # elements of each tensor in the buffer that is being filled
        self.writing: list[int] = []

    def put(self, lane: str, elements: int) -> None:
        """Copy a gradient from the GPU into a buffer, the host waiting."""
        if sum(self.tensors) + elements > self.capacity:
            self._submit()
            if not self.free:
                self._await()
        if not self.tensors:
            self.free -= 1
        down = Transfer(float(FP32 * elements), "gpu", "dram", pinned=False)
        self.builder.copy(lane, "copy gradient to swap buffer", down, blocking=True)
        self.tensors.append(elements)

    def flush(self) -> None:
        """Write what is left; the host waits for all of it, and the buffers go back."""
        if self.tensors or self.writing:
            self._submit()
            self._await()

    def _submit(self) -> None:
        for elements in self.tensors:
            work = request(self.aio, FP32 * elements, "dram", "nvme")
            self.writing.append(self.builder.launch(WRITE, "write gradient", work))
        self.tensors.clear()

    def _await(self) -> None:
        self.builder.block(self.writing)
        self.writing.clear()
        self.free = self.count
