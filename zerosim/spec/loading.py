"""User files to values, strictly: every mistake at once, each with file, line, column and path.

`read` makes a `Document` of a YAML or JSON file, `validated` a value of a `Schema` from it. Quantities are fields of
type `Rate`, `Size`, `Seconds`, `Count`, `Flops`, `Share`: they take text with units and hold base units. Nothing here
knows what a document is about.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema

from zerosim import units
from zerosim.errors import InputError, Problem
from zerosim.spec.complaints import complaints
from zerosim.spec.document import DEEPEST, Document, by_place, too_deep
from zerosim.spec.files import read_text
from zerosim.spec.yaml_tree import Tree, number, read_tree

__all__ = [
    "Count",
    "Document",
    "Flops",
    "Rate",
    "Schema",
    "Seconds",
    "Share",
    "Size",
    "Whole",
    "inline",
    "parse",
    "read",
    "read_log",
    "validated",
]


class Schema(BaseModel):
    """Base of what users may write: unknown keys are mistakes, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


S = TypeVar("S", bound=BaseModel)


_WHOLE = units.Dimension("a whole number", "32", units.COUNT.units)


def _whole(given: object) -> int:
    count = _WHOLE.parse(given)
    if count != int(count):
        raise units.UnitError(given, _WHOLE.expected)
    return int(count)


def _text_or_number(example: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}], "examples": [example]})


Rate = Annotated[float, BeforeValidator(units.parse_rate), _text_or_number("25 GB/s")]
Size = Annotated[float, BeforeValidator(units.parse_size), _text_or_number("80 GiB")]
Seconds = Annotated[float, BeforeValidator(units.parse_seconds), _text_or_number("5 us")]
Count = Annotated[float, BeforeValidator(units.parse_count), _text_or_number("500m")]
Flops = Annotated[float, BeforeValidator(units.parse_flops), _text_or_number("312 TFLOP/s")]
Power = Annotated[float, BeforeValidator(units.parse_power), _text_or_number("500 W")]
Share = Annotated[float, BeforeValidator(units.parse_share), _text_or_number("10 %")]
Whole = Annotated[int, BeforeValidator(_whole), _text_or_number("32")]


def read(path: str | Path) -> Document:
    """The document in a file: JSON if it is called so, else YAML."""
    return parse(read_text(path), str(path), is_json=Path(path).suffix.lower() == ".json")


def read_log(path: str | Path) -> Document:
    """The document in a JSON file that a program wrote, of many thousand lines: without places, and so a hundred times
    as fast."""
    source = str(path)
    return Document(source, _json(read_text(path), source, places=False).data)


def parse(text: str, source: str, is_json: bool = False) -> Document:
    """The document in a text."""
    tree = _json(text, source) if is_json else _yaml(text, source)
    if tree.mistakes:
        places = Document(source, None, {mistake.path: mistake.mark for mistake in tree.mistakes})
        wrong = [places.problem(mistake.path, mistake.found, mistake.expected) for mistake in tree.mistakes]
        raise InputError(sorted(wrong, key=by_place))
    return Document(source, tree.data, tree.positions, tree.keys)


def inline(data: Any, source: str) -> Document:
    """A document of data that came from no file."""
    return Document(source, data)


def validated(document: Document, schema: type[S]) -> S:
    """The document as a value of `schema`, or all its mistakes."""
    try:
        return schema.model_validate(document.data)
    except ValidationError as error:
        raise InputError(complaints(error, schema, document)) from None


def _nested(source: str) -> Problem:
    return Problem(source, found="brackets nested too deep", expected=f"at most {DEEPEST} levels")


def _yaml(text: str, source: str) -> Tree:
    try:
        return read_tree(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise InputError([Problem(source, "", f"a syntax error ({said})", "YAML", "", *place)]) from None
    except yaml.YAMLError as error:
        raise InputError([Problem(source, found=" ".join(str(error).split()), expected="YAML")]) from None
    except RecursionError:
        raise InputError([_nested(source)]) from None


def _json(text: str, source: str, places: bool = True) -> Tree:
    """Data by the JSON parser; places by the YAML walk, where that can read the text (tabs do not indent in JSON)."""
    repeated: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        names = [name for name, _ in pairs]
        repeated.extend(name for name in data if names.count(name) > 1)
        return data

    try:
        data = json.loads(text, object_pairs_hook=once, parse_int=number)
    except json.JSONDecodeError as error:
        found = f"a syntax error ({error.msg[0].lower() + error.msg[1:]})"
        raise InputError([Problem(source, "", found, "JSON", "", error.lineno, error.colno)]) from None
    except RecursionError:
        raise InputError([_nested(source)]) from None
    if too_deep(data):
        raise InputError([_nested(source)])
    try:
        tree = read_tree(text.replace("\t", " ")) if places else Tree()
    except (yaml.YAMLError, RecursionError):
        tree = Tree()
    if repeated and not tree.mistakes:
        raise InputError([Problem(source, name, f'the key "{name}" again', "each key once") for name in repeated])
    tree.data = data
    return tree
