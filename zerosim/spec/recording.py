"""A recorded training step to values: what was run (model, training, strategy, ranks) and which collectives it issued.

A recording is one run of a real framework with a small model: its configuration, its modules and parameters, and the
events of some steps in the order of their issue. The last steps are alike (stage 3 traces modules in the first, DDP
rebuilds its buckets in the second), so the third is taken. Of its events only the facts of the model go into the
`Model`: which modules are called in which order, and when gradients are ready. The collectives are kept apart, to be
compared with; nothing that is built from a recording may look at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from zerosim.errors import InputError
from zerosim.spec.document import shown
from zerosim.spec.loading import read_log, validated
from zerosim.spec.model import Model
from zerosim.spec.recording_events import Event, Issued, collectives
from zerosim.spec.recording_model import Network, network_of
from zerosim.spec.recording_strategy import Run, run_of

STEADY = 2  # place of the third step


class _Part(BaseModel):
    """Of a recording only what is needed is read; it holds more."""

    model_config = ConfigDict(frozen=True)


class _Step(_Part):
    events: list[Event] = Field(min_length=1)


class _Recording(_Part):
    config: dict[str, Any]
    model: Network
    steps: list[_Step] = Field(min_length=1)
    extra: dict[str, Any] = {}
    versions: dict[str, str | None] = {}


class NotPlayedError(InputError):
    """The recording is whole, but its configuration is one that zerosim refuses."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What was run, and the collectives of its steady step. `notes`: what to know of a comparison, a sentence each."""

    source: str
    model: Model
    run: Run
    collectives: tuple[Issued, ...]
    notes: tuple[str, ...] = ()


def read_recording(path: str | Path) -> Recording:
    """The recording in a file. InputError where it is none, NotPlayedError where its configuration is refused."""
    document = read_log(path)
    if not isinstance(document.data, Mapping):
        expected = "a mapping with config, model and steps, as of a recorded step"
        raise InputError([document.problem((), shown(document.data), expected)])
    read = validated(document, _Recording)
    steps = read.steps
    events = steps[min(STEADY, len(steps) - 1)].events
    model = network_of(read.model, events)
    try:
        run = run_of(document.below("config"), read.extra, read.versions, read.model, events)
    except InputError as error:
        raise NotPlayedError(error.problems) from None
    recorded, rebuilt = collectives(events, run.rebuilds_late)
    notes = list(run.notes)
    if len(steps) <= STEADY:
        notes.append(f"step {len(steps)} is compared, the last; the third is the first that is like those after it")
    if rebuilt:
        notes.append(f"{rebuilt} broadcasts that rebuild DDP's buckets are left out: they are sent once in a run")
    return Recording(document.source, model, run, recorded, tuple(notes))
