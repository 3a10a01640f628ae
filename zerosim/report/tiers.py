"""Tables of `ladder --tiers`: the same step in HBM, DRAM and NVMe, and how larger batches spread the cost of moving."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.ladder import digits, gigabytes
from zerosim.report.tables import GAP, Column, table
from zerosim.units import show_count

Row = Mapping[str, Any]
HEAD = "optimizer, params"
_MOVED = ("gpu_to_dram_bytes", "dram_to_gpu_bytes", "nvme_write_bytes", "nvme_read_bytes")


def render_tiers(rows: Sequence[Row], width: int = 100, instead: str = "") -> str:
    """One line a placement, then what each waits for; above them what is played `instead` of the scenario's own."""
    columns = [
        Column("optimizer"), Column("params"), Column("fits"),
        *(Column(title, "right") for title in ("GPU GB", "DRAM GB", "NVMe GB", "down", "up", "write", "read")),
        Column("step s", "right"), Column("relative", "right"),
    ]  # fmt: skip
    above = [*textwrap.wrap(instead, width), ""] if instead else []
    lines = [*above, table(columns, [list(_cells(row)) for row in rows]), "", *_legend(width), ""]
    room = max((len(_name(row)) for row in rows), default=0) + 2
    for row in rows:
        first, *others = textwrap.wrap(row["reason"], width - room) or [""]
        lines += [f"{_name(row):<{room}}{first}".rstrip(), *(" " * room + other for other in others)]
    fitting = [row for row in rows if row["fits"]]
    if fitting and fitting[0] is not rows[0]:
        fastest = max(fitting, key=lambda row: row["tokens_per_second"])
        lines += ["", f"fastest that fits: {_name(fastest)}, {show_count(fastest['tokens_per_second'])} tokens/s"]
    return "\n".join(lines) + "\n"


def _legend(width: int) -> list[str]:
    return textwrap.wrap(
        "GPU GB: peak of a GPU; DRAM, NVMe GB: of a node. down, up, write, read: GB that a rank copies in a step from "
        "the GPU to host memory, back, to the drives, from the drives. relative: throughput, to the first that fits.",
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


def render_amortised(rows: Sequence[Row], width: int = 100) -> str:
    """A line for each placement, a column for each batch: tokens/s, and relative to the first that fits."""
    batches = list(dict.fromkeys((row["micro_batch_size"], row["gradient_accumulation_steps"]) for row in rows))
    names = list(dict.fromkeys(map(_name, rows)))
    points = {(_name(row), row["micro_batch_size"], row["gradient_accumulation_steps"]): _point(row) for row in rows}
    room = max(len(point) for point in points.values()) + len(GAP)
    fitting = max(1, (width - max(map(len, (HEAD, *names)))) // max(room, len("000 x 000") + len(GAP)))
    blocks = []
    for some in (batches[start : start + fitting] for start in range(0, len(batches), fitting)):
        columns = [Column(HEAD), *(Column(f"{size} x {steps}", "right") for size, steps in some)]
        blocks.append(table(columns, [[name, *(points[name, *batch] for batch in some)] for name in names]))
    head = "tokens/s, and relative to the first that fits, at micro-batch x accumulation"
    return f"{head}\n" + "\n\n".join(blocks) + "\n"


def _point(row: Row) -> str:
    mark = "" if row["fits"] else " NO"
    return f"{show_count(row['tokens_per_second'])} {digits(row['relative_throughput'])}{mark}"
