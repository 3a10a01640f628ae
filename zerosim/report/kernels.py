"""What an op is called in a profiler trace: the names, categories and arguments that PyTorch's Kineto writes.

Names decide how HolisticTraceAnalysis classifies a kernel: `ncclDevKernel_...` is communication, `Memcpy ...` a copy,
anything else on a GPU stream compute. So work of the CPU and of drives is no kernel at all (category `cpu_op`, no
stream). Launches carry the callback ids of CUDA's runtime API (cupti_runtime_cbid.h: cudaMemcpyAsync 41,
cudaLaunchKernel 211, cudaStreamSynchronize 131).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim.step import Attention, Collective, Group, HostCompute, Matmul, Op, Pass, Step, Transfer

PHASE_SHORT = {"forward": "fwd", "backward": "bwd", "optimizer": "opt"}
LAUNCH, COPY, SYNCHRONIZE = ("cudaLaunchKernel", 211), ("cudaMemcpyAsync", 41), ("cudaStreamSynchronize", 131)

# what PyTorch's ProcessGroupNCCL.cpp hands to RECORD_PARAM_COMMS, and the names of c10::ScalarType
COLLECTIVE_NAMES: Mapping[str, str] = {
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_reduce": "allreduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_to_all": "all_to_allv",
    "send_recv": "send",
    "exchange": "coalesced",
}
TORCH_DTYPES: Mapping[str, str] = {
    "fp64": "Double", "fp32": "Float", "fp16": "Half", "bf16": "BFloat16",
    "int64": "Long", "int32": "Int", "int8": "Char", "uint8": "Byte",
}  # fmt: skip
# NCCL 2.19 and later, src/device/generate.py: function, reduction, type, algorithm, protocol
NCCL_FUNCTIONS: Mapping[str, str] = {
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter_Sum",
    "all_reduce": "AllReduce_Sum",
    "broadcast": "Broadcast",
    "reduce": "Reduce_Sum",
    "all_to_all": "SendRecv",
    "send_recv": "SendRecv",
    "exchange": "SendRecv",
}
NCCL_TYPES: Mapping[str, str] = {
    "fp64": "f64", "fp32": "f32", "fp16": "f16", "bf16": "bf16",
    "int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8",
}  # fmt: skip
MEMORY_NAMES: Mapping[str, tuple[str, str]] = {"gpu": ("D", "Device"), "dram": ("H", "Pinned")}


class Kernel(NamedTuple):
    """An op in Kineto's words. `launch` is the runtime call that starts it, None where the GPU has no part in it."""

    name: str
    category: str
    launch: tuple[str, int] | None
    arguments: Mapping[str, Any]


def kernel(op: Op, step: Step, rank: int, algorithm: str = "") -> Kernel | None:
    """How `rank` sees the op; None for a marker, which does nothing."""
    match op.work:
        case Collective():
            group = step.groups.get(op.work.group, Group(op.work.group, 1))
            arguments = _collective_arguments(op.work, group, rank)
            return Kernel(_nccl_name(op.work, algorithm), "kernel", LAUNCH, arguments)
        case Transfer():
            return _copy(op, op.work)
        case HostCompute():
            return Kernel(_described(op, f"cpu_{op.work.kind}"), "cpu_op", None, {"elements": op.work.elements})
        case None:
            return None
    return Kernel(_described(op, _compute_word(op.work)), "kernel", LAUNCH, {})


def _compute_word(work: Matmul | Attention | Pass) -> str:
    if isinstance(work, Matmul):
        return "gemm"
    if isinstance(work, Attention):
        return "flash_attention"
    return {"stream": "elementwise", "reduction": "reduction", "adam": "multi_tensor_adam"}[work.flavour]


def _described(op: Op, word: str) -> str:
    return f"{word} {PHASE_SHORT[op.phase]} {op.name}"


def _nccl_name(work: Collective, algorithm: str) -> str:
    function = NCCL_FUNCTIONS[work.kind]
    if function == "SendRecv":
        return "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    reduced = f"_{NCCL_TYPES[work.dtype]}" if function.endswith("_Sum") else ""
    shape = next((known for known in ("TREE", "NVLS", "COLLNET") if known in algorithm.upper()), "RING")
    return f"ncclDevKernel_{function}{reduced}_{shape}_LL(ncclDevKernelArgsStorage<4096ul>)"


def _collective_arguments(work: Collective, group: Group, rank: int) -> dict[str, Any]:
    """Elements that one rank puts in and takes out: the shard on the scattered side, the whole buffer on the other."""
    shard = work.elements // max(group.size, 1)
    return {
        "Collective name": COLLECTIVE_NAMES[work.kind],
        "In msg nelems": shard if work.kind == "all_gather" else work.elements,
        "Out msg nelems": shard if work.kind == "reduce_scatter" else work.elements,
        "dtype": TORCH_DTYPES[work.dtype],
        "Group size": group.size,
        "Process Group Name": group.name,
        "Process Group Description": group.name,
        "Process Group Ranks": _ranks(group, rank),
    }


def _ranks(group: Group, rank: int, shown: int = 30) -> str:
    """The group that `rank` belongs to, as text; Kineto too cuts long lists after 30 ranks."""
    ranks = [str(member) for member in group.members(rank)[:shown]]
    return "[" + ", ".join(ranks + ["..."] * (group.size > shown)) + "]"


def _copy(op: Op, work: Transfer) -> Kernel:
    if "nvme" in (work.source, work.target) or "gpu" not in (work.source, work.target):  # cuFile launches no kernel
        return Kernel(
            _described(op, f"copy {work.source} to {work.target}"), "cpu_op", None, {"bytes": int(work.bytes)}
        )
    (source, source_name), (target, target_name) = (_memory(tier, work.pinned) for tier in (work.source, work.target))
    name = f"Memcpy {source}to{target} ({source_name} -> {target_name})"
    return Kernel(name, "gpu_memcpy", COPY, {"bytes": int(work.bytes)})


def _memory(tier: str, pinned: bool) -> tuple[str, str]:
    letter, name = MEMORY_NAMES[tier]
    return letter, "Pageable" if tier == "dram" and not pinned else name
