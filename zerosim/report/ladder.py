"""Tables of `ladder` and `memory`: the rows that `--json` prints, in GB and with measured numbers below them.

Rule: the rows come in as `--json` has them, so text and JSON cannot differ. A measurement stands in the line below its
prediction and the deviation below that, prediction / measurement - 1 as in `validate`: a column stays a column.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from zerosim.report.tables import Column, cell_width, clip, pad, table
from zerosim.units import show_count, show_share, show_size

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
HOST_FIGURES = (Figure("dram", "DRAM GB", gigabytes), Figure("nvme", "NVMe GB", gigabytes))
OFFLOADS = {
    " + offload": "the optimizer in host memory",
    " + offload all": "the parameters too",
    " + NVMe": "both on drives",
}
TIERS = {"gpu": "a GPU", "dram": "host memory a node", "nvme": "NVMe a node"}
LEAST = 12  # columns that a name, or a sentence, keeps
NEGLIGIBLE = 5e6  # bytes that are not told; a choice
SAME = 5e-4  # changes of throughput that differ by less are told as one; a choice
LEDGER_FIGURES = (
    Figure("gpu_bytes_per_gpu", "GB per GPU", gigabytes),
    Figure("dram_bytes_per_node", "GB of DRAM per node", gigabytes),
)


def render_ladder(rows: Sequence[Row], measured: Measured | None = None, width: int = 100) -> str:
    """One line a rung, below it what was measured and the deviation; then what each waits for, why it is slower than
    the one below it, and what it costs to go on from the first that fits."""
    known = measured or {}
    host = [figure for figure in HOST_FIGURES if any(_known(row).get(figure.key) for row in rows)]
    both = len({row.get("checkpointing") for row in rows if row.get("checkpointing")}) > 1
    shown = _table(rows, known, width, both, host)
    if max(map(cell_width, shown.split("\n"))) > width:
        shown, host = _table(rows, known, width, both, []), host
    else:
        host = []
    lines = [shown, "", *_legend(rows, both, width)]
    room = max((cell_width(_label(row, both)) for row in rows), default=0) + 2
    lines += [
        line for _, some in groupby(rows, itemgetter("rung")) for line in _told(list(some), both, host, room, width)
    ]
    return "\n".join([*lines, *_choice(rows, both, width)]) + "\n"


def _table(rows: Sequence[Row], measured: Measured, width: int, both: bool, host: Sequence[Figure]) -> str:
    """Long names are cut where the line would not fit."""
    figures = (*RUNG_FIGURES[:2], *host, *RUNG_FIGURES[2:])
    columns = [Column("rung"), *([Column("ckpt")] if both else []), Column("fits")]
    columns += [Column(figure.title, "right") for figure in figures]
    lines = [line for row in rows for line in _rung(_known(row), measured.get(row["rung"], {}), figures, both)]
    shown = table(columns, lines)
    excess = max(map(cell_width, shown.split("\n"))) - width
    if excess <= 0:
        return shown
    room = max(cell_width(line[0]) for line in lines) - excess
    return table(columns, [[clip(line[0], max(room, LEAST)), *line[1:]] for line in lines])


def _known(row: Row) -> Row:
    """A row with the peaks of host tiers beside its other numbers."""
    peaks = row.get("peak_bytes_by_tier", {})
    return {**row, **{tier: peaks.get(tier) for tier in ("dram", "nvme")}}


def _legend(rows: Sequence[Row], both: bool, width: int) -> list[str]:
    """What the columns and the order say, where there is something to say."""
    said = []
    kinds = {kind for row in rows if (kind := _checkpointing(row)) != "-"}
    if both:
        said.append("Each rung without activation checkpointing (ckpt), then with it.")
    elif kinds:
        said.append(f"Activation checkpointing: {', '.join(sorted(kinds))}.")
    offloads = {word: text for word, text in OFFLOADS.items() if any(row["rung"].endswith(word) for row in rows)}
    said += [f"{word[3:]}: {text}." for word, text in offloads.items()]
    if offloads:
        said.append("Their other settings are the scenario's, or DeepSpeed's defaults.")
    if any(row.get("peak_bytes_by_tier", {}).get("dram") for row in rows):
        said.append("DRAM, NVMe: peaks of a node.")
    if any(row.get("drop") for row in rows):
        said.append("DROP: tokens/s of a GPU fall by more than 5 %.")
    return [*wrapped(" ".join(said), width), ""] if said else []


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines in which a number stays with its unit, and a word with a hyphen whole."""
    bound = re.sub(r"(\d) (?=[A-Za-z%])", "\\1\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(bound, width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _told(pair: Sequence[Row], both: bool, host: Sequence[Figure], room: int, width: int) -> Iterator[str]:
    """Why a rung fits or not and what it waits for; below, why it is slower than the rung below it. With checkpointing
    only where one of the two does not fit, or the drop has another cause."""
    fit = all(row["fits"] for row in pair)
    for row in pair:
        first = row is pair[0]
        said = [_reason(row, host)] if first or not fit else []
        if row.get("drop") and (first or row["limited_by"] != pair[0]["limited_by"]):
            alike = [other for other in pair if other is not row and other.get("drop") and first]
            said.append(_drop(row, [other for other in alike if other["limited_by"] == row["limited_by"]]))
        lines = [line for text in said for line in wrapped(text, max(width - room, LEAST)) or [""]]
        for label, line in zip([_label(row, both), *[""] * len(lines)], lines, strict=False):
            yield f"{pad(label, room)}{line}".rstrip()


def _reason(row: Row, host: Sequence[Figure]) -> str:
    """With the peaks of `host` tiers, which have no columns where the table is too wide."""
    known = _known(row)
    peaks = [f"{show_size(known[figure.key])} of {figure.title.split()[0]}" for figure in host if known[figure.key]]
    return "; ".join(filter(None, [row.get("reason") or "", " and ".join(peaks)]))


def _drop(row: Row, alike: Sequence[Row]) -> str:
    """How much less, and why; `alike` is the same with checkpointing."""
    also = "".join(f" ({_checkpointing(other)}: {show_share(-other['change'])})" for other in alike)
    return f"DROP {show_share(-row['change'])}{also} against {row['against']}: {row['because']}"


def _label(row: Row, both: bool) -> str:
    """The name, and which of two."""
    return f"{row['rung']}, {_checkpointing(row)}" if both and _checkpointing(row) != "-" else str(row["rung"])


def _checkpointing(row: Row) -> str:
    kind = row.get("checkpointing")
    return "-" if kind in (None, "none") else str(kind)


def _choice(rows: Sequence[Row], both: bool, width: int) -> Iterator[str]:
    """What going on costs from the first rung that fits."""
    if not any(row.get("checkpointing") for row in rows):
        return
    chosen = next((row for row in rows if row.get("chosen")), None)
    if chosen is None:
        yield from ("", "no rung fits")
        return
    yield from ("", f"first that fits: {_label(chosen, both)}")
    for other in chosen["next_costs"]:
        yield from wrapped(f"next: {_label(other, both)}: {_cost(other)}", width, "  ")
    if not chosen["next_costs"]:
        yield "next: there is no further rung"
    fitting = [row for row in rows if row["fits"]]
    fastest = max(fitting, key=lambda row: row["tokens_per_second"])
    if fastest is not chosen:
        quicker = fastest["tokens_per_second"] / chosen["tokens_per_second"] - 1
        yield f"fastest that fits: {_label(fastest, both)}, {_signed(quicker)} tokens/s"


def _cost(other: Row) -> str:
    """Throughput, and what limits it; memory. With more GPUs all may be quicker, and each of them slower."""
    change, each = other["throughput_change"], other["per_gpu_change"]
    speed = f"{_signed(change)} tokens/s" + (f", {_signed(each)} a GPU" if abs(each - change) > SAME else "")
    speed += f" because of {other['because']}" if other["because"] else ""
    speed = "as many tokens/s" if max(abs(change), abs(each)) < SAME else speed
    sizes = {TIERS.get(tier, tier): size for tier, size in other["freed_bytes"].items() if abs(size) >= NEGLIGIBLE}
    freed = " and ".join(f"{show_size(size)} of {tier}" for tier, size in sizes.items() if size > 0)
    taken = " and ".join(f"{show_size(-size)} of {tier}" for tier, size in sizes.items() if size < 0)
    memory = [f"frees {freed}" if freed else "", f"takes {taken}" if taken else ""]
    return "; ".join(filter(None, [speed, *memory, "" if other["fits"] else "does not fit"]))


def _signed(change: float) -> str:
    return f"{'+' if change >= 0 else '-'}{show_share(abs(change))}"


def render_ledger(rows: Sequence[Row]) -> str:
    """The bytes of the model states by stage and offload."""
    columns = [Column("stage", "right"), Column("offload"), *(Column(f.title, "right") for f in LEDGER_FIGURES)]
    cells = [(row["stage"], row["offload"], *(_shown(row.get(f.key), f) for f in LEDGER_FIGURES)) for row in rows]
    return table(columns, cells) + "\n"


def _rung(row: Row, measured: Row, figures: Sequence[Figure], both: bool) -> Iterator[list[str]]:
    """The line of a rung, and the two below it where something was measured of it as it was given."""
    kind, nothing = ([_checkpointing(row)], [""]) if both else ([], [])
    fits = _fits(row["fits"]) if row.get("built", True) else "-"
    yield [row["rung"], *kind, fits, *(_shown(row.get(figure.key), figure) for figure in figures)]
    if not measured or not row.get("as_given", True):
        return
    known = (_shown(measured.get(figure.key), figure, "") for figure in figures)
    yield ["  measured", *nothing, _fits(measured.get("fits")), *known]
    differs = "differs" if "fits" in measured and measured["fits"] != row["fits"] else ""
    deviations = [_deviation(row.get(figure.key), measured.get(figure.key)) for figure in figures]
    if differs or any(deviations):
        yield ["  deviation", *nothing, differs, *deviations]


def _fits(answer: bool | None) -> str:
    return {True: "yes", False: "NO", None: ""}[answer]


def _shown(value: float | None, figure: Figure, missing: str = "-") -> str:
    return missing if value is None else figure.show(value)


def _deviation(predicted: float | None, measured: float | None) -> str:
    if predicted is None or not measured:
        return ""
    percent = 100 * (predicted / measured - 1)
    return f"{percent:+.1f} %" if percent < 999.95 else f"{percent:+.0f} %" if percent < 9999.5 else "> +9999 %"
