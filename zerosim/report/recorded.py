"""One measured step on a terminal screen, in the words of a played one: where the time went and why, and what ran.

Rule: what the trace does not tell is not shown, but said once at the end. The screen is a function of Recorded alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.errors import Finding
from zerosim.report import waits
from zerosim.report.bars import Pen
from zerosim.report.tables import Column, clip, pad, table
from zerosim.report.times import where_time_goes
from zerosim.report.words import INDENT, bound, counted, heading, share, wrapped
from zerosim.units import show_rate, show_seconds, show_size
from zerosim.views.recorded import Kernels, Moved, RankSummary, Recorded

STALLS = 6
RANKS = 8  # shown one by one: the slowest
COLOURS = {"error": "red", "warning": "orange", "note": "cyan"}
COPIES = {
    "dram_to_gpu": "copies to the GPU", "gpu_to_dram": "copies from the GPU", "gpu_to_gpu": "copies within GPUs",
    "nvme_to_dram": "NVMe reads", "dram_to_nvme": "NVMe writes", "nvme_to_gpu": "NVMe reads to the GPU",
    "gpu_to_nvme": "NVMe writes from the GPU", "dram_to_dram": "copies within DRAM",
}  # fmt: skip
WORDS = {
    "matmul": "matrix products", "attention": "attention", "elementwise": "element-wise", "reduction": "reductions",
    "optimizer": "optimizer", "host_compute": "CPU compute",
}  # fmt: skip


def render(summary: Recorded, width: int = 100, colour: bool = False) -> str:
    """The screen, ending in a line end."""
    pen = Pen(colour)
    lines = [
        *_head(summary, width, pen),
        *where_time_goes(summary, width, pen),
        *waits.stalls(summary, width, pen, STALLS),
        *_ran(summary, width, pen),
        *_ranks(summary, width, pen),
        *_findings(summary.findings, width, pen),
        *_assumed(summary, width, pen),
    ]
    return "\n".join(lines) + "\n"


def _head(summary: Recorded, width: int, pen: Pen) -> Iterator[str]:
    read = read_of(summary)
    title = clip(summary.scenario, max(width - len(read) - 2, 10))
    yield pen(pad(title, width - len(read)), "bold") + read
    memory = summary.memory
    known = [
        f"step {show_seconds(summary.step_seconds)}",
        f"compute {share(summary.breakdown.compute, summary.step_seconds)}",
        f"allocated {show_size(memory.allocated_bytes)}" if memory.allocated_bytes else "",
        f"reserved {show_size(memory.reserved_bytes)}" if memory.reserved_bytes else "",
        summary.product,
        f"capacity {show_size(memory.capacity_bytes)}" if memory.capacity_bytes else "",
    ]
    yield from wrapped("   ".join(word.replace(" ", "\u00a0") for word in known if word), width, "")


def read_of(summary: Recorded) -> str:
    """Which step it is, and how many ranks of it were recorded."""
    of = f" of {summary.world_size}" if summary.world_size else ""
    return f"{origin(summary)}, {counted(len(summary.classes), 'rank')}{of}"


def origin(summary: Recorded) -> str:
    """Which step of a profiler's trace, or of one that zerosim wrote."""
    return f"{'measured' if summary.measured else 'simulated'}, {summary.step}"


def ran_rows(summary: Recorded) -> list[tuple[str, ...]]:
    """Kinds of kernels, collectives and copies: how often, how long, how much."""
    rows = [(WORDS[name], *_kernels(each, summary)) for name, each in summary.kernels.items()]
    rows += [(name.replace("_", "-"), *_moved(each, summary)) for name, each in summary.collectives.items()]
    rows += [(COPIES[name], *_moved(each, summary)) for name, each in summary.copies.items()]
    if summary.host_waits.count:
        rows.append(("host waits for the GPU", *_kernels(summary.host_waits, summary)))
    return rows


def _ran(summary: Recorded, width: int, pen: Pen) -> Iterator[str]:
    rows = ran_rows(summary)
    if rows:
        yield from heading("what ran, each summed", pen)
        columns = (Column(""), *(Column("", "right") for _ in range(5)))
        lines = table(columns, rows, INDENT).split("\n")[1:]
        yield from (clip(line, width) for line in lines)


def _kernels(each: Kernels, summary: Recorded) -> tuple[str, ...]:
    return f"{each.count} x", show_seconds(each.seconds), share(each.seconds, summary.step_seconds), "", ""


def _moved(each: Moved, summary: Recorded) -> tuple[str, ...]:
    """The rate is that of the whole buffer: algbw, as nccl-tests calls it."""
    rate = show_rate(each.bytes / each.seconds) if each.bytes and each.seconds else ""
    size = "" if each.bytes is None else show_size(each.bytes)
    return f"{each.count} x", show_seconds(each.seconds), share(each.seconds, summary.step_seconds), size, rate


def _ranks(summary: Recorded, width: int, pen: Pen) -> Iterator[str]:
    """Ranks side by side: the slowest, and how many more there are."""
    if len(summary.classes) < 2:
        return
    yield from heading("ranks, the slowest first", pen)
    slowest = sorted(summary.classes, key=lambda known: (-known.end_seconds, known.first_rank))
    columns = (
        Column(""), Column("step", "right"), Column("compute", "right"), Column("exposed", "right"),
        Column("waited", "right"),
    )  # fmt: skip
    rows = [rank_cells(known) for known in slowest[:RANKS]]
    yield from (clip(line, width) for line in table(columns, rows, INDENT).split("\n"))
    if len(slowest) > RANKS:
        yield f"{INDENT}and {counted(len(slowest) - RANKS, 'rank')} more, which --json shows"


def rank_cells(known: RankSummary) -> tuple[str, ...]:
    """A rank, its step, compute, exposed and waited time."""
    waited = "-" if known.waited_seconds is None else show_seconds(known.waited_seconds)
    seconds = (known.end_seconds, known.compute_seconds, known.exposed_seconds)
    return known.name, *map(show_seconds, seconds), waited


def _findings(findings: tuple[Finding, ...], width: int, pen: Pen) -> Iterator[str]:
    if findings:
        yield from heading("findings", pen)
    for finding in findings:
        label = f"{INDENT}{finding.severity:<8} "
        said = f"{finding.message} {finding.remedy}".rstrip()
        first, *others = wrapped(bound(said), width, " " * len(label))
        yield pen(label, COLOURS[finding.severity]) + first[len(label) :]
        yield from others


def _assumed(summary: Recorded, width: int, pen: Pen) -> Iterator[str]:
    """What was taken for the step, and what no trace tells."""
    yield from heading("assumed", pen)
    for assumption in summary.assumptions:
        yield from wrapped(bound(assumption), width, INDENT, hang=INDENT)
    yield from wrapped("a trace does not tell tokens/s, FLOP/s, MFU and how busy links are", width, INDENT, hang=INDENT)
