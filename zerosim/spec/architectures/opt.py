"""OPT: learnt positions, biases, ReLU; the 350M size norms after instead of before and projects its embeddings.

Names, registration and calls as in Hugging Face modeling_opt.py. Keys are registered before values and queries, and
the last norm of the decoder before its layers; dropout is F.dropout, without modules.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosim.spec.architectures.config import FFN, HEADS, HIDDEN, POSITIONS, Config
from zerosim.spec.architectures.parts import Part, Scope, assembled
from zerosim.spec.model import Model

_OFFSET = 2  # rows of the position table that are never looked up (OPTLearnedPositionalEmbedding)


@dataclass(frozen=True, slots=True)
class _Shape:
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    bias: bool
    dropout: float
    attention_dropout: float
    norm_first: bool


def opt(config: Config) -> Model:
    hidden, heads, layers, vocabulary = config.hidden(), config.heads(), config.layers(), config.vocabulary()
    shape = _Shape(
        hidden=hidden,
        heads=heads,
        head_dim=config.multiple(HIDDEN, hidden, HEADS, heads),
        ffn=config.whole(FFN),
        bias=config.flag("enable_bias", True),
        dropout=config.rate("dropout", 0.1),
        attention_dropout=config.rate("attention_dropout", 0.0),
        norm_first=config.flag("do_layer_norm_before", True),
    )
    positions = config.whole(POSITIONS, default=2048)
    embedded = config.whole(("word_embed_proj_dim",), default=hidden)
    tied = config.flag("tie_word_embeddings", True)
    config.done()
    root, inner, at = Scope(""), Scope("model"), Scope("model.decoder")
    table = at.embedding("embed_tokens", vocabulary, embedded)
    places = at.embedding("embed_positions", positions + _OFFSET, hidden)
    wide = at.linear("project_in", embedded, hidden) if embedded != hidden else None
    back = at.linear("project_out", hidden, embedded) if embedded != hidden else None
    norm = at.norm_layer("final_layer_norm", hidden) if shape.norm_first else None
    blocks = [_block(at.inside(f"layers.{index}", index), shape) for index in range(layers)]
    calls = (table, places, wide, at.add(hidden, "add_positions"), *blocks, norm, back)
    decoder = at.container((table, places, back, wide, norm, *blocks), calls)
    model = inner.container((decoder,))
    head = root.head("lm_head", table, tied)
    whole = root.container((model, head), (model, head, root.loss(vocabulary)))
    return assembled(whole, layers, hidden, heads, vocabulary, positions)


def _block(at: Scope, shape: _Shape) -> Part:
    hidden, attn = shape.hidden, at.inside("self_attn")
    q = attn.linear("q_proj", hidden, hidden, shape.bias)
    k = attn.linear("k_proj", hidden, hidden, shape.bias, shares=True)
    v = attn.linear("v_proj", hidden, hidden, shape.bias, shares=True)
    out = attn.linear("out_proj", hidden, hidden, shape.bias)
    core = attn.attention(shape.heads, shape.heads, shape.head_dim, dropout=shape.attention_dropout)
    attention = attn.container((k, v, q, out), (q, k, v, core, out))
    act, up = at.activation("activation_fn", shape.ffn), at.linear("fc1", hidden, shape.ffn, shape.bias)
    down = at.linear("fc2", shape.ffn, hidden, shape.bias)
    first, second = at.norm_layer("self_attn_layer_norm", hidden), at.norm_layer("final_layer_norm", hidden)
    mixed = (attention, at.dropped(hidden, shape.dropout, "dropout_attention"), at.add(hidden, "add_attention"))
    fed = (up, act, down, at.dropped(hidden, shape.dropout, "dropout_mlp"), at.add(hidden, "add_mlp"))
    calls = (first, *mixed, second, *fed) if shape.norm_first else (*mixed, first, *fed, second)
    return at.container((attention, act, first, up, down, second), calls, block=True)
