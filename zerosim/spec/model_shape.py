"""Models given by numbers instead of a config.json: `{layers: 32, hidden: 4096, ...}`, or a size alone.

Gated numbers make a Llama tree, ungated ones a GPT-2 tree without learnt positions. For a size alone a public shape is
taken and its feed-forward width turned until the count is met. Whatever was assumed is told in the model's notes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pydantic import Field

from zerosim.errors import InputError, Problem
from zerosim.spec.architectures import gpt, llama
from zerosim.spec.document import Document
from zerosim.spec.loading import Count, Schema, Whole, validated
from zerosim.spec.model import Model
from zerosim.units import show_count

VOCABULARY = 32_000  # Llama 1 and 2
_FFN_STEP = 64
_WIDEST = 16  # times hidden: no feed-forward is wider


class Numbers(Schema):
    """`{layers, hidden, heads, kv_heads, ffn, gated, vocab, tied_embeddings}`; the first three are needed."""

    layers: Whole = Field(ge=1, le=10_000)
    hidden: Whole = Field(ge=1, le=1_000_000)
    heads: Whole = Field(ge=1, le=1_000_000)
    kv_heads: Whole | None = Field(None, ge=1)
    head_dim: Whole | None = Field(None, ge=1, le=1_000_000)
    ffn: Whole | None = Field(None, ge=1, le=100_000_000)
    gated: bool = True
    vocab: Whole = Field(VOCABULARY, ge=1, le=100_000_000)
    tied_embeddings: bool = False


class Size(Schema):
    """`{parameters: 7e9}`."""

    parameters: Count
    vocab: Whole = Field(VOCABULARY, ge=1, le=100_000_000)


def from_numbers(document: Document) -> Model:
    """A model of the numbers that are given and usual values for the others."""
    numbers = validated(document, Numbers)
    kv_heads = numbers.kv_heads or numbers.heads
    problems = _proportions(document, numbers, kv_heads)
    if problems:
        raise InputError(problems)
    ffn = numbers.ffn or (_gated_ffn(numbers.hidden) if numbers.gated else 4 * numbers.hidden)
    notes = _assumed(document, kv_heads, ffn, numbers)
    return _llama(numbers, kv_heads, ffn, notes) if numbers.gated else _gpt(numbers, kv_heads, ffn, notes)


def _llama(numbers: Numbers, kv_heads: int, ffn: int, notes: tuple[str, ...]) -> Model:
    shape = llama.Shape(
        layers=numbers.layers,
        hidden=numbers.hidden,
        heads=numbers.heads,
        kv_heads=kv_heads,
        head_dim=numbers.head_dim or numbers.hidden // numbers.heads,
        ffn=ffn,
        vocabulary=numbers.vocab,
        tied=numbers.tied_embeddings,
    )
    return llama.build(shape, notes)


def _gpt(numbers: Numbers, kv_heads: int, ffn: int, notes: tuple[str, ...]) -> Model:
    shape = gpt.Gpt2Shape(
        layers=numbers.layers,
        hidden=numbers.hidden,
        heads=numbers.heads,
        kv_heads=kv_heads,
        head_dim=numbers.head_dim or numbers.hidden // numbers.heads,
        ffn=ffn,
        vocabulary=numbers.vocab,
        positions=None,
        tied=numbers.tied_embeddings,
        embedding_dropout=0.0,
        residual_dropout=0.0,
        attention_dropout=0.0,
        activation="gelu",
    )
    return gpt.build_gpt2(shape, (*notes, "ungated: a GPT-2 block without learnt positions and without dropout"))


def _proportions(document: Document, numbers: Numbers, kv_heads: int) -> list[Problem]:
    problems = []
    if numbers.head_dim is None and numbers.hidden % numbers.heads:
        expected = f"a multiple of heads ({numbers.heads}), or head_dim beside it"
        problems.append(document.problem(("hidden",), str(numbers.hidden), expected))
    if numbers.heads % kv_heads:
        problems.append(document.problem(("kv_heads",), str(kv_heads), f"a divisor of heads ({numbers.heads})"))
    return problems


def _gated_ffn(hidden: int) -> int:
    """8/3 hidden rounded up to 256, so that three matrices hold what two of 4 hidden do (Touvron 2023, section 2.2)."""
    return math.ceil(8 * hidden / 3 / 256) * 256


def _assumed(document: Document, kv_heads: int, ffn: int, numbers: Numbers) -> tuple[str, ...]:
    values = {
        "kv_heads": (kv_heads, "as many as heads"),
        "ffn": (ffn, "8/3 hidden, rounded up to 256" if numbers.gated else "4 hidden"),
        "gated": (numbers.gated, "a gated feed-forward as in Llama"),
        "vocab": (numbers.vocab, "that of Llama 2"),
        "tied_embeddings": (numbers.tied_embeddings, "the output layer has its own weight"),
    }
    return tuple(
        f"{name} not given: {str(value).lower() if isinstance(value, bool) else value}, {why}"
        for name, (value, why) in values.items()
        if document.data.get(name) is None
    )


class _Public(NamedTuple):
    hidden: int
    layers: int
    heads: int


_SHAPES = (  # hidden, layers, heads of public models
    _Public(128, 6, 4),  # Pythia 14M (EleutherAI, configs of the suite)
    _Public(256, 6, 8),  # Pythia 31M
    _Public(512, 6, 8),  # Pythia 70M (Biderman 2023, table 1)
    _Public(768, 12, 12),  # GPT-3 125M (Brown 2020, table 2.1)
    _Public(1024, 24, 16),  # GPT-3 350M
    _Public(1536, 24, 16),  # GPT-3 760M
    _Public(2048, 24, 32),  # OPT 1.3B (Zhang 2022, table 1)
    _Public(2560, 32, 32),  # OPT 2.7B
    _Public(4096, 32, 32),  # Llama 7B (Touvron 2023, table 2)
    _Public(5120, 40, 40),  # Llama 13B
    _Public(6656, 60, 52),  # Llama 33B
    _Public(8192, 80, 64),  # Llama 65B
    _Public(12288, 96, 96),  # GPT-3 175B
    _Public(20480, 105, 128),  # 530B (Narayanan 2021, table 1)
    _Public(25600, 128, 160),  # 1T (Narayanan 2021, table 1)
)


def from_size(document: Document) -> Model:
    """A Llama-2-like model of nearly the asked size: the public shape that needs the most usual feed-forward width."""
    wanted = validated(document, Size)
    least = _count(_shaped(_SHAPES[0], _FFN_STEP, wanted.vocab))
    most = _count(_shaped(_SHAPES[-1], _WIDEST * _SHAPES[-1].hidden, wanted.vocab))
    if not least <= wanted.parameters <= most:
        expected = f"from {show_count(least)} to {show_count(most)}, where there are usual shapes"
        raise InputError([document.problem(("parameters",), show_count(wanted.parameters), expected)])
    shapes = (_sized(public, wanted.parameters, wanted.vocab) for public in _SHAPES)
    best = min(shapes, key=lambda shape: abs(math.log(shape.ffn / (8 / 3 * shape.hidden))))
    return llama.build(best, (_told(wanted.parameters, best),))


def _sized(public: _Public, parameters: float, vocabulary: int) -> llama.Shape:
    """The shape with the feed-forward width, a multiple of 64, that brings its count nearest to `parameters`."""
    least = _shaped(public, _FFN_STEP, vocabulary)
    a_step = 3 * public.hidden * public.layers * _FFN_STEP  # gate, up, down
    steps = max(0, round((parameters - _count(least)) / a_step))
    return _shaped(public, (1 + steps) * _FFN_STEP, vocabulary)


def _shaped(public: _Public, ffn: int, vocabulary: int) -> llama.Shape:
    hidden, layers, heads = public
    return llama.Shape(layers, hidden, heads, heads, hidden // heads, ffn, vocabulary)


def _count(shape: llama.Shape) -> int:
    """Untied embeddings, four square projections, three of the feed-forward, two norms a layer and one at the end."""
    block = 4 * shape.hidden**2 + 3 * shape.hidden * shape.ffn + 2 * shape.hidden
    return 2 * shape.vocabulary * shape.hidden + shape.layers * block + shape.hidden


def _told(wanted: float, shape: llama.Shape) -> str:
    return (
        f"{show_count(wanted)} parameters: {shape.layers} layers, hidden {shape.hidden}, {shape.heads} heads, "
        f"ffn {shape.ffn} (gated), vocabulary {shape.vocabulary}, untied: {show_count(_count(shape))} in all"
    )
