"""Classes of ranks where several programs run: rank r is stage r mod n of a pipeline of n ranks that follow each other.

Pipelines whose ranks see the same machine, laid over nodes and joined in the same way, are alike: one of them is
played, one class a stage. Its stages share switches, sockets and ports, and use them at different moments: what several
of them share is one resource, named after them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from zerosim.costs.machine import Machine, distance
from zerosim.resources import RankClass


class Between:
    """What joins two GPUs of a node: their own NVLinks, and how far up they meet. Found once for equal nodes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known: dict[tuple[int, int, int], Hashable] = {}  # by identity of the node, which the topology keeps

    def __call__(self, one: int, other: int) -> Hashable:
        hosts, first = self._machine.hosts, self._machine.ranks_on(self._machine.hosts[one])[0]
        if hosts[one] != hosts[other]:
            return None
        key = id(self._machine.topology.nodes[hosts[one]]), one - first, other - first
        if key not in self._known:
            self._known[key] = self._found(
                hosts[one], *(self._machine.topology.gpus[rank].name for rank in (one, other))
            )
        return self._known[key]

    def _found(self, host: int, one: str, other: str) -> Hashable:
        links = self._machine.links_out(host, one)
        own = sum(link.bandwidth for link in links if link.kind == "nvlink" and link.target == other)
        return own, distance(self._machine.climb(host, one), self._machine.climb(host, other))


@dataclass(frozen=True, slots=True)
class Pipelines:
    """Ranks in pipelines of `stages`. `hosts` of each rank; `alike`: ranks that see the same machine; `between`: what
    joins two ranks, equal where no measurement could tell one pair from another."""

    hosts: Sequence[int]
    alike: Sequence[Sequence[int]]
    between: Callable[[int, int], Hashable]
    stages: int

    def classes(self) -> tuple[RankClass, ...]:
        """One a stage, for each kind of pipeline: in order of its stages, the kind of rank 0 first."""
        kinds = self._kinds()
        named = ["" if len(kinds) == 1 else f" of {self._pipelines(firsts)}" for firsts in kinds]
        return tuple(
            RankClass(f"stage {stage}{of}", tuple(first + stage for first in firsts), stage)
            for firsts, of in zip(kinds, named, strict=True)
            for stage in range(self.stages)
        )

    def _kinds(self) -> list[list[int]]:
        """The first ranks of pipelines that no measurement could tell apart."""
        class_of = {rank: number for number, ranks in enumerate(self.alike) for rank in ranks}
        found: dict[Hashable, list[int]] = {}
        for first in range(0, len(self.hosts), self.stages):
            ranks = range(first, first + self.stages)
            seen = tuple((class_of[rank], self.hosts[rank] - self.hosts[first]) for rank in ranks)
            joined = tuple(self.between(rank, rank + 1 if rank + 1 in ranks else first) for rank in ranks)
            found.setdefault((seen, joined), []).append(first)
        return list(found.values())

    def _pipelines(self, firsts: Sequence[int]) -> str:
        return _counted("pipeline", [first // self.stages for first in firsts])


def owners(classes: Sequence[RankClass], things: Sequence[Mapping[str, Hashable]], stages: int) -> list[dict[str, str]]:
    """Whose each resource is, by class; empty if it is everyone's.

    `things`: by the resource's first word, what it is that a class shares with those of its pipeline that name the
    same. Classes come pipeline after pipeline, each `stages` long.
    """
    named: list[dict[str, str]] = [{} for _ in classes]
    for base in dict.fromkeys(base for each in things for base in each):
        sharers: dict[Hashable, list[int]] = {}
        for number, each in enumerate(things):
            sharers.setdefault((number // stages, each.get(base)), []).append(number)
        for numbers in sharers.values():
            name = _owner([classes[number] for number in numbers]) if len(sharers) > 1 else ""
            for number in numbers:
                named[number][base] = name
    return named


def _owner(classes: Sequence[RankClass]) -> str:
    """`stage 3`, `stages 0-3`; the classes are of one pipeline."""
    _, of, pipelines = classes[0].name.partition(" of ")
    return _counted("stage", [each.program for each in classes]) + of + pipelines


def _counted(word: str, numbers: Sequence[int]) -> str:
    first, last, more = numbers[0], numbers[-1], len(numbers) - 1
    if not more:
        return f"{word} {first}"
    return f"{word}s {first}-{last}" if last - first == more else f"{word} {first} and {more} more"
