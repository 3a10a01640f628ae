"""A machine as a tool reported it: only what stands in its text, in numbers of its own.

Rule: nothing is assumed here and nothing is taken from the catalogue; 0, "" and None mean that the text does not tell.
GPUs, NICs and sockets are called by their places in the tuples. `remarks` are what a reader had to decide on the way.
"""

from __future__ import annotations

from typing import NamedTuple

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # of PCIe, by GT/s
MELLANOX = "0x15b3"  # PCI vendor
MOST_TOLD = 64  # NVLinks between two devices; what is more is no number of them


class Slot(NamedTuple):
    """A PCIe link: GT/s of a lane, and lanes."""

    transfers: float = 0.0
    lanes: int = 0


class SeenGpu(NamedTuple):
    """A GPU; `product` is what the tool calls it, `capability` 80 for 8.0."""

    socket: int = 0
    product: str = ""
    vendor: str = ""  # PCI ids, such as 0x10de
    device: str = ""
    capability: int = 0
    display: bool = False  # its PCI class is that of a graphics card
    slot: Slot = Slot()


class SeenNic(NamedTuple):
    """A network port; `socket` is None where the text does not tell."""

    name: str = ""
    socket: int | None = None
    rate: float = 0.0  # bytes/s
    infiniband: bool = False
    vendor: str = ""
    device: str = ""
    slot: Slot = Slot()


class SeenSocket(NamedTuple):
    """A NUMA node: its CPU by cpuid, and cores."""

    name: str = ""
    cores: int = 0
    vendor: str = ""
    family: int = 0
    model: int = 0
    arch: str = ""


class SeenSwitch(NamedTuple):
    """A PCIe switch with what hangs on it; `slot` is its link upward."""

    gpus: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()
    switches: tuple[SeenSwitch, ...] = ()
    socket: int = 0
    slot: Slot = Slot()


class Seen(NamedTuple):
    """All of it. `pairs` are two GPUs and the NVLinks between them, `switch_links` those of each GPU to NVSwitches.

    `hosts`: so many alike that NVLink joins, of which this is one."""

    tool: str
    gpus: tuple[SeenGpu, ...]
    nics: tuple[SeenNic, ...] = ()
    sockets: tuple[SeenSocket, ...] = ()
    switches: tuple[SeenSwitch, ...] = ()
    pairs: tuple[tuple[int, int, int], ...] = ()
    switch_links: tuple[int, ...] = ()
    hosts: int = 1
    nvlink_untold: bool = False  # the text has no place for NVLink
    c2c: bool = False  # GPU memory is a NUMA node of its own, or the text names NVLink-C2C
    c2c_rate: float = 0.0
    p2p: bool | None = None
    words: str = ""  # what stands around the tables
    remarks: tuple[str, ...] = ()


def switched(switches: tuple[SeenSwitch, ...]) -> tuple[set[int], set[int]]:
    """The GPUs and NICs that hang on switches."""
    gpus: set[int] = set()
    nics: set[int] = set()
    for switch in switches:
        below = switched(switch.switches)
        gpus |= {*switch.gpus, *below[0]}
        nics |= {*switch.nics, *below[1]}
    return gpus, nics
