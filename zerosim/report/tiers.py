"""Tables of `ladder --tiers`: the same step in HBM, DRAM and NVMe, and how larger batches spread the cost of moving."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.ladder import digits, gigabytes
from zerosim.report.tables import Column, table
from zerosim.units import show_count

Row = Mapping[str, Any]
_MOVED = ("gpu_to_dram_bytes", "dram_to_gpu_bytes", "nvme_write_bytes", "nvme_read_bytes")


def render_tiers(rows: Sequence[Row], width: int = 100) -> str:
    """One line a placement, then what each waits for."""
    columns = [
        Column("optimizer"), Column("params"), Column("fits"),
        *(Column(title, "right") for title in ("GPU GB", "DRAM GB", "NVMe GB", "down", "up", "write", "read")),
        Column("step s", "right"), Column("relative", "right"),
    ]  # fmt: skip
    lines = [table(columns, [list(_cells(row)) for row in rows]), "", *_legend(width), ""]
    room = max((len(_name(row)) for row in rows), default=0) + 2
    for row in rows:
        first, *others = textwrap.wrap(row["reason"], width - room) or [""]
        lines += [f"{_name(row):<{room}}{first}".rstrip(), *(" " * room + other for other in others)]
    return "\n".join(lines) + "\n"


def _legend(width: int) -> list[str]:
    return textwrap.wrap(
        "GPU GB: peak of a GPU; DRAM, NVMe GB: of a node. down, up, write, read: GB that a rank copies in a step from "
        "the GPU to host memory, back, to the drives, from the drives.",
        width,
    )


def _cells(row: Row) -> Iterator[str]:
    yield from (row["optimizer"], row["parameters"], "yes" if row["fits"] else "NO")
    yield from (_amount(row[key]) for key in ("gpu_bytes", "dram_bytes", "nvme_bytes"))
    yield from (_amount(row["moved"][key]) for key in _MOVED)
    yield from (digits(row["step_seconds"]), digits(row["relative_throughput"]))


def _amount(size: float) -> str:
    return gigabytes(size) if size else "-"


def _name(row: Row) -> str:
    return f"{row['optimizer']}, {row['parameters']}"


def render_amortised(rows: Sequence[Row]) -> str:
    """A line for each batch; in the columns tokens/s of each placement, and its part of that of HBM."""
    names = list(dict.fromkeys(map(_name, rows)))
    batches: dict[tuple[int, int], dict[str, Row]] = {}
    for row in rows:
        key = row["micro_batch_size"], row["gradient_accumulation_steps"]
        batches.setdefault(key, {})[_name(row)] = row
    columns = [Column("micro-batch", "right"), Column("accumulation", "right"), *(Column(n, "right") for n in names)]
    cells = [(*batch, *(_point(points[name]) for name in names)) for batch, points in batches.items()]
    return "tokens/s, and relative to all states in HBM (optimizer, parameters)\n" + table(columns, cells) + "\n"


def _point(row: Row) -> str:
    mark = "" if row["fits"] else " NO"
    return f"{show_count(row['tokens_per_second'])} {digits(row['relative_throughput'])}{mark}"
