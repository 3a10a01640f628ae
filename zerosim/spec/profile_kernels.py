"""What a GPU event is, by its name: which work, which collective, which way a copy goes.

Rules
- A kernel that TorchInductor made is what its heuristic says (`triton_poi_fused_...`), whatever operators it fused: its
  name lists them all. Only of a template, which is a matmul, a convolution or attention, do they tell which.
- Of any other a name decides alone: its own part first, then its types (`device_kernel<flash::FlashAttnFwdSm90<...>>`),
  by the first row of the table that fits. Words stand for whole words, so that a name that merely contains one is
  none; a kernel that no row knows is `unknown`, and who uses it must say so.
- Names are those of NVIDIA's and AMD's libraries as profilers write them; each row says whose they are. Inductor,
  ATen's headers and DeepSpeed's kernels were read in PyTorch 2.13.0 and DeepSpeed 0.19.8; the others stand in traces.

Communication, copies and everything else are told apart as in HolisticTraceAnalysis (hta/utils/utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

KernelKind = Literal["matmul", "attention", "optimizer", "reduction", "elementwise", "unknown"]
COMMUNICATION = re.compile(
    r"^(void )?(nccl|rccl|hccl|msccl|nvshmem)|nccl(Dev)?Kernel"  # NCCL before and since 2.19, RCCL, MSCCL(++), NVSHMEM
    r"|(one|two)_shot_all_reduce|multimem_all_(reduce|gather)|cross_device_reduce"  # torch symmetric memory, vLLM
)
# torch/_inductor/codegen/triton.py, TritonScheduling.define_kernel: "triton", the first three letters of the heuristic
# (torch/_inductor/wrapper_benchmark.py: foreach, persistent_reduction, pointwise, reduction, split_scan, template, else
# unknown), the fused operators, a number; before it the name of an ahead-of-time compiled model. A foreach kernel is an
# optimizer's or any other list of tensors.
INDUCTOR = re.compile(r"(?:^|_)triton_(for|per|poi|red|spl|tem|unk)_(\w*)$")
_HEURISTICS: Mapping[str, KernelKind] = {
    "poi": "elementwise", "red": "reduction", "per": "reduction", "spl": "reduction",
}  # fmt: skip
_TEMPLATES: tuple[tuple[KernelKind, str], ...] = (  # torch/_inductor/kernel: flex/*.py; mm*.py, bmm.py, conv.py
    ("attention", r"flex_(attention|decoding)"),
    ("matmul", r"(?:^|_)(addmm|baddbmm|bmm|mm)(_|$)|convolution|conv[123]d"),
)


def _words(*words: str) -> str:
    """Any of them as a whole word of a name in snake_case or in CamelCase."""
    forms = (rf"(?<![A-Za-z]){word}|(?<![A-Z]){word[0].upper()}{word[1:]}" for word in words)
    return rf"(?:{'|'.join(forms)})(?![a-z])"


_SIMULATED = r"(fwd|bwd|opt) "  # the names that zerosim's own traces have
_ROWS: tuple[tuple[KernelKind, str], ...] = (
    ("matmul", rf"^gemm {_SIMULATED}"),
    ("attention", rf"^flash_attention {_SIMULATED}"),
    ("optimizer", rf"^multi_tensor_adam {_SIMULATED}"),
    ("reduction", rf"^reduction {_SIMULATED}"),
    ("elementwise", rf"^elementwise {_SIMULATED}"),
    # FlashAttention (csrc/flash_attn/src: flash_fwd_kernel.h; hopper/: FlashAttnFwdSm90), xFormers and PyTorch
    # (aten/src/ATen/native/transformers/cuda/mem_eff_attention: fmha_cutlassF), composable kernel (FmhaFwdKernel)
    ("attention", r"(?i:flash_?(fwd|bwd|attn|attention)|fmha)|AttentionKernel|AttentionBackwardKernel"),
    # cuDNN's fused attention (cudnn_generated_fort_native_sdpa), AOTriton (attn_fwd, bwd_kernel_dk_dv)
    ("attention", r"attn_(fwd|bwd)|bwd_kernel_d[kq]|flex_attention|sdpa|scaled_dot_product"),
    # torch.optim with foreach or fused (aten/src/ATen/native/cuda/MultiTensorApply.cuh, fused_adam_utils.cuh), Apex
    ("optimizer", r"multi_tensor_apply|Fused\w*MathFunctor|(Adam|Lamb|LAMB|Lion|SGD)\w*Functor"),
    # DeepSpeed (csrc/adam, csrc/lamb/fused_lamb_cuda_kernel.cu), bitsandbytes (csrc/kernels.cu)
    ("optimizer", r"(?i:(?<![a-z])(fused_?(adamw?|lamb|sgd)|multi_tensor_adam)(?![a-z]))|lamb_cuda_kernel|kOptimizer"),
    # cuBLAS and cuBLASLt (ampere_..gemm.., sm80_xmma_gemm, nvjet since 12.8, gemv, splitKreduce), CUTLASS but for its
    # types (cutlass::bfloat16_t), rocBLAS and hipBLASLt (Tensile's Cijk_), DeepGEMM, cutlass in Inductor
    ("matmul", r"gemm|gemv|xmma|cutlass(?!::\w+_t\b)|nvjet|splitK|Cijk_|cublasLt|" + _words("matmul")),
    # convolutions of cuDNN (sm80_xmma_fprop), MIOpen (miopenSp3AsmConv), ATen (DepthwiseConv2d.cu)
    ("matmul", _words("convolution", "convolve", "conv") + r"|[fd]prop|[dw]grad|[Ww]inograd"),
    # aten/src/ATen/native/cuda: Reduce.cuh, SoftMax.cu, PersistentSoftmax.cuh, layer_norm_kernel.cu, Normalization.cuh,
    # Loss.cu; Apex (cuApplyLayerNorm), Liger (_rms_norm_forward_kernel), flash-attn (ln_fwd_kernel), cuDNN's batch norm
    # (bn_fw), cuBLAS level 1 (dot_kernel)
    ("reduction", r"(?i:reduce|softmax|(layer|batch|group|rms|instance|weight)_?norm)|LpNorm|" + _words("dot", "norm")),
    ("reduction", r"(?<![a-z])ln_(fwd|bwd)|Welford|RowwiseMoments|GammaBeta|bn_[fb]w|nll_loss|cross_entropy"),
    # ScanUtils.cuh, Sort.cu, TensorTopK.cu, CUB
    ("reduction", r"(?i:radix_?sort|merge_?sort|topk)|bitonicSort|" + _words("scan", "cumsum", "argmax", "argmin")),
    # aten/src/ATen/native/cuda: CUDALoops.cuh, Shape.cu, Indexing.cu, Embedding*.cu, Dropout.cu
    ("elementwise", r"elementwise|CatArray|index(Select|Func)(Large|Small)Index|indexing_backward|EmbeddingBag"),
    ("elementwise", r"krn_partials?_|compute_(grad_weight|num_of_partial|cuda_kernel)|vectorized_gather"),
    ("elementwise", _words("embedding", "dropout", "gather", "scatter", "fill", "copy", "distribution", "arange")),
    # DilatedMaxPool2d.cu, AveragePool2d.cu, ReflectionPad.cu, ReplicationPadding.cu, UpSample*.cu, TriangularOps.cu,
    # im2col.cuh; cuDNN's changes of layout (nchwToNhwcKernel); CUB
    ("elementwise", r"(max|avg|average)_?pool|(reflection|replication)_pad|upsample|tri[ul]_|im2col|col2im"),
    (
        "elementwise",
        r"(?i:nchw_?to_?nhwc|nhwc_?to_?nchw)|DeviceSelect|" + _words("transpose", "permute", "cast", "quantize"),
    ),
    # Liger, vLLM, Transformer Engine, flash-attn's rotary
    ("elementwise", _words("gelu", "geglu", "silu", "swiglu", "rotary", "rope")),
)
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
    if made := INDUCTOR.search(name):
        return _of_inductor(*made.groups())
    names = (brief(name), name)
    return next((kind for each in names for kind, pattern in _TABLE if pattern.search(each)), "unknown")


def _of_inductor(heuristic: str, fused: str) -> KernelKind:
    """What a kernel of Inductor computes: by its heuristic, and of a template by the operators."""
    if heuristic == "tem":
        return next((kind for kind, pattern in _TEMPLATES if re.search(pattern, fused)), "unknown")
    return _HEURISTICS.get(heuristic, "unknown")


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
