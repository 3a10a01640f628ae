"""The constants of the cost model (costs.yaml) by dotted path, each with grade, source and meaning.

Rule: numbers only. A constant keeps its unit in its name (`t0_us`); no formula stands here. Within `using`, other
numbers stand for some of them: what a cluster was measured to have, or a sample of what a constant might be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
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


_others: ContextVar[Mapping[str, float]] = ContextVar("others", default=MappingProxyType({}))
_read: ContextVar[set[str] | None] = ContextVar("read", default=None)


@contextmanager
def using(values: Mapping[str, float]) -> Iterator[None]:
    """Within it, `values` by dotted path stand for the catalogue's; UnknownNameError for a path it does not have.

    Scoped to the calling thread or coroutine, so that two prices taken at once do not see each other's.
    """
    for path in values:
        described(path)
    before = _others.set(MappingProxyType({**_others.get(), **values}))
    try:
        yield
    finally:
        _others.reset(before)


@contextmanager
def reading() -> Iterator[set[str]]:
    """Within it, the paths of the constants that are read, as they are read. Scoped as `using` is."""
    paths: set[str] = set()
    before = _read.set(paths)
    try:
        yield paths
    finally:
        _read.reset(before)


def constant(path: str) -> float:
    """The number at a dotted path of costs.yaml: `constant("gemm.tile_m")`."""
    others, read = _others.get(), _read.get()
    if read is not None:
        read.add(path)
    return others[path] if path in others else described(path).value


def constants(path: str) -> Mapping[str, float]:
    """The numbers right below a dotted path: `constants("collectives.hop_us")["nvlink"]`."""
    if path not in _groups():
        raise unknown("group of constants", path, sorted(_groups()))
    others, read = _others.get(), _read.get()
    group = _groups()[path]
    if others:
        group = MappingProxyType({name: others.get(f"{path}.{name}", value) for name, value in group.items()})
    return group if read is None else _Noted(path, group, read)


class _Noted(Mapping[str, float]):
    """A group of constants that notes which of them are read."""

    def __init__(self, path: str, group: Mapping[str, float], read: set[str]) -> None:
        self._path, self._group, self._read = path, group, read

    def __getitem__(self, name: str) -> float:
        self._read.add(f"{self._path}.{name}")
        return self._group[name]

    def __contains__(self, name: object) -> bool:  # whether it is there is no use of its value
        return name in self._group

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __len__(self) -> int:
        return len(self._group)


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
