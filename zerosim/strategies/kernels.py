"""What a module does on the GPU, forward and backward: kernels, bytes it saves for the backward pass, its output.

Counts of HBM bytes per element are reads plus writes of the kernels that eager PyTorch runs (`kernels: eager`) or of
one fused kernel (`kernels: fused`), in units of `w`, the bytes of an element of the compute dtype. They agree with the
activation bytes measured per transformer block: 18 (Llama, fp32 RMSNorm) or 32 (GPT) s·b·h plus attention and MLP
(Korthikanti et al. 2022, "Reducing activation recomputation", eq. 1, without dropout and with fused attention).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from zerosim.spec.model import Function, Module
from zerosim.spec.training import CrossEntropy, Training
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
    attention: Literal["flash", "flash1", "flash3", "eager"]
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


def work_of(part: Module | Function, shape: Shape, reads: int) -> Work:
    """The work of one leaf or function for one micro-batch; `reads`: bytes of an element of its input."""
    return _TABLE[part.kind](part, shape, reads)


def stream(size: float, launches: int = 1) -> Kernel:
    """A streaming pass over `size` bytes of HBM traffic."""
    return Kernel(Pass(size, "stream", launches), launches)


def reduction(size: float, launches: int = 1) -> Kernel:
    return Kernel(Pass(size, "reduction", launches), launches)


# --- modules -------------------------------------------------------------------------------------------------------


def _container(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Nothing, but for the gradients of bare parameters: a sum over what was added or scaled by them."""
    numel = sum(parameter.numel for parameter in part.parameters) if isinstance(part, Module) else 0
    return Work(backward=(reduction(2.0 * shape.wide * numel),)) if numel else Work()


