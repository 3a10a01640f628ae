"""Where all knobs stand, as the page and its link say it, and the scenario that this is.

Pure. A state is plain values by name of the knob; only scalars are read, and models and machines are names of the
catalogue or the scenario's own, so that a page can name no file. The knobs become changes of the start's text, as
`--set` makes them, and readers of scenarios judge them: what is wrong has the words of the command line, and
`complaints` says which knob it belongs to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem, nearest
from zerosim.playground.controls import BY_NAME, CONTROLS, FAMILY, GIVEN, ZERO, Control
from zerosim.playground.machines import machines
from zerosim.playground.start import Start, Value, strategies, without
from zerosim.scenario import Scenario, from_mapping
from zerosim.spec.changes import Change
from zerosim.spec.document import shown
from zerosim.spec.model_file import model_names

State = Mapping[str, Value]
LONGEST = 100  # characters of a value
LONG_NUMBER = re.compile(r"\d{19,}(?:\.\d+)?")  # beyond what any knob may be
NVME_PATH = "/local_nvme"
OVERLAP: Mapping[Any, bool | None] = {"default": None, "on": True, "off": False}
OFFLOADS = ("offload_optimizer", "offload_param")


class Complaint(NamedTuple):
    """What is wrong, and the knob that it stands beside; "" where it is none's."""

    control: str
    text: str


# --- reading what a page said -----------------------------------------------------------------------------------------


def read_state(data: object, start: Start) -> dict[str, Value]:
    """The state in what a page sent; knobs that it does not name stand where they started."""
    if not isinstance(data, Mapping):
        raise InputError([Problem("state", "", shown(data), "a mapping of knobs")])
    problems = [problem for name, value in data.items() for problem in _problems(name, value, start)]
    if problems:
        raise InputError(problems)
    return {name: data.get(name, value) for name, value in start.state.items()}


def _problems(name: object, value: object, start: Start) -> Iterator[Problem]:
    control = BY_NAME.get(str(name))
    if control is None:
        found = f'the unknown knob "{str(name)[:LONGEST]}"'
        yield Problem("state", "", found, "a knob of this page", nearest(str(name)[:LONGEST], list(BY_NAME)))
    elif not _is_scalar(value):
        yield Problem(control.name, ".".join(control.path), shown(value), f"a value of up to {LONGEST} characters")
    elif (known := choices(control, start)) and value not in known:
        yield Problem(control.name, ".".join(control.path), shown(value), _one_of(known), nearest(str(value), known))


def _is_scalar(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) < 2**63)


def _one_of(known: list[str]) -> str:
    return f"one of {', '.join(known)}"


def choices(control: Control, start: Start) -> list[str]:
    """What may be chosen; empty where it is a number or a switch."""
    if control.name == "model":
        return [*model_names(), *([GIVEN] if start.state["model"] == GIVEN else [])]
    if control.name == "topology":
        return [*machines(), *([GIVEN] if start.state["topology"] == GIVEN else [])]
    if control.name == "strategy":
        return list(strategies(start))
    return [name for name, _ in control.choices]


# --- the scenario that it is ------------------------------------------------------------------------------------------


def scenario_of(start: Start, state: State) -> Scenario:
    """The scenario; InputError where it is none, each problem with the name of its knob as source where it has one."""
    read = from_mapping(_own(start, state), changes=[*_changes(start, state)])
    return replace(read, calibration=start.scenario.calibration)  # the same, and it knows its file


def _own(start: Start, state: State) -> Mapping[str, Any]:
    """The start's text without what belongs to knobs that the strategy does not have."""
    text, name = start.text, state["strategy"]
    for control in CONTROLS:
        path = control.path[:-1] if control.name in OFFLOADS else control.path
        if control.path[: len(ZERO)] == ZERO and not control.belongs(name) and at(text, path) is not None:
            text = without(text, path)
    return text


def _changes(start: Start, state: State) -> Iterator[Change]:
    yield from title_changes(start, state)
    yield from machine_changes(start, state)
    for name in ("micro_batch", "accumulation", "sequence", "checkpointing"):
        yield change_of(name, state[name])
    yield from _strategy(start, state)


def change_of(name: str, value: Any, path: tuple[str, ...] | None = None) -> Change:
    """A change that the knob `name` makes: its problems then have this name as their source."""
    return Change(name, BY_NAME[name].path if path is None else path, value)


