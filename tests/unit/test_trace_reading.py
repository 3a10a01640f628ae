"""A profiler's trace as a timeline: by hand, on the trace of tests/profiled.py."""

from pathlib import Path
from typing import Any

import pytest

from tests.profiled import (
    AUTOGRAD,
    GEMM,
    MAIN,
    REDUCE,
    STEP,
    complete,
    kernel,
    launch,
    memory,
    three_steps,
)  # fmt: skip
from tests.traced import read, summary, us
from zerosim.report.svg import render
from zerosim.step import Collective, Transfer

# --- one step ---------------------------------------------------------------------------------------------------------


def test_a_step_is_counted_as_a_played_one_is(tmp_path: Path) -> None:
    """540 us of kernels; 200 of communication, half of it hidden; a copy of 50 that nothing hides."""
    known = summary(tmp_path, three_steps())
    parts = known.breakdown
    assert us(known.step_seconds) == STEP
    assert [us(getattr(parts, part)) for part in parts.__slots__] == [540, 100, 50, 0, 310]
    assert us(known.communication.total_seconds) == 200
    assert known.communication.overlap == pytest.approx(0.5)
    assert known.step == "step 5"  # of 4, 5 and 6 the last may be cut off, and 4 is the colder
    assert {name: (each.count, us(each.seconds)) for name, each in known.kernels.items()} == {
        "matmul": (2, 400), "reduction": (1, 50), "optimizer": (1, 50), "attention": (1, 40),
    }  # fmt: skip
    (reduce,) = known.collectives.values()
    assert (reduce.count, reduce.bytes, us(reduce.seconds)) == (1, 2_000_000, 200)
    assert known.copies["dram_to_gpu"].bytes == 5000


def test_the_gpu_waits_for_the_host_or_for_a_launch_to_begin(tmp_path: Path) -> None:
    """Nothing is in flight: until the launch is done the host is behind, then the kernel is on its way."""
    stalls = {(stall.cause, stall.phase): us(stall.seconds) for stall in summary(tmp_path, three_steps()).stalls}
    assert stalls == {
        ("host", "forward"): 25, ("launch", "forward"): 25 + 10, ("transfer", "forward"): 50,
        ("all_reduce", "backward"): 100, ("host", "optimizer"): 145 + 100, ("launch", "optimizer"): 5,
    }  # fmt: skip


def test_phases_are_told_by_autograd_and_the_optimizer(tmp_path: Path) -> None:
    known = summary(tmp_path, three_steps())
    assert known.phases is not None
    assert {name: us(seconds) for name, seconds in known.phases.items()} == {
        "forward": 400, "backward": 300, "optimizer": 300,
    }  # fmt: skip
    assert known.findings == ()


@pytest.mark.parametrize("missing", ["autograd::engine", "Optimizer.step"])
def test_phases_are_not_made_up(tmp_path: Path, missing: str) -> None:
    known = summary(tmp_path, [event for event in three_steps() if not event["name"].startswith(missing)])
    assert known.phases is None
    assert {stall["phase"] for stall in known.as_json()["stalls"]} == {None}
    assert [finding.code for finding in known.findings] == ["phases-unknown"]


