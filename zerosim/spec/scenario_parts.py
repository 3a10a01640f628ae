"""The parts of a scenario that are a mapping, a path or a name: topology, model, DeepSpeed's and FSDP's configuration.

A path is relative to the scenario file. Changes of `--set` that lead into a part are made there, wherever it came
from: `topology.node.nics.bandwidth=...` loads the file of a named topology and changes it. Nothing here knows what the
parts mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import Finding, InputError, Problem, nearest
from zerosim.spec.changes import Change, changed
from zerosim.spec.deepspeed_text import read_file
from zerosim.spec.document import Document, shown
from zerosim.spec.fabric import MOST_NODES
from zerosim.spec.files import is_file, neighbour
from zerosim.spec.fsdp_accelerate import in_file
from zerosim.spec.fsdp_schema import SCRIPT, named
from zerosim.spec.loading import parse, read
from zerosim.spec.model_file import model_names
from zerosim.spec.topology_file import find_topology, topology_names

Place = tuple[str, ...]
TOPOLOGY, MODEL, DEEPSPEED, FSDP = ("topology",), ("model",), ("strategy", "deepspeed"), ("strategy", "fsdp")
CALIBRATION: Place = ("calibration",)
FSDP_FILE = (*FSDP, "config_file")
_PLACES: tuple[Place, ...] = (TOPOLOGY, MODEL, DEEPSPEED, FSDP, FSDP_FILE)
_SUFFIXES = (".yaml", ".yml", ".json")

_CONFIG_KEYS: Mapping[str, tuple[str, ...]] = {  # what inline models call it: what a config.json may call it
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "ffn": ("intermediate_size", "n_inner", "d_ff", "ffn_dim"),
    "vocab": ("vocab_size",),
    "tied_embeddings": ("tie_word_embeddings",),
}
_CONFIG_MARKS = ("model_type", "architectures", "vocab_size")
_NAME = "_name_or_path"  # what Hugging Face's config.json calls itself


class Part(NamedTuple):
    """A part as a document, the changes made in it (paths from its own root), and what its file made worth saying."""

    document: Document
    changes: Sequence[Change] = ()
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """A scenario's document after the changes `outer`; `inner` are those that lead into files it names."""

    document: Document
    base: Path
    outer: tuple[Change, ...]
    inner: tuple[Change, ...]

    @classmethod
    def of(cls, document: Document, base: Path, changes: Sequence[Change]) -> Parts:
        """The parts after `changes`, in order."""
        outer: list[Change] = []
        inner: list[Change] = []
        for change in (_of_fsdp(document.data, change) for change in changes):
            if any(_leads_into(document.data, place, change) for place in _PLACES):
                inner.append(change)
            else:
                document, done = changed(document, [change])
                outer += done
        return cls(document, base, tuple(outer), tuple(inner))

    def given(self, place: Place) -> Any:
        """What the scenario has at `place`; None where there is nothing."""
        return _at(self.document.data, place)

    def is_name(self, place: Place) -> bool:
        """Whether the catalogue's own thing is meant, unchanged."""
        named = isinstance(self.given(place), str) and Path(self.given(place)).suffix not in _SUFFIXES
        return named and not self.inside(place)

    def inside(self, place: Place) -> tuple[Change, ...]:
        """The changes that lead into the file named at `place`."""
        return tuple(change.below(len(place)) for change in self.inner if change.path[: len(place)] == place)

    def topology(self) -> Part:
        """The topology, with as many nodes as the scenario asks for where some of them are overridden."""
        part = self._topology()
        nodes, data = self.given(("nodes",)), part.document.data
        node = data.get("node") if isinstance(data, Mapping) and data.get("overrides") else None
        if isinstance(nodes, int) and isinstance(node, Mapping) and _fewer(node.get("count", 1), nodes):
            grown = {**data, "node": {**node, "count": nodes}}
            part = part._replace(document=replace(part.document, data=grown))
        return part

    def _topology(self) -> Part:
        given = self.given(TOPOLOGY)
        if not isinstance(given, str):
            return Part(self.document.below(*TOPOLOGY))
        known = topology_names()
        if Path(given).suffix in _SUFFIXES:
            file = self._path(TOPOLOGY, given)
        elif given in known:
            file = find_topology(given)
        else:
            raise self._no_such_name(TOPOLOGY, "a topology: a name, a path or a mapping", known)
        return self._changed(TOPOLOGY, read(file))

    def model(self) -> Part:
        """The model; its names in a config.json may be changed by the names of inline models."""
        given = self.given(MODEL)
        if not isinstance(given, str):
            return Part(self.document.below(*MODEL))
        known = model_names()
        if Path(given).suffix in _SUFFIXES and given not in known:
            document = read(self._path(MODEL, given))
        elif given in known:
            document = _catalogue_model(given)
        else:
            raise self._no_such_name(MODEL, "a model: a name, a path to a config.json or a mapping", known)
        return self._changed(MODEL, document, _in_config(document, self.inside(MODEL)))

    def calibration(self) -> Document:
        """What was measured of the machine."""
        given = self.given(CALIBRATION)
        return read(self._path(CALIBRATION, given)) if isinstance(given, str) else self.document.below(*CALIBRATION)

    def deepspeed(self) -> Part:
        """The DeepSpeed configuration."""
        given = self.given(DEEPSPEED)
        if isinstance(given, Mapping):
            return Part(self.document.below(*DEEPSPEED))
        if not isinstance(given, str):
            raise InputError(
                [self.document.problem(DEEPSPEED, shown(given), "a path or a mapping of DeepSpeed's keys")]
            )
        path = self._path(DEEPSPEED, given)
        document, findings = read_file(path, str(path))
        return self._changed(DEEPSPEED, document)._replace(findings=findings)

    def fsdp(self) -> tuple[Part, Document | None]:
        """The FSDP settings, and what the scenario says beside a file of them."""
        given = self.given(FSDP)
        if isinstance(given, str):
            return self._fsdp_file(FSDP, given), None
        if not isinstance(given, Mapping):
            expected = "a path to an accelerate file, or a mapping of FSDP's keys"
            raise InputError([self.document.problem(FSDP, shown(given), expected)])
        section = self.document.below(*FSDP)
        if FSDP_FILE[-1] not in given:
            return Part(section), None
        file = given[FSDP_FILE[-1]]
        if not isinstance(file, str):
            raise InputError([self.document.problem(FSDP_FILE, shown(file), "a path to an accelerate file")])
        own = {key: value for key, value in given.items() if key != FSDP_FILE[-1]}
        return self._fsdp_file(FSDP_FILE, file), replace(section, data=own)

    def _fsdp_file(self, place: Place, given: str) -> Part:
        document = read(self._path(place, given))
        changes = [change._replace(path=in_file(document.data, change.path)) for change in self.inside(place)]
        return self._changed(place, document, changes)

    def plain_topology(self) -> Any:
        """The topology as plain data that stands on its own: a name that comes with zerosim, or the whole mapping."""
        return self.given(TOPOLOGY) if self.is_name(TOPOLOGY) else deepcopy(self.topology().document.data)

    def plain_model(self, name: str) -> Any:
        """The model likewise; a config.json keeps the name that its file gave it."""
        if self.is_name(MODEL):
            return self.given(MODEL)
        data = deepcopy(self.model().document.data)
        return {**data, _NAME: name} if _is_config(data) else data

    def _changed(self, place: Place, document: Document, changes: Sequence[Change] | None = None) -> Part:
        return Part(*changed(document, self.inside(place) if changes is None else changes))

    def _path(self, place: Place, given: str) -> Path:
        path = self.base / given
        if is_file(path):
            return path
        below = "this folder" if self.base == Path() else str(self.base)
        raise InputError([self.document.problem(place, shown(given), f"a file below {below}", neighbour(path))])

    def _no_such_name(self, place: Place, expected: str, known: Sequence[str]) -> InputError:
        given = self.given(place)
        return InputError([self.document.problem(place, shown(given), expected, nearest(given.casefold(), known))])


