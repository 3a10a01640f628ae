"""HolisticTraceAnalysis reads our traces and counts what our own views count.

Runs where HTA is installed (its requirements are in .ci/hta-requirements.txt, in an environment of their own because it
brings pandas and plotly); skipped elsewhere. HTA counts from the first GPU event of a rank to the last; the views count
the whole step: so what lies before and after, and what only the CPU or a drive does, is idle in its words.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.timelines import MATMUL, NIC, PCIE, SM, host_optimizer, many, played, skewed, tiny
from zerosim.report import trace
from zerosim.report.bands import seen_by
from zerosim.resources import Demand, Use
from zerosim.scenario import load
from zerosim.simulation import simulate
from zerosim.step import Attention, Collective, Group, HostCompute, Op, Pass, Step, Transfer
from zerosim.timeline import Timeline
from zerosim.views.breakdown import breakdown, communication

analysis = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis is not installed")

CLOSE = 0.01
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

    return replace(timeline, steps=(replace(timeline.step, ops=tuple(map(kept, timeline.step.ops))),))


@pytest.mark.parametrize(("timeline", "scale"), [(tiny(), 1), (skewed(), 1), (many(200), 1), (offloaded(), 100)])
def test_hta_counts_what_the_views_count(timeline: Timeline, scale: int, tmp_path: Path) -> None:
    seen = read(tmp_path, timeline, scale)
    assert sorted(seen) == sorted(rank_class.ranks[0] for rank_class in timeline.classes)
    for rank_class in timeline.classes:
        view = of_the_gpu(seen_by(timeline, rank_class))
        theirs, ours = seen[rank_class.ranks[0]], breakdown(view)
        around = timeline.makespan - theirs.kernels  # before the first GPU event and after the last
        assert theirs.compute == pytest.approx(ours.compute, rel=CLOSE)
        assert theirs.exposed == pytest.approx(ours.exposed_communication + ours.exposed_transfer, rel=CLOSE)
        assert theirs.idle + around == pytest.approx(ours.idle + ours.host_compute, rel=CLOSE)
        assert theirs.overlap == pytest.approx(communication(view).overlap, abs=CLOSE)


@pytest.mark.parametrize(
    "scenario", ["seven-b/zero1", "seven-b/zero3", "seven-b/zero3-two-nodes-10g", "gpt2-large-ddp-4090"]
)
def test_hta_counts_what_the_summary_of_a_scenario_says(scenario: str, tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "scenarios" / f"{scenario}.yaml"
    timeline = simulate(load(path, ["training.gradient_accumulation_steps=1"]))
    summary, seen = timeline.summary(), read(tmp_path, timeline, 1)[0]
    exposed = summary.breakdown.exposed_communication
    assert seen.compute == pytest.approx(summary.breakdown.compute, rel=CLOSE)
    assert seen.exposed == pytest.approx(exposed, rel=CLOSE, abs=CLOSE * summary.step_seconds)
    assert seen.overlap == pytest.approx(summary.communication.overlap, abs=CLOSE)


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
