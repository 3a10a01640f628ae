"""The program of a step as rows: what `ops --json` prints, and the same as a table.

Rule: a row says what a strategy wrote. It knows no seconds: a program has none until it is priced and played. The keys
are a contract with users' scripts; more may be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerosim.report.tables import Column, cell_width, clip, table
from zerosim.step import DTYPE_BYTES, Attention, Collective, HostCompute, Matmul, Op, Pass, Step, Transfer, Work
from zerosim.units import show_count, show_flops, show_size

Row = dict[str, Any]

COLUMNS = (
    Column("op", "right"),
    Column("stream"),
    Column("phase"),
    Column("micro", "right"),
    Column("layer", "right"),
    Column("kind"),
    Column("name"),
    Column("work", "right"),
    Column("dtype"),
    Column("ranks", "right"),
    Column("after"),
)
NAME = [column.title for column in COLUMNS].index("name")
SHORTEST_NAME = 12  # cells; less says nothing


def rows(steps: Sequence[Step]) -> list[Row]:
    """One mapping an op that does work, program after program and in issue order; None where a key says nothing about
    that kind of work."""
    return [row | {"program": number} for number, step in enumerate(steps) for row in _rows(step)]


def _rows(step: Step) -> list[Row]:
    told: dict[int, list[int]] = {}  # how each op is named in `after`; one that does nothing by what it waits for
    made = []
    for op in step.ops:
        after = list(dict.fromkeys(other for number in op.after for other in told[number]))
        told[op.number] = after if op.work is None else [op.number]
        if op.work is not None:
            made.append(_row(op, after, step))
    return made


def render(steps: Sequence[Step], width: int | None = None) -> str:
    """The same as a table, one line an op, ending in a line end; names are cut to come nearer to `width`. Where there
    are several programs, a table of each under the ranks that run it."""
    if len(steps) == 1:
        return _table(steps[0], width)
    tables = (f"ranks r with r mod {len(steps)} = {n}\n{_table(step, width)}" for n, step in enumerate(steps))
    return "\n".join(tables)


def _table(step: Step, width: int | None) -> str:
    cells = [_cells(row) for row in _rows(step)]
    lines = table(COLUMNS, cells)
    longest = max(map(cell_width, lines.split("\n")))
    if width is not None and longest > width:
        names = max((cell_width(str(row[NAME])) for row in cells), default=0)
        room = max(names - (longest - width), SHORTEST_NAME)
        lines = table(COLUMNS, [(*row[:NAME], clip(str(row[NAME]), room), *row[NAME + 1 :]) for row in cells])
    return lines + "\n"


def kind(work: Work | None) -> str:
    """`compute`, `host_compute`, `transfer`, or a collective's name."""
    if isinstance(work, Collective):
        return work.kind
    if isinstance(work, Transfer):
        return "transfer"
    if isinstance(work, HostCompute):
        return "host_compute"
    return "compute"


def flops(work: Work | None) -> float | None:
    """Floating-point operations of a matrix product or attention; memory-bound kernels count none."""
    return work.flops if isinstance(work, Matmul | Attention) else None


def moved_bytes(work: Work | None) -> float | None:
    """Message of a collective, size of a copy, traffic of a memory-bound kernel (HBM) or of a CPU optimizer (DRAM)."""
    if isinstance(work, Collective | Transfer):
        return work.bytes
    if isinstance(work, Pass):
        return work.hbm_bytes
    if isinstance(work, HostCompute):
        return work.dram_bytes
    return None


def _row(op: Op, after: list[int], step: Step) -> Row:
    work = op.work
    group = step.groups.get(work.group) if isinstance(work, Collective) else None
    size = moved_bytes(work)
    elements = work.elements if isinstance(work, Collective | HostCompute) else None
    return {
        "index": op.number,
        "name": op.name,
        "kind": kind(work),
        "stream": op.stream,
        "phase": op.phase,
        "micro_batch": op.micro_batch,
        "layer": op.layer,
        "elements": _whole(elements),
        "dtype": work.dtype if isinstance(work, Collective | Matmul | Attention) else None,
        "bytes": _whole(size),
        "group_size": group.size if group else None,
        "after": after,
        "group": group.name if group else None,
        "host_waits": list(op.host_waits),
        "flops": _whole(flops(work)),
        "source": work.source if isinstance(work, Transfer) else None,
        "target": work.target if isinstance(work, Transfer) else None,
        "pinned": work.pinned if isinstance(work, Transfer) else None,
        "reduces": [list(piece) for piece in op.reduces] if isinstance(work, Collective) else None,
        "gathers": list(op.gathers) if isinstance(work, Collective) else None,
    }


def _whole(value: float | None) -> float | int | None:
    """Counts are whole numbers; a float that is one is written as one."""
    return int(value) if value is not None and float(value).is_integer() else value


def _cells(row: Row) -> tuple[object, ...]:
    return (
        row["index"],
        row["stream"],
        row["phase"],
        row["micro_batch"],
        _shown(row["layer"]),
        f"{row['source']} to {row['target']}" if row["source"] else row["kind"],
        row["name"],
        _work(row),
        _shown(row["dtype"]),
        _shown(row["group_size"]),
        " ".join(str(other) for other in row["after"]),
    )


def _work(row: Row) -> str:
    """The number that tells most about the op: elements of a collective, FLOP of a product, bytes of the rest."""
    if row["dtype"] in DTYPE_BYTES and row["elements"] is not None:
        return f"{show_count(row['elements'])} elements"
    if row["flops"] is not None:
        return show_flops(row["flops"]).removesuffix("/s")
    return show_size(row["bytes"]) if row["bytes"] is not None else ""


def _shown(value: object) -> object:
    return "" if value is None else value
