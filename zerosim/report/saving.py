"""The tables of `run --save-cost`: files, what saving and loading cost, host memory, and the share of training time.

Rule: the answer comes in as `--json` has it under `saving`, so text and JSON cannot differ. No line is wider than what
there is: long words on what limits go on in the next line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.ladder import digits, gigabytes
from zerosim.report.tables import Column, cell_width, clip, table
from zerosim.report.words import INDENT, bound, wrapped
from zerosim.units import show_share, show_size

WIDE = 90  # from which on a column of words has room beside the numbers


def render_saving(saving: Mapping[str, Any], width: int = 100) -> str:
    """The answer as text, each line at most `width` wide."""
    return "".join(f"{clip(line, width)}\n" for line in _lines(saving, width))


def _lines(saving: Mapping[str, Any], width: int) -> Iterator[str]:
    yield ""
    yield from wrapped(bound(f"saving and loading (storage: {saving['storage']})"), width, "", hang=INDENT)
    yield from _files(saving["files"], width)
    yield ""
    yield from _operations(saving["operations"], width)
    yield from _wrapped(_share(saving), width)
    yield ""
    yield from _host_memory(saving, width)
    for finding in saving["findings"]:
        yield from _wrapped(f"{finding['severity']}: {finding['message']} {finding['remedy']}".rstrip(), width)
    for note in saving["notes"]:
        yield from _wrapped(f"note: {note}", width)


def _files(files: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    columns = (Column("file"), Column("files", "right"), Column("GB each", "right"))
    yield from _table(columns, [(file["name"], str(file["count"]), gigabytes(file["bytes"])) for file in files], width)


def _operations(operations: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Seconds, bytes and what limits; the latter two below the table where it would become too wide."""
    columns = [Column(""), *(Column(title, "right") for title in ("total s", "gather s", "GPU copy s", "file s"))]
    parts = ("seconds", "gather_seconds", "copy_seconds", "file_seconds")
    rows = [(each["operation"], *(digits(each[part]) for part in parts)) for each in operations]
    sizes = [gigabytes(each["bytes_total"]) for each in operations]
    if width < WIDE:
        yield from _table(columns, rows, width)
        for each, size in zip(operations, sizes, strict=True):
            yield from _wrapped(f"{each['operation']}: {size} GB in all; limited by {each['limited_by']}", width)
        return
    columns += [Column("GB in all", "right"), Column("limited by")]
    whole = [(*row, size, each["limited_by"]) for row, size, each in zip(rows, sizes, operations, strict=True)]
    yield from _table(columns, whole, width, flexible=-1)


def _share(saving: Mapping[str, Any]) -> str:
    steps, share = saving["interval_steps"], show_share(saving["overhead"])
    return f"Saving every {steps} steps adds {share} to the time of training."


def _host_memory(saving: Mapping[str, Any], width: int) -> Iterator[str]:
    """The most that a node's host memory holds: while a checkpoint is saved or loaded, or a model comes in."""
    room: float | None = saving["host_capacity_bytes"]
    columns = [Column("host memory of a node to ..."), Column("GB", "right")]
    columns += [] if room is None else [Column(f"fits into {show_size(room)}")]
    needs = [(each["operation"], each) for each in saving["operations"]]
    needs += [(each["way"], each) for each in saving["loading"]]
    rows = [(name, gigabytes(each["host_peak_bytes"]), "yes" if each["fits"] else "NO") for name, each in needs]
    yield from _table(columns, [row[: len(columns)] for row in rows], width)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, flexible: int = 0) -> Iterator[str]:
    """A table of at most `width`, in which the cells of one column go on in the next line where they are too long."""
    narrow = [[*row] for row in rows]
    for cells in narrow:
        cells[flexible] = ""
    used = max(map(cell_width, table(columns, narrow, INDENT).split("\n")))
    room = width - used + cell_width(columns[flexible].title)
    lines: list[list[str]] = []
    for row in rows:
        pieces = textwrap.wrap(row[flexible], max(room, cell_width(columns[flexible].title))) or [""]
        block = [list(row), *([""] * len(row) for _ in pieces[1:])]
        for cells, piece in zip(block, pieces, strict=True):
            cells[flexible] = piece
        lines += block
    yield from table(columns, lines, INDENT).split("\n")


def _wrapped(text: str, width: int) -> list[str]:
    return wrapped(bound(text), width, INDENT, hang=INDENT)
