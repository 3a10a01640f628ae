"""Tables of `ladder` and `memory`: the rows that `--json` prints, in GB and with measured numbers beside them.

Rule: the rows come in as `--json` has them, so text and JSON cannot differ. A deviation is prediction / measurement
minus 1, as in `validate`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from zerosim.report.tables import Column, table

Row = Mapping[str, Any]
Measured = Mapping[str, Row]  # by rung: the same keys as in the row, as far as they were measured


class Figure(NamedTuple):
    """A number of a row: its key, its heading with the unit, and what the number is divided by for that unit."""

    key: str
    title: str
    unit: float = 1.0


RUNG_FIGURES = (
    Figure("model_states_bytes", "model states GB", 1e9),
    Figure("peak_bytes", "peak GB", 1e9),
    Figure("step_seconds", "step s"),
    Figure("tokens_per_second", "tokens/s"),
    Figure("relative_throughput", "relative throughput"),
)
LEDGER_FIGURES = (
    Figure("gpu_bytes_per_gpu", "GB per GPU", 1e9),
    Figure("dram_bytes_per_node", "GB of DRAM per node", 1e9),
)


def render_ladder(rows: Sequence[Row], measured: Measured | None = None) -> str:
    """One line a rung; beside each number that was measured, the measurement and the deviation. Then why they fit."""
    known = measured or {}
    beside = {key for row in known.values() for key in row}
    columns = [Column("rung"), Column("fits"), *([Column("measured")] if "fits" in beside else [])]
    for figure in RUNG_FIGURES:
        columns.append(Column(figure.title, "right"))
        columns += [Column("measured", "right"), Column("deviation", "right")] if figure.key in beside else []
    lines = [table(columns, [_rung(row, known.get(row["rung"], {}), beside) for row in rows])]
    lines += [f"{row['rung']}: {row['reason']}" for row in rows if row.get("reason")]
    return "\n".join(lines) + "\n"


def render_ledger(rows: Sequence[Row]) -> str:
    """The bytes of the model states by stage and offload."""
    columns = [Column("stage", "right"), Column("offload"), *(Column(f.title, "right") for f in LEDGER_FIGURES)]
    cells = [(row["stage"], row["offload"], *(_shown(row.get(f.key), f) for f in LEDGER_FIGURES)) for row in rows]
    return table(columns, cells) + "\n"


def digits(value: float) -> str:
    """A number in a column that has its unit in the heading: 3 digits, or 4 and more before the point, no exponent."""
    if value == 0 or abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if abs(value) >= 1e-4 else f"{value:.0e}"


def _rung(row: Row, measured: Row, beside: Collection[str]) -> list[str]:
    cells = [row["rung"], _fits(row["fits"])]
    if "fits" in beside:
        cells.append(_fits(measured.get("fits")))
    for figure in RUNG_FIGURES:
        predicted, known = row.get(figure.key), measured.get(figure.key)
        cells.append(_shown(predicted, figure))
        if figure.key in beside:
            cells += [_shown(known, figure), _deviation(predicted, known)]
    return cells


def _fits(answer: bool | None) -> str:
    return {True: "yes", False: "NO", None: "-"}[answer]


def _shown(value: float | None, figure: Figure) -> str:
    return "-" if value is None else digits(value / figure.unit)


def _deviation(predicted: float | None, measured: float | None) -> str:
    return f"{100 * (predicted / measured - 1):+.1f} %" if predicted is not None and measured else "-"
