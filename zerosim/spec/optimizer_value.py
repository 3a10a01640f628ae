"""What an optimizer keeps and moves, as a value that every strategy holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Kernels of an optimizer of torch's that is not fused, a tensor [A]: without step counts on the GPU, AdamW has 8
# (torch/optim/adam.py, _single_tensor_adam). Its default, `foreach`, has fewer where it joins tensors.
UNFUSED_KERNELS = 10


@dataclass(frozen=True, slots=True)
class Optimizer:
    """What an optimizer keeps (fp32 bytes per parameter beside the master copy) and moves per step on the GPU.

    `traffic_bytes`: HBM bytes per element and step of its kernels: fused Adam reads p, g, m, v, writes p, m, v: 28.
    `on_cpu`: whose code runs where its states are offloaded: DeepSpeed's vectorised one, or torch's pass by pass.
    """

    name: str = "AdamW"
    state_bytes: int = 8
    traffic_bytes: int = 28
    fused: bool = True
    on_cpu: Literal["deepspeed", "torch"] = "deepspeed"

    def launches(self, tensors: int) -> int:
        """Kernels of a step on the GPU."""
        return 1 if self.fused else UNFUSED_KERNELS * tensors
