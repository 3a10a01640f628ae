"""Many questions, several processes: each is asked one question after another, and answers come as they are ready.

Processes are started afresh (spawn), so that nothing is shared but what is sent. One whose parent is gone reads the end
of its pipe and ends; one that is ended from outside (for the memory it takes, say) loses the question it was at, and
another takes its place. Ctrl-C is for the parent alone, which then ends the others.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")
MANY = 8  # questions left: while there are more, a process has the next one at hand, too, and need not wait for it


class Lost(NamedTuple):
    """No answer, and why: it may be had next time."""

    why: str


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def answers(ask: Callable[[Q], A], questions: Sequence[Q], processes: int) -> Iterator[tuple[int, A | Lost]]:
    """The number of each question and its answer, in the order in which they are ready.

    `ask` and the questions are sent to the processes. Each process has a run of questions to itself, so that `ask` may
    keep what neighbours share, and the end of the longest run of others when its own is done.
    """
    processes = min(processes, len(questions))
    if processes <= 1:
        yield from enumerate(map(ask, questions))
        return
    runs = _runs(questions, processes)
    others = [_start(ask, runs, own) for own in range(processes)]
    try:
        while others:
            for ready in wait([other.pipe for other in others]):
                other = next(other for other in others if other.pipe is ready)
                yield _heard(other)
                if other.gone:
                    others.remove(other)
                    others += [_start(ask, runs, other.own)] if other.lost and any(runs) else []
    finally:
        for other in others:
            other.process.terminate()
            other.process.join()


Numbered = tuple[int, Q]
Runs = list[deque[Numbered[Q]]]


def _runs(questions: Sequence[Q], parts: int) -> Runs[Q]:
    """The questions with their numbers, in runs of (nearly) the same length."""
    numbered, count = list(enumerate(questions)), len(questions)
    return [deque(numbered[part * count // parts : (part + 1) * count // parts]) for part in range(parts)]


@dataclass(slots=True)
class _Other(Generic[Q]):
    """Another process, and the questions that it has; `own` is the number of its run."""

    process: BaseProcess
    pipe: Connection
    runs: Runs[Q]
    own: int
    asked: deque[Numbered[Q]] = field(default_factory=deque)
    gone: bool = False
    lost: bool = False

    def fill(self) -> None:
        """Ask what may be asked now."""
        while any(self.runs) and len(self.asked) < (2 if sum(map(len, self.runs)) > MANY else 1):
            question = self.runs[self.own].popleft() if self.runs[self.own] else max(self.runs, key=len).pop()
            self.asked.append(question)
            try:
                self.pipe.send(question)
            except OSError:  # it has ended: what it has is taken back when its pipe is read
                return

    def end(self) -> int | None:
        """Let it end, and take back what it has; its exit code."""
        self.runs[self.own].extendleft(reversed(self.asked))
        self.pipe.close()
        self.process.join()
        self.gone = True
        return self.process.exitcode


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here never hear Ctrl-C, which is sent to all of a terminal; only the main thread may
    say so, and only it hears Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start(ask: Callable[[Q], A], runs: Runs[Q], own: int) -> _Other[Q]:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_answer_all, args=(theirs, ask), daemon=True)
    with _deaf():
        process.start()
    theirs.close()  # so that the pipe ends with the process
    other = _Other(process, ours, runs, own)
    other.fill()
    return other


def _heard(other: _Other[Q]) -> tuple[int, Any]:
    """What a process says, or that it is gone and has taken the question it was at with it."""
    try:
        number, answer = other.pipe.recv()
    except (EOFError, OSError):
        other.lost = True
        number, _ = other.asked.popleft()
        return number, Lost(f"its process was ended from outside (exit code {other.end()})")  # negative: the signal
    other.asked.popleft()
    other.fill()
    if not other.asked:
        other.end()
    return number, answer


def _answer_all(pipe: Connection, ask: Callable[[Q], A]) -> None:
    """What the other process does."""
    try:
        while True:
            number, question = pipe.recv()
            pipe.send((number, ask(question)))
    except (EOFError, OSError):  # the parent is done, or gone
        return
