"""Drawing one server from its template: devices, the links between them, and whether they fit together.

GPUs and NICs hang on the PCIe switches that name them; those that none names hang on the sockets, evenly in order. A
switch hangs on a socket or on another switch. The catalogue fills in what the template leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

from zerosim import catalog
from zerosim.spec.devices import Device, Link, LinkKind, Nic, Socket
from zerosim.spec.document import Path
from zerosim.spec.figures import Remarks, drive_figures, gpu_figures, nic_figures, socket_figures, unlike_ports
from zerosim.spec.node import Node
from zerosim.spec.nvlink_wiring import RACK, SWITCH, wires
from zerosim.spec.pcie_tree import Branch, branches, check, holder
from zerosim.spec.topology_schema import GpuSpec, NicSpec, NodeSpec, OverrideSpec, PcieSpec, SocketSpec
from zerosim.units import show_rate

MICROSECOND = 1e-6
PLAIN_CPU = "epyc_rome"
PLAIN_DRAM_BYTES = 512e9
PLAIN_PCIE: Mapping[bool, int] = {False: 4, True: 5}  # by whether the GPU has NVLink-C2C


def draw(spec: NodeSpec, remarks: Remarks, single: Mapping[int, tuple[OverrideSpec, int]]) -> Node | None:
    """The server of a template; `single` are the overrides (and their places) of single GPUs. None if it cannot be."""
    drawing = _Drawing(spec, remarks, single)
    drawing.sockets()
    drawing.gpus()
    drawing.nvlink()
    drawing.pcie()
    drawing.nics()
    drawing.nvme()
    if remarks.problems:
        return None
    down = tuple(sorted(set(spec.nics.down))) if spec.nics else ()
    return Node(tuple(drawing.devices), tuple(drawing.links), tuple(drawing.ports), tuple(drawing.outward), down)


def latency(kind: str) -> float:
    """The latency of a link of a kind, by the catalogue: its own, else a step of the collectives over it."""
    own = catalog.constants("latency_us")
    return MICROSECOND * (own[kind] if kind in own else catalog.constant(f"collectives.hop_us.{kind}"))


class _Drawing:
    """The sheet on which a server is drawn."""

    def __init__(self, spec: NodeSpec, remarks: Remarks, single: Mapping[int, tuple[OverrideSpec, int]]) -> None:
        self.spec, self.remarks, self.single = spec, remarks, single
        self.devices: list[Device] = []
        self.links: list[Link] = []
        self.outward: list[Link] = []  # NVLinks to the switch of a rack
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
        if switch is not None:
            return f"pcie{switch}"
        evenly = index * len(self.cpus) // count
        return f"socket{next((n for n, cpu in enumerate(self.cpus) if index in getattr(cpu, key)), evenly)}"

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

    def gpus(self) -> None:
        figures = gpu_figures(self.spec.gpus, self.remarks, ("gpus",))
        for index in range(self.spec.gpus.count if figures else 0):
            own, compute = figures, self.spec.gpus.compute
            if index in self.single:
                override, place = self.single[index]
                compute = override.compute or compute
                if override.device is not None:
                    own = gpu_figures(GpuSpec(device=override.device), self._of_one(place), ())
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
        own = {f"gpu{gpu}": self._own_nvlink(gpu, rate) for gpu in self.single}
        if said.kind == "switch" and said.hosts == 1:
            self.devices.append(Device(SWITCH, "nvswitch", None))
        for a, b, share in wires(said, self.spec.gpus.count, self.remarks):
            least = min(rate, own.get(a, rate), own.get(b, rate))
            drawn = self.links if b != RACK else self.outward
            drawn.append(Link(a, b, "nvlink", least * share, delay, generation=generation))

    def _own_nvlink(self, gpu: int, rate: float) -> float:
        """That of one GPU, whose links may have trained down."""
        override, place = self.single[gpu]
        said, most = (override.nvlink and override.nvlink.bandwidth) or rate, f"at most {show_rate(rate)}"
        if said > rate:
            self._of_one(place).wrong(("nvlink", "bandwidth"), show_rate(said), f"{most}, as the other GPUs have")
        return said

    # --- PCIe ---

    def pcie(self) -> None:
        if self.pcie_rate > self.paper_rate:
            most = f"at most {show_rate(self.paper_rate)}, as {self.pcie_name}"
            self.remarks.wrong(("pcie", "bandwidth"), show_rate(self.pcie_rate), most)
        gpus = self.spec.gpus.count
        check(self.switches, self.cpus, "gpus", gpus, self.remarks)
        check(self.switches, self.cpus, "nics", self.spec.nics.count if self.spec.nics else 0, self.remarks)
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
                self._lane(index, above)

    def _lane(self, gpu: int, above: str) -> None:
        """The PCIe link of a GPU; one may have trained down to fewer lanes or an older generation."""
        generation, rate = self._own_generation(), self.pcie_rate
        if generation < self.generation:
            rate = min(rate, catalog.pcie_bandwidth(generation, (self.spec.pcie or PcieSpec()).lanes))
        override, place = self.single.get(gpu, (None, 0))
        if override and override.pcie:
            said, plain = override.pcie, self.spec.pcie or PcieSpec()
            generation = said.generation or generation
            lanes = said.lanes if "lanes" in said.model_fields_set else plain.lanes
            rate = said.bandwidth or min(rate, catalog.pcie_bandwidth(generation, lanes))
            if rate > self.pcie_rate:
                most = f"at most {show_rate(self.pcie_rate)}, as the other GPUs have"
                self._of_one(place).wrong(("pcie", "bandwidth"), show_rate(rate), most)
        self._both(f"gpu{gpu}", above, "pcie", rate, latency(f"pcie{generation}"), generation=generation)

    def _own_generation(self) -> int:
        """The PCIe of the GPUs: where an override gives a server GPUs of another kind, no more than these have."""
        most = self.gpu_ports.pcie_generation if self.remarks.over else 0
        return min(self.generation, most or self.generation)

    def _of_one(self, place: int) -> Remarks:
        """Where remarks on the override of a single GPU go."""
        return Remarks(self.remarks.document, ("overrides", place), (), self.remarks.problems)

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
        self._fits(known[1], ("nics",))
        unlike = self._unlike(said)
        if said.socket is not None and not self._has_socket(said.socket, ("nics", "socket")):
            return
        for place, port in enumerate(said.down):
            if port >= said.count:
                self.remarks.wrong(("nics", "down", place), f"NIC {port}", f"a NIC from 0 to {said.count - 1}")
        for index in [port for port in range(said.count) if port not in said.down]:
            name, above = f"nic{index}", self._switch_of("nics", index, said.count)
            if said.socket is not None and above.startswith("socket"):
                above = f"socket{said.socket}"
            figures, rate = unlike.get(index, known)
            self.devices.append(Device(name, "nic", None, figures))
            self._pcie(name, above, latency(f"pcie{self.generation}"))
            self.ports.append((name, rate))

    def _fits(self, rate: float, at: Path) -> None:
        if rate > self.pcie_rate:
            most = f"at most {show_rate(self.pcie_rate, bits=True)}, which {self.pcie_name} carries"
            self.remarks.wrong((*at, "bandwidth"), show_rate(rate, bits=True), most)

    def _unlike(self, said: NicSpec) -> dict[int, tuple[Nic, float]]:
        """Figures and rates of the ports that are not as the others."""
        found: dict[int, tuple[Nic, float]] = {}
        for place, other in enumerate(unlike_ports(said)):
            at = ("nics", "unlike", place)
            known = nic_figures(other, self.remarks, at)
            if known is not None:
                self._fits(known[1], at)
                found.update(dict.fromkeys(other.nics, known))
            for number, port in enumerate(other.nics):
                if port >= said.count:
                    self.remarks.wrong((*at, "nics", number), f"NIC {port}", f"a NIC from 0 to {said.count - 1}")
        return found

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