def test_each_backward_ends_a_micro_batch(tmp_path: Path) -> None:
    events = [complete("ProfilerStep#1", "user_annotation", MAIN, 0, 100)]
    for place, thread in enumerate((MAIN, AUTOGRAD, MAIN, AUTOGRAD, MAIN)):
        start = 10 * place
        events += [launch(start, place, thread), kernel(GEMM, start + 6, start + 10, place)]
        if thread is AUTOGRAD:
            events.append(complete("autograd::engine::evaluate_function: M", "cpu_op", thread, start, start + 9))
    events.append(complete("Optimizer.step#SGD.step", "cpu_op", MAIN, 39, 60))
    ops = [op for op in read(tmp_path, events).step.ops if op.work]
    assert [(op.phase, op.micro_batch) for op in ops] == [
        ("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("optimizer", 1),
    ]  # fmt: skip


def test_an_annotated_backward_is_that_of_all_threads(tmp_path: Path) -> None:
    """Only the program says it, on the main thread; autograd's own thread launches while that one waits."""
    events = [
        complete("ProfilerStep#1", "user_annotation", MAIN, 0, 100),
        complete("## backward ##", "user_annotation", MAIN, 20, 50),
        complete("Optimizer.step#SGD.step", "cpu_op", MAIN, 60, 80),
        launch(0, 1), kernel(GEMM, 6, 10, 1),
        launch(22, 2), kernel(GEMM, 28, 30, 2),
        launch(30, 3, AUTOGRAD), kernel(GEMM, 36, 40, 3),
        launch(52, 4), kernel(GEMM, 58, 60, 4),  # gradients are clipped
        launch(62, 5), kernel(GEMM, 68, 70, 5),
    ]  # fmt: skip
    ops = [op for op in read(tmp_path, events).step.ops if op.work]
    assert [op.phase for op in ops] == ["forward", "backward", "backward", "optimizer", "optimizer"]


# --- what is in a trace -----------------------------------------------------------------------------------------------


def test_kernels_that_nobody_knows_count_as_compute_and_are_told(tmp_path: Path) -> None:
    known = summary(tmp_path, [kernel(GEMM, 0, 90, 1), kernel("void secret_sauce<float>(int)", 90, 100, 2)])
    assert us(known.breakdown.compute) == 100
    finding = next(finding for finding in known.findings if finding.code == "kernels-unknown")
    assert (finding.severity, "10.0 % of the compute: secret_sauce" in finding.message) == ("warning", True)


def test_a_collective_says_its_bytes_and_its_group(tmp_path: Path) -> None:
    said: dict[str, Any] = {"Collective name": "_allgather_base", "In msg nelems": 4, "Out msg nelems": 32}
    said |= {"dtype": "Float", "Group size": 8, "Process Group Description": "fsdp"}
    generic = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    measured = read(tmp_path, [kernel(generic, 0, 10, 1, stream=20, **said), kernel("ncclKernel_x", 10, 20, 2)])
    works = [op.work for op in measured.step.ops if isinstance(op.work, Collective)]
    assert (works[0].kind, works[0].bytes, measured.step.groups[works[0].group].size) == ("all_gather", 128, 8)
    assert "collectives-unknown" in {finding.code for finding in measured.summary().findings}


def test_memory_is_what_the_allocator_counted_in_the_step(tmp_path: Path) -> None:
    levels = [memory(-500, 9e9, 9e9), memory(-1, 3e9, 6e9), memory(500, 5e9, 6e9), memory(501, 7e9, 0, device_type=0)]
    known = summary(tmp_path, [*three_steps(), *levels], 4).memory
    assert (known.capacity_bytes, known.allocated_bytes, known.reserved_bytes) == (85e9, 5e9, 6e9)
    assert summary(tmp_path, three_steps()).memory.allocated_bytes is None
    held = read(tmp_path, [*three_steps(), *levels], 4).facts.levels
    assert [size for _, size in held] == [3e9, 5e9]
    assert held[0][0] == 0.0 < held[1][0]


def test_a_cpu_optimizer_is_work_of_the_host(tmp_path: Path) -> None:
    name = "Optimizer.step#DeepSpeedCPUAdam.step"
    known = summary(tmp_path, [kernel(GEMM, 0, 100, 1), complete(name, "user_annotation", MAIN, 100, 400)])
    assert (us(known.breakdown.host_compute), us(known.step_seconds)) == (300, 400)


def test_the_host_waits_for_what_ended_while_it_waited(tmp_path: Path) -> None:
    """It waits from 12 to 61 for the kernel that ends at 60, and launches the next one at 70."""
    events = [
        complete("ProfilerStep#1", "user_annotation", MAIN, 0, 100),
        launch(0, 1), kernel(GEMM, 10, 60, 1), launch(6, 2), kernel(REDUCE, 15, 65, 2, stream=20),
        complete("cudaStreamSynchronize", "cuda_runtime", MAIN, 12, 61, correlation=3),
        launch(70, 4), kernel(GEMM, 80, 90, 4),
    ]  # fmt: skip
    measured = read(tmp_path, events)
    assert [op.host_waits for op in measured.step.ops if op.work] == [(), (), (0,)]
    waits = measured.summary().host_waits
    assert (waits.count, us(waits.seconds)) == (1, 49)


def test_the_host_waits_as_long_as_the_thread_that_waits_longest(tmp_path: Path) -> None:
    """The main thread from 10 to 60 (with a call within) and from 70 to 80, autograd's meanwhile from 0 to 40."""
    waits = [(MAIN, 10, 60), (MAIN, 20, 30), (MAIN, 70, 80), (AUTOGRAD, 0, 40), (AUTOGRAD, 150, 190)]
    events = [
        complete("ProfilerStep#1", "user_annotation", MAIN, 0, 100),
        *(complete("cudaDeviceSynchronize", "cuda_runtime", thread, *edges) for thread, *edges in waits),
        launch(0, 1), kernel(GEMM, 10, 60, 1),
    ]  # fmt: skip
    known = summary(tmp_path, events).host_waits
    assert (known.count, us(known.seconds)) == (3, 60)


def test_streams_have_the_names_of_the_trace_and_a_picture(tmp_path: Path) -> None:
    title = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 20, "args": {"name": "stream 20 <&>"}}
    measured = read(tmp_path, [*three_steps(), title])
    assert {op.stream for op in measured.step.ops if op.work} == {"compute", "<&>"}
    drawn = render(measured, title="<script>")
    assert "&lt;&amp;&gt;" in drawn
    assert "<script>" not in drawn


