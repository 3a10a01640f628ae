"""Every family of models makes a faultless program under every strategy and kind of checkpointing."""

from __future__ import annotations

import pytest

from zerosim.spec.model_file import catalogue_model
from zerosim.spec.strategy import Ddp, DeepSpeed, Strategy, Zero
from zerosim.spec.training import Training
from zerosim.strategies import build
from zerosim.strategies.events import GRADIENT, micro_step
from zerosim.strategies.network import compile_network

FAMILIES = (
    "bert-base", "bloom-560m", "falcon-7b", "gemma-2b", "gpt2", "gpt-neox-20b", "llama-3.2-1b", "mistral-7b", "mpt-7b",
    "opt-350m", "phi-2", "pythia-160m", "qwen2.5-0.5b", "qwen3-0.6b", "t5-small",
)  # fmt: skip
STRATEGIES: tuple[Strategy, ...] = (
    Ddp(),
    DeepSpeed(zero=Zero(stage=2, overlap_comm=True)),
    DeepSpeed(zero=Zero(stage=3)),
)
WAYS = (("none", False), ("full", False), ("full", True))


@pytest.mark.parametrize("name", FAMILIES)
def test_programs_are_faultless(name: str) -> None:
    model = catalogue_model(name)
    for checkpointing, reentrant in WAYS:
        training = Training(
            64, precision="bf16", activation_checkpointing=checkpointing, reentrant=reentrant, attention="eager"  # type: ignore[arg-type]  # a row of the test
        )  # fmt: skip
        for strategy in STRATEGIES:
            assert build(strategy, model, training, 3)[0].lint() == []


@pytest.mark.parametrize("name", FAMILIES)
def test_each_parameter_has_one_gradient(name: str) -> None:
    model = catalogue_model(name)
    training = Training(64)
    _, backward = micro_step(compile_network(model, training), training)
    ready = [event.parameter for event in backward if event.kind == GRADIENT]
    assert sorted(ready) == list(range(len(model.parameters)))
