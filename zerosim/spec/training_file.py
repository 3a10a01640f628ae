"""The `training` section of a scenario: its keys, what is taken where it is silent, choices that mean less than said.

Some of its keys may stand in the DeepSpeed file instead (`SHARED`); where they meet is the business of
`scenario_strategy`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from zerosim.errors import Finding, InputError
from zerosim.spec.document import Document, shown
from zerosim.spec.loading import Schema, Whole, validated
from zerosim.spec.training import (
    AttentionKernel,
    CheckpointFunction,
    Checkpointing,
    CrossEntropy,
    Kernels,
    Precision,
    Training,
)

_Positive = Annotated[Whole, Field(ge=1)]
_Tokens = Annotated[Whole, Field(ge=1, le=1_000_000_000)]
_Sequences = Annotated[Whole, Field(ge=1, le=1_000_000)]
DEFAULTS: Mapping[str, Any] = {"micro_batch_size": 1, "gradient_accumulation_steps": 1, "precision": "bf16"}
SHARED = tuple(DEFAULTS)  # may stand in the DeepSpeed file too


class TrainingSchema(Schema):
    """The section; None where it may come from the DeepSpeed file."""

    sequence_length: _Tokens
    micro_batch_size: _Sequences | None = None
    gradient_accumulation_steps: _Positive | None = None
    precision: Precision | None = None
    activation_checkpointing: Checkpointing = "none"
    attention: AttentionKernel = "flash"
    kernels: Kernels = "eager"
    reentrant: bool = False
    checkpoint_function: CheckpointFunction = "torch"
    tf32: bool = False
    cross_entropy: CrossEntropy | None = None


def read_training(document: Document) -> TrainingSchema:
    """The section of a scenario."""
    section = document.below("training")
    settings = validated(section, TrainingSchema)
    if settings.activation_checkpointing == "operators" and own_values(settings)["reentrant"]:
        expected = "reentrant: false and torch's checkpoint_function: a reentrant checkpoint has no policy by op"
        raise InputError([section.problem(("activation_checkpointing",), "operators", expected)])
    return settings


def own_values(settings: TrainingSchema) -> dict[str, Any]:
    """What only `training` says; DeepSpeed's `checkpoint` is reentrant (activation_checkpointing/checkpointing.py)."""
    values = settings.model_dump(exclude=set(SHARED))
    if settings.checkpoint_function == "deepspeed" and "reentrant" not in settings.model_fields_set:
        values["reentrant"] = True
    return values


def taken(settings: TrainingSchema, training: Training, elsewhere: Collection[str] = ()) -> str:
    """What was taken where the section is silent, but for keys that are said `elsewhere`; "" where it is not."""
    known = {*settings.model_fields_set, *elsewhere, "checkpoint_function", "tf32", "cross_entropy"}
    names = sorted((name for name in TrainingSchema.model_fields if name not in known), key=SHARED.__contains__)
    said = ", ".join(f"{name} {str(getattr(training, name)).lower()}" for name in names)
    return f"Not given in training, so taken: {said}." if said else ""


def as_said(name: str, value: Any, places: Mapping[str, str]) -> str:
    """A value of `training`, with its place where that is known, as a message about another file shows it."""
    place = f" ({places[name]})" if name in places else ""
    return f"{shown(value).strip(chr(34))}, as training.{name} says{place}"


def training_findings(training: Training) -> Iterator[Finding]:
    """Choices that mean less than they say."""
    if training.checkpoint_function == "deepspeed" and not training.checkpoints_blocks:
        message = "training.checkpoint_function changes nothing in a step: no block is checkpointed."
        yield Finding("key-no-effect", "note", message)
    if training.tf32 and training.precision != "fp32":
        yield Finding("key-no-effect", "note", f"training.tf32 changes nothing in {training.precision} training.")
    if training.attention == "eager":
        return
    if training.activation_checkpointing == "selective":
        message = (
            "Selective checkpointing recomputes the attention scores, which flash attention does not keep: no effect."
        )
        yield Finding("key-no-effect", "note", message)
    if training.precision == "fp32":
        message = "FlashAttention has no fp32 kernel; attention is priced as if it had, at the fp32 rate."
        yield Finding("fp32-flash", "warning", message, "Set training.attention to eager.")
