"""BERT: an encoder with learnt positions that norms after each branch; masked-language-model head, classifier, or bare.

Names, registration and calls as in Hugging Face modeling_bert.py. Which head is said by `architectures`; without it
the masked-language-model one. The bare model has no loss. An untied decoder has a bias of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from zerosim.spec.architectures.config import FFN, HEADS, HIDDEN, POSITIONS, Config
from zerosim.spec.architectures.parts import Part, Scope, assembled
from zerosim.spec.model import Model

CLASSIFIER, BARE = "BertForSequenceClassification", "BertModel"


@dataclass(frozen=True, slots=True)
class _Shape:
    layers: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    positions: int
    types: int
    dropout: float
    attention_dropout: float


def bert(config: Config) -> Model:
    hidden, heads = config.hidden(), config.heads()
    shape = _Shape(
        layers=config.layers(),
        hidden=hidden,
        heads=heads,
        head_dim=config.multiple(HIDDEN, hidden, HEADS, heads),
        ffn=config.whole(FFN),
        vocabulary=config.vocabulary(),
        positions=config.whole(POSITIONS, default=512),
        types=config.whole(("type_vocab_size",), default=2),
        dropout=config.rate("hidden_dropout_prob", 0.1),
        attention_dropout=config.rate("attention_probs_dropout_prob", 0.1),
    )
    tied = config.flag("tie_word_embeddings", True)
    labels = config.data.get("id2label") or config.data.get("num_labels")
    head = config.head()
    config.done()
    count = len(labels) if isinstance(labels, dict) else labels if isinstance(labels, int) else 2
    whole = _whole(shape, head, tied, count)
    return assembled(whole, shape.layers, hidden, heads, shape.vocabulary, shape.positions)


def _whole(shape: _Shape, head: str, tied: bool, labels: int) -> Part:
    """The tree under the head; pooling is part of it except for masked language modelling."""
    if head == BARE:
        return _trunk(Scope(""), shape, pooled=True)[0]
    root = Scope("")
    trunk, table = _trunk(Scope("bert"), shape, pooled=head == CLASSIFIER)
    if head == CLASSIFIER:
        drop = root.dropout("dropout", shape.hidden, shape.dropout)
        out = root.linear("classifier", shape.hidden, labels, bias=True)
        return root.container((trunk, drop, out), (trunk, drop, out, root.loss(labels)))
    cls = _masked_head(Scope("cls"), shape, table, tied)
    return root.container((trunk, cls), (trunk, cls, root.loss(shape.vocabulary)))


def _trunk(at: Scope, shape: _Shape, pooled: bool) -> tuple[Part, Part]:
    """Embeddings, encoder, and pooling if wanted; also the word table, for tying."""
    embeddings, table = _embeddings(at.inside("embeddings"), shape)
    inner = at.inside("encoder")
    encoder = inner.container([_block(inner.inside(f"layer.{i}", i), shape) for i in range(shape.layers)])
    pooling = at.inside("pooler")
    dense = pooling.linear("dense", shape.hidden, shape.hidden, True)
    pooler = pooling.container((dense, pooling.activation("activation", shape.hidden))) if pooled else None
    return at.container((embeddings, encoder, pooler)), table


def _embeddings(at: Scope, shape: _Shape) -> tuple[Part, Part]:
    hidden = shape.hidden
    table = at.embedding("word_embeddings", shape.vocabulary, hidden)
    places = at.embedding("position_embeddings", shape.positions, hidden)
    types = at.embedding("token_type_embeddings", shape.types, hidden)
    norm, drop = at.norm_layer("LayerNorm", hidden), at.dropout("dropout", hidden, shape.dropout)
    sums = at.add(hidden, "add_types"), at.add(hidden, "add_positions")
    calls = (table, types, sums[0], places, sums[1], norm, drop)
    return at.container((table, places, types, norm, drop), calls), table


def _block(at: Scope, shape: _Shape) -> Part:
    hidden, outer = shape.hidden, at.inside("attention")
    inner = outer.inside("self")
    q = inner.linear("query", hidden, hidden, True)
    k, v = (inner.linear(name, hidden, hidden, True, shares=True) for name in ("key", "value"))
    core = inner.attention(shape.heads, shape.heads, shape.head_dim, causal=False, dropout=shape.attention_dropout)
    mixed = inner.container((q, k, v), (q, k, v, core))
    attention = outer.container((mixed, _output(outer.inside("output"), hidden, shape)))
    middle = at.inside("intermediate")
    up, act = middle.linear("dense", hidden, shape.ffn, True), middle.activation("intermediate_act_fn", shape.ffn)
    return at.container(
        (attention, middle.container((up, act)), _output(at.inside("output"), shape.ffn, shape)), block=True
    )


def _output(at: Scope, inputs: int, shape: _Shape) -> Part:
    """Dense, dropout, residual addition, norm."""
    hidden = shape.hidden
    dense, norm = at.linear("dense", inputs, hidden, True), at.norm_layer("LayerNorm", hidden)
    drop = at.dropout("dropout", hidden, shape.dropout)
    return at.container((dense, norm, drop), (dense, drop, at.add(hidden), norm))


def _masked_head(at: Scope, shape: _Shape, table: Part, tied: bool) -> Part:
    """Dense, activation, norm, and the word table with a bias that the head registers and the decoder uses."""
    inner = at.inside("predictions")
    transform = inner.inside("transform")
    dense = transform.linear("dense", shape.hidden, shape.hidden, True)
    act, norm = transform.activation("transform_act_fn", shape.hidden), transform.norm_layer("LayerNorm", shape.hidden)
    turned = transform.container((dense, act, norm))
    bias = inner.parameter("bias", shape.vocabulary)
    decoder = inner.tied("decoder", table, bias) if tied else inner.linear("decoder", *_swapped(table), bias=True)
    registered = (bias, turned, decoder) if tied else (turned, decoder)
    return at.container((inner.container(registered, (turned, decoder)),))


def _swapped(table: Part) -> tuple[int, int]:
    """A table of rows by width as inputs and outputs of a linear layer over it."""
    rows, width = table.weight.shape
    return width, rows
