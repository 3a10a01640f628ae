"""A calibration on a machine: which figures of the topology and which constants of the catalogue it changes.

A measured rate becomes a fraction of the paper rate of the very thing it was measured on (the link of a GPU, the memory
of a node), which is what the catalogue's constants are; more than the paper rate is a mistake, not a fraction. What the
factor of a GPU is worth is said by its figures, what drives give by theirs. Curves of collectives are in `measured`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from zerosim.catalog import constant, gpu_called
from zerosim.costs.links import link_key
from zerosim.costs.machine import Machine
from zerosim.costs.measured import Applied, Curves, timed
from zerosim.costs.processor import GB, cores_share, locality, memory_turns
from zerosim.costs.site import Site, survey
from zerosim.errors import InputError, Problem
from zerosim.resources import Calibrated
from zerosim.spec.calibration import RATES, Calibration, Curve, MeasuredRate
from zerosim.spec.launch import Launch
from zerosim.spec.node import Node
from zerosim.spec.topology import Device, Drive, Gpu, Topology
from zerosim.step import Attention, HostCompute, Matmul, Transfer, Work
from zerosim.units import show_rate, show_seconds, show_share, show_size

NOISE = 1.02  # of a paper rate, before a measured one is taken for that of another thing


class Fitted(NamedTuple):
    """A machine as measured: its topology, other values of constants by path, and the curves of collectives."""

    calibration: Calibration
    topology: Topology
    constants: Mapping[str, float]
    curves: Curves


def calibrated(calibration: Calibration, topology: Topology, whole: Topology, launch: Launch) -> Fitted:
    """`topology`, a part of `whole`, as measured; InputError with everything that cannot be."""
    _, sites = survey(Machine(topology), launch)
    problems: list[Problem] = []
    constants = {
        **_copies(calibration, sites, problems),
        **_memory(calibration, topology, sites, problems),
        **({"nvme.raid0_eff": 1.0} if _drives_measured(calibration) else {}),  # drives have what they give together
    }
    changed = _changed(topology, calibration, problems)
    if problems:
        raise InputError(dict.fromkeys(problems))
    curves = Curves(calibration.curves, whole, launch, calibration.origin)
    return Fitted(calibration, changed, constants, curves)


def _too_fast(calibration: Calibration, measured: MeasuredRate, paper: float, of: str) -> Problem:
    expected = f"at most {show_rate(paper)}, the paper rate of {of}: was it measured on this machine?"
    return Problem(calibration.origin, measured.name, show_rate(measured.rate), expected)


# --- constants -------------------------------------------------------------------------------------------------------


def _copies(calibration: Calibration, sites: Sequence[Site], problems: list[Problem]) -> dict[str, float]:
    """Fractions of the rate of a GPU's own link, one way or both together. Both ways together carry one way alone."""
    found: dict[str, float] = {}
    for link in {site.host_link for site in sites if site.host_link}:
        key = link_key(link)
        both = f"copies.both_eff.{key}"
        for way, paper in (("h2d", link.bandwidth), ("d2h", link.bandwidth), ("both", 2 * link.bandwidth)):
            measured = calibration.rate(f"copies.{way}")
            if measured is None:
                continue
            if measured.rate > NOISE * paper:
                problems.append(_too_fast(calibration, measured, paper, f"the GPU's link ({key})"))
            found[f"copies.{way}_eff.{key}"] = min(1.0, measured.rate / paper)
            found[both] = max(found.get(both, constant(both)), min(1.0, measured.rate / (2 * link.bandwidth)))
        together = calibration.rate("copies.both")
        if together is not None:
            found[both] = min(1.0, together.rate / (2 * link.bandwidth))
    return found


