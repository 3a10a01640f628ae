"""Files that appear whole or not at all: written beside the target, then moved over it.

Rule: what cannot be written is the user's to mend (a path, a full disk), so it is an InputError and no traceback.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from zerosim.errors import InputError, Problem

READABLE = 0o644  # mkstemp makes files that only their owner reads
PREFIX = 100  # characters of the name that the file beside it repeats: names end somewhere
SHOWN = 300  # characters of a path in a message


def write_text(path: Path, text: str) -> None:
    """The text as UTF-8, line ends as they are."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """The content; folders on the way are made. A device or a pipe is written to as it is, never replaced."""
    try:
        if path.is_dir():
            raise InputError([Problem(str(path), found="a folder", expected="the name of a file")])
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _write_whole(path, content)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise unwritable(path, error) from None


def _write_whole(path: Path, content: bytes) -> None:
    target = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:PREFIX]}.", dir=target.parent)
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
        beside.chmod(READABLE)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)  # there only if something went wrong


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; no for names that nothing can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long; a null character
        return False


def unwritable(path: Path, error: Exception) -> InputError:
    """Why nothing can be written there."""
    said = getattr(error, "strerror", None) or str(error)
    blocked = isinstance(error, NotADirectoryError | FileExistsError)
    found = "a path that leads through a file" if blocked else f"{said[:1].lower()}{said[1:]}"
    source = str(path) if len(str(path)) <= SHOWN else f"{str(path)[:SHOWN]}..."
    return InputError([Problem(source, found=found, expected="a path that can be written")])
