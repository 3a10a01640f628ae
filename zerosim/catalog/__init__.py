"""Figures of the field: GPUs, network ports, CPUs, drives and the constants of the cost model, each with its source.

Rule: this package only reads its YAML files. It knows no topology and no formula. Readers give plain numbers in base
units (bytes/s, FLOP/s, bytes) and are cached; a constant keeps the unit in its name (`t0_us`).
"""

from zerosim.catalog.data import UnknownNameError, sources
from zerosim.catalog.figures import Constant, all_constants, constant, constants, described, reading, using
from zerosim.catalog.hardware import (
    GpuPorts,
    NicEntry,
    SocketEntry,
    drive,
    drives,
    gpu,
    gpu_called,
    gpu_ports,
    gpus,
    nic,
    nic_for,
    nic_kinds,
    nics,
    pcie_bandwidth,
    socket,
    sockets,
)

__all__ = [
    "Constant",
    "GpuPorts",
    "NicEntry",
    "SocketEntry",
    "UnknownNameError",
    "all_constants",
    "constant",
    "constants",
    "described",
    "drive",
    "drives",
    "gpu",
    "gpu_called",
    "gpu_ports",
    "gpus",
    "nic",
    "nic_for",
    "nic_kinds",
    "nics",
    "pcie_bandwidth",
    "reading",
    "socket",
    "sockets",
    "sources",
    "using",
]
