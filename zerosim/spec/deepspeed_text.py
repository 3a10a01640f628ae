"""A DeepSpeed file as DeepSpeed itself reads it: hjson, with the line and column of every key.

DeepSpeed parses with hjson and refuses equal keys (deepspeed/runtime/config.py); Hugging Face Trainer and accelerate
parse the same file as strict JSON, which is worth a finding. The positions come from hjson's own scanner: only its
reader of objects is replaced by one that remembers where each key stands, so both can never disagree. Nothing here
knows a key of DeepSpeed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hjson.decoder import HjsonDecoder, getNext, make_scanner, scanKeyName
from hjson.scanner import HjsonDecodeError

from zerosim.errors import Finding, InputError, Problem
from zerosim.spec import files
from zerosim.spec.document import DEEPEST, Document, too_deep

Place = tuple[str | int, ...]


class _Marked(dict[str, Any]):
    """An object of the file: its values, where keys and values stand in the text, and keys that stand in it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_at: dict[str | int, int] = {}
        self.values_at: dict[str | int, int] = {}
        self.again: list[tuple[str, int]] = []


def read_text(text: str, source: str) -> tuple[Document, tuple[Finding, ...]]:
    """The document, and a finding where strict JSON would refuse it."""
    data = _decode(text, source)
    if too_deep(data):
        raise InputError([Problem(source, found="brackets nested too deep", expected=f"at most {DEEPEST} levels")])
    twice = [(*path, key) for path, part in _objects(data, ()) for key, _ in part.again]
    again = {(*path, key): mark for path, part in _objects(data, ()) for key, mark in part.again}
    positions = {(*path, key): mark for path, part in _objects(data, ()) for key, mark in part.values_at.items()}
    keys = {(*path, key): mark for path, part in _objects(data, ()) for key, mark in part.keys_at.items()} | again
    document = Document(source, _plain(data), _lines(text, positions), _lines(text, keys))
    if twice:
        raise InputError(document.key_problem(path, f'the key "{path[-1]}" again', "each key once") for path in twice)
    return document, _strictness(text)


def read_file(path: Path, source: str) -> tuple[Document, tuple[Finding, ...]]:
    """As `read_text`, for a file called `source` in messages."""
    return read_text(files.read_text(path), source)


def _decode(text: str, source: str) -> Any:
    decoder = HjsonDecoder()
    decoder.parse_object = _read_object
    decoder.scan_once, decoder.scan_object_once = make_scanner(decoder)
    try:
        return decoder.decode(text)
    except HjsonDecodeError as error:
        said = error.msg.replace("%r", repr(text[error.pos : error.pos + 1])).removesuffix(" starting at")
        found = f"a syntax error ({said[:1].lower()}{said[1:]})"
        raise InputError([Problem(source, "", found, "hjson or JSON", "", error.lineno, error.colno)]) from None
    except (ValueError, IndexError, OverflowError, RecursionError):
        # hjson runs off the end of an open /* comment, and over numbers that no float can hold
        found = "an unfinished comment, a number without bound, or too deep nesting"
        raise InputError([Problem(source, found=found, expected="hjson or JSON")]) from None


def _read_object(
    state: tuple[str, int], encoding: str, strict: bool, scan: Any, hook: object, pairs: object, memo: object = None,
    bare: bool = False,
) -> tuple[_Marked, int]:  # fmt: skip
    """One object, in the steps of hjson.decoder.JSONObject; `bare` is a root without braces."""
    text, end = state
    found = _Marked()
    last = "" if bare else "}"
    char, end = getNext(text, end)
    while char != last:
        mark = end
        key, end = scanKeyName(text, end, encoding, strict)
        char, end = getNext(text, end)
        if char != ":":
            raise HjsonDecodeError("Expecting ':' delimiter", text, end)
        _, begin = getNext(text, end + 1)
        value, end = scan(text, begin)
        if key in found:
            found.again.append((key, mark))
        found[key], found.keys_at[key], found.values_at[key] = value, mark, begin
        char, end = getNext(text, end)
        if char == ",":
            char, end = getNext(text, end + 1)
    return found, end + len(last)


def _objects(data: Any, path: Place) -> Iterator[tuple[Place, _Marked]]:
    if isinstance(data, _Marked):
        yield path, data
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield from _objects(value, (*path, key))


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    return [_plain(value) for value in data] if isinstance(data, list) else data


def _lines(text: str, marks: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
    """Line and column, from 1, of places given as offsets into the text."""
    return {path: (text.count("\n", 0, mark) + 1, mark - text.rfind("\n", 0, mark)) for path, mark in marks.items()}


def _strictness(text: str) -> tuple[Finding, ...]:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        why = f"Hugging Face Trainer and accelerate read strict JSON and would refuse the DeepSpeed file: {error}"
        return (Finding("not-strict-json", "note", why, "Write strict JSON to use the file with them."),)
    return ()
