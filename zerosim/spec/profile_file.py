"""A profiler trace as it stands in a file: Chrome's trace format, as torch.profiler (Kineto) writes it, packed or not.

Rules: events are decoded one by one, and what the caller leaves of one is gone at once: so a file of hundreds of
megabytes needs little more memory than its text. Both forms are read: an object with `traceEvents`, and a plain list,
whose end may be missing (Trace Event Format, "JSON Array Format"). What the events mean is for others.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.files import read_bytes

Event = dict[str, Any]

EXPECTED = "a profiler trace: JSON with traceEvents, as torch.profiler writes it"
_PACKED = b"\x1f\x8b"  # RFC 1952
_LOOKED_AT = 1 << 16  # bytes in which a trace shows what it is
_KEYS = re.compile(r'"(traceEvents|deviceProperties|distributedInfo|displayTimeUnit|baseTimeNanoseconds)"\s*:')
_LIST = re.compile(r'\s*\[\s*(\{[^\[]*"(ph|cat|ts|pid)"\s*:|\{?\s*$)')
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)  # control characters stand in names now and then


def is_trace(path: str | Path) -> bool:
    """Whether a file looks like a trace: told by what stands in it, not by its name. No scenario is packed."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(_LOOKED_AT)
    except (OSError, ValueError):
        return False
    if start.startswith(_PACKED):
        return True
    text = start.decode("utf-8-sig", errors="replace")
    return bool((text.lstrip().startswith("{") and _KEYS.search(text)) or _LIST.match(text))


def read_events(path: str | Path, take: Callable[[Event], None]) -> dict[str, Any]:
    """What stands beside the events; each event goes to `take`, and what is none is passed over."""
    reader = _Reader(str(path), _text(path))

    def event(value: Any) -> None:
        if isinstance(value, dict):
            take(value)

    start = reader.skip(0)
    if reader.text[start : start + 1] == "[":
        reader.over(reader.items(start, event, open_end=True))
        return {}
    head, end = reader.members(start, "traceEvents", event)
    reader.over(end)
    return head


def _text(path: str | Path) -> str:
    """Of bytes that are no UTF-8, as in a mangled name, only the letter is lost."""
    given = read_bytes(path)
    if given.startswith(_PACKED):
        try:
            given = gzip.decompress(given)
        except (EOFError, OSError, zlib.error) as error:
            found = "a gzip file that is cut off" if isinstance(error, EOFError) else f"a broken gzip file ({error})"
            raise InputError([Problem(str(path), found=found, expected=EXPECTED)]) from None
    text = given.decode("utf-8-sig", errors="replace")
    if not text or text.isspace():
        raise InputError([Problem(str(path), found="an empty file", expected=EXPECTED)])
    return text


class _Reader(NamedTuple):
    """The text of a file, read from left to right."""

    source: str
    text: str

    def skip(self, at: int) -> int:
        """The next place that is not blank."""
        found = _BLANK.match(self.text, at)
        return found.end() if found else at

    def over(self, at: int) -> None:
        """Nothing may follow."""
        at = self.skip(at)
        if at < len(self.text):
            raise self._problem(at, f'"{self.text[at : at + 20]}" after the end of the JSON')

    def members(self, start: int, streamed: str, item: Callable[[Any], None]) -> tuple[dict[str, Any], int]:
        """An object, and where it ends; the items of the list called `streamed` go to `item` one by one."""
        if self.text[start : start + 1] != "{":
            raise self._problem(start, f'"{self.text[start : start + 20]}"')
        others: dict[str, Any] = {}
        found = False
        at = self.skip(start + 1)
        while self.text[at : at + 1] != "}":
            name, at = self._value(at)
            at = self.skip(self._sign(at, ":"))
            if name == streamed and self.text[at : at + 1] == "[":
                at, found = self.items(at, item), True
            else:
                others[str(name)], at = self._value(at)
            at = self.skip(at)
            if self.text[at : at + 1] != "}":
                at = self.skip(self._sign(at, ","))
        if not found:
            said = ", ".join(map(json.dumps, list(others)[:4])) or "nothing in it"
            raise InputError([Problem(self.source, found=f"an object with {said}", expected=EXPECTED)])
        return others, at + 1

    def items(self, start: int, item: Callable[[Any], None], open_end: bool = False) -> int:
        """A list; where it ends. `open_end`: its end may be missing."""
        at = self.skip(start + 1)
        while self.text[at : at + 1] != "]":
            if open_end and at >= len(self.text):
                return at
            value, at = self._value(at)
            item(value)
            at = self.skip(at)
            if self.text[at : at + 1] == ",":
                at = self.skip(at + 1)
            elif self.text[at : at + 1] != "]" and not (open_end and at >= len(self.text)):
                raise self._problem(at, "an event without a comma before it")
        return at + 1

    def _sign(self, at: int, sign: str) -> int:
        """Behind a sign that must stand here."""
        at = self.skip(at)
        if self.text[at : at + 1] != sign:
            raise self._problem(at, f'"{self.text[at : at + 10]}"')
        return at + 1

    def _value(self, at: int) -> tuple[Any, int]:
        try:
            return _DECODER.raw_decode(self.text, at)
        except JSONDecodeError as error:
            cut_off = "Unterminated" in error.msg
            raise self._problem(len(self.text) if cut_off else error.pos, error.msg) from None
        except RecursionError:
            raise self._problem(at, "a value nested too deeply") from None
        except ValueError:  # sys.get_int_max_str_digits
            raise self._problem(at, "a number of thousands of digits") from None

    def _problem(self, at: int, found: str) -> InputError:
        """What is wrong at a place; where nothing follows, the file is cut off."""
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        if self.skip(at) >= len(self.text):
            found, expected = "the end of the file within the JSON: it is cut off", "a whole trace"
        else:
            expected = EXPECTED
        return InputError([Problem(self.source, "", found, expected, line=line, column=column)])
