"""What `validate` prints: errors by group, what fits, the worst rows and why, what could not be played, and peers.

Rule: the answer comes in as `--json` has it, so text, Markdown and JSON cannot differ. Errors are predicted / measured
- 1: where a sign stands the direction counts, sizes have none. Colour is not needed to read any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.bars import Pen
from zerosim.report.comparison import ratio
from zerosim.report.tables import Column, table
from zerosim.report.words import INDENT, bound, counted, heading, share, wrapped
from zerosim.units import show_seconds, show_size

Row = Mapping[str, Any]
OTHER = "metric "  # how groups begin that are not of the step time
KINDS = ("quality", "study", "strategy", "gpu")
AS_SHIPPED, CALIBRATED = "as shipped", "calibrated"
NUMBERS = ("median", "p90", "bias")
MEANING = "Error: predicted / measured - 1. Median and p90: of its size; bias: median with its sign."
LEFT = (
    "The measured row of a study fixes the rate of its kernels, so its ranges hold only what else is uncertain; they "
    "are narrower than the errors of other rows."
)
LARGE = 9.995  # shares from which on no decimals are shown
NOTHING = "-"
SHORT = ("params", "seq_len", "micro_batch_per_gpu", "grad_accum", "precision", "attn_kernel", "step_time_s")


def render_validation(answer: Mapping[str, Any], width: int = 100) -> str:
    """All of it, ending in a line end."""
    pen = Pen()
    sections = {
        "step time": _groups(answer, steps=True),
        "other metrics": _groups(answer, steps=False),
        "fits in memory": _fits(answer["fits"], width),
        "ratios of two runs": _ratios(answer["rows"]),
        "rows that calibrate (apart from all statistics)": _calibrating(answer["calibrated_by"]),
        "rows that could calibrate nothing (their study and GPU stay as shipped)": _useless(
            answer["calibrated_by"], width
        ),
        "measured steps between P10 and P90": _coverage(answer, width),
        "other estimators": _peers(answer.get("peers", ()), width),
        "worst (at most two of a study's strategy)": _worst(answer["worst"], width),
        "not played": _refused(answer["refused"], width),
        "assumed": _assumed(answer["assumptions"], width),
    }
    lines = _title(answer, width)
    for title, told in sections.items():
        if content := list(told):
            lines += (*heading(title, pen), *content)
    return "\n".join(lines) + "\n"


def render_columns(columns: Sequence[Row], needed: Sequence[str], width: int) -> str:
    """The columns of a table of measurements, and a table that can be played."""
    heads = [Column("column"), Column("unit"), Column("example"), Column("")]
    cells = [(each["name"], each["unit"] or NOTHING, each["example"] or NOTHING, each["about"]) for each in columns]
    said = (
        f"Needed: {', '.join(needed)}; what else is not told is assumed. Of step_time_s, tokens_per_s_per_gpu, "
        "samples_per_s_total, tflops_per_gpu, mfu and hfu the first that is there is the step's. A number may have a "
        "unit (250 ms, 1.3B) and a remark in brackets; NA and unknown say nothing."
    )
    short = [each for each in columns if each["name"] in (*needed, *SHORT)]
    example = [",".join(each[part] for each in short) for part in ("name", "example")]
    lines = (*table(heads, cells).split("\n"), "", *wrapped(bound(said), width, ""), "", "A file that can be played:")
    return "\n".join((*lines, *example)) + "\n"


def markdown(answer: Mapping[str, Any]) -> str:
    """The groups as a table of a README."""
    names = _numbers(answer)
    heads = ["", "rows", *_heads(names)]
    rows = [[each["group"], str(each["rows"]), *_cells(each, names)] for each in answer["summary"]]
    rule = ["---", *("---:" for _ in heads[1:])]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *rows))


def signed(error: float) -> str:
    """ "+12.3 %"."""
    return f"{100 * error:+.1f} %" if abs(error) < LARGE else f"{100 * error:+.0f} %"


def _size(error: float) -> str:
    return signed(error).lstrip("+-")


def _title(answer: Mapping[str, Any], width: int) -> list[str]:
    played = {row["id"] for row in answer["rows"]} | {row["id"] for row in answer["calibrated_by"]}
    refused = len(answer["refused"])
    mode = (
        "one row of each study and GPU sets the rate of kernels" if answer["mode"] == CALIBRATED else "catalogue only"
    )
    said = (
        f"{answer['source']}: {counted(len(played), 'row')} played, {refused} not; {answer['mode']} ({mode}). {MEANING}"
    )
    return wrapped(bound(said), width, "")


# --- groups ---


def _numbers(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns; those of the catalogue alone first, where the answer is another."""
    return (*(f"as_shipped_{name}" for name in NUMBERS), *NUMBERS) if answer["mode"] == CALIBRATED else NUMBERS


