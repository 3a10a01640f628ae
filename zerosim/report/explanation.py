"""What `explain` shows: three short tables of the answer's JSON.

Rule: the rows that are worth a line, and a line that counts the others with their sum, so that what is shown sums to
what is said. A resource keeps its rate, which is what can be bought: it loses its sharers where room is short, and is
told in more lines than one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.parts import CAUSES, sharer_name
from zerosim.report.tables import Column, cell_width, clip, pad, table
from zerosim.report.waits import SHARED
from zerosim.report.words import INDENT, bound, counted, share, unbroken, wrapped
from zerosim.units import show_seconds

Row = Mapping[str, Any]

MOST = 8  # rows of a table; a choice
HARDLY = 0.0005  # of the step: shown as 0.0 %
ROOM = 20  # cells beside a line in which a resource can be told; a choice
RATE = re.compile(r"(?:\d+ x )?[\d.]+ \S+/s")
KERNELS = ("matmul", "attention", "memory_bound")
OTHERS = ("wait_for_rank", "wait_for_stage")
ANOMALY = "ops that keep their order on shared links may meet at a worse moment, or a collective chooses otherwise"
SAME_SHARE = (
    "played with the share of the rate that is reached today (the machine is uneven, drawn or calibrated, or ports are "
    "faster without uplinks); `run --set` and `require` take what is known of faster ones, and may gain less"
)
HELD = {
    "stream": "began when its stream was free, after {by}",
    "input": "began when its input was there, after {by}",
    "device": "issued when the host had waited for {by}",
    "host": "issued when the host came to it",
    "": "",
}


def render_explanation(answer: Row, width: int = 100) -> str:
    """The answer as text; no line is wider than `width`."""
    step = answer["step_seconds"]
    lines = [*_head(answer, width), ""]
    for part in (_attribution(answer, step, width), _path(answer, step, width), _sensitivity(answer, width)):
        lines += [*part, ""]
    return "\n".join(lines[:-1]) + "\n"


def _head(answer: Row, width: int) -> Iterator[str]:
    step, compute = answer["step_seconds"], answer["compute_seconds"]
    yield clip(answer["scenario"], width)
    misfit = "" if answer["fits"] else "; does not fit in memory"
    yield f"step {show_seconds(step)}: compute {show_seconds(compute)}, without {show_seconds(step - compute)}{misfit}"


def _beside(line: str, longest: int, label: str, width: int) -> Iterator[str]:
    """A line of a table with a resource behind it, which goes on below where room is short."""
    room = width - longest - len(INDENT)
    brief = label if cell_width(label) <= room else SHARED.sub("", label)
    told = RATE.sub(lambda rate: unbroken(rate[0]), brief)
    if room < ROOM:
        yield line
        yield from wrapped(told, width, 2 * INDENT) if label else ()
        return
    first, *more = wrapped(told, room, "") if label else [""]
    yield f"{pad(line, longest)}{INDENT}{first}" if first else line
    yield from (f"{pad('', longest)}{INDENT}{words}" for words in more)


# --- where the time went ---------------------------------------------------------------------------------------------


def _attribution(answer: Row, step: float, width: int) -> Iterator[str]:
    yield "why the GPU did not compute, by what it hung on in the end"
    rows = _merged(answer["attribution"])
    worth = max(1, sum(row["seconds"] >= HARDLY * step for row in rows[:MOST]))
    named, rest = rows[:worth], rows[worth:]
    if not named:
        yield f"{INDENT}it always did"
        return
    cells = [(_what(row), show_seconds(row["seconds"]), share(row["seconds"], step)) for row in named]
    if rest:
        seconds = sum(row["seconds"] for row in rest)
        cells.append((f"{len(rest)} more", show_seconds(seconds), share(seconds, step)))
    columns = (Column(""), Column("", "right"), Column("", "right"))
    drawn = table(columns, cells, INDENT).split("\n")[1:]
    longest = max(map(cell_width, drawn))
    for line, row in zip(drawn, [*named, *[None] * bool(rest)], strict=True):
        yield from _beside(line, longest, "" if row is None else _limit(row, answer["slowest"]), width)
        if row is not None and _held(row):
            yield clip(2 * INDENT + _held(row), width)


def _merged(rows: Sequence[Row]) -> list[Row]:
    """What several other classes of ranks were computing, by cause and phase in one row."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        apart = () if row["cause"] in OTHERS else (row["op"], row["resource"])
        key = (row["cause"], row["phase"], *apart, *(() if row["cause"] == "wait_for_stage" else (row["rank_class"],)))
        kept = found.setdefault(key, {**row, "seconds": 0.0, "classes": {}, "limits": defaultdict(float)})
        kept["seconds"] += row["seconds"]
        kept["classes"][row["rank_class"]] = None
        kept["limits"][row["label"]] += row["seconds"]
    return sorted(found.values(), key=lambda row: -row["seconds"])


def _what(row: Row) -> str:
    said = CAUSES[row["cause"]] if row["cause"] in (*OTHERS, "host", "idle") else sharer_name(row["op"])
    return ", ".join(filter(None, (said, row["phase"], layers(row["layers"]))))


def layers(found: Sequence[Sequence[int]]) -> str:
    """`layers 3-31`, also where a few between are missing; nothing where there are none."""
    if not found:
        return ""
    first, last = found[0][0], found[-1][1]
    return f"layer {first}" if first == last else f"layers {first}-{last}"


def _limit(row: Row, slowest: str) -> str:
    if row["cause"] in ("host", "idle"):
        return ""
    if row["cause"] not in OTHERS:
        return str(row["label"]).removesuffix(f" ({slowest})")
    most: str = max(row["limits"], key=row["limits"].__getitem__)
    return most if len(row["classes"]) == 1 else f"{counted(len(row['classes']), 'stage')}: {most}"


