"""Models as ordered lists of parameters: the tree that the names make, the work that the shapes make, what is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zerosim
from zerosim.errors import InputError
from zerosim.spec.loading import inline, read
from zerosim.spec.model import Function, Model, Module
from zerosim.spec.model_file import catalogue_model, read_model
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, Pipeline, Strategy, Zero
from zerosim.spec.training import Training
from zerosim.step import Collective
from zerosim.strategies import build
from zerosim.strategies.network import model_flops


def tensor(name: str, *shape: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), **more}


def listed(*parameters: dict[str, Any], **more: Any) -> Model:
    return read_model(inline({"parameters": list(parameters), **more}, "model"))


MLP = [tensor(f"layers.{i}.{which}", *shape) for i in range(3) for which, shape in (("weight", (8, 8)), ("bias", (8,)))]


def shown(part: Module | Function) -> str:
    """Names nested as modules call each other, below the root."""
    name = part.name.rpartition(".")[2] if part.name else ""
    below = " ".join(shown(each) for each in part.body) if isinstance(part, Module) and part.body else ""
    return f"{name}({below})" if below else name


def modules(model: Model) -> dict[str, Module]:
    return {module.name: module for module in model.root.walk()}


# --- the tree --------------------------------------------------------------------------------------------------------


def test_names_become_nesting_and_a_numbered_list_is_no_module() -> None:
    net = listed(
        tensor("model.wte.weight", 100, 8),
        tensor("model.h.0.attn.q.weight", 8, 8),
        tensor("model.h.0.attn.out.weight", 8, 8),
        tensor("model.h.0.ln.weight", 8),
        tensor("model.h.1.attn.q.weight", 8, 8),
        tensor("head.weight", 100, 8),
    )
    assert shown(net.root) == "(model(wte 0(attn(q out) ln) 1(attn(q))) head)"
    assert [name for name, module in modules(net).items() if module.block] == ["model.h.0", "model.h.1"]
    assert [module.layer for module in net.root.walk() if module.block] == [0, 1]
    assert (net.layers, net.hidden, net.vocabulary) == (2, 8, 100)


def test_parameters_stay_in_order() -> None:
    assert [parameter.name for parameter in listed(*MLP).parameters] == [each["name"] for each in MLP]
    assert listed(*MLP).numel == 3 * 72


@pytest.mark.parametrize(
    ("calls", "called"),
    [
        ([], "(0 1 2)"),
        (["layers.2", "layers.0", "layers.1"], "(2 0 1)"),
        (["layers"], "(0 1 2)"),
        (["layers.0", "layers.0", "layers"], "(0 0 0 1 2)"),
    ],
)
def test_calls_say_in_which_order(calls: list[str], called: str) -> None:
    assert shown(listed(*MLP, calls=calls).root) == called


def test_a_module_that_holds_others_has_parameters_of_its_own() -> None:
    net = listed(tensor("attn.in_proj_weight", 24, 8), tensor("attn.out_proj.weight", 8, 8), tensor("cls", 1, 8))
    attn = modules(net)["attn"]
    assert (attn.kind, attn.inputs, attn.outputs, shown(attn)) == ("linear", 8, 24, "attn(out_proj)")
    assert (net.root.kind, net.root.parameters[0].name) == ("container", "cls")


def test_a_further_name_of_a_tied_weight_is_called_last() -> None:
    net = listed(tensor("wte.weight", 100, 8, tied=["head.weight"]), *MLP)
    assert shown(net.root) == "(wte 0 1 2 head)"
    table, head = modules(net)["wte"], modules(net)["head"]
    assert table.parameters[0] is head.parameters[0]
    assert (table.kind, head.kind, head.outputs) == ("embedding", "linear", 100)


def test_a_module_may_be_named() -> None:
    net = listed(tensor("flat.0", 8, 8, module="first"), tensor("flat.1", 8, 8, module="second"))
    assert shown(net.root) == "(first second)"


# --- blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "blocks"),
    [
        (["enc.0.a", "enc.1.a", "dec.0.a", "dec.1.a"], ["enc.0", "enc.1", "dec.0", "dec.1"]),
        (["layers.0.experts.0", "layers.0.experts.1", "layers.1.experts.0"], ["layers.0", "layers.1"]),
        (["layers.0", "layers.1", "head.0"], ["layers.0", "layers.1"]),  # a list of one beside others
        (["layers.0.a"], ["layers.0"]),
        (["net.fc1", "net.fc2"], ["net.fc1", "net.fc2"]),  # nothing is numbered
        (["fc"], ["fc"]),
    ],
)  # fmt: skip
def test_blocks_are_guessed_from_names(names: list[str], blocks: list[str]) -> None:
    net = listed(*(tensor(f"{name}.weight", 8, 8) for name in names))
    assert [module.name for module in net.root.walk() if module.block] == blocks


def test_blocks_may_be_given() -> None:
    given = [each | {"block": "layers.1"} if "1" in each["name"] else each for each in MLP]
    assert [module.name for module in listed(*given).root.walk() if module.block] == ["layers.1"]


# --- work ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "kind", "sizes"),
    [
        ([tensor("a.weight", 24, 8)], "linear", (8, 24)),
        ([tensor("a.weight", 24, 8), tensor("a.bias", 24)], "linear", (8, 24)),
        ([tensor("a.weight", 8, 24, kind="conv1d")], "linear", (8, 24)),
        ([tensor("a.weight", 16, 3, 2, 2)], "linear", (12, 16)),  # a convolution: 12 inputs each
        ([tensor("a.w1", 16, 8), tensor("a.w2", 8, 16)], "linear", (16, 16)),  # 256 elements
        ([tensor("a.weight", 8)], "norm_rms", (0, 8)),
        ([tensor("a.weight", 8), tensor("a.bias", 8)], "norm_layer", (0, 8)),
        ([tensor("a.scale", 8, kind="norm_layer")], "norm_layer", (0, 8)),
        ([tensor("a.first", 8), tensor("a.second", 9)], "container", (0, 0)),
        ([tensor("a.weight", 8, 8, kind="bare")], "container", (0, 0)),
        ([tensor("token_embedding.weight", 100, 8)], "embedding", (0, 8)),
        ([tensor("embed_tokens.weight", 100, 8)], "embedding", (0, 8)),
        ([tensor("emb.weight", 100, 8)], "embedding", (0, 8)),
        ([tensor("wpe.weight", 100, 8)], "embedding", (0, 8)),
        ([tensor("table.weight", 100, 8, kind="embedding")], "embedding", (0, 8)),
        ([tensor("member.weight", 100, 8)], "linear", (8, 100)),
        ([tensor("embed_out.weight", 100, 8)], "linear", (8, 100)),  # an output layer
    ],
)
def test_kinds_are_guessed_from_shapes_and_names(
    parameters: list[dict[str, Any]], kind: str, sizes: tuple[int, int]
) -> None:
    module = listed(*parameters).root.body[0]
    assert isinstance(module, Module)
    assert (module.kind, module.inputs, module.outputs) == (kind, *sizes)


def test_a_matrix_is_2_flop_a_parameter_and_token() -> None:
    """Three times that with the backward; biases count nothing."""
    assert model_flops(listed(*MLP), Training(16, 2)) == 3 * 2 * 32 * 3 * 64


def test_attention_is_counted_where_heads_are_given() -> None:
    own = [tensor(f"layers.0.{name}_proj.weight", 8, 8) for name in "qkvo"]
    plain, attending = listed(*own), listed(*own, heads=2)
    assert shown(attending.root) == "(0(q_proj k_proj v_proj attention o_proj))"
    core = next(part for part in modules(attending)["layers.0"].body if isinstance(part, Function))
    assert (core.heads, core.kv_heads, core.head_dim) == (2, 2, 4)
    # two products of s x s scores: 4 s^2 x hidden a sequence
    assert model_flops(attending, Training(16)) - model_flops(plain, Training(16)) == 3 * 4 * 16**2 * 8
    assert "nothing for attention (heads not given)" in " ".join(plain.notes)
    assert "attention of 2 heads in 1 modules" in " ".join(attending.notes)
    assert "nothing for attention (no module has projections" in " ".join(listed(*MLP, heads=2).notes)


def test_a_llama_as_a_list_costs_what_its_matrices_do() -> None:
    """llama-2-7b's own list: the same parameters in the same order; its work without the elementwise kernels."""
    llama = catalogue_model("llama-2-7b")
    net = listed(*(tensor(p.name, *p.shape) for p in llama.parameters), heads=32)
    assert net.numel == llama.numel
    assert [parameter.name for parameter in net.parameters] == [parameter.name for parameter in llama.parameters]
    assert (net.layers, net.hidden, net.vocabulary) == (32, 4096, 32000)
    assert model_flops(net, Training(2048)) == model_flops(llama, Training(2048))


