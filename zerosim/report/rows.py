"""Rows of plain values as a file: CSV, JSON Lines, or Parquet where pyarrow is installed; by the ending of the name.

Rule: what a row lacks is empty, columns stand in the order in which rows bring them, equal rows make equal bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zerosim.errors import InputError, Problem
from zerosim.report.files import is_folder, write_bytes

Row = Mapping[str, Any]


def check_format(path: Path) -> None:
    """Whether rows can be written there: asked before there are any."""
    _writer(path)
    if is_folder(path):
        raise InputError([Problem("--out", found=f'"{path.name}", a folder', expected="the name of a file")])
    if path.suffix == ".parquet":
        _arrow(path)


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """All rows, whole or not at all."""
    write_bytes(path, _writer(path)(path, rows))


def columns(rows: Sequence[Row]) -> list[str]:
    """All names, each after the one that it follows where it first appears."""
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row))
    return list(found)


def _writer(path: Path) -> Callable[[Path, Sequence[Row]], bytes]:
    if path.suffix in _WRITERS:
        return _WRITERS[path.suffix]
    expected = f"a name that ends in {', '.join(_WRITERS)}"
    raise InputError([Problem("--out", found=f'"{path.name}"', expected=expected)])


def _csv(_: Path, rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    names = columns(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _jsonl(_: Path, rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()


def _parquet(path: Path, rows: Sequence[Row]) -> bytes:
    """A column has one type: numbers as floats, and everything as text where a row brings text."""
    arrow = _arrow(path)
    import pyarrow.parquet

    held = {name: _alike([row.get(name) for row in rows]) for name in columns(rows)}
    sink = arrow.BufferOutputStream()
    pyarrow.parquet.write_table(arrow.table(held), sink)
    return bytes(sink.getvalue().to_pybytes())


def _alike(values: list[Any]) -> list[Any]:
    there = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in there):
        return values
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in there):
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]


def _arrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        expected = "pyarrow, which writes Parquet (pip install zerosim[parquet]); or .csv, .jsonl"
        raise InputError([Problem("--out", str(path), "no pyarrow", expected)]) from None
    return pyarrow


_WRITERS: dict[str, Callable[[Path, Sequence[Row]], bytes]] = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
