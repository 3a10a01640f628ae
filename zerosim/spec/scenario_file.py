"""Reading a scenario: the file, the files it names, the changes of `--set`; every mistake of all of them at once.

Each part is read on its own and its problems collected; what depends on a part that failed is read without it, so that
one mistake hides no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from zerosim.errors import InputError
from zerosim.spec.calibration import Calibration
from zerosim.spec.calibration_file import read_calibration
from zerosim.spec.changes import Change, parse_change
from zerosim.spec.document import Document, by_place
from zerosim.spec.launch_file import LaunchRead, read_launch
from zerosim.spec.loading import Schema, Whole, validated
from zerosim.spec.model import Model
from zerosim.spec.model_file import catalogue_model, model_names, read_model
from zerosim.spec.release_file import SECTION as VERSIONS
from zerosim.spec.release_file import idle_versions
from zerosim.spec.scenario_notebook import Notebook, read_part
from zerosim.spec.scenario_parts import MODEL, Parts
from zerosim.spec.scenario_strategy import Around, read_strategy
from zerosim.spec.scenario_text import scenario_text
from zerosim.spec.strategy import DeepSpeed, Strategy
from zerosim.spec.tiers import lacking_tier
from zerosim.spec.topology import Topology
from zerosim.spec.topology_facts import noted
from zerosim.spec.topology_file import read_topology
from zerosim.spec.training import MOST_PASSES, Training
from zerosim.spec.training_file import TrainingSchema, own_values, read_training, taken, training_findings
from zerosim.units import show_count

_Positive = Annotated[Whole, Field(ge=1)]


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
    calibration: str | dict[str, Any] | None = None
    launch: dict[str, Any] | None = None
    versions: dict[str, Any] | None = None


def read(document: Document, base: Path, changes: Sequence[str | Change] = ()) -> dict[str, Any]:
    """The fields of a Scenario, or an InputError with all problems."""
    if isinstance(document.data, Mapping) and document.data.keys() & {"axes", "points"}:
        expected = "topology, model, training, strategy"
        raise InputError([document.problem((), "a sweep", expected, "zerosim sweep")])
    made = [parse_change(change) if isinstance(change, str) else change for change in changes]
    notebook = Notebook(Parts.of(document, base, made))
    values = _values(notebook)
    if notebook.problems:
        sources = list(dict.fromkeys([document.source, *(problem.source for problem in notebook.problems)]))
        ordered = sorted(notebook.problems, key=lambda problem: (sources.index(problem.source), by_place(problem)))
        raise InputError(dict.fromkeys(ordered))
    return values


def _values(book: Notebook) -> dict[str, Any]:
    head = book.attempt(lambda: validated(book.document, ScenarioSchema))
    machine = (
        book.attempt(lambda: read_part(book.parts.topology(), read_topology)) if book.has("topology", str) else None
    )
    model = book.attempt(lambda: _model(book.parts)) if book.has("model", str) else None
    settings = book.attempt(lambda: read_training(book.document)) if book.has("training") else None
    topology = book.attempt(lambda: _selected(book.document, machine, head)) if machine and head else None
    around = Around(topology, model, settings)
    run = book.attempt(lambda: read_strategy(book, around)) if book.has("strategy") else None
    launch = book.attempt(lambda: _launch(book, run.strategy if run else DeepSpeed()))
    calibration = book.attempt(lambda: _calibration(book.parts)) if book.has("calibration", str) else None
    if run and topology:
        book.attempt(lambda: _tiers(book.document, run.strategy, topology))
    if settings and model:
        book.attempt(lambda: _positions(book.document, settings, model))
    if not (head and machine and model and settings and topology and run and launch) or book.problems:
        return {}
    strategy = run.strategy
    if not book.attempt(lambda: _playable(book.document, run.training["gradient_accumulation_steps"], model)):
        return {}
    training = Training(**{**own_values(settings), **run.training})
    said = taken(settings, training, run.told)
    book.assumptions += [text for text in (said, launch.assumption) if text] + [*noted(topology), *model.notes]
    book.findings += [*training_findings(training), *launch.findings]
    book.findings += idle_versions(book.section(VERSIONS) or {}, strategy)
    title = head.title or Path(book.document.source).stem
    machine_text, model_text = book.parts.plain_topology(), book.parts.plain_model(model.name)
    text = scenario_text(title, machine_text, head.nodes, head.gpus, model_text, training, strategy, head.calibration,
                         launch.launch if book.section("launch") else None)  # fmt: skip
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


def _model(parts: Parts) -> Model:
    if parts.is_name(MODEL) and parts.given(MODEL) in model_names():
        return catalogue_model(parts.given(MODEL))
    model = read_part(parts.model(), read_model)  # which tells a wrong name with its place
    given = parts.given(MODEL)
    if isinstance(given, Mapping) and not given.keys() & {"name", "_name_or_path"}:  # its size is a name, then
        return replace(model, name=f"{show_count(model.numel)} parameters")
    return model


def _launch(book: Notebook, strategy: Strategy) -> LaunchRead:
    if not book.has("launch"):  # nothing, or the schema of the scenario complains
        return read_launch(replace(book.document, data={}, at=("launch",)), strategy)
    return read_launch(book.document.below("launch"), strategy)


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


def _calibration(parts: Parts) -> Calibration:
    """What `zerosim calibrate` wrote, or the same inline."""
    return read_calibration(parts.calibration())