def _memory(
    calibration: Calibration, topology: Topology, sites: Sequence[Site], problems: list[Problem]
) -> dict[str, float]:
    """Of host memory under CPU Adam, backwards through `processor.memory_share`; the cores move no less than that.

    torch's Adam keeps its ratio to the vectorised one.
    """
    measured, home = calibration.rate("dram.adam"), sites[0].home
    node = survey(Machine(topology), Launch())[1][0].home  # processes that are not bound have all memory of the node
    if measured is None or home is None or node is None:
        return {}
    if measured.rate > NOISE * node.dram:
        problems.append(_too_fast(calibration, measured, node.dram, "the memory of a node"))
    share = min(1.0, measured.rate / node.dram)
    eff = share * memory_turns(home) / locality(home.sockets)  # more than 1 where far memory costs less than is thought
    torch = constant("cpu_adam.torch_dram_eff") / constant("cpu_adam.dram_eff")
    found = {"cpu_adam.dram_eff": eff, "cpu_adam.torch_dram_eff": eff * torch}
    if home.cores:
        needed = measured.rate * home.dram / node.dram / (home.cores * cores_share(home) * GB)
        found["cpu_adam.per_core_gbs"] = max(constant("cpu_adam.per_core_gbs"), needed)
    return found


# --- figures ---------------------------------------------------------------------------------------------------------


def _changed(topology: Topology, calibration: Calibration, problems: list[Problem]) -> Topology:
    """The topology with what was measured of GPUs and drives; equal nodes stay one."""
    if not calibration.compute and not _drives_measured(calibration):
        return topology
    known: dict[int, Node] = {}
    for node in topology.nodes:
        if id(node) not in known:
            given = _read_and_write(calibration, node, problems)
            devices = tuple(_as_measured(device, calibration, given, problems) for device in node.devices)
            known[id(node)] = replace(node, devices=devices)
    nodes = tuple(known[id(node)] for node in topology.nodes)
    return replace(topology, nodes=nodes, fabric=topology.fabric.among(nodes))


def gpu_key(figures: Gpu) -> str:
    """The name of a GPU in the catalogue; its own where it is not there."""
    return gpu_called(figures.name) or figures.name


def _as_measured(
    device: Device, calibration: Calibration, given: tuple[float, float], problems: list[Problem]
) -> Device:
    figures = device.figures
    if isinstance(figures, Gpu) and (entry := calibration.factor(gpu_key(figures))):
        if entry.factor * figures.matmul_efficiency > 1:
            expected = (
                f"at most {1 / figures.matmul_efficiency:.3g}: products would be faster than {figures.name}'s peak"
            )
            problems.append(Problem(calibration.origin, "compute", f"the factor {entry.factor:.4g}", expected))
        return replace(device, figures=replace(figures, arithmetic=entry.factor))
    if isinstance(figures, Drive) and _drives_measured(calibration):
        read, write = figures.read * given[0], figures.write * given[1]
        sustained = min(write, figures.sustained_write * given[1])
        return replace(
            device, figures=replace(figures, read=read, write=write, sustained_write=sustained, grade="user")
        )
    return device


def _drives_measured(calibration: Calibration) -> bool:
    return any(rate.name.startswith("nvme.") for rate in calibration.rates)


def _read_and_write(calibration: Calibration, node: Node, problems: list[Problem]) -> tuple[float, float]:
    """By how much the rates of each drive change, so that all of them give what was measured of them together.

    What was not measured keeps what striping leaves of it.
    """
    drives = [device.figures for device in node.devices if isinstance(device.figures, Drive)]
    striped = constant("nvme.raid0_eff") if len(drives) > 1 else 1.0
    ratios = []
    for name, rates in (("read", [drive.read for drive in drives]), ("write", [drive.write for drive in drives])):
        measured, paper = calibration.rate(f"nvme.{name}"), sum(rates)
        if measured and paper and measured.rate > NOISE * paper:
            problems.append(_too_fast(calibration, measured, paper, f"the drives of a node, {name}"))
        ratios.append(measured.rate / paper if measured and paper else striped)
    return ratios[0], ratios[1]


# --- what a step used ------------------------------------------------------------------------------------------------


def told(fitted: Fitted, works: Iterable[Work]) -> tuple[Calibrated, ...]:
    """Every entry of the calibration, and whether a step of these works used it."""
    needed = _needs(works)
    calibration, there = fitted.calibration, {gpu_key(gpu) for node in fitted.topology.nodes for gpu in _gpus(node)}
    return (*_told_curves(fitted), *_told_compute(calibration, there, needed), *_told_rates(calibration, needed))


