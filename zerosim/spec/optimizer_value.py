"""What an optimizer keeps and moves, as a value that every strategy holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

# Operations of an optimizer of torch's that is not fused [A]: without step counts on the GPU, AdamW's are weight decay,
# lerp, mul, addcmul, sqrt, div, add, addcdiv (torch/optim/adam.py, _multi_tensor_adam); Adagrad has 5, SGD 1 or 3.
UNFUSED_KERNELS = 8
# By default they are `foreach` ones (torch/optim/optimizer.py, _default_to_fused_or_foreach): a kernel takes so many
# tensors, or chunks of them (ATen/native/cuda/MultiTensorApply.cuh, three lists, CUDA 13 [E]; before: 48 and 320).
CHUNK = 65_536  # elements
KERNEL_TENSORS, KERNEL_CHUNKS = 336, 2240


@dataclass(frozen=True, slots=True)
class Optimizer:
    """What an optimizer keeps (fp32 bytes per parameter beside the master copy) and moves per step on the GPU.

    `traffic_bytes`: HBM bytes per element and step of its kernels: fused Adam reads p, g, m, v, writes p, m, v: 28.
    `one_by_one`: an unfused one whose kernels are launched for each tensor.
    `on_cpu`: whose code runs where its states are offloaded: DeepSpeed's vectorised one, or torch's pass by pass.
    """

    name: str = "AdamW"
    state_bytes: int = 8
    traffic_bytes: int = 28
    fused: bool = True
    on_cpu: Literal["deepspeed", "torch"] = "deepspeed"
    one_by_one: bool = False
    scratch_bytes: int = 0  # an element of what a `foreach` step makes beside them, all at once

    def launches(self, tensors: int, elements: int) -> int:
        """Kernels of a step on the GPU. The last chunk of each tensor is taken to be a partial one."""
        if self.fused:
            return 1
        if self.one_by_one:
            return UNFUSED_KERNELS * tensors
        chunks = elements // CHUNK + tensors
        return UNFUSED_KERNELS * max(math.ceil(tensors / KERNEL_TENSORS), math.ceil(chunks / KERNEL_CHUNKS))
