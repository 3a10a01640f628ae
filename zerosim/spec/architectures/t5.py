"""T5: an encoder and a decoder over one embedding table, with relative positions.

Names, registration and calls as in Hugging Face modeling_t5.py. The first block of each stack owns a small table of
position biases; here it is a bare parameter of the attention that looks it up, since a look-up per pair of positions
is no look-up per token. Blocks are numbered through: the decoder's after the encoder's.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosim.spec.architectures.config import FFN, HEADS, HIDDEN, LAYERS, Config
from zerosim.spec.architectures.parts import Part, Scope, assembled
from zerosim.spec.model import Model

_NOTE = "encoder and decoder each see sequence_length tokens"


@dataclass(frozen=True, slots=True)
class _Shape:
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    buckets: int
    gated: bool
    activation: str
    dropout: float

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim


def t5(config: Config) -> Model:
    hidden, heads, vocabulary = config.hidden(), config.heads(), config.vocabulary()
    depth = config.layers(("num_layers", *LAYERS))
    decoders = config.layers(("num_decoder_layers",), default=depth)
    projection = config.word("feed_forward_proj", "relu")
    shape = _Shape(
        hidden=hidden,
        heads=heads,
        head_dim=config.whole(("d_kv",), default=0) or config.multiple(HIDDEN, hidden, HEADS, heads),
        ffn=config.whole(FFN),
        buckets=config.whole(("relative_attention_num_buckets",), default=32),
        gated=projection.startswith("gated"),
        activation="gelu_new" if projection == "gated-gelu" else projection,  # configuration_t5.py
        dropout=config.rate("dropout_rate", 0.1),
    )
    tied = config.flag("tie_word_embeddings", True)
    config.done()
    root = Scope("")
    table = root.embedding("shared", vocabulary, hidden)
    encoder = _stack(root.inside("encoder"), shape, table, range(depth), decodes=False)
    decoder = _stack(root.inside("decoder"), shape, table, range(depth, depth + decoders), decodes=True)
    head = root.head("lm_head", table, tied)
    whole = root.container((table, encoder, decoder, head), (encoder, decoder, head, root.loss(vocabulary)))
    return assembled(whole, depth + decoders, hidden, heads, vocabulary, notes=(_NOTE,))


def _stack(at: Scope, shape: _Shape, table: Part, numbers: range, decodes: bool) -> Part:
    blocks = [
        _block(at.inside(f"block.{index}", number), shape, decodes, first=index == 0)
        for index, number in enumerate(numbers)
    ]
    norm = at.norm_rms("final_layer_norm", shape.hidden)
    drop = at.dropout("dropout", shape.hidden, shape.dropout)
    return at.container((*blocks, norm, drop), (table, drop, *blocks, norm, drop))


def _block(at: Scope, shape: _Shape, decodes: bool, first: bool) -> Part:
    """Self-attention, in the decoder attention to the encoder's output, feed-forward: layer.0, layer.1, layer.2."""
    own = _attention(at.inside("layer.0"), "SelfAttention", shape, causal=decodes, biased=first)
    other = _attention(at.inside("layer.1"), "EncDecAttention", shape, causal=False) if decodes else None
    return at.container((own, other, _feed_forward(at.inside("layer.2" if decodes else "layer.1"), shape)), block=True)


def _attention(at: Scope, name: str, shape: _Shape, causal: bool, biased: bool = False) -> Part:
    """A norm, the projections without biases, dropout and the residual addition."""
    inner, crossed = at.inside(name), name == "EncDecAttention"
    norm, drop = at.norm_rms("layer_norm", shape.hidden), at.dropout("dropout", shape.hidden, shape.dropout)
    q = inner.linear("q", shape.hidden, shape.inner)
    k = inner.linear("k", shape.hidden, shape.inner, shares=not crossed)
    v = inner.linear("v", shape.hidden, shape.inner, shares=True)
    o = inner.linear("o", shape.inner, shape.hidden)
    core = inner.attention(shape.heads, shape.heads, shape.head_dim, causal, dropout=shape.dropout)
    bias = inner.relative_bias("relative_attention_bias", shape.buckets, shape.heads) if biased else None
    mixed = inner.container((q, k, v, o, bias), (q, k, v, bias, core, o))
    return at.container((mixed, norm, drop), (norm, mixed, drop, at.add(shape.hidden)))


def _feed_forward(at: Scope, shape: _Shape) -> Part:
    inner = at.inside("DenseReluDense")
    wo, act = inner.linear("wo", shape.ffn, shape.hidden), inner.activation("act", shape.ffn, shape.activation)
    between = inner.dropout("dropout", shape.ffn, shape.dropout)
    if shape.gated:
        gate = inner.linear("wi_0", shape.hidden, shape.ffn)
        up = inner.linear("wi_1", shape.hidden, shape.ffn, shares=True)
        calls = (gate, act, up, inner.multiply(shape.ffn), between, wo)
        fed = inner.container((gate, up, wo, between, act), calls)
    else:
        wi = inner.linear("wi", shape.hidden, shape.ffn)
        fed = inner.container((wi, wo, between, act), (wi, act, between, wo))
    norm, drop = at.norm_rms("layer_norm", shape.hidden), at.dropout("dropout", shape.hidden, shape.dropout)
    return at.container((fed, norm, drop), (norm, fed, drop, at.add(shape.hidden)))
