"""Linears of 1024 x 1024 under stage 3, whose shards on two ranks are 524,288 elements: 1 MiB in 16 bits, the least
that is swapped to NVMe, and 2 MiB in fp32. And what a step moves between tiers.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from tests.toy import toy_training
from zerosim.spec.model import Model, Module, Parameter
from zerosim.spec.strategy import Aio, DeepSpeed, Offload, Zero
from zerosim.step import Op, Step, Transfer
from zerosim.strategies import build

SIDE = 1024
NUMEL = SIDE * SIDE
SHARD = NUMEL // 2
MIB = 2**20
GATHERS = 2  # of a parameter in a micro-step
NOWHERE = Offload()
CPU, NVME = Offload("cpu"), Offload("nvme")
CPU_PARAMETERS = Offload("cpu", buffer_count=5)
NVME_PARAMETERS = Offload("nvme", buffer_count=5, buffer_size=SHARD, max_in_cpu=0)


def linears(*widths: int, frozen: int = 0) -> Model:
    """A chain of linears without bias, from one width to the next; the first `frozen` are not trained."""
    body = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        weight = Parameter(f"l{i}.weight", (outputs, inputs), i >= frozen)
        body.append(Module(f"l{i}", "linear", (weight,), inputs=inputs, outputs=outputs))
    root = Module("root", "container", body=tuple(body))
    return Model("linears", root, tuple(p for m in body for p in m.parameters), len(body), SIDE, 1, SIDE)


def square(count: int) -> Model:
    return linears(*[SIDE] * (count + 1))


def config(where: Offload = NOWHERE, parameters: Offload = NOWHERE, aio: Aio | None = None, **keys: Any) -> DeepSpeed:
    """Everything is gathered where it is used, forward and backward, and a sub-group is a parameter."""
    values: dict[str, Any] = {
        "overlap_comm": True, "prefetch_bucket_size": 0, "max_reuse_distance": 0, "param_persistence_threshold": 0,
        "sub_group_size": 1, "reduce_bucket_size": NUMEL, **keys,
    }  # fmt: skip
    zero = Zero(stage=3, offload_optimizer=where, offload_param=parameters, **values)
    return DeepSpeed(zero=zero, synchronized_timer=False, aio=aio or Aio())


def step_of(deepspeed: DeepSpeed, model: Model | None = None, ranks: int = 2, **training: Any) -> Step:
    return build(deepspeed, model or square(3), toy_training(**training), ranks)[0].check()


def copies(step: Step, source: str, target: str) -> list[Op]:
    return [op for op in step.ops if isinstance(op.work, Transfer) and op.work[1:3] == (source, target)]


def moved(step: Step, source: str, target: str) -> float:
    return sum(op.work.bytes for op in copies(step, source, target) if isinstance(op.work, Transfer))


def resident(step: Step, tier: str) -> Counter[str]:
    held: Counter[str] = Counter()
    for buffer in (step.buffers[number] for number in step.resident):
        if buffer.tier == tier:
            held[buffer.name] += int(buffer.bytes)
    return held


def awaited(step: Step) -> set[int]:
    """Ops for which the host waits before it issues the very next one."""
    return {op.number - 1 for op in step.ops if op.number - 1 in op.host_waits}
