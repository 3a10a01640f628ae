"""Lines of nccl-tests and rccl-tests: rows of figures, and what other lines say of the run.

Rule: a row is found wherever it stands in its line (behind the prefixes of launchers, quotes, indents), and believed
only where it agrees with itself: algorithm bandwidth = size / time. The layouts differ in whether there are columns for
the operation and the root, so the place of the time is the one at which that holds. Out-of-place figures are taken, as
usual; in-place ones where there are no others. Sources: nccl-tests src/common.cu, doc/PERFORMANCE.md, 2.0-2.18.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ROW = re.compile(r"(?<![\w.,:+-])(\d{1,18})\s+(\d{1,18})\s+([a-z]\w{0,15})\s+(\S.*)")
_PLACEHOLDER = re.compile(r"[Xx?]+(?:\.[Xx?]+)?|<\w+>")
_RANK = re.compile(
    r"Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d{1,9})"
    r"(?:\s+\[[^\]]{0,40}\]\s+(\S.{0,80}))?"
)
_PROGRAM = re.compile(r"(?<![A-Za-z])([A-Za-z_]{1,40}?)_perf(?![A-Za-z_])")
_INFO_RANKS = re.compile(r"\bnranks\s+(\d{1,9})", re.IGNORECASE)
_INFO_NODES = re.compile(r"\bnnodes\s+(\d{1,9})", re.IGNORECASE)
_START = re.compile(r"Collective test starting|nThread\s+\d+")
_HEADS = ("size", "algbw", "busbw")
LONGEST = 2000  # characters of a line; no benchmark prints so many, and what follows them is something else
TOLERANCE = 0.01  # of size / time against the printed bandwidth, beside the rounding of both
ROUNDING = 0.0051  # GB/s: bandwidths have two digits behind the point
GROUP = 4  # time, algbw, busbw, #wrong
Placed = Literal["out of place", "in place"]
_PLACES: tuple[tuple[int, Placed], ...] = (  # of the time among the words behind the operation, without and with a root
    (0, "out of place"), (1, "out of place"), (GROUP, "in place"), (GROUP + 1, "in place"),
)  # fmt: skip


class Row(NamedTuple):
    """Bytes and seconds, with the two bandwidths in GB/s (1e9), and the operation where there is one."""

    size: int
    seconds: float
    algbw: float
    busbw: float
    redop: str
    placed: Placed = "out of place"
    wrong: bool = False  # results that were not as expected: column #wrong


class Torn(NamedTuple):
    """A row that cannot be taken, and why."""

    why: Literal["placeholder", "empty", "torn"]


class Rank(NamedTuple):
    """A line of the list of devices."""

    number: int
    host: str
    device: int
    product: str = ""  # as its driver calls it


def lines(text: str) -> Iterator[str]:
    """Lines of a log without colours, of long ones the beginning."""
    return (_ANSI.sub("", line[:LONGEST]) for line in text.splitlines())


def heads(line: str) -> bool:
    """Whether these are the heads of the columns."""
    return all(head in line for head in _HEADS)


def starts(line: str) -> bool:
    """Whether a test begins here: its name, its options, or the heads of its columns."""
    return heads(line) or _START.search(line) is not None


def programs(line: str) -> list[str]:
    """The programs of nccl-tests named in a line, without `_perf`."""
    return _PROGRAM.findall(line)


def rank_of(line: str) -> Rank | None:
    found = _RANK.search(line)
    return Rank(int(found[1]), found[2], int(found[3]), (found[4] or "").strip()) if found else None


def info(line: str) -> tuple[int | None, int | None]:
    """Ranks and nodes, as NCCL itself tells of a communicator."""
    if "NCCL INFO" not in line:
        return None, None
    ranks, nodes = _INFO_RANKS.search(line), _INFO_NODES.search(line)
    return int(ranks[1]) if ranks else None, int(nodes[1]) if nodes else None


def row_of(line: str) -> Row | Torn | None:
    """The row in a line; None where there is none."""
    found = _ROW.search(line)
    if found is None:
        return None
    words = found[4].split()
    redop = words.pop(0) if words and words[0].isalpha() and not _missing(words[0]) else ""
    if any(_PLACEHOLDER.fullmatch(word) for word in words):
        return Torn("placeholder")
    if not words or not all(_missing(word) or _number(word) is not None for word in words[:GROUP]):
        return None if len(words) < GROUP else Torn("torn")
    size = int(found[1])
    if size == 0:
        return Torn("empty")
    return _believed(size, words, redop) or Torn("torn")


def _believed(size: int, words: list[str], redop: str) -> Row | None:
    """The figures at the place where they agree: behind a root or not, out of place or in place."""
    for start, placed in _PLACES:
        figures = [_number(word) for word in words[start : start + 3]]
        if len(figures) == 3 and None not in figures:
            time, algbw, busbw = (figure for figure in figures if figure is not None)
            if time > 0 and busbw >= 0 and _agree(size / time / 1e3, algbw):
                wrong = start + 3 < len(words) and words[start + 3].isdecimal() and int(words[start + 3]) > 0
                return Row(size, time * 1e-6, algbw, busbw, redop, placed, wrong)
    return None


def _agree(computed: float, printed: float) -> bool:
    return abs(computed - printed) <= ROUNDING + TOLERANCE * computed


def _missing(word: str) -> bool:
    return word.casefold() in ("n/a", "na")


def _number(word: str) -> float | None:
    """A finite number."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None
