"""Where the page starts: the scenario of the command line, or a default, as plain data that stands on its own.

All that the scenario says stays in `text`; the knobs change parts of it. So what has no knob (a machine of its own, a
wrap policy, a calibration, versions) is kept, and `kept` tells it. `digest` names this start: a link that was made
from another one means something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zerosim.errors import InputError
from zerosim.playground.controls import BY_NAME, CONTROLS, GIVEN, STRATEGIES, ZERO, Control
from zerosim.playground.machines import Machine, machine_of
from zerosim.playground.written import Written, written
from zerosim.scenario import Scenario, from_document, from_mapping
from zerosim.spec import loading
from zerosim.spec.calibration_file import calibration_mapping
from zerosim.spec.changes import parse_change
from zerosim.spec.deepspeed_batch import BATCH_KEYS
from zerosim.spec.deepspeed_schema import ALIASES
from zerosim.spec.deepspeed_schema import ZERO as ZERO_KEYS
from zerosim.spec.model_file import model_names
from zerosim.spec.scenario_parts import DEEPSPEED
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp, HierarchicalZero1, Pipeline, Strategy
from zerosim.spec.topology_file import topology_names

Value = str | int | float | bool | None
DIGITS = 12  # of a digest: enough to tell starts apart

DEFAULT: Mapping[str, Any] = {
    "title": "Llama-2-7B on two DGX A100, ZeRO-3",
    "topology": "dgx-a100-80",
    "nodes": 2,
    "model": "llama-2-7b",
    "training": {
        "sequence_length": 2048,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "precision": "bf16",
        "activation_checkpointing": "full",
        "attention": "flash",
    },
    "strategy": {
        "deepspeed": {
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW"},
            "zero_optimization": {"stage": 3},
        }
    },
}


@dataclass(frozen=True, slots=True)
class Start:
    """`text` is the whole scenario, `state` where its knobs stand, `told` what reading its file made worth saying,
    `written` what the user wrote."""

    name: str
    scenario: Scenario
    text: Mapping[str, Any]
    state: Mapping[str, Value]
    machine: Machine
    told: tuple[str, ...] = ()
    written: Written = field(default_factory=lambda: Written({}))

    @property
    def digest(self) -> str:
        """A name for what the knobs turn."""
        plain = json.dumps({**self.text, "title": ""}, sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:DIGITS]

    @property
    def family(self) -> str:
        """The section of the strategy."""
        return str(next(iter(self.text["strategy"])))

    def has(self, control: Control) -> bool:
        """Whether there is such a knob. Version 2 of FSDP has a mesh and reshard_after_forward instead of a sharding
        strategy; DeepSpeed gathers updated weights in pieces only beside an old torch."""
        match control.name, self.scenario.strategy:
            case "sharding", Fsdp(version=2):
                return False
            case "gather_bucket", DeepSpeed(release=release):
                return release.list_all_gather
            case name, _:
                return name != "gather_bucket"


def begin(path: str | Path | None = None, changes: tuple[str, ...] = ()) -> Start:
    """The start in a scenario file with the changes of `--set`, or the default with them."""
    document = loading.inline(dict(DEFAULT), str(DEFAULT["title"])) if path is None else loading.read(path)
    base, made = Path() if path is None else Path(path).parent, tuple(parse_change(change) for change in changes)
    read = from_document(document, base, made)
    return start_of(read, "" if path is None else str(path), written(read, document, base, made))


def start_of(scenario: Scenario, name: str = "", own: Written | None = None) -> Start:
    """The start that a scenario makes; without `own` it was written as its text."""
    text = dict(scenario.text)
    if scenario.calibration is not None:
        text["calibration"] = calibration_mapping(scenario.calibration)
    text, again = _said_where_it_matters(text)
    told = [found.message for found in scenario.findings if found not in again.findings]
    told += [said for said in scenario.assumptions if said not in again.assumptions]
    machine = machine_of(scenario.machine, text["topology"])
    return Start(name, scenario, text, state_of(scenario, text), machine, tuple(told), own or Written(scenario.text))


def _said_where_it_matters(text: dict[str, Any]) -> tuple[dict[str, Any], Scenario]:
    """The scenario without those keys of DeepSpeed that nobody need say, and what it reads as.

    A value writes all of its keys, so that a file explains itself; here some of them would be told to change nothing,
    at this stage or at another that a knob turns to.
    """
    zero = dict(ZERO_KEYS) | {alias: ZERO_KEYS[name] for alias, name in ALIASES.items()}
    for path, value in list(leaves(text["strategy"], ("strategy",))):
        if path[:-1] == ZERO and path[-1] != "stage" and value == zero[path[-1]].default:
            text = without(text, path)
    scenario = from_mapping(text)
    for path in [path for path, _ in leaves(text["strategy"], ("strategy",)) if path[1] == "deepspeed"]:
        if path[: len(ZERO)] != ZERO and (read := _as_well(without(text, path), scenario)):
            text, scenario = without(text, path), read
    return text, scenario


def _as_well(text: Mapping[str, Any], scenario: Scenario) -> Scenario | None:
    """What a text reads as, if it is the same strategy and there is not more to say about it."""
    try:
        read = from_mapping(text)
    except InputError:  # a key that cannot be missing
        return None
    return read if read.strategy == scenario.strategy and set(read.findings) <= set(scenario.findings) else None


def without(data: Any, path: tuple[str, ...]) -> Any:
    """Plain data without what stands at a path, and without what is empty then."""
    below = {**data, path[0]: without(data[path[0]], path[1:])} if len(path) > 1 else {}
    return {key: value for key, value in (below or data).items() if key != path[0] or (below and value != {})}


def state_of(scenario: Scenario, text: Mapping[str, Any]) -> dict[str, Value]:
    """Where the knobs stand for a scenario; those that it does not have, where they would."""
    training = scenario.training
    values: dict[str, Value] = {
        "model": _catalogued(text["model"], model_names()),
        "topology": _catalogued(text["topology"], topology_names()),
        "nodes": scenario.nodes,
        "gpus": scenario.gpus,
        "network": None,
        "strategy": strategy_name(scenario.strategy),
        "micro_batch": training.micro_batch_size,
        "accumulation": training.gradient_accumulation_steps,
        "sequence": training.sequence_length,
        "checkpointing": training.activation_checkpointing,
        **_zero(scenario.strategy if isinstance(scenario.strategy, DeepSpeed) else DeepSpeed()),
        **_others(scenario),
    }
    return {control.name: values[control.name] for control in CONTROLS}


def _zero(strategy: DeepSpeed) -> dict[str, Value]:
    zero = strategy.zero
    return {
        "offload_optimizer": zero.offload_optimizer.device,
        "offload_param": zero.offload_param.device,
        "overlap": ("on" if zero.overlap_comm else "off") if zero.overlap_comm_given else "default",
        "reduce_bucket": zero.reduce_bucket_size,
        "gather_bucket": zero.allgather_bucket_size,
        "prefetch_bucket": zero.prefetch_bucket_size,
        "persistence": zero.param_persistence_threshold,
    }


def _others(scenario: Scenario) -> dict[str, Value]:
    """Knobs of the strategies beside ZeRO."""
    strategy = scenario.strategy
    ddp = strategy if isinstance(strategy, Ddp) else Ddp()
    fsdp = strategy if isinstance(strategy, Fsdp) else Fsdp()
    pipeline = strategy if isinstance(strategy, Pipeline) else Pipeline(_stages(scenario), "1f1b")
    return {
        "ddp_bucket": ddp.bucket_cap_mb,
        "sharding": fsdp.sharding_strategy,
        "fsdp_offload": fsdp.cpu_offload,
        "stages": pipeline.stages,
        "schedule": pipeline.schedule,
    }


def strategy_name(strategy: Strategy) -> str:
    """What the knob calls a strategy."""
    match strategy:
        case DeepSpeed():
            return f"zero{strategy.zero.stage}"
        case Ddp():
            return "ddp"
        case Fsdp():
            return "fsdp"
        case Pipeline():
            return "pipeline"
        case HierarchicalZero1():
            return GIVEN


def _catalogued(given: Any, known: tuple[str, ...]) -> str:
    return given if isinstance(given, str) and given in known else GIVEN


def _stages(scenario: Scenario) -> int:
    """Stages of a pipeline that starts here: as many as divide the GPUs, up to four."""
    return next(stages for stages in (4, 2, 1) if scenario.world_size % stages == 0)


# --- what has no knob -------------------------------------------------------------------------------------------------


def kept(text: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> list[str]:
    """Each value of a scenario that no knob turns, as `path: value`; `own` is what the user wrote, who may
    tell DeepSpeed what changes no step."""
    turned = {control.path for control in CONTROLS} | {("title",), (*ZERO, "stage")}
    said = dict(leaves(text))
    if own and own["strategy"].keys() == text["strategy"].keys() == {DEEPSPEED[-1]}:
        said = dict(leaves(own["strategy"], ("strategy",))) | said
    shown = {path: value for path, value in said.items() if path not in turned and path[-1] not in BATCH_KEYS}
    return [f"{'.'.join(path)}: {_said(value)}" for path, value in shown.items()]


def leaves(data: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All values with their paths; a described machine or model is one."""
    named = at in (BY_NAME["topology"].path, BY_NAME["model"].path)
    if isinstance(data, Mapping) and data and not named:
        for key, value in data.items():
            yield from leaves(value, (*at, str(key)))
    elif not named:
        yield at, data
    elif isinstance(data, Mapping):
        yield (*at, "described"), data.get("name") or "in the scenario"


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def strategies(start: Start) -> dict[str, str]:
    """Strategies by name, with that of the scenario where no knob has it."""
    own = {GIVEN: start.family.replace("_", " ")} if start.state["strategy"] == GIVEN else {}
    return {**own, **STRATEGIES}
