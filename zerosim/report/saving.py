"""The tables of `run --save-cost`: files, what saving and loading cost, ways to load, and the share of training time.

Rule: the answer comes in as `--json` has it under `saving`, so text and JSON cannot differ.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.ladder import digits, gigabytes
from zerosim.report.tables import Column, clip, table
from zerosim.units import show_share, show_size

INDENT = "  "


def render_saving(saving: Mapping[str, Any], width: int = 100) -> str:
    """The answer as text, each line at most `width` wide."""
    return "".join(f"{clip(line, width)}\n" for line in _lines(saving, width))


def _lines(saving: Mapping[str, Any], width: int) -> Iterator[str]:
    yield ""
    yield f"saving and loading (storage: {saving['storage']})"
    yield from _files(saving["files"])
    yield ""
    yield from _operations(saving["operations"])
    yield from _wrapped(_share(saving), width)
    yield ""
    yield from _loading(saving["loading"], saving["host_capacity_bytes"])
    for finding in saving["findings"]:
        yield from _wrapped(f"{finding['severity']}: {finding['message']} {finding['remedy']}", width)
    for note in saving["notes"]:
        yield from _wrapped(f"note: {note}", width)


def _files(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    columns = (Column("file"), Column("files", "right"), Column("GB each", "right"))
    rows = [(file["name"], file["count"], gigabytes(file["bytes"])) for file in files]
    yield from table(columns, rows, INDENT).split("\n")


def _operations(operations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    columns = (
        Column(""),
        Column("s", "right"),
        Column("gather", "right"),
        Column("copy", "right"),
        Column("file", "right"),
        Column("rank 0 GB", "right"),
        Column("in all GB", "right"),
        Column("host GB", "right"),
        Column("limited by"),
    )
    rows = [
        (
            each["operation"],
            digits(each["seconds"]),
            *(digits(each[f"{part}_seconds"]) for part in ("gather", "copy", "file")),
            gigabytes(each["bytes_first_rank"]),
            gigabytes(each["bytes_total"]),
            gigabytes(each["host_peak_bytes"]) + ("" if each["fits"] else " !"),
            each["limited_by"],
        )
        for each in operations
    ]
    yield from table(columns, rows, INDENT).split("\n")


def _share(saving: Mapping[str, Any]) -> str:
    steps, share = saving["interval_steps"], show_share(saving["overhead"])
    return f"Saving every {steps} steps adds {share} to the time of training."


def _loading(loading: Sequence[Mapping[str, Any]], room: float | None) -> Iterator[str]:
    has = f"of {show_size(room)}" if room else ""
    columns = (Column("host memory of a node to load"), Column("GB", "right"), Column(has))
    rows = [(each["way"], gigabytes(each["host_peak_bytes"]), "" if each["fits"] else "NO") for each in loading]
    yield from table(columns, rows, INDENT).split("\n")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT * 2)
