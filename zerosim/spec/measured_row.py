"""Published training measurements, a row each: the columns of a table (CSV), read by the form of what stands there.

People write "~1.0B", "1024 (script default)", "unknown (24)", "512/micro-batch", "2K tokens". A number is what stands
outside of brackets; after "unknown" it is what stands inside of them, and the column is told in `guessed`. What cannot
be read is None, and its text stays in `raw`. Rule: nothing here knows a study, and no column says more than it says.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.document import shown
from zerosim.spec.files import read_text

NEEDED = ("id", "model", "gpu", "n_gpus", "framework", "strategy")  # without these nothing can be built
NOTHING = frozenset({"", "na", "n/a", "nan", "none", "null", "-", "unknown", "?"})
BINARY_K = 1024  # in "2K tokens" and "32K": sequences are powers of two
LARGEST = 1e18
_FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_NUMBER = re.compile(
    r"(?<![\w.,/-])~?(\d[\d,]*(?:\.\d+)?|\.\d+)(e[+-]?\d{1,3})?\s?([kmbt](?![\w])|gi?b?(?![\w]))?(?![\w.]*[a-z_])",
    re.IGNORECASE,
)
_BRACKETS = re.compile(r"\(([^()]*)\)")
_RANGE = re.compile(r"(\d[kmb]?)\s*-\s*(?=~?\d)", re.IGNORECASE)
_PAIR = re.compile(r"^\s*([A-Za-z_][\w ]*?)\s*[= ]\s*(-?[\d.]+(?:e[+-]?\d+)?(?:-[\d.]+)?)\s*\w*\s*$")


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement. None: not told or not readable. `told`: the numbers of metric_other by name, a range as its text.

    `micro_batch_tokens` and `batch_by_accumulation` are what "2K tokens" and "512/micro-batch" say instead.
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

    def says(self, pattern: str, *columns: str) -> bool:
        """Whether the words stand in one of the columns, by their names in the table; in any case."""
        return any(re.search(pattern, self.raw.get(column, ""), re.IGNORECASE) for column in columns)


class _Read(NamedTuple):
    value: Any
    guessed: bool = False


def number(text: str, thousand: float = 1e3) -> float | None:
    """The first positive number in a text, with k, M, B; `thousand` is what K means. A range is its middle."""
    apart, ranges = _RANGE.subn(r"\1 .. ", text)
    ends = [_value(hit, thousand) for hit in _NUMBER.finditer(apart)][: 2 if ranges else 1]
    if not ends:
        return None
    value = sum(ends) / len(ends)
    return value if 0 < value <= LARGEST and math.isfinite(value) else None


def _value(hit: re.Match[str], thousand: float) -> float:
    unit = (hit[3] or "").lower()
    factor = thousand if unit == "k" else _FACTORS.get(unit, 1.0)
    return float(hit[1].replace(",", "") + (hit[2] or "")) * factor


def _real(text: str, thousand: float = 1e3) -> _Read:
    if text.strip().lower() in NOTHING:
        return _Read(None)
    outside = _BRACKETS.sub(" ", text)
    if (said := number(outside, thousand)) is not None:
        return _Read(said)
    inside = (number(part, thousand) for part in _BRACKETS.findall(text))
    return _Read(next((value for value in inside if value is not None), None), guessed=True)


def _whole(text: str, thousand: float = 1e3) -> _Read:
    value, guessed = _real(text, thousand)
    return _Read(None if value is None or round(value) < 1 else round(value), guessed)


def _tokens(text: str) -> _Read:
    return _whole(text, BINARY_K)


def _sequences(text: str) -> _Read:
    """A micro-batch, unless it counts tokens."""
    return _Read(None) if re.search(r"\btok", text, re.IGNORECASE) else _whole(text)


def _steps(text: str) -> _Read:
    """Accumulation, unless it is said as a batch over the micro-batch."""
    return _Read(None) if "/" in text else _whole(text)


def _text(text: str) -> _Read:
    plain = text.strip()
    return _Read("" if plain.lower() in ("na", "n/a", "nan", "unknown", "?", "-") else plain)


_COLUMNS: Mapping[str, tuple[str, Callable[[str], _Read]]] = {  # field: column, how it is read
    "study": ("dataset", _text), "quality": ("quality", _text), "model": ("model", _text),
    "parameters": ("params", _real), "layers": ("n_layers", _whole), "hidden": ("hidden", _whole),
    "heads": ("n_heads", _whole), "kv_heads": ("n_kv_heads", _whole), "ffn": ("ffn_hidden", _whole),
    "vocabulary": ("vocab", _whole), "sequence_length": ("seq_len", _tokens), "gpu": ("gpu", _text),
    "gpu_memory_gb": ("gpu_mem_gb", _real), "gpus": ("n_gpus", _whole), "gpus_per_node": ("gpus_per_node", _whole),
    "intra_node_link": ("intra_node_link", _text), "network": ("inter_node_net", _text),
    "network_gbps": ("inter_node_gbps_per_node", _real), "host": ("host", _text), "framework": ("framework", _text),
    "strategy": ("strategy", _text), "strategy_raw": ("strategy_raw", _text), "tensor_parallel": ("tp", _whole),
    "pipeline_parallel": ("pp", _whole), "offload_optimizer": ("offload_optimizer", _text),
    "offload_param": ("offload_param", _text), "micro_batch": ("micro_batch_per_gpu", _sequences),
    "accumulation": ("grad_accum", _steps), "global_batch": ("global_batch_seqs", _whole),
    "checkpointing": ("act_ckpt", _text), "precision": ("precision", _text), "optimizer": ("optimizer", _text),
    "attention": ("attn_kernel", _text), "compiled": ("compile", _text), "flags": ("other_flags", _text),
    "step_seconds": ("step_time_s", _real), "tokens_per_second_per_gpu": ("tokens_per_s_per_gpu", _real),
    "samples_per_second": ("samples_per_s_total", _real), "tflops_per_gpu": ("tflops_per_gpu", _real),
    "tflops_definition": ("tflops_def", _text), "mfu": ("mfu", _real), "hfu": ("hfu", _real),
    "peak_memory_gb": ("peak_mem_gb", _real), "peak_memory_definition": ("peak_mem_def", _text),
    "forward_seconds": ("fwd_s", _real), "backward_seconds": ("bwd_s", _real), "optimizer_seconds": ("opt_s", _real),
    "outcome": ("outcome", _text), "notes": ("notes", _text), "confidence": ("confidence", _text),
}  # fmt: skip


def read_rows(path: str | Path) -> tuple[Row, ...]:
    """The rows of a CSV file, or an InputError with all that is wrong with its form. Other columns are ignored."""
    source = str(path)
    lines = _lines(read_text(path), source)
    header = [name.strip() for name in next(lines, (0, []))[1]]
    problems = list(_wrong_header(header, source))
    rows = []
    for line, cells in lines:
        if len(cells) != len(header):
            expected = f"{len(header)}, as many as there are columns"
            problems.append(Problem(source, found=f"{len(cells)} cells", expected=expected, line=line))
        else:
            rows.append(row_of(dict(zip(header, cells, strict=True)), line))
    if not (rows or problems):
        problems.append(Problem(source, found="no row", expected="a row for each measurement"))
    if problems:
        raise InputError(problems)
    return tuple(rows)


def row_of(cells: Mapping[str, str], line: int = 0) -> Row:
    """A row of its cells by column; columns that are not there say nothing."""
    values: dict[str, Any] = {}
    guessed = set()
    for name, (column, form) in _COLUMNS.items():
        values[name], unsure = form(cells.get(column, ""))
        if unsure and values[name] is not None:
            guessed.add(name)
    micro, steps = cells.get("micro_batch_per_gpu", ""), cells.get("grad_accum", "")
    counted = re.search(r"\btok", micro, re.IGNORECASE)
    values["micro_batch_tokens"] = _tokens(re.split(r"\btok", micro, flags=re.I)[0]).value if counted else None
    values["batch_by_accumulation"] = _whole(steps.partition("/")[0]).value if "/" in steps else None
    values["told"] = MappingProxyType(dict(_told(cells.get("metric_other", ""))))
    name = cells.get("id", "").strip() or f"line {line}"
    return Row(id=name, raw=MappingProxyType(dict(cells)), guessed=frozenset(guessed), **values)


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
