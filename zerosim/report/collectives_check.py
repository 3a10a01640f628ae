"""The screen of `topology check`: what collectives take on a machine, by kind and size, and what is wrong with it.

Rule: the rows come in as `--json` has them, so text and JSON cannot differ. All tables have the same columns, so that
one can be held against another; what limits a row is told in words, shortened where room is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from zerosim.errors import Finding
from zerosim.report.bars import Pen
from zerosim.report.ladder import digits
from zerosim.report.tables import GAP, Column, cell_width, table
from zerosim.report.waits import shortened
from zerosim.report.words import INDENT, bound, counted, heading, wrapped
from zerosim.units import show_binary_size, show_seconds

Row = Mapping[str, Any]
LEAST = 1e-4  # GB/s: less is shown as less than this
LEAST_ROOM = 24  # for what limits; in less one column has to go
SEVERITY = 9  # letters of the longest severity, and a blank
_COLUMNS = (
    Column("GPUs", "right"), Column("size", "right"), Column("time", "right"), Column("algbw", "right"),
    Column("busbw", "right"), Column("algorithm"), Column("limited by"),
)  # fmt: skip


class Place(NamedTuple):
    """Where a group lies, and how many groups like it run at once."""

    gpus: int
    nodes: int
    siblings: int = 1


def render_check(
    name: str,
    places: Sequence[Place],
    rows: Sequence[Row],
    findings: Sequence[Finding] = (),
    notes: Sequence[str] = (),
    width: int = 100,
) -> str:
    """A table for each collective, then findings and assumptions."""
    lines = [*_title(name, places, width), *_tables(rows, width)]
    if findings:
        lines += heading("findings", Pen())
        lines += (line for finding in findings for line in _finding(finding, width))
    if notes:
        lines += heading("assumed", Pen())
        lines += (line for note in notes for line in wrapped(bound(note), width, INDENT, hang=INDENT))
    return "\n".join(lines) + "\n"


def finding_in_a_line(finding: Finding) -> str:
    """A finding for standard error: severity, code, what is, what to do."""
    return f"{finding.severity}: {finding.code}: {finding.message} {finding.remedy}".rstrip()


def _title(name: str, places: Sequence[Place], width: int) -> list[str]:
    if not places:
        return wrapped(f"{name}: one GPU, and no collective has anything to do.", width, "")
    where = "; ".join(_placed(place) for place in places)
    return wrapped(f"{name}: {where}. Sizes, out-of-place times and GB/s as nccl-tests has them.", width, "")


def _placed(place: Place) -> str:
    group = f"{counted(place.gpus, 'GPU')} on {counted(place.nodes, 'node')}"
    return group if place.siblings == 1 else f"{group}, {place.siblings} such groups at once"


def _tables(rows: Sequence[Row], width: int) -> Iterator[str]:
    """One table, cut where another collective begins, so that its columns stand below each other."""
    kinds = list(dict.fromkeys(row["collective"] for row in rows))
    ordered = sorted(rows, key=lambda row: kinds.index(row["collective"]))
    cells = [_cells(row) for row in ordered]
    left_out = set() if len({row["gpus"] for row in rows}) > 1 else {"GPUs"}
    if _room(cells, left_out, width) < LEAST_ROOM:
        left_out |= {"algbw"}
    room = _room(cells, left_out, width)
    head, *lines = _chosen([(*each[:-1], shortened(each[-1], room)) for each in cells], left_out).split("\n")
    before = None
    for row, line in zip(ordered, lines, strict=True):
        if row["collective"] != before:
            before = row["collective"]
            yield from ("", before, head)
        yield line


def _chosen(cells: Sequence[Sequence[str]], left_out: Set[str]) -> str:
    kept = [place for place, column in enumerate(_COLUMNS) if column.title not in left_out]
    return table([_COLUMNS[place] for place in kept], [[each[place] for place in kept] for each in cells], INDENT)


def _room(cells: Sequence[Sequence[str]], left_out: Set[str], width: int) -> int:
    """What the other columns leave to the last one."""
    others = _chosen(cells, {*left_out, _COLUMNS[-1].title})
    return width - max(map(cell_width, others.split("\n"))) - len(GAP)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row["gpus"]),
        show_binary_size(row["size_bytes"]),
        show_seconds(row["time_us"] * 1e-6),
        _bandwidth(row["algbw"]),
        _bandwidth(row["busbw"]),
        row["algorithm"],
        row["label"],
    )


def _bandwidth(rate: float) -> str:
    return digits(rate) if rate >= LEAST else f"< {LEAST:g}"


def _finding(finding: Finding, width: int) -> list[str]:
    label = f"{INDENT}{finding.severity:<{SEVERITY}}"
    first, *others = wrapped(bound(f"{finding.message} {finding.remedy}".rstrip()), width, " " * len(label))
    return [label + first[len(label) :], *others]
