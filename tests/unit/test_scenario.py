"""Scenario files: parts by name, path and inline; changes of --set; replacing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from zerosim.errors import InputError
from zerosim.scenario import Scenario, from_mapping, load
from zerosim.spec.strategy import Ddp, DeepSpeed, Optimizer, Zero

ASKED = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))
SHIPPED = [path for path in ASKED if "\naxes:" not in path.read_text(encoding="utf-8")]  # those with axes are sweeps


def question(**changes: Any) -> dict[str, Any]:
    """A scenario with keys changed; a key set to None is left out."""
    base: dict[str, Any] = {
        "title": "7B",
        "topology": "dgx-a100-80",
        "model": "llama-2-7b",
        "training": {"sequence_length": 2048, "micro_batch_size": 2},
        "strategy": {"deepspeed": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}},
    }
    return {key: value for key, value in (base | changes).items() if value is not None}


def zero_of(scenario: Scenario) -> Zero:
    assert isinstance(scenario.strategy, DeepSpeed)
    return scenario.strategy.zero


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a scenario, its DeepSpeed file, a topology and a model of its own."""
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}')
    (tmp_path / "box.yaml").write_text("name: box\nnode: {gpus: {device: a100_sxm_80, count: 4}}\n")
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 128}
    (tmp_path / "config.json").write_text(json.dumps(config))
    files = {"topology": "box.yaml", "model": "config.json", "strategy": {"deepspeed": "ds.json"}}
    training = {"sequence_length": 128, "precision": "bf16"}
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(question(**files, training=training)))
    return tmp_path / "scenario.yaml"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_scenarios_load_and_reproduce_themselves(file: Path) -> None:
    scenario = load(file)
    again = from_mapping(scenario.text, file.parent)
    assert again.text == scenario.text
    assert (again.training, again.strategy, again.model) == (scenario.training, scenario.strategy, scenario.model)
    assert again.world_size == scenario.world_size
    json.dumps(scenario.text)


def test_a_whole_machine_is_the_default() -> None:
    scenario = from_mapping(question())
    assert scenario.world_size == 8
    assert scenario.title == "7B"
    assert scenario.training.micro_batch_size == 2
    assert scenario.training.precision == "bf16"
    assert "kernels eager" in scenario.assumptions[0]


@pytest.mark.parametrize(
    ("nodes", "gpus", "world", "hosts"),
    [(1, None, 8, 1), (None, 4, 4, 1), (1, 2, 2, 1), (4, None, 32, 4), (2, 8, 8, 2), (None, 16, 16, 2)],
)
def test_nodes_and_gpus(nodes: int | None, gpus: int | None, world: int, hosts: int) -> None:
    scenario = from_mapping(question(nodes=nodes, gpus=gpus))
    assert (scenario.world_size, len(scenario.topology.hosts)) == (world, hosts)


def test_parts_in_files_beside_the_scenario(home: Path) -> None:
    scenario = load(home)
    assert (scenario.topology.name, scenario.world_size) == ("box", 4)
    assert scenario.model.hidden == 64
    assert zero_of(scenario).stage == 2
    assert scenario.source == str(home)
    assert isinstance(scenario.text["topology"], Mapping)
    alone = from_mapping(scenario.text)  # needs no file any more
    assert (alone.text, alone.model) == (scenario.text, scenario.model)


def test_an_inline_model_is_called_by_its_size() -> None:
    model = {"layers": 2, "hidden": 128, "heads": 4, "vocab": 1000}
    name = from_mapping(question(model=model)).model.name
    assert name.endswith("k parameters")


def test_changes_lead_into_files(home: Path) -> None:
    scenario = load(
        home,
        [
            "strategy.deepspeed.zero_optimization.stage=3",
            "strategy.deepspeed.zero_optimization.reduce_bucket_size=5e7",
            "topology.node.gpus.count=2",
            "model.layers=3",
            "training.gradient_accumulation_steps=4",
        ],
    )
    assert (zero_of(scenario).stage, zero_of(scenario).reduce_bucket_size) == (3, 50_000_000)
    assert scenario.world_size == 2
    assert scenario.model.layers == 3
    assert scenario.training.gradient_accumulation_steps == 4


