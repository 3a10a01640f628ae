"""Files that appear whole or not at all: written beside the target, then moved over it.

Rule: what cannot be written is the user's to mend (a path, a full disk), so it is an InputError and no traceback.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from zerosim.errors import InputError, Problem

READABLE = 0o644  # mkstemp makes files that only their owner reads


def write_text(path: Path, text: str) -> None:
    """The text as UTF-8, line ends as they are."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """The content; folders on the way are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from None
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
        beside.chmod(READABLE)
        beside.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        beside.unlink(missing_ok=True)  # there only if something went wrong


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError([Problem(str(path), found=error.strerror or str(error), expected="a path that can be written")])
