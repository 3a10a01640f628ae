"""Layers spread over GPUs: `strategy: {pipeline: {stages: 8, schedule: naive | gpipe | 1f1b, zero_stage: 0 | 1}}`.

The micro-batches of a step are `training.gradient_accumulation_steps`, of any number in every schedule.
`parameter_dtype` and `optimizer` are the script's side of the matter, as in `ddp`. What a pipeline asks of the machine
and of the model is said once, here, for the scenario as it is read and as it is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from zerosim.errors import InputError
from zerosim.spec.ddp import OptimizerSchema, optimizer_mapping, read_optimizer
from zerosim.spec.document import Document
from zerosim.spec.loading import Schema, Whole, validated
from zerosim.spec.misfit import Misfit
from zerosim.spec.model import Model, Module
from zerosim.spec.optimizers import ADAMW
from zerosim.spec.strategy import Pipeline, Schedule


class _PipelineSchema(Schema):
    stages: Annotated[Whole, Field(ge=1)]
    schedule: Schedule = "naive"
    zero_stage: Literal[0, 1] = 0
    parameter_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    optimizer: str | OptimizerSchema = ADAMW.name


def read_pipeline(document: Document, precision: str, world_size: int | None, model: Model | None) -> Pipeline:
    """The settings, for a run in `precision`, or an InputError with all their problems; None is what is not known."""
    settings = validated(document, _PipelineSchema)
    pipeline = Pipeline(
        stages=settings.stages,
        schedule=settings.schedule,
        zero_stage=settings.zero_stage,
        parameter_dtype=settings.parameter_dtype,
        optimizer=read_optimizer(document, settings.optimizer),
    )
    wrong = misfits(pipeline, precision, world_size, model)
    problems = [document.problem((each.key,), each.found, each.expected) for each in wrong]
    if problems:
        raise InputError(problems)
    return pipeline


def misfits(pipeline: Pipeline, precision: str, world_size: int | None, model: Model | None) -> Iterator[Misfit]:
    """What does not go with the precision, the number of GPUs, the model."""
    stages = pipeline.stages
    if pipeline.parameter_dtype not in ("fp32", precision):
        expected = f"fp32, or {precision} as training.precision"
        yield Misfit("parameter_dtype", pipeline.parameter_dtype, expected)
    if world_size is not None and world_size % stages:
        yield Misfit("stages", str(stages), f"a number that divides the {world_size} GPUs")
    if model is None or stages == 1:
        return
    homes, blocks = _stacks(model.root)
    if homes > 1:  # the decoder's stages would need what the encoder made
        expected = f"1, as {model.name} has {homes} stacks of blocks: only a single one is cut into stages"
        yield Misfit("stages", str(stages), expected)
    elif stages > blocks:
        yield Misfit("stages", str(stages), f"at most {blocks}, the blocks of {model.name}")


def _stacks(root: Module) -> tuple[int, int]:
    """Modules that hold blocks (an encoder and a decoder are two), and blocks."""
    held = [sum(isinstance(part, Module) and part.block for part in module.body) for module in root.walk()]
    return sum(count > 0 for count in held), sum(held)


def pipeline_mapping(pipeline: Pipeline) -> dict[str, Any]:
    """The settings as `read_pipeline` reads them."""
    mapping = {field.name: getattr(pipeline, field.name) for field in fields(Pipeline)}
    return mapping | {"optimizer": optimizer_mapping(pipeline.optimizer)}
