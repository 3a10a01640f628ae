"""What can be kept of a played state: the scenario, its DeepSpeed JSON, the trace. Each is exactly what is shown.

The scenario stands on its own: a machine or model that no catalogue has is in it, a calibration too.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from zerosim.errors import InputError, Problem
from zerosim.playground.player import Played
from zerosim.report import trace
from zerosim.spec.calibration_file import calibration_mapping
from zerosim.spec.deepspeed_batch import MICRO, STEPS
from zerosim.spec.strategy import DeepSpeed


def scenario_yaml(played: Played) -> bytes:
    """The scenario as `zerosim run` reads it."""
    scenario = played.simulation.scenario
    text = dict(scenario.text)
    if scenario.calibration is not None:
        text["calibration"] = calibration_mapping(scenario.calibration)
    return yaml.safe_dump(text, sort_keys=False, allow_unicode=True, width=110).encode()


def deepspeed_json(played: Played) -> bytes:
    """The configuration in DeepSpeed's own keys, with the batch, which DeepSpeed wants there."""
    scenario = played.simulation.scenario
    if not isinstance(scenario.strategy, DeepSpeed):
        raise InputError([Problem("DeepSpeed JSON", "strategy", str(played.state["strategy"]), "a ZeRO stage")])
    training = scenario.training
    batch = {MICRO: training.micro_batch_size, STEPS: training.gradient_accumulation_steps}
    data: dict[str, Any] = {**batch, **scenario.text["strategy"]["deepspeed"]}
    return (json.dumps(data, indent=2) + "\n").encode()


def trace_json(played: Played) -> bytes:
    """The trace for Perfetto and HolisticTraceAnalysis, packed."""
    timeline = played.simulation
    text = trace.text(timeline, timeline.classes[0])
    return gzip.compress(text.encode(), mtime=0)


DOWNLOADS: Mapping[str, Callable[[Played], bytes]] = {
    "scenario": scenario_yaml,
    "deepspeed": deepspeed_json,
    "trace": trace_json,
}
