"""The toy network whose collectives were recorded from the real frameworks: hidden 64, vocabulary 512, three blocks."""

from __future__ import annotations

from zerosim.spec.model import Model, Module, Parameter
from zerosim.spec.training import Training


def _linear(name: str, inputs: int, outputs: int, layer: int | None) -> Module:
    weight = Parameter(f"{name}.weight", (outputs, inputs))
    return Module(name, "linear", (weight,), inputs=inputs, outputs=outputs, layer=layer)


def _norm(name: str, width: int, layer: int | None) -> Module:
    parameters = (Parameter(f"{name}.weight", (width,)), Parameter(f"{name}.bias", (width,)))
    return Module(name, "norm_layer", parameters, outputs=width, layer=layer)


def _block(index: int, h: int) -> Module:
    name = f"b{index}"
    body = (
        _norm(f"{name}.ln1", h, index),
        _linear(f"{name}.qkv", h, 3 * h, index),
        _linear(f"{name}.o", h, h, index),
        _norm(f"{name}.ln2", h, index),
        _linear(f"{name}.fc1", h, 4 * h, index),
        _linear(f"{name}.fc2", 4 * h, h, index),
    )
    return Module(name, "container", body=body, layer=index, block=True)


def toy(hidden: int = 64, vocabulary: int = 512, blocks: int = 3) -> Model:
    """213,888 parameters at the default sizes."""
    embedding = Module("emb", "embedding", (Parameter("emb.weight", (vocabulary, hidden)),), outputs=hidden)
    body = (
        embedding,
        *(_block(index, hidden) for index in range(blocks)),
        _norm("lnf", hidden, None),
        _linear("head", hidden, vocabulary, None),
    )
    root = Module("root", "container", body=body)
    parameters = tuple(p for module in root.walk() for p in module.parameters)
    return Model("toy", root, parameters, layers=blocks, hidden=hidden, heads=1, vocabulary=vocabulary)


def toy_training(**changes: object) -> Training:
    values: dict[str, object] = {"sequence_length": 16, "precision": "bf16"}
    return Training(**{**values, **changes})  # type: ignore[arg-type]  # names and types are checked by the class