def _heads(names: Sequence[str]) -> list[str]:
    """Where there are two answers, the first column of each says which one it is."""
    said = {names[0]: f"{AS_SHIPPED}: ", NUMBERS[0]: f"{CALIBRATED}: "} if len(names) > len(NUMBERS) else {}
    return [said.get(name, "") + name.removeprefix("as_shipped_") for name in names]


def _above(names: Sequence[str]) -> list[str]:
    """Where there are two answers, which one it is, above the last column of each."""
    if len(names) == len(NUMBERS):
        return [""] * len(names)
    return ["", "", AS_SHIPPED, "", "", CALIBRATED]


def _cells(group: Row, names: Sequence[str]) -> list[str]:
    return [
        NOTHING if group.get(name) is None else (signed if name.endswith("bias") else _size)(group[name])
        for name in names
    ]


def _known(group: Row, names: Sequence[str]) -> list[str]:
    """The cells, without those of a calibration that no row of the group has."""
    cells = _cells(group, names)
    if group.get("calibrated_rows") == 0:
        cells[-len(NUMBERS) :] = [NOTHING] * len(NUMBERS)
    return cells


def _groups(answer: Mapping[str, Any], steps: bool) -> Iterator[str]:
    """One table, parted where groups are of another kind, so that its columns stand below each other."""
    found = [each for each in answer["summary"] if each["group"].startswith(OTHER) != steps]
    if not found:
        return
    names = _numbers(answer)
    columns = [Column(""), *(Column(title, "right") for title in ("", *_above(names)))]
    rows = [(each["group"].removeprefix(OTHER), each["rows"], *_known(each, names)) for each in found]
    heads = ("", "rows", *(name.removeprefix("as_shipped_") for name in names))
    above, head, *lines = table(columns, [heads, *rows], INDENT).split("\n")
    yield from filter(None, (above, head))
    before = ""
    for each, line in zip(found, lines, strict=True):
        kind = each["group"].partition(" ")[0]
        if steps and kind != before and kind in KINDS:
            yield ""
        before = kind
        yield line


# --- what is not a percentile ---


def _fits(fits: Mapping[str, Any], width: int) -> Iterator[str]:
    if not fits["rows"]:
        return
    for what, all_, wrong in (
        ("ran", "ran", "ran_wrong"),
        ("ran out of memory", "out_of_memory", "out_of_memory_wrong"),
    ):
        if fits[all_]:
            right = fits[all_] - len(fits[wrong])
            tail = f"; wrong: {', '.join(fits[wrong])}" if fits[wrong] else ""
            yield from wrapped(f"{counted(fits[all_], 'row')} {what}: {right} right{tail}", width, INDENT, INDENT)
    if fits["close"]:
        said = f"{counted(len(fits['close']), 'row')} within 5 % of the limit, not counted: {', '.join(fits['close'])}"
        yield from wrapped(bound(said), width, INDENT, INDENT)


def _ratios(rows: Sequence[Row]) -> Iterator[str]:
    found = [row for row in rows if row["metric"] == "speedup"]
    if found:
        columns = [Column("row"), *(Column(name, "right") for name in ("gain measured", "gain predicted", "error"))]
        cells = [(r["id"], signed(r["measured"] - 1), signed(r["predicted"] - 1), _error(r)) for r in found]
        yield from table(columns, cells, INDENT).split("\n")


