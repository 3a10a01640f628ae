"""The graph form of a topology: devices and links one by one, for machines that fit no template.

Devices of one `node` become a server, those of none the fabric. A device is called by the name that the user gave it,
with the number of its server in front ("gpu0" of node 1 is "1.gpu0"), as in every other topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import get_args

from zerosim import catalog
from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.devices import Device, Link, LinkKind
from zerosim.spec.document import Document, by_place
from zerosim.spec.fabric import DrawnFabric
from zerosim.spec.figures import Remarks, drive_figures, gpu_figures, nic_figures, socket_figures
from zerosim.spec.node import Node, full_name
from zerosim.spec.topology import Topology
from zerosim.spec.topology_schema import DeviceSpec, GraphSpec, LinkSpec, NicSpec, PcieGeneration
from zerosim.units import show_rate

SWITCHES = ("leaf", "spine")
PLAIN_NETWORK = "ethernet"
_ENDS: Mapping[LinkKind, tuple[str, ...]] = {
    "nvlink": ("gpu gpu", "gpu nvswitch", "nvswitch nvswitch"),
    "pcie": (
        "gpu pcie_switch",
        "gpu socket",
        "gpu nic",
        "nic pcie_switch",
        "nic socket",
        "pcie_switch pcie_switch",
        "pcie_switch socket",
    ),
    "socket": ("socket socket",),
    "dram": ("dram socket",),
    "nvme": ("nvme socket", "nvme pcie_switch"),
    "c2c": ("dram gpu",),
    "network": ("nic nic", "leaf nic", "nic spine", "leaf leaf", "leaf spine", "spine spine"),
}
JOINS: Mapping[frozenset[str], LinkKind] = {
    frozenset(ends.split()): kind for kind, pairs in _ENDS.items() for ends in pairs
}


def assemble(spec: GraphSpec, document: Document) -> Topology:
    """The topology of the listed devices and links, or all that is wrong with them."""
    remarks = Remarks(document)
    problems = _check_names(spec, document) + _check_links(spec, document) + _check_nodes(spec, document)
    owners = {said.name: _owner(said) for said in spec.devices}
    kinds = {said.name: said.kind for said in spec.devices}
    devices = {said.name: _device(said, place, spec, remarks) for place, said in enumerate(spec.devices)}
    problems += remarks.problems
    if problems:
        raise InputError(sorted(problems, key=by_place))
    links = [link for said in spec.links for link in _links(said, kinds)]
    hosts = sorted({host for host in owners.values() if host is not None})
    nodes = tuple(_node(host, devices, links, owners) for host in hosts)
    return Topology(spec.name, nodes, _fabric(devices, links, owners), tuple(remarks.notes))


# --- checks ---


def _owner(said: DeviceSpec) -> int | None:
    """The server of a device; the first one where none is said, save for switches between servers."""
    named = said.node if said.node is not None else said.host
    if named is None and said.kind not in SWITCHES:
        head, dot, _ = said.name.partition(".")
        return int(head) if dot and head.isdecimal() else 0
    return named


def _local(name: str, host: int | None) -> str:
    return name if host is None else name.removeprefix(f"{host}.")


def _placed(name: str, host: int | None) -> str:
    return name if host is None else full_name(_local(name, host), host)


def _check_names(spec: GraphSpec, document: Document) -> list[Problem]:
    first: dict[str, int] = {}
    problems = []
    for place, said in enumerate(spec.devices):
        at = ("devices", place)
        if said.name in first:
            earlier = f"another name, as device {first[said.name]} has this one"
            problems.append(document.problem((*at, "name"), f'"{said.name}" again', earlier))
        first.setdefault(said.name, place)
        if said.node is not None and said.host is not None and said.node != said.host:
            problems.append(
                document.problem((*at, "host"), str(said.host), f"{said.node}, as its node, or only one of them")
            )
        if said.kind in ("dram", "nvme") and said.capacity is None:
            problems.append(document.problem((*at, "capacity"), "nothing", 'a size such as "512 GB"'))
    return problems


def _check_links(spec: GraphSpec, document: Document) -> list[Problem]:
    kinds = {said.name: said.kind for said in spec.devices}
    seen: dict[tuple[str, str], int] = {}
    problems = []
    for place, said in enumerate(spec.links):
        at = ("links", place)
        for key, name in (("from", said.source), ("to", said.target)):
            if name not in kinds:
                close = nearest(name, list(kinds))
                expected = "a device of the list"
                problems.append(document.problem((*at, key), f'"{name}"', expected, f'"{close}"' if close else ""))
        if said.source in kinds and said.target in kinds:
            problems += _check_ends(said, place, kinds, document)
            for ends in _ends(said):
                if ends in seen:
                    joined = f"{ends[0]} to {ends[1]} again"
                    problems.append(document.problem(at, joined, f"one link, as link {seen[ends]}"))
                    break
            seen.update({ends: place for ends in _ends(said) if ends not in seen})
    return problems


def _check_ends(said: LinkSpec, place: int, kinds: Mapping[str, str], document: Document) -> list[Problem]:
    a, b = kinds[said.source], kinds[said.target]
    if said.source == said.target:
        return [document.problem(("links", place), f"a link from {said.source} to itself", "two devices")]
    if said.kind is None and frozenset((a, b)) not in JOINS:
        expected = "devices that a link can join, or its kind"
        return [document.problem(("links", place), f"a link between {a} and {b}", expected)]
    if (said.kind or JOINS[frozenset((a, b))]) == "pcie" and said.generation in get_args(PcieGeneration):
        most = catalog.pcie_bandwidth(said.generation or 0)
        if said.bandwidth > most:
            expected = f"at most {show_rate(most)}, as PCIe {said.generation} x16"
            return [document.problem(("links", place, "bandwidth"), show_rate(said.bandwidth), expected)]
    if said.shared and said.duplex == "full" and "duplex" in said.model_fields_set:
        return [document.problem(("links", place, "shared"), "true", "false, as its duplex is full")]
    return []


def _check_nodes(spec: GraphSpec, document: Document) -> list[Problem]:
    """There are GPUs, nodes are numbered without gaps, and GPUs are listed node by node."""
    problems = []
    hosts = {host for said in spec.devices if (host := _owner(said)) is not None}
    missing = next((host for host in range(len(hosts)) if host not in hosts), None)
    if missing is not None:
        problems.append(document.problem(("devices",), f"no node {missing}", f"nodes from 0 to {max(hosts)}"))
    gpus = [(place, _owner(said) or 0) for place, said in enumerate(spec.devices) if said.kind == "gpu"]
    if not gpus:
        problems.append(document.problem(("devices",), "no gpu", "at least one"))
    for (_, before), (place, host) in pairwise(gpus):
        if host < before:
            problems.append(
                document.problem(
                    ("devices", place),
                    f"a GPU of node {host} after one of node {before}",
                    "GPUs in order of nodes, as ranks are",
                )
            )
    return problems


# --- devices and links ---


def _device(said: DeviceSpec, place: int, spec: GraphSpec, remarks: Remarks) -> Device:
    at, host = ("devices", place), _owner(said)
    name, capacity = _placed(said.name, host), said.capacity or 0.0
    match said.kind:
        case "gpu":
            gpu = gpu_figures(said, remarks, at)
            return Device(name, "gpu", host, gpu, said.capacity or (gpu.memory_bytes if gpu else 0.0), said.compute)
        case "nic":
            port = nic_figures(_port(said, spec), remarks, at)
            return Device(name, "nic", host, port[0] if port else None)
        case "socket":
            cpu = socket_figures(said, remarks, at)
            return Device(name, "socket", host, cpu[0] if cpu else None)
        case "nvme":
            return Device(name, "nvme", host, drive_figures(said, remarks, at), capacity)
        case _:
            return Device(name, said.kind, host, None, capacity)


def _port(said: DeviceSpec, spec: GraphSpec) -> NicSpec:
    """The network port that a device and the rate of its network link describe."""
    rates = [
        link.bandwidth for link in spec.links if said.name in (link.source, link.target) and _leads_out(link, spec)
    ]
    rate = min(rates, default=None)
    if isinstance(said.device, str):
        return NicSpec(device=said.device, bandwidth=rate)
    return NicSpec(kind=said.network or PLAIN_NETWORK, bandwidth=rate)


def _leads_out(link: LinkSpec, spec: GraphSpec) -> bool:
    ends = [said.kind for said in spec.devices if said.name in (link.source, link.target)]
    return link.kind == "network" or any(kind in SWITCHES for kind in ends) or ends == ["nic", "nic"]


def _ends(said: LinkSpec) -> tuple[tuple[str, str], ...]:
    there = (said.source, said.target)
    return (there,) if said.duplex == "simplex" else (there, there[::-1])


def _links(said: LinkSpec, kinds: Mapping[str, str]) -> list[Link]:
    kind = said.kind or JOINS[frozenset((kinds[said.source], kinds[said.target]))]
    both = said.duplex == "half" or (kind == "dram" and "duplex" not in said.model_fields_set)
    shared = both if said.shared is None else said.shared
    return [Link(a, b, kind, said.bandwidth, said.latency, shared, said.generation) for a, b in _ends(said)]


def _node(host: int, devices: Mapping[str, Device], links: list[Link], owners: Mapping[str, int | None]) -> Node:
    own = [
        replace(device, name=_local(name, host), host=None) for name, device in devices.items() if owners[name] == host
    ]
    inside = [
        replace(link, source=_local(link.source, host), target=_local(link.target, host))
        for link in links
        if owners[link.source] == owners[link.target] == host
    ]
    return Node(tuple(own), tuple(inside))


def _fabric(devices: Mapping[str, Device], links: list[Link], owners: Mapping[str, int | None]) -> DrawnFabric:
    between = [link for link in links if owners[link.source] is None or owners[link.source] != owners[link.target]]
    drawn = tuple(replace(link, source=devices[link.source].name, target=devices[link.target].name) for link in between)
    outside = tuple(device for name, device in devices.items() if owners[name] is None)
    inside = {device.name: host for name, device in devices.items() if (host := owners[name]) is not None}
    return DrawnFabric(outside, drawn, inside)
