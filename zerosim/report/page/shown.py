"""What a page is made of: an answer, and where it comes from, all of it plain values that others bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zerosim.timeline import Timeline
from zerosim.views.recorded import Answer


class Said(NamedTuple):
    """A text as it is, under a heading: a file that the user gave, another answer."""

    title: str
    text: str


class Origin(NamedTuple):
    """How a page is made again: the command, and the version of zerosim."""

    command: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """A step that was played, or measured: then there is no scenario. `settings`: the resolved scenario as plain data;
    `changes`: what was changed in the files `given`; `machine`: the topology in words; `ranks_per_node`: at most;
    `further`: what each of some commands tells, and the command.
    """

    timeline: Timeline
    summary: Answer
    settings: Mapping[str, Any] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    given: tuple[Said, ...] = ()
    machine: tuple[str, ...] = ()
    ranks_per_node: int = 1
    further: tuple[Said, ...] = ()
