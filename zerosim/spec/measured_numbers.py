"""Numbers as people write them in the cells of a table: "~1.0B", "250 ms", "1,024", "42.5 %", "~336M-384M".

A cell holds one number, or a range, with a unit of its column; words may follow that only name what is counted, and a
remark in brackets. After "unknown" what stands inside of the brackets is a guess. Rule: what is not wholly understood
is not read, and told: "10,5", "8-16" GPUs, "1.5" layers, a unit that the column has not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from zerosim.units import SECONDS

LARGEST = 1e18
_BRACKETS = re.compile(r"\(([^()]*)\)")
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?(?!,)|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?"
_ABOUT = r"(?:~|≈|(?:avg\.?|mean|median) |about |around |approx\.? |ca\.? |circa )?\s*"
_PLAIN = re.compile(rf"{_ABOUT}({_DIGITS})", re.IGNORECASE)
_UNKNOWN = re.compile(
    r"(?:unknown|unspecified|undisclosed|not (?:told|stated|reported|given|known|available|applicable|specified)|none|"
    r"null|n/?a|tbd)\b.*|[\s?–—-]*",
    re.IGNORECASE | re.DOTALL,
)
_COUNT = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_NAMES = (
    r"tokens?|tok|sequences?|seqs?|samples?|examples?|parameters|params?|layers?|blocks?|heads?|gpus?|devices?|nodes?|"
    r"micro-?batch(?:es)?|micro-?steps?|steps?|words?|per|each|in total"
)
_TIMES = {**SECONDS.units, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "msec": 1e-3, "millisecond": 1e-3,
          "milliseconds": 1e-3, "mins": 60.0, "minute": 60.0, "minutes": 60.0, "hr": 3600.0, "hour": 3600.0,
          "hours": 3600.0}  # fmt: skip
_EACH = r"(?:/|per) ?(?:step|iteration|iter|update|it)"
_PER_GPU = r"(?:/|per) ?(?:gpu|device|accelerator)"
_PER_SECOND = r"(?:/|per) ?(?:seconds?|sec|s)"
_GIB = {"": 1.0, "g": 1.0, "gb": 1.0, "gib": 1.0, "mb": 2.0**-10, "mib": 2.0**-10}
_GBPS = {f"{p}{unit}": factor * bits for p, factor in (("M", 1e-3), ("G", 1.0), ("T", 1e3)) for unit, bits in (
    ("bps", 1.0), ("b/s", 1.0), ("bit/s", 1.0), ("bE", 1.0), ("B/s", 8.0), ("Bps", 8.0))}  # fmt: skip


class Form(NamedTuple):
    """What a column holds. `units`: with their factors to the column's own; `exact`: letters large or small differ.
    `words`: what may follow, a regular expression. `whole`: an integer, and no range. `several`: "4 x 100Gbps" is
    400. `share`: above 1 it is percent."""

    units: Mapping[str, float]
    words: str = "(?!)"
    whole: bool = False
    exact: bool = False
    several: bool = False
    share: bool = False


class Read(NamedTuple):
    """`guessed`: it stands in brackets after "unknown"; `unread`: something is told that is no such number."""

    value: float | None
    guessed: bool = False
    unread: bool = False


NUMBER = Form({**_COUNT}, _NAMES)
WHOLE = Form({**_COUNT}, rf"{_NAMES}|{_PER_GPU}", whole=True)
GPUS = WHOLE._replace(  # "8x A100", "64 H100s"
    units={}, words=rf"{_NAMES}|[x×]?\s*(?:nvidia |amd )?(?:[ahvblpt]|gh|gb|mi|rtx ?)[0-9]{{1,4}}[a-z0-9 -]*s?"
)
TOKENS = WHOLE._replace(units={**_COUNT, "k": 2.0**10, "m": 2.0**20})  # sequences are powers of two
TIME = Form({unit.casefold(): factor for unit, factor in _TIMES.items()}, _EACH)
TOKEN_RATE = Form({"k": 1e3, "m": 1e6}, rf"tokens?|tok|{_PER_SECOND}|{_PER_GPU}")
SAMPLE_RATE = Form({"k": 1e3}, rf"samples?|sequences?|seqs?|examples?|{_PER_SECOND}|in total|total")
TFLOPS = Form({"": 1.0, "g": 1e-3, "t": 1.0, "p": 1e3, **{f"{p}{word}": factor for p, factor in (
    ("g", 1e-3), ("t", 1.0), ("p", 1e3)) for word in ("flops", "flop", "flop/s", "flops/s")}},
    rf"{_PER_SECOND}|{_PER_GPU}")  # fmt: skip
SHARE = Form({"%": 0.01, "percent": 0.01}, "mfu|hfu", share=True)
MEMORY = Form(_GIB, rf"{_PER_GPU}|peak|max|hbm\w*")
GBPS = Form({**_GBPS, "Gb": 1.0, "G": 1.0, "gbps": 1.0, "gbit/s": 1.0}, "(?:/|per) ?node", exact=True, several=True)


def read_number(text: str, form: Form) -> Read:
    """What a cell says: nothing, a number, a guess, or something else."""
    outside = _BRACKETS.sub(" ", text).strip()
    if not _UNKNOWN.fullmatch(outside):
        value = _whole_text(outside, form)
        return Read(value, unread=value is None)
    inside = (_first(part, form) for part in _BRACKETS.findall(text))
    value = next((value for value in inside if value is not None), None)
    return Read(value, guessed=value is not None)


def printed(text: str) -> tuple[float, float] | None:
    """The number that a cell begins with, and half of its last digit; in whatever unit."""
    hit = _PLAIN.match(text.strip())
    if hit is None:
        return None
    mantissa, _, power = hit[1].lower().replace(",", "").partition("e")
    scale = 10.0 ** int(power or 0)
    return float(mantissa) * scale, 0.5 * 10.0 ** -len(mantissa.partition(".")[2]) * scale


def range_width(text: str, form: Form) -> float:
    """Half of the width of a range over its middle; 0 for a number."""
    ends = _ends(_BRACKETS.sub(" ", text).strip(), form) or (1.0,)
    return abs(ends[-1] - ends[0]) / (ends[-1] + ends[0]) if ends[-1] + ends[0] > 0 else 0.0


def _whole_text(text: str, form: Form) -> float | None:
    ends = _ends(text, form)
    if ends is None or (len(ends) > 1 and form.whole):
        return None
    return _valid(sum(ends) / len(ends), text, form)


def _valid(value: float, text: str, form: Form) -> float | None:
    if form.share:
        value = value / 100 if value > 1 and not re.search(r"%|percent", text, re.IGNORECASE) else value
        return value if 0 < value <= 1 else None
    if not (math.isfinite(value) and 0 < value <= LARGEST) or (form.whole and value != round(value)):
        return None
    return value


def _ends(text: str, form: Form) -> tuple[float, ...] | None:
    """The number, or both of a range, which may share a unit; None where the text is something else."""
    units = _units(form)
    one = rf"{_ABOUT}({_DIGITS})\s*({units})?"
    many = r"(?:([0-9]+)\s?[x×]\s?)?" if form.several else "()"
    flags = 0 if form.exact else re.IGNORECASE
    text, error = _without_error(text, form)
    words = rf"(?:[\s,]*(?:{form.words}|avg\.?|average|mean|median))*"
    hit = re.fullmatch(rf"{many}{one}(?:\s*(?:-|–|\bto\b)\s*{one})?{words}", text, flags)
    if hit is None:
        return None
    several, low, unit, high, other = hit.groups()
    factors = (unit or (other if high else None), other or unit)
    ends = [
        float(digits.replace(",", "")) * _factor(factor, form) * int(several or 1)
        for digits, factor in zip((low, high), factors, strict=True)
        if digits
    ]
    if error is not None and len(ends) == 1:
        off = float(error[1]) * (ends[0] / 100 if error[2] == "%" else _factor(error[2] or unit, form))
        return ends[0] - off, ends[0] + off
    return tuple(ends) if error is None else None


def _without_error(text: str, form: Form) -> tuple[str, re.Match[str] | None]:
    """A text apart from its "+- 20"; the unit may stand behind that."""
    hit = None if form.whole else re.search(r"\s*(?:±|\+/?-)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)", text)
    return (text, None) if hit is None else (f"{text[: hit.start()]} {text[hit.end() :].strip()}".strip(), hit)


def _first(text: str, form: Form) -> float | None:
    """The first number that stands alone in a text."""
    hit = re.search(rf"(?<![\w.,/-])~?({_DIGITS})\s?({_units(form)})?(?![\w.]*[A-Za-z_])", text, re.IGNORECASE)
    return _valid(float(hit[1].replace(",", "")) * _factor(hit[2], form), text, form) if hit else None


def _units(form: Form) -> str:
    """Longer ones first."""
    return "|".join(re.escape(unit) for unit in sorted(filter(None, form.units), key=len, reverse=True)) or "(?!)"


def _factor(unit: str | None, form: Form) -> float:
    if not unit:
        return 1.0
    return form.units.get(unit) or form.units.get(unit.casefold()) or 1.0
