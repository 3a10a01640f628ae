"""Decoders whose attention and feed-forward may read the same input: GPT-NeoX, Phi, Falcon.

Names, registration and calls as in Hugging Face modeling_gpt_neox.py, modeling_phi.py, modeling_falcon.py.
"""

from __future__ import annotations

from zerosim.spec.architectures.config import FFN, HEADS, HIDDEN, KV_HEADS, Config
from zerosim.spec.architectures.parts import Part, Scope, assembled
from zerosim.spec.model import Model


def gpt_neox(config: Config) -> Model:
    """Two norms a block, q, k and v in one projection, a quarter of each head rotated."""
    hidden, heads, layers, vocabulary = config.hidden(), config.heads(), config.layers(), config.vocabulary()
    head_dim = config.multiple(HIDDEN, hidden, HEADS, heads)
    ffn, bias = config.whole(FFN), config.flag("attention_bias", True)
    rate, tied = config.rate("hidden_dropout", 0.0), config.flag("tie_word_embeddings", False)
    turned = int(head_dim * config.rate("rotary_pct", 0.25))
    parallel = config.flag("use_parallel_residual", True)
    config.done()

    def block(at: Scope) -> Part:
        first = at.norm_layer("input_layernorm", hidden)
        second = at.norm_layer("post_attention_layernorm", hidden)
        drops = at.dropout("post_attention_dropout", hidden, rate), at.dropout("post_mlp_dropout", hidden, rate)
        attn, inner = at.inside("attention"), at.inside("mlp")
        qkv = attn.linear("query_key_value", hidden, 3 * hidden, bias)
        dense = attn.linear("dense", hidden, hidden, bias)
        core = attn.rotary(heads, heads, turned), attn.attention(heads, heads, head_dim)
        attention = attn.container((qkv, dense), (qkv, *core, dense))
        up, down = inner.linear("dense_h_to_4h", hidden, ffn, True), inner.linear("dense_4h_to_h", ffn, hidden, True)
        act = inner.activation("act", ffn)
        mlp = inner.container((up, down, act), (up, act, down))
        sums = at.add(hidden, "add_attention"), at.add(hidden, "add_mlp")
        order = (second, mlp, drops[1], *sums) if parallel else (sums[0], second, mlp, drops[1], sums[1])
        return at.container((first, second, *drops, attention, mlp), (first, attention, drops[0], *order), block=True)

    root, inner = Scope(""), Scope("gpt_neox")
    table, rotary = inner.embedding("embed_in", vocabulary, hidden), inner.identity("rotary_emb")
    drop, norm = inner.dropout("emb_dropout", hidden, rate), inner.norm_layer("final_layer_norm", hidden)
    blocks = [block(inner.inside(f"layers.{index}", index)) for index in range(layers)]
    model = inner.container((table, drop, *blocks, norm, rotary), (table, rotary, drop, *blocks, norm))
    head = root.head("embed_out", table, tied)
    whole = root.container((model, head), (model, head, root.loss(vocabulary)))
    return assembled(whole, layers, hidden, heads, vocabulary)


def phi(config: Config) -> Model:
    """One norm a block for both branches, biases everywhere, also in the output layer."""
    hidden, heads, layers, vocabulary = config.hidden(), config.heads(), config.layers(), config.vocabulary()
    head_dim = config.multiple(HIDDEN, hidden, HEADS, heads)
    kv_heads = config.whole(KV_HEADS, default=heads)
    config.multiple(HEADS, heads, KV_HEADS, kv_heads)
    ffn, tied, normed = config.whole(FFN), config.flag("tie_word_embeddings", False), config.flag("qk_layernorm", False)
    rates = config.rate("embd_pdrop", 0.0), config.rate("resid_pdrop", 0.0)
    turned, formula = int(head_dim * config.rate("partial_rotary_factor", 0.5)), config.word("hidden_act", "gelu_new")
    config.done()

    def attention_of(at: Scope) -> Part:
        keys = kv_heads * head_dim
        q = at.linear("q_proj", hidden, hidden, True)
        k, v = (at.linear(name, hidden, keys, True, shares=True) for name in ("k_proj", "v_proj"))
        dense = at.linear("dense", hidden, hidden, True)
        q_norm = at.norm_layer("q_layernorm", head_dim, rows=heads) if normed else None
        k_norm = at.norm_layer("k_layernorm", head_dim, rows=kv_heads) if normed else None
        core = at.rotary(heads, kv_heads, turned), at.attention(heads, kv_heads, head_dim)
        return at.container((q, k, v, dense, q_norm, k_norm), (q, k, v, q_norm, k_norm, *core, dense))

    def block(at: Scope) -> Part:
        norm, drop = at.norm_layer("input_layernorm", hidden), at.dropout("resid_dropout", hidden, rates[1])
        inner = at.inside("mlp")
        act = inner.activation("activation_fn", ffn, formula)
        up, down = inner.linear("fc1", hidden, ffn, True), inner.linear("fc2", ffn, hidden, True)
        attention, mlp = attention_of(at.inside("self_attn")), inner.container((act, up, down), (up, act, down))
        sums = at.add(hidden, "add_attention"), at.add(hidden, "add_mlp")
        calls = (norm, attention, drop, mlp, drop, *sums)  # one dropout module, called twice
        return at.container((attention, mlp, norm, drop), calls, block=True)

    root, inner = Scope(""), Scope("model")
    table, rotary = inner.embedding("embed_tokens", vocabulary, hidden), inner.identity("rotary_emb")
    drop, norm = inner.dropout("embed_dropout", hidden, rates[0]), inner.norm_layer("final_layernorm", hidden)
    blocks = [block(inner.inside(f"layers.{index}", index)) for index in range(layers)]
    model = inner.container((table, *blocks, rotary, drop, norm), (table, drop, rotary, *blocks, norm))
    head = root.head("lm_head", table, tied, bias=True)
    whole = root.container((model, head), (model, head, root.loss(vocabulary)))
    return assembled(whole, layers, hidden, heads, vocabulary)


