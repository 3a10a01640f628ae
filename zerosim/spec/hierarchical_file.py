"""Hierarchical ZeRO-1 in a scenario: `strategy: {hierarchical_zero1: {shard_size: 8, framework: internevo}}`.

Keys are Megatron-core's (core/distributed/distributed_data_parallel_config.py), with InternEvo's names for the same
things accepted; defaults are those of the framework: Megatron-core 0.16, and InternEvo's configs/_base_/models, which
overlap gradients and clip at 1.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from zerosim.errors import InputError
from zerosim.spec.ddp import OptimizerSchema, optimizer_mapping, read_optimizer
from zerosim.spec.document import Document
from zerosim.spec.hierarchical import Framework, HierarchicalZero1
from zerosim.spec.loading import Count, Schema, Whole, validated
from zerosim.spec.optimizers import ADAMW

KEY = "hierarchical_zero1"


class _HierarchicalSchema(Schema):
    shard_size: Annotated[Whole, Field(ge=1)]
    framework: Framework = "megatron"
    bucket_size: Annotated[Count, Field(ge=1)] | None = Field(
        None, validation_alias=AliasChoices("bucket_size", "reduce_bucket_size")
    )
    overlap_grad_reduce: bool | None = Field(
        None, validation_alias=AliasChoices("overlap_grad_reduce", "overlap_sync_grad")
    )
    overlap_param_gather: bool = Field(
        False, validation_alias=AliasChoices("overlap_param_gather", "overlap_sync_param")
    )
    grad_reduce_in_fp32: bool = False
    gradient_clipping: Annotated[float, Field(ge=0)] = 1.0
    optimizer: str | OptimizerSchema = ADAMW.name


def read_hierarchical(document: Document, world: int | None = None) -> HierarchicalZero1:
    """The settings, for a run on `world` GPUs, or an InputError with all their problems."""
    settings = validated(document, _HierarchicalSchema)
    problems = []
    if world is not None and world % settings.shard_size:
        expected = f"a number that divides the {world} GPUs"
        problems.append(document.problem(("shard_size",), str(settings.shard_size), expected))
    if settings.grad_reduce_in_fp32 and settings.framework == "internevo":
        expected = "false with framework: internevo, which reduces gradients in the model's dtype"
        problems.append(document.problem(("grad_reduce_in_fp32",), "true", expected))
    if problems:
        raise InputError(problems)
    overlap, size = settings.overlap_grad_reduce, settings.bucket_size
    return HierarchicalZero1(
        shard_size=settings.shard_size,
        framework=settings.framework,
        bucket_size=None if size is None else int(size),
        overlap_grad_reduce=settings.framework == "internevo" if overlap is None else overlap,
        overlap_param_gather=settings.overlap_param_gather,
        grad_reduce_in_fp32=settings.grad_reduce_in_fp32,
        gradient_clipping=settings.gradient_clipping,
        optimizer=read_optimizer(document, settings.optimizer),
    )


def hierarchical_mapping(strategy: HierarchicalZero1) -> dict[str, Any]:
    """The settings as `read_hierarchical` reads them."""
    values = {field.name: getattr(strategy, field.name) for field in fields(strategy) if field.name != "optimizer"}
    plain = {name: value for name, value in values.items() if value is not None}
    return plain | {"optimizer": optimizer_mapping(strategy.optimizer)}