# --- what strategies make of it --------------------------------------------------------------------------------------

STRATEGIES: list[Strategy] = [
    Ddp(), *(DeepSpeed(zero=Zero(stage=stage)) for stage in (0, 1, 2, 3)), Fsdp(1), Fsdp(2), Pipeline(2),
]  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_every_strategy_plays_it(strategy: Strategy, checkpointing: Any) -> None:
    net = listed(tensor("wte.weight", 100, 8, tied=["head.weight"]), *MLP, tensor("norm.weight", 8))
    training = Training(16, gradient_accumulation_steps=2, activation_checkpointing=checkpointing)
    for step in build(strategy, net, training, 2):
        step.check()


def test_frozen_parameters_are_not_reduced() -> None:
    frozen = [each | {"trainable": i > 1} for i, each in enumerate(MLP)]
    step = build(Ddp(), listed(*frozen), Training(16), 2)[0]
    assert [op.work.elements for op in step.ops if isinstance(op.work, Collective)] == [144]


def test_fsdp_wraps_its_blocks() -> None:
    """Three units of 72, gathered forward and, but for the last, in the backward again."""
    step = build(Fsdp(1), listed(*MLP), Training(16), 2)[0]
    gathered = [op.work.elements for op in step.ops if isinstance(op.work, Collective) and op.work.kind == "all_gather"]
    assert set(gathered) == {72}


