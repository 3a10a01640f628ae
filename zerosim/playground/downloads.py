"""What can be kept of a played state: the scenario, its DeepSpeed JSON, the trace. Each is exactly what is shown.

The scenario stands on its own: a machine or model that no catalogue has is in it, a calibration too. What the user
wrote and no knob turned is in both files as it was written (`turned`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping

import yaml

from zerosim.errors import InputError, Problem
from zerosim.playground.player import Played
from zerosim.playground.start import Start
from zerosim.playground.turned import turned_batch, turned_text
from zerosim.report import trace
from zerosim.spec.calibration_file import calibration_mapping
from zerosim.spec.json_edit import edited
from zerosim.spec.strategy import DeepSpeed
from zerosim.studies.tuning.written import plain_counts


def scenario_yaml(played: Played, start: Start) -> bytes:
    """The scenario as `zerosim run` reads it."""
    text = dict(turned_text(start, played.state, played.simulation.scenario))
    if played.simulation.scenario.calibration is not None:
        text["calibration"] = calibration_mapping(played.simulation.scenario.calibration)
    return yaml.safe_dump(text, sort_keys=False, allow_unicode=True, width=110).encode()


def deepspeed_json(played: Played, start: Start) -> bytes:
    """The configuration in DeepSpeed's own keys, with the batch, which DeepSpeed wants there: the user's file, if there
    is one, with the values of the knobs that were turned."""
    scenario = played.simulation.scenario
    if not isinstance(scenario.strategy, DeepSpeed):
        raise InputError([Problem("DeepSpeed JSON", "strategy", str(played.state["strategy"]), "a ZeRO stage")])
    own = turned_text(start, played.state, scenario)["strategy"]["deepspeed"]
    data, text = {**own, **turned_batch(start, played.state, own, scenario)}, start.written.deepspeed
    return (edited(text, data) if text else json.dumps(plain_counts(data), indent=2) + "\n").encode()


def trace_json(played: Played, start: Start) -> bytes:
    """The trace for Perfetto and HolisticTraceAnalysis, packed."""
    timeline = played.simulation
    text = trace.text(timeline, timeline.classes[0])
    return gzip.compress(text.encode(), mtime=0)


DOWNLOADS: Mapping[str, Callable[[Played, Start], bytes]] = {
    "scenario": scenario_yaml,
    "deepspeed": deepspeed_json,
    "trace": trace_json,
}
