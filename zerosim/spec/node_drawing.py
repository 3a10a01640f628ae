"""Drawing one server from its template: devices, the links between them, and whether they fit together.

GPUs and NICs hang on the PCIe switches that name them; those that none names hang on the sockets, evenly in order. A
switch hangs on a socket or on another switch. The catalogue fills in what the template leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import Literal

from zerosim import catalog
from zerosim.spec.devices import Device, Link, LinkKind, Socket
from zerosim.spec.figures import Remarks, drive_figures, gpu_figures, nic_figures, socket_figures
from zerosim.spec.node import Node
from zerosim.spec.pcie_tree import Branch, branches, check, holder
from zerosim.spec.topology_schema import GpuSpec, NodeSpec, OverrideSpec, PcieSpec, SocketSpec
from zerosim.units import show_rate

MICROSECOND = 1e-6
PLAIN_CPU = "epyc_rome"
PLAIN_DRAM_BYTES = 512e9
PLAIN_PCIE: Mapping[bool, int] = {False: 4, True: 5}  # by whether the GPU has NVLink-C2C


def draw(spec: NodeSpec, remarks: Remarks, single: Mapping[int, tuple[OverrideSpec, int]]) -> Node | None:
    """The server of a template; `single` are the overrides (and their places) of single GPUs. None if it cannot be."""
    drawing = _Drawing(spec, remarks)
    drawing.sockets()
    drawing.gpus(single)
    drawing.nvlink()
    drawing.pcie()
    drawing.nics()
    drawing.nvme()
    return None if remarks.problems else Node(tuple(drawing.devices), tuple(drawing.links), tuple(drawing.ports))


def latency(kind: str) -> float:
    """The latency of a link of a kind, by the catalogue."""
    hops = catalog.constants("collectives.hop_us")
    return MICROSECOND * (hops[kind] if kind in hops else catalog.constant(f"latency_us.{kind}"))


class _Drawing:
    """The sheet on which a server is drawn."""

    def __init__(self, spec: NodeSpec, remarks: Remarks) -> None:
        self.spec, self.remarks = spec, remarks
        self.devices: list[Device] = []
        self.links: list[Link] = []
        self.ports: list[tuple[str, float]] = []
        device = spec.gpus.device
        known = isinstance(device, str) and device in catalog.gpus()
        self.gpu_ports = catalog.gpu_ports(str(device)) if known else catalog.GpuPorts()
        self.cpus = spec.sockets or self._plain_sockets()
        pcie = spec.pcie or PcieSpec()
        self.c2c = spec.c2c is not None or (self.gpu_ports.c2c_bandwidth > 0 and spec.pcie is None)
        self.generation = pcie.generation or self.gpu_ports.pcie_generation or PLAIN_PCIE[self.c2c]
        self.paper_rate = catalog.pcie_bandwidth(self.generation, pcie.lanes)
        self.pcie_rate = pcie.bandwidth or self.paper_rate
        self.pcie_name = f"PCIe {self.generation} x{pcie.lanes}"
        self.switches = branches(pcie.switches)

    def _plain_sockets(self) -> list[SocketSpec]:
        count = 1 if self.spec.gpus.count <= 4 else 2
        self.remarks.note(f"no sockets given: {count} x {PLAIN_CPU} with 512 GB each assumed")
        return [SocketSpec.model_validate({"device": PLAIN_CPU, "dram": {"capacity": PLAIN_DRAM_BYTES}})] * count

    def _both(
        self,
        a: str,
        b: str,
        kind: LinkKind,
        rate: float,
        delay: float,
        back: float | None = None,
        shared: bool = False,
        generation: int | None = None,
    ) -> None:
        """A link in both directions; `back` is the rate of the second where it differs."""
        self.links.append(Link(a, b, kind, rate, delay, shared, generation))
        self.links.append(Link(b, a, kind, rate if back is None else back, delay, shared, generation))

    def _pcie(self, a: str, b: str, delay: float, rate: float | None = None) -> None:
        self._both(a, b, "pcie", rate or self.pcie_rate, delay, generation=self.generation)

    def _switch_of(self, key: Literal["gpus", "nics"], index: int, count: int) -> str:
        """What a GPU or NIC hangs on."""
        switch = holder(self.switches, key, index)
        return f"socket{index * len(self.cpus) // count}" if switch is None else f"pcie{switch}"

    # --- sockets and memory ---

    def sockets(self) -> None:
        between: list[float] = []
        for index, cpu in enumerate(self.cpus):
            at = ("sockets", index)
            known = socket_figures(cpu, self.remarks, at)
            if known is None:
                continue
            figures, dram, interconnect = known
            rate = cpu.dram.bandwidth or dram
            if rate is None:
                self.remarks.wrong(
                    (*at, "dram", "bandwidth"), "nothing", "a rate, as the catalogue does not name the CPU"
                )
                continue
            self._socket(index, figures, cpu.dram.capacity, rate)
            between.append(cpu.interconnect or interconnect or 0.0)
        if len(between) > 1 and not all(between):
            self.remarks.wrong(
                ("sockets",), "no interconnect", 'in each socket a rate to the other, such as interconnect: "62 GB/s"'
            )
        elif len(between) == len(self.cpus):
            for a, b in combinations(range(len(between)), 2):
                rate = min(between[a], between[b])
                self._both(f"socket{a}", f"socket{b}", "socket", rate, latency("socket"))

    def _socket(self, index: int, figures: Socket, capacity: float, rate: float) -> None:
        self.devices.append(Device(f"socket{index}", "socket", None, figures))
        self.devices.append(Device(f"dram{index}", "dram", None, capacity=capacity))
        self._both(f"socket{index}", f"dram{index}", "dram", rate, latency("dram"), shared=True)

    def _has_socket(self, index: int, at: Sequence[str | int]) -> bool:
        if 0 <= index < len(self.cpus):
            return True
        self.remarks.wrong(at, str(index), f"a socket from 0 to {len(self.cpus) - 1}")
        return False

    # --- GPUs ---

    def gpus(self, single: Mapping[int, tuple[OverrideSpec, int]]) -> None:
        figures = gpu_figures(self.spec.gpus, self.remarks, ("gpus",))
        for index in range(self.spec.gpus.count if figures else 0):
            own, compute = figures, self.spec.gpus.compute
            if index in single:
                override, place = single[index]
                compute = override.compute or compute
                if override.device is not None:
                    elsewhere = Remarks(self.remarks.document, ("overrides", place), (), self.remarks.problems)
                    own = gpu_figures(GpuSpec(device=override.device), elsewhere, ())
            if own is not None:
                self.devices.append(Device(f"gpu{index}", "gpu", None, own, own.memory_bytes, compute))

    def nvlink(self) -> None:
        said = self.spec.nvlink
        if said.kind == "none":
            return
        rate = said.bandwidth or self.gpu_ports.nvlink_bandwidth
        if not rate:
            self.remarks.wrong(
                ("nvlink",), "no bandwidth", "that of a GPU, one direction, as the catalogue has none for it"
            )
            return
        if rate > self.gpu_ports.nvlink_bandwidth > 0:
            usual = show_rate(self.gpu_ports.nvlink_bandwidth)
            self.remarks.note(f"NVLink of {show_rate(rate)} per GPU and direction; {self.spec.gpus.device} has {usual}")
        delay = latency("nvlink") if said.latency is None else said.latency
        generation = said.generation or self.gpu_ports.nvlink_generation or None
        for a, b, share in self._nvlinks(self.spec.gpus.count):
            self.links.append(Link(a, b, "nvlink", rate * share, delay, generation=generation))

    def _nvlinks(self, count: int) -> list[tuple[str, str, float]]:
        """From, to, and what share of a GPU's NVLink bandwidth lies on that link."""
        gpus = [f"gpu{index}" for index in range(count)]
        match self.spec.nvlink.kind:
            case "switch":
                self.devices.append(Device("nvswitch0", "nvswitch", None))
                ends = [(gpu, "nvswitch0") for gpu in gpus]
                return [(a, b, 1.0) for pair in ends for a, b in permutations(pair)]
            case "mesh":
                return [(a, b, 1.0 / (count - 1)) for a, b in permutations(gpus, 2)]
            case _:
                return self._pairs(count)

    def _pairs(self, count: int) -> list[tuple[str, str, float]]:
        given = self.spec.nvlink.pairs
        pairs = given if given is not None else [[first, first + 1] for first in range(0, count - 1, 2)]
        links: Counter[int] = Counter()
        for index, (a, b, *number) in enumerate(pairs):
            at = ("nvlink", "pairs", index)
            if number and number[0] < 1:
                self.remarks.wrong((*at, 2), str(number[0]), "at least 1 link")
            elif a == b or max(a, b) >= count:
                self.remarks.wrong(at, f"[{a}, {b}]", f"two different GPUs from 0 to {count - 1}")
            elif any({a, b} == set(other[:2]) for other in pairs[:index]):
                self.remarks.wrong(at, f"[{a}, {b}] again", "each pair once; a third number is how many links join it")
            links.update(dict.fromkeys((a, b), number[0] if number else 1))
        most = max(links.values(), default=0) or 1
        shares = [(f"gpu{a}", f"gpu{b}", (number[0] if number else 1) / most) for a, b, *number in pairs]
        return [(a, b, share) for one, other, share in shares for a, b in permutations((one, other))]

    # --- PCIe ---

    def pcie(self) -> None:
        if self.pcie_rate > self.paper_rate:
            most = f"at most {show_rate(self.paper_rate)}, as {self.pcie_name}"
            self.remarks.wrong(("pcie", "bandwidth"), show_rate(self.pcie_rate), most)
        gpus = self.spec.gpus.count
        check(self.switches, "gpus", gpus, self.remarks)
        check(self.switches, "nics", self.spec.nics.count if self.spec.nics else 0, self.remarks)
        delay = latency(f"pcie{self.generation}")
        for index, branch in enumerate(self.switches):
            above = self._above(branch)
            if above:
                self.devices.append(Device(f"pcie{index}", "pcie_switch", None))
                self._pcie(f"pcie{index}", above, latency("pcie_switch"), branch.spec.uplink)
        for index in range(gpus):
            above = self._switch_of("gpus", index, gpus)
            if self.c2c:
                self._c2c(f"gpu{index}", above)
            else:
                self._pcie(f"gpu{index}", above, delay)

    def _above(self, branch: Branch) -> str:
        """What a switch hangs on; nothing where that is a mistake."""
        socket, at = branch.spec.socket, (*branch.path, "socket")
        if branch.above is None:
            return f"socket{socket}" if self._has_socket(socket, at) else ""
        if "socket" in branch.spec.model_fields_set:
            outer = self.switches[branch.above].number
            self.remarks.wrong(at, str(socket), f"no socket, as the switch hangs on switch {outer}")
        return f"pcie{branch.above}"

    def _c2c(self, gpu: str, socket: str) -> None:
        said = self.spec.c2c
        rate = (said and said.bandwidth) or self.gpu_ports.c2c_bandwidth
        if not rate:
            self.remarks.wrong(("c2c",), "no bandwidth", "a rate, as the catalogue has none for this GPU")
            return
        delay = latency("c2c") if said is None or said.latency is None else said.latency
        self._both(gpu, socket, "c2c", rate, delay)

    # --- network ports and drives ---

    def nics(self) -> None:
        said = self.spec.nics
        known = nic_figures(said, self.remarks, ("nics",)) if said and said.count else None
        if said is None or known is None:
            return
        figures, rate = known
        if rate > self.pcie_rate:
            most = f"at most {show_rate(self.pcie_rate, bits=True)}, which {self.pcie_name} carries"
            self.remarks.wrong(("nics", "bandwidth"), show_rate(rate, bits=True), most)
        if said.socket is not None and not self._has_socket(said.socket, ("nics", "socket")):
            return
        for index in range(said.count):
            name, above = f"nic{index}", self._switch_of("nics", index, said.count)
            if said.socket is not None and above.startswith("socket"):
                above = f"socket{said.socket}"
            self.devices.append(Device(name, "nic", None, figures))
            self._pcie(name, above, latency(f"pcie{self.generation}"))
            self.ports.append((name, rate))

    def nvme(self) -> None:
        number = 0
        for index, said in enumerate(self.spec.nvme):
            figures = drive_figures(said, self.remarks, ("nvme", index))
            if not self._has_socket(said.socket, ("nvme", index, "socket")) or figures is None:
                continue
            for _ in range(said.count):
                name = f"nvme{number}"
                self.devices.append(Device(name, "nvme", None, figures, said.capacity))
                self._both(name, f"socket{said.socket}", "nvme", figures.read, 0.0, back=figures.write)
                number += 1
