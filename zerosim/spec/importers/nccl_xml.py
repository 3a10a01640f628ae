"""What an NCCL topology XML tells of a machine: what NCCL_TOPO_DUMP_FILE wrote, or a cloud ships for virtual machines.

A dump names GPUs, NVLinks and ports as elements inside `pci`; a file for a virtual machine has only PCI devices, which
their class tells apart (0x0302 and 0x0300 GPUs, 0x0207, 0x0200 and 0x0280 ports), or not even that. RCCL writes
`xgmi` for `nvlink`. Rule: nothing of the catalogue, no figures but those that stand there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.importers.nccl_nvlinks import nvlinks
from zerosim.spec.importers.seen import GENERATIONS, MELLANOX, Seen, SeenGpu, SeenNic, SeenSocket, SeenSwitch, Slot
from zerosim.spec.importers.xml_tree import Element, read_xml, whole_number

TOOL = "NCCL topology XML"
GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
NIC_CLASSES = ("0x0207", "0x0200", "0x0280", "0x0208")
GPU_VENDORS = ("", "0x10de", "0x1002")
MEGABIT = 1e6 / 8
SLOWEST, FASTEST = 10, 10_000_000  # Mb/s; what is beyond, or negative, is no speed
MEGABYTE = 1e6


def read_nccl(text: str, source: str) -> Seen:
    """The machine of a `system` element."""
    root = read_xml(text, source)
    reader = _Reader(root, source)
    if not reader.gpus:
        expected = "gpu elements, or pci elements of class 0x0302.. or 0x0300.."
        raise InputError([Problem(source, "system", "no GPU", expected, "", root.line)])
    return reader.seen()


class _Found(NamedTuple):
    """A PCI device with the number of the cpu element that it stands in; `net` is one of its ports."""

    pci: Element
    cpu: int
    net: Element | None = None


class _Reader:
    def __init__(self, root: Element, source: str) -> None:
        self.root, self.source = root, source
        self.remarks: list[str] = []
        self.hosts, self.cpus = self._one_host(root.all("cpu") or [root])
        devices = [(pci, number) for number, cpu in enumerate(self.cpus) for pci in _devices(cpu)]
        self.classless = bool(devices) and not any(_is_named(pci) for pci, _ in devices)
        self.gpus = [_Found(pci, cpu) for pci, cpu in devices if _is_gpu(pci)]
        self.ports = [_Found(pci, cpu, net) for pci, cpu in devices if _is_nic(pci) for net in _nets(pci) or [None]]
        self.ports += self._outside_pci()
        if self.classless:
            self._guess(devices)
        hosts = list(dict.fromkeys(cpu.get("host_hash") for cpu in self.cpus))
        order = [hosts.index(cpu.get("host_hash")) for cpu in self.cpus]
        self.gpus.sort(key=lambda found: (order[found.cpu], _gpu_number(found), _bus(found.pci)))
        self.ports.sort(key=lambda found: (whole_number(found.net, "dev", 10**6), _bus(found.pci)))

    def _one_host(self, cpus: list[Element]) -> tuple[int, list[Element]]:
        """How many hosts there are, and the CPUs of one of them; unequal ones stand as a single one."""
        hosts: dict[str, list[Element]] = {}
        for cpu in cpus:
            hosts.setdefault(cpu.get("host_hash"), []).append(cpu)
        kinds = {(len(host), *(_count(host, tag) for tag in ("gpu", "net"))) for host in hosts.values()}
        if len(hosts) > 1 and len(kinds) > 1:
            self.remarks.append(f"{len(hosts)} unequal hosts stand here as one node")
            return 1, cpus
        return len(hosts), next(iter(hosts.values()))

    def _outside_pci(self) -> Iterator[_Found]:
        """Ports of no PCI device: merged ones hang on a bridge or a CPU, virtual ones stand under each CPU again."""
        held = [
            (number, nic) for number, cpu in enumerate(self.cpus) for above in _bridges(cpu) for nic in above.all("nic")
        ]
        held += [(0, nic) for nic in self.root.all("nic") if self.root not in self.cpus]
        known: set[tuple[str, str]] = set()
        for number, nic in held:
            for net in _ports(nic):
                key = net.get("name"), net.get("dev")
                if key not in known:
                    known.add(key)
                    yield _Found(nic, number, net)

    def _guess(self, devices: list[tuple[Element, int]]) -> None:
        """Of devices without a class the first are GPUs, as many as the greatest power of two; the rest are ports."""
        many = 1 << (len(devices).bit_length() - 1)
        self.gpus = [_Found(pci, cpu) for pci, cpu in devices[:many]]
        self.ports = [_Found(pci, cpu) for pci, cpu in devices[many:]]
        rest = f", the other {len(devices) - many} ports" if len(devices) > many else ""
        self.remarks.append(f"the {len(devices)} PCI devices have no class: {many} of them taken as GPUs{rest}")

    def seen(self) -> Seen:
        inner = [self._gpu_element(found) for found in self.gpus]
        links = nvlinks([found.pci.get("busid").lower() for found in self.gpus], inner)
        c2c = [link for gpu in inner if gpu for link in gpu.all("c2c")]
        if any(pci.get("class").lower().startswith("0x0108") for pci in self.root.walk()):
            self.remarks.append("the text names NVMe drives, but not their rates: not taken")
        without = [str(number) for number, gpu in enumerate(inner) if gpu and gpu.get("gdr") == "0"]
        if without and any(_has_rdma(found.pci) for found in self.ports):
            whose = "the GPUs have" if len(without) == len(inner) else f"GPU {', '.join(without)} has"
            self.remarks.append(
                f"{whose} no GPUDirect RDMA (gdr 0), which a topology cannot say: taken as if it worked"
            )
        return Seen(
            tool=TOOL,
            gpus=tuple(self._gpu(found, gpu) for found, gpu in zip(self.gpus, inner, strict=True)),
            nics=tuple(map(self._nic, self.ports)),
            sockets=tuple(map(_socket, self.cpus)),
            switches=tuple(top for number, cpu in enumerate(self.cpus) for top in self._switches(cpu, number)),
            pairs=links.pairs,
            switch_links=links.switch_links,
            nvlink_untold=not any(inner),
            c2c=bool(c2c),
            c2c_rate=_c2c_rate(c2c),
            words="\n".join(self.root.comments),
            hosts=self.hosts,
            remarks=(*links.remarks, *self.remarks),
        )

    # --- devices ---

    def _gpu_element(self, found: _Found) -> Element | None:
        return next(iter(found.pci.all("gpu")), None)

    def _gpu(self, found: _Found, gpu: Element | None) -> SeenGpu:
        pci = found.pci
        return SeenGpu(
            socket=found.cpu,
            product=gpu.get("gcn") if gpu else "",
            vendor=pci.get("vendor"),
            device=pci.get("device"),
            capability=whole_number(gpu, "sm", 0) if gpu and not gpu.get("gcn") else 0,
            display=pci.get("class").lower().startswith("0x0300"),
            slot=self._slot(pci),
        )

    def _nic(self, found: _Found) -> SeenNic:
        pci, net = found.pci, found.net
        speed = whole_number(net, "speed", 0)
        return SeenNic(
            name=net.get("name") if net else "",
            socket=found.cpu,
            rate=speed * MEGABIT if SLOWEST <= speed <= FASTEST else 0.0,
            infiniband=pci.get("class").lower().startswith("0x0207"),
            vendor=pci.get("vendor"),
            device=pci.get("device"),
            slot=self._slot(pci),
        )

    def _slot(self, pci: Element) -> Slot:
        """ "16.0 GT/s PCIe" and 16 lanes; what is empty, Unknown or 0 is not known."""
        speed = re.match(r"(\d+(?:\.\d+)?)\s*(?:GT/s)?", pci.get("link_speed"))
        lanes = whole_number(pci, "link_width", 0)
        transfers = float(speed[1]) if speed else 0.0
        return Slot(transfers if transfers in GENERATIONS else 0.0, lanes if lanes in (1, 2, 4, 8, 16) else 0)

    # --- switches ---

    def _switches(self, above: Element, cpu: int) -> Iterator[SeenSwitch]:
        for pci in above.all("pci"):
            inner = tuple(self._switches(pci, cpu))
            gpus = self._held(self.gpus, pci)
            nics = self._held(self.ports, pci)
            if not (inner or gpus or nics):
                continue
            if len(inner) == 1 and not gpus and not nics:  # a bridge with one bridge below it
                yield inner[0]._replace(slot=_slower(self._slot(pci), inner[0].slot))
            else:
                yield SeenSwitch(gpus, nics, inner, cpu, self._slot(pci))
        yield from self._shared_adapters(above, cpu)

    def _held(self, kind: list[_Found], pci: Element) -> tuple[int, ...]:
        """What hangs on a bridge itself; ports of one adapter share its slot, unless it is alone here."""
        below = {id(child) for child in pci.all("pci", "nic")}
        own = [number for number, found in enumerate(kind) if id(found.pci) in below] if below else []
        if len(pci.all("pci")) == 1:
            return tuple(own)
        return tuple(number for number in own if len(_nets(kind[number].pci)) < 2)

    def _shared_adapters(self, above: Element, cpu: int) -> Iterator[SeenSwitch]:
        """Adapters of several ports beside other devices, as switches of their own."""
        if above.tag == "pci" and len(above.all("pci")) == 1:
            return
        for pci in above.all("pci"):
            nics = tuple(number for number, found in enumerate(self.ports) if found.pci is pci)
            if len(nics) > 1:
                yield SeenSwitch((), nics, (), cpu, self._slot(pci))


def _devices(above: Element) -> Iterator[Element]:
    """PCI devices that are no bridges with something below them."""
    for pci in above.all("pci"):
        below = list(_devices(pci))
        yield from below
        if not below and not pci.all("pci"):
            yield pci


def _bridges(cpu: Element) -> Iterator[Element]:
    """What holds ports that are no PCI devices: the CPU, and bridges with something below them."""
    yield cpu
    yield from (pci for pci in cpu.walk() if pci is not cpu and pci.tag == "pci" and pci.all("pci"))


def _parts(net: Element) -> list[Element]:
    """The ports that NCCL merged into one, which has the rate of all together ("mlx5_0+mlx5_1")."""
    names = net.get("name").split("+")
    if len(names) < 2:
        return [net]
    speed = str(whole_number(net, "speed", 0) // len(names))
    return [replace(net, attributes={**net.attributes, "name": name, "speed": speed}) for name in names]


def _count(cpus: Sequence[Element], tag: str) -> int:
    return sum(element.tag == tag for cpu in cpus for element in cpu.walk())


def _is_named(pci: Element) -> bool:
    """Whether something tells what a device is."""
    return bool(pci.get("class") or pci.all("gpu", "nic"))


def _is_gpu(pci: Element) -> bool:
    of_class = pci.get("class").lower().startswith(GPU_CLASSES) and not pci.all("nic")
    return bool(pci.all("gpu")) or (of_class and pci.get("vendor").lower() in GPU_VENDORS)


def _has_rdma(pci: Element) -> bool:
    return pci.get("class").startswith("0x0207") or pci.get("vendor") == MELLANOX


def _is_nic(pci: Element) -> bool:
    return bool(pci.all("nic")) or (pci.get("class").lower().startswith(NIC_CLASSES) and not pci.all("gpu"))


def _nets(pci: Element) -> list[Element | None]:
    return [net for nic in pci.all("nic") for net in _ports(nic)]


def _ports(nic: Element) -> list[Element]:
    return [part for net in nic.all("net") for part in _parts(net)]


def _gpu_number(found: _Found) -> int:
    """The number of the device; a file for virtual machines leaves that to the PCI addresses."""
    return whole_number(next(iter(found.pci.all("gpu")), None), "dev", 10**6)


def _bus(pci: Element) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in re.findall(r"[0-9a-fA-F]+", pci.get("busid")))


def _socket(cpu: Element) -> SeenSocket:
    numa, mask = cpu.get("numaid"), re.sub(r"[^0-9a-fA-F]", "", cpu.get("affinity"))
    logical = int(mask, 16).bit_count() if mask else 0
    return SeenSocket(
        name=f"NUMA node {numa}" if numa.isdecimal() else "",
        cores=logical // _threads(mask) if logical else 0,
        vendor=cpu.get("vendor"),
        family=whole_number(cpu, "familyid", 0),
        model=whole_number(cpu, "modelid", 0),
        arch=cpu.get("arch"),
    )


def _threads(mask: str) -> int:
    """Two threads of a core stand far apart in a mask: two equal runs of ones."""
    runs = [len(run) for run in re.findall("1+", f"{int(mask, 16):b}")]
    return 2 if len(runs) == 2 and runs[0] == runs[1] else 1


def _slower(a: Slot, b: Slot) -> Slot:
    known = [slot for slot in (a, b) if slot.transfers and slot.lanes]
    return min(known, key=lambda slot: slot.transfers * slot.lanes, default=a)


def _c2c_rate(links: list[Element]) -> float:
    """`bw` is in MB/s of a link."""
    rates = {whole_number(link, "bw", 0) * whole_number(link, "count", 1) * MEGABYTE for link in links}
    return min(rates, default=0.0)
