"""Resolved values of a scenario as plain data, in the keys of a scenario file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from zerosim.spec.ddp import ddp_mapping
from zerosim.spec.deepspeed_mapping import as_mapping
from zerosim.spec.fsdp_mapping import fsdp_mapping
from zerosim.spec.hierarchical_file import KEY as HIERARCHICAL
from zerosim.spec.hierarchical_file import hierarchical_mapping
from zerosim.spec.launch import Launch
from zerosim.spec.launch_file import launch_text
from zerosim.spec.pipeline import pipeline_mapping
from zerosim.spec.release_file import release_text
from zerosim.spec.strategy import Ddp, Fsdp, HierarchicalZero1, Pipeline, Strategy
from zerosim.spec.training import Training


def scenario_text(
    title: str, topology: Any, nodes: int | None, gpus: int | None, model: Any, training: Training, strategy: Strategy,
    calibration: Any = None, launch: Launch | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A whole scenario; topology and model, which have no other form, as they were given; `launch` if it was given."""
    text = {
        "title": title,
        "topology": topology,
        "nodes": nodes,
        "gpus": gpus,
        "model": model,
        "training": asdict(training),
        "strategy": strategy_text(strategy, training),
        "versions": release_text(strategy),
        "launch": None if launch is None else launch_text(launch),
        "calibration": calibration,
    }
    return {key: value for key, value in text.items() if value is not None}


def strategy_text(strategy: Strategy, training: Training) -> dict[str, Any]:
    """The `strategy` section that reads as this value."""
    if isinstance(strategy, Ddp):
        return {"ddp": ddp_mapping(strategy)}
    if isinstance(strategy, HierarchicalZero1):
        return {HIERARCHICAL: hierarchical_mapping(strategy)}
    if isinstance(strategy, Fsdp):
        return {"fsdp": fsdp_mapping(strategy)}
    if isinstance(strategy, Pipeline):
        return {"pipeline": pipeline_mapping(strategy)}
    return {"deepspeed": as_mapping(strategy, training.precision)}
