"""GPT-2 and its relatives with LayerNorm and an ungated feed-forward: MPT, OPT, BLOOM.

Names, registration and calls as in Hugging Face modeling_gpt2.py, modeling_mpt.py, modeling_opt.py, modeling_bloom.py.
The weights are tied by default. GPT-3 sizes are GPT-2 trees; a GPT-like model of inline numbers is one without learnt
positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosim.spec.architectures.config import FFN, HEADS, HIDDEN, POSITIONS, Config
from zerosim.spec.architectures.parts import Part, Scope, assembled
from zerosim.spec.model import Model


@dataclass(frozen=True, slots=True)
class Gpt2Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    positions: int | None
    tied: bool = True
    embedding_dropout: float = 0.1
    residual_dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu_new"


def gpt2(config: Config) -> Model:
    """n_inner null is 4 n_embd (modeling_gpt2.py, GPT2Block)."""
    hidden, heads = config.hidden(), config.heads()
    shape = Gpt2Shape(
        layers=config.layers(),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=config.multiple(HIDDEN, hidden, HEADS, heads),
        ffn=config.whole(FFN, default=4 * hidden),
        vocabulary=config.vocabulary(),
        positions=config.whole(POSITIONS, default=1024),
        tied=config.flag("tie_word_embeddings", True),
        embedding_dropout=config.rate("embd_pdrop", 0.1),
        residual_dropout=config.rate("resid_pdrop", 0.1),
        attention_dropout=config.rate("attn_pdrop", 0.1),
        activation=config.word("activation_function", "gelu_new"),
    )
    config.done()
    return build_gpt2(shape)


def build_gpt2(shape: Gpt2Shape, notes: tuple[str, ...] = ()) -> Model:
    root, inner, hidden = Scope(""), Scope("transformer"), shape.hidden
    wte = inner.embedding("wte", shape.vocabulary, hidden)
    wpe = inner.embedding("wpe", shape.positions, hidden) if shape.positions else None
    placed = inner.add(hidden, "add_positions") if wpe else None
    drop = inner.dropout("drop", hidden, shape.embedding_dropout)
    blocks = [_gpt2_block(inner.inside(f"h.{index}", index), shape) for index in range(shape.layers)]
    norm = inner.norm_layer("ln_f", hidden)
    transformer = inner.container((wte, wpe, drop, *blocks, norm), (wte, wpe, placed, drop, *blocks, norm))
    head = root.head("lm_head", wte, shape.tied)
    whole = root.container((transformer, head), (transformer, head, root.loss(shape.vocabulary)))
    return assembled(whole, shape.layers, hidden, shape.heads, shape.vocabulary, shape.positions, notes)


def _gpt2_block(at: Scope, shape: Gpt2Shape) -> Part:
    """ln_1, attn(c_attn, c_proj), ln_2, mlp(c_fc, act, c_proj). q, k and v are one Conv1D."""
    hidden, rate = shape.hidden, shape.residual_dropout
    first, second = at.norm_layer("ln_1", hidden), at.norm_layer("ln_2", hidden)
    inside = at.inside("attn")
    qkv = inside.linear("c_attn", hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, bias=True, conv1d=True)
    core = inside.attention(shape.heads, shape.kv_heads, shape.head_dim, dropout=shape.attention_dropout)
    out = inside.linear("c_proj", shape.heads * shape.head_dim, hidden, bias=True, conv1d=True)
    drop = inside.dropout("resid_dropout", hidden, rate)
    attention = inside.container((qkv, out, drop), (qkv, core, out, drop))
    inside = at.inside("mlp")
    up = inside.linear("c_fc", hidden, shape.ffn, bias=True, conv1d=True)
    down = inside.linear("c_proj", shape.ffn, hidden, bias=True, conv1d=True)
    act = inside.activation("act", shape.ffn, shape.activation)
    drop = inside.dropout("dropout", hidden, rate)
    mlp = inside.container((up, down, act, drop), (up, act, down, drop))
    sums = at.add(hidden, "add_attention"), at.add(hidden, "add_mlp")
    return at.container((first, attention, second, mlp), (first, attention, sums[0], second, mlp, sums[1]), block=True)


def mpt(config: Config) -> Model:
    """ALiBi unless switched off; then, as in llm-foundry's MPTModel, learnt positions. Biases only without no_bias."""
    hidden, heads, layers, vocabulary = config.hidden(), config.heads(), config.layers(), config.vocabulary()
    head_dim = config.multiple(HIDDEN, hidden, HEADS, heads)
    inside = config.section("attn_config")
    kv_heads = inside.whole(("kv_n_heads",), default=heads)
    learnt = config.flag("learned_pos_emb", True) and not inside.flag("alibi", True)
    positions = config.whole(POSITIONS, default=2048)
    ffn = hidden * config.whole(("expansion_ratio",), default=4)
    bias, tied = not config.flag("no_bias", True), config.flag("tie_word_embeddings", True)
    drops = config.rate("emb_pdrop", 0.0), config.rate("resid_pdrop", 0.0)
    config.done()

    def block(at: Scope) -> Part:
        first, second = at.norm_layer("norm_1", hidden, bias), at.norm_layer("norm_2", hidden, bias)
        attn = at.inside("attn")
        qkv = attn.linear("Wqkv", hidden, hidden + 2 * kv_heads * head_dim, bias)
        out = attn.linear("out_proj", hidden, hidden, bias)
        attention = attn.container((qkv, out), (qkv, attn.attention(heads, kv_heads, head_dim), out))
        inner = at.inside("ffn")
        up, down = inner.linear("up_proj", hidden, ffn, bias), inner.linear("down_proj", ffn, hidden, bias)
        mlp = inner.container((up, inner.activation("act", ffn), down))
        drop = at.dropout("resid_attn_dropout", hidden, drops[1])
        sums = at.add(hidden, "add_attention"), at.add(hidden, "add_mlp")
        calls = (first, attention, drop, sums[0], second, mlp, at.dropped(hidden, drops[1]), sums[1])
        return at.container((first, attention, second, mlp, drop), calls, block=True)

    root, inner = Scope(""), Scope("transformer")
    wte = inner.embedding("wte", vocabulary, hidden)
    wpe = inner.embedding("wpe", positions, hidden) if learnt else None
    placed = inner.add(hidden, "add_positions") if learnt else None
    drop = inner.dropout("emb_drop", hidden, drops[0])
    blocks = [block(inner.inside(f"blocks.{index}", index)) for index in range(layers)]
    norm = inner.norm_layer("norm_f", hidden, bias)
    transformer = inner.container((wte, wpe, drop, *blocks, norm), (wte, wpe, placed, drop, *blocks, norm))
    head = root.head("lm_head", wte, tied)
    whole = root.container((transformer, head), (transformer, head, root.loss(vocabulary)))
    return assembled(whole, layers, hidden, heads, vocabulary, positions if learnt else None)


