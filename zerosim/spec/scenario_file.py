"""Reading a scenario: the file, the files it names, the changes of `--set`; every mistake of all of them at once.

Each part is read on its own and its problems collected; what depends on a part that failed is read without it, so that
one mistake hides no other. Values given in `training` and in the DeepSpeed file meet here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from zerosim.errors import Finding, InputError, Problem, nearest
from zerosim.spec.changes import Change, attributed, parse_change
from zerosim.spec.ddp import read_ddp
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_schema import ALIASES, ZERO
from zerosim.spec.deepspeed_top import KNOWN
from zerosim.spec.document import Document, by_place
from zerosim.spec.launch_file import LaunchRead, read_launch
from zerosim.spec.loading import Schema, Whole, validated
from zerosim.spec.model import Model
from zerosim.spec.model_file import catalogue_model, read_model
from zerosim.spec.pipeline import read_pipeline
from zerosim.spec.scenario_parts import MODEL, Part, Parts
from zerosim.spec.scenario_text import scenario_text
from zerosim.spec.strategy import DeepSpeed, Strategy
from zerosim.spec.tiers import lacking_tier
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology
from zerosim.spec.training import MOST_PASSES, Training
from zerosim.spec.training_file import (
    DEFAULTS,
    SHARED,
    TrainingSchema,
    own_values,
    read_training,
    taken,
    training_findings,
)
from zerosim.units import show_count

T = TypeVar("T")
_Positive = Annotated[Whole, Field(ge=1)]
_SIMULATED, _NOT_YET = ("deepspeed", "ddp", "pipeline"), ("fsdp",)


def _one_line(title: str) -> str:
    if not title.isprintable():
        raise ValueError("one line of text that can be printed")
    return title


class ScenarioSchema(Schema):
    """A scenario file; its parts are looked at by their own readers."""

    topology: str | dict[str, Any]
    model: str | dict[str, Any]
    training: dict[str, Any]
    strategy: dict[str, Any]
    title: Annotated[str, AfterValidator(_one_line)] = ""
    nodes: _Positive | None = None
    gpus: _Positive | None = None
    calibration: str | None = None
    launch: dict[str, Any] | None = None


@dataclass(slots=True)
class _Notebook:
    """What one reading comes upon."""

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

    def has(self, section: str, *kinds: type) -> bool:
        """Whether there is a section of a kind that its reader takes; else the schema of the scenario complains."""
        data = self.document.data
        return isinstance(data, Mapping) and isinstance(data.get(section), (Mapping, *kinds))


def read(document: Document, base: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a Scenario, or an InputError with all problems."""
    notebook = _Notebook(Parts.of(document, base, [parse_change(text) for text in changes]))
    values = _values(notebook)
    if notebook.problems:
        sources = list(dict.fromkeys([document.source, *(problem.source for problem in notebook.problems)]))
        ordered = sorted(notebook.problems, key=lambda problem: (sources.index(problem.source), by_place(problem)))
        raise InputError(dict.fromkeys(ordered))
    return values


def _values(book: _Notebook) -> dict[str, Any]:
    head = book.attempt(lambda: validated(book.document, ScenarioSchema))
    machine = book.attempt(lambda: _read(book.parts.topology(), read_topology)) if book.has("topology", str) else None
    model = book.attempt(lambda: _model(book.parts)) if book.has("model", str) else None
    settings = book.attempt(lambda: read_training(book.document)) if book.has("training") else None
    topology = book.attempt(lambda: _selected(book.document, machine, head)) if machine and head else None
    run = book.attempt(lambda: _strategy(book, topology, model, settings)) if book.has("strategy") else None
    launch = book.attempt(lambda: _launch(book.document, run[0] if run else DeepSpeed()))
    if run and topology:
        book.attempt(lambda: _tiers(book.document, run[0], topology))
    if settings and model:
        book.attempt(lambda: _positions(book.document, settings, model))
    if not (head and machine and model and settings and topology and run and launch) or book.problems:
        return {}
    strategy, shared = run
    if not book.attempt(lambda: _playable(book.document, shared["gradient_accumulation_steps"], model)):
        return {}
    training = Training(**own_values(settings), **shared)
    said = taken(settings, training, shared="deepspeed" not in book.document.data["strategy"])
    book.assumptions += [text for text in (said, launch.assumption) if text] + [*topology.notes, *model.notes]
    book.findings += [*training_findings(training), *launch.findings]
    calibration = _calibration(book, head)
    title = head.title or Path(book.document.source).stem
    machine_text, model_text = book.parts.plain_topology(), book.parts.plain_model(model.name)
    text = scenario_text(title, machine_text, head.nodes, head.gpus, model_text, training, strategy, calibration,
                         launch.launch if book.document.data.get("launch") else None)  # fmt: skip
    return {
        "title": title,
        "machine": machine,
        "nodes": head.nodes,
        "gpus": head.gpus,
        "topology": topology,
        "model": model,
        "training": training,
        "strategy": strategy,
        "text": text,
        "findings": tuple(book.findings),
        "assumptions": tuple(dict.fromkeys(book.assumptions)),
        "source": book.document.source,
        "calibration": calibration,
        "launch": launch.launch,
    }


def _read(part: Part, reader: Callable[[Document], T]) -> T:
    """What `reader` makes of a part; what is wrong where a change was made is the change's fault."""
    try:
        return reader(part.document)
    except InputError as error:
        raise InputError(attributed(error.problems, part.changes)) from None


