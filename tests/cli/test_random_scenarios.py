"""Random changes of a right scenario: whatever stands there, the answer is a step or a list of mistakes."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zerosim.errors import InputError
from zerosim.report.tables import cell_width
from zerosim.report.text import render
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import simulate

RIGHT: dict[str, Any] = {
    "title": "right",
    "nodes": 2,
    "gpus": 4,
    "topology": {
        "name": "machine",
        "node": {
            "count": 1,
            "gpus": {"device": "a100_sxm_80", "count": 2, "compute": 0.9},
            "nvlink": {"kind": "switch", "bandwidth": "300 GB/s", "latency": "1 us"},
            "pcie": {"generation": 4, "lanes": 16, "switches": [{"gpus": [0, 1], "nics": [0], "socket": 0}]},
            "sockets": [{"device": "epyc_7742", "dram": {"capacity": "1 TB", "bandwidth": "200 GB/s"}}],
            "nvme": [{"socket": 0, "count": 2, "read": 6.5e9, "write": 4e9, "capacity": "2 TB"}],
            "nics": {"count": 1, "bandwidth": "100 Gbps", "kind": "ethernet"},
        },
        "fabric": {"kind": "fat_tree", "latency": "2 us", "oversubscription": 2, "leaf_nodes": 4},
        "overrides": [],
    },
    "model": {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "tie_word_embeddings": False,
    },
    "training": {
        "sequence_length": 32, "micro_batch_size": 1, "gradient_accumulation_steps": 2, "precision": "bf16",
        "activation_checkpointing": "full", "attention": "eager", "kernels": "fused", "reentrant": True,
    },
    "strategy": {
        "deepspeed": {
            "bf16": {"enabled": True},
            "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "zero_optimization": {
                "stage": 3, "overlap_comm": True, "reduce_bucket_size": 5000, "stage3_prefetch_bucket_size": 3000,
                "stage3_param_persistence_threshold": 100, "stage3_max_live_parameters": 100000,
                "sub_group_size": 10000,
            },
        }
    },
}  # fmt: skip
DDP: dict[str, Any] = RIGHT | {"strategy": {"ddp": {"bucket_cap_mb": 0.01, "optimizer": "AdamW", "no_sync": True}}}
ACCELERATE: dict[str, Any] = RIGHT | {
    "strategy": {
        "fsdp": {
            "distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 4, "num_machines": 2,
            "rdzv_backend": "static", "gradient_clipping": 1.0,
            "fsdp_config": {
                "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_offload_params": False,
                "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_min_num_params": 10000,
                "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            },
            "parallelism_config": {"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 2},
        }
    }
}  # fmt: skip
FSDP: dict[str, Any] = RIGHT | {
    "strategy": {
        "fsdp": {
            "sharding_strategy": "HYBRID_SHARD", "shard_size": 2, "backward_prefetch": "BACKWARD_POST",
            "wrap": "blocks",
            "mixed_precision": {"param_dtype": "bf16", "reduce_dtype": "fp32"}, "cpu_offload": True, "no_sync": True,
            "forward_prefetch": True, "limit_all_gathers": False, "optimizer": {"type": "AdamW", "fused": False},
        }
    }
}  # fmt: skip
NUMBERS = RIGHT | {"model": {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 100}}
ZEROPP: dict[str, Any] = RIGHT | {
    "strategy": {
        "deepspeed": {
            "bf16": {"enabled": True}, "communication_data_type": "fp16",
            "zero_optimization": {
                "stage": 3, "zero_hpz_partition_size": 2, "zero_quantized_weights": True,
                "zero_quantized_gradients": True, "zero_quantized_nontrainable_weights": True,
                "offload_optimizer": {"device": "cpu"},
            },
        }
    }
}  # fmt: skip
MICS: dict[str, Any] = RIGHT | {
    "versions": {"deepspeed": "0.14.5"},
    "strategy": {
        "deepspeed": {
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3, "mics_shard_size": 4, "mics_hierarchical_params_gather": True},
        }
    },
}
HIERARCHICAL: dict[str, Any] = RIGHT | {
    "strategy": {
        "hierarchical_zero1": {
            "shard_size": 2, "framework": "megatron", "bucket_size": 10000, "overlap_grad_reduce": True,
            "overlap_param_gather": True, "grad_reduce_in_fp32": True, "gradient_clipping": 1.0, "optimizer": "AdamW",
        }
    }
}  # fmt: skip
PIPELINE: dict[str, Any] = NUMBERS | {
    "strategy": {
        "pipeline": {
            "stages": 2, "schedule": "1f1b", "zero_stage": 1, "parameter_dtype": "bf16", "optimizer": {"type": "SGD"},
        }
    }
}  # fmt: skip
ALL = [RIGHT, DDP, ACCELERATE, FSDP, NUMBERS, ZEROPP, MICS, HIERARCHICAL, PIPELINE]
JUNK: list[Any] = [
    None, True, -1, 0, 1, 3, 0.5, 1e400, float("nan"), -float("inf"), 10**30, 10**400, 1e-320, 1e308, "", "x", "auto",
    "3", "25 GB/s", "5 us", "1e5", "gpt2", [], [0], [[0]], {}, {"x": 1}, [None, {"stage": 2}],
]  # fmt: skip

Path = tuple[str | int, ...]


def paths(tree: Any, here: Path = ()) -> list[Path]:
    """Of every part of a tree but the root."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path for key, below in parts for path in ((*here, key), *paths(below, (*here, key)))]


def at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@st.composite
def spoilt(draw: st.DrawFn) -> dict[str, Any]:
    """One to three changes: a part is deleted, replaced by junk, replaced by another part, or gets a new key."""
    tree: dict[str, Any] = deepcopy(draw(st.sampled_from(ALL)))
    for _ in range(draw(st.integers(1, 3))):
        known = paths(tree)
        if not known:
            break
        *above, key = draw(st.sampled_from(known))
        parent = at(tree, tuple(above))
        match draw(st.sampled_from(["delete", "junk", "other", "more"])):
            case "delete":
                del parent[key]
            case "junk":
                parent[key] = deepcopy(draw(st.sampled_from(JUNK)))
            case "other":
                parent[key] = deepcopy(at(tree, draw(st.sampled_from(known))))
            case _ if isinstance(parent, dict):
                parent[draw(st.sampled_from([*map(str, RIGHT), "bandwidth", "kind", "x"]))] = deepcopy(parent[key])
    return tree


def test_the_scenarios_that_are_spoilt_here_are_right() -> None:
    for tree in ALL:
        assert simulate(from_mapping(tree)).summary().fits


@settings(max_examples=200, deadline=None)
@given(spoilt())
def test_a_spoilt_scenario_is_played_or_refused(tree: dict[str, Any]) -> None:
    try:
        scenario = from_mapping(tree)
    except InputError as error:
        refused = error.problems
    else:
        refused = ()
        well_played(scenario)
    assert "\n" not in "".join(map(str, refused))


def well_played(scenario: Scenario) -> None:
    summary = simulate(scenario).summary()
    json.dumps(summary.as_json(), allow_nan=False)
    assert summary.step_seconds > 0
    assert max(map(cell_width, render(summary, 100).splitlines())) <= 100