# --- AMD, Triton ------------------------------------------------------------------------------------------------------


def test_a_trace_of_an_amd_gpu(tmp_path: Path) -> None:
    """ROCm: calls are named hip*, copies CopyHostToDevice, RCCL's kernels as NCCL's."""
    said: dict[str, Any] = {"Collective name": "reduce_scatter_tensor_coalesced"}
    events = [
        launch(0, 1, name="hipMemcpyWithStream"), launch(6, 2, name="hipExtModuleLaunchKernel"),
        launch(12, 3, name="hipLaunchKernel"), launch(18, 4, name="hipLaunchKernel"),
        kernel("CopyHostToDevice", 10, 20, 1, category="gpu_memcpy", bytes=640),
        kernel("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0", 20, 60, 2),
        kernel("triton_poi_fused_add_cos_sin_0", 60, 70, 3),
        kernel("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", 50, 90, 4, stream=9,
               **said),
    ]  # fmt: skip
    measured = read(tmp_path, events, deviceProperties=[{"id": 0, "name": "AMD Instinct MI250X"}])
    known = measured.summary()
    assert set(known.kernels) == {"matmul", "elementwise"}
    assert (set(known.collectives), known.copies["dram_to_gpu"].bytes) == ({"reduce_scatter"}, 640)
    assert (known.product, known.memory.capacity_bytes) == ("AMD Instinct MI250X", None)
    assert us(known.communication.exposed_seconds) == 20


def test_memsets_and_copies_in_the_gpu_are_copies(tmp_path: Path) -> None:
    events = [
        kernel(GEMM, 0, 10, 1), kernel("Memset (Device)", 10, 20, 2, category="gpu_memset", bytes=8),
        kernel("Memcpy PtoP (Device -> Device)", 20, 40, 3, category="gpu_memcpy"),
    ]  # fmt: skip
    measured = read(tmp_path, events)
    works = [op.work for op in measured.step.ops if isinstance(op.work, Transfer)]
    assert [(work.source, work.target) for work in works] == [("gpu", "gpu")] * 2
    copies = measured.summary().copies["gpu_to_gpu"]
    assert (copies.count, copies.bytes, us(measured.summary().breakdown.exposed_transfer)) == (2, None, 30)
