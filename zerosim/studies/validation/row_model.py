"""The model of a row, as a scenario names it: a config of the family that its name says, with the row's own numbers.

What is missing is concluded from the count of parameters where that is possible (depth from width, width from depth,
tied or not), from a public model of the same name, from the usual shape of that size, and else assumed. Only language
models of dense blocks can be built; others are told so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim.spec.measured_row import Row
from zerosim.spec.model_file import catalogue_model, model_names
from zerosim.studies.validation.assumptions import CannotError, Ledger, Program
from zerosim.units import show_count

_OTHERS = (  # words in a model's name, and what it is
    (r"\bmoe\b|mixtral|switch|expert|deepseek-?(v2|v3|moe)|\d+x\d+b\b", "a mixture of experts"),
    (r"resnet|conv|efficientnet|\bvgg|inception|u-?net|yolo|mobilenet", "a convolutional network"),
    (r"\bvit\b|deit|clip|diffusion|\bdit\b|whisper|wav2vec|conformer|sam\b|swin", "no language model"),
    (r"dlrm|dhen|recommend|regnet|mamba|rwkv|\bssm\b|lstm|\brnn\b", "no transformer"),
    (r"\blora\b|qlora|adapter|peft", "trained in adapters only"),
)
_FAMILIES = (
    (r"bert", "bert"),
    (r"\bt5|encoder[- ]decoder|seq2seq|\bbart\b", "t5"),
    (r"llama|mistral|intern-?lm|qwen|baichuan|\byi\b|vicuna|alpaca|gemma|olmo|phi-?3|smollm|starling", "llama"),
    (r"gpt|opt\b|opt-|mpt|bloom|turing|megatron|pythia|neox|falcon|\blm\b", "gpt2"),
)
_WIDTHS = ((768, 12), (1024, 24), (1536, 24), (2048, 24), (2560, 32), (4096, 32), (5120, 40), (6144, 40), (8192, 64),
           (12288, 96), (20480, 105), (25600, 128))  # fmt: skip # Brown 2020 table 2.1, Narayanan 2021 table 1
_NEAR = 0.15  # of the told count, which may be rounded to a digit: a tree within it is the one that was meant
_FINE_TUNED = r"glue|fine-?tun|classif|squad|mnli"


class Shape(NamedTuple):
    """A model's numbers, none missing. `parameters`: as told, else counted."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    positions: int
    tied: bool


class Sized(NamedTuple):
    """A model as a scenario names it, and the numbers that published FLOPs are counted from."""

    given: str | Mapping[str, Any]
    shape: Shape
    sequence_length: int


def model_of(row: Row, program: Program, ledger: Ledger) -> Sized:
    """The model, or CannotError."""
    called = re.sub(r"\(.*", "", row.model) or row.model  # what stands in brackets is about it
    for words, what in _OTHERS:
        if re.search(words, called, re.IGNORECASE):
            raise CannotError(f"{called.strip()} is {what}")
    family = _family(called, program, ledger)
    length = row.sequence_length or _of_tokens(row) or int(ledger.ask("sequence_length", family=family))
    public = _public(row)
    if public and (row.layers is None or row.hidden is None or family == "t5"):
        ledger.note(f"shape of the public {public}")
        return Sized(public, _of_public(public, family), length)
    shape = _shape(row, program, ledger, family, length)
    if family == "bert" and not program.whole_head:
        ledger.note("no masked-language-model head, as few positions pass it")
    return Sized(_config(shape, program, row), shape, length)


def _family(called: str, program: Program, ledger: Ledger) -> str:
    """By the words of its name, else by what its program trains."""
    if family := next((name for words, name in _FAMILIES if re.search(words, called, re.IGNORECASE)), ""):
        return family
    bare = program.transformer and re.search(r"\btransformer\b", called, re.IGNORECASE)
    family = program.transformer if bare else program.tree
    ledger.note(f"a model like {family}, as {program.name} trains them; its name says no more")
    return family


def _of_tokens(row: Row) -> int | None:
    """A sequence is not longer than the tokens of a micro-batch; None where nothing follows."""
    return row.micro_batch_tokens if row.micro_batch_tokens and row.micro_batch_tokens < BLOCK else None


BLOCK = 1024  # tokens: the shortest context that such models are trained with


def _shape(row: Row, program: Program, ledger: Ledger, family: str, length: int) -> Shape:
    vocabulary = row.vocabulary or int(ledger.ask("vocabulary", family=family))
    vocabulary = multiple(vocabulary, program.padded)
    layers, hidden = _size(row.layers, row.hidden, row.parameters, vocabulary, ledger)
    heads = row.heads or _heads(hidden, ledger, family)
    kv_heads = row.kv_heads or heads
    if hidden % heads or heads % kv_heads or hidden // heads < 1:
        raise CannotError(f"hidden {hidden}, {heads} heads and {kv_heads} of keys do not go together")
    ffn = _ffn(row.ffn, hidden, family, program)
    positions = max(length, 512 if family == "bert" else 1024) if program.positions == "model" else length
    shape = Shape(family, layers, hidden, heads, kv_heads, ffn, vocabulary, positions, tied=family != "llama")
    return _as_counted(shape, row.parameters, ledger)


def _public(row: Row) -> str:
    """The public model of this name and about this many parameters; "" where there is none."""
    plain = re.sub(r"[\s_]+", "-", re.sub(r"\(.*", "", row.model).strip().lower())
    plain = plain.removeprefix("huggingface-").removeprefix("hf-")
    joined = re.sub(r"^gpt-([23])", r"gpt\1", plain).replace("gpt2-small", "gpt2")
    for name in (plain, joined):
        if name in model_names():
            model = catalogue_model(name)
            if row.parameters is None or abs(model.numel / row.parameters - 1) < _NEAR:
                return name
    return ""


