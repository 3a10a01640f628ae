"""A JSON text with some values changed: what is not changed stays as it was written, to the letter.

The text is scanned by Python's own decoder, so that what is a value is never guessed. A text that is no strict JSON
(hjson, which DeepSpeed reads too) is written anew, without its comments. Nothing here knows a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()

INTEGRAL = 1000  # floats from here on that are whole are written as whole numbers: 500000000, not 5e8 or 500000000.0


class _Member(NamedTuple):
    """A member of an object: where its key, its value, and what follows that, begin."""

    key: str
    key_at: int
    begin: int
    end: int


class _Edit(NamedTuple):
    begin: int
    end: int
    text: str


def edited(text: str, wanted: Mapping[str, Any]) -> str:
    """The text of an object with what differs in `wanted` changed there, and what is only there added at the end of its
    object; keys that `wanted` has not are taken out by writing all anew."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict) or _loses(data, wanted):
        return json.dumps(wanted, indent=2) + "\n"
    for edit in sorted(_edits(text, _blank(text, 0), data, wanted), reverse=True):
        text = text[: edit.begin] + edit.text + text[edit.end :]
    return text


def _loses(data: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return any(
        key not in wanted
        or (isinstance(value, dict) and isinstance(wanted[key], Mapping) and _loses(value, wanted[key]))
        for key, value in data.items()
    )


def _edits(text: str, at: int, data: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[_Edit]:
    """What to change in the object whose brace is at `at`."""
    members = list(_members(text, at))
    gap = text[at + 1 : members[0].key_at] if members else ""  # what sets members apart: lines, or blanks
    for member in members:
        before, after = data[member.key], wanted[member.key]
        if isinstance(before, dict) and isinstance(after, Mapping):
            yield from _edits(text, member.begin, before, after)
        elif before != after or isinstance(before, bool) != isinstance(after, bool):
            yield _Edit(member.begin, member.end, _dumped(after, gap))
    new = {key: value for key, value in wanted.items() if key not in data}
    if new and members:
        apart, end = gap if "\n" in gap else " ", members[-1].end
        shown = [f",{apart}{json.dumps(key)}: {_dumped(value, gap)}" for key, value in new.items()]
        yield _Edit(end, end, "".join(shown))
    elif new:
        yield _Edit(at, _DECODER.raw_decode(text, at)[1], json.dumps(new))


def _dumped(value: Any, gap: str) -> str:
    """A value on lines of its own where those beside it have such, else on one."""
    if not isinstance(value, Mapping) or "\n" not in gap:
        return json.dumps(value)
    return json.dumps(value, indent=2).replace("\n", gap[gap.rindex("\n") :])


def _members(text: str, at: int) -> Iterator[_Member]:
    at = _blank(text, at + 1)
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        begin = _blank(text, _blank(text, after) + 1)
        end = _DECODER.raw_decode(text, begin)[1]
        yield _Member(key, at, begin, end)
        at = _blank(text, end)
        at = _blank(text, at + 1) if text[at] == "," else at


def _blank(text: str, at: int) -> int:
    """Where the blanks at a place end."""
    found = _BLANK.match(text, at)
    return found.end() if found else at


def plain_counts(value: Any) -> Any:
    """Plain data in which counts are whole numbers, as DeepSpeed wants them."""
    if isinstance(value, Mapping):
        return {str(key): plain_counts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain_counts(each) for each in value]
    whole = isinstance(value, float) and value >= INTEGRAL and value == int(value)
    return int(value) if whole else value
