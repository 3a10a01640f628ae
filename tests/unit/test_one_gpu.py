"""A world of one rank: every strategy runs, and a collective with nobody takes no time and no part of the machine."""

from typing import Any

import pytest

from zerosim.resources import Demand
from zerosim.scenario import from_mapping
from zerosim.simulation import simulate
from zerosim.step import Collective

STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"ddp": {}},
    **{f"stage {stage}": {"deepspeed": {"zero_optimization": {"stage": stage}}} for stage in range(4)},
    "stage 2, rooted reduces": {
        "deepspeed": {"zero_optimization": {"stage": 2, "use_multi_rank_bucket_allreduce": False}}
    },
    "stage 3, summed fetches": {
        "deepspeed": {"zero_optimization": {"stage": 3, "stage3_use_all_reduce_for_fetch_params": True}}
    },
}


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_collectives_of_one_rank_cost_nothing(strategy: str, precision: str) -> None:
    scenario = from_mapping(
        {
            "topology": "ethernet-10g-a100",
            "gpus": 1,
            "model": {"layers": 2, "hidden": 64, "heads": 2, "ffn": 128, "vocab": 256},
            "training": {"sequence_length": 32, "gradient_accumulation_steps": 2, "precision": precision},
            "strategy": STRATEGIES[strategy],
        }
    )
    played = simulate(scenario)
    collectives = [op.number for op in played.step.ops if isinstance(op.work, Collective)]
    assert scenario.world_size == 1
    assert bool(collectives) == (strategy != "ddp")  # nobody wraps a model on one GPU
    for number in collectives:
        assert played.demands["all"][number]._replace(host=0.0) == Demand(algorithm="none")
        assert played.spans["all"][number].end == played.spans["all"][number].start
    summary = played.summary().as_json()
    assert summary["communication"]["total_seconds"] == summary["breakdown"]["exposed_communication"] == 0.0
    assert summary["step_seconds"] > 0
