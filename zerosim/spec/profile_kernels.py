"""What a GPU event is, by its name: which work, which collective, which way a copy goes.

Rules: a name decides alone: its own part first, then its types (`device_kernel<flash::FlashAttnFwdSm90<...>>`), by the
first row of the table that fits; a kernel that no row knows is `unknown`, and who uses it must say so. Names are those
of NVIDIA's and AMD's libraries as profilers write them; each row says whose they are.
Communication, copies and everything else are told apart as in HolisticTraceAnalysis (hta/utils/utils.py).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

KernelKind = Literal["matmul", "attention", "optimizer", "reduction", "elementwise", "unknown"]
COMMUNICATION = re.compile(
    r"^(void )?(nccl|rccl|hccl)|nccl(Dev)?Kernel|mscclKernel"  # NCCL before and since 2.19, RCCL, MSCCL
    r"|(one|two)_shot_all_reduce|multimem_all_(reduce|gather)|cross_device_reduce"  # torch symmetric memory, vLLM
)
_SIMULATED = r"(fwd|bwd|opt) "  # the names that zerosim's own traces have
_ROWS: tuple[tuple[KernelKind, str], ...] = (
    ("matmul", rf"^gemm {_SIMULATED}"),
    ("attention", rf"^flash_attention {_SIMULATED}"),
    ("optimizer", rf"^multi_tensor_adam {_SIMULATED}"),
    ("reduction", rf"^reduction {_SIMULATED}"),
    ("elementwise", rf"^elementwise {_SIMULATED}"),
    # FlashAttention (csrc/flash_attn), xFormers and PyTorch's memory-efficient kernels (fmha_cutlassF), cuDNN's fused
    # attention, AOTriton (attn_fwd, bwd_kernel_dk_dv), composable kernel, FlexAttention
    ("attention", r"(?i:flash_?(fwd|bwd|attn|attention)|fmha)|AttentionKernel|AttentionBackwardKernel"),
    ("attention", r"attn_(fwd|bwd)|bwd_kernel_d[kq]|flex_attention|sdpa|scaled_dot_product"),
    # torch.optim with foreach or fused, Apex and DeepSpeed's FusedAdam and FusedLamb, bitsandbytes
    ("optimizer", r"multi_tensor_apply|FusedOptimizer|(?i:adam)|(?i:fused_?lamb)|kOptimizer|fused_sgd"),
    # cuBLAS and cuBLASLt (ampere_..gemm.., sm80_xmma_gemm, nvjet since 12.8, gemv, splitKreduce), CUTLASS, rocBLAS and
    # hipBLASLt (Tensile's Cijk_), convolutions of cuDNN and MIOpen, Inductor's templates (triton_tem_fused_mm)
    ("matmul", r"gemm|gemv|xmma|cutlass|nvjet|splitK|Cijk_|matmul|cublas|dot_kernel|triton_tem_\w*mm|deep_gemm"),
    ("matmul", r"conv(?!ert)|fprop|dgrad|wgrad|winograd|implicit|miopen|cudnn.*(engine|Eng)"),
    # ATen (aten/src/ATen/native/cuda), Apex, Liger, cuDNN's batch norm, CUB, Inductor's reductions (triton_red, per)
    ("reduction", r"reduce|softmax|[Nn]orm|Welford|GammaBeta|bn_[fb]w|nll_loss|cross_entropy|triton_(red|per)_"),
    ("reduction", r"DeviceScan|scan_|cumsum|argm(ax|in)|topk|RadixSort|radix|sort|Sort"),
    # ATen, CUB, Inductor's pointwise kernels (triton_poi)
    ("elementwise", r"elementwise|vectorized|unrolled|triton_poi_|CatArray|index|gather|scatter|[Ee]mbedding|dropout"),
    ("elementwise", r"fill|copy|Copy|masked|cast|transpose|permute|pad|arange|distribution|DeviceSelect|pool|upsample"),
    ("elementwise", r"[Gg]elu|[Ss]ilu|swiglu|rotary|rope|quantize|tri[ul]_|compute_|krn_partial|(im2|2im)|nchw|nhwc"),
)  # fmt: skip
_TABLE = tuple((kind, re.compile(pattern)) for kind, pattern in _ROWS)

CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv"]
_COLLECTIVES: tuple[tuple[str, CollectiveName], ...] = (  # letters only; the longer name first
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("sendrecv", "send_recv"),
    ("broadcast", "broadcast"),
    ("crossdevicereduce", "all_reduce"),
    ("reduce", "reduce"),
    ("coalesced", "send_recv"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
)
_WAYS: tuple[tuple[str, str, str], ...] = (  # CUPTI's short names, ROCm's long ones
    (r"HtoD|HostToDevice|H2D", "dram", "gpu"),
    (r"DtoH|DeviceToHost|D2H", "gpu", "dram"),
    (r"HtoH|HostToHost", "dram", "dram"),
)


class Way(NamedTuple):
    """From which memory a copy goes to which; `pinned`: the memory of the host is page-locked, as far as is said."""

    source: Literal["gpu", "dram"]
    target: Literal["gpu", "dram"]
    pinned: bool


@lru_cache(maxsize=1 << 16)
def kernel_kind(name: str) -> KernelKind:
    """What a kernel computes."""
    names = (brief(name), name)
    return next((kind for each in names for kind, pattern in _TABLE if pattern.search(each)), "unknown")


def is_communication(name: str) -> bool:
    """Whether a kernel is one of a communication library."""
    return COMMUNICATION.search(name) is not None


def collective_name(*said: str) -> CollectiveName | None:
    """Which collective: by the first of several texts (a kernel's name, an argument) that names one."""
    for text in said:
        letters = re.sub(r"[^a-z0-9]", "", text.casefold().partition("(")[0]).replace("all2all", "alltoall")
        found = next((kind for name, kind in _COLLECTIVES if name in letters), None)
        if found:
            return found
    return None


def way(name: str) -> Way:
    """Which way a copy goes; within the GPU's memory, or to that of another, where its name says no host."""
    for pattern, source, target in _WAYS:
        if re.search(pattern, name):
            return Way(source, target, "ageable" not in name)  # type: ignore[arg-type]  # rows of the table
    return Way("gpu", "gpu", True)


@lru_cache(maxsize=1 << 16)
def brief(name: str) -> str:
    """A kernel's name without types, arguments and namespaces: `vectorized_elementwise_kernel`."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    return head.rpartition("::")[2] or head or name
