"""The `strategy` section of a scenario, with `versions`: one of several strategies, each by the reader of its settings.

DeepSpeed's file and accelerate's share values with `training` (precision, batch, checkpointing); what both say meets
here. The other strategies say nothing of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.changes import Change
from zerosim.spec.ddp import read_ddp
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_schema import ALIASES, ZERO
from zerosim.spec.deepspeed_top import KNOWN
from zerosim.spec.document import Document
from zerosim.spec.fsdp import Beside, read_fsdp, unknown_change
from zerosim.spec.hierarchical_file import KEY as HIERARCHICAL
from zerosim.spec.hierarchical_file import read_hierarchical
from zerosim.spec.model import Model
from zerosim.spec.pipeline import read_pipeline
from zerosim.spec.release_file import SECTION as VERSIONS
from zerosim.spec.release_file import UNREAD, ReleaseRead, read_release
from zerosim.spec.scenario_notebook import Notebook, read_part
from zerosim.spec.strategy import Strategy
from zerosim.spec.topology import Topology
from zerosim.spec.training_file import DEFAULTS, SHARED, TrainingSchema


class Around(NamedTuple):
    """What the strategy runs on and what `training` says; None where that could not be read."""

    topology: Topology | None
    model: Model | None
    settings: TrainingSchema | None

    @property
    def world_size(self) -> int | None:
        return len(self.topology.gpus) if self.topology else None

    def said(self, name: str) -> Any:
        """A value of `training`; None where nobody gave it."""
        return getattr(self.settings, name) if self.settings and name in self.settings.model_fields_set else None

    @property
    def shared(self) -> dict[str, Any]:
        """What a strategy's file might have said too, by `training` alone."""
        return {name: self.said(name) or default for name, default in DEFAULTS.items()}


class Chosen(NamedTuple):
    """The strategy; values of training as it and `training` have them together, and which of them it has a word in."""

    strategy: Strategy
    training: Mapping[str, Any]
    told: frozenset[str] = frozenset()


def read_strategy(book: Notebook, around: Around) -> Chosen:
    """The one strategy that is asked for, or an InputError with what is wrong in it."""
    return _READERS[_kind(book.document)](book, around)


def _kind(document: Document) -> str:
    section, known = document.below("strategy"), tuple(_READERS)
    expected = ", ".join(known)
    unknown = [
        section.key_problem((key,), f'unknown key "{key}"', f"one of {expected}", nearest(str(key), known))
        for key in section.data if key not in known
    ]  # fmt: skip
    if unknown:
        raise InputError(unknown)
    if len(section.data) != 1:
        raise InputError([section.problem((), " and ".join(section.data) or "nothing", f"exactly one of {expected}")])
    return str(next(iter(section.data)))


def _section(book: Notebook, kind: str) -> Document:
    """Settings that stand in the scenario itself; an empty section has none."""
    section = book.document.below("strategy", kind)
    return section if section.data is not None else replace(section, data={})


# --- strategies that say nothing of training --------------------------------------------------------------------------


def _ddp(book: Notebook, around: Around) -> Chosen:
    return Chosen(read_ddp(_section(book, "ddp"), around.shared["precision"]), around.shared)


def _hierarchical(book: Notebook, around: Around) -> Chosen:
    return Chosen(read_hierarchical(_section(book, HIERARCHICAL), around.world_size), around.shared)


def _pipeline(book: Notebook, around: Around) -> Chosen:
    shared, section = around.shared, _section(book, "pipeline")
    return Chosen(read_pipeline(section, shared["precision"], around.world_size, around.model), shared)


# --- strategies whose file shares values with `training` --------------------------------------------------------------


def _deepspeed(book: Notebook, around: Around) -> Chosen:
    given = _given(book, around)
    _known_changes([*book.parts.outer, *book.parts.inner])
    release = book.attempt(lambda: _release(book)) or ReleaseRead(UNREAD)
    part = book.parts.deepspeed()
    result = read_part(part, lambda document: read_deepspeed(document, given, release.release))
    book.findings += [*part.findings, *release.findings, *result.findings]
    return Chosen(result.deepspeed, result.training_values, frozenset(result.training_values))


def _given(book: Notebook, around: Around) -> Given:
    model, settings = around.model, around.settings
    values: dict[str, Any] = {name: around.said(name) for name in SHARED}
    given = Given(around.world_size, model.hidden if model else None, **values, places=_places(book, values))
    if model:
        given = replace(given, parameters=model.parameters)
    if settings:
        called, kept = settings.checkpoint_function, settings.activation_checkpointing
        given = replace(given, checkpoint_function=called, activation_checkpointing=kept)
    return given


def _release(book: Notebook) -> ReleaseRead:
    return read_release(book.document.below(VERSIONS)) if book.has(VERSIONS) else ReleaseRead()


def _fsdp(book: Notebook, around: Around) -> Chosen:
    _known_changes([*book.parts.outer, *book.parts.inner])
    topology, shared = around.topology, around.shared
    values = {name: around.said(name) for name in ("precision", "activation_checkpointing", "reentrant")}
    beside = Beside(
        world_size=around.world_size,
        ranks_per_node=len(topology.nodes[0].gpus) if topology else None,
        nodes=len(topology.hosts) if topology else None,
        model=around.model,
        micro_steps=shared["gradient_accumulation_steps"],
        places=_places(book, values),
        **values,
    )
    part, own = book.parts.fsdp()
    result = read_part(part, lambda document: read_fsdp(document, beside, own))
    book.findings += result.findings
    book.assumptions += result.assumptions
    return Chosen(result.fsdp, shared | dict(result.training_values), frozenset(result.training_values))


def _places(book: Notebook, values: Mapping[str, Any]) -> dict[str, str]:
    """Where `training` says what it says."""
    return {name: book.place(name) for name, value in values.items() if value is not None}


_READERS: Mapping[str, Callable[[Notebook, Around], Chosen]] = {
    "deepspeed": _deepspeed,
    "fsdp": _fsdp,
    "ddp": _ddp,
    HIERARCHICAL: _hierarchical,
    "pipeline": _pipeline,
}


def _known_changes(changes: Sequence[Change]) -> None:
    """A top-level key that a change sets must be one of DeepSpeed's, or FSDP's; in a file it may be anything."""
    wrong = []
    for change in changes:
        wrong += unknown_change(change)
        if change.path[:2] == ("strategy", "deepspeed") and len(change.path) > 2 and change.path[2] not in KNOWN:
            key = change.path[2]
            close = f"zero_optimization.{key}" if key in ZERO or key in ALIASES else nearest(key, KNOWN)
            found = f'unknown key "{key}"'
            wrong.append(Problem(change.source, ".".join(change.path), found, "a key of DeepSpeed", close))
    if wrong:
        raise InputError(wrong)
