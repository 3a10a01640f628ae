"""Llama and those that are it with a few switches: Mistral, Qwen 2 and 3, Gemma 1 to 3, Phi-3, StableLM.

Names, registration and calls as in Hugging Face modeling_llama.py and the files beside it (modeling_qwen3.py,
modeling_gemma2.py, ...). RMSNorm before attention and feed-forward, rotary positions, grouped keys and values, a gated
feed-forward: down(act(gate(x)) * up(x)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from zerosim.spec.architectures.config import FFN, HEADS, HIDDEN, KV_HEADS, Config
from zerosim.spec.architectures.parts import Part, Scope, assembled
from zerosim.spec.model import Model


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers and switches of one model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False  # a norm after attention and after the feed-forward too (Gemma 2, 3)
    layer_norm: bool = False  # LayerNorm in place of RMSNorm (StableLM)
    fused: bool = False  # one projection for q, k, v and one for gate, up (Phi-3)
    rotary_share: float = 1.0  # of each head's columns

    def norm(self, at: Scope, name: str) -> Part:
        return at.norm_layer(name, self.hidden) if self.layer_norm else at.norm_rms(name, self.hidden)


def llama(config: Config) -> Model:
    """Llama 1 to 3, Mistral."""
    bias = config.flag("attention_bias", False)
    mlp_bias = config.flag("mlp_bias", False)
    return _done(config, _shape(config), qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias)


def qwen2(config: Config) -> Model:
    """Biases on q, k and v only, not by a switch (modeling_qwen2.py)."""
    return _done(config, _shape(config), qkv_bias=True)


def qwen3(config: Config) -> Model:
    """A norm over each head of q and k; head_dim is a number of its own (configuration_qwen3.py)."""
    bias = config.flag("attention_bias", False)
    return _done(config, _shape(config, head_dim=128), qkv_bias=bias, output_bias=bias, qk_norm=True)


def gemma(config: Config) -> Model:
    return _done(config, _shape(config, head_dim=256, tied=True))


def gemma2(config: Config) -> Model:
    return _done(config, _shape(config, head_dim=256, tied=True), post_norms=True)


def gemma3(config: Config) -> Model:
    return _done(config, _shape(config, head_dim=256, tied=True), post_norms=True, qk_norm=True)


def phi3(config: Config) -> Model:
    share = config.rate("partial_rotary_factor", 1.0)
    return _done(config, _shape(config), fused=True, rotary_share=share)


def stablelm(config: Config) -> Model:
    """LayerNorm; a quarter of each head rotated (configuration_stablelm.py)."""
    for switch in ("qk_layernorm", "use_parallel_residual"):
        if config.flag(switch, False):
            config.wrong(switch, True, "false: the StableLM block with it is not modelled")
    share = config.rate("partial_rotary_factor", 0.25)
    bias = config.flag("use_qkv_bias", False)
    return _done(config, _shape(config), qkv_bias=bias, layer_norm=True, rotary_share=share)


def _shape(config: Config, head_dim: int = 0, tied: bool = False) -> Shape:
    """The numbers all have; `head_dim` (0: hidden / heads) and `tied` are defaults of the family."""
    hidden, heads = config.hidden(), config.heads()
    kv_heads = config.whole(KV_HEADS, default=heads)
    config.multiple(HEADS, heads, KV_HEADS, kv_heads)
    return Shape(
        layers=config.layers(),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=config.whole(("head_dim",), default=head_dim) or config.multiple(HIDDEN, hidden, HEADS, heads),
        ffn=config.whole(FFN),
        vocabulary=config.vocabulary(),
        tied=config.flag("tie_word_embeddings", tied),
    )


def _done(config: Config, shape: Shape, **switches: Any) -> Model:
    window = config.data.get("sliding_window") if config.data.get("use_sliding_window", True) else None
    notes = (f"attention over the whole sequence, not the sliding window of {window} tokens",) if window else ()
    config.done()
    return build(replace(shape, **switches), notes)


@lru_cache(4)  # a sweep asks for one again and again
def build(shape: Shape, notes: tuple[str, ...] = ()) -> Model:
    """The tree: root, model, embed_tokens, rotary_emb, the blocks, norm, lm_head, loss."""
    root, inner = Scope(""), Scope("model")
    table = inner.embedding("embed_tokens", shape.vocabulary, shape.hidden)
    rotary = inner.identity("rotary_emb")
    blocks = [_block(inner.inside(f"layers.{index}", index), shape) for index in range(shape.layers)]
    norm = shape.norm(inner, "norm")
    model = inner.container((table, *blocks, norm, rotary), (table, rotary, *blocks, norm))
    head = root.head("lm_head", table, shape.tied)
    whole = root.container((model, head), (model, head, root.loss(shape.vocabulary)))
    tables = 2 * (int(shape.head_dim * shape.rotary_share) // 2)  # inv_freq and original_inv_freq
    return assembled(whole, shape.layers, shape.hidden, shape.heads, shape.vocabulary, notes=notes, buffers=tables)


def _block(at: Scope, shape: Shape) -> Part:
    attention, mlp = _attention(at.inside("self_attn"), shape), _feed_forward(at.inside("mlp"), shape)
    first, second = shape.norm(at, "input_layernorm"), shape.norm(at, "post_attention_layernorm")
    sums = at.add(shape.hidden, "add_attention"), at.add(shape.hidden, "add_mlp")
    if not shape.post_norms:
        calls = (first, attention, sums[0], second, mlp, sums[1])
        return at.container((attention, mlp, first, second), calls, block=True)
    before, after = (shape.norm(at, f"{place}_feedforward_layernorm") for place in ("pre", "post"))
    return at.container(
        (attention, mlp, first, second, before, after),
        (first, attention, second, sums[0], before, mlp, after, sums[1]),
        block=True,
    )


def _attention(at: Scope, shape: Shape) -> Part:
    """Projections, rotation, the core, output."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    core = at.attention(shape.heads, shape.kv_heads, shape.head_dim, fp32_softmax=True)
    turned = at.rotary(shape.heads, shape.kv_heads, int(shape.head_dim * shape.rotary_share))
    o = at.linear("o_proj", queries, shape.hidden, shape.output_bias)
    if shape.fused:
        qkv = at.linear("qkv_proj", shape.hidden, queries + 2 * keys)
        return at.container((o, qkv), (qkv, turned, core, o))
    q = at.linear("q_proj", shape.hidden, queries, shape.qkv_bias)
    k = at.linear("k_proj", shape.hidden, keys, shape.qkv_bias, shares=True)
    v = at.linear("v_proj", shape.hidden, keys, shape.qkv_bias, shares=True)
    if not shape.qk_norm:
        return at.container((q, k, v, o), (q, k, v, turned, core, o))
    q_norm = at.norm_rms("q_norm", shape.head_dim, shape.heads)
    k_norm = at.norm_rms("k_norm", shape.head_dim, shape.kv_heads)
    return at.container((q, k, v, o, q_norm, k_norm), (q, q_norm, k, k_norm, v, turned, core, o))


def _feed_forward(at: Scope, shape: Shape) -> Part:
    act, product = at.activation("act_fn", shape.ffn), at.multiply(shape.ffn)
    down = at.linear("down_proj", shape.ffn, shape.hidden, shape.mlp_bias)
    if shape.fused:
        both = at.linear("gate_up_proj", shape.hidden, 2 * shape.ffn)
        act = at.activation("activation_fn", shape.ffn)
        return at.container((both, down, act), (both, act, product, down))
    gate = at.linear("gate_proj", shape.hidden, shape.ffn, shape.mlp_bias)
    up = at.linear("up_proj", shape.hidden, shape.ffn, shape.mlp_bias, shares=True)
    return at.container((gate, up, down, act), (gate, act, up, product, down))
