"""The constants of the cost model (costs.yaml) by dotted path, each with grade, source and meaning.

Rule: numbers only. A constant keeps its unit in its name (`t0_us`); no formula stands here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from zerosim.catalog.data import load, unknown


class Constant(NamedTuple):
    """A constant of the cost model."""

    value: float
    grade: str  # E, A, R, D, F: see sources.yaml
    source: tuple[str, ...]  # keys of sources.yaml
    meaning: str


def constant(path: str) -> float:
    """The number at a dotted path of costs.yaml: `constant("gemm.tile_m")`."""
    return described(path).value


def constants(path: str) -> Mapping[str, float]:
    """The numbers right below a dotted path: `constants("collectives.hop_us")["nvlink"]`."""
    if path not in _groups():
        raise unknown("group of constants", path, sorted(_groups()))
    return _groups()[path]


def described(path: str) -> Constant:
    """The constant at a dotted path with its grade, source and meaning."""
    if path not in all_constants():
        raise unknown("constant", path, sorted(all_constants()))
    return all_constants()[path]


@cache
def all_constants() -> Mapping[str, Constant]:
    """Every constant by dotted path."""
    return MappingProxyType(dict(_leaves(load("costs.yaml"), "")))


@cache
def _groups() -> Mapping[str, Mapping[str, float]]:
    groups: dict[str, dict[str, float]] = {}
    for path, entry in all_constants().items():
        group, _, name = path.rpartition(".")
        groups.setdefault(group, {})[name] = entry.value
    return {group: MappingProxyType(values) for group, values in groups.items()}


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Constant]]:
    for key, branch in tree.items():
        if "value" in branch:
            source = branch["source"]
            named = (source,) if isinstance(source, str) else tuple(source)
            yield f"{prefix}{key}", Constant(float(branch["value"]), branch["grade"], named, branch["meaning"])
        else:
            yield from _leaves(branch, f"{prefix}{key}.")
