"""How one training step is run, apart from the strategy: batch, sequence, precision, recomputation, kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "fp16", "bf16"]
Checkpointing = Literal["none", "selective", "alternate", "operators", "full"]
AttentionKernel = Literal["flash", "flash1", "flash3", "eager"]
Kernels = Literal["eager", "fused"]
CheckpointFunction = Literal["torch", "deepspeed"]
CrossEntropy = Literal["fp32", "freed", "model", "fused", "in_place"]


MOST_PASSES = 65_536  # layers x micro-steps of a step that can be played: some 5 million ops, 8 GB, ten minutes


@dataclass(frozen=True, slots=True)
class Training:
    """`micro_batch_size` sequences of `sequence_length` tokens per GPU and micro-step.

    `attention`: `flash` is FlashAttention-2 (torch's scaled_dot_product_attention, flash-attn 2), `flash1` its
    predecessor and the Triton kernel of its time, `flash3` its successor (FlashAttention-3 on Hopper, the newest on
    Blackwell); `eager` writes the scores out. `kernels`: `eager` runs norms, rotary embedding, SwiGLU, softmax and loss
    kernel by kernel as Hugging Face modules do in eager PyTorch; `fused` as one kernel each, as Megatron's and those of
    torch.compile. `tf32`: products of fp32 training multiply in TF32 (torch.set_float32_matmul_precision("high")).
    `activation_checkpointing`: `full` runs every transformer block again, `alternate` every second one
    (torchtitan's selective "2"), `operators` all of them but for attention and every second matrix product, whose
    outputs are kept (torchtitan's selective "op"); `selective` the scores of attention alone (Megatron's).
    `cross_entropy`: `fp32` casts the logits up, as Hugging Face's models and autocast do; `freed` the same where
    the training loop drops the 16-bit ones before the backward, as torchtitan's; `model` is torch's in the logits'
    dtype; `fused` one kernel each way, as flash-attn's; `in_place` the same with the gradient over the logits;
    None: as `kernels` say. `reentrant` is torch's checkpoint variant. `checkpoint_function` is whose `checkpoint`
    the model calls: Hugging Face models call torch's, Megatron-DeepSpeed calls deepspeed.checkpointing, which alone
    reads the `activation_checkpointing` section of a DeepSpeed file.
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
    tf32: bool = False
    cross_entropy: CrossEntropy | None = None

    @property
    def checkpoints_blocks(self) -> bool:
        """Whether blocks, or some of them, run again in the backward."""
        return self.activation_checkpointing in ("alternate", "operators", "full")

    @property
    def loss_kernel(self) -> CrossEntropy:
        """How the loss is computed."""
        return self.cross_entropy or ("in_place" if self.kernels == "fused" else "fp32")

    @property
    def arithmetic(self) -> str:
        """The dtype in which matrix products multiply."""
        return "tf32" if self.tf32 and self.precision == "fp32" else self.precision

    @property
    def tokens(self) -> int:
        """Tokens per GPU and micro-step."""
        return self.sequence_length * self.micro_batch_size
