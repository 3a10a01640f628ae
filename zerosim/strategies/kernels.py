"""What a module does on the GPU, forward and backward: kernels, bytes it saves for the backward pass, its output.

Counts of HBM bytes per element are reads plus writes of the kernels that eager PyTorch runs (`kernels: eager`) or of
one fused kernel (`kernels: fused`), in units of `w`, the bytes of an element of the compute dtype. They agree with the
activation bytes measured per transformer block: 18 (Llama, fp32 RMSNorm) or 32 (GPT) s·b·h plus attention and MLP
(Korthikanti et al. 2022, "Reducing activation recomputation", eq. 1, without dropout and with fused attention).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zerosim.spec.model import Function, Module
from zerosim.step import Matmul
from zerosim.strategies import attention
from zerosim.strategies.work import Kernel, Shape, Work, reduction, stream


def work_of(part: Module | Function, shape: Shape, reads: int) -> Work:
    """The work of one leaf or function for one micro-batch; `reads`: bytes of an element of its input."""
    return _TABLE[part.kind](part, shape, reads)


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
    return attention.eager(part, shape) if shape.attention == "eager" else attention.flash(part, shape, shape.attention)


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
