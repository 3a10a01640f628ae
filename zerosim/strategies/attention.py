"""The core of attention: a flash kernel, or scores written out with their softmax and the dropout of probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from zerosim.spec.model import Function
from zerosim.step import Attention, Matmul
from zerosim.strategies.work import Kernel, Shape, Work, reduction, stream


def flash(part: Function, shape: Shape, kernel: Literal["flash", "flash1", "flash3"]) -> Work:
    """Saves q, k, v and the log-sum-exp of each row (fp32); its output is the next linear's input."""
    sizes = (shape.batch, part.heads, shape.sequence, shape.sequence, part.head_dim, part.causal)
    rows = shape.tokens * part.head_dim * shape.width
    return Work(
        forward=(Kernel(Attention(*sizes, False, shape.dtype, kernel), 1),),
        backward=(Kernel(Attention(*sizes, True, shape.dtype, kernel), 3),),
        saved=rows * (part.heads + 2 * part.kv_heads) + 4.0 * part.heads * shape.tokens,
        output=rows * part.heads,
    )


def eager(part: Function, shape: Shape) -> Work:
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
