"""Machines as tools print them, for the tests of the importers: a writer of `nvidia-smi topo -m`, and short helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from zerosim.errors import InputError
from zerosim.spec.document import Document
from zerosim.spec.importers import Imported, import_topology
from zerosim.spec.loading import parse
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology

Joins = Callable[[str, str], str]


def matrix(
    names: Sequence[str], joins: Joins, affinity: Mapping[str, Sequence[str]], sep: str = "\t", nic_rows: bool = True
) -> str:
    """The text of a machine; `affinity` holds the last columns of a row: cores, NUMA node, ..."""
    headings = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][: max(map(len, affinity.values()), default=0)]
    lines = [sep.join(["", *names, *headings])]
    for name in names:
        if name.startswith("GPU") or nic_rows:
            cells = [" X " if name == other else joins(name, other) for other in names]
            lines.append(sep.join([name, *cells, *affinity.get(name, ())]))
    return "\n".join(lines) + "\n"


def gpus(count: int) -> list[str]:
    return [f"GPU{index}" for index in range(count)]


def two_nodes(count: int) -> dict[str, tuple[str, ...]]:
    """The first half of the GPUs on NUMA node 0, the others on 1."""
    half = count // 2
    return {f"GPU{n}": ("0-15,32-47", "0", "N/A") if n < half else ("16-31,48-63", "1", "N/A") for n in range(count)}


def switched(count: int = 8, cell: str = "NV12") -> str:
    """GPUs that all have as many links to each other."""
    return matrix(gpus(count), lambda a, b: cell, two_nodes(count))


def taken(text: str | bytes, source: str = "box.txt", **wishes: Any) -> Imported:
    return import_topology(text.encode() if isinstance(text, str) else text, source, **wishes)


def data(text: str | bytes, source: str = "box.txt", **wishes: Any) -> Any:
    """What stands in the topology file."""
    return document(text, source, **wishes).data


def document(text: str | bytes, source: str = "box.txt", **wishes: Any) -> Document:
    return parse(taken(text, source, **wishes).text, "imported.yaml")


def machine(text: str | bytes, source: str = "box.txt", **wishes: Any) -> Topology:
    return read_topology(document(text, source, **wishes))


def refused(text: str | bytes, source: str = "box.txt", **wishes: Any) -> str:
    with pytest.raises(InputError) as caught:
        taken(text, source, **wishes)
    assert len(caught.value.problems) == 1
    return str(caught.value)
