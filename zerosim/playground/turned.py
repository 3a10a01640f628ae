"""The user's own scenario after the knobs that were turned: what they mean is changed in it, all else is as written.

Rule: what is kept is exactly what is shown. A text is kept only if it reads as the played scenario; where the user's
with its turned knobs does not (a spelling that the knobs do not know), one without the keys that the strategy has no
knob for is tried, and last the resolved text, which always does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zerosim.errors import InputError
from zerosim.playground.controls import BY_NAME, CONTROLS, FAMILY, GIVEN, ZERO
from zerosim.playground.start import Start, start_of, state_of, without
from zerosim.playground.state import (
    OFFLOADS,
    OVERLAP,
    State,
    at,
    change_of,
    fresh,
    machine_changes,
    offload_changes,
    scenario_of,
    title_changes,
)
from zerosim.playground.written import plain
from zerosim.scenario import Scenario, from_mapping
from zerosim.spec.changes import Change
from zerosim.spec.deepspeed_batch import BATCH_KEYS, MICRO, STEPS, TRAIN
from zerosim.spec.deepspeed_schema import ALIASES
from zerosim.spec.loading import inline
from zerosim.spec.scenario_parts import DEEPSPEED, Parts
from zerosim.spec.strategy import DeepSpeed, Offload, Strategy
from zerosim.studies.tuning.places import Places

HERE = Path()
TRAINING = {"micro_batch": "micro_batch_size", "accumulation": "gradient_accumulation_steps"}
BATCH = {"micro_batch": MICRO, "accumulation": STEPS}
SIZES = {"micro_batch", "accumulation", "nodes", "gpus", "topology"}  # of which the whole batch is the product


def turned_text(start: Start, state: State, scenario: Scenario) -> Mapping[str, Any]:
    """The scenario that the user would have written to get `scenario`, which a state is."""
    whole = {**state, **_resolved(scenario, state)}
    for own in (start.written.scenario, _pruned(start.written.scenario, state)):
        for few in (True, False):
            text = _text(start, own, whole, scenario, few)
            if text is not None and _reads_as(text, scenario, whole):
                return text
    return dict(scenario.text)


def turned_batch(start: Start, state: State, own: Mapping[str, Any], scenario: Scenario) -> dict[str, int]:
    """What DeepSpeed's file must say of the batch besides: sizes that were turned, and where no file is the user's and
    none is said, all of it, as DeepSpeed reads no configuration without."""
    training = scenario.training
    sizes = {"micro_batch": training.micro_batch_size, "accumulation": training.gradient_accumulation_steps}
    alone = not start.written.deepspeed and not any(key in own for key in BATCH_KEYS)
    return {BATCH[name]: size for name, size in sizes.items() if alone or size != start.state[name]}


def _resolved(scenario: Scenario, state: State) -> dict[str, Any]:
    """Where the knobs of numbers stand as they were read: 500000000 where "500M" was typed."""
    read = state_of(scenario, scenario.text)
    return {each.name: read[each.name] for each in CONTROLS
            if each.kind == "number" and each.name != "network" and each.belongs(state["strategy"])}  # fmt: skip


def _pruned(text: Mapping[str, Any], state: State) -> Mapping[str, Any]:
    """Without the keys of knobs that the strategy does not have."""
    for control in CONTROLS:
        path = control.path[:-1] if control.name in OFFLOADS else control.path
        for each in (path, (*path[:-1], ALIASES.get(path[-1], path[-1]))):
            if path[: len(ZERO)] == ZERO and not control.belongs(state["strategy"]) and at(text, each) is not None:
                text = without(text, each)
    return text


def _text(
    start: Start, own: Mapping[str, Any], state: State, scenario: Scenario, few: bool
) -> Mapping[str, Any] | None:  # fmt: skip
    """That text after the changes; `few`: only the knobs that were turned, else all of a strategy that is new."""
    document, model = inline(dict(own), scenario.title), scenario.model.name
    before = [*title_changes(start, state), *machine_changes(start, state), *_family(start, state, scenario)]
    try:
        data = plain(Parts.of(document, HERE, before), model)
        changes = list(_knobs(start, data, state, scenario, few))
        return plain(Parts.of(inline(data, scenario.title), HERE, changes), model)
    except InputError:  # where the user's own spelling has no place for a knob
        return None


def _family(start: Start, state: State, scenario: Scenario) -> Iterator[Change]:
    """Another strategy; what DeepSpeed's file may have said of the training goes to `training`."""
    name = str(state["strategy"])
    if name == GIVEN or FAMILY[name] == start.family:
        return
    yield change_of("strategy", {FAMILY[name]: fresh(name, scenario.training.precision)})
    yield Change("strategy", ("training", "precision"), scenario.training.precision)
    for knob in TRAINING:
        yield change_of(knob, state[knob])


