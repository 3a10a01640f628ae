"""HolisticTraceAnalysis reads our traces and counts what our own views count.

So is it for every kind of scenario, and for measured traces that `trace read` reads.

Runs where HTA is installed (its requirements are in .ci/hta-requirements.txt, in an environment of their own because it
brings pandas and plotly); skipped elsewhere. HTA counts from the first GPU event of a rank to the last; the views count
the whole step: so what lies before and after, and what only the CPU or a drive does, is idle in its words.
"""

import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.profiled import profiled
from tests.timelines import MATMUL, NIC, PCIE, SM, host_optimizer, many, played, skewed, tiny
from zerosim.measured import Measured, read_trace
from zerosim.report import trace
from zerosim.report.bands import seen_by
from zerosim.resources import Demand, Use
from zerosim.scenario import load
from zerosim.simulation import simulate
from zerosim.step import Attention, Collective, Group, HostCompute, Op, Pass, Step, Transfer
from zerosim.timeline import Timeline
from zerosim.views.breakdown import breakdown, communication

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # read when HTA is imported: else it cuts kernels to whole microseconds
analysis = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis is not installed")

CLOSE = 0.01
SHORT = 2e-6  # seconds: a trace has whole microseconds
SCENARIOS = Path(__file__).parents[2] / "scenarios"
pytestmark = pytest.mark.filterwarnings("ignore")  # of pandas, about HTA's own calls


def offloaded() -> Timeline:
    """A millisecond step with everything in it: kernels of a microsecond and less (so it needs a finer clock), copies,
    drives, a CPU optimizer."""
    ops: list[Op] = []
    demands: list[Demand] = []

    def add(name: str, stream: str, work: Any, demand: Demand, *after: int) -> int:
        ops.append(Op(len(ops), name, stream, work, after=after, phase="backward"))
        demands.append(demand._replace(host=4.2e-6))
        return len(ops) - 1

    for layer in range(8):
        read = add(f"read {layer}", "nvme", Transfer(8.0, "nvme", "dram"), Demand(31.7e-6))
        up = add(f"fetch {layer}", "h2d", Transfer(8.0, "dram", "gpu"), Demand(23.3e-6, (Use(PCIE, 2e-4),)), read)
        gather = add(f"gather {layer}", "nccl.dp", Collective("all_gather", 8, "bf16", "dp"), Demand(17.9e-6), up)
        linear = add(f"linear {layer}", "compute", MATMUL, Demand(2.6e-6, (Use(SM, 4e-3),)), gather)
        core = add(f"core {layer}", "compute", Attention(1, 1, 2, 2, 2, True, True, "bf16"), Demand(11.1e-6), linear)
        norm = add(f"norm {layer}", "compute", Pass(1.0, "reduction"), Demand(0.7e-6), core)
        reduce = add(f"reduce {layer}", "nccl.dp", Collective("reduce_scatter", 8, "bf16", "dp"), Demand(9.4e-6), norm)
        down = add(f"stow {layer}", "d2h", Transfer(8.0, "gpu", "dram"), Demand(12.2e-6, (Use(NIC, 1e-5),)), reduce)
        add(f"adam {layer}", "host", HostCompute("optimizer", 8.0, 16.0), Demand(40.3e-6), down)
    return played(Step(tuple(ops), (), frozenset(), {"dp": Group("dp", 2)}, 1), demands)


class Seen(NamedTuple):
    """What HTA says of one rank, in seconds and a share."""

    compute: float
    exposed: float
    idle: float
    kernels: float
    overlap: float


def read(directory: Path, timeline: Timeline, scale: int) -> dict[int, Seen]:
    """Export, let HTA analyse, and collect its numbers by rank."""
    trace.write(timeline, f"{directory}/", scale)
    return analysed(directory, scale)


def analysed(directory: Path, scale: int = 1) -> dict[int, Seen]:
    """HTA's numbers by rank of the traces in a folder."""
    found = analysis.TraceAnalysis(trace_dir=str(directory))
    times = found.get_temporal_breakdown(visualize=False).set_index("rank")
    overlaps = found.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]

    def seconds(rank: int, name: str) -> float:
        return float(times.loc[rank, f"{name}_time(us)"]) / 1e6 / scale

    return {
        int(rank): Seen(
            compute=seconds(rank, "compute"),
            exposed=seconds(rank, "non_compute"),
            idle=seconds(rank, "idle"),
            kernels=seconds(rank, "kernel"),
            overlap=float(overlaps[rank]) / 100,
        )
        for rank in times.index
    }


