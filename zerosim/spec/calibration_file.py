"""A calibration file: read strictly, and written with the source of every number beside it.

    name: my-cluster
    collectives:                     # T(S) = alpha + w + 2 kappa sqrt(alpha w), w = S x bus factor / bandwidth
    - collective: all_reduce         # as nccl-tests counts size and bus bandwidth
      gpus: 16
      nodes: 2
      alpha: 44.3 us                 # any of alpha, bandwidth and kappa may be missing: the model's stands then
      bandwidth: 228 GB/s
      kappa: 0.72
      sizes: [1024 B, 4294967296 B]  # measured from, to
      error: 6 %
      source: all_reduce.log, 23 sizes
    compute:                         # rates of products and attention, measured / catalogue
    - {gpu: a100_sxm_80, factor: 0.93, source: ...}      # or gpu: all
    copies: {h2d: {rate: 24.1 GB/s, source: ...}, d2h: ..., both: ...}    # of one GPU; both: the sum of both ways
    nvme: {read: {rate: 6.1 GB/s, source: ...}, write: ...}               # of all drives of a node
    dram: {adam: {rate: 110 GB/s, source: ...}}                           # of a node, 28 bytes a parameter

A plain rate may stand for `{rate: ..., source: ...}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field

from zerosim.errors import InputError, Problem
from zerosim.spec.calibration import (
    LEAST_FACTOR,
    MOST_ALPHA,
    MOST_FACTOR,
    SANE_RATE,
    Calibration,
    Compute,
    Curve,
    MeasuredKind,
    MeasuredRate,
    is_rate,
)
from zerosim.spec.document import Document, by_place
from zerosim.spec.loading import Rate, Schema, Seconds, Share, Size, Whole, validated
from zerosim.units import show_rate, show_seconds

MOST_KAPPA = 4.0  # twice what any published sweep was fitted to
HEADER = "# Written by zerosim calibrate: numbers measured on this machine, each with where it came from."
SIZES = (1.0, 2.0**40)  # bytes, where a curve does not say what was measured
UNKNOWN = "not said"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*|[\d.e+-]+ (?:us|GB/s|B|%)", re.ASCII)
_WORDS_OF_YAML = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


class _CurveSchema(Schema):
    collective: MeasuredKind
    gpus: Annotated[Whole, Field(ge=2, le=10_000_000)]
    nodes: Annotated[Whole, Field(ge=1, le=100_000)] = 1
    alpha: Annotated[Seconds, Field(gt=0)] | None = None
    bandwidth: Annotated[Rate, Field(gt=0)] | None = None
    kappa: Annotated[float, Field(ge=0, le=MOST_KAPPA)] | None = None
    sizes: tuple[Size, Size] = SIZES
    error: Annotated[Share, Field(ge=0)] = 0.0
    source: str = UNKNOWN


class _ComputeSchema(Schema):
    gpu: str
    factor: Annotated[float, Field(ge=LEAST_FACTOR, le=MOST_FACTOR)]
    source: str = UNKNOWN


class _RateSchema(Schema):
    rate: Annotated[Rate, Field(gt=0)]
    source: str = UNKNOWN


def _mapping(given: object) -> object:
    return given if isinstance(given, Mapping | _RateSchema) else {"rate": given}


_Rate = Annotated[_RateSchema, BeforeValidator(_mapping)]


class _CopiesSchema(Schema):
    h2d: _Rate | None = None
    d2h: _Rate | None = None
    both: _Rate | None = None


class _NvmeSchema(Schema):
    read: _Rate | None = None
    write: _Rate | None = None


class _DramSchema(Schema):
    adam: _Rate | None = None


class CalibrationSchema(Schema):
    """The file."""

    name: str = ""
    collectives: tuple[_CurveSchema, ...] = ()
    compute: tuple[_ComputeSchema, ...] = ()
    copies: _CopiesSchema = _CopiesSchema()
    nvme: _NvmeSchema = _NvmeSchema()
    dram: _DramSchema = _DramSchema()


# --- reading ---------------------------------------------------------------------------------------------------------


def read_calibration(document: Document) -> Calibration:
    """The value, or an InputError with all mistakes."""
    given = validated(document, CalibrationSchema)
    wrong = [*_repeated(document, given), *_empty(document, given), *_beyond(document, given)]
    if wrong:
        raise InputError(sorted(wrong, key=by_place))
    return Calibration(
        name=given.name,
        curves=tuple(Curve(**each.model_dump()) for each in given.collectives),
        compute=tuple(Compute(**each.model_dump()) for each in given.compute),
        rates=tuple(_rates(given)),
        origin=document.source,
    )


def _rates(given: CalibrationSchema) -> Iterator[MeasuredRate]:
    for section in ("copies", "nvme", "dram"):
        for name, entry in getattr(given, section):
            if entry is not None:
                yield MeasuredRate(f"{section}.{name}", entry.rate, entry.source)


def _repeated(document: Document, given: CalibrationSchema) -> Iterator[Problem]:
    """The same thing measured twice in one file: which of them should stand?"""
    seen: set[tuple[object, ...]] = set()
    for place, curve in enumerate(given.collectives):
        key = (curve.collective, curve.gpus, curve.nodes)
        if key in seen:
            found = f"{curve.collective} of {curve.gpus} GPUs on {curve.nodes} again"
            yield document.problem(("collectives", place), found, "each collective, GPUs and nodes once")
        seen.add(key)
    for place, entry in enumerate(given.compute):
        if (entry.gpu,) in seen:
            yield document.problem(("compute", place, "gpu"), f'"{entry.gpu}" again', "each GPU once")
        seen.add((entry.gpu,))


def _empty(document: Document, given: CalibrationSchema) -> Iterator[Problem]:
    for place, curve in enumerate(given.collectives):
        if curve.alpha is None and curve.bandwidth is None:
            yield document.problem(("collectives", place), "neither alpha nor bandwidth", "one of them, or both")
        if curve.sizes[0] > curve.sizes[1]:
            yield document.problem(("collectives", place, "sizes"), "the larger first", "the smaller first")
        if curve.nodes > curve.gpus:
            yield document.problem(("collectives", place, "nodes"), str(curve.nodes), f"at most {curve.gpus}, its GPUs")


def _beyond(document: Document, given: CalibrationSchema) -> Iterator[Problem]:
    """Numbers without their unit, which are seconds and bytes/s then."""
    for place, curve in enumerate(given.collectives):
        if curve.alpha is not None and curve.alpha > MOST_ALPHA:
            expected = f'at most {MOST_ALPHA:g} s, such as "44.3 us"'
            yield document.problem(("collectives", place, "alpha"), show_seconds(curve.alpha), expected)
        if curve.bandwidth is not None and not is_rate(curve.bandwidth):
            yield document.problem(("collectives", place, "bandwidth"), show_rate(curve.bandwidth), SANE_RATE)
    for name, rate, _ in _rates(given):
        if not is_rate(rate):
            yield document.problem(tuple(name.split(".")), show_rate(rate), SANE_RATE)


# --- writing ---------------------------------------------------------------------------------------------------------


def calibration_mapping(calibration: Calibration) -> dict[str, Any]:
    """Plain data that reads as this value."""
    sections: dict[str, Any] = {"name": calibration.name}
    if calibration.curves:
        sections["collectives"] = [_curve(curve) for curve in calibration.curves]
    if calibration.compute:
        sections["compute"] = [each._asdict() | {"factor": _digits(each.factor)} for each in calibration.compute]
    for name, rate, source in calibration.rates:
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key] = {"rate": f"{rate / 1e9:.7g} GB/s", "source": source}
    return sections


def _curve(curve: Curve) -> dict[str, Any]:
    said = {
        "collective": curve.collective,
        "gpus": curve.gpus,
        "nodes": curve.nodes,
        "alpha": None if curve.alpha is None else f"{curve.alpha * 1e6:.7g} us",
        "bandwidth": None if curve.bandwidth is None else f"{curve.bandwidth / 1e9:.7g} GB/s",
        "kappa": None if curve.kappa is None else _digits(curve.kappa),
        "sizes": [f"{size:.0f} B" for size in curve.sizes],
        "error": f"{100 * curve.error:.3g} %",
        "source": curve.source,
    }
    return {key: value for key, value in said.items() if value is not None}


def _digits(value: float) -> float:
    return float(f"{value:.7g}")


def calibration_text(calibration: Calibration, comments: str = HEADER) -> str:
    """The file. `comments`: lines that stand at its head."""
    lines = [*comments.splitlines()]
    for key, value in calibration_mapping(calibration).items():
        if isinstance(value, list):
            lines += [f"{key}:", *(line for entry in value for line in _item(entry))]
        elif isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {name}: {_flow(entry)}" for name, entry in value.items())]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def calibration_json(calibration: Calibration) -> str:
    """The same as JSON."""
    return json.dumps(calibration_mapping(calibration), indent=2) + "\n"


def comments(text: str) -> str:
    """The comments of a file, kept at its head when it is written again; one behind a value with that value."""
    texts = [(token.start_mark, token.end_mark) for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)]
    found: list[str] = []
    ahead = True
    for number, line in enumerate(text.splitlines()):
        ahead = ahead and (not line.strip() or line.startswith("#"))
        marks = [mark.start() for mark in re.finditer(r"(?<!\S)#", line)]
        outside = [at for at in marks if not any(_within((number, at), *ends) for ends in texts)]
        if ahead or (outside and not line[: outside[0]].strip()):
            found.append(line.strip())
        elif outside:
            found.append(f"# {line.strip()}")
    return "\n".join(found).rstrip() or HEADER


def _within(place: tuple[int, int], start: yaml.Mark, end: yaml.Mark) -> bool:
    return (start.line, start.column) <= place < (end.line, end.column)


def _item(entry: Mapping[str, Any]) -> Iterator[str]:
    for number, (key, value) in enumerate(entry.items()):
        yield f"{'  ' if number else '- '}{key}: {_scalar(value)}"


def _flow(entry: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_scalar(value)}" for key, value in entry.items()) + "}"


def _scalar(value: Any) -> str:
    """Quantities and single words as they are, other text in quotes; what is no text (bytes of a name) as "?"."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    if not isinstance(value, str):
        return repr(value)
    plain = _PLAIN.fullmatch(value) and value.casefold() not in _WORDS_OF_YAML
    text = value.encode("utf-8", "replace").decode()
    return value if plain else yaml.safe_dump(text, default_style='"', width=2**30).rstrip("\n")
