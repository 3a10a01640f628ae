"""Recordings of real training steps, read into the values zerosim builds a step from, and the collectives they hold.

A recording is one run of torch DDP or DeepSpeed on CPU ranks: its configuration, its modules and parameters, and the
events of three steps. The third is read: stage 3 traces modules in the first, DDP rebuilds its buckets in the second.
Widths and heads stay 0: which collectives are issued does not depend on the work of a module. Nor, here, on what a
Model cannot say of these networks: the MLP reads data and LlamaAttention is called by keywords, so a post-hook of the
backward is missing (one after which nothing is gathered, one of a module without parameters); blocks were checkpointed
inside their hooks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.loading import inline
from zerosim.spec.model import Model, Module, ModuleKind, Parameter
from zerosim.spec.strategy import Ddp, Strategy
from zerosim.spec.training import Training
from zerosim.step import Collective, Step

STEADY_STEP = 2
KINDS: dict[str, ModuleKind] = {
    "Linear": "linear",
    "Conv1D": "linear",
    "Embedding": "embedding",
    "LayerNorm": "norm_layer",
    "LlamaRMSNorm": "norm_rms",
    "LlamaRotaryEmbedding": "identity",
}  # all others own no parameters: what stage 3 sees of them is their hooks
COLLECTIVES = {"all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_reduce_coalesced"}
DTYPES = {
    "f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "i64": "int64", "i32": "int32", "u8": "uint8",
}  # fmt: skip


class Issued(NamedTuple):
    """A collective as a rank issues it. The boundary belongs to no micro-batch; only a `reduce` is told by its root."""

    kind: str
    elements: int
    dtype: str
    ranks: int
    phase: str
    micro_batch: int | None
    root: int | None


@dataclass(frozen=True, slots=True)
class Recording:
    """What was run, and the collectives of its steady step."""

    model: Model
    training: Training
    strategy: Strategy
    ranks: int
    collectives: tuple[Issued, ...]


def read_recording(path: Path) -> Recording:
    data = json.loads(path.read_text(encoding="utf-8"))
    config, events = data["config"], data["steps"][STEADY_STEP]["events"]
    training = Training(
        sequence_length=16,
        gradient_accumulation_steps=config.get("ga", 1),
        precision=config.get("dtype", "fp32"),
        activation_checkpointing="full" if config.get("ckpt") else "none",
    )
    ranks = config.get("world", 2)
    strategy = _ddp(config) if config["strategy"] == "ddp" else _deepspeed(config, training, ranks)
    return Recording(_model(data["model"], events), training, strategy, ranks, tuple(_recorded(events, strategy)))


def issued(step: Step) -> tuple[Issued, ...]:
    """The collectives of a step that zerosim wrote."""
    found = []
    for op in step.ops:
        if isinstance(op.work, Collective):
            root = int(op.name.removeprefix("reduce to ")) if op.work.kind == "reduce" else None
            micro_batch = None if op.phase == "optimizer" else op.micro_batch
            kind, elements, dtype, group = op.work
            found.append(Issued(kind, elements, dtype, step.groups[group].size, op.phase, micro_batch, root))
    return tuple(found)


def _recorded(events: list[dict[str, Any]], strategy: Strategy) -> Iterator[Issued]:
    static_graph = isinstance(strategy, Ddp) and strategy.static_graph
    for event in events:
        if event.get("op") not in COLLECTIVES:
            continue
        kind, dtype = event["op"], DTYPES[event["dtype"]]
        if static_graph and (kind, dtype) == ("broadcast", "int32"):
            continue  # buckets are rebuilt once in a run: with a static graph a step later than else, in this one
        boundary = event["ph"] == "step"
        yield Issued(
            kind,
            max(event["nin"], event["nout"]),
            dtype,
            event["gs"],
            "optimizer" if boundary else event["ph"],
            None if boundary else event["mb"],
            event["root"] if kind == "reduce" else None,
        )


def _ddp(config: dict[str, Any]) -> Ddp:
    return Ddp(**config.get("ddp", {}), no_sync=config.get("no_sync", False))


def _deepspeed(config: dict[str, Any], training: Training, ranks: int) -> Strategy:
    keys = {**config["ds"], "train_micro_batch_size_per_gpu": training.micro_batch_size}
    keys["gradient_accumulation_steps"] = training.gradient_accumulation_steps
    if "clip" in config:
        keys["gradient_clipping"] = config["clip"]
    if training.precision != "fp32":
        keys[training.precision] = {"enabled": True}
    return read_deepspeed(inline(keys, "recording"), Given(world_size=ranks)).deepspeed


def _model(data: dict[str, Any], events: list[dict[str, Any]]) -> Model:
    modules = {module["name"]: module for module in data["modules"]}
    blocks = {f"{name}.{child}" for name, m in modules.items() if m["cls"] == "ModuleList" for child in m["children"]}
    parameters: dict[str, Parameter] = {}
    for each in data["params"]:
        parameter = Parameter(each["name"], tuple(each["shape"]), not each.get("frozen", False))
        parameters |= dict.fromkeys((each["name"], *each.get("tied", ())), parameter)

    def called(name: str, body: tuple[Module, ...]) -> Module:
        cls = modules[name]["cls"]
        own = tuple(parameters[f"{name}.{which}"] for which in modules[name]["params"])
        return Module(name, KINDS.get(cls, "container"), own, body, conv1d=cls == "Conv1D", block=name in blocks)

    registered = tuple(dict.fromkeys(parameters.values()))
    buffers = sum(math.prod(buffer["shape"]) for buffer in data["buffers"])
    return Model("recorded", _first_forward(events, called), registered, len(blocks), 0, 0, 0, buffers=buffers)


def _first_forward(events: list[dict[str, Any]], called: Callable[[str, tuple[Module, ...]], Module]) -> Module:
    """The root, of modules nested as the forward of the first micro-batch calls them."""
    under_way: list[list[Module]] = [[]]
    for event in takewhile(lambda event: event.get("ph") != "backward", events):
        if event.get("m") == "F>":
            under_way.append([])
        elif event.get("m") == "F<":
            body = under_way.pop()
            under_way[-1].append(called(event["mod"], tuple(body)))
    ((root,),) = under_way
    return root
