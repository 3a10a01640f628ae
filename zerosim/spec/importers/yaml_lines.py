"""Lines of YAML with notes: how a topology file is laid out, whatever it says.

A note stands behind its line, or above it where there is no room; what is too long for one line becomes one a key.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

WIDTH = 120


class Line(NamedTuple):
    """A line of YAML and what is to say of it."""

    text: str
    note: str = ""


def scalar(text: str) -> str:
    """A text as YAML reads it back."""
    try:
        safe = text.isprintable() and yaml.safe_load(text) == text and not set(text) & set("#:{}[],&*!|>'\"%@`")
    except yaml.YAMLError:
        safe = False
    return text if safe else json.dumps(text, ensure_ascii=True)


def shown(line: Line) -> str:
    """The note behind the line, or above it where there is no room."""
    whole = f"{line.text}  # {_printable(line.note)}" if line.note else line.text
    if len(whole) <= WIDTH:
        return f"{whole}\n"
    indent = line.text[: len(line.text) - len(line.text.lstrip())]
    return "".join([*comment(line.note, indent), f"{line.text}\n"])


def comment(text: str, indent: str) -> Iterator[str]:
    for part in textwrap.wrap(_printable(text), WIDTH - len(indent) - 2, break_long_words=False):
        yield f"{indent}# {part}\n"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def flow(pairs: Mapping[str, Any]) -> str:
    """A mapping in one line; what is empty is left out."""
    return "{" + ", ".join(f"{key}: {plain(value)}" for key, value in _held(pairs)) + "}"


def _held(pairs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in pairs.items() if value not in ("", (), None)]


def plain(value: Any) -> str:
    """A value within a line."""
    if isinstance(value, Mapping):
        return flow(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(plain, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def mapping(key: str, pairs: Mapping[str, Any], note: str) -> Iterator[Line]:
    """A section of a node in one line, or in one line a key where that is too long."""
    line = f"  {key}: {flow(pairs)}"
    if len(line) <= WIDTH:
        yield Line(line, note)
        return
    yield Line(f"  {key}:", note)
    yield from (Line(f"    {name}: {plain(value)}") for name, value in pairs.items())


def item(indent: str, pairs: Mapping[str, Any], note: str) -> Iterator[Line]:
    """An entry of a list, in one line or in one line a key."""
    line = f"{indent}- {flow(pairs)}"
    if len(line) <= WIDTH:
        yield Line(line, note)
        return
    for index, (key, value) in enumerate(_held(pairs)):
        yield Line(f"{indent}{'  ' if index else '- '}{key}: {plain(value)}", "" if index else note)
