"""A topology, or a run on one, told as a picture needs it: kinds of server, groups of switches, how busy what was.

Rule: no pixels here, and nothing worked out but sums and words. The work grows with what differs, not with servers:
only one server of a kind is looked at, and of many servers only the ends ask the network where they hang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from zerosim.report.machine import Machine, Part, Server, Wire
from zerosim.report.machine_heat import Busy, percent, placed
from zerosim.simulation import Simulation
from zerosim.spec.devices import Device, Gpu, Link
from zerosim.spec.node import Node
from zerosim.spec.topology import Topology
from zerosim.spec.topology_facts import in_a_line, said
from zerosim.studies.drawing_network import Network
from zerosim.studies.drawing_switches import switches_and_cables
from zerosim.studies.machine.kinds import known_ports
from zerosim.units import show_rate, show_seconds, show_size
from zerosim.views.utilization import ResourceUse, utilization

PORT = "NVLink out of the node"
SPANS = 4  # runs of numbers shown
NAMED = {"pcie_switch": "PCIe switch", "nvswitch": "NVSwitch"}


class _Kind(NamedTuple):
    """Servers that are drawn once: one of them without what is not its own, and the classes of its ranks."""

    hosts: list[int]
    node: Node
    marks: tuple[int | None, ...]


def drawing(topology: Topology) -> Machine:
    """A machine as it is described; classes are ranks that no measurement could tell apart."""
    return _drawing(topology, [("", ranks) for ranks in topology.rank_classes()])


def drawing_of_run(run: Simulation) -> Machine:
    """The machine of a played step, with how busy everything was; classes are those of the run."""
    used = utilization(run)
    names = [each.name for each in run.classes]
    resources = [{use.resource for demand in run.demands[name] for use in demand.uses} for name in names]
    busy = placed({name: each.utilization for name, each in used.items()}, names, resources)
    about = (f"one step of {run.scenario.title}: {show_seconds(run.makespan)}; {_busiest(list(used.values()))}",)
    titled = [(each.name if len(names) > 1 else "", each.ranks) for each in run.classes]
    return _drawing(run.scenario.topology, titled, busy, about)


def _busiest(used: Sequence[ResourceUse]) -> str:
    most = max(used, key=lambda each: each.utilization, default=None)
    return "nothing was used" if most is None else f"busiest: {most.label}, {percent(most.utilization)} of the step"


def _drawing(
    topology: Topology, classes: Sequence[tuple[str, Sequence[int]]], busy: Busy = None, about: tuple[str, ...] = ()
) -> Machine:
    mark_of = {rank: mark for mark, (_, ranks) in enumerate(classes) for rank in ranks}
    network = Network.of(topology)
    kinds = _kinds(topology, network, [mark_of.get(rank) for rank in range(len(topology.gpus))])
    switches, cables = switches_and_cables(network, [kind.hosts for kind in kinds])
    ranks = len(topology.gpus)
    differing = f"{len(topology.nodes):,} nodes of {len(kinds)} kinds, {len(classes)} classes of ranks"
    size = f"{ranks:,} GPU{'s' * (ranks > 1)}: {in_a_line(topology) if len(kinds) == 1 else differing}"
    same = Counter(said(topology.gpus[each[0]], 0.0) for name, each in classes if not name)
    words = tuple(_class(topology, name, each, same) for name, each in classes)
    servers = tuple(_server(network, kind) for kind in kinds)
    return Machine(topology.name, (size, *about), servers, switches, cables, words, topology.notes, busy)


def _kinds(topology: Topology, network: Network, marks: Sequence[int | None]) -> list[_Kind]:
    """Servers that hold the same, with ranks of the same classes."""
    known: dict[int, tuple[int, Node]] = {}  # by identity, as equal servers are one: which others hold the same
    alike: dict[Hashable, int] = {}
    found: dict[Hashable, _Kind] = {}
    first = 0
    for host, node in enumerate(topology.nodes):
        if id(node) not in known:
            bare = network.without_shared(node, host)
            known[id(node)] = alike.setdefault((bare.signature, bare.rank_kinds), len(alike)), bare
        number, bare = known[id(node)]
        after = first + len(node.gpus)
        own = tuple(marks[first:after])
        found.setdefault((number, own), _Kind([], bare, own)).hosts.append(host)
        first = after
    return list(found.values())


def _class(topology: Topology, name: str, ranks: Sequence[int], same: Mapping[str, int]) -> str:
    """How many and which, and what they are; what sets them apart where that is not the GPU."""
    count = f"{len(ranks):,} ranks" if len(ranks) > 1 else "1 rank"
    title = f"{name}, {count}" if name else count
    device = said(topology.gpus[ranks[0]], 0.0)
    apart = ", set apart by links or neighbours" if not name and same[device] > 1 else ""
    return f"{title} ({spans(ranks)}): {device}{apart}"


def spans(numbers: Sequence[int]) -> str:
    """ "0–7, 16": runs of numbers by their ends."""
    cuts = [0, *(place for place, (a, b) in enumerate(pairwise(numbers), start=1) if b != a + 1), len(numbers)]
    runs = [(numbers[a], numbers[b - 1]) for a, b in pairwise(cuts)]
    shown = [str(a) if a == b else f"{a}–{b}" for a, b in runs[:SPANS]]
    return ", ".join(shown + (["…"] if len(runs) > SPANS else []))


# --- a server ---


def _server(network: Network, kind: _Kind) -> Server:
    host, node, rank = kind.hosts[0], kind.node, iter(kind.marks)
    ports = network.port_rates(host)
    parts = [_part(device, ports, next(rank) if device.kind == "gpu" else None) for device in node.devices]
    wires = list(_wires(node))
    outward = network.outward(host)
    if outward:
        parts.append(Part(PORT, "nvswitch"))
        wires += [Wire(gpu, PORT, "nvlink", rate, rate, "NVLink") for gpu, rate in outward.items()]
    named = f"host {host}" if len(kind.hosts) == 1 else f"hosts {spans(kind.hosts)}"
    return Server(named, len(kind.hosts), tuple(parts), tuple(wires))


def _part(device: Device, ports: Mapping[str, float], mark: int | None) -> Part:
    figures, rate = device.figures, ports.get(device.name, 0.0)
    model = figures.name if figures is not None else NAMED.get(device.kind, "")
    match device.kind:
        case "nic":
            size = show_rate(rate, bits=True) if rate else ""
        case "socket":
            cores = getattr(figures, "cores", 0)
            size = f"{cores} cores" if cores else ""
        case _:
            size = show_size(device.capacity) if device.capacity else ""
    about = (
        model if device.kind in NAMED else f"{device.kind.upper()}, {size}" if figures is None else said(device, rate)
    )
    return Part(device.name, device.kind, model, size, about, mark, device.compute, rate)


def _wires(node: Node) -> Iterator[Wire]:
    """The links of a server, both directions of a pair as one; those of drives begin there."""
    figures = {gpu.name: gpu.figures for gpu in node.gpus}
    drives = {drive.name for drive in node.of_kind("nvme")}
    rates = {(link.source, link.target): link.bandwidth for link in node.links}
    seen: set[tuple[str, str]] = set()
    for link in node.links:
        ends = (link.target, link.source) if link.target in drives else (link.source, link.target)
        if seen.isdisjoint((ends, ends[::-1])):
            seen.add(ends)
            word = _word(link, figures.get(link.source), link.target in figures)
            yield Wire(*ends, link.kind, rates.get(ends, 0.0), rates.get(ends[::-1], 0.0), word)


def _word(link: Link, figures: object, paired: bool) -> str:
    """How a link is called: by its generation, or by how many NVLinks it is, as `nvidia-smi topo -m` does."""
    generation = f" {link.generation}" if link.generation else ""
    if link.kind == "nvlink":
        lanes = _lanes(link, figures) if paired and isinstance(figures, Gpu) else 0
        return f"NV{lanes}" if lanes else "" if paired else f"NVLink{generation}"
    return {"pcie": f"PCIe{generation}", "c2c": "NVLink-C2C"}.get(link.kind, "")


def _lanes(link: Link, gpu: Gpu) -> int:
    """How many of a GPU's NVLinks are in a link; 0 where its rate is no whole number of them."""
    ports = known_ports(gpu)
    if not ports.nvlink_links or not ports.nvlink_bandwidth:
        return 0
    lanes = link.bandwidth / (ports.nvlink_bandwidth / ports.nvlink_links)
    return round(lanes) if lanes >= 0.99 and abs(lanes - round(lanes)) < 0.01 else 0
