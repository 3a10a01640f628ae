"""What users give as a model, to a `Model`: a catalogue name, a Hugging Face config.json, a list of parameters,
numbers, or a size.

Only shapes are read; weights are not looked for. What is not modelled is refused by name, with the way out that always
works: giving the numbers inline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.architectures import FAMILIES, bert
from zerosim.spec.architectures.config import Config
from zerosim.spec.document import Document, shown
from zerosim.spec.loading import parse
from zerosim.spec.model import Model
from zerosim.spec.model_list import from_list, nearly_list
from zerosim.spec.model_shape import from_numbers, from_size

_INLINE = "give its numbers inline: {layers: 32, hidden: 4096, heads: 32, ...}"
_MARKS = ("model_type", "architectures", "hidden_size", "n_embd", "d_model", "vocab_size", "transformers_version")
_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", bert.CLASSIFIER, bert.BARE)
_PARTS = ("text_config", "vision_config", "audio_config", "text_config_dict")


def read_model(document: Document) -> Model:
    """The model that a document describes, whichever of the four forms it has."""
    data = document.data
    if not isinstance(data, Mapping):
        expected = "a mapping: a config.json, {layers, hidden, heads, ...}, {parameters: [...]} or {parameters: 7e9}"
        raise InputError([document.problem((), shown(data), expected)])
    if isinstance(data.get("parameters"), list):
        model = from_list(document)
    elif any(name in data for name in _MARKS):
        model = _from_config(document)
    elif nearly_list(data):
        model = from_list(document)
    elif any(nearest(str(key), ("parameters",)) for key in data):
        model = from_size(document)
    else:
        model = from_numbers(document)
    return replace(model, name=_name(document))


@lru_cache(4)  # a sweep asks for one again and again
def catalogue_model(name: str) -> Model:
    """A model by its name in the catalogue."""
    entries = _catalogue()
    if name not in entries:
        known = model_names()
        expected = f"one of the {len(known)} models of the catalogue, a path to a config.json, or numbers inline"
        raise InputError([Problem("model", "", f'"{name}"', expected, nearest(name.casefold(), known))])
    entry = entries[name]
    model = _from_config(Document(f"catalogue: {name}", entry["config"]))
    return replace(model, name=name, notes=(*model.notes, *filter(None, [entry.get("note")])))


def model_names() -> tuple[str, ...]:
    """All names in the catalogue, sorted."""
    return tuple(sorted(_catalogue()))


def model_source(name: str) -> str:
    """Where the catalogue's figures of a model are from."""
    source: str = _catalogue()[name]["source"]
    return source


@cache
def _catalogue() -> Mapping[str, Mapping[str, Any]]:
    text = files("zerosim.catalog").joinpath("models.yaml").read_text(encoding="utf-8")
    return MappingProxyType(parse(text, "zerosim/catalog/models.yaml").data)


def _from_config(document: Document) -> Model:
    parts = [name for name in _PARTS if name in document.data]
    if parts:
        found = f"a model of several parts ({', '.join(parts)})"
        raise InputError([document.key_problem((parts[0],), found, f"one decoder or encoder; {_INLINE}")])
    kind = document.data.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise InputError([_unknown_kind(document, kind)])
    config = Config(document)
    model, head = family(config), config.head()
    if not head or head.endswith(_HEADS):
        return model
    return replace(model, notes=(*model.notes, f"the head of {head} is not modelled; the family's usual one is taken"))


def _unknown_kind(document: Document, kind: object) -> Problem:
    known = ", ".join(FAMILIES)
    if kind is None:
        return document.problem(("model_type",), "nothing", f"one of {known}; or {_INLINE}")
    found = f"{shown(kind)}, an architecture that is not modelled"
    close = nearest(kind, tuple(FAMILIES)) if isinstance(kind, str) else ""
    return document.problem(("model_type",), found, f"one of {known}; or {_INLINE}", close)


def _name(document: Document) -> str:
    """What the file calls itself, else what the file is called."""
    given, said = document.data.get("name"), document.data.get("_name_or_path")
    if isinstance(given, str) and given and isinstance(document.data.get("parameters"), list):
        return given
    path = PurePath(document.source)
    called = path.parent.name or path.stem if path.name == "config.json" else path.stem
    return PurePath(said).name if isinstance(said, str) and PurePath(said).name else called
