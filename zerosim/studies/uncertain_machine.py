"""What is uncertain of a machine's devices: what products hold, what copies reach, what ports and drives give.

Rules: what a user or a measurement said is exact, and so are rates on paper; what of a device's figures is the
catalogue's is told by comparing them. Equal devices have one factor: boards of one machine differ less than machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from zerosim import catalog
from zerosim.catalog import constant, described, grades
from zerosim.spec.calibration import Calibration
from zerosim.spec.node import Node
from zerosim.spec.topology import Device, Drive, Gpu, Nic, Topology
from zerosim.studies.uncertain import Figure, of_arithmetic, of_large_messages, of_small_messages, spread


class Part(NamedTuple):
    """A figure, and the fields of a device's figures that it is. `share`: none of them exceeds 1."""

    figure: Figure
    fields: tuple[str, ...]
    share: bool = False


def figures_of_machine(topology: Topology, calibration: Calibration | None = None) -> tuple[Figure, ...]:
    """Those of all devices, each once."""
    devices = {device.figures for node in _distinct(topology) for device in node.devices if device.figures}
    parts = (part.figure for figures in devices for part in _parts(figures, calibration))
    return tuple(sorted({figure.name: figure for figure in parts}.values()))


def drawn_machine(topology: Topology, draws: Mapping[str, float], calibration: Calibration | None = None) -> Topology:
    """The machine, given what was drawn for its figures by name; equal nodes stay one."""
    known = {
        id(node): replace(node, devices=tuple(_drawn(device, draws, calibration) for device in node.devices))
        for node in _distinct(topology)
    }
    nodes = tuple(known[id(node)] for node in topology.nodes)
    return replace(topology, nodes=nodes, fabric=topology.fabric.among(nodes))


def _distinct(topology: Topology) -> list[Node]:
    return list({id(node): node for node in topology.nodes}.values())


def _drawn(device: Device, draws: Mapping[str, float], calibration: Calibration | None) -> Device:
    if device.figures is None:
        return device
    changed = {}
    for part in _parts(device.figures, calibration):
        for field in part.fields:
            value = getattr(device.figures, field) * part.figure.factor(draws[part.figure.name])
            changed[field] = min(1.0, value) if part.share else value
    return replace(device, figures=replace(device.figures, **changed)) if changed else device


def _parts(figures: object, calibration: Calibration | None) -> Iterator[Part]:
    match figures:
        case Gpu():
            yield from _of_gpu(figures, calibration)
        case Nic():
            yield from _of_port(figures)
        case Drive() if figures.grade != "user":
            figure = Figure(f"drives.{figures.name}", figures.grade, spread(figures.grade))
            yield Part(figure, ("read", "write", "sustained_write"))


def _of_gpu(gpu: Gpu, calibration: Calibration | None) -> Iterator[Part]:
    name = catalog.gpu_called(gpu.name)
    measured = calibration is not None and calibration.factor(name or gpu.name) is not None
    if not measured and not _said_products(gpu, name):
        grade = grades.sustained_grade(name) if name else described("gemm.efficiency").grade
        figure = Figure(f"gpus.{name or gpu.name}.products", grade, spread(grade, of_arithmetic()))
        yield Part(figure, ("matmul_efficiency", "sustained", "fp32_efficiency"), share=True)
    grade = described("memory.stream_efficiency").grade
    yield Part(Figure(f"gpus.{name or gpu.name}.copies", grade, spread(grade)), ("stream_efficiency",), share=True)


def _said_products(gpu: Gpu, name: str | None) -> bool:
    """Whether the user said what products reach; a lower limit of power says less than that."""
    if name is None:
        return gpu.matmul_efficiency != constant("gemm.efficiency")
    usual = catalog.gpu(name)
    limited = 0 < gpu.power < usual.power
    return gpu.matmul_efficiency != usual.matmul_efficiency or (gpu.sustained != usual.sustained and not limited)


def _of_port(port: Nic) -> Iterator[Part]:
    entry = catalog.nics().get(port.name)
    usual = entry.figures if entry else port
    if port.efficiency == usual.efficiency and usual.grade != "user":
        figure = Figure(f"nics.{port.name}.efficiency", usual.grade, spread(usual.grade, of_large_messages()))
        yield Part(figure, ("efficiency",), share=True)
    if port.latency == usual.latency and usual.grade != "user":
        grade = grades.latency_grade(port.name) if entry else usual.grade
        figure = Figure(f"nics.{port.name}.latency", grade, spread(grade, of_small_messages()))
        yield Part(figure, ("latency", "large_latency"))
