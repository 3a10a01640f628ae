"""The bill of model states by formula: what each stage keeps where, without a topology and without playing a step.

Rajbhandari et al. 2020, ZeRO §3.1 and §5: with Adam in mixed precision a parameter costs 2 bytes of weight, 2 of
gradient and 12 of optimizer states (fp32 master, two moments); stages 1, 2, 3 divide the last, the last two, all of
them by the ranks. Offload moves the optimizer states to DRAM and adds what DeepSpeed keeps there beside them; stage 0
has no offload (DeepSpeed reads `offload_optimizer` on stages 1 to 3 only), so that its two lines are the same.

Counted are states, of a step of one micro-batch. What is not: gradients that stage 2 accumulates in DRAM over several
micro-steps (2 bytes more, of whole tensors), buffers of one parameter, pages that the allocator rounds up.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

WEIGHT, GRADIENT, OPTIMIZER = 2, 2, 12  # bytes a parameter
# fp32 master 4, fp32 gradient 4, moments 8; in 16 bits 2: on stages 1 and 2 the new parameters on their way to the GPU,
# on stage 3 the gradient partition (DeepSpeed runtime/zero/stage_1_and_2.py, stage3.py). Four logs of stage 3 have
# 18.17 with all else (bigscience-workshop/bigscience, experiments/gpt2-hf-ds).
HOST_BYTES = 18


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the bill, bytes."""

    stage: int
    offload: Literal["none", "cpu"]
    gpu_bytes_per_gpu: float
    dram_bytes_per_node: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


MIXED_PRECISION_ADAM = (WEIGHT, GRADIENT, OPTIMIZER)


def model_states(
    stage: int, parameters: float, gpus: int, bytes_each: tuple[int, int, int] = MIXED_PRECISION_ADAM
) -> float:
    """Bytes of weights, gradients and optimizer states on each GPU; `bytes_each` of these a parameter."""
    divisor = [gpus if stage >= least else 1 for least in (3, 2, 1)]
    return sum(size * parameters / by for size, by in zip(bytes_each, divisor, strict=True))


def ledger(parameters: float, gpus: int, gpus_per_node: int | None = None) -> list[Entry]:
    """Stages 0 to 3 without offload, then with the optimizer in DRAM. ValueError for counts below 1."""
    if parameters < 1 or gpus < 1:
        raise ValueError("parameters and gpus are at least 1")
    local = min(gpus, gpus_per_node or 8)
    entries = [Entry(stage, "none", model_states(stage, parameters, gpus), 0.0) for stage in range(4)]
    ignored = Entry(0, "cpu", model_states(0, parameters, gpus), 0.0)
    return [*entries, ignored, *(_offloaded(stage, parameters, gpus, local) for stage in (1, 2, 3))]


def _offloaded(stage: int, parameters: float, gpus: int, local: int) -> Entry:
    """Stage 1 keeps whole gradients on the GPU until they are reduced; stages 2 and 3 send them to DRAM at once."""
    weights = WEIGHT * parameters / (gpus if stage == 3 else 1)
    gradients = GRADIENT * parameters if stage == 1 else 0.0
    return Entry(stage, "cpu", weights + gradients, HOST_BYTES * parameters * local / gpus)