def _embedding(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Forward copies a row per token; backward zeroes the dense gradient of the table and adds a row per token."""
    return _lookup(part, shape, shape.tokens)


def _relative_bias(part: Module | Function, shape: Shape, reads: int) -> Work:
    """A row for each pair of positions, the same for every sequence."""
    return _lookup(part, shape, shape.sequence**2)


def _lookup(part: Module | Function, shape: Shape, count: int) -> Work:
    rows = count * part.outputs * shape.wide
    table = part.parameters[0].numel * shape.wide if isinstance(part, Module) else 0
    return Work(
        forward=(stream(2 * rows),),
        backward=(stream(table + 3 * rows, 2),),
        saved=8.0 * count,  # int64 indices
        output=rows,
    )


def _linear(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Forward x·Wᵀ; backward dX = dY·W and dW = dYᵀ·X, and the bias gradient, a column sum. A wider input is cast
    (read and written once each way), and each product that does so saves its own copy."""
    assert isinstance(part, Module)
    tokens, fan_in, fan_out = shape.tokens, part.inputs, part.outputs
    trainable = any(parameter.trainable for parameter in part.parameters)
    products = [(1, tokens, fan_out, fan_in)] + ([(1, fan_out, tokens, fan_in)] if trainable else [])
    backward = [Kernel(Matmul(tuple(products), shape.dtype), len(products))]
    if len(part.parameters) > 1 and trainable:
        backward.append(reduction(tokens * fan_out * shape.width))
    forward = [Kernel(Matmul(((1, tokens, fan_in, fan_out),), shape.dtype), 1)]
    casts = reads > shape.width
    if casts:
        cast = stream(float(reads + shape.width) * tokens * fan_in)
        forward, backward = [cast, *forward], [*backward, cast]
    shared = part.shares_input and not casts
    return Work(
        forward=tuple(forward),
        backward=tuple(backward),
        saved=0.0 if shared or not trainable else tokens * fan_in * shape.width,
        output=tokens * fan_out * shape.width,
    )


def _norm_rms(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Eager, as LlamaRMSNorm: to fp32 (2+4 bytes an element), square (4+4), mean (4), times rsqrt (4+4), back (4+2),
    times weight (2+2): 36 in 7 launches; an fp32 input is not cast, and its last product moves 4+4: 28. Backward is
    taken as twice that in 12. Saves the fp32 input and the normalised one. Fused: reads and writes once forward, reads
    three and writes one backward; saves its input."""
    size = float(shape.tokens * part.outputs)
    if shape.fused:
        moved = (reduction(2 * reads * size),), (reduction(4 * reads * size, 2),)
        return Work(*moved, saved=reads * size, output=reads * size)
    forward, backward = (36, 72) if reads == 2 else (28, 56)
    return Work(
        forward=(reduction(forward * size, 7),),
        backward=(reduction(backward * size, 12),),
        saved=(4 + reads) * size,
        output=reads * size,
    )


def _norm_layer(part: Module | Function, shape: Shape, reads: int) -> Work:
    """One kernel forward, two backward (torch native_layer_norm), fused or not."""
    size = float(shape.tokens * part.outputs * reads)
    return Work((reduction(2 * size),), (reduction(4 * size, 2),), saved=size, output=size)


def _activation(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Forward reads and writes, backward reads two and writes one."""
    size = float(shape.tokens * part.outputs * reads)
    return Work((stream(2 * size),), (stream(3 * size),), saved=size, output=size)


def _written_out(part: Module | Function, shape: Shape, reads: int) -> Work:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3))), operation by operation: of w bytes those of x and its half, of p what
    comes of the power, which autocast takes in fp32 (torch/amp/autocast_mode.py). Forward x^3 2p, times 2p, plus x
    2p+w, times 2p, tanh 2p, plus one 2p, half 2w, product 2p+w. Backward: product 5p+w, half 2w, tanh 3p, times 4p,
    power 7p, sums 6w. Saves x, the tanh and the two factors (torch 2.13's saved_tensors_hooks). Casts are w+p each."""
    if shape.fused:
        return _activation(part, shape, reads)
    size, w, p = float(shape.tokens * part.outputs), shape.width, shape.wide
    cast, casts = (w + p, 1) if p > w else (0, 0)
    return Work(
        forward=(stream((14 * p + 4 * w + cast) * size, 8 + casts),),
        backward=(stream((19 * p + 9 * w + 3 * cast) * size, 11 + 3 * casts),),
        saved=(3 * p + w) * size,
        output=p * size,
    )


def _dropout(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Value in and out and a mask of one byte an element."""
    size = float(shape.tokens * part.outputs)
    moved = (2 * reads + 1) * size
    return Work((stream(moved),), (stream(moved),), saved=size, output=reads * size)


# --- functions -----------------------------------------------------------------------------------------------------


def _add(part: Module | Function, shape: Shape, reads: int) -> Work:
    """The stream and a branch in, the stream out; backward adds the gradients of the two."""
    size = float(shape.tokens * part.outputs)
    moved = (2 * shape.wide + shape.width) * size
    return Work((stream(moved),), (stream(moved),), output=shape.wide * size)


def _multiply(part: Module | Function, shape: Shape, reads: int) -> Work:
    """gate·up saves both, but for the activation of the gate where the same kernel makes that again (SwiGLU fused); its
    product is the next linear's input and counted there."""
    size = float(shape.tokens * part.outputs * reads)
    saved = size if shape.fused else 2 * size
    return Work((stream(3 * size),), (stream(5 * size, 2),), saved=saved, output=size)


def _rotary(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Eager rotate-half: negate, concatenate, two products, a sum: 10 w an element of q and k, 10 launches."""
    assert isinstance(part, Function)
    size = float(shape.tokens * (part.heads + part.kv_heads) * part.head_dim * shape.width)
    moved, launches = (2 * size, 1) if shape.fused else (10 * size, 10)
    return Work((stream(moved, launches),), (stream(moved, launches),), output=size)


def _attention(part: Module | Function, shape: Shape, reads: int) -> Work:
    assert isinstance(part, Function)
    return _eager_attention(part, shape) if shape.attention == "eager" else _flash(part, shape, shape.attention)


def _flash(part: Function, shape: Shape, kernel: Literal["flash", "flash1", "flash3"]) -> Work:
    """Saves q, k, v and the log-sum-exp of each row (fp32); its output is the next linear's input."""
    sizes = (shape.batch, part.heads, shape.sequence, shape.sequence, part.head_dim, part.causal)
    rows = shape.tokens * part.head_dim * shape.width
    return Work(
        forward=(Kernel(Attention(*sizes, False, shape.dtype, kernel), 1),),
        backward=(Kernel(Attention(*sizes, True, shape.dtype, kernel), 3),),
        saved=rows * (part.heads + 2 * part.kv_heads) + 4.0 * part.heads * shape.tokens,
        output=rows * part.heads,
    )


def _eager_attention(part: Function, shape: Shape) -> Work:
    """Scores are written out. Saves q, the k and v of every head (repeated where there are fewer), and what the softmax
    keeps of each score unless that is recomputed (selective)."""
    batch, s, d, w = shape.batch * part.heads, shape.sequence, part.head_dim, shape.width
    scores = float(batch) * s * s
    rows = shape.tokens * d * w
    repeated = [stream(2.0 * rows * (part.kv_heads + part.heads), 2)] if part.kv_heads < part.heads else []
    softmax = _softmax(part, shape)
    products = [Kernel(Matmul(((batch, s, d, s), (batch, s, s, d)), shape.dtype), 2)]
    forward = (*repeated, *products, *(each.over(scores) for each in softmax.forward))
    gradients = Kernel(Matmul(((batch, s, d, s), (batch, s, s, d), (batch, s, s, d), (batch, s, s, d)), shape.dtype), 4)
    backward = (gradients, *(each.over(scores) for each in softmax.backward), *repeated)
    return Work(
        forward=forward,
        backward=backward if shape.keep_scores else (*forward, *backward),
        saved=rows * 3 * part.heads + (softmax.kept * scores if shape.keep_scores else 0),
        output=rows * part.heads,
        forward_extra=(softmax.made * scores,),  # what the softmax makes, while its input is there
        backward_extra=(softmax.made_backward * scores,),
    )


class _EachScore(NamedTuple):
    """A pass over the scores: bytes that it moves for each, and launches."""

    bytes: float
    launches: int = 1
    make: Callable[[float, int], Kernel] = reduction

    def over(self, scores: float) -> Kernel:
        return self.make(self.bytes * scores, self.launches)


class _Softmax(NamedTuple):
    """Passes over the scores, and bytes a score: kept for the backward, made forward, made backward."""

    forward: tuple[_EachScore, ...]
    backward: tuple[_EachScore, ...]
    kept: float
    made: float
    made_backward: float


def _softmax(part: Function, shape: Shape) -> _Softmax:
    """Scale, mask and softmax of a score of w bytes, and the dropout of its probability.

    Eager: scale 2w, mask 3w, softmax 2w; a softmax in fp32 moves w+4 to get there, 8, and 4+w back: 30 bytes in 16 bit,
    without it 14; as much backward. It keeps the probability, and the fp32 one beside it. Fused, as Megatron's
    scaled_masked_softmax (megatron/fused_kernels): the scale is a factor of the product, the rest one pass of 2w, 3w
    backward. Dropout reads, writes and keeps a mask of one byte beside its output.
    """
    w = shape.width
    drops = (_EachScore(2 * w + 1, make=stream),) if part.dropout else ()
    dropped = w + 1.0 if part.dropout else 0.0
    if shape.fused:
        return _Softmax((_EachScore(2 * w), *drops), (*drops, _EachScore(3 * w)), w + dropped, w, w)
    if part.fp32_softmax and w < 4:
        moved = _EachScore(5 * w + (w + 4) + 8 + (4 + w), 5)
        return _Softmax((moved, *drops), (*drops, moved), 4 + w + dropped, 4, 4 + w)
    moved = _EachScore(7 * w, 3)
    return _Softmax((moved, *drops), (*drops, moved), w + dropped, w, w)


def _loss(part: Module | Function, shape: Shape, reads: int) -> Work:
    """Cross-entropy. torch's, in fp32: logits to fp32 (2+4 bytes a logit), log-softmax (4+4), its gradient (4+4+4) and
    back (6); logits and log-softmax live until the backward, the fp32 copy only during the forward; the gradients of
    the two, NLL's and log-softmax's, are made side by side in the backward (native_functions nll_loss_backward,
    _log_softmax_backward_data). The backward has no use for the logits: they live as long as the training loop has
    them (torchtitan pull request 391 frees them). In their own dtype nothing is cast. Fused, they are read twice and
    the gradient written (flash-attn losses/cross_entropy.py), beside them or over them (inplace_backward)."""
    logits, w = float(shape.tokens * part.outputs), shape.width
    if shape.loss in ("fused", "in_place"):
        made = (w * logits,) if shape.loss == "fused" else ()
        passes = (reduction(3 * w * logits),), (stream(2 * w * logits),)
        return Work(*passes, saved=w * logits, backward_extra=made)
    wide = w if shape.loss == "model" else 4
    cast = w + 4 if wide > w else 0
    freed = w if shape.loss == "freed" and cast else 0
    return Work(
        forward=(reduction((2 * wide + cast) * logits, 4),),
        backward=(reduction((3 * wide + cast) * logits, 3),),
        saved=(w - freed + wide) * logits,
        forward_extra=(freed * logits, wide * logits) if cast else (),
        backward_extra=(wide * logits, wide * logits),
    )


_TABLE: Mapping[str, Callable[[Module | Function, Shape, int], Work]] = {
    "container": _container,
    "identity": _container,
    "embedding": _embedding,
    "relative_bias": _relative_bias,
    "linear": _linear,
    "norm_rms": _norm_rms,
    "norm_layer": _norm_layer,
    "activation": _activation,
    "gelu_written_out": _written_out,
    "dropout": _dropout,
    "attention": _attention,
    "rotary": _rotary,
    "add": _add,
    "multiply": _multiply,
    "loss": _loss,
}
