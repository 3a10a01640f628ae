"""What stands around the GPUs: network ports and CPUs with their memory, by PCI id and cpuid, else as is usual.

Rule: each answer says why; what is not in the text begins with "assumed". The grade behind a figure is the catalogue's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zerosim import catalog
from zerosim.catalog import recognise
from zerosim.catalog.recognise import Platform, Product
from zerosim.spec.importers.seen import MELLANOX, SeenNic, SeenSocket
from zerosim.units import show_rate

STANDARD = ("infiniband", "omnipath")  # at the rates of their standards alone
SLOW_ETHERNET = 25e9 / 8  # bytes/s; a faster one that is used for training is most often RoCE


class Port(NamedTuple):
    """A network port: a name of the catalogue, or kind and rate in bytes/s."""

    device: str
    kind: str
    rate: float
    note: str = ""


class Cpu(NamedTuple):
    """A NUMA node as a socket, with what it has of a socket's memory."""

    device: str
    cores: int
    dram_bytes: float
    dram_rate: float
    note: str


# --- ports ---


def port(nic: SeenNic, product: Product, platform: Platform | None, slot: float, each: int = 1) -> Port:
    """What a network port is, and how fast; never more than its slot (bytes/s) carries. `each` GPU has so many."""
    found = _port(nic, product, platform, each)
    if not slot or found.rate <= slot:
        return found
    said = f"{show_rate(found.rate, bits=True)} is more than its PCIe slot carries"
    return found._replace(rate=slot, note=f"{said}: {show_rate(slot, bits=True)} assumed")


def _port(nic: SeenNic, product: Product, platform: Platform | None, each: int) -> Port:
    usual = catalog.nics()[platform.nic if platform else recognise.surroundings(product.gpu).nic]
    known = recognise.adapter(nic.vendor, nic.device)
    numbers = f"PCI {nic.vendor}:{nic.device} (R)"
    if isinstance(known, str):
        entry = catalog.nics()[known]
        return Port(known, entry.kind, nic.rate or entry.bandwidth, f"as {numbers}")
    kind, why = _kind(nic, usual.kind)
    if nic.rate:
        return Port("", kind, nic.rate, why)
    if known:
        return Port("", kind, known, _both(why, f"assumed: all that {numbers} can"))
    whose = platform.words if platform else product.name or product.gpu
    sold = recognise.port_sold_with(product.gpu, kind) if kind not in (usual.kind, "ethernet") else ""
    if sold:
        rate = catalog.nics()[sold].bandwidth
        return Port(sold, kind, rate, _both(why, f"assumed: {show_rate(rate, bits=True)}, usual with {whose} (R)"))
    most = SLOW_ETHERNET if kind == "ethernet" else max(n.bandwidth for n in catalog.nics().values() if n.kind == kind)
    rate = min(usual.bandwidth, most)
    said = f"assumed: {show_rate(rate, bits=True)}, usual with {whose} (R)"
    if each > 1 and not platform:
        return _made(Port("", kind, rate / each, why), nic, f"{said}, over {each} ports a GPU")
    named = platform.nic if platform and kind == usual.kind else ""
    return _made(Port(named, kind, rate, why), nic, said)


def _made(found: Port, nic: SeenNic, said: str) -> Port:
    """A port of an assumed rate as such ports are made: where there is no InfiniBand of the rate it is RoCE, unless the
    text tells that it is InfiniBand."""
    rates = sorted(each.bandwidth for each in catalog.nics().values() if each.kind == found.kind)
    if found.kind not in STANDARD or found.rate in rates:
        return found._replace(note=_both(found.note, said))
    missing = f"as {found.kind} has no {show_rate(found.rate, bits=True)}"
    if found.kind == "infiniband" and not nic.infiniband:
        return found._replace(kind="roce", note=f"assumed: roce, {missing}; {said}")
    rate = next((rate for rate in rates if rate > found.rate), rates[-1])
    return found._replace(rate=rate, note=f"assumed: {show_rate(rate, bits=True)}, {missing}")


def _kind(nic: SeenNic, usual: str) -> tuple[str, str]:
    """The kind of a port and a note; a name alone leaves InfiniBand and RoCE open."""
    by_name = recognise.nic_kind(nic.name)
    if nic.infiniband:
        return "infiniband", ""
    if nic.vendor.lower() == MELLANOX:
        return "roce", ""
    if by_name:
        return by_name, f"assumed: {by_name}, as such names are (or Ethernet)" if by_name == "infiniband" else ""
    return usual, f"assumed: {usual}"


def _both(one: str, other: str) -> str:
    return f"{one}; {other}" if one else other


# --- CPUs ---


def cpus(sockets: Sequence[SeenSocket], product: Product) -> tuple[Cpu, ...]:
    """Each NUMA node as a socket; where there are more than two, they are taken as parts of two sockets."""
    return tuple(_cpu(socket, len(sockets), product) for socket in sockets)


def _cpu(socket: SeenSocket, nodes: int, product: Product) -> Cpu:
    around = recognise.surroundings(product.gpu)
    by_id = recognise.cpu(socket.vendor, socket.family, socket.model)
    if by_id:
        device, also = by_id
        numbers = f"family {socket.family} model {socket.model}"
        why = f"assumed: not {also}, which has {numbers} too" if also else f"as {numbers} says"
    elif socket.arch.startswith(("arm", "aarch")):
        device, why = "grace", "assumed: grace, as arm64"
    else:
        device = around.desktop if nodes == 1 and around.desktop else around.cpu
        why = f"assumed: {device}, usual with {product.name or product.gpu} (R)"
    share = 2 / nodes if nodes > 2 and device != "grace" else 1.0
    if share < 1:
        why += f"; one of {nodes} NUMA nodes, assumed to be of two sockets"
    entry = catalog.sockets()[device]
    cores = socket.cores or max(1, round(entry.figures.cores * share))
    return Cpu(device, cores, around.dram_bytes * share, entry.dram_bandwidth * share, why)
