"""From the bytes of a file to the text that a tool printed: encodings, terminal escapes, line ends.

PowerShell writes UTF-16, terminals underline, browsers copy hard spaces. Rule: what the text means is for others.
"""

from __future__ import annotations

import codecs
import re

from zerosim.errors import InputError, Problem

LARGEST = 16_000_000  # bytes; a topology has some thousand lines
EXPECTED = "the text of nvidia-smi topo -m, or an NCCL topology XML"

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
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
    text = _text(given)
    if text.count("\x00") > len(text) // 100:
        raise InputError([Problem(source, found="bytes that are no text", expected=EXPECTED)])
    return _ESCAPES.sub("", text).translate(_SPACES).replace("\r\n", "\n").replace("\r", "\n")


def _text(given: bytes) -> str:
    """By its mark; else UTF-16 if every other byte is zero; else UTF-8, in which wrong bytes of a log may stand."""
    for mark, encoding in _MARKS:
        if given.startswith(mark):
            return given[len(mark) :].decode(encoding, errors="replace")
    head = given[:400]
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros = head[start::2]
        if len(head) > 3 and zeros.count(0) > 0.7 * len(zeros):
            return given.decode(encoding, errors="replace")
    return given.decode("utf-8", errors="replace")
