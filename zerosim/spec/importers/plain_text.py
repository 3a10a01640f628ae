"""From the bytes of a file to the text that a tool printed, without terminal escapes, with plain spaces and line ends.

Terminals underline, browsers copy hard spaces. Rule: what the text means is for others.
"""

from __future__ import annotations

import re

from zerosim.errors import InputError, Problem
from zerosim.spec.files import printed

LARGEST = 16_000_000  # bytes; a topology has some thousand lines
EXPECTED = "the text of nvidia-smi topo -m, or an NCCL topology XML"

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|\[[0-9;]{1,5}m")
_SPACES = str.maketrans({"\xa0": " ", "\u2007": " ", "\u202f": " ", "\u200b": "", "\ufeff": "", "\x00": ""})


def decoded(given: bytes, source: str) -> str:
    """The text without escapes, with plain spaces and line ends."""
    if not given.strip():
        raise InputError([Problem(source, found="an empty file", expected=EXPECTED)])
    if len(given) > LARGEST:
        raise InputError(
            [Problem(source, found=f"{len(given)} bytes", expected=f"{EXPECTED}: at most {LARGEST} bytes")]
        )
    text = printed(given)
    if text.count("\x00") > len(text) // 100:
        raise InputError([Problem(source, found="bytes that are no text", expected=EXPECTED)])
    return _ESCAPES.sub("", text).translate(_SPACES).replace("\r\n", "\n").replace("\r", "\n")