def _model(parts: Parts) -> Model:
    part = parts.model()  # tells a wrong name with its place
    if parts.is_name(MODEL):
        return catalogue_model(parts.given(MODEL))
    model = _read(part, read_model)
    given = parts.given(MODEL)
    if isinstance(given, Mapping) and "_name_or_path" not in given:  # nothing has a name there: its size is one
        return replace(model, name=f"{show_count(model.numel)} parameters")
    return model


def _launch(document: Document, strategy: Strategy) -> LaunchRead:
    given = document.data.get("launch") if isinstance(document.data, Mapping) else None
    if not isinstance(given, Mapping):  # nothing, or the schema of the scenario complains
        return read_launch(replace(document, data={}, at=("launch",)), strategy)
    return read_launch(document.below("launch"), strategy)


def _tiers(document: Document, strategy: Strategy, topology: Topology) -> None:
    lacking = lacking_tier(strategy, topology)
    if lacking:
        raise InputError([document.problem(("topology",), lacking.found, lacking.expected)])


def _selected(document: Document, machine: Topology, head: ScenarioSchema) -> Topology:
    """The nodes and GPUs that the scenario asks for; what is wrong with them is wrong in the scenario."""
    try:
        return machine.select(head.nodes, head.gpus)
    except InputError as error:
        places = [
            document.problem((wrong.path,), wrong.found, wrong.expected, wrong.nearest)
            if wrong.path in document.data else wrong
            for wrong in error.problems
        ]  # fmt: skip
        raise InputError(places) from None


def _positions(document: Document, settings: TrainingSchema, model: Model) -> None:
    longest = model.max_positions
    if longest is not None and settings.sequence_length > longest:
        expected = f"at most {longest}, the learnt positions of {model.name}"
        found = str(settings.sequence_length)
        raise InputError([document.problem(("training", "sequence_length"), found, expected)])


def _playable(document: Document, micro_steps: int, model: Model) -> bool:
    """Whether the step is not too long to be played."""
    most = MOST_PASSES // model.layers
    if micro_steps > most:
        expected = f"at most {most} for {model.layers} layers, which is the longest step that can be played"
        raise InputError([document.problem(("training", "gradient_accumulation_steps"), str(micro_steps), expected)])
    return True


def _strategy(
    book: _Notebook, topology: Topology | None, model: Model | None, settings: TrainingSchema | None
) -> tuple[Strategy, dict[str, Any]]:
    """The strategy, and the values of `training` that its file and the scenario have in common."""
    kind = _kind(book.document)
    world = len(topology.gpus) if topology else None
    if kind != "deepspeed":
        shared = {name: getattr(settings, name, None) or default for name, default in DEFAULTS.items()}
        section = book.document.below("strategy", kind)
        section = section if section.data is not None else replace(section, data={})
        if kind == "pipeline":
            return read_pipeline(section, shared["precision"], world, model), shared
        return read_ddp(section, shared["precision"]), shared
    values: dict[str, Any] = {name: getattr(settings, name, None) for name in SHARED}
    places = {name: _place(book, name) for name in SHARED if values[name] is not None}
    given = Given(world, model.hidden if model else None, **values, places=places)
    if model:
        given = replace(given, parameters=model.parameters)
    if settings:
        called, kept = settings.checkpoint_function, settings.activation_checkpointing
        given = replace(given, checkpoint_function=called, activation_checkpointing=kept)
    _known_changes([*book.parts.outer, *book.parts.inner])
    part = book.parts.deepspeed()
    result = _read(part, lambda document: read_deepspeed(document, given))
    book.findings += [*part.findings, *result.findings]
    return result.deepspeed, dict(result.training_values)


def _kind(document: Document) -> str:
    """The one strategy that is asked for."""
    section = document.below("strategy")
    known = (*_SIMULATED, *_NOT_YET)
    given = list(section.data) if isinstance(section.data, Mapping) else []
    unknown = [
        section.key_problem((key,), f'unknown key "{key}"', f"one of {', '.join(known)}", nearest(str(key), known))
        for key in given if key not in known
    ]  # fmt: skip
    if unknown:
        raise InputError(unknown)
    if len(given) != 1:
        raise InputError([section.problem((), " and ".join(given) or "nothing", f"exactly one of {', '.join(known)}")])
    if given[0] in _NOT_YET:
        message = f"{', '.join(_SIMULATED[:-1])} or {_SIMULATED[-1]}; {given[0]} is not simulated yet"
        raise InputError([section.key_problem((given[0],), given[0], message)])
    return str(given[0])


def _known_changes(changes: Sequence[Change]) -> None:
    """A top-level key that a change sets must be one of DeepSpeed's; in a file it may be anything."""
    wrong = []
    for change in changes:
        if change.path[:2] == ("strategy", "deepspeed") and len(change.path) > 2 and change.path[2] not in KNOWN:
            key = change.path[2]
            close = f"zero_optimization.{key}" if key in ZERO or key in ALIASES else nearest(key, KNOWN)
            found = f'unknown key "{key}"'
            wrong.append(Problem(f"--set {change.text}", ".".join(change.path), found, "a key of DeepSpeed", close))
    if wrong:
        raise InputError(wrong)


def _calibration(book: _Notebook, head: ScenarioSchema) -> str | None:
    if head.calibration is None:
        return None
    message = f"calibration: {head.calibration} is not read; all constants are the catalogue's."
    book.findings.append(Finding("not-modelled", "warning", message))
    return str(book.parts.base / head.calibration)


def _place(book: _Notebook, name: str) -> str:
    """Where a value of `training` stands: "scenario.yaml:8"."""
    (problem,) = attributed([book.document.problem(("training", name))], book.parts.outer)
    return problem.source if problem.line is None else f"{problem.source}:{problem.line}"
