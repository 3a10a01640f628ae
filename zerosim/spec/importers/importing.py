"""Which tool a text is of, and the way from it to a topology file; texts of other tools are refused by name."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec.importers.draft import draft_of
from zerosim.spec.importers.nccl_xml import read_nccl
from zerosim.spec.importers.plain_text import EXPECTED, decoded
from zerosim.spec.importers.seen import Seen
from zerosim.spec.importers.smi import foreign_words, read_smi
from zerosim.spec.importers.topology_text import written
from zerosim.spec.loading import parse
from zerosim.spec.topology_file import read_topology
from zerosim.spec.topology_schema import MOST_DEVICES

# Words of other tools, and what stands for them: how one looks at such a machine.
_OTHERS = (
    ("rocm-smi or amd-smi", re.compile(r"ROCm|rocm-smi|amd-smi|AMD SMI|XGMI", re.IGNORECASE)),
    ("mx-smi", re.compile(r"mx-smi|MetaX|\bMX\b", re.IGNORECASE)),
    ("npu-smi", re.compile(r"npu-smi|HCCS")),
    ("xpu-smi", re.compile(r"xpu-smi|xpumcli|\bXL\d+\b")),
    ("hl-smi", re.compile(r"hl-smi|habana", re.IGNORECASE)),
    ("cnmon", re.compile(r"cnmon|MLU-?Link", re.IGNORECASE)),
    ("lstopo", re.compile(r"^\s*Machine \(\d+\s*\w+ total|HostBridge|NUMANode L#", re.MULTILINE)),
)
STANDARD_INPUT = "standard input"
_XML = re.compile(r"<\s*(?:\?xml|!--|!DOCTYPE|!ENTITY|[A-Za-z_][\w.\-]*(?:\s+[\w:.\-]+\s*=|\s*/?>))")
_ROOTS = {"topology": "hwloc XML (lstopo)", "platform": "a SimGrid platform", "graphs": "an NCCL graph dump"}


class Imported(NamedTuple):
    """A topology file, and what its reader should know before using it."""

    text: str
    warnings: tuple[str, ...]


def import_topology(
    given: bytes, source: str, gpu: str | None = None, name: str | None = None, nodes: int = 1
) -> Imported:
    """The topology of a machine, of which a tool printed `given`; it reads back, or this is a defect that is told."""
    seen = read_seen(given, source)
    if len(seen.gpus) > MOST_DEVICES:
        raise InputError(
            [Problem(source, found=f"{len(seen.gpus)} GPUs", expected=f"at most {MOST_DEVICES} in a server")]
        )
    draft = draft_of(seen, source, nodes, gpu)
    text = written(draft, _name(name, source))
    topology = read_topology(parse(text, f"{source} as a topology"))
    return Imported(text, tuple(f"{source}: {said}" for said in (*draft.warnings, *topology.notes)))


def read_seen(given: bytes, source: str) -> Seen:
    """What a tool's output says, whichever tool it is."""
    text = decoded(given, source)
    if "<system" in text:
        start = _XML.search(text)
        begin, end = (start.start() if start else 0), text.rfind("</system>")
        head = "\n" * text.count("\n", 0, begin)  # so that lines keep their numbers
        return read_nccl(head + text[begin : end + len("</system>") if end >= 0 else None], source)
    seen = read_smi(text, source)
    if seen is None:
        raise InputError([_refused(text, source)])
    return seen


def _refused(text: str, source: str) -> Problem:
    root = re.search(r"<\s*([A-Za-z_][\w.\-]*)[\s>/]", text)
    start = _XML.search(text)
    if start is not None and root is not None and not text[: start.start()].strip():
        what = _ROOTS.get(root[1], f"XML with the root {root[1]}")
        doctype = " with a DOCTYPE" if "<!DOCTYPE" in text and root[1] not in _ROOTS else ""
        return Problem(source, "", f"{what}{doctype}", EXPECTED)
    foreign = foreign_words(text)
    words = f"{' '.join(foreign)} {text[:20000]}"
    tool = next((tool for tool, sign in _OTHERS if sign.search(words)), "")
    if tool:
        cells = f" (cells such as {foreign[0]})" if foreign else ""
        return Problem(source, "", f"the output of {tool}{cells}, which is not read", EXPECTED)
    if foreign:
        return Problem(source, "", f'a matrix with cells such as "{foreign[0]}"', EXPECTED)
    return Problem(source, "", "neither a matrix of GPUs nor a <system>", EXPECTED)


def _name(wished: str | None, source: str) -> str:
    if wished is not None:
        if not wished.strip():
            raise InputError([Problem("--name", "", f'"{wished}"', "a name")])
        return wished
    if source == STANDARD_INPUT:
        return "imported"
    stem = re.sub(r"[^A-Za-z0-9._]+", "-", PurePath(source).stem).strip("-").lower()
    return stem or "imported"
