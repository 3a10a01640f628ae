"""Which paths of a topology are rates that can be searched, and what is known of each kind of them.

Rule: a closed table. What a path would be called that is not in it is refused with those that are. A `*` stands for a
number of a list; who leaves it out means all of them: `node.sockets.dram.bandwidth`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from zerosim.spec.topology import Drive, Gpu, Topology
from zerosim.units import parse_flops, parse_rate, show_flops, show_rate

Unit = Literal["B/s", "FLOP/s", "ratio"]
Path = tuple[str, ...]
EACH = "*"
GBPS = 1e9 / 8
SOLD = (10, 25, 50, 100, 200, 400, 800)  # Gb/s of ports of Ethernet and InfiniBand
OCTAVES = range(-3, 4)  # of other rates, about that of today


class Scale(NamedTuple):
    """How a quantity of a unit is read and shown. A search goes by its speed, of which more is better: the quantity
    itself, or 1 / it. `least` and `free`: the least and the most speed that there may be.
    """

    read: Callable[[object], float]
    show: Callable[[float], str]
    least: float
    free: float
    inverse: bool = False

    def turned(self, value: float) -> float:
        """The speed of a quantity, and the quantity of a speed."""
        return 1 / value if self.inverse else value


def _ratio(given: object) -> float:
    return float(str(given))


SCALES: Mapping[Unit, Scale] = {
    "B/s": Scale(parse_rate, show_rate, 1e6, 1e15),  # a petabyte a second carries what a step moves in no time
    "FLOP/s": Scale(parse_flops, show_flops, 1e9, 1e21),
    "ratio": Scale(_ratio, lambda ratio: f"{ratio:.3g}:1", 1e-6, 1.0, inverse=True),
}


class Kind(NamedTuple):
    """A kind of rate. `resources`: what of a supply is the same thing, where another part bounds the rate; `today`: the
    rate of a machine that does not say it; `network`: sold by the bit."""

    path: Path
    unit: Unit = "B/s"
    today: Callable[[Topology], float | None] = lambda topology: None
    resources: tuple[str, ...] = ()
    network: bool = False

    @property
    def scale(self) -> Scale:
        scale = SCALES[self.unit]
        return scale._replace(show=lambda rate: show_rate(rate, bits=True)) if self.network else scale

    def grid(self, today: float | None, floor: float, most: float) -> tuple[float, ...]:
        """Speeds that a curve has whatever the answer is: those that are sold, or doublings of today's."""
        doubled = [today * 2.0**octave for octave in OCTAVES] if today else []
        every = [GBPS * rate for rate in SOLD] if self.network else doubled
        return tuple(rate for rate in every if floor <= rate <= most)


def _link(topology: Topology, kind: str, end: str) -> float | None:
    """The rate of the first link of a kind that leads to or from devices called `end`."""
    links = (link for link in topology.nodes[0].links if link.kind == kind and end in link.source + link.target)
    return next((link.bandwidth for link in links), None)


def _port(topology: Topology) -> float | None:
    return next((rate for _, rate in topology.nodes[0].ports), None)


def _nvlink(topology: Topology) -> float | None:
    node = topology.nodes[0]
    first = node.gpus[0].name
    links = (link for link in (*node.links, *node.outward) if link.kind == "nvlink" and link.source == first)
    return sum(link.bandwidth for link in links) or None


def _figure(name: str) -> Callable[[Topology], float | None]:
    """A figure of the first GPU or drive that has it."""

    def taken(topology: Topology) -> float | None:
        devices = (device.figures for device in topology.nodes[0].devices)
        return next((getattr(f, name) for f in devices if isinstance(f, Gpu | Drive) and hasattr(f, name)), None)

    return taken


def _flops(topology: Topology) -> float | None:
    figures = topology.gpus[0].figures
    return figures.peak_flops["fp16"] if isinstance(figures, Gpu) else None


def _kind(path: str, unit: Unit = "B/s", **more: Any) -> Kind:
    return Kind(tuple(path.split(".")), unit, **more)


