"""Answers on disk as they come: a line of JSON each, by key, so that what was killed goes on where it was.

A line counts when it is whole: one that a kill or a full disk tore is cut off when the journal is opened again. Each is
forced to the disk before the next question is counted as answered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from zerosim.errors import InputError, Problem
from zerosim.report.files import unwritable

Answer = dict[str, Any]
LOCKED = "a journal that another run is writing"


class Journal:
    """`known` are the answers by key, those of earlier runs first. Without a path nothing is written.

    `complete` is false where an answer is missing that may be had next time.
    """

    def __init__(self, file: FileIO | None = None, path: Path | None = None) -> None:
        self.known: dict[str, Answer] = {}
        self.complete = True
        self._file = file
        self._path = path
        if file is not None:
            self._read(file)

    def _read(self, file: FileIO) -> None:
        text = file.readall()
        whole = text.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
        for line in text[:whole].splitlines():
            try:
                match json.loads(line):
                    case [str(key), dict(answer)]:
                        self.known[key] = answer
            except ValueError:  # not ours, or spoilt: the question is asked again
                continue

    def add(self, key: str, answer: Answer) -> None:
        """Keep an answer."""
        self.known[key] = answer
        if self._file is None or self._path is None:
            return
        try:
            line = memoryview(json.dumps([key, answer]).encode() + b"\n")
            while line:  # what a full disk has no room for raises on the second try
                line = line[self._file.write(line) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self._path, error) from None


@contextmanager
def kept(path: Path | None) -> Iterator[Journal]:
    """The journal at `path`, for one sweep at a time; it is removed when all went well, for what it holds is in the
    result then. It is not buffered, so that a full disk is met where a line is written and nowhere else."""
    if path is None:
        yield Journal()
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _opened(path)
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    journal = Journal(file, path)
    try:
        with file:
            yield journal
    except BaseException:
        if not journal.known:  # nothing that the next run could use
            path.unlink(missing_ok=True)
        raise
    if journal.complete:
        path.unlink(missing_ok=True)


def _opened(path: Path) -> FileIO:
    """The file at `path`, made where there is none, and ours alone until it is closed."""
    path.touch()
    file = path.open("r+b", buffering=0)
    if not _locked(file):
        file.close()
        raise InputError([Problem(str(path), found=LOCKED, expected="one at a time, or another name for the result")])
    return file


def _locked(file: FileIO) -> bool:
    """Whether nobody else has it; yes where nobody can say."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
