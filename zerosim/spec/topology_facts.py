"""A topology in a few lines of words, for whoever wants to see at a glance what a file says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from zerosim.spec.devices import Device, Drive, Gpu, Link, Nic, Socket
from zerosim.spec.topology import Topology
from zerosim.units import show_flops, show_rate, show_share, show_size

SHOWN = ("gpu", "socket", "dram", "nvme", "nic")
WIRES = {"nvlink": "NVLink", "c2c": "NVLink-C2C", "pcie": "PCIe"}


def describe(topology: Topology) -> list[str]:
    """A line for the whole, then for each kind of node what is in it, then what is worth noting."""
    domains = sorted({len(domain) for domain in topology.nvlink_domains()})
    lines = [
        f"{topology.name}: {_number(len(topology.nodes), 'node')}, {_number(len(topology.gpus), 'rank')}, "
        f"{_number(len(topology.rank_classes()), 'rank class', 'es')}, "
        + (f"NVLink joins {' or '.join(map(str, domains))}" if domains != [1] else "no NVLink")
    ]
    for host, count in Counter(map(topology.nodes.index, topology.nodes)).items():
        lines.append(f"{count} x node of")
        lines += [f"  {line}" for line in _node(topology, host)]
    return lines + [f"note: {note}" for note in topology.notes]


def _number(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{plural if count != 1 else ''}"


def _node(topology: Topology, host: int) -> Iterator[str]:
    node = topology.nodes[host]
    outward = {link.source: link.bandwidth for link in topology.fabric.links((host,)) if link.kind == "network"}
    memory = {link.target: link.bandwidth for link in node.links if link.kind == "dram"}
    for kind in SHOWN:
        rates = [
            (device, outward.get(f"{host}.{device.name}", memory.get(device.name, 0.0)))
            for device in node.of_kind(kind)
        ]
        for said, count in Counter(_said(device, rate) for device, rate in rates).items():
            yield f"{count} x {said}"
    for said, count in Counter(_wire(link) for link in node.links if link.kind in WIRES).items():
        yield f"{count // 2} x {said}"


def _said(device: Device, rate: float) -> str:
    """A device in a few words; `rate` is that of the port of a NIC, or of memory."""
    size = show_size(device.capacity)
    match device.figures:
        case Gpu(peak_flops=peak, memory_bandwidth=hbm) as gpu:
            slowed = f", at {show_share(device.compute)} of its compute rate" if device.compute != 1 else ""
            return f"{gpu.name}: {show_flops(peak['fp16'])} dense fp16, {size} at {show_rate(hbm)}{slowed}"
        case Nic(name=name):
            return f"NIC {name}: {show_rate(rate, bits=True)}"
        case Socket(name=name, cores=cores):
            return f"{name}: {cores} cores"
        case Drive(name=name, read=read, write=write):
            return f"{name}: {size}, read {show_rate(read)}, write {show_rate(write)}"
        case _:
            return f"{device.kind.upper()}: {size} at {show_rate(rate)}"


def _wire(link: Link) -> str:
    generation = f" {link.generation}" if link.generation else ""
    return f"{WIRES[link.kind]}{generation} link: {show_rate(link.bandwidth)} each way"
