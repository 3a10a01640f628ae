"""Traces obey the rules that their readers depend on, whatever the timeline; names and arguments are Kineto's."""

import gzip
import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.timelines import MB, host_optimizer, many, offloaded, played, skewed, tiny
from zerosim.errors import InputError
from zerosim.report import trace
from zerosim.report.kernels import kernel
from zerosim.report.kineto import events
from zerosim.report.placing import snap
from zerosim.resources import Demand
from zerosim.step import Attention, Collective, Group, HostCompute, Matmul, Op, Pass, Step, Transfer, Work
from zerosim.timeline import Timeline

Event = dict[str, Any]
GPU_CATEGORIES = {"kernel", "gpu_memcpy"}
COMMUNICATION = re.compile(r"^nccl.*Kernel")  # HolisticTraceAnalysis 0.5.0
MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")


def short(count: int, seconds: float = 3e-7) -> Timeline:
    """Kernels of less than a microsecond, one after the other, then a gap and one more."""
    ops = [Op(number, f"kernel {number}", "compute", Pass(1.0, "stream")) for number in range(count)]
    ops.append(Op(count, "late", "compute", Pass(1.0, "stream"), host_waits=(count - 1,)))
    step = Step(tuple(ops), (), frozenset(), {}, 1)
    return played(step, [Demand(seconds)] * count + [Demand(seconds, host=1e-5)])


TIMELINES = [tiny(), skewed(), host_optimizer(), offloaded(), many(60), short(50)]


def faults(found: list[Event]) -> list[str]:
    """What is wrong with a list of events, by the rules of the formats."""
    return [*_number_faults(found), *_stream_faults(found), *_launch_faults(found), *_overlap_faults(found)]


def _complete(found: list[Event]) -> list[Event]:
    return [event for event in found if event["ph"] == "X"]


def _number_faults(found: list[Event]) -> list[str]:
    wrong = [event for event in found if event["pid"] < 1 or type(event["ts"]) is not int or event["ts"] < 0]
    wrong += [event for event in _complete(found) if type(event["dur"]) is not int or event["dur"] < 0]
    wrong += [event for event in _complete(found) if event["cat"] in GPU_CATEGORIES and event["dur"] < 1]
    return [f"bad number in {event}" for event in wrong]


def _stream_faults(found: list[Event]) -> list[str]:
    return [
        f"stream in {event}"
        for event in _complete(found)
        if (type(event["args"].get("stream")) is int) != (event["cat"] in GPU_CATEGORIES)
    ]


def _launch_faults(found: list[Event]) -> list[str]:
    """Each kernel has exactly one launch, which ends before it starts."""
    launches: dict[int, list[Event]] = defaultdict(list)
    for event in _complete(found):
        if event["cat"] == "cuda_runtime" and "correlation" in event["args"]:
            launches[event["args"]["correlation"]].append(event)
    kernels = [event for event in _complete(found) if event["cat"] in GPU_CATEGORIES]
    faulty = [f"{len(launches)} launches, {len(kernels)} kernels"] if len(launches) != len(kernels) else []
    for event in kernels:
        calls = launches[event["args"]["correlation"]]
        if len(calls) != 1 or calls[0]["ts"] + calls[0]["dur"] > event["ts"]:
            faulty.append(f"launch of {event}: {calls}")
    return faulty


def _overlap_faults(found: list[Event]) -> list[str]:
    """Events of a row are apart or nested."""
    faulty = []
    rows: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in _complete(found):
        rows[event["pid"], event["tid"]].append(event)
    for row in rows.values():
        open_until: list[int] = []
        for event in sorted(row, key=lambda event: (event["ts"], -event["dur"])):
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            if open_until and event["ts"] + event["dur"] > open_until[-1]:
                faulty.append(f"{event} runs over its parent")
            open_until.append(event["ts"] + event["dur"])
    return faulty


@pytest.mark.parametrize("timeline", TIMELINES)
@pytest.mark.parametrize("scale", [1, 1000])
def test_every_class_of_every_timeline_obeys_the_rules(timeline: Timeline, scale: int) -> None:
    for rank_class in timeline.classes:
        assert faults(events(timeline, rank_class, scale)) == []