def _held(row: Row) -> str:
    if row["cause"] in OTHERS:
        return ""
    by = "compute" if row["held_by"] in KERNELS else sharer_name(row["held_by"])
    return HELD[row["held"]].format(by=by)


# --- the critical path -----------------------------------------------------------------------------------------------


def _path(answer: Row, step: float, width: int) -> Iterator[str]:
    yield "the critical path: what the end of the step hung on, in order"
    rows = list(_stretches(answer["critical_path"]))
    worth = [row for row in rows if row["seconds"] >= HARDLY * step]
    named = sorted(sorted(worth, key=lambda row: -row["seconds"])[: MOST + 2], key=rows.index)
    cells = [
        (row["phase"], _part_name(row), show_seconds(row["seconds"]), share(row["seconds"], step)) for row in named
    ]
    rest = sum(row["seconds"] for row in rows) - sum(row["seconds"] for row in named)
    if len(rows) > len(named):
        cells.append(("", f"{len(rows) - len(named)} more", show_seconds(rest), share(rest, step)))
    columns = (Column(""), Column(""), Column("", "right"), Column("", "right"))
    drawn = table(columns, cells, INDENT).split("\n")[1:]
    longest = max(map(cell_width, drawn))
    labels = [row["label"] if row["op"] not in ("host", "idle") else "" for row in named]
    for line, label in zip(drawn, [*labels, *[""] * (len(drawn) - len(labels))], strict=True):
        yield from _beside(line, longest, label, width)
    yield from wrapped(bound(_slack(answer)), width, INDENT, hang=INDENT)


def _part_name(row: Row) -> str:
    said = CAUSES.get(row["op"]) or sharer_name(row["op"])
    where = layers(row["layers"])
    return f"{said}, {where}" if where else said


def _stretches(runs: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The parts of runs of one phase, whatever the micro-batch and class, in the order in which phases began."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        for part in run["parts"]:
            row = found.setdefault(
                (run["phase"], part["op"]), {"phase": run["phase"], "op": part["op"], "seconds": 0.0, "layers": []}
            )
            limits = row.setdefault("limits", defaultdict(float))
            limits[part["label"].removesuffix(f" ({run['rank_class']})")] += part["seconds"]
            row["seconds"] += part["seconds"]
            row["layers"] = _joined(row["layers"], run["layers"])
    phases = list(dict.fromkeys(phase for phase, _ in found))
    for row in sorted(found.values(), key=lambda row: (phases.index(row["phase"]), -row["seconds"])):
        yield row | {"label": max(row["limits"], key=row["limits"].__getitem__)}


def _joined(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> list[list[int]]:
    """First and last layer of both."""
    both = [*one, *other]
    return [[min(first for first, _ in both), max(last for _, last in both)]] if both else []


def _slack(answer: Row) -> str:
    """How much later could end what the step did not hang on, and what it hung on in part."""
    own = [row for row in answer["slack"]["kinds"] if row["rank_class"] == answer["slowest"] and row["seconds"]]
    several = {row["op"] for row in own if sum(other["op"] == row["op"] for other in own) > 1}
    loose = [row for row in own if 2 * row["critical"] < row["ops"]]
    if not loose:
        return "slack: none worth telling: the step hangs on most ops of every kind"
    named = sorted(loose, key=lambda row: -row["seconds"])[:5]
    said = [
        f"{sharer_name(row['op'])}{' on ' + row['stream'] if row['op'] in several else ''} {_loose(row)}"
        for row in named
    ]
    return f"slack (how much later half of them could end, and the tightest): {'; '.join(said)}"


def _loose(row: Row) -> str:
    return f"{show_seconds(row['median_seconds'])} and {show_seconds(row['least_seconds'])}"


# --- what would change it --------------------------------------------------------------------------------------------


def _sensitivity(answer: Row, width: int) -> Iterator[str]:
    yield "the step with one thing faster: priced and played anew"
    rows = [row for row in answer["sensitivity"] if max(map(abs, _gains(row))) >= HARDLY]
    if rows:
        titles = ("", "10 % faster", "2x faster", "", "free")
        columns = [Column(title, "right" if place else "left") for place, title in enumerate(titles)]
        drawn = table(columns, [_played(row) for row in rows], INDENT).split("\n")
        longest = max(map(cell_width, drawn))
        yield drawn[0]
        for line, row in zip(drawn[1:], rows, strict=True):
            yield from _beside(line, longest, row["today"], width)
    idle = [row["words"] for row in answer["sensitivity"] if row not in rows]
    if idle:
        yield from wrapped(f"nothing changes with faster {', '.join(idle)}", width, INDENT, hang=INDENT)
    for row in rows:
        if row["bounded"]:
            yield from wrapped(bound(f"2x faster {row['words']}: {row['bounded']}"), width, INDENT, hang=INDENT)
    shares = [row["words"] for row in rows if row["same_share"]]
    if shares:
        yield from wrapped(f"{', '.join(shares)}: {SAME_SHARE}", width, INDENT, hang=INDENT)
    slower = [row["words"] for row in rows if min(_gains(row)) <= -HARDLY]
    if slower:
        yield from wrapped(f"longer with faster {', '.join(slower)}: {ANOMALY}", width, INDENT, hang=INDENT)


def _gains(row: Row) -> list[float]:
    return [row[f"{name}_gain"] for name in ("faster_10_percent", "twice_as_fast", "free")]


def _played(row: Row) -> list[str]:
    tenth, twice, free = (f"{-100 * gain:+.1f} %" if abs(gain) >= HARDLY else "0.0 %" for gain in _gains(row))
    return [row["words"], tenth, show_seconds(row["twice_as_fast_seconds"]), twice, free]
