"""Which sockets' cores and memory each rank of a node uses, and what of its copies crosses from socket to socket.

A rank that is bound to its share of the cores is at home on the socket of these cores and has its host memory there.
One that is not bound runs, and has its memory, on all sockets evenly: of S sockets (S-1)/S of it is far from whoever
looks, and each has to give 1/S of the bytes, so that S of them give S times what the slowest does. Ranks whose homes
overlap share the cores and the memory of both. Sources: spec/launch.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zerosim.costs.machine import Machine
from zerosim.spec.launch import Launch
from zerosim.spec.node import Node
from zerosim.spec.topology import Socket

Places = tuple[int, ...]  # sockets, by their place in the node


class Home(NamedTuple):
    """The sockets of a rank's processes: how many, what they give together, and who shares it.

    `ranks`, itself included, run `threads` threads each; `crowded`: all threads of the node are more than its cores.
    """

    sockets: int
    dram: float  # bytes/s on paper
    uneven: bool  # some memory is faster, and waits for the slowest
    cores: int
    ranks: int
    threads: int
    crowded: bool


class Through(NamedTuple):
    """Copies of `ranks` ranks through the links of a socket: `share` bytes for each byte that every rank copies."""

    share: float = 0.0
    ranks: int = 0
    rate: float = 0.0  # bytes/s of these links together


class Crossing(NamedTuple):
    """Copies that cross the links of the socket of a GPU: into it and out of it while all ranks copy to their GPUs.

    While all ranks copy from their GPUs as much goes the other way.
    """

    into: Through = Through()
    out: Through = Through()


class Swaps(NamedTuple):
    """Reads of all ranks from drives, to the GPU and to host memory, that cross the links of the socket into which most
    of them do. Writes cross the other way. The same for all ranks of a node: they wait for those whose drives are far.
    """

    gpu: Crossing = Crossing()
    memory: Crossing = Crossing()


class Seat(NamedTuple):
    """Where a rank sits: its home (None without a socket that has memory), and what crosses at its GPU's socket.

    `far`: it is bound to another socket than its GPU's.
    """

    home: Home | None
    crossing: Crossing = Crossing()
    far: bool = False
    swaps: Swaps = Swaps()


class _Socket(NamedTuple):
    dram: float
    cores: int
    links: Mapping[int, float]  # bytes/s to other sockets, by place


@dataclass(frozen=True, slots=True)
class Seating:
    """The seats of every node under a launch; those of equal nodes are found once."""

    machine: Machine
    launch: Launch
    _known: dict[int, tuple[Seat, ...]]  # by identity of the node, which the topology keeps alive

    @classmethod
    def of(cls, machine: Machine, launch: Launch) -> Seating:
        return cls(machine, launch, {})

    def seat(self, rank: int) -> Seat:
        host = self.machine.hosts[rank]
        return self._seats(host)[rank - self.machine.ranks_on(host)[0]]

    def kinds(self, ranks: Iterable[int]) -> set[Seat]:
        """All seats on the nodes of these ranks."""
        hosts = dict.fromkeys(map(self.machine.hosts.__getitem__, ranks))
        different = {id(self.machine.topology.nodes[host]): host for host in reversed(hosts)}  # the first of each
        return {seat for host in different.values() for seat in self._seats(host)}

    def _seats(self, host: int) -> tuple[Seat, ...]:
        node = self.machine.topology.nodes[host]
        if id(node) not in self._known:
            self._known[id(node)] = tuple(_seats(self.machine, host, node, self.launch))
        return self._known[id(node)]

    def place(self, rank: int) -> Places:
        """The sockets of a rank's home."""
        ranks = self.machine.ranks_on(self.machine.hosts[rank])
        sockets = self.machine.topology.devices("socket", self.machine.hosts[rank])
        return _places(len(sockets), len(ranks), self.launch)[rank - ranks[0]]