# --- files -----------------------------------------------------------------------------------------------------------

SCENARIO = """\
topology: dgx-a100-80
gpus: 2
model: %s
training: {sequence_length: 16, precision: bf16}
strategy: {ddp: {}}
"""


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_is_a_model(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"net.{suffix}"
    file.write_text('{"name": "mine", "parameters": [{"name": "a.weight", "shape": [8, 8], "numel": 64}]}')
    (tmp_path / "scenario.yaml").write_text(SCENARIO % file.name)
    scenario = zerosim.load(tmp_path / "scenario.yaml")
    assert (scenario.model.name, scenario.model.numel) == ("mine", 64)
    assert zerosim.simulate(scenario).summary().fits


def test_a_model_in_a_scenario_keeps_its_name() -> None:
    asked = {"topology": "dgx-a100-80", "training": {"sequence_length": 8}, "strategy": {"ddp": {}}}
    named, plain = (
        zerosim.from_mapping({**asked, "model": {**more, "parameters": [tensor("0.weight", 8, 8)]}})
        for more in ({"name": "my-net"}, {})
    )
    assert (named.model.name, plain.model.name) == ("my-net", "64 parameters")


def test_a_model_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    file.write_text('{"parameters": [{"name": "a.weight", "shape": [8, 8]}]}')
    assert read_model(read(file)).name == "net"


def test_all_mistakes_at_once() -> None:
    with pytest.raises(InputError) as caught:
        listed(
            tensor("a.weight", 8, 0),
            tensor("a.weight", 8, numel=7),
            tensor("b.weight", 8, kind="norm"),
            tensor("b.bias", 8, kind="linear", block="c"),
            calls=["a", "bb"],
            head_dim=3,
        )
    assert [problem.path for problem in caught.value.problems] == [
        "parameters.0.shape", "parameters.0.name", "parameters.1.numel", "parameters.1.name",
        "parameters.3.block", "parameters.3.kind", "calls.1", "calls", "head_dim",
    ]  # fmt: skip
    assert caught.value.problems[6].nearest == "b"


def test_what_was_taken_is_told() -> None:
    notes = " | ".join(listed(tensor("wte.weight", 100, 8), *MLP).notes)
    assert "modules are called in the order of their parameters" in notes
    assert "blocks, from the names of modules: layers.0 to layers.2 (3)" in notes
    assert "hidden not given: 8" in notes
    assert "taken as embeddings: wte" in notes
    given = [each | {"block": each["name"].rpartition(".")[0]} for each in MLP]
    told = " | ".join(listed(*given, hidden=8, calls=["layers"]).notes)
    assert "blocks" not in told
    assert "hidden" not in told
    assert "called" not in told


def test_a_block_whose_own_tensor_comes_last_is_one_block() -> None:
    """torch registers a module's own tensors first; a list may have them in another order."""
    names = [f"blocks.{k}.{name}" for k in range(4) for name in ("fc1.weight", "scale")]
    shapes = [[8, 8] if name.endswith("weight") else [8] for name in names]
    listed = [{"name": name, "shape": shape} for name, shape in zip(names, shapes, strict=True)]
    model = read_model(inline({"name": "own-last", "parameters": listed}, "list"))
    assert [module.name for module in model.root.walk() if module.block] == [f"blocks.{k}" for k in range(4)]
