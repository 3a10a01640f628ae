"""Tables of `ladder` and `memory`: the rows that `--json` prints, in GB and with measured numbers below them.

Rule: the rows come in as `--json` has them, so text and JSON cannot differ. A measurement stands in the line below its
prediction and the deviation below that, prediction / measurement - 1 as in `validate`: a column stays a column.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zerosim.report.tables import Column, table
from zerosim.units import show_count

Row = Mapping[str, Any]
Measured = Mapping[str, Row]  # by rung: the same keys as in the row, as far as they were measured


class Figure(NamedTuple):
    """A number of a row: its key, its heading with the unit, and how it is written there."""

    key: str
    title: str
    show: Callable[[float], str]


def digits(value: float) -> str:
    """A number in a column that has its unit in the heading: 3 digits, or 4 and more before the point, no exponent."""
    if value == 0 or abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if abs(value) >= 1e-4 else f"{value:.0e}"


def gigabytes(size: float) -> str:
    """Bytes in a column of GB."""
    return digits(size / 1e9)


RUNG_FIGURES = (
    Figure("model_states_bytes", "states GB", gigabytes),
    Figure("peak_bytes", "peak GB", gigabytes),
    Figure("step_seconds", "step s", digits),
    Figure("tokens_per_second", "tokens/s", show_count),
    Figure("relative_throughput", "relative", digits),
)
LEDGER_FIGURES = (
    Figure("gpu_bytes_per_gpu", "GB per GPU", gigabytes),
    Figure("dram_bytes_per_node", "GB of DRAM per node", gigabytes),
)


def render_ladder(rows: Sequence[Row], measured: Measured | None = None, width: int = 100) -> str:
    """One line a rung, below it what was measured and the deviation; then why the rungs fit and what they wait for."""
    known = measured or {}
    columns = [Column("rung"), Column("fits"), *(Column(figure.title, "right") for figure in RUNG_FIGURES)]
    lines = [table(columns, [line for row in rows for line in _rung(row, known.get(row["rung"], {}))]), ""]
    room = max((len(row["rung"]) for row in rows), default=0) + 2
    for row in rows:
        first, *others = textwrap.wrap(row.get("reason") or "", width - room) or [""]
        lines += [f"{row['rung']:<{room}}{first}".rstrip(), *(" " * room + other for other in others)]
    return "\n".join(lines) + "\n"


def render_ledger(rows: Sequence[Row]) -> str:
    """The bytes of the model states by stage and offload."""
    columns = [Column("stage", "right"), Column("offload"), *(Column(f.title, "right") for f in LEDGER_FIGURES)]
    cells = [(row["stage"], row["offload"], *(_shown(row.get(f.key), f) for f in LEDGER_FIGURES)) for row in rows]
    return table(columns, cells) + "\n"


def _rung(row: Row, measured: Row) -> Iterator[list[str]]:
    """The line of a rung, and the two below it where something was measured."""
    yield [row["rung"], _fits(row["fits"]), *(_shown(row.get(figure.key), figure) for figure in RUNG_FIGURES)]
    if not measured:
        return
    yield ["  measured", _fits(measured.get("fits")), *(_shown(measured.get(f.key), f, "") for f in RUNG_FIGURES)]
    differs = "differs" if "fits" in measured and measured["fits"] != row["fits"] else ""
    deviations = [_deviation(row.get(figure.key), measured.get(figure.key)) for figure in RUNG_FIGURES]
    if differs or any(deviations):
        yield ["  deviation", differs, *deviations]


def _fits(answer: bool | None) -> str:
    return {True: "yes", False: "NO", None: ""}[answer]


def _shown(value: float | None, figure: Figure, missing: str = "-") -> str:
    return missing if value is None else figure.show(value)


def _deviation(predicted: float | None, measured: float | None) -> str:
    if predicted is None or not measured:
        return ""
    percent = 100 * (predicted / measured - 1)
    return f"{percent:+.1f} %" if percent < 999.95 else f"{percent:+.0f} %" if percent < 9999.5 else "> +9999 %"