def _seats(machine: Machine, host: int, node: Node, launch: Launch) -> Iterator[Seat]:
    names = [device.name for device in machine.topology.devices("socket", host)]
    sockets = [_socket(machine, host, name, names) for name in names]
    ranks = machine.ranks_on(host)
    places = _places(len(names), len(ranks), launch)
    paths = [machine.climb(host, machine.topology.gpus[rank].name) for rank in ranks]
    ends = [names.index(path[-1].target) if path else None for path in paths]
    drives = [
        way[-1].target for name in machine.topology.devices("nvme", host) if (way := machine.climb(host, name.name))
    ]
    swaps = _swaps([names.index(name) for name in drives], places, ends, sockets)
    for place, end in zip(places, ends, strict=True):
        home = _home(place, places, sockets, launch)
        if end is None:
            yield Seat(home)
        else:
            far = home is not None and end not in place
            yield Seat(home, _crossing(end, places, ends, sockets), far, swaps)


def _socket(machine: Machine, host: int, name: str, names: Sequence[str]) -> _Socket:
    figures = machine.device(host, name).figures
    out = machine.links_out(host, name)
    return _Socket(
        dram=sum(link.bandwidth for link in out if link.kind == "dram"),
        cores=figures.cores if isinstance(figures, Socket) else 0,
        links={names.index(link.target): link.bandwidth for link in out if link.kind == "socket"},
    )


def _places(sockets: int, ranks: int, launch: Launch) -> list[Places]:
    """Rank r of n has the cores from r/n to (r+1)/n of the node's, socket by socket, when it is bound; else all."""
    if not launch.bind_cores_to_rank:
        return [tuple(range(sockets))] * ranks
    return [tuple(range(r * sockets // ranks, -(-(r + 1) * sockets // ranks))) for r in range(ranks)]


def _home(place: Places, places: Sequence[Places], sockets: Sequence[_Socket], launch: Launch) -> Home | None:
    rates = [sockets[s].dram for s in place if sockets[s].dram]
    if not rates:
        return None
    cores = sum(socket.cores for socket in sockets)
    threads = launch.threads(cores, len(places)) if cores else 0
    return Home(
        sockets=len(place),
        dram=len(rates) * min(rates),
        uneven=min(rates) < max(rates),
        cores=sum(sockets[s].cores for s in place),
        ranks=sum(1 for other in places if not set(place).isdisjoint(other)),
        threads=threads,
        crowded=threads * len(places) > cores,
    )


def _crossing(here: int, places: Sequence[Places], ends: Sequence[int | None], sockets: Sequence[_Socket]) -> Crossing:
    """A rank's memory lies evenly on the sockets of its home, and its copies end at the socket of its GPU."""
    into, out = [], []
    for place, end in zip(places, ends, strict=True):
        near = place.count(here) / len(place)
        if end == here:
            into.append(1 - near)
        elif end is not None:
            out.append(near)
    return Crossing(
        _through(into, sum(socket.links.get(here, 0.0) for socket in sockets)),
        _through(out, sum(sockets[here].links.values())),
    )


def _swaps(
    drives: Sequence[int], places: Sequence[Places], ends: Sequence[int | None], sockets: Sequence[_Socket]
) -> Swaps:
    """Every rank's bytes lie evenly on all drives, which hang on the sockets `drives`."""
    if not drives:
        return Swaps()
    to_gpu, to_memory = [], []
    for here in range(len(sockets)):
        near = drives.count(here) / len(drives)
        gpus = [float(end == here) for end in ends]
        memory = [place.count(here) / len(place) for place in places]
        to_gpu.append(_read(near, gpus, here, sockets))
        to_memory.append(_read(near, memory, here, sockets))
    return Swaps(max(to_gpu), max(to_memory))


def _read(near: float, wanted: Sequence[float], here: int, sockets: Sequence[_Socket]) -> Crossing:
    """What crosses at a socket when of each rank's bytes the part `near` lies here and the part `wanted` goes here."""
    return Crossing(
        _through([(1 - near) * part for part in wanted], sum(socket.links.get(here, 0.0) for socket in sockets)),
        _through([near * (1 - part) for part in wanted], sum(sockets[here].links.values())),
    )


def _through(shares: Sequence[float], rate: float) -> Through:
    """Sockets without a link between them exchange nothing that anyone counts."""
    return Through(sum(shares), sum(1 for share in shares if share), rate) if rate else Through()
