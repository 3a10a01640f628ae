"""The order of events of a network: which hooks fire, what has a backward, which gradient is ready when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.toy import toy, toy_training
from zerosim.spec.model import Model, Module, Parameter
from zerosim.strategies.events import AGAIN, GRADIENT, LEFT, POST, PRE, RUN, micro_step
from zerosim.strategies.network import compile_network


def linear(name: str, trained: bool = True, **more: Any) -> Module:
    return Module(name, "linear", (Parameter(f"{name}.weight", (8, 8), trained),), inputs=8, outputs=8, **more)


def model_of(*body: Module, **more: Any) -> Model:
    root = Module("root", "container", body=body)
    parameters = tuple(dict.fromkeys(p for module in root.walk() for p in module.parameters))
    return Model("net", root, parameters, len(body), 8, 1, 8, **more)


def backward(model: Model, kinds: Sequence[str], **training: Any) -> list[str]:
    network = compile_network(model, toy_training(**training))
    _, events = micro_step(network, toy_training(**training))
    return [
        f"{event.kind} {network.names[event.parameter] if event.kind == GRADIENT else event.node.name}"
        for event in events
        if event.kind in kinds
    ]


def test_data_has_no_gradient() -> None:
    """So a hook of the inputs of what reads it never fires; a later stage of a pipeline reads no data."""
    net = model_of(linear("a"), linear("b"))
    assert backward(net, [POST]) == ["post b"]
    assert backward(replace(net, input_gradient=True), [POST]) == ["post b", "post a", "post root"]


def test_a_hook_of_inputs_sees_no_keywords() -> None:
    assert backward(model_of(linear("a"), linear("b", by_keyword=True), linear("c")), [POST]) == ["post c"]


def test_what_comes_before_the_first_trainable_parameter_has_no_backward() -> None:
    net = model_of(linear("a", trained=False), linear("b"), linear("c", trained=False))
    assert backward(net, [PRE, RUN, GRADIENT, POST]) == [
        "pre root", "pre c", "run c", "post c", "pre b", "run b", "gradient b.weight",
    ]  # fmt: skip


def test_nothing_is_kept_for_what_has_no_backward() -> None:
    forward, _ = micro_step(
        compile_network(model_of(linear("a", trained=False), linear("b")), toy_training()), toy_training()
    )
    assert [event.saving for event in forward if event.kind == RUN] == [False, True]


def test_gradients_become_ready_as_they_were_seen_to() -> None:
    net = model_of(linear("a"), linear("b"), linear("c"))
    seen = ("c.weight", "a.weight", "b.weight")
    assert backward(net, [GRADIENT]) == ["gradient c.weight", "gradient b.weight", "gradient a.weight"]
    assert backward(replace(net, gradients=seen), [PRE]) == ["pre root", "pre c", "pre a", "pre b"]


def test_a_tied_weight_does_not_move_a_module() -> None:
    tied = linear("a")
    net = model_of(tied, linear("b"), replace(linear("head"), parameters=tied.parameters))
    seen = replace(net, gradients=("b.weight", "a.weight"))
    assert backward(seen, [PRE]) == backward(net, [PRE]) == ["pre root", "pre head", "pre b", "pre a"]


def test_a_module_that_is_called_twice_has_one_gradient_after_the_first_call() -> None:
    a = linear("a")
    assert backward(model_of(a, linear("b"), a), [RUN, GRADIENT]) == [
        "run a", "run b", "gradient b.weight", "run a", "gradient a.weight",
    ]  # fmt: skip


@pytest.mark.parametrize(("inside", "hooks"), [(False, ["pre block"]), (True, [])])
def test_checkpointing_runs_a_block_again_with_its_hooks_or_within_them(inside: bool, hooks: list[str]) -> None:
    block = Module("block", "container", body=(linear("a"), linear("b")), block=True, checkpoint_inside=inside)
    found = backward(model_of(linear("first"), block), [PRE, POST, AGAIN, LEFT], activation_checkpointing="full")
    assert found == [
        "pre root", "pre block", "pre b", "again block", *hooks, "pre a", "post a", "pre b", "post b",
        "pre a", "post a", "post block", "left block", "pre first",
    ]  # fmt: skip


def test_every_block_is_left_once() -> None:
    assert backward(toy(), [LEFT]) == ["left b2", "left b1", "left b0"]
