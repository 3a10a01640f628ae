"""A topology for whoever wants to see at a glance what a file says: in a line, in a few lines of words, as plain data.

Rule: equal servers are told once, with how many there are; nothing is worked out here but sums of what stands there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from zerosim.spec.devices import Device, Drive, Gpu, Link, Nic, Socket
from zerosim.spec.fabric import LeafFabric
from zerosim.spec.node import Node
from zerosim.spec.topology import Topology
from zerosim.units import show_flops, show_rate, show_seconds, show_share, show_size

SHOWN = ("gpu", "socket", "dram", "nvme", "nic")
WIRES = {"nvlink": "NVLink", "c2c": "NVLink-C2C", "pcie": "PCIe"}
FABRICS = {"fat_tree": "fat tree, leaves", "rail": "rails, a leaf for each NIC"}


def in_a_line(topology: Topology) -> str:
    """GPUs, NVLink and network of the first server, which the others are like."""
    node = topology.nodes[0]
    cards = Counter(gpu.figures.name for gpu in node.gpus if isinstance(gpu.figures, Gpu))
    ports = Counter(f"{name} {show_rate(rate, bits=True)}" for name, rate in _ports(topology))
    parts = [*(f"{count} x {name}" for name, count in cards.items()), _nvlink(node)]
    parts += [f"{count} x {port}" for port, count in ports.items()] or ["no network"]
    servers = len(topology.nodes)
    return ("" if servers == 1 else f"{servers} nodes of ") + ", ".join(parts)


def describe(topology: Topology) -> list[str]:
    """A line for the whole, then for each kind of node what is in it, then what is worth noting."""
    domains = sorted({len(domain) for domain in topology.nvlink_domains()})
    lines = [
        f"{topology.name}: {_number(len(topology.nodes), 'node')}, {_number(len(topology.gpus), 'rank')}, "
        f"{_number(len(topology.rank_classes()), 'rank class', 'es')}, "
        + (f"NVLink joins {' or '.join(map(str, domains))}" if domains != [1] else "no NVLink between GPUs")
    ]
    for host, count in _kinds(topology):
        lines.append(f"{_number(count, 'node')} of")
        lines += [f"  {line}" for line in _node(topology, host)]
    return lines + [f"fabric: {_fabric(topology)}"] + [f"note: {note}" for note in noted(topology)]


def as_data(topology: Topology) -> dict[str, Any]:
    """Plain dicts, lists, numbers and text, base units; `nodes` has each kind of server once, with its hosts."""
    kinds = [topology.nodes.index(node) for node in topology.nodes]
    return {
        "name": topology.name,
        "world_size": len(topology.gpus),
        "nodes": [_node_data(topology, host, kinds) for host in dict.fromkeys(kinds)],
        "rank_classes": [list(ranks) for ranks in topology.rank_classes()],
        "nvlink_domains": [list(ranks) for ranks in topology.nvlink_domains()],
        "switches": [asdict(switch) for switch in topology.fabric.switches()],
        "notes": list(noted(topology)),
    }


def noted(topology: Topology) -> tuple[str, ...]:
    """What was assumed of it, and which ports are down."""
    hosts: dict[str, list[int]] = {}
    for host, node in enumerate(topology.nodes):
        if node.down:
            hosts.setdefault(_ports_down(node), []).append(host)
    return (*topology.notes, *(f"{_hosts(on, len(topology.nodes))}: {words}" for words, on in hosts.items()))


def _ports_down(node: Node) -> str:
    """`NIC 3 is down, 7 of 8 are left`."""
    *several, last = map(str, node.down)
    which = f"NICs {', '.join(several)} and {last} are" if several else f"NIC {last} is"
    left = len(node.of_kind("nic"))
    return f"{which} down, {left} of {left + len(node.down)} {'is' if left == 1 else 'are'} left"


def _hosts(hosts: list[int], of: int) -> str:
    if len(hosts) == 1:
        return f"node {hosts[0]}"
    if len(hosts) == of:
        return "each node"
    joined = hosts[-1] - hosts[0] == len(hosts) - 1
    return f"nodes {hosts[0]}-{hosts[-1]}" if joined else f"node {hosts[0]} and {len(hosts) - 1} more"


def _node_data(topology: Topology, host: int, kinds: list[int]) -> dict[str, Any]:
    node = topology.nodes[host]
    return {
        "hosts": [other for other, kind in enumerate(kinds) if kind == host],
        "devices": [_device_data(device) for device in node.devices],
        "links": [asdict(link) for link in node.links],
        "ports": dict(node.ports),
        "outward": [asdict(link) for link in node.outward],
    }


def _device_data(device: Device) -> dict[str, Any]:
    figures = device.figures
    known = {name: getattr(figures, name) for name in getattr(figures, "__slots__", ())}
    plain = {name: dict(value) if name == "peak_flops" else value for name, value in known.items()}
    return {"name": device.name, "kind": device.kind, "capacity": device.capacity, "compute": device.compute} | {
        "figures": plain or None
    }


def _kinds(topology: Topology) -> list[tuple[int, int]]:
    """The first host of each kind of server, and how many there are."""
    return list(Counter(map(topology.nodes.index, topology.nodes)).items())


def _ports(topology: Topology) -> Iterator[tuple[str, float]]:
    """Network ports of the first server by the name of their figures, with their rates."""
    rates = {link.source: link.bandwidth for link in topology.fabric.links((0,)) if link.kind == "network"}
    for nic in topology.nodes[0].of_kind("nic"):
        if isinstance(nic.figures, Nic):
            yield nic.figures.name, rates.get(f"0.{nic.name}", 0.0)


def _nvlink(node: Node) -> str:
    """All NVLink of the first GPU together."""
    first = node.gpus[0].name
    for kind in ("nvlink", "c2c"):
        links = (*node.links, *node.outward)
        rate = sum(link.bandwidth for link in links if link.kind == kind and link.source == first)
        if rate:
            return f"{WIRES[kind]} {show_rate(rate)}"
    return "no NVLink"


def _number(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{plural if count != 1 else ''}"


def _fabric(topology: Topology) -> str:
    fabric = topology.fabric
    if not isinstance(fabric, LeafFabric):
        return f"drawn, {_number(len(fabric.switches()), 'switch', 'es')}"
    delay = f"{show_seconds(fabric.latency)} through a switch"
    if fabric.kind == "switch":
        return f"one switch for all nodes, {delay}"
    spread = f"oversubscription {fabric.oversubscription:g}"
    if fabric.spine_nodes:
        above = f"oversubscription {fabric.spine_oversubscription:g}"
        spread += f", spines of {_number(fabric.spine_nodes, 'node')}, {above}"
    return f"{FABRICS[fabric.kind]} of {_number(fabric.leaf_nodes, 'node')}, {spread}, {delay}"


def _node(topology: Topology, host: int) -> Iterator[str]:
    node = topology.nodes[host]
    outward = {link.source: link.bandwidth for link in topology.fabric.links((host,)) if link.kind == "network"}
    memory = {link.target: link.bandwidth for link in node.links if link.kind == "dram"}
    for kind in SHOWN:
        rates = [
            (device, outward.get(f"{host}.{device.name}", memory.get(device.name, 0.0)))
            for device in node.of_kind(kind)
        ]
        for words, count in Counter(said(device, rate) for device, rate in rates).items():
            yield f"{count} x {words}"
    for words, count in Counter(_wire(link) for link in node.links if link.kind in WIRES).items():
        yield f"{count // 2} x {words}"
    for words, count in Counter(map(_wire, node.outward)).items():
        yield f"{count} x {words}, to the switch of the rack"


def said(device: Device, rate: float) -> str:
    """A device in a few words; `rate` is that of the port of a NIC, or of memory."""
    size = show_size(device.capacity)
    match device.figures:
        case Gpu(peak_flops=peak, memory_bandwidth=hbm) as gpu:
            slowed = f", at {show_share(device.compute)} of its compute rate" if device.compute != 1 else ""
            return f"{gpu.name}: {show_flops(peak['fp16'])} dense fp16, {size} at {show_rate(hbm)}{slowed}"
        case Nic(name=name):
            return f"NIC {name}: {show_rate(rate, bits=True)}"
        case Socket(name=name, cores=cores):
            return f"{name}: {_number(cores, 'core')}"
        case Drive(name=name, read=read, write=write) as drive:
            later = f" ({show_rate(drive.sustained_write)} after {show_size(drive.cache)})"
            lasts = drive.sustained_write == write
            return f"{name}: {size}, read {show_rate(read)}, write {show_rate(write)}{'' if lasts else later}"
        case _:
            return f"{device.kind.upper()}: {size} at {show_rate(rate)}"


def _wire(link: Link) -> str:
    generation = f" {link.generation}" if link.generation else ""
    return f"{WIRES[link.kind]}{generation} link: {show_rate(link.bandwidth)} each way"