def of_the_gpu(timeline: Timeline) -> Timeline:
    """The timeline without copies between DRAM and drives, which are no events of a GPU."""

    def kept(op: Op) -> Op:
        drives = isinstance(op.work, Transfer) and "gpu" not in (op.work.source, op.work.target)
        return op._replace(work=None) if drives else op

    return replace(timeline, steps=tuple(replace(step, ops=tuple(map(kept, step.ops))) for step in timeline.steps))


@pytest.mark.parametrize(("timeline", "scale"), [(tiny(), 1), (skewed(), 1), (many(200), 1), (offloaded(), 100)])
def test_hta_counts_what_the_views_count(timeline: Timeline, scale: int, tmp_path: Path) -> None:
    seen = read(tmp_path, timeline, scale)
    assert sorted(seen) == sorted(rank_class.ranks[0] for rank_class in timeline.classes)
    for rank_class in timeline.classes:
        agrees(seen[rank_class.ranks[0]], seen_by(timeline, rank_class))


def agrees(theirs: Seen, view: Timeline) -> None:
    """What HTA says of a rank is what the views say of it, to 1 %; of copies to drives, which are none of the GPU's,
    as of a time in which the GPU is idle."""
    gpu = of_the_gpu(view)
    ours, step = breakdown(gpu), view.makespan
    around = step - theirs.kernels  # before the first GPU event and after the last
    assert theirs.compute == pytest.approx(breakdown(view).compute, rel=CLOSE)
    exposed = ours.exposed_communication + ours.exposed_transfer
    assert theirs.exposed == pytest.approx(exposed, rel=CLOSE, abs=SHORT)
    assert theirs.idle + around == pytest.approx(step - ours.compute - exposed, rel=CLOSE, abs=SHORT)
    if not math.isnan(theirs.overlap):  # HTA's word for no communication
        assert theirs.overlap == pytest.approx(communication(view).overlap, rel=CLOSE, abs=CLOSE / 10)
    else:
        assert communication(view).total_seconds == 0


