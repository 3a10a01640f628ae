"""`leaf_module` of stage 3: modules that are fetched whole, by name; what can be said of those given by class.

Source: DeepSpeed 0.19.8 runtime/zero/leaf_module_config.py. A list may be one text. Modules have names here, but no
classes, so that a class picks none; the classes that DeepSpeed knows by itself are blocks of experts, which no model
here has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosim.errors import nearest
from zerosim.spec.deepspeed_values import Kind, Reading, RefusedError
from zerosim.spec.strategy import LeafModule

_KEYS = ("classes", "names", "name_suffixes")
_EXPECTED = f"a mapping of {', '.join(_KEYS)} to lists of texts"
_MOE = ("MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock")  # DEFAULT_LEAF_MODULE_CLASSES


def _read(given: Any) -> Reading:
    if given is None:
        return Reading(LeafModule())
    if not isinstance(given, Mapping):
        raise RefusedError(_EXPECTED)
    for key in given:
        if key not in _KEYS:
            raise RefusedError(_EXPECTED, nearest(str(key), _KEYS))
    texts = {key: _texts(given.get(key)) for key in _KEYS}
    return Reading(LeafModule(texts["names"], texts["name_suffixes"]))


def _texts(given: Any) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise RefusedError(_EXPECTED)
    return tuple(dict.fromkeys(listed))


LEAF_MODULE = Kind(_EXPECTED, _read)


def leaf_mapping(leaf: LeafModule) -> dict[str, Any] | None:
    """The key's value that reads as this; None for none."""
    return {key: list(texts) for key, texts in leaf._asdict().items() if texts} or None


def classes_of(given: Any) -> list[str]:
    """Classes that are asked for and that a model here might have."""
    classes = given.get("classes") if isinstance(given, Mapping) else None
    try:
        return [called for called in _texts(classes) if called.rpartition(".")[2] not in _MOE]
    except RefusedError:  # told when the key was read
        return []