def test_changes_lead_into_names() -> None:
    changes = ["topology.node.nics.bandwidth=25 Gbps", "model.layers=2", "nodes=2"]
    scenario = from_mapping(question(), changes=changes)
    nic = scenario.topology.devices("nic", 0)[0]
    port = next(link for link in scenario.topology.graph[nic.name].values() if link["link"].kind == "network")
    assert port["link"].bandwidth == 25e9 / 8
    assert scenario.model.layers == 2
    assert scenario.model.name == "llama-2-7b"
    assert scenario.world_size == 16


def test_changes_are_made_in_order() -> None:
    deepspeed = ["strategy.deepspeed.zero_optimization.stage=1", "strategy.deepspeed.zero_optimization.stage=3"]
    assert zero_of(from_mapping(question(), changes=deepspeed)).stage == 3
    ddp = from_mapping(question(), changes=["strategy={ddp: {bucket_cap_mb: 50}}", "strategy.ddp.bucket_cap_mb=10"])
    assert isinstance(ddp.strategy, Ddp)
    assert ddp.strategy.bucket_cap_mb == 10


def test_a_model_change_moves_auto_sizes() -> None:
    section = {"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}
    for hidden in (128, 256):
        model = {"layers": 2, "hidden": hidden, "heads": 4}
        scenario = from_mapping(question(strategy={"deepspeed": section}, model=model))
        assert zero_of(scenario).reduce_bucket_size == hidden * hidden


def test_batch_sizes_meet_the_world_size_of_the_topology() -> None:
    strategy = {"deepspeed": {"train_batch_size": 64, "bf16": {"enabled": True}}}
    scenario = from_mapping(question(strategy=strategy))
    assert scenario.training.gradient_accumulation_steps == 4  # 64 / (2 x 8)


def test_ddp() -> None:
    settings = {
        "gradient_as_bucket_view": True,
        "parameter_dtype": "bf16",
        "optimizer": {"type": "sgd", "momentum": 0.9},
    }
    scenario = from_mapping(question(strategy={"ddp": settings}))
    assert scenario.strategy == Ddp(
        gradient_as_bucket_view=True, parameter_dtype="bf16", optimizer=Optimizer("SGD", 4, 32, False, "torch")
    )
    assert from_mapping(scenario.text).strategy == scenario.strategy
    assert from_mapping(question(strategy={"ddp": None})).strategy == Ddp()
    unfused = from_mapping(question(strategy={"ddp": {"optimizer": {"type": "AdamW", "fused": False}}}))
    assert unfused.strategy.optimizer == Optimizer("AdamW", 8, 72, False, "torch", scratch_bytes=4)
    assert from_mapping(unfused.text).strategy == unfused.strategy


def test_findings_of_the_deepspeed_file_come_along() -> None:
    strategy = {"deepspeed": {"zero_optimization": {"stage": 2, "allgather_partitions": True}, "overlap_comm": True}}
    codes = {finding.code for finding in from_mapping(question(strategy=strategy)).findings}
    assert {"key-no-effect", "misplaced-key", "precision-assumed", "optimizer-assumed"} <= codes


def test_replace() -> None:
    scenario = from_mapping(question())
    larger = scenario.replace(nodes=2, training={"sequence_length": 1024})
    assert (larger.world_size, larger.training.sequence_length) == (16, 1024)
    assert larger.training.micro_batch_size == 2
    assert from_mapping(larger.text).world_size == 16
    strategy = DeepSpeed(zero=Zero(stage=3, overlap_comm=True, reduce_bucket_size=7))
    other = scenario.replace(strategy=strategy, title="other")
    assert zero_of(from_mapping(other.text)).reduce_bucket_size == 7
    assert other.text["title"] == "other"
    assert scenario.world_size == 8
    assert scenario.replace(gpus=4).replace(nodes=2).world_size == 16
    assert scenario.replace(topology=scenario.machine.select(1, 2)).world_size == 2


def test_replace_refuses_what_no_scenario_may_be() -> None:
    scenario = from_mapping(question(model="gpt2", training={"sequence_length": 1024}))
    with pytest.raises(InputError, match="at most 1024, the learnt positions"):
        scenario.replace(training={"sequence_length": 2048})
    with pytest.raises(InputError, match="nearest strategy"):
        scenario.replace(stragegy=Ddp())
    with pytest.raises(InputError, match="sequence_lenght"):
        scenario.replace(training={"sequence_lenght": 2048})
    with pytest.raises(InputError, match="nodes"):
        scenario.replace(nodes=0)


def test_nodes_that_are_overridden_are_there() -> None:
    """A topology of one node, asked for two, of which the second is slow."""
    change = "topology.overrides=[{node: 1, nics: {bandwidth: 25 Gbps}}]"
    path = Path(__file__).parents[2] / "scenarios/seven-b/zero3-two-nodes-ib.yaml"
    assert len(load(path, [change]).topology.rank_classes()) == 2


def test_whose_checkpoint_is_called() -> None:
    section = {"zero_optimization": {"stage": 2}, "activation_checkpointing": {"cpu_checkpointing": True}}
    training = {"sequence_length": 2048, "activation_checkpointing": "full", "checkpoint_function": "deepspeed"}
    called = from_mapping(question(strategy={"deepspeed": section}, training=training))
    assert isinstance(called.strategy, DeepSpeed)
    assert called.strategy.cpu_checkpointing
    assert called.training.reentrant  # deepspeed.checkpointing.checkpoint is; nobody said otherwise
    assert not from_mapping(question(training=training | {"reentrant": False})).training.reentrant
    again = from_mapping(called.text)
    assert (again.strategy, again.training) == (called.strategy, called.training)
    torch = from_mapping(
        question(strategy={"deepspeed": section}, training=training | {"checkpoint_function": "torch"})
    )
    assert torch.strategy == DeepSpeed(zero=Zero(stage=2))
    assert "checkpoint_function" not in " ".join(torch.assumptions)
    idle = from_mapping(question(training=training | {"activation_checkpointing": "none"}))
    assert any(finding.message.startswith("training.checkpoint_function changes nothing") for finding in idle.findings)


def test_offloads_of_a_scenario_come_back_from_its_text() -> None:
    offloads = {
        "stage": 3,
        "sub_group_size": 100_000_000,
        "offload_optimizer": {"device": "nvme", "nvme_path": "/x", "pipeline_read": True, "buffer_count": 8},
        "offload_param": {"device": "nvme", "nvme_path": "/x", "max_in_cpu": 0, "buffer_size": 2e7},
    }
    strategy = {"zero_optimization": offloads, "aio": {"block_size": 2**21, "queue_depth": 32}}
    scenario = from_mapping(question(strategy={"deepspeed": strategy}))
    assert isinstance(scenario.strategy, DeepSpeed)
    assert (scenario.strategy.aio.block_size, scenario.strategy.aio.queue_depth) == (2**21, 32)
    assert zero_of(scenario).offload_param.buffer_size == 20_000_000
    assert from_mapping(scenario.text).strategy == scenario.strategy


@pytest.mark.parametrize(
    ("section", "tier"),
    [
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, "sockets with DRAM"),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, "sockets with DRAM"),
        ({"stage": 3, "offload_optimizer": {"device": "nvme"}}, "NVMe drives"),
        ({"stage": 2, "offload_optimizer": {"device": "nvme"}}, "sockets with DRAM"),  # there it is cpu
    ],
)
def test_a_machine_must_have_what_is_offloaded_to(section: dict[str, Any], tier: str) -> None:
    devices = [{"name": name, "kind": "gpu", "device": "l4"} for name in "ab"] + [
        {"name": "cpu", "kind": "socket", "cores": 16}
    ]
    links = [{"from": name, "to": "cpu", "bandwidth": "31.5 GB/s"} for name in "ab"]
    bare = {"name": "bare", "devices": devices, "links": links}
    if tier == "NVMe drives":
        memory = {"name": "ram", "kind": "dram", "capacity": "64 GB"}
        bare |= {"devices": [*devices, memory], "links": [*links, {"from": "cpu", "to": "ram", "bandwidth": "80 GB/s"}]}
    strategy = {"deepspeed": {"zero_optimization": section}}
    scenario = from_mapping(question(strategy=strategy))
    with pytest.raises(InputError) as caught:
        from_mapping(question(strategy=strategy, topology=bare))
    (problem,) = caught.value.problems
    (name,) = set(section) - {"stage"}
    assert str(problem).endswith(
        f"topology: found bare without {tier}; expected a topology whose nodes have {tier}, where "
        f"strategy.deepspeed.zero_optimization.{name}.device is {section[name]['device']}"
    )
    machine = from_mapping(question(topology=bare)).topology
    with pytest.raises(InputError, match=f"bare without {tier}"):
        scenario.replace(topology=machine)
