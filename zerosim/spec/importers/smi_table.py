"""The tables in the text of `nvidia-smi topo`: who stands in which row and column, and what stands in each cell.

A table is found by its header (GPU0 GPU1 ...) wherever it stands: behind prompts, prefixes of launchers, in markdown.
Columns may be glued or wrapped, cells empty, rows short or cut. Rule: what a cell means is for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

LINKED = r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV\d{1,6}"
PEER = r"OK|CNS|GNS|TNS|NS|DR|U"  # of topo -p2p
_CELL = re.compile(rf"(?:{LINKED}|{PEER})", re.IGNORECASE)
_GLUED = re.compile(rf"(?:{LINKED})+?(?=$|\d+[-,])", re.IGNORECASE)
_FOREIGN = re.compile(r"[A-Z]{2,}\d*")
_NAME = re.compile(r"(?=[^\s]*\d)[A-Za-z][\w.\-]*")
_GPU = re.compile(r"GPU\d+", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:GPU|NIC)\d+", re.IGNORECASE)
_HEADINGS = re.compile(
    r"Node\s*Affinity|CPU\s*Affinity|NUMA\s*Affinity|GPU\s*NUMA\s*ID|CPU\b|NUMA\b|Affinity|\bID\b", re.IGNORECASE
)
_LEGEND = re.compile(r"\s*(NIC\d+)\s*[:=]\s*(\S+)\s*")
_CUT = re.compile(r"(?<=\s)(?:N|NO|NOD|NV|P|PH|PI|PS|PX|S|SO|SY)\s*\Z")  # a cell that the end of the text cut in two
_AFFINITY = re.compile(r"\d[\d,\-]*,?|N/?A", re.IGNORECASE)


@dataclass
class Table:
    """Cells by row and column name, upper case; `affinity` and `numa` by row. `foreign` are words that no cell of
    nvidia-smi has."""

    columns: list[str]
    cells: dict[tuple[str, str], str] = field(default_factory=dict)
    affinity: dict[str, str] = field(default_factory=dict)
    numa: dict[str, str] = field(default_factory=dict)
    own_memory: dict[str, str] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def own_memory_is_told(self) -> bool:
        """Whether the memory of GPUs is a NUMA node, as where NVLink-C2C joins them to their CPU."""
        return any(said.isdecimal() for said in self.own_memory.values())

    @property
    def of_peers(self) -> bool:
        """Whether it tells which peers may copy (topo -p2p), not how they are joined."""
        return any(re.fullmatch(PEER, cell) for cell in self.cells.values())


@dataclass
class _Header:
    columns: list[str]
    starts: list[int]
    headings: list[str]


def tables(text: str) -> tuple[list[Table], dict[str, str], str]:
    """The tables in order, the names of NICs by the legend, and all text that belongs to none."""
    found: list[Table] = []
    legend: dict[str, str] = {}
    rest: list[str] = []
    header: _Header | None = None
    for line in map(_plain, _CUT.sub("", text).split("\n")):
        named = _header(line)
        if named and header and not found[-1].rows and named.columns[0] not in header.columns:
            header = _wrapped(header, named)
            found[-1].columns = header.columns
        elif named and (not header or found[-1].rows or _GPU.fullmatch(named.columns[0])):
            header = named
            found.append(Table(named.columns))
        elif header and not found[-1].rows and _more_header(line):
            header = _wrapped(header, _names(line))
            found[-1].columns = header.columns
        elif header and (_row(line, header, found[-1]) or _rest_of_row(line, header, found[-1])):
            pass
        elif hit := _LEGEND.fullmatch(line):
            legend[hit[1].upper()] = hit[2]
        else:
            rest.append(line)
    return [table for table in found if table.rows or table.foreign], legend, "\n".join(rest)


def _plain(line: str) -> str:
    """A line of markdown as tabs, without its bold and code marks."""
    if line.strip().startswith("|") and line.count("|") > 2:
        line = line.strip()[1:].removesuffix("|").replace("|", "\t")
    return line.replace("`", "").replace("**", "")


# --- headers ---


def _header(line: str) -> _Header | None:
    """Names of GPUs one after the other, and of NICs, before the headings of affinity."""
    first = _GPU.search(line)
    if first is None or _CELL.fullmatch((line[first.end() :].split() or [""])[0]):
        return None
    names = _names(line[first.start() :], first.start())
    words = len(_HEADINGS.split(line[first.start() :])[0].split())
    alone = len(names.columns) == 1 and not names.headings and line.strip() != first[0]
    counted = [name for name in names.columns if _GPU.fullmatch(name)]
    return names if counted and words <= len(names.columns) and not alone else None


def _names(text: str, offset: int = 0) -> _Header:
    heading = _HEADINGS.search(text)
    before = text[: heading.start()] if heading else text
    split = re.sub(r"(?<=\d)(?=GPU\d|NIC\d|mlx\d)", " ", before)  # glued columns
    moved = offset if split == before else -(10**6)
    found = [hit for hit in _NAME.finditer(split) if not _CELL.fullmatch(hit[0])]
    columns = [hit[0].upper() if _NUMBERED.fullmatch(hit[0]) else hit[0] for hit in found]
    after = [" ".join(hit[0].upper().split()) for hit in _HEADINGS.finditer(text)]
    return _Header(columns, [hit.start() + moved for hit in found], after)


def _more_header(line: str) -> bool:
    """A line of names or headings only, which the header was wrapped into."""
    words = _HEADINGS.sub(" ", line).replace("GPU ", " ").split()
    return bool(line.strip()) and all(_NAME.fullmatch(word) and not _CELL.fullmatch(word) for word in words)


def _wrapped(first: _Header, more: _Header) -> _Header:
    return _Header([*first.columns, *more.columns], [], [*first.headings, *more.headings])


# --- rows ---


def _row(line: str, header: _Header, table: Table) -> bool:
    """Whether the line is a row; if so, it is entered."""
    for hit in re.finditer(r"(?<![\w.\-])[A-Za-z][\w.\-]*\d[\w.\-]*", line):
        name = hit[0].upper() if _NUMBERED.fullmatch(hit[0]) else hit[0]
        if name not in header.columns and not _NUMBERED.fullmatch(name):
            continue
        words = line[hit.end() :].split()
        if not words or not (_cells_of(words[0]) or _foreign(words)):
            return False
        _enter(name, line[hit.end() :], hit.end(), header, table)
        return True
    return False


def _foreign(words: Sequence[str]) -> list[str]:
    """Cells that another tool writes: XGMI, MX, HCCS."""
    return [word for word in words if _FOREIGN.fullmatch(word) and not _cells_of(word)]


def _enter(name: str, text: str, offset: int, header: _Header, table: Table) -> None:
    words = text.split()
    table.foreign += _foreign(words)
    cells, tail = _split(words)
    if not cells:
        return
    table.rows.append(name)
    placed = _placed(name, text, offset, cells, bool(tail), header)
    for column, cell in placed.items():
        table.cells[name, column] = cell
    if "\t" in text and header.headings:
        tail = _behind(text.split("\t")[1:], len(header.columns)) or tail
    _enter_tail(name, tail, header, table)


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The cells that a row begins with, glued ones taken apart, and the words behind them."""
    cells: list[str] = []
    for place, word in enumerate(words):
        own = _cells_of(word)
        if not own:
            return cells, list(words[place:])
        cells += own
        behind = word[sum(map(len, own)) :]
        if behind:
            return cells, [behind, *words[place + 1 :]]
    return cells, []


