"""A trace as torch.profiler writes it, made by hand: every number in it can be checked with a pencil.

Three steps of 1000 us on one GPU (stream 7 computes, stream 20 communicates), of which the last is cut off:

    us in a step     0   50  100        300  350 400     600  650 700     850  900  1000
    host           data  launches       .    backward ......  .   optimizer ....    .
    stream 7             HtoD gemm      flash reduce gemm     copy     adam
    stream 20                                     all-reduce ..........
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]

BEGIN = 4_458_676_416_788.0  # us: profilers count from the start of the machine
STEP = 1000.0
MAIN, AUTOGRAD = (1000, 1000), (1000, 1001)
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >(Params)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
BACK = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4> >(T)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MESSAGE = {
    "Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000, "dtype": "BFloat16",
    "Group size": 2, "Process Group Name": "0", "Process Group Description": "default_pg",
}  # fmt: skip
# name, category, stream, start and end in a step, thread and start of the launch, other arguments
KERNELS: tuple[tuple[str, str, int, float, float, tuple[int, int], float, Event], ...] = (
    ("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 7, 50, 100, MAIN, 20, {"bytes": 5000}),
    (GEMM, "kernel", 7, 100, 300, MAIN, 60, {}),
    (FLASH, "kernel", 7, 310, 350, MAIN, 70, {}),
    (NORM, "kernel", 7, 350, 400, MAIN, 80, {}),
    (BACK, "kernel", 7, 400, 600, AUTOGRAD, 350, {}),
    (REDUCE, "kernel", 20, 500, 700, AUTOGRAD, 360, MESSAGE),
    (ADAM, "kernel", 7, 850, 900, MAIN, 840, {}),
)


def complete(name: str, category: str, thread: tuple[Any, Any], start: float, end: float, **arguments: Any) -> Event:
    place = {"pid": thread[0], "tid": thread[1], "ts": BEGIN + start, "dur": end - start}
    return {"ph": "X", "cat": category, "name": name, **place, "args": arguments}


def kernel(
    name: str, start: float, end: float, correlation: int, category: str = "kernel", stream: int = 7, device: int = 0,
    **arguments: Any,
) -> Event:  # fmt: skip
    own = {"device": device, "stream": stream, "correlation": correlation, **arguments}
    return complete(name, category, (device, stream), start, end, **own)


def launch(start: float, correlation: int, thread: tuple[int, int] = MAIN, name: str = "cudaLaunchKernel") -> Event:
    return complete(name, "cuda_runtime", thread, start, start + 5, correlation=correlation)


def step_events(number: int, place: int) -> list[Event]:
    """Step `number`, the `place`-th of the trace."""
    begin = place * STEP
    events = [complete(f"ProfilerStep#{number}", "user_annotation", MAIN, begin, begin + STEP)]
    for index, (name, category, stream, start, end, thread, launched, arguments) in enumerate(KERNELS):
        correlation = 100 * (place + 1) + index
        call = "cudaMemcpyAsync" if category == "gpu_memcpy" else "cudaLaunchKernel"
        events.append(launch(begin + launched, correlation, thread, call))
        events.append(kernel(name, begin + start, begin + end, correlation, category, stream, **arguments))
    node = "autograd::engine::evaluate_function: MmBackward0"
    events.append(complete(node, "cpu_op", AUTOGRAD, begin + 340, begin + 380))
    events.append(complete("Optimizer.step#AdamW.step", "user_annotation", MAIN, begin + 830, begin + 860))
    events.append(complete("aten::mm", "cpu_op", MAIN, begin + 55, begin + 66))
    return events


def memory(time: float, allocated: float, reserved: float, device_type: int = 1) -> Event:
    said = {"Total Allocated": allocated, "Total Reserved": reserved, "Device Type": device_type, "Device Id": 0}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": BEGIN + time, "pid": 1000, "args": said}


def document(events: list[Event], rank: int | None = 0, world_size: int = 2) -> Event:
    """The whole file."""
    head: Event = {"schemaVersion": 1}
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
    head["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}]
    return head | {"displayTimeUnit": "ms", "baseTimeNanoseconds": 0, "traceEvents": events}


def three_steps() -> list[Event]:
    return [event for place in range(3) for event in step_events(4 + place, place)]


def write(path: Path, content: Any) -> Path:
    """As JSON, packed where the name says so."""
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def profiled(directory: Path, ranks: int = 2) -> list[Path]:
    """One file a rank."""
    return [
        write(directory / f"rank{rank}.pt.trace.json", document(three_steps(), rank, ranks)) for rank in range(ranks)
    ]