def title_changes(start: Start, state: State) -> Iterator[Change]:
    """A scenario that is not the start's any more is not called as it."""
    if dict(state) != dict(start.state):
        model = start.scenario.model.name if state["model"] == GIVEN else state["model"]
        machine = start.machine.name if state["topology"] == GIVEN else state["topology"]
        strategy = strategies(start)[str(state["strategy"])]
        yield Change("title", ("title",), f"{model} on {machine}, {strategy}")


def machine_changes(start: Start, state: State) -> Iterator[Change]:
    for name in ("model", "topology", "nodes", "gpus"):
        if state[name] != start.state[name]:
            yield change_of(name, state[name])
    if state["network"] is not None:
        yield change_of("network", _rate(state["network"]))


def _rate(given: Value) -> Value:
    """A plain number is in the unit of the knob."""
    try:
        return f"{float(given):.12g} Gbps" if not isinstance(given, bool) and given is not None else given
    except ValueError:
        return given


# --- strategies -------------------------------------------------------------------------------------------------------


def _strategy(start: Start, state: State) -> Iterator[Change]:
    """The section of the scenario where it has the strategy, else one of its own; then the knobs that belong to it."""
    name = str(state["strategy"])
    if name == GIVEN:
        return
    if FAMILY[name] != start.family:
        yield change_of("strategy", {FAMILY[name]: fresh(name, start.scenario.training.precision)})
    if FAMILY[name] == "deepspeed":
        yield change_of("strategy", int(name.removeprefix("zero")), (*ZERO, "stage"))
    for control in CONTROLS:
        if control.strategies and control.belongs(name) and start.has(control):
            yield from _knob(start, state, control)


def _knob(start: Start, state: State, control: Control) -> Iterator[Change]:
    value = state[control.name]
    if control.name in OFFLOADS:
        yield from offload_changes(start.text, control, value)
    else:
        yield change_of(control.name, OVERLAP[value] if control.name == "overlap" else value)


def offload_changes(text: Mapping[str, Any], control: Control, device: Value) -> Iterator[Change]:
    """The device in the section that the scenario has, whose other settings stay; else in one of its own."""
    section, own = control.path[:-1], at(text, control.path[:-1])
    if own is None and device == "none":
        return
    path = {"nvme_path": NVME_PATH} if device == "nvme" else {}
    if own is None:
        yield change_of(control.name, {"device": device, "pin_memory": True, **path}, section)
        return
    yield change_of(control.name, device)
    if path and "nvme_path" not in own:
        yield change_of(control.name, NVME_PATH, (*section, "nvme_path"))


def at(data: Any, path: Iterable[str]) -> Any:
    """What stands at a path of plain data; None where there is nothing."""
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def fresh(name: str, precision: str) -> dict[str, Any]:
    """A strategy of which the scenario says nothing: mixed precision as the scenario trains, AdamW, usual clipping."""
    mixed = precision != "fp32"
    match FAMILY[name]:
        case "deepspeed":
            return {**({precision: {"enabled": True}} if mixed else {}), "optimizer": {"type": "AdamW"}}
        case "fsdp":
            dtypes = {"param_dtype": precision, "reduce_dtype": precision}
            return {"wrap": "blocks", "gradient_clipping": 1.0, **({"mixed_precision": dtypes} if mixed else {})}
        case _:
            return {}


# --- what is wrong ----------------------------------------------------------------------------------------------------


def complaints(error: InputError) -> list[Complaint]:
    """Each problem with its knob; beside it, where it stands need not be said."""
    return [_complaint(problem) for problem in error.problems]


def _complaint(problem: Problem) -> Complaint:
    places = {".".join(control.path): control.name for control in CONTROLS} | {".".join((*ZERO, "stage")): "strategy"}
    control = problem.source if problem.source in BY_NAME else places.get(problem.path, "")
    if not control:
        return Complaint("", str(problem))
    parts = (("found", _short(problem.found)), ("expected", problem.expected), ("nearest", problem.nearest))
    return Complaint(control, "; ".join(f"{word} {said}" for word, said in parts if said))


def _short(found: str) -> str:
    """Long numbers with the digits that anyone reads: 1e+99, which as a whole number has a hundred."""
    return LONG_NUMBER.sub(lambda digits: f"{float(digits[0]):.4g}", found)