def test_the_rules_see_a_fault() -> None:
    found = events(tiny(), tiny().classes[0])
    kernel_event = next(event for event in found if event.get("cat") == "kernel")
    wrong = kernel_event | {"ts": kernel_event["ts"] + 1}
    assert _overlap_faults([*found, wrong])
    assert _stream_faults([kernel_event | {"args": {"stream": "7"}}])
    assert _launch_faults([kernel_event])
    assert _number_faults([kernel_event | {"ts": 0.5}])


def test_spans_of_the_trace_are_those_of_the_timeline() -> None:
    timeline = tiny()
    found = {
        e["args"]["op"]: (e["ts"], e["ts"] + e["dur"])
        for e in _complete(events(timeline, timeline.classes[0]))
        if "op" in e["args"]
    }
    spans = timeline.spans["all"]
    names = [op.name for op in timeline.step.ops]
    assert found == {name: (span.start * 1e6, span.end * 1e6) for name, span in zip(names, spans, strict=True)}


def test_one_step_and_the_host_inside_it() -> None:
    found = _complete(events(tiny(), tiny().classes[0]))
    steps = [event for event in found if event["name"].startswith("ProfilerStep#")]
    assert [(event["name"], event["ts"], event["dur"]) for event in steps] == [("ProfilerStep#0", 0, 27_000_000)]
    waits = [event for event in found if event["name"] == "cudaStreamSynchronize"]
    assert [(event["ts"], event["dur"]) for event in waits] == [(5_000_000, 18_000_000)]  # for reduce 0, until 23 s


def test_rows_have_names() -> None:
    names = [event["args"]["name"] for event in events(tiny(), tiny().classes[0]) if event["name"].endswith("_name")]
    assert names == [
        "rank 0 host",
        "rank 0 GPU",
        "host thread",
        "phases",
        "layers",
        "stream 7 compute",
        "stream 20 nccl.dp",
        "stream 21 d2h",
    ]


