"""The command as a process of its own: pipes that close, interrupts, full disks, encodings, and files it writes."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.asking import ROOT, SMALL, ask

ZEROSIM = [sys.executable, "-m", "zerosim"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


def started(*words: str | Path, out: int = subprocess.PIPE, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*ZEROSIM, *map(str, words)], stdout=out, stderr=subprocess.PIPE, env=ENVIRONMENT | more, start_new_session=True
    )


# --- how it ends ---------------------------------------------------------------------------------------------------


def test_the_answer_of_a_process_is_that_of_the_function(small: Path) -> None:
    out, err = started("run", small, "--json").communicate()
    assert err == b""
    assert json.loads(out) == ask("run", small, "--json").json


def test_a_wrong_file_ends_a_process_with_2_and_without_traceback(small: Path) -> None:
    small.write_text(SMALL.replace("128", "-128"))
    process = started("run", small)
    out, err = process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(f"{small}:4:29: training.sequence_length: found -128; expected".encode())
    assert err.count(b"\n") == 1


def test_who_reads_the_head_of_a_list_is_not_told_of_broken_pipes(small: Path) -> None:
    process = started("ops", small)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()  # long before the last of some hundred lines
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 0


def test_an_interrupt_ends_with_130_and_without_traceback(small: Path) -> None:
    process = started("run", small, "--set", "training.gradient_accumulation_steps=20000", "--svg", "/dev/null")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.0)  # it is at work: twenty thousand micro-steps take minutes
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    # by the signal where it was still importing a module that executes text: so Python ends then, and shells say 130
    assert process.returncode in (130, -signal.SIGINT)
    assert (out, err) == (b"", b"Interrupted.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_standard_output(small: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = started("run", small, out=full.fileno())
        _, err = process.communicate()
    assert process.returncode == 2
    assert err == b"standard output: found no space left on device; expected room for it\n"


def test_letters_that_a_terminal_lacks_are_no_error(small: Path) -> None:
    small.write_text(SMALL.replace("title: small", "title: 模型"), encoding="utf-8")
    process = started("run", small, PYTHONIOENCODING="latin-1")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.startswith(b"?? ")


def test_help_and_version_load_no_library() -> None:
    code = (
        "import sys; from zerosim.cli import main\n"
        "try: main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'simpy', 'networkx', 'yaml', 'pydantic', 'hjson'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    version = ask("--version")
    assert (version.code, version.out.split()[0]) == (0, "zerosim")


# --- files it writes -----------------------------------------------------------------------------------------------


def test_pictures_and_traces_are_written_and_told_on_standard_error(small: Path) -> None:
    folder = small.parent
    answer = ask("run", small, "--json", "--svg", folder / "new" / "a.svg", "--trace", folder / "t.json.gz")
    assert json.loads(answer.out)["scenario"] == "small"
    assert answer.err == f"trace written to {folder}/t.json.gz\npicture written to {folder}/new/a.svg\n"
    assert '<title id="title">small</title>' in (folder / "new" / "a.svg").read_text()
    assert json.loads(gzip.decompress((folder / "t.json.gz").read_bytes()))["distributedInfo"]["rank"] == 0


def test_a_folder_gets_a_trace_of_each_kind_of_rank(small: Path) -> None:
    ask("run", small, "--trace", f"{small.parent}/traces/")
    assert [file.name for file in (small.parent / "traces").iterdir()] == ["rank0.pt.trace.json"]


UNWRITABLE = {
    "through a file": ("--svg", "small.yaml/a.svg", "small.yaml/a.svg: found a path that leads through a file"),
    "a folder": ("--svg", "folder", "folder: found a folder; expected the name of a file"),
    "no name": ("--svg", "", '--svg: found ""; expected the name of a file'),
    "a null character": ("--svg", "a\0.svg", "a\\x00.svg: found embedded null byte"),
    "too long a name": ("--svg", "x" * 300, "found file name too long"),
    "not allowed": ("--svg", "/proc/a.svg", "/proc/a.svg: found "),
    "another suffix": ("--trace", "trace.txt", 'trace.txt: found "trace.txt"; expected a name that ends in .json or'),
    "a trace through a file": ("--trace", "small.yaml/", "found a path that leads through a file"),
    "a trace without a name": ("--trace", "", '--trace: found ""; expected the name of a file'),
    "too long a name of a trace": ("--trace", "x" * 300 + ".json", "found file name too long"),
    "a null character in a trace": ("--trace", "a\0.json", "a\\x00.json: found embedded null byte"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNWRITABLE)
def test_what_cannot_be_written_is_told_before_any_answer(
    case: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option, path, said = UNWRITABLE[case]
    monkeypatch.chdir(small.parent)
    Path("folder").mkdir()
    (problem,) = ask("run", "small.yaml", option, path).refused()
    assert said in problem
    assert sorted(file.name for file in small.parent.iterdir()) == ["folder", "small.yaml"]


# --- words on the command line -------------------------------------------------------------------------------------

WORDS = {
    "an unknown topology": (("topology", "show", "dgx-a100"), 'topology: found "dgx-a100"; expected a name'),
    "and the nearest": (("topology", "show", "dgx-a100"), 'nearest "dgx-a100-40"'),
    "another spelling": (("topology", "show", "DGX_A100_80"), 'nearest "dgx-a100-80"'),
    "a topology without a name": (("topology", "show", ""), 'topology: found ""; expected a name'),
    "too long a name": (("topology", "show", "x" * 5000), 'topology: found "xxx'),
    "no such topology file": (("topology", "show", "no.yaml"), "no.yaml: found no such file; expected a file"),
    "no such scenario": (("run", "no.yaml"), "no.yaml: found no such file; expected a file"),
    "a scenario without a name": (("run", ""), "found a folder; expected a file"),
    "a null character": (("run", "a\0.yaml"), "a\\x00.yaml: found a path that cannot be read (embedded null byte)"),
    "too long a path": (("run", "x" * 5000), "found a path that cannot be read (file name too long)"),
    "one to compare": (("compare", "no.yaml"), "compare: found one scenario; expected two or more"),
    "no count": (("memory", "--params", "many", "--gpus", "8"), '--params: found "many"; expected a count such'),
    "a negative count": (("memory", "--params=-1", "--gpus", "8"), "--params: found"),
    "no parameters": (("memory", "--params", "0", "--gpus", "8"), "--params: found 0; expected a count from 1"),
    "beyond floats": (("memory", "--params", "1e400", "--gpus", "8"), "expected a count such as"),
    "nearly beyond floats": (("memory", "--params", "1e308", "--gpus", "8"), "expected a count from 1 to 1e+18"),
    "bytes": (("memory", "--params", "7 GB", "--gpus", "8"), 'nearest "7 B"'),
}  # fmt: skip


@pytest.mark.parametrize("case", WORDS)
def test_wrong_words(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, said = WORDS[case]
    (problem,) = ask(*words).refused()
    assert said in problem


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rnu", "a.yaml"), "No such command 'rnu'"),
        (("run",), "Missing argument 'SCENARIO'"),
        (("run", "a.yaml", "--jsn"), "--json"),
        (("list", "modles"), "'models', 'topologies', 'devices', 'strategies'"),
        (("memory", "--params", "7e9", "--gpus", "0"), "--gpus"),
        (("memory", "--params", "7e9", "--gpus", "9" * 400), "--gpus"),
        (("memory", "--params", "7e9"), "Missing option '--gpus'"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], said: str) -> None:
    answer = ask(*words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
