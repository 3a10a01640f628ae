"""The table of `conform`: recordings beside programs, and for each that differs both sides of the first difference.

Rule: the rows come in as `--json` has them, with the number of collectives and the notes beside; a path is shown by the
name of its file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from zerosim.report.tables import Column, table

Row = Mapping[str, Any]
_COLUMNS = (Column("recording"), Column("collectives", "right"), Column(""))


def render_conformity(rows: Sequence[Row], width: int = 100) -> str:
    """One line a recording; below them the differences, the notes, and how many match."""
    lines = [table(_COLUMNS, [(_called(row), row["collectives"], _said(row)) for row in rows])]
    for row in rows:
        lines += textwrap.wrap("; ".join([f"{_called(row)}: {note}" for note in row["notes"]]), width)
    matching = sum(row["match"] for row in rows)
    lines += ["", f"{matching} of {len(rows)} match"]
    for row in rows:
        if not row["match"]:
            lines += ["", *_difference(row, width)]
    return "\n".join(lines) + "\n"


def _called(row: Row) -> str:
    return PurePath(row["recording"]).name.removesuffix(".json")


def _said(row: Row) -> str:
    difference = row["first_difference"]
    if difference is None:
        return "match"
    return "not played" if difference.get("reason") else f"differs at {difference['index']}"


def _difference(row: Row, width: int) -> Iterator[str]:
    difference = row["first_difference"]
    if difference.get("reason"):
        yield from textwrap.wrap(f"{_called(row)}: {difference['reason']}", width)
        return
    yield f"{_called(row)}, collective {difference['index']} of {row['collectives']} (the first is 0)"
    for side in ("recorded", "simulated"):
        yield f"  {side:9}  {_shown(difference[side])}"


def _shown(side: Mapping[str, Any] | None) -> str:
    if side is None:
        return "nothing more"
    where = side["phase"] if side["micro_batch"] is None else f"{side['phase']} of micro-batch {side['micro_batch']}"
    root = "" if side["root"] is None else f" to rank {side['root']}"
    return f"{side['kind']}{root} {side['dtype']} {side['nin']} > {side['nout']}, {side['ranks']} ranks, {where}"