def test_phases_and_layers_are_annotations() -> None:
    found = [event for event in events(tiny(), tiny().classes[0]) if event.get("cat") == "gpu_user_annotation"]
    shown = [(event["name"], event["ts"] // 10**6, event["dur"] // 10**6) for event in found]
    assert sorted(shown) == [
        ("backward", 8, 15),
        ("forward", 0, 8),
        ("layer 0", 2, 3),
        ("layer 0", 14, 6),
        ("layer 1", 5, 9),
        ("optimizer", 23, 4),
    ]


def test_memory_counters_end_where_they_began_and_reach_the_peak() -> None:
    found = [event for event in events(tiny(), tiny().classes[0]) if event["ph"] == "C"]
    busy = [event["args"]["bytes"] for event in found if event["name"] == "GPU memory busy"]
    assert (busy[0], max(busy), busy[-1]) == (290 * MB, 550 * MB, 210 * MB)


def test_a_cpu_optimizer_is_no_kernel() -> None:
    found = [
        event
        for event in _complete(events(host_optimizer(), host_optimizer().classes[0]))
        if event["args"].get("op") == "cpu adam"
    ]
    assert [(event["cat"], event["pid"], "stream" in event["args"]) for event in found] == [("cpu_op", 1000, False)]


# --- edges -----------------------------------------------------------------------------------------------------------


def test_edges_are_rounded_not_durations() -> None:
    assert snap([(0.4e-6, 1.6e-6), (1.6e-6, 3.4e-6)]) == [(0, 2), (2, 3)]


def test_a_short_span_takes_a_tick_only_where_there_is_room() -> None:
    alone, crowded = (1.1e-6, 1.3e-6), (2.6e-6, 3.4e-6)
    assert snap([alone]) == [(1, 2)]
    assert snap([alone, (1.3e-6, 2.4e-6)]) == [None, (1, 2)]
    assert snap([alone, crowded]) == [(1, 2), (3, 4)]


def test_a_span_of_no_time_is_dropped() -> None:
    assert snap([(1e-6, 1e-6)]) == [None]


@given(st.lists(st.tuples(st.floats(0, 5e-6), st.floats(0, 5e-6)), max_size=60))
def test_snapped_spans_never_overlap_and_lose_at_most_their_rounding(steps: list[tuple[float, float]]) -> None:
    intervals, now = [], 0.0
    for gap, duration in steps:
        intervals.append((now + gap, now + gap + duration))
        now += gap + duration
    edges = [edge for edge in snap(intervals) if edge]
    assert all(end > start for start, end in edges)
    assert all(before[1] <= after[0] for before, after in pairwise(edges))
    exact = [(start * 1e6, end * 1e6) for start, end in intervals]
    for (start, end), edge in zip(exact, snap(intervals), strict=True):
        assert edge is None or (abs(edge[0] - start) <= 1.5 and abs(edge[1] - end) <= 1.5)


@given(st.integers(1, 300), st.floats(1e-7, 3e-6))
@settings(max_examples=30)
def test_back_to_back_kernels_keep_their_sum_to_a_tick_at_each_end(count: int, seconds: float) -> None:
    edges = snap([(number * seconds, (number + 1) * seconds) for number in range(count)])
    assert abs(sum(edge[1] - edge[0] for edge in edges if edge) - count * seconds * 1e6) <= 2


# --- names -----------------------------------------------------------------------------------------------------------

STORAGE = "(ncclDevKernelArgsStorage<4096ul>)"
NAMES: list[tuple[Work, str]] = [
    (Collective("all_gather", 8, "bf16", "dp"), "ncclDevKernel_AllGather_RING_LL" + STORAGE),
    (Collective("reduce_scatter", 8, "bf16", "dp"), "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL" + STORAGE),
    (Collective("all_reduce", 8, "fp32", "dp"), "ncclDevKernel_AllReduce_Sum_f32_RING_LL" + STORAGE),
    (Collective("send_recv", 8, "fp16", "dp"), "ncclDevKernel_SendRecv" + STORAGE),
    (Collective("exchange", 8, "fp16", "dp"), "ncclDevKernel_SendRecv" + STORAGE),
    (Transfer(8.0, "dram", "gpu"), "Memcpy HtoD (Pinned -> Device)"),
    (Transfer(8.0, "gpu", "dram", pinned=False), "Memcpy DtoH (Device -> Pageable)"),
    (Transfer(8.0, "gpu", "gpu"), "Memcpy DtoD (Device -> Device)"),
    (Matmul(((1, 2, 3, 4),), "bf16"), "gemm bwd layers.3.up_proj"),
    (Attention(1, 1, 2, 2, 3, True, True, "bf16"), "flash_attention bwd layers.3.up_proj"),
    (Pass(8.0, "adam"), "multi_tensor_adam bwd layers.3.up_proj"),
    (HostCompute("optimizer", 4.0, 8.0), "cpu_optimizer bwd layers.3.up_proj"),
    (Transfer(8.0, "nvme", "dram"), "copy nvme to dram bwd layers.3.up_proj"),
    (Transfer(8.0, "nvme", "gpu"), "copy nvme to gpu bwd layers.3.up_proj"),  # by cuFile, not by a CUDA stream
]  # fmt: skip


@pytest.mark.parametrize(("work", "name"), NAMES)
def test_names_put_each_kind_of_work_where_it_belongs(work: Work, name: str) -> None:
    op = Op(0, "layers.3.up_proj", "compute", work, phase="backward")
    named = kernel(op, Step((op,), (), frozenset(), {"dp": Group("dp", 2)}, 1), rank=0)
    assert named is not None
    assert named.name == name
    assert bool(COMMUNICATION.match(name)) == isinstance(work, Collective)
    assert bool(MEMORY.match(name)) == (named.category == "gpu_memcpy")
    assert (named.launch is None) == (named.category == "cpu_op")


def test_a_tree_is_called_a_tree() -> None:
    op = Op(0, "reduce", "nccl.dp", Collective("all_reduce", 8, "bf16", "dp"))
    named = kernel(op, Step((op,), (), frozenset(), {}, 1), 0, "double binary tree")
    assert named is not None
    assert "_TREE_" in named.name


def test_messages_count_what_one_rank_puts_in_and_takes_out() -> None:
    def arguments(kind: str, rank: int) -> Any:
        op = Op(0, kind, "nccl.dp", Collective(kind, 24, "bf16", "dp"))  # type: ignore[arg-type]  # a row of the test
        named = kernel(op, Step((op,), (), frozenset(), {"dp": Group("dp", 4, stride=2)}, 1), rank)
        assert named is not None
        return named.arguments

    gather, scatter = arguments("all_gather", 0), arguments("reduce_scatter", 11)
    assert (gather["In msg nelems"], gather["Out msg nelems"], gather["dtype"]) == (6, 24, "BFloat16")
    assert (scatter["In msg nelems"], scatter["Out msg nelems"]) == (24, 6)
    assert gather["Process Group Ranks"] == "[0, 2, 4, 6]"
    assert scatter["Process Group Ranks"] == "[9, 11, 13, 15]"


# --- files -----------------------------------------------------------------------------------------------------------


def test_the_rank_is_found_by_the_pattern_that_reads_it(tmp_path: Path) -> None:
    written = trace.write(skewed(), f"{tmp_path}/out/")
    assert [file.name for file in written] == ["rank0.pt.trace.json", "rank1.pt.trace.json"]
    for rank, file in enumerate(written):
        first = re.search(r'"rank":\s+(\d+)', file.read_text())
        assert first is not None
        assert int(first[1]) == rank
        head = json.loads(file.read_text())
        assert list(head)[:2] == ["schemaVersion", "distributedInfo"]
        assert head["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": 2}
        assert list(head)[-1] == "traceEvents"


def test_a_packed_file_holds_the_same_and_has_no_time_in_it(tmp_path: Path) -> None:
    plain, packed, again = (trace.write(tiny(), tmp_path / name)[0] for name in ("a.json", "a.json.gz", "b.json.gz"))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.read_bytes() == again.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "a.json.gz", "b.json.gz"]


def test_a_path_that_readers_would_skip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.json"):
        trace.write(tiny(), tmp_path / "trace.txt")


def test_drives_and_the_cpu_are_rows_of_the_host() -> None:
    found = events(offloaded(), offloaded().classes[0])
    rows = {event["args"]["name"]: event["pid"] for event in found if event["name"] == "thread_name"}
    host, gpu = rows["host thread"], rows["phases"]
    assert {name: pid == host for name, pid in rows.items() if "stream" not in name} == {
        "host thread": True,
        "nvme.read": True,
        "CPU host": True,
        "nvme.write": True,
        "phases": False,
        "layers": False,
    }
    copies = [event for event in _complete(found) if event["cat"] == "gpu_memcpy"]
    assert [(event["name"], event["pid"] == gpu) for event in copies] == [
        ("Memcpy DtoH (Device -> Pageable)", True),
        ("Memcpy DtoH (Device -> Pinned)", True),
        ("Memcpy HtoD (Pinned -> Device)", True),
    ]


def test_the_host_thread_says_what_it_waits_for() -> None:
    found = _complete(events(offloaded(), offloaded().classes[0]))
    rows = [(e["name"], e["ts"] / 1e6, e["dur"] / 1e6) for e in found if (e["pid"], e["tid"]) == (1000, 1)]
    assert [row for row in rows[1:] if row[2] > 1e-3] == [
        ("cudaStreamSynchronize", 0, 10),  # a pageable copy
        ("wait for read states", 10, 8),
        ("compute adam", 18, 3),
        ("wait for write states", 21, 2),
    ]


def test_memory_of_the_host_is_counted_in_its_process() -> None:
    """40 MB of parameters there from the start."""
    (found,) = [each for each in events(tiny(), tiny().classes[0]) if each["ph"] == "C" and each["pid"] == 1000]
    assert (found["name"], found["ts"], found["args"]) == ("dram of this rank", 0, {"bytes": 40e6})