def _fewer(count: Any, nodes: int) -> bool:
    return isinstance(count, int) and 0 < count < nodes <= MOST_NODES


def _leads_into(data: Any, place: Place, change: Change) -> bool:
    return change.path[: len(place)] == place and len(change.path) > len(place) and isinstance(_at(data, place), str)


def _of_fsdp(data: Any, change: Change) -> Change:
    """A key that no script has a word in stands in the file of accelerate, where there is one."""
    depth = len(FSDP)
    if change.path[:depth] != FSDP or len(change.path) == depth or not isinstance(_at(data, FSDP_FILE), str):
        return change
    key = change.path[depth]
    beside = key == FSDP_FILE[-1] or named(key) in SCRIPT
    return change if beside else change._replace(path=(*FSDP_FILE, *change.path[depth:]))


def _at(data: Any, place: Place) -> Any:
    for key in place:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _catalogue_model(name: str) -> Document:
    """The config.json behind a name, to be changed."""
    text = files("zerosim.catalog").joinpath("models.yaml").read_text(encoding="utf-8")
    config = parse(text, name).data[name]["config"]
    return Document(name, {**config, _NAME: name})


def _is_config(data: Any) -> bool:
    return isinstance(data, Mapping) and any(mark in data for mark in _CONFIG_MARKS)


def _in_config(document: Document, changes: Sequence[Change]) -> list[Change]:
    """Changes of a config.json by its own keys; readers of it ignore keys they do not know, so slips are told here."""
    data = document.data
    if not _is_config(data):
        return list(changes)
    made, wrong = [], []
    for change in changes:
        key = change.path[0]
        name = next((name for name in (key, *_CONFIG_KEYS.get(key, ())) if name in data), "")
        known = [*map(str, data), *_CONFIG_KEYS]
        if name:
            made.append(change._replace(path=(name, *change.path[1:])))
        else:
            found, expected = f'unknown key "{key}"', f"a key of {document.source}"
            wrong.append(Problem(change.source, key, found, expected, nearest(key, known)))
    if wrong:
        raise InputError(wrong)
    return made
