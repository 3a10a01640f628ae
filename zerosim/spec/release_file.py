"""The `versions` section of a scenario: which release of DeepSpeed is played, single differences of it, back to text.

What the differences are stands in `release`. A version is text of three numbers: YAML reads 0.14 as a number, and 0.10
as 0.1. A release that is newer than what was read is played as that, which a finding says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from zerosim.errors import Finding, InputError, Problem, nearest
from zerosim.spec.document import Document, shown
from zerosim.spec.release import CURRENT, KNOBS, OLDEST, READ, Release, number_of, release_of
from zerosim.spec.strategy import DeepSpeed, Strategy

SECTION = "versions"
UNREAD = replace(
    Release(), mics=True
)  # for the rest of a file whose section is wrong: it refuses no key of any release
_KEYS = ("deepspeed", "knobs")
_KINDS: Mapping[str, Any] = get_type_hints(Release)


class ReleaseRead(NamedTuple):
    """The release, and what is worth saying of it."""

    release: Release = Release()
    findings: tuple[Finding, ...] = ()


def read_release(document: Document) -> ReleaseRead:
    """The section, which may be empty. InputError with all its problems."""
    given = document.data
    if not isinstance(given, Mapping):
        raise InputError([document.problem((), shown(given), f'a mapping such as {{deepspeed: "{CURRENT}"}}')])
    problems = [_unknown(document, (key,), _KEYS) for key in given if key not in _KEYS]
    release, wrong = _version(document)
    problems += wrong
    knobs, wrong = _knobs(document)
    problems += wrong
    if problems:
        raise InputError(problems)
    return ReleaseRead(replace(release, **knobs), tuple(_findings(release)) if "deepspeed" in given else ())


def release_text(strategy: Strategy) -> dict[str, Any] | None:
    """The section that reads as the release of this strategy; None where it is what is taken without one."""
    if not isinstance(strategy, DeepSpeed) or strategy.release == Release():
        return None
    knobs = strategy.release.knobs
    return {"deepspeed": strategy.release.version} | ({"knobs": knobs} if knobs else {})


def idle_versions(section: Mapping[str, Any], strategy: Strategy) -> tuple[Finding, ...]:
    """What is said of the section where DeepSpeed does not run."""
    if not section or isinstance(strategy, DeepSpeed):
        return ()
    message = f"{SECTION} ({', '.join(map(str, section))}) changes nothing in a step: DeepSpeed does not run."
    return (Finding("key-no-effect", "note", message),)


def _version(document: Document) -> tuple[Release, list[Problem]]:
    if "deepspeed" not in document.data:
        return Release(), []
    given = document.data["deepspeed"]
    expected = f'a release of DeepSpeed as text of three numbers, from "{OLDEST}" on'
    if not isinstance(given, str):
        return Release(), [document.problem(("deepspeed",), shown(given), expected, f'"{CURRENT}"')]
    try:
        if number_of(given) >= number_of(OLDEST):
            return release_of(given), []
    except ValueError:
        pass
    return Release(), [document.problem(("deepspeed",), shown(given), expected, f'"{CURRENT}"')]


def _knobs(document: Document) -> tuple[dict[str, Any], list[Problem]]:
    given = document.data.get("knobs")
    if given is None:
        return {}, []
    if not isinstance(given, Mapping):
        return {}, [document.problem(("knobs",), shown(given), "a mapping of differences between releases")]
    values, problems = {}, []
    for name, value in given.items():
        path = ("knobs", str(name))
        if name not in KNOBS:
            problems.append(_unknown(document, path, KNOBS))
        elif not _fits(_KINDS[name], value):
            problems.append(document.problem(path, shown(value), _expected(_KINDS[name])))
        else:
            values[name] = float(value) if _KINDS[name] is float else value
    return values, problems


def _fits(kind: Any, value: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return isinstance(value, str) and value in get_args(kind)


def _expected(kind: Any) -> str:
    if kind is bool:
        return "true or false"
    return "a number, 0 or more" if kind is float else f"one of {', '.join(get_args(kind))}"


def _unknown(document: Document, path: tuple[str, ...], known: tuple[str, ...]) -> Problem:
    expected = f"one of {', '.join(known)}"
    return document.key_problem(path, f'unknown key "{path[-1]}"', expected, nearest(str(path[-1]), list(known)))


def _findings(release: Release) -> Iterator[Finding]:
    severity: Literal["note", "warning"] = "note"
    if release.number > number_of(CURRENT):
        severity, message = "warning", f"DeepSpeed {release.version} is newer than {CURRENT}, and is played as that."
    elif release.version not in READ:
        message = (
            f"DeepSpeed {release.version}: {READ[0]} and {CURRENT} were read and run; what changed in which release "
            "between them, and before, is the project's history."
        )
    else:
        return
    yield Finding("release-not-read", severity, message)
