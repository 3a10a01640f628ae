"""What the kernels of a leaf are told as: GPU work with its launches, bytes saved and made, and what shapes them.

Values only; what a module of a kind does stands in `kernels`, the core of attention in `attention`.
"""

from __future__ import annotations

from typing import NamedTuple

from zerosim.spec.training import AttentionKernel, CrossEntropy, Training
from zerosim.step import DTYPE_BYTES, Attention, Matmul, Pass


class Kernel(NamedTuple):
    """One op's worth of GPU work and the launches it takes."""

    work: Matmul | Attention | Pass
    launches: int


class Work(NamedTuple):
    """A leaf's kernels and memory. `saved` lives from its forward to its backward; the tensors of `forward_extra` and
    `backward_extra` only during the op; `output` is what the next module reads. Bytes."""

    forward: tuple[Kernel, ...] = ()
    backward: tuple[Kernel, ...] = ()
    saved: float = 0.0
    output: float = 0.0
    forward_extra: tuple[float, ...] = ()
    backward_extra: tuple[float, ...] = ()


class Shape(NamedTuple):
    """What kernels need to know of the training: tokens, sequences, dtype, kernel choices.

    Under `autocast` (fp32 weights, 16-bit matrix products) embeddings, norms and the residual stream are fp32; a matrix
    product casts an fp32 input and keeps the copy (torch/amp/autocast_mode.py; only weights are cached).
    """

    tokens: int
    batch: int
    sequence: int
    dtype: str
    attention: AttentionKernel
    fused: bool
    keep_scores: bool  # attention probabilities are saved (no selective recomputation)
    loss: CrossEntropy
    autocast: bool = False

    @property
    def width(self) -> int:
        """Bytes of an element that a matrix product makes."""
        return DTYPE_BYTES[self.dtype]

    @property
    def wide(self) -> int:
        """Bytes of an element of the residual stream."""
        return 4 if self.autocast else self.width


def shape_of(training: Training, autocast: bool = False) -> Shape:
    return Shape(
        autocast=autocast,
        tokens=training.tokens,
        batch=training.micro_batch_size,
        sequence=training.sequence_length,
        dtype=training.arithmetic,
        attention=training.attention,
        fused=training.kernels == "fused",
        keep_scores=training.activation_checkpointing != "selective",
        loss=training.loss_kernel,
    )


def stream(size: float, launches: int = 1) -> Kernel:
    """A streaming pass over `size` bytes of HBM traffic."""
    return Kernel(Pass(size, "stream", launches), launches)


def reduction(size: float, launches: int = 1) -> Kernel:
    return Kernel(Pass(size, "reduction", launches), launches)
