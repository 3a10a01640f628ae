"""What `tune` found, as text: the best beside the baseline, each knob with its curve, what was searched and what not.

Rule: every sentence says something that the numbers in `Tuned.as_json()` say; that a search was not exhaustive, or that
a knob hardly matters, is an answer and is told as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.tables import Column, table
from zerosim.report.words import bound, wrapped
from zerosim.units import show_count, show_seconds, show_share, show_size

Told = Mapping[str, Any]
POINTS_SHOWN = 12  # of a front; all are in --json
HANG = "  "
_MOVES, _APART = "moves it by", "   "


def render_tune(told: Told, width: int = 100, beside: Sequence[str] = ()) -> str:
    """The whole, ending in a line end; `beside` are lines about the file that was written, with a
    command to copy, which is not wrapped."""
    parts = [
        [told["scenario"]],
        _steps(told),
        _knobs(told),
        _curves(told, width),
        _front(told),
        [*_wrapped([_searched(told), *_left_out(told)], width), *beside],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def show(value: object) -> str:
    """A value of a knob as people write it: `500M`, `true`, `25`."""
    match value:
        case None:
            return "default"
        case bool():
            return "true" if value else "false"
        case int() if value >= 10_000:
            return show_count(value)
        case float():
            return f"{value:g}"
    return str(value)


def _steps(told: Told) -> list[str]:
    """The baseline and the best, one under the other."""
    before, after = told["baseline_seconds"], told["best_seconds"]
    fits = "" if told["baseline_fits"] else f"does not fit ({told['baseline_unfit']})"
    rows = [("baseline", show_seconds(before), show_count(told["tokens"] / before), "", fits)]
    if after is None:
        return [table(_HEAD, rows), "No point of the space fits in memory."]
    gain = "" if after == before else f"{100 * (after / before - 1):+.1f} %"
    size = f"GPU peak {show_size(told['best_gpu_peak_bytes'])}"
    rows.append(("best", show_seconds(after), show_count(told["tokens"] / after), gain, size))
    return [table(_HEAD, rows)]


_HEAD = (Column(""), Column("step", "right"), Column("tokens/s", "right"), Column("", "right"), Column(""))


def _knobs(told: Told) -> list[str]:
    """What changes, and by how much the step is longer with the baseline's value instead, the others as in the best."""
    curves = {curve["knob"]: curve for curve in told["curves"]}
    rows = []
    for name, value in told["changed"].items():
        rows.append((name, show(told["before"][name]), show(value), _worth(curves.get(name))))
    if not rows:
        return [] if told["best_seconds"] is None else ["Nothing is better than the scenario as it is."]
    return [table((Column("change"), Column("from"), Column("to"), Column("with the old value, others as in the best")),
                  rows)]  # fmt: skip


def _worth(curve: Told | None) -> str:
    """What the step is with the baseline's value."""
    if curve is None:
        return "-"
    seconds = dict(map(tuple, curve["points"]))
    old, new = seconds.get(curve["baseline"]), seconds[curve["best"]]
    return "does not fit, or is refused" if old is None else f"{show_seconds(old)} ({100 * (old / new - 1):+.1f} %)"


def _curves(told: Told, width: int) -> list[str]:
    """Each knob with its values and their steps, on as many lines as they take; the best's in brackets."""
    if not told["curves"]:
        return []
    room = width - max(len(curve["knob"]) for curve in told["curves"]) - len(_MOVES) - 4
    rows = []
    for curve in told["curves"]:
        first, *more = _lines(curve, room)
        rows += [(curve["knob"], _flat(curve), first), *(("", "", line) for line in more)]
    heading = "Step against each knob around the best, the others fixed ([best]; - does not fit, or is refused):"
    return [heading, table((Column("knob"), Column(_MOVES, "right"), Column("value: step")), rows)]


def _flat(curve: Told) -> str:
    alone = sum(seconds is not None for _, seconds in curve["points"]) < 2
    return "-" if alone else "flat (< 1 %)" if curve["flat"] else show_share(curve["span"])


def _lines(curve: Told, room: int) -> list[str]:
    lines: list[str] = []
    for value, seconds in curve["points"]:
        text = f"{show(value)}: {'-' if seconds is None else show_seconds(seconds)}"
        text = f"[{text}]" if value == curve["best"] else text
        if lines and len(lines[-1]) + len(text) + len(_APART) <= room:
            lines[-1] += _APART + text
        else:
            lines.append(text)
    return lines


def _front(told: Told) -> list[str]:
    """Points than which none is both faster and smaller."""
    if not told["pareto"]:
        return []
    before = told["before"]
    rows = [
        (show_seconds(each["seconds"]), show_size(each["gpu_peak_bytes"]), ", ".join(_differences(each, before)))
        for each in told["pareto"][:POINTS_SHOWN]
    ]
    more = len(told["pareto"]) - len(rows)
    below = [f"{more} more are in --json."] if more else []
    heading = "No point is both faster and smaller than one of these (time, GPU memory):"
    columns = (Column("step", "right"), Column("GPU peak", "right"), Column("changes of the baseline"))
    return [heading, table(columns, rows), *below]


def _differences(each: Told, before: Told) -> Iterator[str]:
    changed = [f"{name} {show(value)}" for name, value in each["knobs"].items() if value != before[name]]
    yield from changed or ["none"]


def _searched(told: Told) -> str:
    """How the best was found, and how sure that is."""
    counts = [
        (told["evaluated"], "played"),
        (told["pruned"], "cannot win (their least time is no better)"),
        (told["too_large"], "too large for a tier"),
        (told["alike"], "alike to one that was played"),
        (told["refused"], "refused by the framework"),
    ]
    shown = ", ".join(f"{count} {what}" for count, what in counts if count)
    if told["optimizer"] == "optuna":
        return f"Searched by Optuna (TPE, seed {told['seed']}), then knob by knob: {shown}. Not exhaustive."
    if told["exhaustive"]:
        return f"All {told['points']} points of the grid: {shown}. The best is exact."
    return (
        f"Searched block by block: of {told['points']} points of the grid {told['looked_at']} were looked at: {shown}. "
        f"Not exhaustive: the best of each block of knobs with the others fixed"
        f"{'' if told['converged'] else ', as far as --limit allowed'}; name fewer knobs (--knob) to be exact."
    )


def _left_out(told: Told) -> Iterator[str]:
    if told["not_searched"]:
        reasons = "; ".join(f"{each['name']} ({each['reason']})" for each in told["not_searched"])
        yield f"Not searched: {reasons}."
    flat = [curve["knob"] for curve in told["curves"] if curve["flat"]]
    if flat:
        yield f"Flat, so that any of the values that fit will do: {', '.join(flat)}."


def _wrapped(sentences: Sequence[str], width: int) -> list[str]:
    return [line for each in sentences for line in wrapped(bound(each), width, "", HANG)]
