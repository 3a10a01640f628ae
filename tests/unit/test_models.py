"""Models are the Hugging Face trees: published counts to the parameter, order of calls, order of registration."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests import counting
from zerosim.errors import InputError
from zerosim.spec.architectures import FAMILIES
from zerosim.spec.loading import inline, parse, read
from zerosim.spec.model import Function, Model, Module
from zerosim.spec.model_file import catalogue_model, model_names, model_source, read_model

PUBLISHED = {  # parameters, tied ones once, as the library counts them
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "mpt-7b": 6_649_286_656,
    "mpt-70b": 64_862_437_376,  # llm-foundry's benchmark table, with learnt positions and biases
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "t5-small": 60_506_624,
    "t5-3b": 2_851_598_336,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "pythia-70m": 70_426_624,
    "pythia-12b": 11_846_072_320,
    "gpt-neox-20b": 20_554_567_680,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "falcon-7b": 6_921_720_704,
    "bloom-560m": 559_214_592,
    "bloom-176b": 176_247_271_424,
}

PAPER = {  # millions, Brown 2020 table 2.1
    "gpt3-125m": 125,
    "gpt3-350m": 356,
    "gpt3-760m": 760,
    "gpt3-1.3b": 1_320,
    "gpt3-2.7b": 2_650,
    "gpt3-6.7b": 6_660,
    "gpt3-13b": 12_850,
    "gpt3-175b": 174_600,
}


def hugging_face(**config: Any) -> Model:
    return read_model(inline(config, "config.json"))


LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA |= {"intermediate_size": 96, "vocab_size": 100}


def modules(model: Model) -> list[str]:
    return [module.name for module in model.root.walk()]


def leaf(model: Model, name: str) -> Module:
    return next(module for module in model.root.walk() if module.name == name)


def calls(module: Module) -> Iterator[Module | Function]:
    yield module
    for part in module.body:
        if isinstance(part, Module):
            yield from calls(part)
        else:
            yield part


# --- counts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_published_counts(name: str, count: int) -> None:
    assert catalogue_model(name).numel == count


@pytest.mark.parametrize(("name", "millions"), PAPER.items())
def test_gpt3_sizes_are_those_of_the_paper(name: str, millions: int) -> None:
    assert catalogue_model(name).numel == pytest.approx(millions * 1e6, rel=0.005)


def formula(name: str) -> int | None:
    """Parameters by the closed formula of the family, from a handful of numbers and without the tree."""
    model = catalogue_model(name)
    h, n, v = model.hidden, model.layers, model.vocabulary
    match name.split("-")[0]:
        case "gpt2" | "gpt3":  # 4 h² + 8 h² and 13 h of biases and norms a layer; tied
            return v * h + (model.max_positions or 0) * h + n * (12 * h * h + 13 * h) + 2 * h
        case "mpt":
            learnt = model.max_positions or 0
            small = 13 * h if learnt else 2 * h
            return v * h + learnt * h + n * (12 * h * h + small) + (2 * h if learnt else h)
        case "opt" if name != "opt-350m":
            return v * h + (2048 + 2) * h + n * (12 * h * h + 13 * h) + 2 * h
        case "bloom":
            return v * h + n * (12 * h * h + 13 * h) + 4 * h
        case "pythia" | "gpt":
            return 2 * v * h + n * (12 * h * h + 13 * h) + 2 * h
        case "bert":  # embeddings, 12 h² + 13 h a layer, transform with norm, bias of the vocabulary
            return (v + 512 + 2) * h + 2 * h + n * (12 * h * h + 13 * h) + h * h + 3 * h + v
        case "t5":
            inner, f = {"small": (512, 2048), "base": (768, 3072), "large": (1024, 4096)}.get(
                name.removeprefix("t5-"), (4096, 16384) if name == "t5-3b" else (16384, 65536)
            )
            attention, half = 4 * h * inner, n // 2
            encoder = half * (attention + 2 * h * f + 2 * h)
            decoder = half * (2 * attention + 2 * h * f + 3 * h)
            return v * h + encoder + decoder + 2 * h + 2 * 32 * model.heads
        case _:
            return None


@pytest.mark.parametrize("name", model_names())
def test_counts_by_formula(name: str) -> None:
    expected = formula(name) or llama_formula(name)
    if expected is None:
        assert name in PUBLISHED or name == "falcon-40b"
        return
    assert catalogue_model(name).numel == expected


LLAMA_LIKE = {  # layers, hidden, heads, kv heads, head_dim, ffn, vocabulary, tied
    "llama-7b": (32, 4096, 32, 32, 128, 11008, 32000, False),
    "llama-13b": (40, 5120, 40, 40, 128, 13824, 32000, False),
    "llama-30b": (60, 6656, 52, 52, 128, 17920, 32000, False),
    "llama-65b": (80, 8192, 64, 64, 128, 22016, 32000, False),
    "llama-2-7b": (32, 4096, 32, 32, 128, 11008, 32000, False),
    "llama-2-13b": (40, 5120, 40, 40, 128, 13824, 32000, False),
    "llama-2-70b": (80, 8192, 64, 8, 128, 28672, 32000, False),
    "llama-3-8b": (32, 4096, 32, 8, 128, 14336, 128256, False),
    "llama-3-70b": (80, 8192, 64, 8, 128, 28672, 128256, False),
    "llama-3.1-8b": (32, 4096, 32, 8, 128, 14336, 128256, False),
    "llama-3.1-70b": (80, 8192, 64, 8, 128, 28672, 128256, False),
    "llama-3.1-405b": (126, 16384, 128, 8, 128, 53248, 128256, False),
    "llama-3.2-1b": (16, 2048, 32, 8, 64, 8192, 128256, True),
    "llama-3.2-3b": (28, 3072, 24, 8, 128, 8192, 128256, True),
    "mistral-7b": (32, 4096, 32, 8, 128, 14336, 32000, False),
    "gemma-2b": (18, 2048, 8, 1, 256, 16384, 256000, True),
    "gemma-7b": (28, 3072, 16, 16, 256, 24576, 256000, True),
    "qwen2.5-0.5b": (24, 896, 14, 2, 64, 4864, 151936, True),
    "qwen2.5-1.5b": (28, 1536, 12, 2, 128, 8960, 151936, True),
    "qwen2.5-3b": (36, 2048, 16, 2, 128, 11008, 151936, True),
    "qwen2.5-7b": (28, 3584, 28, 4, 128, 18944, 152064, False),
    "qwen2.5-14b": (48, 5120, 40, 8, 128, 13824, 152064, False),
    "qwen2.5-32b": (64, 5120, 40, 8, 128, 27648, 152064, False),
    "qwen2.5-72b": (80, 8192, 64, 8, 128, 29568, 152064, False),
    "qwen3-0.6b": (28, 1024, 16, 8, 128, 3072, 151936, True),
    "qwen3-1.7b": (28, 2048, 16, 8, 128, 6144, 151936, True),
    "qwen3-4b": (36, 2560, 32, 8, 128, 9728, 151936, True),
    "qwen3-8b": (36, 4096, 32, 8, 128, 12288, 151936, False),
    "qwen3-14b": (40, 5120, 40, 8, 128, 17408, 151936, False),
    "qwen3-32b": (64, 5120, 64, 8, 128, 25600, 151936, False),
}


def llama_formula(name: str) -> int | None:
    if name not in LLAMA_LIKE:
        return None
    n, h, heads, kv, d, f, v, tied = LLAMA_LIKE[name]
    extra = (heads + 2 * kv) * d if name.startswith("qwen2.5") else 2 * d if name.startswith("qwen3") else 0
    block = 2 * h * heads * d + 2 * h * kv * d + 3 * h * f + 2 * h + extra
    return v * h * (1 if tied else 2) + n * block + h


def test_every_entry_has_a_source() -> None:
    assert all(model_source(name) for name in model_names())
    assert len(model_names()) >= 60


@pytest.mark.parametrize("name", model_names())
def test_trees_are_whole(name: str) -> None:
    """Every parameter stands in the tree and once in the list; blocks are numbered through; names are their own."""
    model = catalogue_model(name)
    in_tree = {parameter for module in model.root.walk() for parameter in module.parameters}
    assert in_tree == set(model.parameters)
    assert len({parameter.name for parameter in model.parameters}) == len(model.parameters)
    blocks = [module for module in model.root.walk() if module.block]
    assert [block.layer for block in blocks] == list(range(model.layers))
    assert all(below.layer == block.layer for block in blocks for below in block.walk())
    outside = set(model.root.walk()) - {below for block in blocks for below in block.walk()}
    assert all(module.layer is None for module in outside)
    assert all(module.kind == "container" for module in model.root.walk() if module.body)


# --- order ----------------------------------------------------------------------------------------------------------


def test_llama_is_called_in_this_order() -> None:
    block = ["", "input_layernorm", "self_attn", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    block += ["self_attn.o_proj", "post_attention_layernorm", "mlp", "mlp.gate_proj", "mlp.act_fn", "mlp.up_proj"]
    block += ["mlp.down_proj"]
    layers = [f"model.layers.{i}.{part}".rstrip(".") for i in range(32) for part in block]
    expected = ["", "model", "model.embed_tokens", "model.rotary_emb", *layers, "model.norm", "lm_head"]
    assert modules(catalogue_model("llama-2-7b")) == expected


def test_llama_registers_norms_last() -> None:
    names = [parameter.name for parameter in islice(catalogue_model("llama-2-7b").parameters, 11)]
    assert names == [
        "model.embed_tokens.weight",
        *(f"model.layers.0.self_attn.{p}_proj.weight" for p in "qkvo"),
        *(f"model.layers.0.mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.1.self_attn.q_proj.weight",
    ]


def test_work_between_the_modules_of_a_llama_block() -> None:
    block = next(module for module in hugging_face(**LLAMA).root.walk() if module.block)
    assert [part.name.removeprefix("model.layers.0").lstrip(".") for part in calls(block)] == [
        *("", "input_layernorm", "self_attn", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        *("self_attn.rotary", "self_attn.attention", "self_attn.o_proj", "add_attention"),
        *("post_attention_layernorm", "mlp", "mlp.gate_proj", "mlp.act_fn", "mlp.up_proj", "mlp.multiply"),
        *("mlp.down_proj", "add_mlp"),
    ]


def test_the_loss_is_the_last_call_of_the_root() -> None:
    last = hugging_face(**LLAMA).root.body[-1]
    assert isinstance(last, Function)
    assert (last.kind, last.outputs) == ("loss", 100)


def test_projections_share_their_input() -> None:
    sharing = [module.name for module in hugging_face(**LLAMA).root.walk() if module.shares_input and module.layer == 0]
    assert [name.rpartition(".")[2] for name in sharing] == ["k_proj", "v_proj", "up_proj"]


def test_opt_registers_keys_first_and_the_last_norm_before_the_layers() -> None:
    names = [parameter.name for parameter in catalogue_model("opt-125m").parameters]
    assert names[:6] == [
        "model.decoder.embed_tokens.weight",
        "model.decoder.embed_positions.weight",
        "model.decoder.final_layer_norm.weight",
        "model.decoder.final_layer_norm.bias",
        "model.decoder.layers.0.self_attn.k_proj.weight",
        "model.decoder.layers.0.self_attn.k_proj.bias",
    ]
    assert names[8].endswith("q_proj.weight")


def test_gpt2_block() -> None:
    block = next(module for module in catalogue_model("gpt2").root.walk() if module.block)
    assert [module.name.removeprefix("transformer.h.0.") for module in islice(block.walk(), 1, None)] == [
        *("ln_1", "attn", "attn.c_attn", "attn.c_proj", "attn.resid_dropout"),
        *("ln_2", "mlp", "mlp.c_fc", "mlp.act", "mlp.c_proj", "mlp.dropout"),
    ]
    assert leaf(catalogue_model("gpt2"), "transformer.h.0.attn.c_attn").parameters[0].shape == (768, 2304)  # Conv1D


def test_qwen3_norms_each_head_between_the_projections() -> None:
    model = catalogue_model("qwen3-0.6b")
    names = [m.name.rpartition(".")[2] for m in model.root.walk() if m.name.startswith("model.layers.0.self_attn.")]
    assert names == ["q_proj", "q_norm", "k_proj", "k_norm", "v_proj", "o_proj"]
    norm = leaf(model, "model.layers.0.self_attn.q_norm")
    assert (norm.outputs, norm.parameters[0].shape) == (16 * 128, (128,))


def test_t5_shares_one_table_and_biases_the_first_blocks() -> None:
    model = catalogue_model("t5-small")
    assert model.parameters[0].name == "shared.weight"
    users = [module.name for module in model.root.walk() if model.parameters[0] in module.parameters]
    assert users == ["shared", "shared", "lm_head"]
    biases = [parameter.name for parameter in model.parameters if "relative_attention_bias" in parameter.name]
    assert biases == [
        f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight" for side in ("encoder", "decoder")
    ]
    causal = [part.causal for part in calls(model.root) if isinstance(part, Function) and part.kind == "attention"]
    assert causal == [False] * 6 + [True, False] * 6


def test_bert_heads() -> None:
    sizes = {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    sizes |= {"intermediate_size": 3072, "vocab_size": 30522}
    masked = hugging_face(**sizes)
    bare = hugging_face(**sizes, architectures=["BertModel"])
    classifier = hugging_face(**sizes, architectures=["BertForSequenceClassification"])
    assert masked.numel == 109_514_298
    assert bare.numel == 109_482_240
    assert classifier.numel == bare.numel + 2 * 768 + 2
    assert [p.name for p in masked.parameters][-5] == "cls.predictions.bias"
    unknown = hugging_face(**sizes, architectures=["BertForTokenClassification"])
    assert "BertForTokenClassification" in unknown.notes[0]


def test_tied_weights_are_one_parameter_in_two_modules() -> None:
    tied, untied = (hugging_face(**LLAMA, tie_word_embeddings=tie) for tie in (True, False))
    assert leaf(tied, "lm_head").parameters == leaf(tied, "model.embed_tokens").parameters
    assert untied.numel - tied.numel == 100 * 64


def test_learnt_positions_limit_the_sequence() -> None:
    limits = {name: catalogue_model(name).max_positions for name in ("gpt2", "opt-125m", "bert-base", "mpt-1b")}
    assert limits == {"gpt2": 1024, "opt-125m": 2048, "bert-base": 512, "mpt-1b": 2048}
    assert {catalogue_model(name).max_positions for name in ("llama-2-7b", "mpt-7b", "t5-small")} == {None}


# --- keys of config.json --------------------------------------------------------------------------------------------


def test_other_names_of_keys_are_the_same_model() -> None:
    one = hugging_face(model_type="gpt2", n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_inner=None)
    two = hugging_face(model_type="gpt2", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
    assert one == two


def test_nulls_are_as_good_as_missing() -> None:
    nulls = hugging_face(**LLAMA, num_key_value_heads=None, head_dim=None, tie_word_embeddings=None, torch_dtype=None)
    assert nulls == hugging_face(**LLAMA)


def test_head_dim_is_a_number_of_its_own() -> None:
    assert leaf(hugging_face(**LLAMA, head_dim=32), "model.layers.0.self_attn.q_proj").outputs == 4 * 32
    odd = {**LLAMA, "hidden_size": 66}
    assert leaf(hugging_face(**odd, head_dim=16), "model.layers.0.self_attn.o_proj").parameters[0].shape == (66, 64)


def test_names() -> None:
    assert read_model(inline(LLAMA, "models/tiny/config.json")).name == "tiny"
    assert read_model(inline(LLAMA, "tiny.json")).name == "tiny"
    assert read_model(inline({**LLAMA, "_name_or_path": "org/tiny-1"}, "x.json")).name == "tiny-1"


# --- numbers and sizes ----------------------------------------------------------------------------------------------


def test_numbers_make_the_same_tree_as_llama() -> None:
    numbers = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "gated": True}
    model = read_model(inline({**numbers, "vocab": 32000, "tied_embeddings": False}, "s.yaml"))
    llama = catalogue_model("llama-2-7b")
    assert (model.root, model.parameters, model.notes) == (llama.root, llama.parameters, ())


def test_what_numbers_leave_out_is_assumed_and_told() -> None:
    model = read_model(inline({"layers": 32, "hidden": 4096, "heads": 32}, "s.yaml"))
    assert model.numel == 6_738_415_616
    assert [note.split()[0] for note in model.notes] == ["kv_heads", "ffn", "gated", "vocab", "tied_embeddings"]
    assert "ffn not given: 11008, 8/3 hidden, rounded up to 256" in model.notes


def test_ungated_numbers_make_a_gpt_without_positions() -> None:
    model = read_model(inline({"layers": 2, "hidden": 64, "heads": 4, "gated": False, "vocab": 100}, "s.yaml"))
    assert model.numel == 2 * 100 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64
    assert model.max_positions is None


@pytest.mark.parametrize("size", [9e6, 2e7, 7e7, 125e6, 350e6, 1e9, 3e9, 7e9, 13e9, 34e9, 70e9, 175e9, 530e9, 1e12])
def test_a_size_is_met_within_a_percent(size: float) -> None:
    model = read_model(inline({"parameters": size}, "s.yaml"))
    assert model.numel == pytest.approx(size, rel=0.01)
    assert "hidden" in model.notes[0]


def test_a_size_of_7b_has_the_shape_of_llama_7b() -> None:
    model = read_model(inline({"parameters": "7b"}, "s.yaml"))
    assert (model.layers, model.hidden, model.heads, model.vocabulary) == (32, 4096, 32, 32000)
    assert model.notes == (
        "7B parameters: 32 layers, hidden 4096, 32 heads, ffn 11648 (gated), vocabulary 32000, untied: 6.99B in all",
    )


# --- mistakes -------------------------------------------------------------------------------------------------------

GOOD = '{"model_type": "llama",\n "hidden_size": 64,\n "num_hidden_layers": 2,\n "num_attention_heads": 4,\n'
GOOD += ' "intermediate_size": 96,\n "vocab_size": 100}'


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ((' "vocab_size": 100', ' "vocab_size": -1'), ["m.json:6:16: vocab_size: found -1; expected a whole number"]),
        ((' "vocab_size": 100', ' "vocab_size": true'), ["m.json:6:16: vocab_size: found true"]),
        ((' "vocab_size": 100', ' "vocab_size": "100 GB"'), ['m.json:6:16: vocab_size: found "100 GB"']),
        (('"num_hidden_layers": 2', '"num_hidden_layers": 2.5'), ["m.json:3:23: num_hidden_layers: found 2.5"]),
        (('"num_hidden_layers": 2', '"num_hidden_layers": 1e9'), ["m.json:3:23: num_hidden_layers: found 1000000000"]),
        (
            ('"hidden_size": 64', '"hidden_size": 65'),
            ["m.json:2:17: hidden_size: found 65; expected a multiple of num"],
        ),
        (
            ('"vocab_size": 100', '"num_key_value_heads": 3, "vocab_size": 9'),
            ["m.json:4:25: num_attention_heads: found"],
        ),
        (('"hidden_size"', '"hiden_size"'), ["m.json:1:1: hidden_size: found nothing", "nearest hiden_size"]),
        (('"llama"', '"mixtral"'), ['m.json:1:16: model_type: found "mixtral", an arch', "inline", "nearest mistral"]),
        (('"model_type": "llama"', '"x": 1'), ["m.json:1:1: model_type: found nothing; expected one of bert"]),
        (
            ('"vocab_size": 100', '"n_embd": 65, "vocab_size": 9'),
            ["m.json:6:12: n_embd: found 65; expected the same as"],
        ),
        (('"vocab_size": 100', '"text_config": {}'), ["m.json:6:2: text_config: found a model of several parts"]),
        (('"vocab_size": 100', '"vocab_size": 9, "attention_bias": "no"'), ["m.json:6:37: attention_bias: found"]),
        (('"vocab_size": 100', '"vocab_size": 9, "vocab_size": 8'), ['m.json:6:19: vocab_size: found the key "vocab']),
        ((' "vocab_size": 100}', ' "vocab_size": 100'), ["m.json:6:19: found a syntax error"]),
        (("64", "sixty-four"), ["m.json:2:17: found a syntax error (expecting value); expected JSON"]),
    ],
)
def test_wrong_config_files(change: tuple[str, str], problems: list[str]) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(InputError) as caught:
        read_model(parse(text, "m.json", is_json=True))
    (problem,) = caught.value.problems
    assert str(problem).startswith(problems[0])
    assert all(part in str(problem) for part in problems)


def test_all_mistakes_of_a_config_at_once() -> None:
    text = '{"model_type": "llama",\n "hidden_size": 0,\n "num_attention_heads": "four",\n "intermediate_size": 3}'
    with pytest.raises(InputError) as caught:
        read_model(parse(text, "m.json", is_json=True))
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [
        ("num_hidden_layers", 1),
        ("vocab_size", 1),
        ("hidden_size", 2),
        ("num_attention_heads", 3),
    ]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "{layers: 2, hidden: 64, heads: 4, kvheads: 2}",
            ["s.yaml:1:35: kvheads: found unknown key", "nearest kv_heads"],
        ),
        ("{layers: 2, hidden: 65, heads: 4}", ["s.yaml:1:21: hidden: found 65; expected a multiple of heads (4)"]),
        ("{layers: 2, hidden: 64, heads: 4, kv_heads: 3}", ["s.yaml:1:45: kv_heads: found 3; expected a divisor"]),
        ("{layers: -2, hidden: 64, heads: 4}", ["s.yaml:1:10: layers: found -2; expected a whole number"]),
        ("{layers: 2, hidden: 64 GB, heads: 4}", ['s.yaml:1:21: hidden: found "64 GB"; expected a whole number']),
        ("{layers: 2, hidden: 0, heads: 4}", ["s.yaml:1:21: hidden: found 0; expected a number greater than"]),
        ("{layers: 2, heads: 4, hiden: 8}", ["s.yaml:1:23: hiden: found unknown key", "nearest hidden"]),
        ("{parameters: 7 GB}", ['s.yaml:1:14: parameters: found "7 GB"; expected a count']),
        ("{parameters: 7e9, layers: 3}", ["s.yaml:1:19: layers: found unknown key"]),
        ("{params: 7e9}", ["s.yaml:1:2: params: found unknown key", "nearest parameters"]),
        ("{parameters: 1000}", ["s.yaml:1:14: parameters: found 1k; expected from 8.734M to 4.364T"]),
        ("llama", ['s.yaml:1:1: found "llama"; expected a mapping']),
    ],
)
def test_wrong_inline_models(text: str, problems: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read_model(parse(text, "s.yaml"))
    (problem,) = caught.value.problems
    assert str(problem).startswith(problems[0])
    assert all(part in str(problem) for part in problems)


def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(InputError, match=r'found "Llama2-7b"; .*; nearest llama-2-7b'):
        catalogue_model("Llama2-7b")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: found no such file"):
        read_model(read(tmp_path / "config.json"))


# --- beyond ---------------------------------------------------------------------------------------------------------


def test_a_large_model_is_little_work() -> None:
    catalogue_model("llama-2-70b")
    assert counting.calls(lambda: catalogue_model("llama-2-70b")) < 100_000


def corpus() -> list[dict[str, str]]:
    shared = os.environ.get("ZEROSIM_SHARED")
    if not shared:
        return []
    with (Path(shared) / "corpus" / "hf_config_index.csv").open(encoding="utf-8") as index:
        return list(csv.DictReader(index))


@pytest.mark.skipif("ZEROSIM_SHARED" not in os.environ, reason="ZEROSIM_SHARED does not name the collected files")
@pytest.mark.parametrize("row", corpus(), ids=lambda row: row["name"])
def test_collected_configs_are_counted_or_refused(row: dict[str, str]) -> None:
    document = read(Path(os.environ["ZEROSIM_SHARED"]) / "corpus" / "hf_config" / row["file"])
    if row["model_type"] not in FAMILIES:
        with pytest.raises(InputError):
            read_model(document)
        return
    model = read_model(document)
    assert model.numel == int(row["params_unique"])
    assert len(model.parameters) == int(row["n_tensors"])
    assert max(parameter.numel for parameter in model.parameters) == int(row["largest_tensor"])
