"""Measured values to print beside a ladder: a YAML file, by rung.

`{ZeRO-1: {peak_bytes: 47 GB, relative_throughput: 1.0, fits: true}, ...}`; any of the keys of a rung.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.document import Document, by_place, shown
from zerosim.spec.loading import Schema, Seconds, Size, read, validated
from zerosim.studies.rung_names import DDP, HIERARCHICAL, LAYER_WISE, ONE_GPU, fsdp_names, pipeline_names, zero_names

_OFFLOADED = ("ZeRO-3 + offload", "ZeRO-3 + offload all", "ZeRO-3 + NVMe")
RUNGS = (ONE_GPU, DDP, "ZeRO-1", "ZeRO-2", "ZeRO-3", *_OFFLOADED, LAYER_WISE)

_Number = Annotated[float, Field(gt=0)]


class Measured(Schema):
    """What was measured of one rung."""

    fits: bool | None = None
    model_states_bytes: Annotated[Size, Field(gt=0)] | None = None
    peak_bytes: Annotated[Size, Field(gt=0)] | None = None
    step_seconds: Annotated[Seconds, Field(gt=0)] | None = None
    tokens_per_second: _Number | None = None
    relative_throughput: _Number | None = None


def read_reference(path: str) -> dict[str, dict[str, Any]]:
    """The measured values by rung; InputError with every mistake in the file."""
    document = read(path)
    if not isinstance(document.data, Mapping):
        expected = "measured values by rung, e.g. ZeRO-1: {peak_bytes: 47 GB}"
        raise InputError([document.problem((), shown(document.data), expected)])
    problems: list[Problem] = []
    measured = {rung: _measured(document, rung, problems) for rung in document.data}
    if problems:
        raise InputError(sorted(problems, key=by_place))
    return measured


def _measured(document: Document, rung: str, problems: list[Problem]) -> dict[str, Any]:
    """What is said of one rung, after noting what is wrong there."""
    known = (*RUNGS, *zero_names(), HIERARCHICAL, *fsdp_names(), *pipeline_names())
    if rung not in known:
        close = next((name for name in known if name.casefold() == rung.casefold()), nearest(rung, known))
        found = f'unknown rung "{rung}"'
        expected = f"one of {', '.join(RUNGS)}, or that of the scenario's own strategy, such as FSDP FULL_SHARD"
        problems.append(document.key_problem((rung,), found, expected, close))
        return {}
    try:
        return validated(document.below(rung), Measured).model_dump(exclude_none=True)
    except InputError as error:
        problems += error.problems
        return {}
