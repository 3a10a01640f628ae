"""Words that a row says, and words that it denies: "no flash attention", "fused=False", "recompute not counted".

Rule: a word is denied by what stands right beside it, in the same clause; nothing here knows what the words are of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ON = r"(?!(?:with|but|and|plus|incl\w*|then|when|uses?|using)\b)"  # another clause begins
_NOT = (
    r"no|not(?: incl\w*| count\w*)?|non|never|without|w/o|lacks?|excl(?:\.|\w*)|ignor\w*|omit\w*|disabl\w*|instead of|"
    r"rather than"
)
_BEFORE = re.compile(rf"(?:\b(?:{_NOT})(?:[\s_-]+{_ON}[\w'-]+){{0,3}}?[\s_-]+|\bun-?)$", re.IGNORECASE)
_AFTER = re.compile(
    rf"[\w-]*(?:\s+{_ON}[\w-]+){{0,3}}?"
    r"(?:\s*[=:]\s*[\"']?(?:off|false|no|none|disabled|0)\b|[\s-]free\b|\s*[\s(]"
    r"(?:off|false|disabled|excluded|ignored|omitted|neglected|unused|"
    r"(?:(?:is|are|was|were) )?not (?:used|counted|included|enabled|on|there|available|taken))\b)",
    re.IGNORECASE,
)


def said(pattern: str, text: str) -> re.Match[str] | None:
    """The first place where the words stand and are not denied."""
    return next((hit for hit in _hits(pattern, text) if not _denied(hit)), None)


def denied(pattern: str, text: str) -> bool:
    """Whether the words stand there, and everywhere denied."""
    hits = list(_hits(pattern, text))
    return bool(hits) and all(map(_denied, hits))


def _hits(pattern: str, text: str) -> Iterable[re.Match[str]]:
    return re.finditer(pattern, text, re.IGNORECASE)


def _denied(hit: re.Match[str]) -> bool:
    before, after = hit.string[: hit.start()], hit.string[hit.end() :]
    return _BEFORE.search(before) is not None or _AFTER.match(after) is not None
