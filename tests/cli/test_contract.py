"""The contract with users' scripts: the keys and types of each `--json`, sums that hold, and exit codes.

Every scenario that comes with zerosim is played here once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.asking import ROOT, SCENARIOS, SMALL, ask
from tests.cli.wrong_files import RIGHT

NUMBER = (int, float)
PART_BYTES = tuple(
    f"{part}_bytes" for part in ("parameters", "gradients", "optimizer", "activations", "buffers", "overhead")
)

RUN: dict[str, Any] = {
    "scenario": str, "fits": bool, "world_size": int, "nodes": int, "seed": int, "step_seconds": NUMBER,
    "tokens_per_second": NUMBER, "tokens_per_second_per_gpu": NUMBER, "samples_per_second": NUMBER,
    "model_tflops_per_gpu": NUMBER, "mfu": NUMBER,
    "phases": dict.fromkeys(("forward", "backward", "optimizer"), NUMBER),
    "breakdown": dict.fromkeys(
        ("compute", "exposed_communication", "exposed_transfer", "host_compute", "idle"), NUMBER
    ),
    "communication": dict.fromkeys(("total_seconds", "exposed_seconds", "overlap"), NUMBER),
    "stalls": [{"cause": str, "phase": str, "resource": str, "seconds": NUMBER}],
    "memory": {
        "gpu": dict.fromkeys(("capacity_bytes", "peak_bytes", *PART_BYTES), NUMBER) | {"peak_at": object},
    },
    "findings": [{"code": str, "severity": str, "message": str, "remedy": str}],
}  # fmt: skip
COLLECTIVE = {"count": int, "bytes": NUMBER}
RESOURCE = dict.fromkeys(("bytes_or_flop", "busy_seconds", "utilization"), NUMBER)
OP: dict[str, Any] = {
    "index": int, "name": str, "kind": str, "stream": str, "phase": str, "micro_batch": int,
    "layer": (int, type(None)), "elements": (*NUMBER, type(None)), "dtype": (str, type(None)),
    "bytes": (*NUMBER, type(None)), "group_size": (int, type(None)), "after": [int],
}  # fmt: skip
RUNG: dict[str, Any] = {
    "rung": str, "strategy": str, "fits": bool, "model_states_bytes": NUMBER, "peak_bytes": NUMBER,
    "step_seconds": NUMBER, "tokens_per_second": NUMBER, "relative_throughput": (*NUMBER, type(None)), "reason": str,
    "checkpointing": str, "as_given": bool, "built": bool, "peak_bytes_by_tier": dict, "change": (*NUMBER, type(None)),
    "drop": bool, "limited_by": str, "because": str, "chosen": bool, "next_costs": list,
}  # fmt: skip
NEXT = {
    "rung": str, "checkpointing": str, "fits": bool, "throughput_change": NUMBER, "per_gpu_change": NUMBER,
    "freed_bytes": dict, "limited_by": str, "because": str,
}  # fmt: skip
OFFLOADED = ("ZeRO-3 + offload", "ZeRO-3 + offload all", "ZeRO-3 + NVMe")
VERDICT = {"recording": str, "match": bool, "first_difference": (dict, type(None))}
RECORDED = RIGHT["recording.json"]
LEDGER = {"stage": int, "offload": str, "gpu_bytes_per_gpu": NUMBER, "dram_bytes_per_node": NUMBER}


def holds(value: Any, shape: Any, where: str = "") -> None:
    """`value` has at least the keys of `shape`, and the right types; bool is not a number."""
    if isinstance(shape, Mapping):
        assert isinstance(value, dict), where
        assert shape.keys() <= value.keys(), where
        for key, below in shape.items():
            holds(value[key], below, f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for index, item in enumerate(value):
            holds(item, shape[0], f"{where}.{index}")
    else:
        assert isinstance(value, shape), (where, value)
        assert shape is bool or shape is object or not isinstance(value, bool), where


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


# --- run -----------------------------------------------------------------------------------------------------------


@cache
def played(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = ask("run", path, "--json").json
    return answer


def name(path: Path) -> str:
    return str(path.relative_to(ROOT / "scenarios"))


@pytest.mark.parametrize("path", SCENARIOS, ids=name)
def test_run_has_the_keys_of_the_contract(path: Path) -> None:
    summary = played(path)
    holds(summary, RUN)
    for each in summary["collectives"].values():
        holds(each, COLLECTIVE)
    for each in summary["resources"].values():
        holds(each, RESOURCE)
    assert summary["memory"].keys() <= {"gpu", "dram", "nvme"}
    assert {finding["severity"] for finding in summary["findings"]} <= {"note", "warning", "error"}


@pytest.mark.parametrize("path", SCENARIOS, ids=name)
def test_the_sums_of_run_hold(path: Path) -> None:
    summary = played(path)
    step, parts, stalls = summary["step_seconds"], summary["breakdown"], summary["stalls"]
    assert sum(summary["phases"].values()) == pytest.approx(step)
    assert sum(parts.values()) == pytest.approx(step)
    assert sum(stall["seconds"] for stall in stalls) == pytest.approx(step - parts["compute"], abs=1e-9)
    assert [stall["seconds"] for stall in stalls] == sorted((stall["seconds"] for stall in stalls), reverse=True)
    for tier in summary["memory"].values():
        assert sum(tier[part] for part in PART_BYTES) == pytest.approx(tier["peak_bytes"])
    assert summary["fits"] == all(tier["peak_bytes"] <= tier["capacity_bytes"] for tier in summary["memory"].values())


@pytest.mark.parametrize("path", SCENARIOS, ids=name)
def test_rates_and_shares_of_run_agree(path: Path) -> None:
    summary, communication = played(path), played(path)["communication"]
    world, tokens = summary["world_size"], summary["tokens_per_second"]
    assert summary["tokens_per_second_per_gpu"] == pytest.approx(tokens / world)
    assert 0 < summary["mfu"] < 1
    assert 0 <= communication["exposed_seconds"] <= communication["total_seconds"]
    total = communication["total_seconds"]
    assert communication["overlap"] == pytest.approx(1 - communication["exposed_seconds"] / total if total else 0.0)
    assert all(0 <= use["utilization"] <= 1 + 1e-9 for use in summary["resources"].values())


def test_set_is_repeatable_and_reaches_into_files(tmp_path: Path, small: Path) -> None:
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}')
    small.write_text(SMALL[: SMALL.index("  deepspeed")] + "  deepspeed: ds.json\n")
    stage, nic = "strategy.deepspeed.zero_optimization.stage=3", "topology.node.nics.bandwidth=25 Gbps"
    changed = ask("run", small, "--json", *sets("nodes=2", "title=other", stage)).json
    assert (changed["scenario"], changed["nodes"], changed["world_size"]) == ("other", 2, 16)
    assert changed["collectives"].keys() != ask("run", small, "--json").json["collectives"].keys()
    slower = ask("run", small, "--json", *sets("nodes=2", "title=other", stage, nic)).json
    assert slower["resources"]["nic"]["busy_seconds"] > 2 * changed["resources"]["nic"]["busy_seconds"]


def sets(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


def test_the_same_question_gets_the_same_bytes(small: Path) -> None:
    assert ask("run", small, "--json") == ask("run", small, "--json")


def test_not_fitting_is_an_answer_and_with_strict_exit_code_3(small: Path) -> None:
    full = ("--set", "training.micro_batch_size=100000")
    assert ask("run", small, *full).code == 0
    told = ask("run", small, *full, "--strict")
    assert (told.code, told.err) == (3, "")
    assert "DOES NOT FIT" in told.out
    assert ask("run", small, "--strict").code == 0


# --- the other verbs -----------------------------------------------------------------------------------------------


def test_compare_is_a_list_of_runs_the_baseline_first(small: Path) -> None:
    other = small.with_name("other.yaml")
    other.write_text(SMALL.replace("title: small", "title: other").replace("stage: 2", "stage: 3"))
    runs = ask("compare", small, other, "--json").json
    assert [run["scenario"] for run in runs] == ["small", "other"]
    holds(runs, [RUN])
    assert runs[0] == ask("run", small, "--json").json


def test_ops(small: Path) -> None:
    rows = ask("ops", small, "--json").json
    holds(rows, [OP])
    assert [row["index"] for row in rows] == list(range(len(rows)))
    assert all(other < row["index"] for row in rows for other in row["after"])
    counts = {kind: each["count"] for kind, each in ask("run", small, "--json").json["collectives"].items()}
    assert {kind: sum(row["kind"] == kind for row in rows) for kind in counts} == counts


def test_ladder(small: Path) -> None:
    rungs = ask("ladder", small, "--json").json
    holds(rungs, [RUNG])
    names = ["one GPU", "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", *OFFLOADED, "layer-wise"]
    assert [rung["rung"] for rung in rungs] == [name for name in names for _ in range(2)]
    assert [rung["checkpointing"] for rung in rungs] == ["none", "full"] * len(names)
    strategies = ["ddp", "ddp", "zero1", "zero2", "zero3", *["zero3-offload"] * 2, "zero3-nvme", "pipeline-naive"]
    assert [rung["strategy"] for rung in rungs] == [name for name in strategies for _ in range(2)]
    assert rungs[0]["relative_throughput"] == 1.0  # everything fits, so the first rung is the base
    base = rungs[0]["tokens_per_second"]
    assert all(rung["relative_throughput"] == pytest.approx(rung["tokens_per_second"] / base) for rung in rungs)
    given = ask("ladder", small, "--json", "--checkpointing", "given").json
    assert [rung["step_seconds"] for rung in given] == [rung["step_seconds"] for rung in rungs[::2]]
    holds([rung for rung in rungs if rung["next_costs"]], [{"next_costs": [NEXT]}])


def test_conform(tmp_path: Path) -> None:
    """Three recordings: one that matches, one that has another size, one of a framework that nobody knows."""
    texts = {"same": RECORDED, "other": RECORDED.replace('"nin": 64', '"nin": 65'), "unknown": RECORDED}
    texts["unknown"] = RECORDED.replace('"strategy": "ddp"', '"strategy": "horovod"')
    paths = [tmp_path / f"{name}.json" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    answer = ask("conform", *paths, "--json")
    rows = json.loads(answer.out)
    assert answer.code == 0  # a difference is an answer
    assert all(line.startswith(f"{tmp_path}") for line in answer.err.splitlines())  # notes
    holds(rows, [VERDICT])
    assert all(row.keys() == VERDICT.keys() for row in rows)
    assert [(row["recording"], row["match"]) for row in rows] == list(
        zip(map(str, paths), [True, False, False], strict=True)
    )
    assert rows[0]["first_difference"] is None
    sides = rows[1]["first_difference"]
    assert (sides["index"], sides["recorded"]["nin"], sides["simulated"]["nin"]) == (0, 65, 64)
    assert 'found "horovod"; expected' in rows[2]["first_difference"]["reason"]
    assert (ask("conform", *paths, "--strict").code, ask("conform", paths[0], "--strict").code) == (3, 0)


def test_memory_has_every_stage_with_and_without_offload() -> None:
    rows = ask("memory", "--params", "7e9", "--gpus", "8", "--json").json
    holds(rows, [LEDGER])
    assert [(row["stage"], row["offload"]) for row in rows] == [(s, o) for o in ("none", "cpu") for s in range(4)]
    on_gpu = [row["gpu_bytes_per_gpu"] / 7e9 for row in rows]
    # 16; 4 + 12/8; 2 + 14/8; 16/8 bytes a parameter; offload leaves weights and, on stage 1, gradients
    assert on_gpu == pytest.approx([16, 5.5, 3.75, 2, 16, 4, 2, 0.25])
    # stage 0 knows no offload; else master 4, gradient 4, moments 8 and the 16-bit copy 2, once for the whole node
    assert [row["dram_bytes_per_node"] / 7e9 for row in rows] == pytest.approx([0, 0, 0, 0, 0, 18, 18, 18])


@pytest.mark.parametrize(
    ("what", "known"),
    [("models", "llama-2-7b"), ("topologies", "dgx-a100-80"), ("devices", "h100_sxm"), ("strategies", "ddp")],
)
def test_list_prints_names_and_facts(what: str, known: str) -> None:
    names = ask("list", what, "--json").json
    assert known in names
    lines = ask("list", what).out.splitlines()
    assert [line[: len(name)] for line, name in zip(lines, names, strict=True)] == names
    assert all(len(line.split()) > 2 for line in lines)


def test_topology_show() -> None:
    shown = ask("topology", "show", "ethernet-10g-a100", "--json").json
    assert (shown["name"], shown["world_size"]) == ("ethernet-10g-a100", 16)
    assert [node["hosts"] for node in shown["nodes"]] == [[0, 1]]
    kinds = [device["kind"] for device in shown["nodes"][0]["devices"]]
    assert kinds.count("gpu") == 8
    assert shown["nodes"][0]["ports"] == {"nic0": 1.25e9}
    assert shown["rank_classes"] == [list(range(16))]
