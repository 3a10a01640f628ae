"""The answer of `doctor` as text: a block a trouble, most severe first; then what else was looked at.

Rule: the troubles come in as `--json` has them, so text and JSON cannot differ. A remedy stands there as it is typed:
changes are not broken, whatever the width, so that they can be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zerosim.report.words import INDENT, bound, wrapped
from zerosim.units import show_seconds, show_size

Row = Mapping[str, Any]
LABEL = 10  # columns of `symptom`, `cause` ...
OTHERS = 4  # of what was tried, shown beside the best
TIERS = {"gpu": "GPU", "dram": "DRAM", "nvme": "NVMe"}
TIMES = 2.0  # from which on a gain is told as how many times as fast


def render_doctor(title: str, rows: Sequence[Row], clear: Sequence[tuple[str, str]], width: int = 100) -> str:
    """All of it."""
    return "".join(f"{line}\n" for line in _lines(title, rows, clear, width))


def _lines(title: str, rows: Sequence[Row], clear: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    found = "nothing found" if not rows else f"{len(rows)} trouble{'' if len(rows) == 1 else 's'} found"
    yield from wrapped(f"{title}: {found}", width, "")
    for number, row in enumerate(rows, start=1):
        yield ""
        yield from _block(number, row, width)
    yield ""
    yield "looked at, and no trouble:" if rows else "looked at:"
    room = max((len(name) for name, _ in clear), default=0) + 2
    for name, said in clear:
        yield from wrapped(bound(f"{name:<{room}}{said}"), width, INDENT, hang=" " * room)


def _block(number: int, row: Row, width: int) -> Iterator[str]:
    yield f"{number}. {row['severity']}: {row['code']}"
    yield from _part("symptom", row["symptom"], width)
    yield from _part("cause", row["cause"], width)
    if row["after"] is None:
        yield from _part("remedy", _none(row), width)
    else:
        price = f" ({row['price']})" if row["price"] else ""
        yield from _part("remedy", f"{row['remedy']}{price}:", width)
        yield from (f"{INDENT}{'':<{LABEL}}--set {_quoted(change)}" for change in row["changes"])
        yield from _base(row, width)
        yield from _part("gain", _gain(row["before"], row["after"], row["measured"]), width)
    others = [each for each in row["tried"] if each["after"] is not None and each["changes"] != row["changes"]]
    settings = [each for each in others if row["machine"] is None or each["changes"] != row["machine"]["changes"]]
    if settings:
        yield from _part("tried", "; ".join(_others(settings, row["before"])) + ".", width)
    if row["machine"] is not None:
        machine = row["machine"]
        yield from _part("machine", f"{machine['what']}: {_faster(row['before'], machine['after'])}", width)


def _part(label: str, said: str, width: int) -> Iterator[str]:
    yield from wrapped(bound(f"{label:<{LABEL}}{said}"), width, INDENT, hang=" " * LABEL)


def _base(row: Row, width: int) -> Iterator[str]:
    if row["on_top_of"]:
        yield from _part("with", "the remedy above that makes it fit, here and in the gain.", width)


def _none(row: Row) -> str:
    """Where nothing helps."""
    machine = row["machine"]["changes"] if row["machine"] else None
    played = [each for each in row["tried"] if each["after"] is not None and each["changes"] != machine]
    if not played:
        return "no change of settings is known to help."
    if len(played) == 1:
        return f"{played[0]['what']} was played and is no help."
    return f"none of the {len(played)} changes of settings that were played helps."


def _gain(before: Row, after: Row, measured: Mapping[str, str] | None) -> str:
    """Time, memory of each tier, whether it fits; what a check measures itself comes first."""
    parts = [f"{measured['before']} -> {measured['after']}"] if measured else []
    parts.append(_faster(before, after))
    tiers = dict.fromkeys((*before["peak_bytes"], *after["peak_bytes"]))
    parts += [_peak(tier, before, after) for tier in tiers]
    if not before["fits"]:
        parts.append("fits" if after["fits"] else "still does not fit")
    return "; ".join(parts) + "."


def _faster(before: Row, after: Row) -> str:
    step = f"step {show_seconds(before['step_seconds'])} -> {show_seconds(after['step_seconds'])}"
    return f"{step}, {_throughput(before, after)}"


def _throughput(before: Row, after: Row) -> str:
    ratio = after["tokens_per_second"] / before["tokens_per_second"]
    if ratio >= TIMES:
        return f"{ratio:.3g} times the tokens/s"
    return f"{100 * (ratio - 1):+.1f} % tokens/s" if abs(ratio - 1) >= 0.0005 else "the same tokens/s"


def _peak(tier: str, before: Row, after: Row) -> str:
    name = TIERS.get(tier, tier)
    capacity = {**before["capacity_bytes"], **after["capacity_bytes"]}[tier]
    was, now = before["peak_bytes"].get(tier, 0.0), after["peak_bytes"].get(tier, 0.0)
    if abs(was - now) < 0.005 * max(was, now):
        return f"{name} {show_size(now)} of {show_size(capacity)} as before"
    return f"{name} {show_size(was)} -> {show_size(now)} of {show_size(capacity)}"


def _others(tried: Sequence[Row], before: Row) -> Iterator[str]:
    """The best of the others, with their throughput; what does not fit comes last."""
    order = sorted(tried, key=lambda each: (not each["after"]["fits"], -each["after"]["tokens_per_second"]))
    for each in order[:OTHERS]:
        lacking = "" if each["after"]["fits"] else ", does not fit"
        price = f" ({each['price']})" if each["price"] else ""
        yield f"{each['what']}{price} {_throughput(before, each['after'])}{lacking}"
    if len(order) > OTHERS:
        yield f"{len(order) - OTHERS} more"


def _quoted(change: str) -> str:
    """As a shell takes it."""
    return f"'{change}'" if set(change) & set(" {}[]\"'$&;|<>*?()") else change
