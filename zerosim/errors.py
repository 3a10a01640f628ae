"""What can be wrong, and what is worth saying.

A `Problem` is one mistake in one place of what the user gave: *where: found; expected; nearest*. `InputError`
carries all problems of an input at once, so that a file is mended in one round. A `Finding` is not a mistake: it is
something the user should know about an answer (out of memory, a key that changes nothing, an assumption).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "warning", "error"]
SAYS_ENOUGH = 4  # letters from which on the beginning of a word tells which one was meant


class ZerosimError(Exception):
    """Base of every error that zerosim raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in an input: `source:line:column: path: found ...; expected ...; nearest ...`."""

    source: str
    path: str = ""
    found: str = ""
    expected: str = ""
    nearest: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)
        said = [
            f"found {self.found}" if self.found else "",
            f"expected {self.expected}" if self.expected else "",
        ]
        said.append(f"nearest {self.nearest}" if self.nearest else "")
        return printable(": ".join(part for part in (where, self.path, "; ".join(s for s in said if s)) if part))


def printable(text: str) -> str:
    """The text on one line, with what a terminal would act on (controls, overrides of direction) written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class InputError(ZerosimError):
    """The input is wrong; carries every problem found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class DeadlockError(ZerosimError):
    """No process can go on; the message tells who waits for what."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing about an answer: a stable code, one sentence, and what to do about it."""

    code: str
    severity: Severity
    message: str
    remedy: str = ""


def nearest(word: str, known: Sequence[str]) -> str:
    """The known word most like `word`: one that goes on where it stops, else one spelled alike; "" if none is."""
    longer = [name for name in known if name.startswith(word)] if len(word) >= SAYS_ENOUGH else []
    if longer:
        return min(longer, key=len)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return close[0] if close else ""
