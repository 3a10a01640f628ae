"""`zerosim sweep --dask`: a real scheduler and workers as processes of this machine, and what becomes of lost ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.asking import ROOT, ask
from tests.sweeps import AGAINST, GRID, written
from zerosim.cli.printing import package_version
from zerosim.spec.sweep_file import read_sweep
from zerosim.studies.cluster import Cluster
from zerosim.studies.processes import Lost
from zerosim.studies.sweep import sweep

pytest.importorskip("distributed", reason="Dask is an extra")
MANY = "axes:\n  nodes: [1, 2]\n  training.micro_batch_size: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
PATIENCE = 180  # seconds: more than a busy machine needs
Process = subprocess.Popen[bytes]


class Dask(NamedTuple):
    """A scheduler and its workers, without the nannies that would start lost workers again."""

    address: str
    scheduler: Process
    workers: list[Process]


@contextmanager
def started(*words: object, **settings: str) -> Iterator[Process]:
    """`dask WORDS`; ended at the end, if it is not before."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    with subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_" + str(words[0]), *map(str, words[1:])],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def until(said: Callable[[], Any]) -> Any:
    """What is said as soon as it is something."""
    end = time.monotonic() + PATIENCE
    while not (found := said()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@contextmanager
def dask(folder: Path, workers: int, **settings: str) -> Iterator[Dask]:
    """A scheduler on this machine with workers of one thread each."""
    from distributed import Client

    told = folder / "scheduler.json"
    scheduler = ("scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--scheduler-file", told)
    with ExitStack() as stack:
        process = stack.enter_context(started(*scheduler, **settings))
        address = until(lambda: told.exists() and told.read_text() and json.loads(told.read_text())["address"])
        alone = ("--nthreads", 1, "--no-nanny", "--no-dashboard", "--local-directory", folder)
        others = [stack.enter_context(started("worker", address, *alone)) for _ in range(workers)]
        if workers:
            with Client(address, set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=PATIENCE)
        yield Dask(address, process, others)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    with dask(tmp_path_factory.mktemp("dask"), workers=2) as found:
        yield found


def test_workers_find_what_one_process_finds(tmp_path: Path, two: Dask) -> None:
    wrong = "points: [{stage: 3, nodes: 900000000}]\n"
    require = "require: {resource: topology.node.nics.bandwidth, slowdown: 900 %}\n"
    found = read_sweep(written(tmp_path, GRID, AGAINST, wrong, require))
    assert sweep(found, cluster=Cluster(two.address)) == sweep(found)


def test_a_file_has_the_same_bytes(tmp_path: Path, two: Dask) -> None:
    file, here, there = written(tmp_path, MANY), tmp_path / "here.csv", tmp_path / "there.csv"
    ask("sweep", file, "--out", here, "--processes", "1")
    answer = ask("sweep", file, "--out", there, "--dask", two.address)
    assert (answer.code, answer.err) == (0, f"20 rows written to {there}\n")
    assert there.read_bytes() == here.read_bytes()


def test_a_worker_that_is_killed_half_way_loses_and_repeats_nothing(tmp_path: Path) -> None:
    found, journal = read_sweep(written(tmp_path, MANY)), tmp_path / "rows.journal"
    with dask(tmp_path, workers=2) as cluster:
        known: list[list[str]] = []

        def told(done: int, of: int) -> None:
            if done == of // 2:
                cluster.workers[0].send_signal(signal.SIGKILL)
            if done == of:
                known.append([json.loads(line)[0] for line in journal.read_text().splitlines()])

        swept = sweep(found, journal=journal, told=told, cluster=Cluster(cluster.address))
        assert cluster.workers[0].wait() == -signal.SIGKILL
    assert swept == sweep(found)
    assert len(swept.rows) == len(known[-1]) == len(set(known[-1])) == 20


def perish(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_a_question_that_ends_each_worker_is_given_up(tmp_path: Path) -> None:
    once = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}  # beside the first
    with dask(tmp_path, workers=2, **once) as cluster:
        ((_, said),) = Cluster(cluster.address).answers(perish, [0])
    assert said == Lost("each worker that was at it was ended from outside")


def test_a_scheduler_that_is_killed_leaves_the_journal(tmp_path: Path) -> None:
    import dask as configured

    found, journal = read_sweep(written(tmp_path, MANY)), tmp_path / "rows.journal"
    with dask(tmp_path, workers=1) as cluster, configured.config.set({"distributed.comm.timeouts.connect": "1 s"}):

        def told(done: int, of: int) -> None:
            if done == 4:
                cluster.scheduler.send_signal(signal.SIGKILL)

        swept = sweep(found, journal=journal, told=told, cluster=Cluster(cluster.address))
    assert swept.errors == (f"the Dask scheduler at {cluster.address} is gone",)
    known = journal.read_text().count("\n")
    assert 4 <= known == sum(row["error"] is None for row in swept.rows) < 20


def test_an_interrupt_leaves_the_journal_and_the_workers(tmp_path: Path, two: Dask) -> None:
    found, journal = read_sweep(written(tmp_path, MANY)), tmp_path / "rows.journal"

    def told(done: int, of: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(found, journal=journal, told=told, cluster=Cluster(two.address))
    assert journal.read_text().count("\n") == 4
    heard: list[int] = []
    swept = sweep(found, journal=journal, told=lambda done, of: heard.append(done), cluster=Cluster(two.address))
    assert heard[0] == 4
    assert swept == sweep(found)


def test_ctrl_c_leaves_the_journal_and_no_traceback(tmp_path: Path, two: Dask) -> None:
    out = tmp_path / "rows.csv"
    journal = Path(f"{out}.journal.jsonl")
    file = str(ROOT / "scenarios" / "bucket-sweep.yaml")
    command = [sys.executable, "-m", "zerosim", "sweep", file, "--set", "axes.reduce.values=[5e8]"]
    with subprocess.Popen([*command, "--dask", two.address, "--out", out], cwd=ROOT, stderr=subprocess.PIPE) as process:
        until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, said) == (130, b"Interrupted.\n")
    assert 2 <= journal.read_bytes().count(b"\n") < 1_000
    assert not out.exists()


def test_a_scheduler_without_workers_is_told(tmp_path: Path) -> None:
    with dask(tmp_path, workers=0) as cluster:
        (line,) = ask("sweep", written(tmp_path, MANY), "--dask", cluster.address).refused()
    assert line == (f"--dask: found no worker at {cluster.address}; expected one, as by dask worker {cluster.address}")


def test_workers_of_another_release_are_told(tmp_path: Path, two: Dask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosim.studies.cluster.version", lambda name: "99.0")
    one, other = ask("sweep", written(tmp_path, MANY), "--dask", two.address).refused()
    there = f"zerosim {package_version()} on Python 3."
    assert one.startswith("--dask: found the worker tcp://127.0.0.1:")
    assert f"with {there}" in one
    assert "expected zerosim 99.0 on Python 3." in one
    assert other.endswith(", as here")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp://127.0.0.1:1", "found no Dask scheduler at tcp://127.0.0.1:1 within 1 s"),
        ("nonsense://x", 'found "nonsense://x", which is no address ('),
        ("", 'found "", which is no address (it is empty)'),
    ],
)
def test_where_there_is_no_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, said: str) -> None:
    monkeypatch.setattr("zerosim.studies.cluster.PATIENCE", 1)
    (line,) = ask("sweep", written(tmp_path, MANY), "--dask", address).refused()
    assert line.startswith(f"--dask: {said}")
    assert line.endswith("; expected the address that dask scheduler prints, as tcp://10.0.0.1:8786")


def test_a_sweep_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    ask("sweep", written(tmp_path, MANY), "--dask", "nonsense://x", "--out", out).refused()
    assert not list(tmp_path.glob("rows.csv*"))


def test_dask_that_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    (line,) = ask("sweep", written(tmp_path, MANY), "--dask", "tcp://127.0.0.1:1").refused()
    expected = "expected distributed, which speaks with Dask (pip install zerosim[dask])"
    assert line == f"--dask: found no distributed; {expected}"


def test_dask_and_processes_are_one_too_many(tmp_path: Path) -> None:
    (line,) = ask("sweep", written(tmp_path, MANY), "--dask", "tcp://127.0.0.1:1", "--processes", "2").refused()
    assert line == "--processes: found --dask, too; expected one of them: Dask has its own workers"