SMALL = "model={layers: 8, hidden: 2048, heads: 16, vocab: 32000}"
ONCE = "training.gradient_accumulation_steps=1"
KINDS = {
    "ZeRO-1": ("seven-b/zero1", ONCE),
    "ZeRO-2 with CPU offload": ("seven-b/zero2-offload", ONCE),
    "ZeRO-3": ("seven-b/zero3", ONCE),
    "ZeRO-3 over a slow network": ("seven-b/zero3-two-nodes-10g", ONCE),
    "ZeRO-3 with CPU offload": ("seven-b/zero3-offload", ONCE),
    "ZeRO-3 with all offloaded": ("seven-b/zero3-offload-param", ONCE),
    "ZeRO-3 on NVMe": (
        "seven-b/zero3-nvme",
        ONCE,
        "strategy.deepspeed.zero_optimization.offload_param.buffer_count=60",
    ),
    "ZeRO++": ("slow-network/zeropp", ONCE),
    "DDP": ("gpt2-large-ddp-4090",),
    "FSDP": ("llama-2-7b-fsdp", ONCE),
    "FSDP with CPU offload": ("llama-2-7b-fsdp-offload-4090", ONCE),
    "HSDP over nodes": ("llama-2-7b-hybrid-two-nodes-10g", ONCE),
    "layer-wise, naive": ("seven-b/pipeline-naive",),
    "pipeline, 1F1B": ("seven-b/pipeline-1f1b", "strategy.pipeline.stages=2"),
    "unequal ranks": ("seven-b/zero3-two-nodes-10g", ONCE, "topology.overrides=[{gpu: '0.5', compute: 0.6}]"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_hta_counts_what_the_summary_of_a_scenario_says(kind: str, tmp_path: Path) -> None:
    """Overlap and temporal breakdown of every kind of scenario, as `run` prints them, and as each class of ranks has
    them. HTA's step is that of the GPU: what lies around its events is in our idle time or that of the CPU."""
    name, *changes = KINDS[kind]
    timeline = simulate(load(SCENARIOS / f"{name}.yaml", [SMALL, *changes]))
    seen, summary = read(tmp_path, timeline, 1), timeline.summary()
    for rank_class in timeline.classes:
        agrees(seen[rank_class.ranks[0]], seen_by(timeline, rank_class))
    theirs, parts = seen[timeline.slowest.ranks[0]], summary.breakdown
    assert theirs.compute == pytest.approx(parts.compute, rel=CLOSE)
    assert theirs.overlap == pytest.approx(summary.communication.overlap, rel=CLOSE, abs=CLOSE / 10)
    if not any(isinstance(op.work, Transfer) and "nvme" in op.work[1:3] for op in timeline.step.ops):
        exposed = parts.exposed_communication + parts.exposed_transfer
        assert theirs.exposed == pytest.approx(exposed, rel=CLOSE, abs=SHORT)
        around = timeline.makespan - theirs.kernels
        assert theirs.idle + around == pytest.approx(parts.idle + parts.host_compute, rel=CLOSE, abs=SHORT)


# --- measured steps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ZeRO-3 with CPU offload", "unequal ranks"])
def test_hta_counts_what_we_read_back_from_a_trace(kind: str, tmp_path: Path) -> None:
    name, *changes = KINDS[kind]
    timeline = simulate(load(SCENARIOS / f"{name}.yaml", [SMALL, *changes]))
    seen, again = read(tmp_path, timeline, 1), read_trace(tmp_path)
    for rank_class in again.classes:
        agrees(seen[rank_class.ranks[0]], seen_by(again, rank_class))


def test_hta_counts_what_we_read_from_several_steps_of_a_profiler(tmp_path: Path) -> None:
    """Of three steps both leave out the last. Kernels of both makers, copies, a gap for which the host is behind."""
    profiled(tmp_path)
    agree_on(tmp_path, read_trace(tmp_path, step="all"))


@pytest.mark.skipif("ZEROSIM_SHARED" not in os.environ, reason="ZEROSIM_SHARED does not say where real traces are")
@pytest.mark.parametrize("names", [("minimal_rank0", "minimal_rank1"), ("excerpt_pytorch2_ddp_resnet_nccl",)])
def test_hta_counts_what_we_read_from_a_real_trace(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        shutil.copy(Path(os.environ["ZEROSIM_SHARED"]) / "corpus" / "traces" / f"{name}.json", tmp_path)
    agree_on(tmp_path, read_trace(tmp_path, step="all"))


def agree_on(directory: Path, measured: Measured) -> None:
    seen = analysed(directory)
    assert sorted(seen) == sorted(rank_class.ranks[0] for rank_class in measured.classes)
    for rank_class in measured.classes:
        agrees(seen[rank_class.ranks[0]], seen_by(measured, rank_class))


def test_a_cpu_optimizer_is_no_gpu_time(tmp_path: Path) -> None:
    trace.write(host_optimizer(), f"{tmp_path}/")
    times = analysis.TraceAnalysis(trace_dir=str(tmp_path)).get_temporal_breakdown(visualize=False)
    assert times["kernel_time(us)"].tolist() == [3_000_000]


def test_hta_sees_who_kept_a_stream_waiting(tmp_path: Path) -> None:
    """Stream 7 computes without a pause from 2 s to 20 s; adam is launched at 24 s, after the host has waited."""
    trace.write(tiny(), f"{tmp_path}/")
    idle, _ = analysis.TraceAnalysis(trace_dir=str(tmp_path)).get_idle_time_breakdown(ranks=[0], visualize=False)
    rows = idle[(idle["stream"] == 7) & (idle["idle_time"] > 0)]
    assert list(zip(rows["idle_category"], rows["idle_time"], strict=True)) == [("host_wait", 4_000_000)]


def test_hta_knows_our_kernels_and_the_step(tmp_path: Path) -> None:
    trace.write(tiny(), f"{tmp_path}/")
    found = analysis.TraceAnalysis(trace_dir=str(tmp_path))
    kinds, _ = found.get_gpu_kernel_breakdown(visualize=False)
    shares = dict(zip(kinds["kernel_type"], kinds["percentage"], strict=True))
    assert {"COMPUTATION", "COMMUNICATION", "MEMORY"} <= {
        word for kind in shares for word in kind.split(" overlapping ")
    }
    assert found.get_profiler_steps() == [0]
