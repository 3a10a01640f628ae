"""Where the knobs of the playground stand, and the scenario that this is; what is wrong, in the words of `--set`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.asking import ROOT, SCENARIOS, SMALL
from zerosim.errors import InputError
from zerosim.playground.controls import BY_NAME, CONTROLS, GIVEN
from zerosim.playground.machines import machine_of
from zerosim.playground.start import Start, begin, kept, start_of, state_of
from zerosim.playground.state import Complaint, choices, complaints, read_state, scenario_of
from zerosim.scenario import Scenario, from_mapping, load

FIELDS = ("title", "nodes", "gpus", "model", "training", "strategy", "launch", "calibration")
SMALL_ONE = yaml.safe_load(SMALL)


def small(**changes: Any) -> Start:
    return start_of(from_mapping({**SMALL_ONE, **changes}))


def told(start: Start, **knobs: Any) -> list[Complaint]:
    """What is wrong with a start whose knobs are so turned."""
    with pytest.raises(InputError) as error:
        scenario_of(start, read_state({**start.state, **knobs}, start))
    return complaints(error.value)


def values(scenario: Scenario) -> list[Any]:
    return [getattr(scenario, name) for name in FIELDS]


# --- where they start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: path.stem)
def test_knobs_that_nobody_turned_are_the_scenario_of_the_file(file: Path) -> None:
    """The same in every value; told is either with the file or with the answer, and nothing is told that was not."""
    start, read = begin(file), load(file)
    same = scenario_of(start, read_state(dict(start.state), start))
    assert values(same) == values(read)
    assert [node.signature for node in same.topology.nodes] == [node.signature for node in read.topology.nodes]
    assert {*same.findings} <= {*read.findings}
    assert {each.message for each in read.findings} <= {each.message for each in same.findings} | {*start.told}
    assert {*read.assumptions} <= {*same.assumptions, *start.told}


def test_the_default_is_a_scenario_that_needs_the_network() -> None:
    start = begin()
    assert (start.name, start.state["nodes"], start.state["strategy"]) == ("", 2, "zero3")
    assert scenario_of(start, start.state).findings == ()


def test_changes_of_the_command_line_are_where_it_starts() -> None:
    start = begin(ROOT / "scenarios/seven-b/zero3.yaml", ("training.micro_batch_size=2", "nodes=2"))
    assert (start.state["micro_batch"], start.state["nodes"]) == (2, 2)


# --- a state, said and read ------------------------------------------------------------------------------------------


def knob(control: Any, start: Start) -> st.SearchStrategy[Any]:
    """Values that a knob of this start may have."""
    if control.name in ("model", "topology", "nodes", "gpus", "stages"):
        return st.just(start.state[control.name])  # of the same two GPUs and layers, so that all goes with all
    if control.name == "strategy":
        return st.sampled_from(["ddp", "zero0", "zero1", "zero2", "zero3", "fsdp", "pipeline"])
    if control.kind == "choice":
        return st.sampled_from([each for each in choices(control, start) if "HYBRID" not in each])
    if control.kind == "switch":
        return st.booleans()
    stops = st.sampled_from([stop for stop in control.stops if control.name != "network" or stop <= 200])
    return st.one_of(st.none(), stops) if control.null else stops


SMALL_START = small(gpus=2)
STATES = st.fixed_dictionaries({each.name: knob(each, SMALL_START) for each in CONTROLS})


@given(STATES)
@settings(max_examples=30, deadline=None)
def test_a_state_reads_as_it_was_said_and_its_scenario_has_all_its_knobs(state: dict[str, Any]) -> None:
    assert read_state(json.loads(json.dumps(state)), SMALL_START) == state
    scenario = scenario_of(SMALL_START, state)
    again = state_of(scenario, scenario.text)
    chosen = [each for each in CONTROLS if each.belongs(state["strategy"]) and SMALL_START.has(each)]
    asked = {each.name: state[each.name] for each in chosen if each.name not in ("network", "topology")}
    assert {name: again[name] for name in asked} == asked
    if state["network"] is not None:
        rates = {rate for node in scenario.topology.nodes for _, rate in node.ports}
        assert [*rates] == [pytest.approx(state["network"] * 1e9 / 8)]


def test_the_way_to_another_strategy_and_back_loses_nothing() -> None:
    start = begin(ROOT / "scenarios/seven-b/zero3-nvme.yaml")
    away = scenario_of(start, {**start.state, "strategy": "ddp"})
    assert list(away.text["strategy"]) == ["ddp"]
    assert values(scenario_of(start, {**start.state, "strategy": "zero3"})) == values(start.scenario)


def test_knobs_that_a_stage_does_not_have_are_not_in_its_scenario() -> None:
    start = begin(ROOT / "scenarios/slow-network/zero3.yaml")
    zero = scenario_of(start, {**start.state, "strategy": "zero1"}).text["strategy"]["deepspeed"]["zero_optimization"]
    assert zero["stage"] == 1
    assert not {"stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"} & zero.keys()


def test_an_offload_goes_into_the_section_that_is_there() -> None:
    start = begin(ROOT / "scenarios/seven-b/zero3-offload.yaml")
    section = "strategy", "deepspeed", "zero_optimization", "offload_optimizer"

    def offload(device: str) -> Any:
        data: Any = scenario_of(start, {**start.state, "offload_optimizer": device}).text
        for key in section:
            data = data.get(key, {})
        return data

    assert offload("cpu")["device"] == "cpu"
    assert (offload("nvme")["device"], offload("nvme")["nvme_path"]) == ("nvme", "/local_nvme")
    assert offload("none") == {}


def test_another_scenario_has_another_title() -> None:
    start = begin()
    changed = {**start.state, "strategy": "zero1", "topology": "dgx-h100"}
    assert scenario_of(start, start.state).title == start.scenario.title
    assert scenario_of(start, changed).title == "llama-2-7b on dgx-h100, ZeRO-1"


# --- what has no knob ------------------------------------------------------------------------------------------------

OWN_MACHINE = {
    "name": "mine",
    "node": {
        "count": 2,
        "gpus": {"device": "a100_sxm_80", "count": 2},
        "nvlink": {"kind": "switch", "bandwidth": "250 GB/s"},
        "pcie": {"generation": 4, "switches": [{"gpus": [0, 1], "nics": [0], "socket": 0}]},
        "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB", "bandwidth": "204.8 GB/s"}}],
        "nics": {"count": 1, "bandwidth": "100 Gbps", "kind": "roce"},
    },
}
CALIBRATION = {"name": "measured", "copies": {"h2d": {"rate": "24 GB/s", "source": "a test"}}}


def test_what_has_no_knob_is_kept_and_told() -> None:
    fsdp = {"wrap": {"blocks": True, "modules": ["lm_head"]}, "mixed_precision": "bf16"}
    start = small(topology=OWN_MACHINE, calibration=CALIBRATION, strategy={"fsdp": fsdp})
    assert (start.state["topology"], start.state["model"], start.machine.network) == (GIVEN, GIVEN, 100)
    turned = scenario_of(start, {**start.state, "network": 25, "micro_batch": 2})
    assert turned.machine.name == "mine"
    assert {rate for node in turned.topology.nodes for _, rate in node.ports} == {25e9 / 8}
    assert turned.calibration == start.scenario.calibration
    assert turned.strategy == start.scenario.strategy
    said = kept(turned.text)
    assert 'strategy.fsdp.wrap.modules: ["lm_head"]' in said
    assert "topology.described: mine" in said
    assert any(line.startswith("calibration.copies.h2d") for line in said)
    assert not any(line.startswith("training.micro_batch_size") for line in said)


def test_ports_that_differ_or_are_described_one_by_one_have_no_knob() -> None:
    assert machine_of(small().scenario.machine, "dgx-a100-80").network == pytest.approx(200)
    assert machine_of(small().scenario.machine, {"devices": [], "links": []}).network is None
    start = small(topology=OWN_MACHINE | {"overrides": [{"node": 1, "nics": {"bandwidth": "10 Gbps"}}]})
    assert start.machine.network is None  # which differ


def test_version_2_of_fsdp_has_no_sharding_strategy_to_choose() -> None:
    start = begin(ROOT / "scenarios/llama-2-70b-hsdp.yaml")
    assert not start.has(BY_NAME["sharding"])
    assert scenario_of(start, {**start.state, "sequence": 2048}).strategy == start.scenario.strategy


def test_a_start_is_named_by_what_the_knobs_turn_and_not_by_its_title() -> None:
    assert small().digest == small(title="another").digest
    assert small().digest != small(training={**SMALL_ONE["training"], "attention": "eager"}).digest


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knobs", "changes"),
    [
        ({"micro_batch": 0}, "training.micro_batch_size=0"),
        ({"accumulation": "many"}, "training.gradient_accumulation_steps=many"),
        ({"sequence": 1.5}, "training.sequence_length=1.5"),
        ({"reduce_bucket": -1}, "strategy.deepspeed.zero_optimization.reduce_bucket_size=-1"),
        ({"nodes": 0}, "nodes=0"),
        ({"gpus": 3, "nodes": 2}, "gpus=3 nodes=2"),
        ({"network": "fast"}, "topology.node.nics.bandwidth=fast"),
        ({"nodes": "two", "micro_batch": True}, "nodes=two training.micro_batch_size=true"),
    ],
)
def test_what_is_wrong_has_the_words_of_the_command_line(knobs: dict[str, Any], changes: str, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    with pytest.raises(InputError) as error:
        load(tmp_path / "small.yaml", changes.split())
    said = [str(problem).partition("found ")[2] for problem in error.value.problems]
    beside = told(begin(tmp_path / "small.yaml"), **knobs)
    assert sorted(each.text.removeprefix("found ") for each in beside) == sorted(said)
    assert {each.control for each in beside} <= knobs.keys()


@pytest.mark.parametrize(
    ("knobs", "control", "text"),
    [
        ({"model": "lama-2-7b"}, "model", "nearest llama-2-7b"),
        ({"model": "/etc/passwd.json"}, "model", 'found "/etc/passwd.json"; expected one of '),
        ({"topology": "../topologies/dgx-h100.yaml"}, "topology", "expected one of aws-p4d, "),
        ({"topology": {"name": "x"}}, "topology", "found a mapping; expected a value"),
        ({"strategy": "zero4"}, "strategy", "nearest zero"),
        ({"schedule": ["naive"]}, "schedule", "found a list"),
        ({"micro_batch": 10**30}, "micro_batch", "expected a value"),
        ({"reduce_buckets": 1}, "", "nearest reduce_bucket"),
    ],
)
def test_a_state_holds_names_and_numbers_of_known_knobs_alone(knobs: Any, control: str, text: str) -> None:
    (beside,) = told(small(topology="dgx-a100-80"), **knobs)
    assert beside.control == control
    assert text in beside.text


@pytest.mark.parametrize("data", [None, [], "state", 1])
def test_a_state_is_a_mapping(data: Any) -> None:
    with pytest.raises(InputError, match="expected a mapping of knobs"):
        read_state(data, SMALL_START)


@pytest.mark.parametrize("name", ["nodes", "gpus", "accumulation"])
def test_long_numbers_are_said_with_the_digits_that_anyone_reads(name: str) -> None:
    (beside,) = told(small(), **{name: 1e99})
    assert (beside.control, beside.text.partition(";")[0]) == (name, "found 1e+99")


def test_what_does_not_go_together_stands_beside_a_knob() -> None:
    several = told(small(gpus=2), strategy="pipeline", stages=3)
    assert [each.control for each in several] == ["stages", "stages"]
    assert several[0].text == "found 3; expected a number that divides the 2 GPUs"
    (beside,) = told(small(nodes=2), network=1000)
    assert (beside.control, beside.text.endswith("which PCIe 4 x16 carries")) == ("network", True)
    (beside,) = told(small(topology="pcie-1x-rtx4090"), nodes=2)
    assert beside.control == "nodes"
