"""Which hardware a tool's words and numbers mean: product names, PCI ids, platforms, cpuid, numbers of NVLinks.

Rule: it answers with names of hardware.yaml, or with nothing; it never guesses beyond recognise.yaml. What to assume
where nothing is recognised is the asker's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from zerosim.catalog.data import load
from zerosim.catalog.hardware import gpus, nics


class Product(NamedTuple):
    """A GPU: its entry in hardware.yaml, or the one that stands for it with other figures."""

    gpu: str
    name: str = ""  # of a product that hardware.yaml does not have
    figures: Mapping[str, Any] = MappingProxyType({})
    vague: str = ""  # another GPU that the same words may mean


class Platform(NamedTuple):
    """A machine that a cloud or a vendor sells."""

    words: str
    gpu: str
    gpus: int
    nic: str


class Surroundings(NamedTuple):
    """What usually stands around a GPU."""

    cpu: str
    dram_bytes: float
    nic: str
    desktop: str = ""  # the CPU of a machine with one socket


class Shared(NamedTuple):
    """GPUs that show the same number of NVLinks: the most usual, and the names of the others."""

    product: Product
    others: tuple[str, ...]


def product(text: str) -> Product | None:
    """The GPU whose name stands in a text."""
    return next((found for words, found in _products() if words.search(text)), None)


def products(text: str) -> tuple[Product, ...]:
    """All different GPUs that a text names; the longest name where several begin at one place."""
    ends = 0
    found: list[Product] = []
    known = enumerate(_products())
    hits = [(hit.start(), -hit.end(), place) for place, (words, _) in known for hit in words.finditer(text)]
    for start, end, place in sorted(hits):
        if start >= ends:
            ends = -end
            found.append(_products()[place][1])
    return tuple({each.name or each.gpu: each for each in found}.values())


def product_by_pci(vendor: str, device: str) -> Product | None:
    """The GPU of a PCI vendor and device, such as "0x10de" and "0x20b2"."""
    wanted = _pci(vendor, device)
    return next((_product(entry) for entry in _entries("products") if wanted in entry.get("pci", ())), None)


def platform(text: str) -> Platform | None:
    """The machine that a text names."""
    for entry in _entries("platforms"):
        hit = _words(entry["words"]).search(text)
        if hit:
            return Platform(hit[0], entry["gpu"], entry["gpus"], entry["nic"])
    return None


def port_sold_with(gpu: str, kind: str) -> str:
    """The network port of a kind that a machine with such GPUs is sold with; "" where there is none."""
    nic_names = (entry["nic"] for entry in _entries("platforms") if entry["gpu"] == gpu)
    return next((name for name in nic_names if nics()[name].kind == kind), "")


def by_nvlinks(links: int, one_peer: bool) -> Shared | None:
    """The GPU that shows so many NVLinks (of all peers together), or the next that has more."""
    table: Mapping[int, Any] = _tables()["nvlinks"]
    fitting = [number for number in sorted(table) if number >= links]
    if not fitting:
        return None
    entry = table[fitting[0]]
    chosen = entry.get("pairs", entry["gpu"]) if one_peer else entry["gpu"]
    known = dict.fromkeys([entry["gpu"], *([entry["pairs"]] if "pairs" in entry else []), *entry.get("others", ())])
    meant = Product(chosen) if chosen in gpus() else product(chosen)
    return meant and Shared(meant, tuple(name for name in known if name != chosen))


def by_capability(sm: int, nvlink: bool, display: bool) -> str | None:
    """The most usual GPU of a compute capability (80 for 8.0)."""
    entry = _tables()["capabilities"].get(sm)
    if entry is None:
        return None
    if display and "display" in entry:
        return str(entry["display"])
    return str(entry["gpu"] if nvlink else entry.get("pcie", entry["gpu"]))


def surroundings(gpu: str) -> Surroundings:
    """What usually stands around a GPU of hardware.yaml."""
    entry = _tables()["usual"][gpu]
    return Surroundings(entry["cpu"], entry["dram_gb"] * 1e9, entry["nic"], entry.get("desktop", ""))


def cpu(vendor: str, family: int, model: int) -> tuple[str, str] | None:
    """The CPU of a vendor, family and model; what else has the same numbers."""
    for entry in _entries("cpus"):
        low, high = entry["models"]
        if entry["vendor"] == vendor and family in entry["family"] and low <= model <= high:
            return entry["cpu"], entry.get("also", "")
    return None


def adapter(vendor: str, device: str) -> str | float | None:
    """A port of hardware.yaml, or a rate in bytes/s."""
    found = _tables()["adapters"].get(_pci(vendor, device))
    return found if found is None or isinstance(found, str) else float(found) * 1e9 / 8


def nic_kind(name: str) -> str:
    """The kind of a network port by its name; "" where that says nothing."""
    kinds = (entry["kind"] for entry in _entries("names") if re.match(entry["words"], name, re.IGNORECASE))
    return next(kinds, "")


def hybrid_cube_mesh() -> tuple[tuple[int, int, int], ...]:
    """The pairs of a DGX-1 with the number of links between them."""
    return tuple((a, b, links) for a, b, links in _tables()["hybrid_cube_mesh"])


def _pci(vendor: str, device: str) -> str:
    return f"{vendor.lower().removeprefix('0x')}:{device.lower().removeprefix('0x')}"


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])", re.IGNORECASE)


def _product(entry: Mapping[str, Any]) -> Product:
    if "like" in entry:
        return Product(entry["like"], entry["name"], MappingProxyType(entry["figures"]))
    return Product(entry["gpu"], vague=entry.get("vague", ""))


@cache
def _products() -> tuple[tuple[re.Pattern[str], Product], ...]:
    return tuple((_words(entry["words"]), _product(entry)) for entry in _entries("products"))


def _entries(section: str) -> Iterable[Mapping[str, Any]]:
    entries: list[Mapping[str, Any]] = _tables()[section]
    return entries


@cache
def _tables() -> Mapping[str, Any]:
    return load("recognise.yaml")
