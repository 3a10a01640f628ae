"""What a sweep asks of one process at a time, and the answer as plain data, which is what a journal keeps.

Rule: the answer depends on nothing but the question, the scenario and the files it names, all of which are in the key.
Whatever goes wrong with one question is its answer.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from zerosim.errors import InputError, Problem, ZerosimError
from zerosim.scenario import Scenario, from_document
from zerosim.simulation import Simulation, no_collection, programs, simulate
from zerosim.spec.changes import Change
from zerosim.spec.document import Document
from zerosim.spec.files import is_file
from zerosim.spec.sweep import Sweep, lasting
from zerosim.spec.topology_file import find_topology, topology_names
from zerosim.step import Step
from zerosim.studies.journal import Answer
from zerosim.studies.requirement import least_rate
from zerosim.views import Summary

Files = Mapping[str, str]
ERROR = "error"
LARGEST_FIRST = ("stalls", "waits")  # lists of a summary of which a row has the first
MACHINE = ("topology", "nodes", "gpus", "launch", "calibration")  # parts of a scenario on which prices hang
MOST = 32  # played steps that are kept: some megabytes each
CODED = ("findings",)  # lists of which it has the codes


class Question(NamedTuple):
    """A `row` of a sweep, the `seconds` of a step, or the `rate` of a resource that a step needs."""

    kind: Literal["row", "seconds", "rate"]
    changes: tuple[Change, ...]
    resource: str = ""
    slowdown: float = 0.0
    baseline_seconds: float = 0.0

    @classmethod
    def of(cls, kind: Literal["row", "seconds", "rate"], changes: Iterable[Change], *more: Any) -> Question:
        """Equal for changes that lead to the same."""
        return cls(kind, lasting(changes), *more)

    def key(self, digest: str) -> str:
        """Equal for equal questions about equal scenarios."""
        kind, changes, *more = self
        parts = [digest, kind, [[change.path, change.value] for change in changes], more]
        return sha256(json.dumps(parts).encode()).hexdigest()


class _Written(NamedTuple):
    """The last programs, what they were written `of`, and what was `played` of them."""

    of: Any
    steps: tuple[Step, ...]
    played: dict[str, Simulation]


class Answering:
    """Answers questions about one scenario. It keeps the last programs: the next question is most often about the same
    ones on another machine. And what was played of them, by machine: other settings may write the same programs."""

    def __init__(self, document: Document, base: Path, files: Files = MappingProxyType({})) -> None:
        """`files` are those that answers depend on, as who asks has them: another machine may have others."""
        self.document = document
        self.base = base
        self.files = files
        self._alike = False
        self._written = _Written(None, (), {})

    def __reduce__(self) -> tuple[Any, ...]:
        """What it keeps stays where it is; who answers may stand in another folder."""
        return Answering, (self.document, self.base.absolute(), dict(self.files))

    def __call__(self, question: Question) -> Answer:
        """Plain data, whatever happens: a row that is wrong is no reason to lose the others."""
        with no_collection():
            try:
                return self._answer(question)
            except ZerosimError as error:
                return {ERROR: str(error)}
            except Exception as error:
                return {ERROR: defect(error)}
            finally:
                gc.collect(0)  # what a question leaves is the youngest: a fraction of looking through all that is kept

    def _check(self) -> None:
        """Whether the files are those of who asks, once."""
        expected = "the same file here as where it was asked"
        wrong = [
            Problem(name, found="another file" if is_file(Path(name)) else "no file", expected=expected)
            for name, content in self.files.items()
            if not self._alike and _content(Path(name)) != content
        ]
        if wrong:
            raise InputError(wrong)
        self._alike = True

    def _answer(self, question: Question) -> Answer:
        self._check()
        scenario = from_document(self.document, self.base, question.changes)
        match question.kind:
            case "seconds":
                return {"step_seconds": self._played(scenario).makespan}
            case "rate":
                return least_rate(scenario, question.resource, question.slowdown, question.baseline_seconds).as_json()
            case "row":
                return flat(self._played(scenario).summary())

    def _played(self, scenario: Scenario) -> Simulation:
        of = (scenario.strategy, scenario.model, scenario.training, scenario.world_size, scenario.ranks_per_node)
        known = self._written  # which another thread may replace
        if of != known.of:
            steps = programs(scenario)
            alike = steps == known.steps
            self._written = known = _Written(of, known.steps if alike else steps, known.played if alike else {})
        machine = json.dumps([scenario.text.get(name) for name in MACHINE], default=str)
        if machine not in known.played:
            if len(known.played) == MOST:
                known.played.pop(next(iter(known.played)), None)
            known.played[machine] = simulate(scenario, known.steps)
        return replace(known.played[machine], scenario=scenario)


def defect(error: Exception) -> str:
    """A mistake of ours in one line, with its place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"


def flat(summary: Summary) -> Answer:
    """A summary by dotted key: `breakdown.compute`, `memory.gpu.peak_at.op`, `stalls.0.cause`; findings by code."""
    told = summary.as_json()
    for name in CODED:
        told[name] = " ".join(each["code"] for each in told[name])
    for name in LARGEST_FIRST:
        told[name] = {"0": told[name][0]} if told[name] else {}
    return dict(_leaves(told, ()))


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from _leaves(branch, (*path, key))
    elif not isinstance(tree, list):
        yield ".".join(path), tree


def digest(sweep: Sweep, version: str) -> str:
    """Of all that answers depend on beside the changes: the scenario, files that are named anywhere, who answers."""
    machines = [_content(find_topology(text)) for text in _named(sweep) if text in topology_names()]
    contents = [*files_of(sweep).values(), *machines]
    return sha256(json.dumps([version, sweep.document.data, contents]).encode()).hexdigest()


def files_of(sweep: Sweep) -> Files:
    """The user's own files that are named anywhere: absolute path and what is in it, as a digest."""
    named = [sweep.base / text for text in _named(sweep) if text.endswith((".yaml", ".yml", ".json"))]
    return {str(file.absolute()): _content(file) for file in named if is_file(file)}


def _named(sweep: Sweep) -> list[str]:
    return sorted(set(_texts([sweep.document.data, [change.value for change in _all_changes(sweep)]])))


def _content(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest() if is_file(file) else ""


def _all_changes(sweep: Sweep) -> Iterator[Change]:
    for axis in sweep.axes:
        for choice in axis.choices:
            yield from choice.changes
    yield from sweep.always
    for group in (sweep.against, sweep.wanted, *sweep.listed):
        yield from group.changes if group else ()


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping | list):
        for branch in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _texts(branch)
