"""How one training step is run, apart from the strategy: batch, sequence, precision, recomputation, kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "fp16", "bf16"]
Checkpointing = Literal["none", "selective", "full"]
AttentionKernel = Literal["flash", "eager"]
Kernels = Literal["eager", "fused"]
CheckpointFunction = Literal["torch", "deepspeed"]


MOST_PASSES = 65_536  # layers x micro-steps of a step that can be played: some 5 million ops, 8 GB, ten minutes


@dataclass(frozen=True, slots=True)
class Training:
    """`micro_batch_size` sequences of `sequence_length` tokens per GPU and micro-step.

    `kernels`: `eager` runs norms, rotary embedding, SwiGLU and loss kernel by kernel as Hugging Face modules do in
    eager PyTorch; `fused` as one kernel each. `reentrant` is torch's checkpoint variant. `checkpoint_function` is whose
    `checkpoint` the model calls: Hugging Face models call torch's, Megatron-DeepSpeed calls deepspeed.checkpointing,
    which alone reads the `activation_checkpointing` section of a DeepSpeed file.
    """

    sequence_length: int
    micro_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    precision: Precision = "bf16"
    activation_checkpointing: Checkpointing = "none"
    attention: AttentionKernel = "flash"
    kernels: Kernels = "eager"
    reentrant: bool = False
    checkpoint_function: CheckpointFunction = "torch"

    @property
    def tokens(self) -> int:
        """Tokens per GPU and micro-step."""
        return self.sequence_length * self.micro_batch_size
