"""What a module does on the GPU, forward and backward: kernels, bytes it saves for the backward pass, its output.

Counts of HBM bytes per element are reads plus writes of the kernels that eager PyTorch runs (`kernels: eager`) or of
one fused kernel (`kernels: fused`), in units of `w`, the bytes of an element of the compute dtype. They agree with the
activation bytes measured per transformer block: 18 (Llama, fp32 RMSNorm) or 32 (GPT) s·b·h plus attention and MLP
(Korthikanti et al. 2022, "Reducing activation recomputation", eq. 1, without dropout and with fused attention).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from zerosim.spec.model import Function, Module
from zerosim.spec.training import Training
from zerosim.step import DTYPE_BYTES, Attention, Matmul, Pass


class Kernel(NamedTuple):
    """One op's worth of GPU work and the launches it takes."""

    work: Matmul | Attention | Pass
    launches: int


class Work(NamedTuple):
    """A leaf's kernels and memory. `saved` lives from its forward to its backward; `forward_extra` and
    `backward_extra` only during the op; `output` is what the next module reads. Bytes."""

    forward: tuple[Kernel, ...] = ()
    backward: tuple[Kernel, ...] = ()
    saved: float = 0.0
    output: float = 0.0
    forward_extra: float = 0.0
    backward_extra: float = 0.0


class Shape(NamedTuple):
    """What kernels need to know of the training: tokens, sequences, dtype, kernel choices."""

    tokens: int
    batch: int
    sequence: int
    dtype: str
    flash: bool
    fused: bool
    keep_scores: bool  # attention probabilities are saved (no selective recomputation)

    @property
    def width(self) -> int:
        return DTYPE_BYTES[self.dtype]


def shape_of(training: Training) -> Shape:
    return Shape(
        tokens=training.tokens,
        batch=training.micro_batch_size,
        sequence=training.sequence_length,
        dtype=training.precision,
        flash=training.attention == "flash",
        fused=training.kernels == "fused",
        keep_scores=training.activation_checkpointing != "selective",
    )


def work_of(part: Module | Function, shape: Shape) -> Work:
    """The work of one leaf or function for one micro-batch."""
    return _TABLE[part.kind](part, shape)


def stream(size: float, launches: int = 1) -> Kernel:
    """A streaming pass over `size` bytes of HBM traffic."""
    return Kernel(Pass(size, "stream", launches), launches)


def reduction(size: float, launches: int = 1) -> Kernel:
    return Kernel(Pass(size, "reduction", launches), launches)


# --- modules -------------------------------------------------------------------------------------------------------


def _nothing(part: Module | Function, shape: Shape) -> Work:
    return Work()


def _embedding(part: Module | Function, shape: Shape) -> Work:
    """Forward copies a row per token; backward zeroes the dense gradient of the table and adds a row per token."""
    rows = shape.tokens * part.outputs * shape.width
    table = part.parameters[0].numel * shape.width if isinstance(part, Module) and part.parameters else 0
    return Work(
        forward=(stream(2 * rows),),
        backward=(stream(table + 3 * rows, 2),),
        saved=8.0 * shape.tokens,  # int64 indices
        output=rows,
    )


def _linear(part: Module | Function, shape: Shape) -> Work:
    """Forward x·Wᵀ; backward dX = dY·W and dW = dYᵀ·X, and the bias gradient, a column sum."""
    assert isinstance(part, Module)
    tokens, fan_in, fan_out = shape.tokens, part.inputs, part.outputs
    trainable = any(parameter.trainable for parameter in part.parameters)
    products = [(1, tokens, fan_out, fan_in)] + ([(1, fan_out, tokens, fan_in)] if trainable else [])
    backward = [Kernel(Matmul(tuple(products), shape.dtype), len(products))]
    if len(part.parameters) > 1 and trainable:
        backward.append(reduction(tokens * fan_out * shape.width))
    return Work(
        forward=(Kernel(Matmul(((1, tokens, fan_in, fan_out),), shape.dtype), 1),),
        backward=tuple(backward),
        saved=0.0 if part.shares_input or not trainable else tokens * fan_in * shape.width,
        output=tokens * fan_out * shape.width,
    )


def _norm_rms(part: Module | Function, shape: Shape) -> Work:
    """Eager: to fp32, square, mean, rsqrt, multiply, back, times weight: 36 B an element in 16 bit, 7 launches;
    backward 72 B in 12. Saves the fp32 input and the normalised one. Fused: read and write once; saves its input."""
    size = float(shape.tokens * part.outputs)
    w = shape.width
    if shape.fused:
        return Work((reduction(2 * w * size),), (reduction(4 * w * size, 2),), saved=w * size, output=w * size)
    forward, backward = (36, 72) if w == 2 else (32, 64)  # no casts in fp32
    return Work(
        forward=(reduction(forward * size, 7),),
        backward=(reduction(backward * size, 12),),
        saved=(4 + w) * size,
        output=w * size,
    )


def _norm_layer(part: Module | Function, shape: Shape) -> Work:
    """One kernel forward, two backward (torch native_layer_norm), fused or not."""
    size = float(shape.tokens * part.outputs * shape.width)
    return Work((reduction(2 * size),), (reduction(4 * size, 2),), saved=size, output=size)


