"""Logs of nccl-tests in the forms in which people keep them: what is read, inferred, left out, refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.nccl_logs import FULL, HEADS, Line, devices, log, rows
from zerosim.spec.calibration import COLLECTIVES
from zerosim.spec.nccl_log import UNASKED, Asked, Sweep, is_nccl_log, named_collective, read_nccl_log
from zerosim.step import CollectiveKind

LINE = Line(20e-6, 200e9, 0.6)
BIG = tuple(2**power for power in range(25, 33))


def read(text: str, asked: Asked = UNASKED, source: str = "a.log") -> Sweep:
    sweeps, problems = read_nccl_log(text, source, asked)
    assert problems == ()
    (sweep,) = sweeps
    return sweep


def refused(text: str, asked: Asked = UNASKED, source: str = "a.log") -> str:
    sweeps, problems = read_nccl_log(text, source, asked)
    assert sweeps == ()
    (problem,) = problems
    return str(problem)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_whole_log(kind: CollectiveKind) -> None:
    sweep = read(log(LINE, kind, gpus=16, nodes=2))
    assert (sweep.collective, sweep.gpus, sweep.nodes, sweep.told) == (kind, 16, 2, ())
    assert [size for size, _ in sweep.points] == list(FULL)
    for size, seconds in sweep.points:
        assert seconds == pytest.approx(LINE.seconds(kind, 16, size), rel=0.01)


def shaped(prefix: str = "", every: str = "{}") -> str:
    return "".join(f"{prefix}{every.format(line)}\n" for line in log(LINE, gpus=16, nodes=2).splitlines())


@pytest.mark.parametrize(
    "text",
    [
        shaped("[1,0]<stdout>:"),
        shaped("   [1,0]<stdout>: "),
        shaped("0: "),
        shaped("        "),
        shaped("> "),
        shaped("[pod/nccl-0/worker] "),
        shaped("2026-11-30 10:20:30 "),
        shaped(every="\x1b[32m{}\x1b[0m"),
        "```console\n" + shaped() + "```\n",
        shaped().replace("\n", "\r\n"),
        shaped().replace("#wrong", "error").replace("      0", "  5e-07"),
        shaped().replace("      0  ", "    N/A  "),
        shaped().replace("# nThread", "node-0:41:41 [0] NCCL INFO Launch mode Parallel\n# nThread"),
        shaped().replace("# Avg bus bandwidth    : 91.2\n", "").replace("# Using", "rccl-tests: Version a5\n# Using"),
        shaped().replace("] NVIDIA", "]"),
        "# nccl-tests version 2.18.2 nccl-library=23007\n" + shaped().replace("iters: 20", "iters: 20 unalign: 0"),
    ],
    ids=["mpi", "mpi indented", "slurm", "indent", "quote", "pod", "time", "colours", "fence", "dos", "old checks",
         "unchecked", "info", "rccl", "no names", "2.18"],
)  # fmt: skip
def test_forms_of_the_same_log(text: str) -> None:
    assert read(text)._replace(products=()) == read(log(LINE, gpus=16, nodes=2))._replace(products=())


def test_the_old_layout_without_root() -> None:
    heads = HEADS.replace("    root", "").replace("#wrong", " error")
    text = "# nThread 1 nGpus 4\n" + "".join(f"#  Rank {n} Pid 7 on box device {n} [0x3d] V100\n" for n in (0, 3))
    sweep = read(text + heads + rows(LINE, "all_reduce", 4, root=False), source="allreduce.log")
    assert (sweep.gpus, sweep.nodes, len(sweep.points)) == (4, 1, len(FULL))
    assert sweep.points == read(log(LINE, gpus=4)).points


def test_gaps_are_gaps_and_rows_of_no_bytes_are_left_out() -> None:
    lines = log(LINE).splitlines()
    row = next(number for number, line in enumerate(lines) if " 65536 " in line)
    none = f"           0             0     float     sum      -1  {2 * '  15.51    0.00    0.00      0'}"
    text = "\n".join([*lines[:row], none, "...", *lines[row + 3 :]])
    sweep = read(text)
    assert len(sweep.points) == len(FULL) - 3
    assert sweep.told == ()


def test_a_row_that_another_process_tore_is_left_out_and_told() -> None:
    text = log(LINE)
    torn = text.replace(
        "65536         16384     float    sum", "65536         16384     float    sum node:1 [0] NCCL INFO", 1
    )
    sweep = read(torn)
    assert len(sweep.points) == len(FULL) - 1
    wrong = text.replace(" 65536  ", " 65537536  ", 1)
    assert read(wrong).told == ("1 row left out, whose figures do not agree or are missing",)


def test_placeholders_are_refused() -> None:
    row = f"   268435456   4194304   float    none      -1  {2 * '  XXXXX  XXX.XX  XXX.XX    N/A'}\n"
    assert "found placeholders (XXXX)" in refused(HEADS + 3 * row, source="all_gather.log")
    assert is_nccl_log(HEADS + row)


def test_several_tests_in_one_log() -> None:
    text = log(LINE, "all_gather", 16, 2) + log(LINE, "reduce_scatter", 16, 2) + log(LINE, "all_reduce", 8)
    sweeps, problems = read_nccl_log(text, "all.log")
    assert problems == ()
    assert [(s.collective, s.gpus, s.nodes) for s in sweeps] == [
        ("all_gather", 16, 2), ("reduce_scatter", 16, 2), ("all_reduce", 8, 1),
    ]  # fmt: skip
    assert [s.source for s in sweeps] == ["all.log, test 1", "all.log, test 2", "all.log, test 3"]


def test_one_wrong_test_among_others_is_refused_alone() -> None:
    hypercube = log(LINE).replace("all_reduce_perf", "hypercube_perf")
    sweeps, (problem,) = read_nccl_log(log(LINE) + hypercube, "all.log")
    assert len(sweeps) == 1
    assert str(problem) == "all.log, test 2: found hypercube_perf; expected a collective that training uses"


def test_repeated_sizes_give_their_median() -> None:
    slow = Line(LINE.alpha * 9, LINE.bandwidth, LINE.kappa)
    text = log(LINE) + rows(slow, "all_reduce", 8) + rows(LINE, "all_reduce", 8)
    assert read(text).points == read(log(LINE)).points


# --- what is inferred ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [2, 3, 4, 6, 8, 16, 24, 64, 96])
def test_gpus_from_the_bus_factor(gpus: int) -> None:
    sweep = read(HEADS + rows(LINE, "all_gather", gpus, BIG), Asked("all_gather", nodes=1))
    assert sweep.gpus == gpus
    assert f"{gpus} GPUs from busbw / algbw" in sweep.told


def test_the_collective_from_the_bus_factor_where_only_one_has_it() -> None:
    assert read(HEADS + rows(LINE, "all_reduce", 8, BIG)).collective == "all_reduce"
    assert read(HEADS + rows(LINE, "reduce_scatter", 8, BIG)).collective == "reduce_scatter"  # the others do not sum
    for kind in ("all_gather", "all_to_all"):
        said = refused(HEADS + rows(LINE, kind, 8, BIG))
        assert "which several collectives have" in said
        assert said.endswith("expected --collective")
    assert refused(HEADS + rows(LINE, "all_reduce", 2, BIG)).endswith("expected --collective")  # as send and receive


def test_the_collective_from_names() -> None:
    assert (
        read(HEADS + rows(LINE, "all_gather", 8, BIG), source="results/AllGather-8gpu.txt").collective == "all_gather"
    )
    assert (
        read("$ mpirun ./build/alltoall_perf -b 8\n" + HEADS + rows(LINE, "all_to_all", 8, BIG)).collective
        == "all_to_all"
    )
    assert [named_collective(name) for name in ("reduce-scatter", "All2All", "sendrecv", "bcast", "x")] == [
        "reduce_scatter", "all_to_all", "send_recv", "broadcast", None,
    ]  # fmt: skip
    # a name that the figures deny counts for nothing where it is only the file's
    assert read(HEADS + rows(LINE, "all_reduce", 8, BIG), source="all_gather.log").collective == "all_reduce"
    said = refused(log(LINE, "all_gather").replace("all_gather_perf", "all_reduce_perf"))
    assert "expected that of all_reduce, as all_reduce_perf says" in said


def test_a_list_of_devices_that_the_figures_deny_is_refused() -> None:
    """The label of a machine may be wrong; busbw / algbw is not."""
    said = refused(devices(64, 8) + HEADS + rows(LINE, "all_reduce", 96, BIG))
    assert "found 64 GPUs, as the log lists, and busbw / algbw of 96 GPUs" in said
    asked = read(devices(64, 8) + HEADS + rows(LINE, "all_reduce", 96, BIG), Asked(gpus=96, nodes=12))
    assert (asked.gpus, asked.nodes) == (96, 12)


def test_the_gpus_that_a_log_lists() -> None:
    text = HEADS + rows(LINE, "all_reduce", 8, BIG)
    assert read(devices(8, 1).replace("NVIDIA", "NVIDIA H100 80GB HBM3") + text).products == ("NVIDIA H100 80GB HBM3",)
    assert read(devices(8, 1).replace(" [0000:0a:00] NVIDIA", "") + text).products == ()


def test_nodes_of_a_list_that_was_cut() -> None:
    kept = "".join(line + "\n" for line in devices(16, 2).splitlines() if "Rank  0" in line or "Rank 15" in line)
    sweep = read(kept + HEADS + rows(LINE, "all_reduce", 16, BIG))
    assert (sweep.gpus, sweep.nodes) == (16, 2)
    last = devices(72, 18).splitlines()[-1] + "\n"
    sweep = read(last + HEADS + rows(LINE, "all_reduce", 72, BIG))
    assert (sweep.gpus, sweep.nodes) == (72, 18)
    assert sweep.told[-1] == "18 nodes of 4 GPUs by the devices that are listed"


def test_nodes_without_any_list() -> None:
    text = HEADS + rows(LINE, "all_reduce", 16, BIG)
    assert read(text).told[-1] == "2 nodes, taking 8 GPUs a node"
    assert read(text, Asked(per_node=4)).nodes == 4
    assert read(text, Asked(nodes=16)).nodes == 16
    assert refused(text, Asked(nodes=3)) == "a.log: found 16 GPUs on 3 nodes; expected as many on each node"
    assert refused(HEADS + rows(LINE, "all_reduce", 12, BIG)).endswith("expected --nodes")
    info = "node-0:1:9 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 4 localRanks 4 localRank 0 MNNVL 0\n"
    assert read(info + text).nodes == 4


def test_what_has_no_figures_at_all() -> None:
    assert not is_nccl_log("nothing\n")
    assert refused("nothing\n") == (
        "a.log: found no row of figures; expected rows of nccl-tests: size count type redop root time algbw busbw"
    )


def test_every_given_log_is_read_or_refused_in_one_line() -> None:
    shared = os.environ.get("ZEROSIM_SHARED")
    if not shared:
        pytest.skip("ZEROSIM_SHARED names no folder of logs")
    paths = sorted((Path(shared) / "corpus" / "nccl_logs").iterdir())
    read_of = {}
    for path in paths:
        text = path.read_text()
        if is_nccl_log(text):
            sweeps, problems = read_nccl_log(text, path.name)
            assert len(sweeps) + len(problems) == 1
            read_of[path.name] = len(sweeps)
    assert len(read_of) == 11
    assert [name for name, count in read_of.items() if not count] == ["placeholder_xxx_a3ultra.log"]


def test_wrong_results_are_told() -> None:
    spoilt = log(LINE, gpus=16, nodes=2).replace("      0  ", "     42  ", 2)
    assert read(spoilt).told == ("wrong results in 2 rows (#wrong)",)


def test_one_gpu_has_nothing_to_exchange() -> None:
    text = log(LINE).replace(devices(8, 1), devices(1, 1))
    assert refused(text) == "a.log: found 1 GPU; expected two or more, which have something to exchange"


def test_a_factor_of_no_number_of_gpus_is_called_so() -> None:
    row = f"{2**30:12} {2**28:12} float sum -1 10000.0 107.37 139.58 0 10000.0 107.37 139.58 0"
    assert "busbw / algbw of no whole number of GPUs" in refused(f"{devices(8, 1)}{HEADS}{row}\n")


def test_nodes_as_asked_against_the_list_are_told() -> None:
    sweep = read(log(LINE, gpus=16, nodes=2), Asked(nodes=4))
    assert (sweep.nodes, sweep.told) == (4, ("4 nodes, as --nodes says, of 2 hosts that are listed",))


@pytest.mark.parametrize(
    "noise", ["x" * 10**6, "a_" * 10**5, "1" * 10**5, "size " * 10**5, "12 " * 10**5, "\n" * 10**5]
)
def test_long_lines_of_something_else_cost_nothing(noise: str) -> None:
    """A line that is searched from each of its characters would take minutes here."""
    text = f"{noise}\n{log(LINE, gpus=16, nodes=2)}{noise}\n"
    assert is_nccl_log(text)
    assert len(read(text).points) == len(FULL)
