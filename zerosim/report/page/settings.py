"""Settings of scenarios as rows of a table: what each key is, and on which keys scenarios differ.

Rule: a setting is written as the file would have it, by its path from the root of a scenario file. One that only some
scenarios have counts as a difference where somebody wrote it; else it is the default of a program that the others do
not run, such as another stage's bucket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

ABSENT = "-"
TITLE = "title"


def flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each value with its dotted path; lists of plain values are one value."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from flat(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping | list | tuple) for each in value):
        for index, below in enumerate(value):
            yield from flat(below, f"{path}.{index}")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, default=str)


def differing(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """The paths, but for the title, at which not all have the same, and what each has there: first those that all
    have."""
    known = [dict(flat(each)) for each in settings]
    paths = dict.fromkeys(path for each in known for path in each if path != TITLE)
    rows = [(path, [each.get(path, ABSENT) for each in known]) for path in paths]
    unlike = [(path, values) for path, values in rows if len(set(values)) > 1]
    return sorted(unlike, key=lambda row: ABSENT in row[1])


class Parted(NamedTuple):
    """Rows of what differs; and those that only some have and nobody wrote, by who has them."""

    differing: list[tuple[str, list[str]]]
    own: dict[tuple[int, ...], list[tuple[str, list[str]]]]


def parted(settings: Sequence[Mapping[str, Any]], written: Sequence[str]) -> Parted:
    """What differs, if `written` is what the user wrote for each of them."""
    found = Parted([], {})
    words = [set(re.findall(r"\w+", text)) for text in written]
    for path, values in differing(settings):
        having = tuple(index for index, value in enumerate(values) if value != ABSENT)
        key = next(part for part in reversed(path.split(".")) if not part.isdecimal())
        if len(having) == len(values) or any(key in words[index] for index in having):
            found.differing.append((path, values))
        else:
            found.own.setdefault(having, []).append((path, values))
    return found
