"""pydantic's errors in our words: where, what was found, what was expected, what is nearest.

pydantic reports all errors of an input at once, with a location that also names members of unions; those parts are
dropped here, since the user's file has no such thing. Of a union all members complain: those whose kind was right
(the mapping that has one wrong key) are kept, the others dropped.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from zerosim.errors import Problem, nearest
from zerosim.spec.document import Document, Path, by_place, shown
from zerosim.units import UnitError

_NOTHING = "nothing"
_KINDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "null",
    "string_too_short": "text that is not empty",
}


def complaints(error: ValidationError, schema: type[BaseModel], document: Document) -> list[Problem]:
    """One problem a place, in reading order."""
    told: dict[Path, list[Problem]] = {}
    for detail in error.errors(include_url=False):
        path, tags = _path(detail["loc"], document.data, detail["type"] == "missing")
        told.setdefault(path, []).append(_problem(detail, path, tags, schema, document))
    deepest = [path for path in told if not any(path != other and other[: len(path)] == path for other in told)]
    kept = {path: told[path] for path in told if path in deepest or not _only_kinds(error, path, document.data)}
    misspelt = {(*path[:-1], problem.nearest) for path, problems in kept.items() for problem in problems}
    joined = (_joined(problems) for path, problems in kept.items() if not _missing(problems) or path not in misspelt)
    return sorted(joined, key=by_place)


def _missing(problems: Sequence[Problem]) -> bool:
    """Whether a key is not there: no news where the same mapping has a key that is nearly that."""
    return all(problem.found == _NOTHING for problem in problems)


def _path(loc: Sequence[str | int], data: Any, missing: bool) -> tuple[Path, frozenset[str]]:
    """The parts of `loc` that exist in the data, and the names of union members among them."""
    path: list[str | int] = []
    tags: set[str] = set()
    for index, part in enumerate(loc):
        if _holds(data, part):
            data = data[part]
            path.append(part)
        elif missing and index == len(loc) - 1:
            path.append(part)
        else:
            tags.add(str(part))
    return tuple(path), frozenset(tags)


def _holds(data: Any, part: str | int) -> bool:
    if isinstance(data, Mapping):
        return part in data
    return isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)


def _only_kinds(error: ValidationError, path: Path, data: Any) -> bool:
    """Whether all complaints at `path` are that another kind of thing was wanted there."""
    here = [d for d in error.errors(include_url=False) if _path(d["loc"], data, d["type"] == "missing")[0] == path]
    return all(detail["type"] in _KINDS or detail["type"] == "literal_error" for detail in here)


def _joined(problems: list[Problem]) -> Problem:
    """Complaints of several union members about one place as one."""
    first = problems[0]
    expected = " or ".join(dict.fromkeys(problem.expected for problem in problems))
    close = next((problem.nearest for problem in problems if problem.nearest), "")
    return Problem(first.source, first.path, first.found, expected, close, first.line, first.column)


def _problem(
    detail: Mapping[str, Any], path: Path, tags: frozenset[str], schema: type[BaseModel], document: Document
) -> Problem:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = sorted({name for model in _models(schema, path[:-1], tags) for name in _names(model)})
        found, expected = f'unknown key "{path[-1]}"', f"one of {', '.join(known)}" if known else "no such key"
        return document.key_problem(path, found, expected, nearest(str(path[-1]), known))
    if kind == "missing":
        return document.problem(path, _NOTHING, "a value, as it has no default")
    if kind == "literal_error":
        return document.problem(path, shown(given), _expected_literal(context), _close(given, context))
    if kind in ("too_short", "too_long"):
        least = kind == "too_short"
        limit = context["min_length" if least else "max_length"]
        size = f"{'at least' if least else 'at most'} {limit}"
        return document.problem(path, f"a list of {context['actual_length']}", f"a list of {size}")
    cause = context.get("error")
    if isinstance(cause, UnitError):
        return document.problem(path, shown(given), cause.expected, cause.nearest)
    if isinstance(cause, ValueError | AssertionError):
        return document.problem(path, shown(given), str(cause))
    said = detail["msg"].removeprefix("Input should be ")
    if said.startswith(("greater", "less")):
        said = f"a number {said}"
    return document.problem(path, shown(given), _KINDS.get(kind, said))


def _expected_literal(context: Mapping[str, Any]) -> str:
    return str(context.get("expected", "")).replace("'", '"')


def _close(given: object, context: Mapping[str, Any]) -> str:
    choices = str(context.get("expected", "")).replace(" or ", ", ").replace("'", "").split(", ")
    close = nearest(given.casefold(), choices) if isinstance(given, str) else ""
    return f'"{close}"' if close else ""


def _names(model: type[BaseModel]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield info.alias or name


def _models(schema: type[BaseModel], path: Path, tags: frozenset[str]) -> list[type[BaseModel]]:
    """The models that may stand at `path`; where a union leaves several, those that pydantic named."""
    reached: list[Any] = [schema]
    for part in path:
        reached = [below for kind in reached for below in _below(kind, part)]
    models = [kind for kind in reached if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [model for model in models if model.__name__ in tags] or models


def _below(kind: Any, part: str | int) -> Iterator[Any]:
    """The kinds that `part` of a value of this kind may be."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            if part in (name, info.alias):
                yield from _members(info.annotation)
    elif get_origin(kind) in (list, tuple, Sequence):
        for item in get_args(kind):
            yield from _members(item)
    elif get_origin(kind) in (dict, Mapping):
        yield from _members(get_args(kind)[1])


def _members(kind: Any) -> Iterator[Any]:
    """The kind itself, or the members of a union."""
    if get_origin(kind) is Annotated:
        yield from _members(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for member in get_args(kind):
            yield from _members(member)
    else:
        yield kind