_NETWORK = ("nic", "leaf", "spine")  # the uplinks of switches go with the ports
_LANES = ("pcie", "uplink", "uplink2", "uplink3", "staging")
KINDS = (
    _kind("node.nics.bandwidth", today=_port, resources=_NETWORK, network=True),
    _kind("node.nics.unlike.*.bandwidth", network=True),
    _kind("node.nvlink.bandwidth", today=_nvlink),
    _kind("node.pcie.bandwidth", today=lambda topology: _link(topology, "pcie", "gpu"), resources=_LANES),
    _kind("node.pcie.switches.*.uplink", today=lambda topology: _link(topology, "pcie", "pcie")),
    _kind("node.c2c.bandwidth", today=lambda topology: _link(topology, "c2c", "gpu")),
    _kind("node.sockets.*.dram.bandwidth", today=lambda topology: _link(topology, "dram", "dram")),
    _kind("node.sockets.*.interconnect", today=lambda topology: _link(topology, "socket", "socket")),
    _kind("node.nvme.*.read", today=_figure("read")),
    _kind("node.nvme.*.write", today=_figure("write")),
    _kind("node.nvme.*.sustained_write", today=_figure("sustained_write")),
    _kind("node.gpus.hbm", today=_figure("memory_bandwidth")),
    _kind("node.gpus.flops", "FLOP/s", today=_flops),
    _kind("fabric.oversubscription", "ratio", today=lambda topology: 1.0),
    _kind("fabric.spine_oversubscription", "ratio", today=lambda topology: 1.0),
    _kind("overrides.*.nics.bandwidth", network=True),
    _kind("overrides.*.nvlink.bandwidth"),
    _kind("overrides.*.pcie.bandwidth"),
    _kind("overrides.*.gpus.hbm"),
    _kind("overrides.*.gpus.flops", "FLOP/s"),
    _kind("links.*.bandwidth"),
    _kind("devices.*.hbm"),
    _kind("devices.*.flops", "FLOP/s"),
    _kind("devices.*.read"),
    _kind("devices.*.write"),
)
MADE = ("gpus", "pcie")  # sections of which every server has one, said or not
UPLINKED = ("fat_tree", "rail")


def kinds_of(data: Any) -> list[Kind]:
    """Those that a topology has, in either form: of its lists those that are there."""
    graph = "devices" in data
    return [kind for kind in KINDS if (kind.path[0] in ("links", "devices")) == graph and _has(data, kind)]


def _has(data: Any, kind: Kind) -> bool:
    *way, leaf = kind.path
    if way == ["fabric"]:  # one switch has no uplinks
        said = data.get("fabric") or {}
        return said.get("kind") in UPLINKED and (leaf != "spine_oversubscription" or "spine_nodes" in said)
    for place, part in enumerate(way):
        if part == EACH:
            return any(_has(item, kind._replace(path=kind.path[place + 1 :])) for item in data)
        if part not in data:
            return part in MADE and EACH not in way
        data = data[part]
    return kind.path[0] not in ("overrides", "links", "devices") or leaf in data


def named(kind: Kind) -> str:
    """Its path as people write it, lists left out."""
    return ".".join(part for part in kind.path if part != EACH)


def matching(kind: Kind, path: Sequence[str]) -> Path | None:
    """The path with a `*` where it leaves a list out; None where it is not of this kind."""
    given, found = list(path), list[str]()
    for part in kind.path:
        if part == EACH:
            found.append(given.pop(0) if given and (given[0].isdecimal() or given[0] == EACH) else EACH)
        elif given and given[0] == part:
            found.append(given.pop(0))
        else:
            return None
    return None if given else tuple(found)


def places(data: Any, path: Path, before: Path = ()) -> Iterator[Path]:
    """The paths of all that is meant: one for each item of a list."""
    if EACH not in path:
        yield (*before, *path)
        return
    place = path.index(EACH)
    items = data
    for part in path[:place]:
        items = items[int(part)] if isinstance(items, list) else items[part]
    for number, item in enumerate(items):
        yield from places(item, path[place + 1 :], (*before, *path[:place], str(number)))