def _knobs(
    start: Start, data: Mapping[str, Any], state: State, scenario: Scenario, few: bool
) -> Iterator[Change]:  # fmt: skip
    turned = {name for name, value in state.items() if value != start.state[name]}
    places = Places.of(inline(dict(data), scenario.title), HERE, ())
    for change in places.batch(scenario.training.micro_batch_size, scenario.training.gradient_accumulation_steps):
        if any(change.path[-1] in (TRAINING[name], BATCH[name]) for name in BATCH if name in turned):
            yield change
    if turned & SIZES and isinstance(places.deepspeed.get(TRAIN), int):
        micro, steps = scenario.training.micro_batch_size, scenario.training.gradient_accumulation_steps
        yield Change(TRAIN, (*DEEPSPEED, TRAIN), micro * steps * scenario.world_size)
    if "sequence" in turned:
        yield change_of("sequence", state["sequence"])
    if "checkpointing" in turned:
        yield from places.checkpointing(str(state["checkpointing"]))
    if isinstance(scenario.strategy, DeepSpeed) and "strategy" in turned:
        yield change_of("strategy", scenario.strategy.zero.stage, (*ZERO, "stage"))
    name, new = state["strategy"], FAMILY.get(str(state["strategy"])) != start.family
    for control in CONTROLS:
        wanted = control.name in turned or (new and not few)
        if wanted and control.strategies and control.belongs(name) and start.has(control):
            yield from _knob(data, places, control.name, state[control.name])


def _knob(data: Mapping[str, Any], places: Places, name: str, value: Any) -> Iterator[Change]:
    """A knob of a strategy, under the key that the user has for it."""
    control = BY_NAME[name]
    key = control.path[-1]
    if name in OFFLOADS:
        yield from offload_changes(data, control, value)
    elif control.path[: len(ZERO)] == ZERO:
        yield from places.in_zero(ALIASES.get(key, key), OVERLAP[value] if name == "overlap" else value)
    elif "fsdp" in control.strategies:
        yield from places.in_fsdp(key, value)
    else:
        yield change_of(name, value)


def _reads_as(text: Mapping[str, Any], scenario: Scenario, state: State) -> bool:
    """Whether a text is the scenario: in every value but keys of DeepSpeed that its stage has no use for, as the
    playground drops them too, and in where the knobs stand."""
    try:
        again = start_of(from_mapping(text))
        same = scenario_of(again, again.state)
    except InputError:
        return False
    named = ("network", "topology", "model")  # which a text may describe instead
    knobs = [each.name for each in CONTROLS if each.belongs(state["strategy"]) and each.name not in named]
    return _values(same) == _values(scenario) and all(again.state[name] == state[name] for name in knobs)


def _values(scenario: Scenario) -> tuple[object, ...]:
    """All that a step depends on, and how it is called."""
    measured = scenario.calibration
    return (
        scenario.title, scenario.nodes, scenario.gpus, scenario.model, scenario.training, _mattering(scenario.strategy),
        scenario.launch, measured and replace(measured, origin=""),
        [node.signature for node in scenario.topology.nodes],
    )  # fmt: skip


def _mattering(strategy: Strategy) -> Strategy:
    """Without the settings of an offload that there is not."""
    if not isinstance(strategy, DeepSpeed):
        return strategy
    off: dict[str, Any] = {name: Offload() for name in OFFLOADS if getattr(strategy.zero, name).device == "none"}
    return replace(strategy, zero=replace(strategy.zero, **off))
