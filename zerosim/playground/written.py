"""What the user wrote: the scenario as plain data that stands on its own, and the text of DeepSpeed's own file.

What the files of a scenario hold stands in their place, every value as it was written there. So what changes no step
(a learning rate, "auto", what other programs read) is there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerosim.scenario import Scenario
from zerosim.spec.calibration_file import calibration_mapping
from zerosim.spec.changes import Change
from zerosim.spec.document import Document
from zerosim.spec.files import read_text
from zerosim.spec.scenario_parts import DEEPSPEED, FSDP, FSDP_FILE, Parts

HERE = Path()


@dataclass(frozen=True, slots=True)
class Written:
    """`scenario` is the whole, `deepspeed` the text of DeepSpeed's own file, "" where there is none."""

    scenario: Mapping[str, Any]
    deepspeed: str = ""


def written(scenario: Scenario, document: Document, base: Path, changes: tuple[Change, ...]) -> Written:
    """What a document says, with the files that it names and after changes; it reads as `scenario`."""
    parts = Parts.of(document, base, changes)
    if parts.given(FSDP) is not None and _in_a_file(parts.given(FSDP)):  # of accelerate, whose keys no scenario has
        return Written(scenario.text)
    data = {"title": scenario.title, **plain(parts, scenario.model.name)}
    if scenario.calibration is not None:
        data["calibration"] = calibration_mapping(scenario.calibration)
    given = parts.given(DEEPSPEED)
    return Written(data, read_text(base / given) if isinstance(given, str) else "")


def plain(parts: Parts, model: str) -> dict[str, Any]:
    """A scenario's document as plain data that stands on its own; what has no value is not said."""
    data = {key: value for key, value in parts.document.data.items() if value is not None}
    data |= {"topology": parts.plain_topology(), "model": parts.plain_model(model)}
    if parts.given(DEEPSPEED) is not None:
        data["strategy"] = {DEEPSPEED[-1]: parts.deepspeed().document.data}
    return data


def _in_a_file(fsdp: Any) -> bool:
    return isinstance(fsdp, str) or FSDP_FILE[-1] in fsdp
