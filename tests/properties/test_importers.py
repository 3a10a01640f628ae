"""Importers hold for every machine: what is written as a tool prints it is read as it was; what is cut is survived."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.imported import data, machine, matrix, switched, taken
from tests.unit.test_importers_xml import DUMP
from zerosim.errors import InputError
from zerosim.spec.loading import parse
from zerosim.spec.topology_file import read_topology


class Place(NamedTuple):
    """Where a device hangs: a socket, a tree of switches on it, a switch of that tree."""

    socket: int
    tree: int
    switch: int


class Box(NamedTuple):
    gpus: list[Place]
    nics: list[Place]
    pairs: dict[tuple[int, int], int]

    @property
    def places(self) -> dict[str, Place]:
        return {f"GPU{n}": at for n, at in enumerate(self.gpus)} | {f"NIC{n}": at for n, at in enumerate(self.nics)}

    def joins(self, a: str, b: str) -> str:
        one, other = self.places[a], self.places[b]
        ends = sorted((int(a[3:]), int(b[3:])))
        if a.startswith("GPU") and b.startswith("GPU") and (ends[0], ends[1]) in self.pairs:
            return f"NV{self.pairs[ends[0], ends[1]]}"
        if one.socket != other.socket:
            return "SYS"
        if one.tree != other.tree or not one.tree:  # tree 0 is none: on the socket itself
            return "NODE"
        return "PIX" if one.switch == other.switch else "PXB"

    def text(self, sep: str) -> str:
        rows = {f"GPU{n}": (f"{at.socket * 8}-{at.socket * 8 + 7}", str(at.socket)) for n, at in enumerate(self.gpus)}
        return matrix(list(self.places), self.joins, rows, sep)

    def groups(self, depth: int) -> set[frozenset[str]]:
        """Devices on one tree (1), or on one switch of a tree that has several (2)."""
        found: dict[tuple[int, ...], set[str]] = defaultdict(set)
        for name, at in self.places.items():
            if at.tree:
                found[(at.socket, at.tree, at.switch)[: depth + 1]].add(name)
        trees = self.groups(1) if depth == 2 else set()
        return {frozenset(names) for names in found.values() if len(names) > 1 and frozenset(names) not in trees}


PLACES = st.builds(Place, st.integers(0, 1), st.integers(0, 2), st.integers(0, 1))


def boxes(nvlink: bool) -> st.SearchStrategy[Box]:
    def linked(gpus: list[Place], nics: list[Place]) -> st.SearchStrategy[Box]:
        ends = [(a, b) for b in range(len(gpus)) for a in range(b)]
        pairs = st.dictionaries(st.sampled_from(ends), st.integers(1, 4)) if nvlink and ends else st.just({})
        return st.builds(Box, st.just(gpus), st.just(nics), pairs)

    parts = st.tuples(st.lists(PLACES, min_size=1, max_size=8), st.lists(PLACES, max_size=5))
    return parts.flatmap(lambda both: linked(*both))


ODD: dict[str, Callable[[str], str | bytes]] = {
    "as printed": str,
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "PowerShell": lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
    "prefixed": lambda text: re.sub("^", "[0] ", text, flags=re.MULTILINE),
    "underlined": lambda text: re.sub(r"^(\s*)(GPU0 *\t? *GPU1)", "\\1\x1b[4m\\2\x1b[0m", text),
}


def held(switch: dict[str, Any]) -> Iterator[str]:
    yield from (f"GPU{n}" for n in switch.get("gpus", ()))
    yield from (f"NIC{n}" for n in switch.get("nics", ()))
    for inner in switch.get("switches", ()):
        yield from held(inner)


@settings(deadline=None, max_examples=60)
@given(boxes(nvlink=False), st.sampled_from(["\t", "    "]), st.sampled_from(sorted(ODD)))
def test_a_machine_is_read_as_it_was_written(box: Box, sep: str, form: str) -> None:
    text = ODD[form](box.text(sep))
    node = data(text)["node"]
    switches = node["pcie"].get("switches", [])
    assert {frozenset(held(switch)) for switch in switches} == box.groups(1)
    inner = {frozenset(held(below)) for switch in switches for below in switch.get("switches", ())}
    assert inner == box.groups(2)
    used = sorted({at.socket for at in box.gpus})
    topology = machine(text)
    assert len(topology.gpus) == len(box.gpus)
    assert len(topology.devices("nic")) == len(box.nics)
    for name, at in box.places.items():
        if at.socket in used:
            socket = f"0.socket{used.index(at.socket)}"
            way = [link.target for link in topology.route(f"0.{name.lower()}", socket)]
            assert not any("socket" in device for device in way[:-1])


@settings(deadline=None, max_examples=60)
@given(boxes(nvlink=True))
def test_links_are_read_as_they_were_written(box: Box) -> None:
    nvlink = data(box.text("\t"))["node"]["nvlink"]
    alike = len(set(box.pairs.values())) == 1 and len(box.pairs) == len(box.gpus) * (len(box.gpus) - 1) // 2
    if not box.pairs:
        assert nvlink == {"kind": "none"}
    elif alike and len(box.gpus) > 2:
        assert nvlink["kind"] in ("mesh", "switch")
    elif max(sum(links for ends, links in box.pairs.items() if gpu in ends) for gpu in range(len(box.gpus))) <= 18:
        assert {(a, b): links for a, b, links in nvlink["pairs"]} == box.pairs  # more would lead to NVSwitches


def survived(given_text: str) -> None:
    """Read to a topology that reads back, or refused in words."""
    told: InputError | None = None
    try:
        text = taken(given_text).text
    except InputError as error:
        told = error
    if told is None:
        read_topology(parse(text, "t"))
    else:
        assert all(problem.found and problem.expected for problem in told.problems)
        assert "as a topology" not in str(told)  # what is written must be readable


@settings(deadline=None, max_examples=80)
@given(st.data(), st.sampled_from(["\t", "  "]))
def test_a_text_that_is_cut_anywhere_is_survived(draw: st.DataObject, sep: str) -> None:
    text = draw.draw(boxes(nvlink=True)).text(sep)
    for _ in range(draw.draw(st.integers(1, 4))):
        first = draw.draw(st.integers(0, len(text)))
        last = draw.draw(st.integers(first, min(len(text), first + 40)))
        text = text[:first] + draw.draw(st.sampled_from(["", "\n", "?", "NV", "GPU9", "\t\t"])) + text[last:]
    survived(text)


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_an_xml_with_other_values_is_survived(draw: st.DataObject) -> None:
    places = [(hit.start(1), hit.end(1)) for hit in re.finditer(r'="([^"]*)"', DUMP)]
    values = ["", "0", "-1", "x", "1e99", "0x10", "16 GT/s", "NaN", "0000:10:00.0", "0x030200", "9" * 30]
    text = DUMP
    for start, end in sorted(draw.draw(st.lists(st.sampled_from(places), max_size=5, unique=True)), reverse=True):
        text = text[:start] + draw.draw(st.sampled_from(values)) + text[end:]
    survived(text)


def test_a_thousand_times_the_same_costs_little() -> None:
    """Tables are read line by line: the work grows with the text."""
    long = "log line without a table\n" * 3000 + switched()
    assert data(long) == data(switched())