def bloom(config: Config) -> Model:
    """ALiBi, a LayerNorm after the embedding, q, k and v in one projection, biases everywhere."""
    hidden, heads, layers, vocabulary = config.hidden(), config.heads(), config.layers(), config.vocabulary()
    head_dim = config.multiple(HIDDEN, hidden, HEADS, heads)
    rate, tied = config.rate("hidden_dropout", 0.0), config.flag("tie_word_embeddings", True)
    config.done()

    def block(at: Scope) -> Part:
        first = at.norm_layer("input_layernorm", hidden)
        second = at.norm_layer("post_attention_layernorm", hidden)
        attn, inner = at.inside("self_attention"), at.inside("mlp")
        qkv = attn.linear("query_key_value", hidden, 3 * hidden, bias=True)
        dense = attn.linear("dense", hidden, hidden, bias=True)
        core, drop, total = attn.attention(heads, heads, head_dim), attn.dropped(hidden, rate), attn.add(hidden)
        attention = attn.container((qkv, dense), (qkv, core, dense, drop, total))
        up = inner.linear("dense_h_to_4h", hidden, 4 * hidden, True)
        down = inner.linear("dense_4h_to_h", 4 * hidden, hidden, True)
        act, drop, total = inner.activation("gelu_impl", 4 * hidden), inner.dropped(hidden, rate), inner.add(hidden)
        mlp = inner.container((up, act, down), (up, act, down, drop, total))
        return at.container((first, attention, second, mlp), block=True)

    root, inner = Scope(""), Scope("transformer")
    table = inner.embedding("word_embeddings", vocabulary, hidden)
    lifted = inner.norm_layer("word_embeddings_layernorm", hidden)
    blocks = [block(inner.inside(f"h.{index}", index)) for index in range(layers)]
    transformer = inner.container((table, lifted, *blocks, inner.norm_layer("ln_f", hidden)))
    head = root.head("lm_head", table, tied)
    whole = root.container((transformer, head), (transformer, head, root.loss(vocabulary)))
    return assembled(whole, layers, hidden, heads, vocabulary)
