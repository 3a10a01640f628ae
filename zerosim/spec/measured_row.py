"""Published training measurements, a row each: the columns of a table (CSV), read by the form of what stands there.

Numbers are read by measured_numbers.py; a column that says something that is no such number is told in `unread`, one
that is a guess of the table in `guessed`, and all text stays in `raw`. "2K tokens" of a micro-batch, "4M tokens" of a
batch and "512/micro-batch" have fields of their own. Rule: nothing here knows a study, and no column says more than it
says.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.document import shown
from zerosim.spec.files import read_text
from zerosim.spec.measured_columns import BY_NAME, COLUMNS, NEEDED
from zerosim.spec.measured_numbers import TOKENS, WHOLE, Form, Read, read_number

NOTHING = ("na", "n/a", "nan", "unknown", "?", "-")  # of words; of numbers see there
_TOKENS = re.compile(r"\s*\btok\w*|(?<=\d)\s*[km]?tok\w*", re.IGNORECASE)
_BY_MICRO_BATCH = re.compile(r"([^/]+)/\s*micro[\s_-]?batch", re.IGNORECASE)
_PAIR = re.compile(r"^\s*([A-Za-z_][\w ]*?)\s*[= ]\s*(-?[\d.]+(?:e[+-]?\d+)?(?:-[\d.]+)?)\s*\w*\s*$")


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement. None: not told or not readable. `told`: the numbers of metric_other by name, a range as its text.

    `unread`: columns that say something which is no such number. MFU and HFU are shares.
    """

    id: str
    raw: Mapping[str, str] = field(hash=False)
    study: str = ""
    quality: str = ""
    model: str = ""
    parameters: float | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    vocabulary: int | None = None
    sequence_length: int | None = None
    gpu: str = ""
    gpu_memory_gb: float | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    intra_node_link: str = ""
    network: str = ""
    network_gbps: float | None = None
    host: str = ""
    framework: str = ""
    strategy: str = ""
    strategy_raw: str = ""
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    offload_optimizer: str = ""
    offload_param: str = ""
    micro_batch: int | None = None
    micro_batch_tokens: int | None = None
    accumulation: int | None = None
    batch_by_accumulation: int | None = None
    global_batch: int | None = None
    global_batch_tokens: int | None = None
    checkpointing: str = ""
    precision: str = ""
    optimizer: str = ""
    attention: str = ""
    compiled: str = ""
    flags: str = ""
    step_seconds: float | None = None
    tokens_per_second_per_gpu: float | None = None
    samples_per_second: float | None = None
    tflops_per_gpu: float | None = None
    tflops_definition: str = ""
    mfu: float | None = None
    hfu: float | None = None
    peak_memory_gb: float | None = None
    peak_memory_definition: str = ""
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    optimizer_seconds: float | None = None
    outcome: str = ""
    notes: str = ""
    confidence: str = ""
    told: Mapping[str, str] = field(default_factory=dict, hash=False)
    guessed: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()

    def says(self, pattern: str, *columns: str) -> bool:
        """Whether the words stand in one of the columns, by their names in the table; in any case."""
        return any(re.search(pattern, self.raw.get(column, ""), re.IGNORECASE) for column in columns)


def read_rows(path: str | Path, remark: Callable[[Problem], None] = lambda problem: None) -> tuple[Row, ...]:
    """The rows of a CSV file, or an InputError with all that is wrong with its form. Other columns are ignored;
    `remark` hears of those whose names are nearly that of a known one."""
    source = str(path)
    lines = _lines(read_text(path, "CSV"), source)
    header = [name.strip() for name in next(lines, (0, []))[1]]
    problems = list(_wrong_header(header, source))
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for line, cells in lines:
        if len(cells) != len(header):
            expected = f"{len(header)}, as many as there are columns"
            problems.append(Problem(source, found=f"{len(cells)} cells", expected=expected, line=line))
            continue
        row = row_of(dict(zip(header, cells, strict=True)), line)
        if (before := seen.setdefault(row.id, line)) != line:
            found = f"{shown(row.id)} again, as in line {before}"
            problems.append(Problem(source, "id", found, "a name of its own for each row", line=line))
        rows.append(row)
    if not (rows or problems):
        problems.append(Problem(source, found="no row", expected="a row for each measurement"))
    if problems:
        raise InputError(problems)
    for problem in _nearly_known(header, source):
        remark(problem)
    return tuple(rows)


