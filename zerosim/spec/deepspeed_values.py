"""Single values of a DeepSpeed file, accepted and refused as DeepSpeed's pydantic models do.

An integer may be an integral float or the text of one; a boolean may be 1, "true" or "yes". Text such as "5e8" or
"500m", which DeepSpeed refuses, is understood with a remark. A word left over from a template is called what it is.
Nothing here knows which key it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from zerosim.errors import nearest
from zerosim.units import parse_count

AUTO = "auto"
LARGEST = 2**63 - 1  # the largest integer that pydantic takes from a float, and DeepSpeed's "no limit"

_INTEGER = re.compile(r"[+-]?\d+(_\d+)*(\.0*)?")
_TEMPLATE = re.compile(r"\$\{?\w+\}?,?|<\w+>,?|[A-Za-z_]\w*,")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]{2,}")
_TRUE = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "off", "0"})


class Reading(NamedTuple):
    """A value, and what DeepSpeed would say to the way it is written (empty when nothing)."""

    value: Any
    remark: str = ""


class RefusedError(ValueError):
    """The value is not of this kind: what was expected, and the nearest that is."""

    def __init__(self, expected: str, close: str = "") -> None:
        super().__init__(expected)
        self.expected, self.close = expected, close


class Kind(NamedTuple):
    """A kind of value: how it is called, and its reader. `capitals`: its own words are in capitals, so that another one
    is a wrong word rather than a placeholder."""

    name: str
    read: Callable[[Any], Reading]
    capitals: bool = False

    def __call__(self, given: Any) -> Reading:
        try:
            return self.read(given)
        except RefusedError as refusal:
            if is_template(given, not self.capitals) and not refusal.close:
                raise RefusedError(f"{refusal.expected}; this is a placeholder of a template, not filled in") from None
            raise


def is_template(given: Any, capitals: bool = True) -> bool:
    """Whether a value looks like a word that a launcher script should have replaced: `ZERO_STAGE,`, `${stage}`; with
    `capitals` also ZERO_STAGE."""
    word = given.strip() if isinstance(given, str) else ""
    return _TEMPLATE.fullmatch(word) is not None or (capitals and _CAPITALS.fullmatch(word) is not None)


def _whole(given: Any, expected: str) -> Reading:
    """An integer of any sign: pydantic's lax mode, and text with an exponent or a suffix with a remark."""
    if isinstance(given, bool | int):
        return Reading(int(given))
    if isinstance(given, float) and given.is_integer() and abs(given) <= LARGEST:
        return Reading(int(given))
    if isinstance(given, str):
        text = given.strip()
        if _INTEGER.fullmatch(text) and len(text) < 40:
            return Reading(int(text.split(".")[0]))
        return _count(text, expected)
    raise RefusedError(expected)


def _count(text: str, expected: str) -> Reading:
    try:
        value = parse_count(text)
    except ValueError:
        raise RefusedError(expected) from None
    if not value.is_integer():
        raise RefusedError(expected)
    return Reading(int(value), f'DeepSpeed refuses the text "{text}" as a number; write {int(value)}')


def _from(least: int) -> Kind:
    expected = f"an integer, {least} or more"

    def read(given: Any) -> Reading:
        reading = _whole(given, expected)
        if not least <= reading.value <= LARGEST:
            raise RefusedError(expected)
        return reading

    return Kind(expected, read)


def _boolean(given: Any) -> Reading:
    if isinstance(given, bool):
        return Reading(given)
    word = str(int(given)) if isinstance(given, int | float) and given in (0, 1) else given
    if isinstance(word, str) and word.lower() in _TRUE | _FALSE:
        return Reading(word.lower() in _TRUE)
    raise RefusedError("true or false")


def _number(given: Any) -> Reading:
    try:
        value = float(given) if isinstance(given, int | float | str) else None
    except (ValueError, OverflowError):
        value = None
    if value is None or value != value or abs(value) == float("inf"):
        raise RefusedError("a number")
    return Reading(value)


def _share(given: Any) -> Reading:
    reading = _number(given)
    if not 0 <= reading.value <= 1:
        raise RefusedError("a number from 0 to 1")
    return reading


def _text(given: Any) -> Reading:
    if isinstance(given, str):
        return Reading(given)
    raise RefusedError("text")


def _mapping(given: Any) -> Reading:
    if isinstance(given, Mapping):
        return Reading(given)
    raise RefusedError("a mapping")


def optional(kind: Kind) -> Kind:
    """The kind or null."""
    return Kind(f"{kind.name} or null", lambda given: Reading(None) if given is None else kind(given))


def one_of(*words: str) -> Kind:
    """One of these words, in this spelling."""
    expected = ", ".join(words[:-1]) + f" or {words[-1]}"

    def read(given: Any) -> Reading:
        if given in words:
            return Reading(given)
        close = nearest(given.lower(), words) if isinstance(given, str) else ""
        raise RefusedError(expected, close)

    return Kind(expected, read)


def _stage(given: Any) -> Reading:
    plain = given.strip() if isinstance(given, str) else given
    for stage in (0, 1, 2, 3):
        if not isinstance(plain, bool) and plain in (stage, str(stage)):
            return Reading(stage)
    raise RefusedError("0, 1, 2 or 3")


INTEGER = _from(0)
POSITIVE = _from(1)
SIGNED = Kind("an integer", lambda given: _whole(given, "an integer"))
BOOLEAN = Kind("true or false", _boolean)
NUMBER = Kind("a number", _number)
SHARE = Kind("a number from 0 to 1", _share)
TEXT = Kind("text", _text)
MAPPING = Kind("a mapping", _mapping)
ANYTHING = Kind("anything", Reading)
STAGE = Kind("0, 1, 2 or 3", _stage)
