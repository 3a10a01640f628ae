"""A step that is written as a trace and read back is the same step; and whatever stands in a file, an answer or a plain
refusal comes out."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.profiled import document, kernel, launch, write
from tests.properties.test_views import timelines
from zerosim.errors import InputError
from zerosim.measured import Measured, read_trace
from zerosim.report import trace
from zerosim.report.bands import seen_by
from zerosim.report.kernels import kernel as worded
from zerosim.report.placing import ticks
from zerosim.scenario import load
from zerosim.simulation import simulate
from zerosim.step import Collective
from zerosim.timeline import Timeline
from zerosim.views import breakdown, collectives, communication, phases, stalls

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SMALL = "model={layers: 8, hidden: 1024, heads: 8, vocab: 8000}"
FINE = 1000  # ticks in a microsecond


def there_and_back(timeline: Timeline, scale: int) -> Measured:
    with TemporaryDirectory() as folder:
        trace.write(timeline, f"{folder}/", scale)
        return read_trace(folder)


def same(timeline: Timeline, again: Measured, scale: int) -> None:
    """To rounding: an edge moves by half a tick; an op of no length may get one tick, where there is room."""
    for own, known in zip(timeline.classes, again.classes, strict=True):
        a, b = seen_by(timeline, own), seen_by(again, known)
        slack = 2e-6 / scale * (len(a.step.ops) + 1)
        assert known.ranks == own.ranks[:1]
        assert again.makespan == pytest.approx(timeline.makespan, abs=slack)
        theirs, ours = breakdown(b), breakdown(a)
        for part in ours.__slots__:
            assert getattr(theirs, part) == pytest.approx(getattr(ours, part), abs=slack), part
        assert communication(b).total_seconds == pytest.approx(communication(a).total_seconds, abs=slack)
        assert communication(b).exposed_seconds == pytest.approx(communication(a).exposed_seconds, abs=slack)
        assert collectives(b) == collectives(a)
    waits, computed = sum(each.seconds for each in stalls(again)), breakdown(again).compute
    assert waits == pytest.approx(again.makespan - computed)


@settings(max_examples=40, deadline=None)
@given(timelines())
def test_a_step_that_is_written_and_read_is_the_same(timeline: Timeline) -> None:
    for rank_class in timeline.classes:
        step, spans = timeline.program(rank_class), timeline.spans[rank_class.name]
        long = [op for op in step.ops if ticks(spans[op.number].end, FINE) > ticks(spans[op.number].start, FINE)]
        kernels = [worded(op, step, rank_class.ranks[0]) for op in long]
        assume(any(each is not None and each.launch for each in kernels))  # else it is no trace of a GPU
        assume(all(spans[op.number].end > spans[op.number].start for op in step.ops if isinstance(op.work, Collective)))
    same(timeline, there_and_back(timeline, FINE), FINE)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("seven-b/zero3-offload", ("training.gradient_accumulation_steps=2",)),
        ("seven-b/zero3-nvme", ("strategy.deepspeed.zero_optimization.offload_param.buffer_count=60",)),
        ("seven-b/pipeline-1f1b", ("strategy.pipeline.stages=4",)),
        ("seven-b/pipeline-naive", ()),
        ("seven-b/zero3-two-nodes-10g", ("topology.overrides=[{gpu: '0.5', compute: 0.6}]",)),
    ],
)
def test_a_scenario_that_is_written_and_read_is_the_same(name: str, changes: tuple[str, ...]) -> None:
    once = () if "accumulation" in str(changes) or "pipeline" in name else ("training.gradient_accumulation_steps=1",)
    timeline = simulate(load(SCENARIOS / f"{name}.yaml", [SMALL, *once, *changes]))
    again = there_and_back(timeline, 1)
    same(timeline, again, 1)
    assert phases(again) == pytest.approx(phases(timeline), abs=1e-4)
    summary, played = again.summary(), timeline.summary()
    assert summary.memory.allocated_bytes == pytest.approx(played.memory["gpu"].allocated_bytes)
    assert {kind: (each.count, each.bytes) for kind, each in summary.collectives.items()} == {
        kind: (each.count, each.bytes) for kind, each in played.collectives.items()
    }
    known = {(stall.cause, stall.phase): stall.seconds for stall in summary.stalls}
    largest = played.stalls[0]
    assert known[largest.cause, largest.phase] == pytest.approx(largest.seconds, rel=0.05, abs=1e-3)
    waited = [each.waited_seconds for each in summary.classes]
    assert waited == pytest.approx([each.waited_seconds for each in played.classes], abs=1e-3)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
strange = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "M", "i", "C", "B"]) | values,
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "cuda_runtime", "user_annotation", "cpu_op"]) | values,
        "name": st.sampled_from(["ProfilerStep#3", "[memory]", "thread_name", "nccl:x", "Optimizer.step#A.step"])
        | values,
        "ts": st.floats(0, 1e4) | values,
        "dur": st.floats(0, 1e4) | values,
        "pid": values,
        "tid": values,
        "args": st.fixed_dictionaries(
            {},
            optional={
                name: st.integers(0, 5) | values
                for name in ("stream", "device", "correlation", "External id", "op", "phase", "dtype", "bytes",
                             "Group size", "In msg nelems", "Total Allocated", "Device Type", "layer", "micro-batch")
            },
        )
        | values,
    },
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(strange | values, max_size=6), st.dictionaries(st.text(max_size=9), values, max_size=3))
def test_whatever_events_a_file_holds_the_sums_hold(events: list[Any], head: dict[str, Any]) -> None:
    own = [launch(1, 9), kernel("gemm_kernel", 10, 20, 9)]
    for each in own:
        each["ts"] -= 4_458_676_416_788.0
    with TemporaryDirectory() as folder:
        file = write(Path(folder) / "strange.json", json.dumps(document([*events, *own]) | head))
        try:
            summary = read_trace(file).summary()
        except InputError:
            return
        parts = summary.breakdown
        total = sum(getattr(parts, name) for name in parts.__slots__)
        assert total == pytest.approx(summary.step_seconds)
        assert sum(each.seconds for each in summary.stalls) == pytest.approx(total - parts.compute, abs=1e-9)
        json.dumps(summary.as_json(), allow_nan=False)
