"""One resource of a scenario's machine, at any rate: which it is, what it is today, the most that it can be, and free.

A rate is written into the topology as `--set` would, so that whatever hangs on it (uplinks of switches, efficiencies of
ports, algorithms of collectives) goes with it. Where another part bounds the rate (a port cannot be faster than the
PCIe behind it) a free one is that most, with its own share in the time of a step taken away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerosim import catalog
from zerosim.errors import InputError, Problem, nearest
from zerosim.resources import Supply
from zerosim.scenario import Scenario
from zerosim.spec.changes import Change, changed
from zerosim.spec.document import Document
from zerosim.spec.loading import inline
from zerosim.spec.scenario_notebook import read_part
from zerosim.spec.scenario_parts import Part, Parts
from zerosim.spec.topology import Topology
from zerosim.spec.topology_file import read_topology
from zerosim.studies import rate_kinds
from zerosim.studies.rate_kinds import Kind
from zerosim.units import UnitError

CLOSE = 1.0001  # of the highest rate that a machine may have
FIRST = 12.5e9  # tried first where no rate is known: 100 Gb/s, in the middle of what is sold
FREED = 1e6  # times as fast: what is left of the time is less than the digits shown
ROOT = "topology"
PCIE = ("node", "pcie", "bandwidth")
PORTS = ("node", "nics", "bandwidth")
GENERATIONS = (3, 4, 5, 6)


@dataclass(frozen=True, slots=True)
class Resource:
    """`name` is the path as it was asked for, `paths` are where it stands in the topology of `document`."""

    scenario: Scenario
    document: Document
    name: str
    kind: Kind
    paths: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, scenario: Scenario, name: str) -> Resource:
        """InputError with what can be searched, where `name` cannot; with or without `topology.` in front."""
        base = Path(scenario.source).parent
        document = Parts.of(inline(dict(scenario.text), scenario.source), base, ()).topology().document
        path = tuple(name.split("."))
        path = path[1:] if path[0] == ROOT else path
        kinds = rate_kinds.kinds_of(document.data)
        for kind in kinds:
            found = rate_kinds.matching(kind, path)
            if found is not None:
                return cls(scenario, document, name, kind, tuple(_places(scenario, document, name, found)))
        known = [rate_kinds.named(kind) for kind in kinds]
        close = nearest(".".join(path), known)
        raise InputError([Problem(scenario.source, "", f'the rate "{name}"', f"one of {', '.join(known)}", close)])

    @property
    def today(self) -> float | None:
        """The speed of the slowest that is given; what the machine has where none is; None where nobody knows."""
        given = [value for path in self.paths if (value := _at(self.document.data, path)) is not None]
        try:
            rates = [self.kind.scale.read(value) for value in given if not isinstance(value, Mapping)]
        except UnitError:
            rates = []  # which `at` cannot be: a topology was read
        if len(rates) == len(self.paths):
            return min(map(self.kind.scale.turned, rates))
        return self.kind.today(self.scenario.topology)

    def at(self, rate: float) -> Scenario:
        """The scenario at another speed."""
        scenario = self.scenario
        return scenario.replace(topology=self._machine(rate), nodes=scenario.nodes, gpus=scenario.gpus)

    def most(self) -> tuple[float, str]:
        """The highest speed that the machine can have, and why not more."""
        return self._bound(self.kind.scale.free)

    def floor(self) -> float:
        """The lowest speed that it can have."""
        return self._bound(self.kind.scale.least)[0]

    def _bound(self, beyond: float) -> tuple[float, str]:
        """The last speed on the way from that of today to one that may not be."""
        why = self._refused(beyond)
        if not why:
            return beyond, ""
        right, wrong = self.today or FIRST, beyond
        self._machine(right)  # what is wrong at any rate is told
        while max(right, wrong) > CLOSE * min(right, wrong):
            middle = math.sqrt(right * wrong)
            if self._refused(middle):
                wrong = middle
            else:
                right = middle
        return right, why

    def needs(self, rate: float) -> str:
        """What else the machine has to have at a speed: a newer PCIe."""
        newer = self._generation(rate) if self.paths == (PCIE,) else []
        lanes = self._lanes()
        return f"needs PCIe {newer[0].value} x{lanes}; today's is PCIe {self._own()} x{lanes}" if newer else ""

    def freed(self, supply: Supply) -> Supply:
        """A supply in which it takes no time."""
        for resource in self.kind.resources:
            supply = supply.scaled(resource, FREED)
        return supply

    def _refused(self, rate: float) -> str:
        try:
            self._machine(rate)
        except InputError as error:
            return error.problems[0].expected
        return ""

    def _machine(self, rate: float) -> Topology:
        made = [_change(path, self.kind.scale.turned(rate)) for path in self.paths]
        if self.paths == (PCIE,):
            made += [*self._generation(rate), *self._ports(rate)]
        return read_part(Part(*changed(self.document, made)), read_topology)

    def _generation(self, rate: float) -> list[Change]:
        """The first generation of PCIe that carries the rate, where that of today does not."""
        own = self._own()
        newer = [each for each in GENERATIONS if each >= own]
        enough = next((each for each in newer if catalog.pcie_bandwidth(each, self._lanes()) >= rate), newer[-1])
        return [_change((*PCIE[:-1], "generation"), enough)] if enough != own else []

    def _own(self) -> int:
        """The generation of today."""
        link = next(link for link in self.scenario.topology.nodes[0].links if link.kind == "pcie")
        return link.generation or GENERATIONS[0]

    def _lanes(self) -> int:
        return int(_at(self.document.data, (*PCIE[:-1], "lanes")) or 16)

    def _ports(self, rate: float) -> list[Change]:
        """Network ports in a slot that carries less than they have: no more than that."""
        ports = self.scenario.machine.nodes[0].ports
        return [_change(PORTS, rate)] if max((own for _, own in ports), default=0.0) > rate else []


def _change(path: Sequence[str], value: float) -> Change:
    return Change(f"{'.'.join((ROOT, *path))}={value:g}", tuple(path), value)


def _places(scenario: Scenario, document: Document, name: str, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where the resource stands; InputError for a number that its list does not have."""
    data: Any = document.data
    for part in path:
        if isinstance(data, list):
            if part == rate_kinds.EACH:
                break
            if int(part) >= len(data):
                raise InputError([Problem(scenario.source, name, f'"{part}"', f"an index below {len(data)}")])
        data = _item(data, part)
    yield from rate_kinds.places(document.data, path)


def _at(data: Any, path: Sequence[str]) -> Any:
    for part in path:
        data = _item(data, part)
    return data


def _item(data: Any, part: str) -> Any:
    if isinstance(data, list):
        return data[int(part)]
    return data.get(part) if isinstance(data, Mapping) else None
