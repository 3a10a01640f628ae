"""Traces of several ranks as one timeline: by hand."""

from pathlib import Path
from typing import Any

import pytest

from tests.profiled import ADAM, GEMM, REDUCE, document, kernel, launch, profiled, three_steps, write
from tests.traced import us
from zerosim.errors import InputError
from zerosim.measured import read_trace


def waited(folder: Path, members: dict[int, tuple[float, dict[str, Any]]]) -> list[float | None]:
    """By rank, what each waited, where each ran one collective: its length, and what its trace says of the group."""
    said: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float"}
    said |= {"Process Group Description": "mesh_tp"}
    for rank, (length, more) in members.items():
        events = [kernel(GEMM, 0, 5, 1), kernel(REDUCE, 10, 10 + length, 2, stream=20, **said, **more)]
        write(folder / f"{rank}.json", document(events, rank, 4))
    seconds = [rank.waited_seconds for rank in read_trace(folder).summary().classes]
    return [None if each is None else us(each) for each in seconds]


def test_files_are_ranks_and_the_slowest_explains(tmp_path: Path) -> None:
    profiled(tmp_path, 2)
    slow = [*three_steps(), launch(880, 999), kernel(ADAM, 900, 1100, 999)]
    write(tmp_path / "rank1.pt.trace.json", document(slow, 1))
    known = read_trace(tmp_path, step=4).summary()
    assert [(rank.name, us(rank.end_seconds)) for rank in known.classes] == [("rank 0", 1000), ("rank 1", 1100)]
    assert us(known.step_seconds) == 1100
    assert len(read_trace(tmp_path, step=4).steps) == 2  # one has a kernel more
    profiled(tmp_path, 3)
    assert len(read_trace(tmp_path).steps) == 1  # all ran the same


def test_the_rank_that_comes_last_has_the_shortest_collectives(tmp_path: Path) -> None:
    """The other one waits in its kernel; no clock is compared."""
    said: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 8, "Group size": 2, "dtype": "Float"}
    for rank, lengths in enumerate(((50, 90), (80, 40))):
        events = [kernel(GEMM, 0, 5, 9)]
        for place, length in enumerate(lengths):
            start = 10 + 100 * place + 1e6 * rank
            events.append(kernel(REDUCE, start, start + length, place, stream=20, **said))
        write(tmp_path / f"{rank}.json", document(events, rank))
    ranks = read_trace(tmp_path).summary().classes
    assert [us(rank.waited_seconds or 0.0) for rank in ranks] == [50, 30]


def test_only_the_ranks_of_a_group_wait_for_each_other(tmp_path: Path) -> None:
    """DeviceMesh describes all groups of a dimension alike: 0 with 1, and 2 with 3, which never meet."""
    near = {"Group size": 2, "Process Group Ranks": "[0, 1]"}
    far = {"Group size": 2, "Process Group Ranks": "[2, 3]"}
    found = waited(tmp_path, {0: (100, near), 1: (130, near), 2: (9000, far), 3: (9040, far)})
    assert found == [0, 30, 0, 40]


def test_a_group_that_is_not_told_or_not_whole_is_not_compared(tmp_path: Path) -> None:
    """Without its ranks four that are of groups of two cannot be paired; and of four recorded two tell not enough."""
    alone = {"Group size": 2}
    assert waited(tmp_path, {rank: (100 + rank, alone) for rank in range(4)}) == [None] * 4
    (tmp_path / "two").mkdir()
    whole = {"Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]"}
    assert waited(tmp_path / "two", {0: (100, whole), 1: (130, whole)}) == [None, None]
    (tmp_path / "four").mkdir()
    assert waited(tmp_path / "four", {rank: (100 + rank, {"Group size": 4}) for rank in range(4)}) == [0, 1, 2, 3]


def test_gpus_of_one_file_are_ranks(tmp_path: Path) -> None:
    events = [kernel(GEMM, 0, 30, 1, device=0), kernel(GEMM, 0, 50, 2, device=3)]
    measured = read_trace(write(tmp_path / "t.json", document(events, rank=None)))
    assert [(rank.name, rank.ranks) for rank in measured.classes] == [("rank 0", (0,)), ("rank 3", (3,))]
    assert us(measured.makespan) == 50


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, document(three_steps())) for name in ("a.json", "b.json")]
    with pytest.raises(InputError, match=r"a.json and .*b.json: found rank 0 in each; expected one file a rank"):
        read_trace(*paths)
