"""Small scenarios to be tuned, one a strategy, and what a search must find: the best of all points, each played."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from zerosim.spec.changes import parse_change
from zerosim.spec.loading import inline
from zerosim.studies.tuning import Asked
from zerosim.studies.tuning.asked import space_of
from zerosim.studies.tuning.looking import ERROR, Question

ROOT = Path(__file__).parents[1]
SMALL: dict[str, Any] = {
    "title": "small",
    "topology": "roce-100g-a100",
    "nodes": 2,
    "model": {"layers": 3, "hidden": 1024, "heads": 8, "vocab": 8000},
    "training": {"sequence_length": 512, "micro_batch_size": 2, "gradient_accumulation_steps": 2},
}
ZERO = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW"}}


DRIVE = {"device": "nvme", "nvme_path": "/local_nvme"}


class Case(NamedTuple):
    """A strategy with knobs as --knob has them, and changes as --set has them."""

    name: str
    strategy: dict[str, Any]
    knobs: tuple[str, ...]
    changes: tuple[str, ...] = ()


def zero(stage: int, **more: Any) -> dict[str, Any]:
    """DeepSpeed's configuration."""
    return {"deepspeed": {**ZERO, "zero_optimization": {"stage": stage, **more}}}


CASES = (
    Case("ZeRO-2", zero(2), ("reduce_bucket_size=1e5,1.6e6,6.4e6,2.56e7", "overlap_comm", "micro_batch_size=2,4")),
    Case("ZeRO-3", zero(3), ("stage3_prefetch_bucket_size=1e6", "stage3_max_live_parameters=0,4e6",
                             "stage3_param_persistence_threshold=1e3,2e6")),
    Case("stages and offload", zero(1), ("stage", "offload_optimizer", "offload_param")),
    Case("ZeRO-3 on the host", zero(3, offload_optimizer={"device": "cpu"}),
         ("sub_group_size=1e5,1.6e6", "reduce_bucket_size=1e5,1.6e6", "overlap_comm")),
    Case("DDP", {"ddp": {}}, ("bucket_cap_mb", "gradient_as_bucket_view", "no_sync")),
    Case("FSDP1", {"fsdp": {"wrap": "blocks", "mixed_precision": "bf16"}},
         ("sharding_strategy=SHARD_GRAD_OP", "backward_prefetch", "forward_prefetch")),
    Case("FSDP2", {"fsdp": {"version": 2, "wrap": "blocks", "mixed_precision": {"param_dtype": "bf16"}}},
         ("reshard_after_forward", "prefetch_forward", "no_sync")),
    Case("pipeline", {"pipeline": {"stages": 2, "schedule": "naive"}},
         ("schedule", "zero_stage", "micro_batch_size=1")),
    Case("unequal ranks", zero(2), ("reduce_bucket_size=6.4e6", "overlap_comm", "micro_batch_size=2,4"),
         ('topology.overrides=[{node: 1, nics: {bandwidth: "25 Gbps"}}, {gpu: "0.3", compute: 0.5}]',)),
    Case("a drive", zero(3, offload_optimizer=DRIVE, offload_param=DRIVE),
         ("offload_optimizer", "offload_param", "sub_group_size=1e6,4e6"), ("topology=pcie-1x-rtx4090", "nodes=1")),
    Case("little memory", zero(1), ("stage", "micro_batch_size=1,2", "activation_checkpointing"),
         ("topology.node.gpus.memory=3.65 GB",)),
)  # fmt: skip


def asked(case: Case, *more: str, **options: Any) -> Asked:
    """The question about a case."""
    document = inline({**SMALL, "strategy": case.strategy}, "small")
    knobs = {name: tuple(values.split(",")) if values else () for name, _, values in
             (text.partition("=") for text in (*case.knobs, *more))}  # fmt: skip
    return Asked(document, ROOT / "scenarios", tuple(map(parse_change, case.changes)), knobs, **options)


def all_played(question: Asked) -> list[tuple[float, float]]:
    """Seconds and GPU memory of every point that fits, each played."""
    looking = question.looking
    space, _ = space_of(question, looking.scenario(()))
    found = [looking(Question("play", space.changes(point))) for point in space.points()]
    return [(each["seconds"], each["gpu_bytes"]) for each in found if ERROR not in each and not each["unfit"]]
