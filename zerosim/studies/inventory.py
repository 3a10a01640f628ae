"""What there is to choose from, by name."""

from __future__ import annotations

from zerosim.catalog.hardware import gpus
from zerosim.spec.model_file import model_names
from zerosim.spec.topology_file import topology_names

STRATEGIES = (
    "ddp: torch DistributedDataParallel",
    "deepspeed, stage 0: data parallelism, one all-reduce after the last backward",
    "deepspeed, stage 1: optimizer states sharded",
    "deepspeed, stage 2: and gradients",
    "deepspeed, stage 3: and parameters",
)


def inventory(what: str) -> list[str]:
    """Names of `models`, `topologies`, `devices` or `strategies`."""
    if what == "strategies":
        return list(STRATEGIES)
    if what == "devices":
        return sorted(gpus())
    return list(model_names() if what == "models" else topology_names())