def _of_public(name: str, family: str) -> Shape:
    model = catalogue_model(name)
    ffn = 4 * model.hidden
    return Shape(family, model.layers, model.hidden, max(model.heads, 1), max(model.heads, 1), ffn, model.vocabulary,
                 model.max_positions or 0, tied=True)  # fmt: skip


def _size(
    layers: int | None, hidden: int | None, parameters: float | None, vocabulary: int, ledger: Ledger
) -> tuple[int, int]:
    """Depth and width: N = 12 layers hidden^2 + vocabulary hidden (Narayanan 2021, eq. 2, without small terms)."""
    if layers and hidden:
        return layers, hidden
    if parameters is None:
        names = "n_layers and hidden, or params"
        raise CannotError(f"neither its layers and hidden size nor its parameters are told: {names}")
    if hidden:
        layers = max(1, round((parameters - vocabulary * hidden) / (12 * hidden**2)))
    elif layers:
        exact = (math.sqrt(vocabulary**2 + 48 * layers * parameters) - vocabulary) / (24 * layers)
        hidden = max(64, round(exact / 64) * 64)
    else:
        fits = [(width, depth, (parameters - vocabulary * width) / (12 * width**2)) for width, depth in _WIDTHS]
        hidden, _, exact = min(fits, key=lambda each: abs(math.log(max(each[2], 0.01) / each[1])))
        layers = max(1, round(exact))
    ledger.note(f"{layers} layers of hidden {hidden}, for {show_count(parameters)} parameters")
    return layers, hidden


def multiple(number: int, of: int) -> int:
    """The next multiple of a number."""
    return math.ceil(number / of) * of


def _heads(hidden: int, ledger: Ledger, family: str) -> int:
    size = int(ledger.ask("head_size", hidden=hidden, family=family))
    fitting = [heads for heads in range(1, hidden + 1) if hidden % heads == 0]
    return min(fitting, key=lambda heads: abs(hidden / heads - size))


def _ffn(told: int | None, hidden: int, family: str, program: Program) -> int:
    if family == "llama" and program.ffn_multiple > 1:
        ffn = told or int(8 * hidden / 3)  # InternEvo modeling_internlm.py: rounded up in the module, not in the config
        return multiple(ffn, program.ffn_multiple)
    usual = multiple(math.ceil(8 * hidden / 3), 256) if family == "llama" else 4 * hidden
    return told or usual


def _as_counted(shape: Shape, told: float | None, ledger: Ledger) -> Shape:
    """The shape with an output layer of its own or not, as the count of parameters says."""
    if told is None or shape.family == "bert":
        return shape
    other = shape._replace(tied=not shape.tied)
    own, its = (abs(parameters(each) / told - 1) for each in (shape, other))
    if its < own - 0.01 and its < _NEAR:
        ledger.note(f"embeddings {'tied' if other.tied else 'not tied'}, as the number of parameters says")
        return other
    if own > _NEAR:
        ledger.note(f"{show_count(parameters(shape))} parameters by its numbers, not {show_count(told)}")
    return shape


def parameters(shape: Shape) -> float:
    """Their number; biases and norms are small beside it."""
    h, kv = shape.hidden, shape.hidden * shape.kv_heads / shape.heads
    block = 2 * h * h + 2 * h * kv + (3 if shape.family == "llama" else 2) * h * shape.ffn
    if shape.family == "t5":  # a stack that encodes, and one that also attends to it
        block += block + 4 * h * h
    tables = shape.vocabulary * (1 if shape.tied else 2) + (0 if shape.family in ("llama", "t5") else shape.positions)
    return shape.layers * block + tables * h


def _config(shape: Shape, program: Program, row: Row) -> Mapping[str, Any]:
    """Its config.json."""
    if shape.family == "bert":
        fine_tuned = row.says(_FINE_TUNED, "seq_len", "model", "other_flags", "metric_other", "notes")
        head = "BertForSequenceClassification" if fine_tuned or not program.whole_head else "BertForMaskedLM"
        return {
            "model_type": "bert", "architectures": [head], "num_hidden_layers": shape.layers,
            "hidden_size": shape.hidden, "num_attention_heads": shape.heads, "intermediate_size": shape.ffn,
            "vocab_size": shape.vocabulary, "max_position_embeddings": shape.positions,
        }  # fmt: skip
    if shape.family == "t5":
        return {
            "model_type": "t5", "num_layers": shape.layers, "d_model": shape.hidden, "num_heads": shape.heads,
            "d_kv": shape.hidden // shape.heads, "d_ff": shape.ffn, "vocab_size": shape.vocabulary,
            "dropout_rate": program.dropout, "tie_word_embeddings": shape.tied,
            "architectures": ["T5ForConditionalGeneration"],
        }  # fmt: skip
    if shape.family == "llama":
        return {
            "layers": shape.layers, "hidden": shape.hidden, "heads": shape.heads, "kv_heads": shape.kv_heads,
            "ffn": shape.ffn, "vocab": shape.vocabulary, "gated": True, "tied_embeddings": shape.tied,
        }  # fmt: skip
    return {
        "model_type": "gpt2", "n_layer": shape.layers, "n_embd": shape.hidden, "n_head": shape.heads,
        "n_inner": shape.ffn, "vocab_size": shape.vocabulary, "n_positions": shape.positions,
        "tie_word_embeddings": shape.tied, "embd_pdrop": program.dropout, "resid_pdrop": program.dropout,
        "attn_pdrop": program.dropout, "activation_function": program.gelu,
    }  # fmt: skip
