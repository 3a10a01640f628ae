"""The best as a file: a DeepSpeed JSON that differs from the scenario's own in what was tuned alone, or a scenario.

A DeepSpeed JSON has the text of the file that the scenario names, so that order, numbers as they were written, "auto"
and keys that nobody tuned stay. Of a strategy that has no such file the whole scenario is written, as plain data that
reproduces the step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from zerosim.scenario import Scenario
from zerosim.spec.changes import Change
from zerosim.spec.deepspeed_batch import MICRO, STEPS
from zerosim.spec.files import read_text
from zerosim.spec.json_edit import edited
from zerosim.spec.scenario_parts import DEEPSPEED, Parts
from zerosim.spec.strategy import DeepSpeed
from zerosim.studies.tuning.asked import Asked
from zerosim.studies.tuning.places import Places

INTEGRAL = 1000  # floats from here on that are whole are written as whole numbers: 500000000, not 5e8 or 500000000.0
YAML, JSON = (".yaml", ".yml"), (".json",)


@dataclass(frozen=True, slots=True)
class Config:
    """What is written. `deepspeed` is its text where that is a DeepSpeed JSON, else ""; `beside` are the changes of the
    scenario that no such file can say, or that `training` says too; `own` are the user's, of which the file has
    those of DeepSpeed's keys; `data` is the content, whichever it is."""

    data: Mapping[str, Any]
    deepspeed: str
    scenario: Mapping[str, Any]
    beside: tuple[Change, ...]
    own: tuple[Change, ...] = ()

    def text(self, path: Path) -> str:
        """What is written to a path: a scenario where it is called .yaml or .yml, or where there is nothing else."""
        if self.deepspeed and path.suffix.lower() not in YAML:
            return self.deepspeed
        plain = _rebased(self.scenario, path.parent)
        if path.suffix.lower() in JSON:
            return json.dumps(plain, indent=2) + "\n"
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)

    def is_scenario(self, path: Path) -> bool:
        """Whether a scenario is written there."""
        return not self.deepspeed or path.suffix.lower() in YAML

    def sets(self, path: Path, base: Path) -> list[str]:
        """What `--set` needs to run the scenario with the DeepSpeed JSON at a path."""
        file = os.path.relpath(path, base)
        replaced = (DEEPSPEED, *(each.path for each in self.beside))
        own = (each.text for each in self.own if not any(each.path[: len(part)] == part for part in replaced))
        return [*own, f"strategy.deepspeed={file}", *(f"{'.'.join(each.path)}={each.value}" for each in self.beside)]


def config_of(asked: Asked, best: Scenario, changes: Sequence[Change]) -> Config:
    """The best, with the changes that make it, as a file."""
    whole = _with_calibration(best, asked.base)
    if not isinstance(best.strategy, DeepSpeed):
        return Config(whole, "", whole, ())
    before = Places.of(asked.document, asked.base, asked.changes)
    data = dict(Places.of(asked.document, asked.base, (*asked.changes, *changes)).deepspeed)
    batch = {MICRO: best.training.micro_batch_size, STEPS: best.training.gradient_accumulation_steps}
    tuned = any(change.path[-1] in ("micro_batch_size", MICRO) for change in changes)
    if tuned or not before.has_batch:
        data |= batch
    given = Parts.of(asked.document, asked.base, asked.changes).given(DEEPSPEED)
    text = edited(read_text(asked.base / given), data) if isinstance(given, str) else ""
    data = plain_counts(data)
    beside = tuple(change for change in changes if change.path[0] == "training")
    return Config(data, text or json.dumps(data, indent=2) + "\n", whole, beside, asked.changes)


def plain_counts(value: Any) -> Any:
    """Plain data in which counts are whole numbers, as DeepSpeed wants them."""
    if isinstance(value, Mapping):
        return {str(key): plain_counts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain_counts(each) for each in value]
    whole = isinstance(value, float) and value >= INTEGRAL and value == int(value)
    return int(value) if whole else value


def _with_calibration(scenario: Scenario, base: Path) -> dict[str, Any]:
    """The scenario's text; the path of a calibration as it is seen from here."""
    text = dict(scenario.text)
    if isinstance(text.get("calibration"), str):
        text["calibration"] = str((base / text["calibration"]).resolve())
    return text


def _rebased(text: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same with the path as it is seen from a folder, in which the scenario is read."""
    plain = dict(text)
    if isinstance(plain.get("calibration"), str):
        plain["calibration"] = os.path.relpath(plain["calibration"], folder.resolve())
    return plain
