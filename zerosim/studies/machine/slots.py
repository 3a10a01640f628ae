"""Findings about PCIe and host memory: slots that are narrower than what stands in them, and links that many share.

Each compares a rate on paper with another, or what copies reach of both (catalogue `copies`, `dram`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from zerosim import catalog
from zerosim.catalog import constant, constants
from zerosim.costs.links import link_key, peer_efficiency
from zerosim.errors import Finding
from zerosim.report.words import counted
from zerosim.spec.topology import Link
from zerosim.studies.machine.kinds import WHERE, Kind, gpu_of, known_ports, numbered, places, port_of
from zerosim.units import show_rate, show_share

WORTH_TELLING = 1.1  # by how much a link carries less than it is asked to before it is told; a choice
USUAL_SHARING = 2.0  # GPUs on one uplink are built so; more is a warning; a choice


def slot_findings(kind: Kind) -> Iterator[Finding]:
    yield from _narrow(kind)
    yield from _uplinks(kind)
    yield from _nic_slots(kind)
    yield from _memory(kind)


# --- the slot of a GPU ---------------------------------------------------------------------------------------------


def _narrow(kind: Kind) -> Iterator[Finding]:
    """GPUs in slots with fewer lanes, or of an older generation, than they can use."""
    found: defaultdict[tuple[str, str, float, float], list[str]] = defaultdict(list)
    for gpu in kind.node.gpus:
        ports, way = known_ports(gpu_of(gpu)), kind.ways.get(gpu.name)
        if way and way[0].kind == "pcie" and ports.pcie_generation:
            can = catalog.pcie_bandwidth(ports.pcie_generation, ports.pcie_lanes)
            if can > WORTH_TELLING * way[0].bandwidth:
                found[gpu_of(gpu).name, pcie_name(way[0]), way[0].bandwidth, can].append(gpu.name)
    for (name, slot, has, can), gpus in found.items():
        whole = {len(domain) for domain in kind.domains} == {len(kind.node.gpus)}
        also = "" if whole else ", and so do collectives over PCIe"
        yield Finding(
            code="pcie-narrow",
            severity="warning",
            message=(
                f"{numbered('GPU', places(kind, gpus))}{WHERE} ({name}): a slot of {slot}, {show_rate(has)}, "
                f"where the GPU can do {show_rate(can)}: copies from and to host memory take {times(can / has)} as "
                f"long{also}."
            ),
            remedy="Slots with all lanes of the GPU's generation; nvidia-smi -q shows what was trained under load.",
        )


def pcie_name(link: Link) -> str:
    """`PCIe 4 x8`, where the rate is that of so many lanes."""
    if not link.generation:
        return "PCIe"
    lanes = (n for n in (1, 2, 4, 8, 16) if abs(catalog.pcie_bandwidth(link.generation, n) / link.bandwidth - 1) < 0.05)
    return " ".join([f"PCIe {link.generation}", *(f"x{n}" for n in lanes)])


def times(ratio: float) -> str:
    """`2 times`, `1.33 times`."""
    return f"{ratio:.3g} times" if ratio < 1000 else f"{ratio:.0f} times"


# --- uplinks of PCIe switches --------------------------------------------------------------------------------------


class _Uplink(NamedTuple):
    """Bytes/s that GPUs behind an uplink can send through it: to host memory, and to ports that are elsewhere."""

    link: Link
    gpus: int
    copies: float
    network: float

    @property
    def ratio(self) -> float:
        return (self.copies + self.network) / self.link.bandwidth


def _uplinks(kind: Kind) -> Iterator[Finding]:
    """The uplinks that are asked most above what they carry; all that are alike in one finding."""
    found = [each for each in _asked(kind) if each.ratio > WORTH_TELLING]
    worst = max(found, key=lambda each: each.ratio, default=None)
    if worst is None:
        return
    alike = sum(each[1:] == worst[1:] and each.link.bandwidth == worst.link.bandwidth for each in found)
    which = "The uplink of a PCIe switch" if alike == 1 else f"The uplinks of {alike} PCIe switches"
    network = f" and {show_rate(worst.network)} of the network" if worst.network else ""
    carry = "carries" if alike == 1 else "carry"
    each = "" if alike == 1 else ", each"
    yield Finding(
        code="pcie-uplink",
        severity="note" if worst.copies <= USUAL_SHARING * worst.link.bandwidth else "warning",
        message=(
            f"{which}{WHERE} {carry} {show_rate(worst.link.bandwidth)}{each} for {counted(worst.gpus, 'GPU')} "
            f"that can copy {show_rate(worst.copies)}{network}: "
            f"{show_rate(worst.copies / worst.gpus / worst.ratio)} is left to {'it' if worst.gpus == 1 else 'each'}."
        ),
        remedy="It costs where GPUs copy from or to host memory at once, as offload does.",
    )


def _asked(kind: Kind) -> Iterator[_Uplink]:
    """Each uplink with what is behind it."""
    behind: defaultdict[Link, list[str]] = defaultdict(list)
    for gpu, way in kind.ways.items():
        for link in way[1:]:
            behind[link].append(gpu)
    users: defaultdict[str, int] = defaultdict(int)
    for nics in kind.near.values():
        for nic in nics:
            users[nic] += 1
    below = {link: {nic for nic in kind.ports if link in kind.climb(nic)} for link in behind}
    for link, gpus in behind.items():
        away = [nic for gpu in gpus for nic in kind.near.get(gpu, ()) if nic not in below[link]]
        network = sum(kind.ports[nic][1] / users[nic] for nic in away)
        yield _Uplink(link, len(gpus), sum(kind.ways[gpu][0].bandwidth for gpu in gpus), network)


# --- the slot of a NIC ---------------------------------------------------------------------------------------------


def _nic_slots(kind: Kind) -> Iterator[Finding]:
    """Ports whose slot carries less than they move."""
    found: defaultdict[tuple[str, float, float, float], list[str]] = defaultdict(list)
    for name, (nic, rate) in kind.ports.items():
        slot = next(iter(kind.climb(name)), None)
        if slot and slot.kind == "pcie":
            carries, moves = slot.bandwidth * peer_efficiency(slot), rate * port_of(nic).efficiency
            if moves > WORTH_TELLING * carries:
                found[pcie_name(slot), rate, moves, carries].append(name)
    for (lanes, rate, moves, carries), nics in found.items():
        which = nics[0] if len(nics) == 1 else f"{nics[0]} and {len(nics) - 1} more"
        yield Finding(
            code="nic-slot",
            severity="warning",
            message=(
                f"{which}{WHERE}: a port of {show_rate(rate, bits=True)}, which moves {show_rate(moves)}, in a "
                f"slot of {lanes}, which carries {show_rate(carries)} of such traffic: {times(moves / carries)} less."
            ),
            remedy="A slot with more lanes or of a newer generation, or a slower port at the same speed.",
        )


# --- host memory ---------------------------------------------------------------------------------------------------


def _memory(kind: Kind) -> Iterator[Finding]:
    """Sockets whose memory is slower than the copies of all GPUs that hang on them."""
    ends: defaultdict[str, dict[str, tuple[Link, ...]]] = defaultdict(dict)
    for gpu, way in kind.ways.items():
        ends[way[-1].target][gpu] = way
    banks = {socket: kind.machine.links_out(kind.host, socket) for socket in ends}
    gives = {
        socket: constant("dram.stream_eff") * sum(link.bandwidth for link in links if link.kind == "dram")
        for socket, links in banks.items()
    }
    short = {socket: _copied(ways) / gives[socket] for socket, ways in ends.items() if gives[socket]}
    worst = max(short, key=lambda socket: short[socket], default="")
    if worst and short[worst] > WORTH_TELLING:
        joined = all(way[0].kind == "c2c" for way in ends[worst].values())  # a superchip is built so
        yield Finding(
            code="dram-slow",
            severity="note" if joined else "warning",
            message=(
                f"The memory of a socket{WHERE} moves {show_rate(gives[worst])}; {counted(len(ends[worst]), 'GPU')} on "
                f"it can copy {show_rate(short[worst] * gives[worst])} at once: offload has "
                f"{show_share(1 / short[worst])} of what their links carry."
            ),
            remedy="It costs in offload only." if joined else "All memory channels filled, or GPUs on more sockets.",
        )


def _copied(ways: Mapping[str, tuple[Link, ...]]) -> float:
    """Bytes/s that GPUs can copy from a socket all at once: each link at most what copies reach of it.

    From the socket down: a link lets through what is asked behind it, at most its own rate.
    """
    asked = {gpu: _reached(way[0]) for gpu, way in ways.items()}
    links = sorted(
        {link for way in ways.values() for link in way[1:]}, key=lambda link: _depth(link, ways), reverse=True
    )
    for link in links:
        behind = [gpu for gpu, way in ways.items() if link in way]
        total, most = sum(asked[gpu] for gpu in behind), _reached(link)
        asked.update({gpu: asked[gpu] * min(1.0, most / total) for gpu in behind})
    return sum(asked.values())


def _depth(link: Link, ways: Mapping[str, tuple[Link, ...]]) -> int:
    """Links from this one up to the socket: the deepest are laid first."""
    way = next(way for way in ways.values() if link in way)
    return len(way) - way.index(link)


def _reached(link: Link) -> float:
    return link.bandwidth * constants("copies.h2d_eff")[link_key(link)]
