"""The ladder without and with checkpointing: its order, what is told of a slower rung, and what the next one costs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.quick_host import quick_host
from tests.unit.test_ladder import pipeline, scenario
from zerosim.errors import InputError
from zerosim.scenario import Scenario
from zerosim.simulation import Simulation, simulate
from zerosim.studies import ladder as study
from zerosim.studies.ladder import DROP, climb, ladder
from zerosim.studies.reference import RUNGS
from zerosim.studies.rung_rows import Rung, Unbuilt

NODE: dict[str, Any] = {
    "gpus": {"device": "a100_sxm_80", "count": 4},
    "nvlink": {"kind": "switch", "bandwidth": "300 GB/s", "latency": "1 us"},
    "pcie": {"generation": 4, "lanes": 16},
    "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB", "bandwidth": "204.8 GB/s"}}],
}  # no drives
WIDE = {"layers": 2, "hidden": 2048, "heads": 16, "vocab": 1000}


def slow(**more: Any) -> Scenario:
    """Two nodes with 10 Gb/s between them, and enough to compute that a fast network would be hidden."""
    nics = {"count": 1, "bandwidth": "10 Gbps", "kind": "ethernet"}
    topology = {"name": "slow", "node": {"count": 2, **NODE, "nics": nics}, "fabric": {"kind": "switch"}}
    return scenario(topology=topology, model=WIDE, **more)


def by_name(rows: list[Rung]) -> dict[tuple[str, str], Rung]:
    return {(row.rung, row.checkpointing): row for row in rows}


def test_each_rung_is_followed_by_itself_with_checkpointing() -> None:
    rows = ladder(scenario(), both=True)
    assert [(row.rung, row.checkpointing) for row in rows] == [(n, k) for n in RUNGS for k in ("none", "full")]
    assert [row.as_given for row in rows] == [True, False] * len(RUNGS)
    assert [row.step_seconds for row in rows[::2]] == [row.step_seconds for row in ladder(scenario())]


@pytest.mark.parametrize(
    ("given", "pair"),
    [("full", ("none", "full")), ("operators", ("none", "operators")), ("selective", ("selective", "full"))],
)
def test_the_pair_contains_what_the_scenario_has(given: str, pair: tuple[str, str]) -> None:
    asked = scenario(gpus=1, training={"activation_checkpointing": given, "attention": "eager"})
    rows = ladder(asked, both=True)
    assert tuple(row.checkpointing for row in rows[:2]) == pair
    assert [row.checkpointing for row in rows if row.as_given] == [given] * (len(rows) // 2)


def test_nothing_is_played_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[Any, ...]] = []

    def counted(asked: Scenario) -> Simulation:
        played.append((asked.strategy, asked.training, asked.world_size))
        return simulate(asked)

    monkeypatch.setattr(study, "simulate", counted)
    assert len(ladder(scenario(), both=True)) == 2 * len(RUNGS)
    assert len(played) == 2 * (len(RUNGS) + 1)  # one GPU is drawn out from two plays
    assert len(set(played)) == len(played)


def test_a_slow_network_is_named_from_what_was_played() -> None:
    found = by_name(ladder(slow(), both=True))
    for kind in ("none", "full"):
        ddp = found["DDP", kind]
        assert ddp.drop
        assert ddp.against == "one GPU"
        assert ddp.limited_by.startswith("NIC 10 Gb/s Ethernet")
        assert ddp.because.startswith("exposed all-reduce +")
    fast = by_name(ladder(scenario(model=WIDE, nodes=1), both=True))
    assert not any("NIC" in row.limited_by for row in fast.values())


def test_host_memory_and_drives_are_named() -> None:
    found = by_name(ladder(scenario(model=WIDE)))
    offload, drives = found["ZeRO-3 + offload", "none"], found["ZeRO-3 + NVMe", "none"]
    assert (offload.against, drives.against) == ("ZeRO-3", "ZeRO-3 + offload all")
    assert (offload.drop, drives.drop) == (True, True)
    assert drives.limited_by.startswith("NVMe")
    assert drives.peak_bytes_by_tier["nvme"] > 0
    assert set(found["ZeRO-3", "none"].peak_bytes_by_tier) == {"gpu"}


def test_change_and_drop() -> None:
    """`change` is that of a GPU; a drop is more than 5 %, and what did not drop has no cause."""
    found = by_name(ladder(slow(), both=True))
    for row in found.values():
        if row.against is None:
            assert row.rung == "one GPU"
            continue
        below = found[row.against, row.checkpointing]
        each, before = (rung.tokens_per_second / (1 if rung.rung == "one GPU" else 8) for rung in (row, below))
        assert row.change == pytest.approx(each / before - 1)
        assert row.drop == (row.change is not None and row.change < -DROP) == bool(row.because)


def test_the_first_that_fits_says_what_the_next_costs() -> None:
    with quick_host():
        rows = ladder(scenario(model=WIDE), both=True)
    (chosen,) = [row for row in rows if row.chosen]
    assert chosen is rows[0]
    same, after = chosen.next_costs
    assert (same.rung, same.checkpointing) == ("one GPU", "full")
    assert (after.rung, after.checkpointing) == ("DDP", "none")
    assert same.throughput_change == pytest.approx(rows[1].tokens_per_second / rows[0].tokens_per_second - 1)
    assert same.per_gpu_change == pytest.approx(same.throughput_change)
    assert (1 + after.throughput_change) == pytest.approx(8 * (1 + after.per_gpu_change))
    assert same.freed_bytes == {"gpu": rows[0].peak_bytes - rows[1].peak_bytes}
    assert "recomputation" in same.because


def test_where_only_checkpointing_fits_the_first_without_it_is_told() -> None:
    """131,072 tokens of 12 layers of width 2048: what they keep is more than 80 GB, and no stage shards it."""
    model = {"layers": 12, "hidden": 2048, "heads": 16, "vocab": 1000}
    training = {"sequence_length": 8192, "micro_batch_size": 16, "gradient_accumulation_steps": 1}
    rows = ladder(scenario(model=model, gpus=2, training=training), both=True)
    (chosen,) = [row for row in rows if row.chosen]
    assert (chosen.rung, chosen.checkpointing) == ("one GPU", "full")
    assert not rows[0].fits
    assert [each.rung for each in chosen.next_costs][:1] == ["DDP"]
    unchecked = [row.rung for row in rows if row.fits and row.checkpointing == "none"]
    assert [each.rung for each in chosen.next_costs][1:] == unchecked[:1]


def test_a_rung_that_cannot_be_built_is_told_in_its_place() -> None:
    rows = climb(scenario(topology={"name": "plain", "node": NODE}, gpus=1), both=False)
    told = {row.rung: row.reason for row in rows if isinstance(row, Unbuilt)}
    assert told == {
        "DDP": "cannot be built: one GPU has nobody to share with",
        "ZeRO-3 + NVMe": "cannot be built: plain without NVMe drives",
        "layer-wise": "cannot be built: no two GPUs of a node to spread the layers over",
    }
    assert tuple(row.rung for row in rows) == RUNGS
    (first,) = [row.as_json() for row in rows if row.rung == "DDP"]
    (other,) = [row.as_json() for row in rows if row.rung == "ZeRO-1"]
    assert first.keys() == other.keys()
    assert (first["built"], first["fits"], first["step_seconds"]) == (False, False, None)
    assert other["against"] == "one GPU"  # DDP is not there


def test_a_rung_whose_program_is_refused_is_told() -> None:
    """FlatParameters of FSDP 1 are trainable or frozen as a whole, which torch says when it wraps."""
    parameters = [{"name": "0.weight", "shape": [8, 8], "trainable": False}, {"name": "0.bias", "shape": [8]}]
    mixed = scenario({"fsdp": {"use_orig_params": False}}, model={"parameters": parameters}, gpus=2)
    told = {row.rung: row.reason for row in climb(mixed, both=False) if isinstance(row, Unbuilt)}
    assert told["FSDP FULL_SHARD"].startswith("cannot be built: strategy.fsdp.use_orig_params: found false; expected ")


def test_no_rung_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from zerosim.errors import Problem

    def refused(_: Scenario) -> Simulation:
        raise InputError([Problem("", "model", "a pearl", "a model")])

    monkeypatch.setattr(study, "simulate", refused)
    with pytest.raises(InputError, match="one GPU: found model: found a pearl; expected a model"):
        climb(scenario(), both=False)


def test_an_own_offload_keeps_its_settings_and_has_its_place() -> None:
    own = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    given = scenario({"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": own}})
    rows = {row.rung: row for row in ladder(given)}
    assert list(rows)[4:7] == ["ZeRO-3", "ZeRO-2 + offload", "ZeRO-3 + offload"]
    assert rows["ZeRO-2 + offload"].against == "ZeRO-2"
    assert rows["ZeRO-3 + offload"].against == "ZeRO-3"
    assert rows["ZeRO-2 + offload"].step_seconds == pytest.approx(simulate(given).makespan)


def test_fsdp_has_a_rung_with_and_without_offload() -> None:
    given = scenario({"fsdp": {"sharding_strategy": "FULL_SHARD", "cpu_offload": True}}, gpus=2)
    rows = {row.rung: row for row in ladder(given)}
    assert rows["FSDP FULL_SHARD"].against == "DDP"
    assert rows["FSDP FULL_SHARD offload"].against == "FSDP FULL_SHARD"
    assert rows["FSDP FULL_SHARD offload"].step_seconds == pytest.approx(simulate(given).makespan)


def test_a_pipeline_and_the_layer_wise_rung_stand_beside_ddp() -> None:
    rows = {row.rung: row for row in ladder(pipeline(8))}
    assert rows["pipeline-1f1b"].against == rows["layer-wise"].against == "DDP"