def _activation(part: Module | Function, shape: Shape) -> Work:
    size = float(shape.tokens * part.outputs * shape.width)
    return Work((stream(2 * size),), (stream(3 * size),), saved=size, output=size)


def _dropout(part: Module | Function, shape: Shape) -> Work:
    """Value in and out and a mask of one byte an element."""
    size = float(shape.tokens * part.outputs)
    moved = (2 * shape.width + 1) * size
    return Work((stream(moved),), (stream(moved),), saved=size, output=shape.width * size)


# --- functions -----------------------------------------------------------------------------------------------------


def _add(part: Module | Function, shape: Shape) -> Work:
    """Two in, one out; backward adds the gradients of the two branches."""
    size = float(shape.tokens * part.outputs * shape.width)
    return Work((stream(3 * size),), (stream(3 * size),), output=size)


def _multiply(part: Module | Function, shape: Shape) -> Work:
    """gate·up saves both; its product is the next linear's input and counted there."""
    size = float(shape.tokens * part.outputs * shape.width)
    return Work((stream(3 * size),), (stream(5 * size, 2),), saved=2 * size, output=size)


def _rotary(part: Module | Function, shape: Shape) -> Work:
    """Eager rotate-half: negate, concatenate, two products, a sum: 10 w an element of q and k, 10 launches."""
    assert isinstance(part, Function)
    size = float(shape.tokens * (part.heads + part.kv_heads) * part.head_dim * shape.width)
    moved, launches = (2 * size, 1) if shape.fused else (10 * size, 10)
    return Work((stream(moved, launches),), (stream(moved, launches),), output=size)


def _attention(part: Module | Function, shape: Shape) -> Work:
    assert isinstance(part, Function)
    return _flash(part, shape) if shape.flash else _eager_attention(part, shape)


def _flash(part: Function, shape: Shape) -> Work:
    """Saves q, k, v and the log-sum-exp of each row (fp32); its output is the next linear's input."""
    sizes = (shape.batch, part.heads, shape.sequence, shape.sequence, part.head_dim, part.causal)
    rows = shape.tokens * part.head_dim * shape.width
    return Work(
        forward=(Kernel(Attention(*sizes, False, shape.dtype), 1),),
        backward=(Kernel(Attention(*sizes, True, shape.dtype), 3),),
        saved=rows * (part.heads + 2 * part.kv_heads) + 4.0 * part.heads * shape.tokens,
        output=rows * part.heads,
    )


def _eager_attention(part: Function, shape: Shape) -> Work:
    """Scores are written out: QKᵀ, scale, mask, softmax in fp32, PV; 30 B a score in 16 bit each way. Saves q, k, v
    and the probabilities (2·a·s² a sequence) unless they are recomputed (selective)."""
    batch, s, d = shape.batch * part.heads, shape.sequence, part.head_dim
    scores = float(batch) * s * s
    rows = shape.tokens * d * shape.width
    forward = (Kernel(Matmul(((batch, s, d, s), (batch, s, s, d)), shape.dtype), 2), reduction(30 * scores, 6))
    gradients = ((batch, s, d, s), (batch, s, s, d), (batch, s, s, d), (batch, s, s, d))
    backward = (Kernel(Matmul(gradients, shape.dtype), 4), reduction(30 * scores, 6))
    return Work(
        forward=forward,
        backward=backward if shape.keep_scores else (*forward, *backward),
        saved=rows * (part.heads + 2 * part.kv_heads) + (shape.width * scores if shape.keep_scores else 0.0),
        output=rows * part.heads,
        forward_extra=4 * scores,  # fp32 softmax
        backward_extra=(4 + shape.width) * scores,
    )


def _loss(part: Module | Function, shape: Shape) -> Work:
    """Cross-entropy. Eager: logits to fp32, log-softmax, its gradient in fp32 and back. 16-bit logits and fp32
    log-softmax live until the backward; the fp32 copy only during the forward, the fp32 gradient during the backward.
    Fused: the gradient overwrites the logits."""
    logits, w = float(shape.tokens * part.outputs), shape.width
    if shape.fused:
        return Work((reduction(3 * w * logits),), (stream(2 * w * logits),), saved=w * logits)
    cast = 4.0 if w < 4 else 0.0
    return Work(
        forward=(reduction((8 + (w + cast if cast else 0)) * logits, 4),),
        backward=(reduction((12 + (w + cast if cast else 0)) * logits, 3),),
        saved=(w + 4) * logits,
        forward_extra=cast * logits,
        backward_extra=4 * logits,
    )


_TABLE: Mapping[str, Callable[[Module | Function, Shape], Work]] = {
    "container": _nothing,
    "identity": _nothing,
    "embedding": _embedding,
    "linear": _linear,
    "norm_rms": _norm_rms,
    "norm_layer": _norm_layer,
    "activation": _activation,
    "dropout": _dropout,
    "attention": _attention,
    "rotary": _rotary,
    "add": _add,
    "multiply": _multiply,
    "loss": _loss,
}