def row_of(cells: Mapping[str, str], line: int = 0) -> Row:
    """A row of its cells by column; columns that are not there say nothing."""
    values: dict[str, Any] = {}
    guessed, unread = set(), []
    for column in COLUMNS:
        text = cells.get(column.name, "")
        if column.form is None:
            values |= {column.field: _words(text)} if column.field else {}
            continue
        values[column.field], unsure, wrong = _number(text, column.form)
        if unsure:
            guessed.add(column.field)
        if wrong:
            unread.append(column.name)
    for name, read in _told_otherwise(cells).items():
        values[name] = read.value if read.value is None else round(read.value)
        if read.value is not None:
            unread.remove(_INSTEAD[name])
    values["told"] = MappingProxyType(dict(_told(cells.get("metric_other", ""))))
    name = cells.get("id", "").strip() or f"line {line}"
    raw = MappingProxyType(dict(cells))
    return Row(id=name, raw=raw, guessed=frozenset(guessed), unread=tuple(unread), **values)


_INSTEAD = {  # a field, and the column that says it instead of its own number
    "micro_batch_tokens": "micro_batch_per_gpu",
    "global_batch_tokens": "global_batch_seqs",
    "batch_by_accumulation": "grad_accum",
}


def _told_otherwise(cells: Mapping[str, str]) -> Mapping[str, Read]:
    """Batches in tokens, and accumulation as a batch over the micro-batch."""
    texts = {name: cells.get(column, "") for name, column in _INSTEAD.items()}
    found = {
        name: read_number(_TOKENS.sub("", text), TOKENS) if _TOKENS.search(text) else Read(None)
        for name, text in texts.items()
        if name != "batch_by_accumulation"
    }
    hit = _BY_MICRO_BATCH.fullmatch(texts["batch_by_accumulation"].strip())
    return {**found, "batch_by_accumulation": read_number(hit[1], WHOLE) if hit else Read(None)}


def _number(text: str, form: Form) -> Read:
    """In sequences or as it is; never tokens where sequences are asked for."""
    if form is WHOLE and _TOKENS.search(text):
        return Read(None, unread=True)
    read = read_number(text, form)
    return read._replace(value=round(read.value)) if form.whole and read.value is not None else read


def _words(text: str) -> str:
    plain = text.strip()
    return "" if plain.lower() in NOTHING else plain


def _told(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(";"):
        if (pair := _PAIR.match(part)) is not None:
            yield pair[1], pair[2]


def _lines(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Lines with something in them, by number."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        found = f"a syntax error ({error})"
        raise InputError([Problem(source, found=found, expected="CSV", line=reader.line_num)]) from None


def _wrong_header(header: list[str], source: str) -> Iterator[Problem]:
    for name in NEEDED:
        if name not in header:
            close = nearest(name, header)
            yield Problem(source, name, "no such column", "a column of this name", close and shown(close), 1)
    for name in sorted({name for name in header if name and header.count(name) > 1}):
        yield Problem(source, name, "the column again", "each column once", line=1)


def _nearly_known(header: Sequence[str], source: str) -> Iterator[Problem]:
    """Columns that nobody reads and that may have been meant."""
    absent = [name for name in BY_NAME if name not in header]
    for name in header:
        close = nearest(name.lower().replace(" ", "_").replace("-", "_"), absent) if name not in BY_NAME else ""
        if close:
            expected = "those of `zerosim validate --columns`"
            yield Problem(source, name, "a column that is not read", expected, shown(close), 1)
