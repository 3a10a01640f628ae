"""The topology YAML of a machine that was seen, with a comment wherever a figure had to be assumed.

Rule: only what a topology file may say; figures and reasons come from the draft, how lines look is in `yaml_lines`.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any

from zerosim import catalog
from zerosim.catalog import recognise
from zerosim.spec.importers.draft import Draft, every, uplink
from zerosim.spec.importers.nvlinks import Nvlink
from zerosim.spec.importers.seen import SeenSwitch, switched
from zerosim.spec.importers.slots import generation, slot_rate
from zerosim.spec.importers.surroundings import Cpu, Port
from zerosim.spec.importers.yaml_lines import WIDTH, Line, comment, flow, item, mapping, plain, scalar, shown
from zerosim.units import show_rate, show_size

NO_DRIVES = "{device: nvme_gen4_enterprise, socket: 0, count: 4, capacity: 3.84 TB}"
HEAD = "What the text does not say is marked assumed; (E) exact, (A) approximate, (R) recalled, (D) derived figures."


def written(draft: Draft, name: str) -> str:
    """The text of the topology."""
    writer = _Writer(draft)
    lines = [Line(f"name: {scalar(name)}"), Line("node:"), *writer.node(), *writer.fabric(), *writer.overrides()]
    count = len(draft.seen.gpus)
    head = [
        f"{count} GPU{'s' if count > 1 else ''}, from {draft.seen.tool} ({draft.source}).",
        HEAD,
        *(f"Note: {said}." for said in draft.remarks),
    ]
    return "".join([*(line for said in head for line in comment(said, "")), *map(shown, lines)])


class _Writer:
    """Writes a draft section by section."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def node(self) -> Iterator[Line]:
        hosts = self.draft.seen.hosts
        yield Line(f"  count: {self.draft.nodes}", f"{hosts} hosts stand in the text" if hosts > 1 else "")
        yield from self._gpus()
        yield from self._nvlink(self.draft.nvlink)
        yield from self._pcie()
        if self.draft.c2c_rate:
            yield self._c2c(self.draft.seen.c2c_rate)
        yield from self._sockets()
        yield from self._nics()
        yield Line(f"  # nvme: [{NO_DRIVES}]", "not told: no drives")

    def _gpus(self) -> Iterator[Line]:
        product, note = self.draft.product, self.draft.cards.note
        stands = {"name": product.name, **product.figures} if product.name else {}
        if product.name:
            note += f"; the catalogue does not have {product.name}: {product.gpu} with figures of its own (R)"
        usual = product.figures.get("p2p", catalog.gpu(product.gpu).p2p)
        told = self.draft.seen.p2p
        keys: dict[str, Any] = {"device": product.gpu, "count": len(self.draft.seen.gpus), **stands}
        if told is not None and told != usual:
            keys["p2p"] = told
        if self.draft.nvlink.kind == "none" and len(self.draft.seen.gpus) > 1 and not keys.get("p2p", usual):
            note += f"; peers copy through host memory, as {'topo -p2p' if told is False else 'the catalogue'} says"
        yield from mapping("gpus", keys, note)

    def _c2c(self, told: float) -> Line:
        """As the text says, where that can be."""
        sound = 1e10 <= told <= 1e13
        rate = show_rate(told if sound else self.draft.c2c_rate)
        return Line(f"  c2c: {{bandwidth: {rate}}}", "" if sound else f"assumed: as of {self.draft.product.gpu} (A)")

    def _nvlink(self, said: Nvlink) -> Iterator[Line]:
        if said.kind == "none":
            yield Line("  nvlink: {kind: none}")
            return
        keys = f"kind: {said.kind}, bandwidth: {show_rate(said.links * said.rate)}"
        if said.kind == "switch" and self.draft.seen.hosts > 1:
            keys += f", hosts: {self.draft.seen.hosts}"
        if said.kind != "pairs":
            yield Line(f"  nvlink: {{{keys}}}", said.note)
            return
        yield Line("  nvlink:", said.note)
        yield from (Line(f"    {key}") for key in keys.split(", "))
        pairs = ", ".join(f"[{a},_{b},_{links}]" for a, b, links in said.pairs)
        whole = textwrap.fill(f"{pairs}]", WIDTH, initial_indent="    pairs: [", subsequent_indent=" " * 12)
        yield from (Line(line.replace("_", " ")) for line in whole.splitlines())

    def _pcie(self) -> Iterator[Line]:
        number = generation(self.draft.slot) or 4
        lanes = self.draft.slot.lanes or 16
        yield Line("  pcie:", "" if not self.draft.switches else self._uplinks())
        if number < 3:
            rate = show_rate(self.draft.rate)
            yield Line("    generation: 3", f"PCIe {number} x{lanes}, at its rate")
            yield Line(f"    bandwidth: {rate}")
        else:
            yield Line(f"    generation: {number}", self.draft.slot_note)
        yield Line(f"    lanes: {lanes}")
        if self.draft.switches:
            yield Line("    switches:")
            for switch in self.draft.switches:
                yield from self._switch(switch, "      ", inner=False)

    def _uplinks(self) -> str:
        untold = any(not uplink(switch) for switch in every(self.draft.switches))
        return "assumed: links between switches and upward as the others, where no uplink is said" if untold else ""

    def _switch(self, switch: SeenSwitch, indent: str, inner: bool) -> Iterator[Line]:
        rate = uplink(switch)
        upward = show_rate(rate) if rate and rate != self.draft.rate else ""
        keys: dict[str, Any] = {"gpus": switch.gpus, "nics": switch.nics, "uplink": upward}
        if not inner:
            keys["socket"] = switch.socket
        slower = rate and rate < self.draft.rate / 2
        note = f"{switch.slot.transfers:g} GT/s x{switch.slot.lanes or 16}, as the text says" if slower else ""
        if not switch.switches:
            yield from item(indent, keys, note)
            return
        held = [(key, value) for key, value in keys.items() if value not in ("", ())] or [("gpus", [])]
        for index, (key, value) in enumerate(held):
            yield Line(f"{indent}{'- ' if index == 0 else '  '}{key}: {plain(value)}", note if key == "uplink" else "")
        yield Line(f"{indent}  switches:")
        for below in switch.switches:
            yield from self._switch(below, f"{indent}    ", inner=True)

    # --- sockets ---

    def _sockets(self) -> Iterator[Line]:
        yield Line("  sockets:", "assumed: memory and links between sockets, usual with such GPUs and CPUs (R)")
        on_gpus, on_nics = switched(self.draft.switches)
        several = len(self.draft.cpus) > 1
        for index, cpu in enumerate(self.draft.cpus):
            keys: dict[str, Any] = {"device": cpu.device}
            if cpu.cores != catalog.sockets()[cpu.device].figures.cores:
                keys["cores"] = cpu.cores
            keys["dram"] = {"capacity": show_size(cpu.dram_bytes), "bandwidth": show_rate(cpu.dram_rate)}
            if several:
                gpus = [n for n, gpu in enumerate(self.draft.seen.gpus) if gpu.socket == index and n not in on_gpus]
                nics = [n for n, nic in enumerate(self.draft.seen.nics) if nic.socket == index and n not in on_nics]
                keys |= {"gpus": tuple(gpus), "nics": tuple(nics)}
            yield from item("    ", keys, self._of_socket(index, cpu))

    def _of_socket(self, index: int, cpu: Cpu) -> str:
        name = self.draft.seen.sockets[index].name
        return "; ".join(part for part in (name, cpu.note) if part)

    # --- network ---

    def _nics(self) -> Iterator[Line]:
        ports = self.draft.ports
        if not ports:
            yield self._no_nics()
            return
        usual = Counter(map(_port_keys, ports)).most_common(1)[0][0]
        notes = dict.fromkeys(part for port in ports if _port_keys(port) == usual for part in port.note.split("; "))
        note = "; ".join(part for part in (self._names(), *notes, self._lost()) if part)
        keys = f"count: {len(ports)}, {usual}"
        others: dict[str, list[int]] = {}
        for index, port in enumerate(ports):
            if _port_keys(port) != usual:
                others.setdefault(_port_keys(port), []).append(index)
        if not others:
            yield Line(f"  nics: {{{keys}}}", note)
            return
        yield Line("  nics:", note)
        yield from (Line(f"    {key}") for key in keys.split(", "))
        yield Line("    unlike:")
        for other, indices in others.items():
            yield Line(f"      - {{nics: {plain(indices)}, {other}}}", ports[indices[0]].note)

    def _names(self) -> str:
        names = [nic.name for nic in self.draft.seen.nics]
        return ", ".join(names) if all(names) else ""

    def _lost(self) -> str:
        """Ports of which nothing tells where they hang."""
        _, on_switches = switched(self.draft.switches)
        lost = [n for n, nic in enumerate(self.draft.seen.nics) if nic.socket is None and n not in on_switches]
        return f"assumed: NIC {', '.join(map(str, lost))} on the sockets, evenly in order" if lost else ""

    def _no_nics(self) -> Line:
        usual = self.draft.platform.nic if self.draft.platform else recognise.surroundings(self.draft.product.gpu).nic
        line = f"nics: {{device: {usual}, count: 1}}"
        if self.draft.nodes > 1:
            return Line(f"  {line}", "assumed: the text names no port, and nodes need one (R)")
        return Line(f"  # {line}", "not told: no network port")

    def fabric(self) -> list[Line]:
        if self.draft.nodes == 1:
            return []
        return [Line("fabric: {kind: switch}", "assumed: one switch joins the nodes, as the text does not tell")]

    # --- overrides ---

    def overrides(self) -> list[Line]:
        """GPUs that are not as the most usual one, and GPUs in slower slots, in each node."""
        lines: list[Line] = []
        for index in range(len(self.draft.seen.gpus)):
            own = {**self._other_card(index), **self._fewer_links(index), **self._slower_slot(index)}
            if own:
                places = (f'"{host}.{index}"' for host in range(self.draft.nodes))
                lines += [Line(f"  - {flow({'gpu': place, **own})}") for place in places]
        return [Line("overrides:"), *lines] if lines else []

    def _other_card(self, index: int) -> dict[str, Any]:
        product = self.draft.cards.each[index]
        if product == self.draft.product:
            return {}
        if not product.name:
            return {"device": product.gpu}
        figures = catalog.gpu(product.gpu)
        plain = {
            "name": product.name,
            "flops": f"{figures.peak_flops['fp16']:.6g}",
            "memory": show_size(figures.memory_bytes),
            "hbm": show_rate(figures.memory_bandwidth),
            "architecture": figures.architecture,
        }
        return {"device": {**plain, **product.figures}}

    def _fewer_links(self, index: int) -> dict[str, Any]:
        said = self.draft.nvlink
        if not said.own or said.own[index] == said.links:
            return {}
        return {"nvlink": {"bandwidth": show_rate(said.own[index] * said.rate)}}

    def _slower_slot(self, index: int) -> dict[str, Any]:
        slot = self.draft.seen.gpus[index].slot
        rate = slot_rate(slot)
        if self.draft.c2c_rate or not rate or rate >= self.draft.rate:
            return {}
        number = generation(slot)
        if number >= 3:
            return {"pcie": {"generation": number, "lanes": slot.lanes or 16}}
        return {"pcie": {"bandwidth": show_rate(rate)}}


def _port_keys(port: Port) -> str:
    """What is said of a port: its entry in the catalogue, or its rate and kind."""
    rate = f"bandwidth: {show_rate(port.rate, bits=True)}"
    if not port.device:
        return f"{rate}, kind: {port.kind}"
    return f"device: {port.device}" + ("" if port.rate == catalog.nics()[port.device].bandwidth else f", {rate}")
