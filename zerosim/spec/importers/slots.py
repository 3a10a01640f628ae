"""PCIe links that were seen, as rates; and those that a GPU usually has."""

from __future__ import annotations

from zerosim import catalog
from zerosim.catalog.recognise import Product
from zerosim.spec.importers.seen import GENERATIONS, Slot


def generation(slot: Slot) -> int:
    """Of PCIe; 0 where the text does not tell."""
    return GENERATIONS.get(slot.transfers, 0)


def slot_rate(slot: Slot) -> float:
    """Bytes/s of a PCIe link, one direction; 0 where the text does not tell. Sixteen lanes where it tells no number."""
    lanes, number = slot.lanes or 16, generation(slot)
    if number >= 3:
        return catalog.pcie_bandwidth(number, lanes)
    return slot.transfers * 1e9 / 10 * lanes  # eight bits in ten, up to generation 2


def plain_slot(product: Product, c2c: bool) -> Slot:
    """The PCIe link of a GPU by the catalogue."""
    ports = catalog.gpu_ports(product.gpu)
    speeds = {number: speed for speed, number in GENERATIONS.items()}
    return Slot(speeds[ports.pcie_generation or (5 if c2c else 4)], ports.pcie_lanes)
