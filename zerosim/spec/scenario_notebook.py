"""What one reading of a scenario comes upon: its parts, and problems, findings and assumptions of all of them.

A part that is wrong ends only its own reading: `attempt` notes its problems, so that one mistake hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from zerosim.errors import Finding, InputError, Problem
from zerosim.spec.changes import attributed
from zerosim.spec.document import Document
from zerosim.spec.scenario_parts import Part, Parts

T = TypeVar("T")


@dataclass(slots=True)
class Notebook:
    """`parts` are the scenario's, after the changes of `--set`."""

    parts: Parts
    problems: list[Problem] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    @property
    def document(self) -> Document:
        return self.parts.document

    def attempt(self, read: Callable[[], T]) -> T | None:
        """What `read` gives, or None after noting its problems."""
        try:
            return read()
        except InputError as error:
            self.problems += attributed(error.problems, self.parts.outer)
            return None

    def section(self, name: str) -> Any:
        """What stands there; None where there is nothing, or no scenario."""
        data = self.document.data
        return data.get(name) if isinstance(data, Mapping) else None

    def has(self, name: str, *kinds: type) -> bool:
        """Whether there is a section of a kind that its reader takes; else the schema of the scenario complains."""
        return isinstance(self.section(name), (Mapping, *kinds))

    def place(self, name: str) -> str:
        """Where a value of `training` stands: "scenario.yaml:8"."""
        (problem,) = attributed([self.document.problem(("training", name))], self.parts.outer)
        return problem.source if problem.line is None else f"{problem.source}:{problem.line}"


def read_part(part: Part, reader: Callable[[Document], T]) -> T:
    """What `reader` makes of a part; what is wrong where a change was made is the change's fault."""
    try:
        return reader(part.document)
    except InputError as error:
        raise InputError(attributed(error.problems, part.changes)) from None