def _cells_of(word: str) -> list[str]:
    """One cell, several that a terminal glued together, or cells with an affinity glued to them."""
    if _CELL.fullmatch(word):
        return [word.upper()]
    glued = _GLUED.match(word)
    if glued is None or (glued.end() < len(word) and not _AFFINITY.fullmatch(word[glued.end() :])):
        return []
    return [cell.upper() for cell in re.findall(LINKED, glued[0], re.IGNORECASE)]


def _placed(name: str, text: str, offset: int, cells: Sequence[str], has_tail: bool, header: _Header) -> dict[str, str]:
    """The cells by column: in order; where some are empty, by tabs or by where they stand under the header."""
    columns = header.columns
    in_order = dict(zip(columns, cells, strict=False))
    if len(cells) >= len(columns):
        return in_order
    for guess in (_by_tabs(text, columns), _by_place(text, offset, header) if has_tail else {}):
        if guess and (guess.get(name, "X") == "X" or name not in columns):
            return guess
    return in_order


def _by_tabs(text: str, columns: Sequence[str]) -> dict[str, str]:
    fields = [field.strip() for field in text.split("\t")][1:]
    if len(fields) < len(columns):
        return {}
    held = {column: _cells_of(said) for column, said in zip(columns, fields, strict=False) if said}
    return {column: cells[0] for column, cells in held.items() if len(cells) == 1}


