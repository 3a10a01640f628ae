"""torch DistributedDataParallel's settings: `strategy: {ddp: {...}}` in the names of its constructor.

`bucket_cap_mb` is MiB; not given, the first bucket holds 1 MiB and the others 25 (torch/nn/parallel/distributed.py).
`no_sync`, `parameter_dtype` and `optimizer` are the script's side of the matter.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from zerosim.errors import InputError
from zerosim.spec.document import Document
from zerosim.spec.loading import Schema, validated
from zerosim.spec.optimizers import ADAMW, OPTIMIZERS, likely, optimizer
from zerosim.spec.strategy import Ddp, Optimizer

_KNOWN = tuple(
    row.name for name, row in OPTIMIZERS.items() if name not in ("muon", "onebitadam", "zerooneadam", "onebitlamb")
)


class OptimizerSchema(Schema):
    """`optimizer`, where it is not a name alone."""

    type: str = ADAMW.name
    fused: bool = True
    momentum: float = 0.0


class _DdpSchema(Schema):
    bucket_cap_mb: Annotated[float, Field(gt=0, le=1e9)] | None = None
    gradient_as_bucket_view: bool = False
    find_unused_parameters: bool = False
    static_graph: bool = False
    no_sync: bool = True
    first_iteration: bool = False
    parameter_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    optimizer: str | OptimizerSchema = ADAMW.name


def read_ddp(document: Document, precision: str) -> Ddp:
    """The settings, for a run in `precision`, or an InputError with all their problems."""
    settings = validated(document, _DdpSchema)
    values = {field.name: getattr(settings, field.name) for field in fields(Ddp) if field.name != "optimizer"}
    ddp = Ddp(**values, optimizer=read_optimizer(document, settings.optimizer))
    if ddp.parameter_dtype not in ("fp32", precision):
        wrong = document.problem(
            ("parameter_dtype",), ddp.parameter_dtype, f"fp32, or {precision} as training.precision"
        )
        raise InputError([wrong])
    return ddp


def ddp_mapping(ddp: Ddp) -> dict[str, Any]:
    """The settings as `read_ddp` reads them."""
    mapping = {field.name: getattr(ddp, field.name) for field in fields(Ddp)}
    return mapping | {"optimizer": optimizer_mapping(ddp.optimizer)}


def optimizer_mapping(optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer as `read_optimizer` reads it."""
    plain = {"type": optimizer.name, "fused": optimizer.fused or optimizer.name not in ("Adam", "AdamW")}
    momentum = {"momentum": 0.9} if optimizer.name == "SGD" and optimizer.state_bytes else {}
    return plain | momentum


def read_optimizer(document: Document, given: str | OptimizerSchema) -> Optimizer:
    """The optimizer under the key `optimizer` of the document's settings."""
    settings = OptimizerSchema(type=given) if isinstance(given, str) else given
    path = ("optimizer",) if isinstance(given, str) else ("optimizer", "type")
    if settings.type.lower() not in (name.lower() for name in _KNOWN):
        expected = f"an optimizer: {', '.join(_KNOWN)}"
        raise InputError([document.problem(path, f'"{settings.type}"', expected, likely(settings.type, _KNOWN))])
    return optimizer(settings.type, torch_adam=not settings.fused, momentum=settings.momentum > 0)
