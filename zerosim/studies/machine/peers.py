"""Findings about how the GPUs of a server reach each other: NVLink that is missing, PCIe without peer access.

What it costs is priced: an all-reduce of 1 GiB on the server as it is, beside the same after the remedy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from zerosim.costs.links import in_a_ring
from zerosim.errors import Finding
from zerosim.report.words import counted
from zerosim.spec.node import Node
from zerosim.spec.topology import Device, Topology
from zerosim.studies.collectives_check import Row, sweeps
from zerosim.studies.machine.kinds import WHERE, Kind, gpu_of, known_ports, numbered, places
from zerosim.studies.machine.slots import WORTH_TELLING, times
from zerosim.units import show_rate, show_seconds

SIZE, SIZE_SHOWN = 2**30, "1 GiB"


def peer_findings(kind: Kind) -> Iterator[Finding]:
    if len(kind.node.gpus) > 1:
        yield from _nvlink(kind)
        yield from _islands(kind)
        yield from _without_peer_access(kind)
        yield from _between_sockets(kind)


def all_reduce(topology: Topology) -> Row:
    """An all-reduce of `SIZE` over all GPUs."""
    (sweep,) = sweeps(topology, ["all_reduce"], [SIZE])
    return sweep.rows[0]


def _nvlink(kind: Kind) -> Iterator[Finding]:
    """GPUs with less NVLink than they have; a bridge between two cards is an extra and may be missing."""
    found: defaultdict[tuple[str, float, float], list[str]] = defaultdict(list)
    for gpu in kind.node.gpus:
        ports, has = known_ports(gpu_of(gpu)), kind.nvlink(gpu.name)
        missing = ports.nvlink_bandwidth > WORTH_TELLING * has
        if missing and (has or not ports.nvlink_bridge):
            found[gpu_of(gpu).name, has, ports.nvlink_bandwidth].append(gpu.name)
    for (name, has, can), gpus in found.items():
        joined = f"links of {show_rate(has)} in all" if has else "no NVLink"
        yield Finding(
            code="nvlink-reduced" if has else "nvlink-missing",
            severity="warning",
            message=(
                f"{numbered('GPU', places(kind, gpus))}{WHERE} ({name}): {joined}, where the GPU has "
                f"{show_rate(can)} each way."
            ),
            remedy="nvidia-smi nvlink -s shows links that are down; on NVSwitch the fabric manager has to run.",
        )


def _islands(kind: Kind) -> Iterator[Finding]:
    """NVLink that joins some GPUs of a server with each other and not all: rings over all of them take PCIe."""
    largest = max(kind.domains, key=len)
    if not 1 < len(largest) < len(kind.node.gpus):
        return
    seconds = all_reduce(kind.alone()).seconds
    inside = all_reduce(kind.alone(_only(kind.node, largest))).seconds
    yield Finding(
        code="nvlink-islands",
        severity="warning",
        message=(
            f"NVLink joins {len(largest)} of the {len(kind.node.gpus)} GPUs{WHERE} and not all: an all-reduce of "
            f"{SIZE_SHOWN} takes {show_seconds(inside)} over {numbered('GPU', largest)} and {show_seconds(seconds)} "
            f"over all, by way of PCIe: {times(seconds / inside)} as long."
        ),
        remedy=f"Shard within {len(largest)} GPUs and replicate across (hybrid sharding, MiCS, hpZ).",
    )


def _only(node: Node, chosen: tuple[int, ...]) -> Node:
    """The server of which only these GPUs are used."""
    idle = {gpu.name for place, gpu in enumerate(node.gpus) if place not in chosen}
    return replace(
        node,
        devices=tuple(device for device in node.devices if device.name not in idle),
        links=tuple(link for link in node.links if not {link.source, link.target} & idle),
        outward=tuple(link for link in node.outward if link.source not in idle),
    )


def _without_peer_access(kind: Kind) -> Iterator[Finding]:
    """Cards that reach each other through host memory only."""
    bounced = [gpu for gpu in kind.node.gpus if not gpu_of(gpu).p2p]
    if not bounced or len(kind.domains) == 1 or len(kind.ways) < len(kind.node.gpus):
        return
    now = all_reduce(kind.alone()).seconds
    then = all_reduce(kind.alone(_with_peer_access(kind.node))).seconds
    if now > WORTH_TELLING * then:
        names = " and ".join(dict.fromkeys(gpu_of(gpu).name for gpu in bounced))
        yield Finding(
            code="no-p2p",
            severity="warning",
            message=(
                f"No peer access between {counted(len(bounced), 'GPU')}{WHERE} ({names}): what they exchange goes "
                f"through host memory. An all-reduce of {SIZE_SHOWN} takes {show_seconds(now)}, and "
                f"{show_seconds(then)} with it: {times(now / then)} as long."
            ),
            remedy="A card or driver with peer access; else larger micro-batches and fewer reductions a step.",
        )


def _with_peer_access(node: Node) -> Node:
    def open_to_peers(device: Device) -> Device:
        return replace(device, figures=replace(gpu_of(device), p2p=True)) if device.kind == "gpu" else device

    return replace(node, devices=tuple(map(open_to_peers, node.devices)))


def _between_sockets(kind: Kind) -> Iterator[Finding]:
    """Links between sockets that carry less than the ring which crosses them."""
    ends = {way[-1].target for way in kind.ways.values()}
    if len(ends) < 2 or len(kind.domains) == 1 or not all(gpu_of(gpu).p2p for gpu in kind.node.gpus):
        return
    links = [link for end in ends for link in kind.machine.links_out(kind.host, end) if link.kind == "socket"]
    given = min(map(in_a_ring, links), default=0.0)
    asked = in_a_ring(next(iter(kind.ways.values()))[0])
    if given and asked > WORTH_TELLING * given:
        yield Finding(
            code="socket-link",
            severity="warning",
            message=(
                f"The link between the sockets{WHERE} carries {show_rate(given)} of what GPUs send each other; "
                f"a ring over PCIe would go at {show_rate(asked)}: {times(asked / given)} slower."
            ),
            remedy="All GPUs below one socket, by PCIe switches that are joined; or NVLink.",
        )