def _told_compute(calibration: Calibration, there: set[str], needed: frozenset[str]) -> Iterator[Calibrated]:
    for entry in calibration.compute:
        stands = any(calibration.factor(name) == entry for name in there)
        value = f"products and attention at {show_share(entry.factor)} of the catalogue's rates"
        remark = "" if stands else "the machine has no such GPU"
        yield Calibrated(f"compute of {entry.gpu}", value, entry.source, stands and "arithmetic" in needed, remark)


def _told_rates(calibration: Calibration, needed: frozenset[str]) -> Iterator[Calibrated]:
    for rate in calibration.rates:
        yield Calibrated(rate.name, f"{show_rate(rate.rate)}, {RATES[rate.name]}", rate.source, rate.name in needed)


def _told_curves(fitted: Fitted) -> Iterator[Calibrated]:
    uses: dict[Curve, list[Applied]] = {}
    for applied in fitted.curves.sizes:
        uses.setdefault(applied.curve, []).append(applied)
    for curve in fitted.calibration.curves:
        used = uses.get(curve, [])
        remarks = dict.fromkeys(_remark(each, fitted.curves.sizes[each]) for each in used)
        remark = "; ".join(filter(None, remarks))
        yield Calibrated(curve.name, curve_words(curve), curve.source, bool(used), remark)


def curve_words(curve: Curve) -> str:
    """ "alpha 44.3 us, bandwidth 228 GB/s, kappa 0.72"."""
    parts = (
        f"alpha {show_seconds(curve.alpha)}" if curve.alpha is not None else "",
        f"bandwidth {show_rate(curve.bandwidth)}" if curve.bandwidth is not None else "",
        f"kappa {curve.kappa:.3g}" if curve.kappa is not None else "",
    )
    return ", ".join(filter(None, parts))


def _remark(applied: Applied, sizes: tuple[float, float]) -> str:
    """What it was used for beside what was measured: other numbers, another kind, other sizes."""
    curve, said = applied.curve, []
    if not applied.exact and (applied.kind, applied.gpus, applied.nodes) == curve[:3]:
        said.append("carried over to " + ("several such groups at once" if timed(curve) == applied.kind else "one way"))
    elif not applied.exact:
        nodes = f"{applied.nodes} node{'s' if applied.nodes > 1 else ''}"
        said.append(f"carried over to {applied.kind} of {applied.gpus} GPUs on {nodes}")
    outside = [size for size in dict.fromkeys(sizes) if not curve.sizes[0] <= size <= curve.sizes[1]]
    if outside:
        measured = f"{show_size(curve.sizes[0])} to {show_size(curve.sizes[1])}"
        said.append(f"used for {' and '.join(map(show_size, outside))}, outside of what was measured ({measured})")
    return ", ".join(said)


def _gpus(node: Node) -> Iterator[Gpu]:
    return (device.figures for device in node.gpus if isinstance(device.figures, Gpu))


def _needs(works: Iterable[Work]) -> frozenset[str]:
    """What kinds of measured numbers these works depend on."""
    needed: set[str] = set()
    for work in works:
        if isinstance(work, Matmul | Attention):
            needed.add("arithmetic")
        elif isinstance(work, HostCompute):
            needed |= {"dram.adam"} if work.kind in ("optimizer", "torch_optimizer") else set()
        elif isinstance(work, Transfer):
            needed |= _of_a_copy(work)
    return frozenset(needed)


def _of_a_copy(work: Transfer) -> set[str]:
    from_gpu, to_gpu = work.source == "gpu" != work.target, work.target == "gpu" != work.source
    parts = {
        "copies.h2d": to_gpu,
        "copies.d2h": from_gpu,
        "copies.both": to_gpu or from_gpu,
        "nvme.read": work.source == "nvme",
        "nvme.write": work.target == "nvme",
    }
    return {name for name, needed in parts.items() if needed}
