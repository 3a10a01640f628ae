"""Reading the catalogue's YAML files, and what to say of a name that is not in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from zerosim.errors import ZerosimError, nearest


class UnknownNameError(ZerosimError):
    """The catalogue has no such entry."""


def load(name: str) -> Mapping[str, Any]:
    """The content of a YAML file of this package."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return MappingProxyType(loaded)


@cache
def sources() -> Mapping[str, str]:
    """What each source key stands for."""
    return load("sources.yaml")


def unknown(what: str, name: str, known: Sequence[str]) -> UnknownNameError:
    """The error for a name that is not there."""
    near = nearest(name, known)
    return UnknownNameError(f'no {what} "{name}" in the catalogue' + (f"; nearest {near}" if near else ""))
