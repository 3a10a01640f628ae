"""The text of a file that a user names; what cannot be read is a Problem with a plain reason.

Rule: whatever the system or the bytes refuse (no such file, a folder, a name that no file can have, bytes that are not
UTF-8, nothing at all) is the user's to mend. What the text means is for others.
"""

from __future__ import annotations

import codecs
from pathlib import Path

from zerosim.errors import InputError, Problem, nearest

_NAME_SHOWN = 80  # characters of a path in a message
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_text(path: str | Path, expected: str = "YAML or JSON") -> str:
    """The text of a file, without a byte order mark. An empty file is a mistake: nothing can be meant by it."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at offset {error.start}, which is no text"
        raise InputError([Problem(_shown(path), found=found, expected="UTF-8")]) from None
    if not text.strip():
        raise InputError([Problem(_shown(path), found="an empty file", expected=expected, line=1, column=1)])
    return text


def read_bytes(path: str | Path) -> bytes:
    """What stands in a file."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InputError([_unreadable(Path(path), error)]) from None


def printed(given: bytes) -> str:
    """What a program printed: by its mark; else UTF-16, as PowerShell writes, if every other byte is zero; else UTF-8,
    in which wrong bytes of a log may stand."""
    for mark, encoding in _MARKS:
        if given.startswith(mark):
            return given[len(mark) :].decode(encoding, errors="replace")
    head = given[:400]
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros = head[start::2]
        if len(head) > 3 and zeros.count(0) > 0.7 * len(zeros):
            return given.decode(encoding, errors="replace")
    return given.decode("utf-8", errors="replace")


def is_file(path: Path) -> bool:
    """Whether there is such a file; no for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def neighbour(path: Path) -> str:
    """The name of the file beside `path` that is spelled most like it, or an empty string."""
    try:
        known = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    except (OSError, ValueError):
        return ""
    return nearest(path.name, known)


def _unreadable(path: Path, error: Exception) -> Problem:
    source = _shown(path)
    if isinstance(error, FileNotFoundError):
        close = neighbour(path)
        return Problem(
            source, found="no such file", expected="a file", nearest=str(path.parent / close) if close else ""
        )
    reasons: dict[type[Exception], str] = {
        IsADirectoryError: "a folder",
        NotADirectoryError: "a path that leads through a file",
        PermissionError: "a file that you may not read",
    }
    found = reasons.get(type(error)) or f"a path that cannot be read ({_said(error)})"
    return Problem(source, found=found, expected="a file")


def _said(error: Exception) -> str:
    """The system's reason, without a capital."""
    text = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]


def _shown(path: str | Path) -> str:
    text = str(path)
    return text if len(text) <= _NAME_SHOWN * 4 else f"{text[:_NAME_SHOWN]}..."
