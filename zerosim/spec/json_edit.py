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
    for member in members:
        before, after = data[member.key], wanted[member.key]
        if isinstance(before, dict) and isinstance(after, Mapping):
            yield from _edits(text, member.begin, before, after)
        elif before != after or isinstance(before, bool) != isinstance(after, bool):
            yield _Edit(member.begin, member.end, _dumped(after, text, member.key_at))
    new = {key: value for key, value in wanted.items() if key not in data}
    if new:
        yield _added(text, at, members, new)


def _added(text: str, at: int, members: list[_Member], new: Mapping[str, Any]) -> _Edit:
    """New members behind the last one, set apart as that is from the one before it."""
    if not members:
        return _Edit(at, _DECODER.raw_decode(text, at)[1], json.dumps(new))
    first, last = members[0], members[-1]
    gap = text[at + 1 : first.key_at]
    apart = gap if "\n" in gap else " "
    shown = [f",{apart}{json.dumps(key)}: {_dumped(value, text, last.key_at)}" for key, value in new.items()]
    return _Edit(last.end, last.end, "".join(shown))


def _dumped(value: Any, text: str, at: int) -> str:
    """A value, indented as what stands at `at` where that begins its line; else on one line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    if not isinstance(value, Mapping) or line.strip():
        return json.dumps(value)
    return json.dumps(value, indent=2).replace("\n", f"\n{line}")


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
    found = _BLANK.match(text, at)
    return found.end() if found else at