def _calibrating(every: Sequence[Row]) -> Iterator[str]:
    rows = [row for row in every if row["factor"] is not None]
    if not rows:
        return
    heads = (Column("study"), Column("GPU"), Column("row"), Column("as shipped", "right"), Column("factor", "right"))
    cells = [(r["study"], r["gpu"], r["id"], signed(r["as_shipped_error"]), f"{r['factor']:.3f}") for r in rows]
    yield from table(heads, cells, INDENT).split("\n")


def _useless(every: Sequence[Row], width: int) -> Iterator[str]:
    """Each study and GPU that stays as it is, and why."""
    for row in every:
        if row["factor"] is None:
            said = f"{row['study']}, {row['gpu']}: {row['id']}, as shipped {signed(row['as_shipped_error'])}; "
            yield from wrapped(bound(said + row["reason"]), width, INDENT, INDENT)


def _coverage(answer: Mapping[str, Any], width: int) -> Iterator[str]:
    if coverage := answer["coverage"]:
        heads = [Column(""), *(Column(name, "right") for name in ("rows", "inside", ""))]
        cells = [(r["group"], r["rows"], r["inside"], share(r["inside"], r["rows"])) for r in coverage]
        yield from table(heads, cells, INDENT).split("\n")
        if answer["mode"] == CALIBRATED:
            yield from wrapped(LEFT, width, INDENT, INDENT)


def _peers(peers: Sequence[Row], width: int) -> Iterator[str]:
    """One table, parted where the rows are others."""
    if not peers:
        return
    heads = [Column("estimator"), *(Column(name, "right") for name in ("rows", "mean", *NUMBERS))]
    cells = [
        (INDENT + r["method"], NOTHING if r["rows"] is None else r["rows"], *_cells(r, ("mean", *NUMBERS)))
        for r in peers
    ]
    head, *lines = table(heads, cells, INDENT).split("\n")
    yield head
    before = ""
    for each, line in zip(peers, lines, strict=True):
        if each["of"] != before:
            before = each["of"]
            yield INDENT + before
        yield line
    for source in dict.fromkeys(each["source"] for each in peers if each["median"] is None):
        yield from wrapped(bound(f"Only a mean is {source}"), width, INDENT, INDENT)


# --- rows ---

_SHOWS: Mapping[str, Callable[[float], str]] = {"seconds": show_seconds, "bytes": show_size, "speedup": ratio}


def _shown(metric: str, value: float) -> str:
    show = next((show for end, show in _SHOWS.items() if metric.endswith(end)), str)
    return show(value)


def _error(row: Row) -> str:
    return NOTHING if row["error"] is None else signed(row["error"])


def _worst(rows: Sequence[Row], width: int) -> Iterator[str]:
    """Each row, and why below it."""
    if not rows:
        return
    heads = [Column("row"), Column("metric"), *(Column(name, "right") for name in ("measured", "predicted", "error"))]
    cells = [
        (r["id"], r["metric"], _shown(r["metric"], r["measured"]), _shown(r["metric"], r["predicted"]), _error(r))
        for r in rows
    ]
    head, *lines = table(heads, cells, INDENT).split("\n")
    yield head
    for row, line in zip(rows, lines, strict=True):
        labels = f"{row['study']}, {row['strategy']}, {row['gpu']}, quality {row['quality']}"
        said = "; ".join(filter(None, (labels, row["reason"])))
        yield from (line, *wrapped(bound(said), width, 2 * INDENT))


def _refused(rows: Sequence[Row], width: int) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row["reason"], []).append(row["id"])
    for reason, names in reasons.items():
        yield from wrapped(bound(f"{', '.join(names)}: {reason}"), width, INDENT, INDENT)


def _assumed(assumptions: Sequence[Row], width: int) -> Iterator[str]:
    for each in assumptions:
        yield from wrapped(bound(f"{counted(each['rows'], 'row')}: {each['assumption']}"), width, INDENT, INDENT)
