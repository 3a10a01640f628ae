"""A machine that was seen with all that its text leaves open filled in: what a topology file will say, still as values.

Rule: each choice is made in a room of its own (cards, nvlinks, slots, surroundings); here they are put together, and
what a user should know before relying on the result is gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from zerosim import catalog
from zerosim.catalog.recognise import Platform, Product
from zerosim.spec.importers.cards import Cards, cards, platform_of
from zerosim.spec.importers.nvlinks import Nvlink, nvlink
from zerosim.spec.importers.seen import GENERATIONS, Seen, SeenSwitch, Slot
from zerosim.spec.importers.slots import generation, plain_slot, slot_rate
from zerosim.spec.importers.surroundings import Cpu, Port, cpus, port
from zerosim.units import show_rate


@dataclass(frozen=True, slots=True)
class Draft:
    """`slot` is that of all GPUs but those that have a slower one; `remarks` are oddities of the text."""

    seen: Seen
    source: str
    nodes: int
    cards: Cards
    nvlink: Nvlink
    slot: Slot
    slot_note: str
    platform: Platform | None
    ports: tuple[Port, ...]
    cpus: tuple[Cpu, ...]
    switches: tuple[SeenSwitch, ...]
    remarks: tuple[str, ...]

    @property
    def product(self) -> Product:
        """The GPU, or the most usual one of several."""
        return self.cards.usual

    @property
    def rate(self) -> float:
        """Bytes/s of the PCIe link of a GPU."""
        return slot_rate(self.slot)

    @property
    def c2c_rate(self) -> float:
        """Bytes/s of the NVLink-C2C of the GPU by the catalogue; 0 where it has none."""
        return catalog.gpu_ports(self.product.gpu).c2c_bandwidth

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know before relying on the file: oddities, and a GPU that the text does not tell."""
        unsure = (self.cards.note,) if self.cards.note.startswith("assumed") else ()
        return (*unsure, *self.remarks)


def draft_of(seen: Seen, source: str, nodes: int, wished: str | None) -> Draft:
    """The machine; `wished` is the GPU by name, where the user says it."""
    found = cards(seen, wished, source)
    product, platform = found.usual, platform_of(seen, source)
    c2c = catalog.gpu_ports(product.gpu).c2c_bandwidth > 0
    links = nvlink(seen, product)
    slot, note = _slot(seen, product, c2c)
    return Draft(
        seen=seen,
        source=source,
        nodes=max(nodes, seen.hosts),
        cards=found,
        nvlink=links,
        slot=slot,
        slot_note=note,
        platform=platform,
        ports=tuple(
            port(nic, product, platform, _carried(nic.slot, slot), len(seen.nics) // len(seen.gpus))
            for nic in seen.nics
        ),
        cpus=cpus(seen.sockets, product),
        switches=_without_gpus(seen.switches) if c2c else seen.switches,
        remarks=(*seen.remarks, *_odd(seen, product, links, slot_rate(slot))),
    )


def _slot(seen: Seen, product: Product, c2c: bool) -> tuple[Slot, str]:
    """The fastest slot of a GPU, or that of a port which is faster than that and needs it; and a note."""
    told = [gpu.slot for gpu in seen.gpus if gpu.slot.transfers]
    if not told:
        slot = plain_slot(product, c2c)
        number = GENERATIONS[slot.transfers]
        return slot, f"assumed: PCIe {number} x{slot.lanes}, as {product.name or product.gpu}"
    fastest = max(told, key=slot_rate)
    needed = [nic.slot for nic in seen.nics if nic.rate > slot_rate(fastest) and nic.slot.transfers]
    slot = max([fastest, *needed], key=slot_rate)
    return slot, "" if slot.lanes else "assumed: sixteen lanes"


def _carried(own: Slot, template: Slot) -> float:
    """What the slot of a port carries, which is no more than that of the GPUs."""
    return min(slot_rate(own), slot_rate(template)) if own.transfers else slot_rate(template)


def _without_gpus(switches: tuple[SeenSwitch, ...]) -> tuple[SeenSwitch, ...]:
    """The switches without the GPUs, which NVLink-C2C joins to their CPU."""
    left = (switch._replace(gpus=(), switches=_without_gpus(switch.switches)) for switch in switches)
    return tuple(switch for switch in left if switch.nics or switch.switches)


def _odd(seen: Seen, product: Product, links: Nvlink, rate: float) -> Iterator[str]:
    """What is worth a look: a link at rest may report less, and a file for virtual machines anything."""
    ports = catalog.gpu_ports(product.gpu)
    told = max((generation(gpu.slot) for gpu in seen.gpus), default=0)
    yield from links.remarks
    if told > ports.pcie_generation > 0:
        yield f"the text says PCIe {told} of GPUs that speak PCIe {ports.pcie_generation} by the catalogue"
    slow = {show_rate(up) for switch in every(seen.switches) if 0 < (up := uplink(switch)) < rate / 2}
    if slow:
        yield f"uplinks of {' and '.join(sorted(slow))}, as the text says; a link at rest may report too little"
    if seen.c2c and not ports.c2c_bandwidth:
        yield "the text tells of NVLink-C2C, which this GPU does not have by the catalogue"


def every(switches: Iterable[SeenSwitch]) -> Iterator[SeenSwitch]:
    """All switches, those that hang on others too."""
    for switch in switches:
        yield switch
        yield from every(switch.switches)


def uplink(switch: SeenSwitch) -> float:
    """The rate of a switch upward; 0 where the text does not tell."""
    return slot_rate(switch.slot) if switch.slot.transfers else 0.0