def falcon(config: Config) -> Model:
    """7B: multi-query, one norm; 40B and 180B (new_decoder_architecture): grouped, two norms; RW: ALiBi, sequential."""
    hidden, heads, layers, vocabulary = config.hidden(), config.heads(), config.layers(), config.vocabulary()
    head_dim = config.multiple(HIDDEN, hidden, HEADS, heads)
    grouped, single = config.flag("new_decoder_architecture", False), config.flag("multi_query", True)
    kv_heads = config.whole(KV_HEADS, default=heads) if grouped else 1 if single else heads
    config.multiple(HEADS, heads, KV_HEADS, kv_heads if grouped else 1)
    ffn = config.whole(FFN, default=4 * hidden)
    bias, tied = config.flag("bias", False), config.flag("tie_word_embeddings", True)
    alibi, rate = config.flag("alibi", False), config.rate("hidden_dropout", 0.0)
    parallel = config.flag("parallel_attn", True) or grouped
    double = grouped and config.whole(("num_ln_in_parallel_attn",), default=2) == 2
    config.done()

    def block(at: Scope) -> Part:
        attn, inner = at.inside("self_attention"), at.inside("mlp")
        qkv = attn.linear("query_key_value", hidden, (heads + 2 * kv_heads) * head_dim, bias)
        dense = attn.linear("dense", hidden, hidden, bias)
        turned = None if alibi else attn.rotary(heads, kv_heads, head_dim)
        attention = attn.container((qkv, dense), (qkv, turned, attn.attention(heads, kv_heads, head_dim), dense))
        up, down = inner.linear("dense_h_to_4h", hidden, ffn, bias), inner.linear("dense_4h_to_h", ffn, hidden, bias)
        mlp = inner.container((up, inner.activation("act", ffn), down))
        sums = at.add(hidden, "add_attention"), at.add(hidden, "add_mlp")
        if double:
            norms = at.norm_layer("ln_attn", hidden), at.norm_layer("ln_mlp", hidden)
            return at.container((attention, mlp, *norms), (*norms, attention, mlp, *sums), block=True)
        first = at.norm_layer("input_layernorm", hidden)
        if parallel:
            return at.container((attention, mlp, first), (first, attention, mlp, *sums), block=True)
        second, drop = at.norm_layer("post_attention_layernorm", hidden), at.dropped(hidden, rate)
        calls = (first, attention, drop, sums[0], second, mlp, drop, sums[1])
        return at.container((attention, mlp, first, second), calls, block=True)

    root, inner = Scope(""), Scope("transformer")
    table = inner.embedding("word_embeddings", vocabulary, hidden)
    rotary = None if alibi else inner.identity("rotary_emb")
    blocks = [block(inner.inside(f"h.{index}", index)) for index in range(layers)]
    norm = inner.norm_layer("ln_f", hidden)
    model = inner.container((table, *blocks, norm, rotary), (table, rotary, *blocks, norm))
    head = root.head("lm_head", table, tied)
    whole = root.container((model, head), (model, head, root.loss(vocabulary)))
    return assembled(whole, layers, hidden, heads, vocabulary)
