"""The verb `play`: it says where the page is, answers there, and ends with Ctrl-C; what stands in its way is told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.asking import ROOT, SMALL, ask
from zerosim.cli import playing
from zerosim.playground import serving
from zerosim.playground.start import Start

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path / "small.yaml"


@pytest.fixture
def process(small: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "zerosim", "play", str(small), "--no-open", "--port", "0"]
    started = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
    )
    yield started
    started.kill()
    started.communicate()


def test_it_says_where_it_is_answers_and_ends_with_ctrl_c(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith("small: http://127.0.0.1:")
    address = said.split()[1]
    with urllib.request.urlopen(f"{address}start", timeout=20) as told:
        assert json.load(told)["state"]["strategy"] == "zero2"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_port_that_is_taken_is_told(small: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (line,) = ask("play", small, "--port", str(port), "--no-open").refused()
    assert line == f"--port: found {port}: address already in use; expected a free port, or 0 for any"
    assert ask("play", small, "--port", "70000").code == 2


def test_a_scenario_that_is_wrong_is_told_as_by_run(small: Path) -> None:
    small.write_text(SMALL.replace("128", "-128"))
    assert ask("play", small, "--no-open").refused() == ask("run", small).refused()
    assert "zerosim sweep" in ask("play", ROOT / "scenarios/bucket-sweep.yaml", "--no-open").refused()[0]


def test_without_the_extra_it_says_how_to_get_it(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "find_spec", lambda name: None)
    answer = ask("play", small)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "zerosim play needs starlette and uvicorn: pip install 'zerosim[play]'\n"


class Browser:
    """A browser that only notes what it was to open."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def open(self, address: str) -> None:
        self.seen.append(address)


class AtOnce:
    """A thread that has ended when it has started."""

    def __init__(self, target: Callable[[str], None], args: tuple[str], daemon: bool) -> None:
        assert daemon  # who leaves need not wait for a browser
        self.start = partial(target, *args)


@pytest.mark.parametrize("words", [["--port", "0"], ["--port", "0", "--no-open"], []])
def test_a_browser_is_opened_unless_not_wanted(words: list[str], small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, served = Browser(), list[str]()

    def serve(start: Start, opened: socket.socket) -> None:
        host, port = opened.getsockname()
        served.append(f"http://{host}:{port}/")

    monkeypatch.setattr(threading, "Thread", AtOnce)
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr(playing, "USUAL", 0)
    answer = ask("play", small, *words)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"small: {served[0]} (Ctrl-C ends it)\n"
    assert served[0].startswith("http://127.0.0.1:")
    assert browser.seen == ([] if "--no-open" in words else served)


def test_the_usual_port_is_left_to_who_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(playing, "USUAL", taken.getsockname()[1])
        with playing._listening(None) as other:
            assert other.getsockname()[1] != taken.getsockname()[1]
