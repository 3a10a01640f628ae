"""What the page shows of a played state, as plain data: numbers, memory, the figure, findings, what is kept.

Numbers are written here, with their units, so that the page and the command line say them alike; the page only
compares them with those of a pinned baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zerosim.playground.controls import CONTROLS, FAMILY, GIVEN, Control
from zerosim.playground.machines import BITS, GIGA, Machine, machines
from zerosim.playground.player import Played
from zerosim.playground.start import Start, kept, strategies
from zerosim.playground.state import choices
from zerosim.report.figure import figure
from zerosim.report.page.drawing import inks
from zerosim.report.page.sections import shown, told
from zerosim.scenario import Scenario
from zerosim.spec.model_file import model_names
from zerosim.spec.strategy import DeepSpeed
from zerosim.units import COUNT, show_count, show_rate, show_seconds, show_share, show_size
from zerosim.views import Summary

NO_COUNTS = ("Gb/s", "MiB")  # units of which a letter means something else
TIERS = {"gpu": "Memory of each GPU", "dram": "Host memory of a node", "nvme": "Drives of a node"}


class Number(NamedTuple):
    """A headline: `value` to compare, `better` less or more; a `share` changes by points of a hundred. Values of
    different `work`, tokens of a step, are not better or worse than each other."""

    name: str
    label: str
    text: str
    value: float
    better: str
    about: str = ""
    share: bool = False
    work: int = 0  # 0: it is of none


def answer(played: Played, start: Start) -> dict[str, Any]:
    """All that is shown of one state."""
    scenario, summary = played.simulation.scenario, played.summary
    ranks = scenario.topology.fullest
    return {
        "title": scenario.title,
        "state": dict(played.state),
        "network": _network(played),
        "gpus": scenario.world_size,
        "nodes": len(scenario.topology.hosts),
        "fits": summary.fits,
        "numbers": [number._asdict() for number in numbers(summary, _tokens(scenario))],
        "memory": list(_memory(summary)),
        "sections": "".join((inks(), *shown(told(summary)))),
        "kept": kept(scenario.text, start.written.scenario),
        "waiting": _waiting(played, start),
        "deepspeed": isinstance(scenario.strategy, DeepSpeed),
        "figure": figure(played.simulation, scenario.title, tiers=played.tiers, ranks_per_node=ranks),
        "seconds": played.seconds,
    }


def _tokens(scenario: Scenario) -> int:
    """Those of a step, of all GPUs."""
    return scenario.training.tokens * scenario.training.gradient_accumulation_steps * scenario.replicas


def numbers(summary: Summary, tokens: int) -> Iterator[Number]:
    """The headline of a step of so many tokens."""
    exposed = summary.breakdown.exposed_communication + summary.breakdown.exposed_transfer
    share = exposed / summary.step_seconds if summary.step_seconds else 0.0
    yield Number("step", "Step", show_seconds(summary.step_seconds), summary.step_seconds, "less",
                 work=tokens)  # fmt: skip
    yield Number("tokens", "Throughput", f"{show_count(summary.tokens_per_second)} tokens/s",
                 summary.tokens_per_second, "more", "Of all GPUs together.")  # fmt: skip
    yield Number("mfu", "MFU", show_share(summary.mfu), summary.mfu, "more",
                 "Model FLOP utilization: FLOP of the model, without recompute, of the peak.", True)  # fmt: skip
    yield Number("exposed", "Exposed", show_share(share), share, "less",
                 "Share of the step in which communication and copies are not hidden by compute.", True)  # fmt: skip


def _memory(summary: Summary) -> Iterator[dict[str, Any]]:
    for name, tier in summary.memory.items():
        yield {
            "tier": name,
            "label": TIERS.get(name, name),
            "peak": tier.peak_bytes,
            "capacity": tier.capacity_bytes,
            "fits": tier.peak_bytes <= tier.capacity_bytes,
            "text": f"{show_size(tier.peak_bytes)} of {show_size(tier.capacity_bytes)}",
            "lacking": show_size(max(0.0, tier.peak_bytes - tier.capacity_bytes)),
        }


def _network(played: Played) -> float | None:
    """The rate of a port in Gb/s, by the knob or by the machine."""
    ports = {rate for node in played.simulation.scenario.topology.nodes for _, rate in node.ports}
    return ports.pop() * BITS / GIGA if len(ports) == 1 else None


def _waiting(played: Played, start: Start) -> str:
    """What of the scenario does not matter until its strategy is chosen again."""
    chosen = str(played.state["strategy"])
    if chosen == GIVEN or FAMILY[chosen] == start.family:
        return ""
    own = strategies(start)[str(start.state["strategy"])]
    return f"strategy.{start.family} of the scenario is not used now; it comes back whole with {own}."


# --- what does not change ---------------------------------------------------------------------------------------------


def beginning(start: Start) -> dict[str, Any]:
    """What the page needs before the first answer."""
    return {
        "start": start.digest,
        "name": start.name,
        "title": start.scenario.title,
        "state": dict(start.state),
        "told": list(start.told),
        "controls": [_control(start, control) for control in CONTROLS if start.has(control)],
        "machines": {GIVEN: _machine(start.machine)} | {name: _machine(each) for name, each in machines().items()},
    }


def _control(start: Start, control: Control) -> dict[str, Any]:
    labels = dict(control.choices) | _labels(start, control.name)
    return {
        "name": control.name,
        "label": control.label,
        "kind": control.kind,
        "path": ".".join(control.path),
        "about": control.about,
        "unit": control.unit,
        "counts": dict(COUNT.units) if control.kind == "number" and control.unit not in NO_COUNTS else {},
        "null": control.null,
        "stops": list(control.stops),
        "strategies": list(control.strategies),
        "choices": [[name, labels.get(name, name)] for name in choices(control, start)],
    }


def _labels(start: Start, name: str) -> dict[str, str]:
    """Words for the choices that are names."""
    if name == "strategy":
        return strategies(start)
    if name == "model":
        return {GIVEN: f"{start.scenario.model.name} (of the scenario)", **{each: each for each in model_names()}}
    if name == "topology":
        own = {GIVEN: f"{_described(start.machine)} (of the scenario)"}
        return own | {each: _described(machine) for each, machine in machines().items()}
    return {}


def _described(machine: Machine) -> str:
    rate = "" if machine.network is None else f", {show_rate(machine.network * GIGA / BITS, bits=True)} ports"
    return f"{machine.name}: {machine.gpus} x {machine.gpu}{rate}"


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "gpus": machine.gpus,
        "nodes": machine.nodes,
        "network": machine.network,
        "tiers": ["none", *machine.tiers],
    }