def _behind(fields: Sequence[str], columns: int) -> list[str]:
    """The fields behind the cells, of which a field may hold several, or none on the diagonal."""
    held = 0
    for place, said in enumerate(fields):
        if held >= columns:
            return [field.replace(" ", "") for field in fields[place:]]
        held += max(1, sum(len(_cells_of(word)) for word in said.split()))
    return []


def _by_place(text: str, offset: int, header: _Header) -> dict[str, str]:
    starts = header.starts
    if not starts or starts[0] < 0 or len(starts) < 2:
        return {}
    reach = min(b - a for a, b in pairwise(starts)) / 2
    guess: dict[str, str] = {}
    for hit in re.finditer(r"\S+", text):
        if not _CELL.fullmatch(hit[0]):
            break
        place = min(range(len(starts)), key=lambda index: abs(starts[index] - hit.start() - offset))
        if abs(starts[place] - hit.start() - offset) > reach or header.columns[place] in guess:
            return {}
        guess[header.columns[place]] = hit[0].upper()
    return guess


def _rest_of_row(line: str, header: _Header, table: Table) -> bool:
    """Whether the line goes on where the last row was wrapped."""
    words = line.split()
    if not words or not table.rows:
        return False
    name = table.rows[-1]
    open_columns = header.columns[sum((name, column) in table.cells for column in header.columns) :]
    cells, tail = _split(words)
    if not all(_AFFINITY.fullmatch(word) for word in tail) or len(cells) > len(open_columns):
        return False
    if not cells and (open_columns or name in table.affinity or not header.headings):
        return False
    table.cells.update({(name, column): cell for column, cell in zip(open_columns, cells, strict=False)})
    _enter_tail(name, tail, header, table)
    return True


def _enter_tail(name: str, tail: Sequence[str], header: _Header, table: Table) -> None:
    """Affinity, NUMA node and the NUMA node of the GPU's own memory, of which some may be missing."""
    words = [word for word in _joined(tail) if _AFFINITY.fullmatch(word) or not word]
    while words and not words[-1]:
        words.pop()
    if not words:
        return
    is_list = "-" in words[0] or "," in words[0]
    if not is_list and len([word for word in words if word]) < max(1, _wanted(header)) and words[0]:
        words.insert(0, "")
    places = (table.affinity, table.numa)
    for place, word in zip(places, words, strict=False):
        if word:
            place[name] = word
    if behind := [word for word in words[2:] if word]:
        table.own_memory[name] = behind[0]


def _wanted(header: _Header) -> int:
    return 2 if any("NUMA" in heading for heading in header.headings) else 1


def _joined(words: Sequence[str]) -> Iterator[str]:
    """Lists such as "0-31, 64-95" as one word."""
    held = ""
    for word in words:
        if held.endswith(",") and "-" in word:
            held += word
            continue
        if held:
            yield held
        held = word
        if not word:
            yield word
    if held:
        yield held
