"""Whatever a config.json holds, it is a model or a list of problems; a model's tree and list agree."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zerosim.errors import InputError
from zerosim.spec.architectures import FAMILIES
from zerosim.spec.loading import inline
from zerosim.spec.model_file import read_model

NUMBERS: st.SearchStrategy[Any] = (
    st.integers(-1, 12) | st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.just([]) | st.just({})
)
KEYS = (
    *("hidden_size", "n_embd", "num_hidden_layers", "n_layer", "num_layers", "num_attention_heads", "num_heads"),
    *("num_key_value_heads", "head_dim", "intermediate_size", "d_ff", "ffn_dim", "n_inner", "vocab_size", "d_kv"),
    *("tie_word_embeddings", "attention_bias", "attn_config", "architectures", "n_positions", "feed_forward_proj"),
    *("partial_rotary_factor", "hidden_dropout", "qk_layernorm", "new_decoder_architecture", "id2label", "no_bias"),
    *("layers", "hidden", "heads", "kv_heads", "ffn", "gated", "vocab", "parameters", "sliding_window"),
)
KIND = st.sampled_from(sorted(FAMILIES)) | NUMBERS


@given(data=st.dictionaries(st.sampled_from(KEYS), NUMBERS, max_size=12), kind=KIND, named=st.booleans())
@settings(max_examples=300)
def test_anything_is_a_model_or_problems(data: dict[str, Any], kind: Any, named: bool) -> None:
    config = data | ({"model_type": kind} if named else {})
    try:
        model = read_model(inline(config, "config.json"))
    except InputError:
        return
    assert model.numel > 0


@given(
    kind=st.sampled_from(sorted(FAMILIES)),
    layers=st.integers(1, 4),
    heads=st.integers(1, 6),
    head_dim=st.integers(1, 16).map(lambda half: 2 * half),
    ffn=st.integers(1, 200),
    vocabulary=st.integers(1, 500),
    tied=st.booleans(),
)
def test_trees_and_lists_agree(
    kind: str, layers: int, heads: int, head_dim: int, ffn: int, vocabulary: int, tied: bool
) -> None:
    config = {"model_type": kind, "hidden_size": heads * head_dim, "num_hidden_layers": layers}
    config |= {"num_attention_heads": heads, "intermediate_size": ffn, "vocab_size": vocabulary}
    model = read_model(inline(config | {"tie_word_embeddings": tied}, "config.json"))
    in_tree = {parameter for module in model.root.walk() for parameter in module.parameters}
    assert in_tree == set(model.parameters)
    assert model.numel == sum(parameter.numel for parameter in in_tree)
    assert sum(module.block for module in model.root.walk()) == model.layers
    for module in model.root.walk():
        if module.kind == "linear":
            assert sorted(module.parameters[0].shape) == sorted((module.inputs, module.outputs))
