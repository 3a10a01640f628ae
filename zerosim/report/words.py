"""Words of the text reports: headings, wrapped lines, shares and counts.

Rule: what belongs together (`13.1 %`, `20 GB`) is not parted at the end of a line.
"""

from __future__ import annotations

import re
import textwrap

from zerosim.report.bars import Pen
from zerosim.units import show_size

INDENT, NO_BREAK = "  ", "\u00a0"
UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGTP]?i?[Bb](?:/s)?|[num]?s)(?!\w))")  # the blank between a number and its unit


def heading(title: str, pen: Pen) -> tuple[str, str]:
    """An empty line and the title of a section."""
    return "", pen(title, "bold")


def wrapped(content: str, width: int, indent: str, hang: str = "") -> list[str]:
    """The content in lines of at most `width`; all but the first begin with `hang`, too."""
    lines = textwrap.wrap(
        content,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(NO_BREAK, " ") for line in lines]


def unbroken(words: str) -> str:
    """Words that stay on one line."""
    return words.replace(" ", NO_BREAK)


def bound(sentence: str) -> str:
    """A sentence whose numbers keep their units."""
    return UNIT.sub(NO_BREAK, sentence)


def size(amount: float) -> str:
    """Bytes and their unit on one line."""
    return unbroken(show_size(amount))


def share(part: float, whole: float) -> str:
    """A share with one decimal, so that a column of them can be compared; `-` of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def counted(count: int, word: str) -> str:
    """`1 rank`, `2 ranks`, `3 micro-batches`."""
    plural = "es" if word.endswith("ch") else "s"
    return f"{count} {word}{'' if count == 1 else plural}"
