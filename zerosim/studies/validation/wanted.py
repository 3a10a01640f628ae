"""Which rows of a table are asked for: by study, strategy, GPU or quality, as they are called in its groups.

A strategy or a GPU may be told by the beginning of its name, so that `A100` is every A100; letters may be small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.document import shown
from zerosim.studies.validation.lines import Labels

WHOLE = ("study", "quality")  # whose names are told whole

Asked = Mapping[str, Sequence[str]]


def check(asked: Asked, there: Iterable[Labels]) -> None:
    """Every name is of some row, or all that are not are told; and some row is asked for."""
    known = tuple(there)
    has = {kind: _names(kind, known) for kind in asked}
    wrong = [
        Problem(f"--{kind}", "", shown(name), f"one of {', '.join(has[kind])}", _nearest(name, has[kind]))
        for kind, names in asked.items()
        for name in names
        if not name.strip() or not any(_is(kind, name, each) for each in has[kind])
    ]
    if not wrong and not any(wanted(asked, each) for each in known):
        wrong += _apart(asked, known) or [
            Problem("rows", "", "none that is all of what is asked for", "filters that one row passes")
        ]
    if wrong:
        raise InputError(wrong)


def _apart(asked: Asked, known: Sequence[Labels]) -> list[Problem]:
    """Of filters that no row passes together: what each may say with the others as they are."""
    found = []
    for kind, names in asked.items():
        others = {other: each for other, each in asked.items() if other != kind}
        if names and (may := _names(kind, [each for each in known if wanted(others, each)])):
            said = f"none that is all of what is asked for with {', '.join(map(shown, names))}"
            found.append(Problem(f"--{kind}", "", said, f"one of {', '.join(may)}"))
    return found


def _names(kind: str, known: Iterable[Labels]) -> list[str]:
    return sorted({getattr(each, kind) for each in known})


def _nearest(name: str, known: Sequence[str]) -> str:
    """In any case of letters."""
    small = {each.lower(): each for each in known}
    return small.get(nearest(name.strip().lower(), list(small)), "")


def wanted(asked: Asked, labels: Labels) -> bool:
    """Whether a row is asked for: of each kind that is named at all, one of the names."""
    return all(any(_is(kind, name, getattr(labels, kind)) for name in names) for kind, names in asked.items() if names)


def _is(kind: str, name: str, label: str) -> bool:
    name, label = name.lower(), label.lower()
    return name == label if kind in WHOLE else label.startswith(name)
