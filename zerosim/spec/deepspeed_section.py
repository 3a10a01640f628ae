"""One section of a DeepSpeed file against its table of keys: values, problems, and what is worth saying of each key.

Every key that the user wrote ends in one of four ways: its value is used, a problem, a finding that says why it
changes nothing, or a warning that the mechanism is not simulated. Nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zerosim.errors import Finding, Problem, Severity, nearest
from zerosim.spec.deepspeed_schema import OF_BF16_OPTIMIZER, Key
from zerosim.spec.deepspeed_values import AUTO, Kind, RefusedError
from zerosim.spec.document import Document, shown
from zerosim.spec.release import Release

_ELSEWHERE = {  # keys of DeepSpeed that are often written in the wrong section
    "aio": "at the top level",
    "zero_allow_untested_optimizer": "at the top level",
    "gradient_clipping": "at the top level",
    "buffer_size": "in offload_param",
    "max_in_cpu": "in offload_param",
    "find_unused_parameters": "among the settings of DDP",
}


@dataclass(slots=True)
class Log:
    """What a reading of a file comes upon, in order."""

    problems: list[Problem] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def say(self, code: str, severity: Severity, message: str, remedy: str = "") -> None:
        finding = Finding(code, severity, message, remedy)
        if finding not in self.findings:
            self.findings.append(finding)

    def idle(self, name: str, why: str) -> None:
        """A key that changes nothing in a step."""
        self.say("key-no-effect", "note", f"{name} changes nothing in a step: {why}.")

    def lacking(self, name: str, mechanism: str) -> None:
        """A key that asks for a mechanism that is not simulated."""
        self.say(
            "not-modelled", "warning", f"{name}: {mechanism} is not simulated; the answer is for a run without it."
        )

    def left_auto(self, defaults: Mapping[str, Any]) -> None:
        """Keys of which the value is `"auto"` and that nobody fills in, with the defaults that hold instead."""
        if defaults:
            named = ", ".join(f"{name} = {shown(value)}" for name, value in defaults.items())
            self.say("auto-defaults", "warning", f'"auto" that nobody fills in becomes DeepSpeed\'s default: {named}.')

    def value(self, document: Document, key: str, kind: Kind, default: Any) -> Any:
        """The value of `key`, or the default after logging what is wrong with it."""
        given = document.data[key]
        try:
            reading = kind(given)
        except RefusedError as refusal:
            self.problems.append(document.problem((key,), shown(given), refusal.expected, refusal.close))
            return default
        if reading.remark:
            self.say("number-as-text", "warning", f"{dotted(document, key)}: {reading.remark}.")
        return reading.value


def dotted(document: Document, key: str) -> str:
    """A key as DeepSpeed's users call it: its path inside the file, wherever the file's content stands."""
    inside = document.at[2:] if document.at[:2] == ("strategy", "deepspeed") else document.at
    return ".".join(map(str, (*inside, key)))


def read_section(
    document: Document,
    table: Mapping[str, Key],
    log: Log,
    aliases: Mapping[str, str] | None = None,
    filled: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The values that the user wrote, by the name in the table. An unknown key is a problem.

    `"auto"` is left out, with a finding; without one for keys of `filled`, which get their value elsewhere.
    """
    aliases = aliases or {}
    values: dict[str, Any] = {}
    auto: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, given in document.data.items():
        name = aliases.get(key, key)
        if name not in table:
            log.problems.append(unknown(document, key, [*table, *aliases]))
        elif name in written:
            both = f"{key} beside {written[name]}, which is the same key"
            log.problems.append(document.key_problem((key,), both, "one of the two"))
        elif given != AUTO:
            values[name] = log.value(document, key, table[name].kind, table[name].default)
        elif name not in filled:
            auto[dotted(document, key)] = table[name].default
        written.setdefault(name, key)
    log.left_auto(auto)
    return values


def unknown(document: Document, key: str, known: list[str]) -> Problem:
    """A key that DeepSpeed refuses in this section."""
    elsewhere = f"; {key} stands {_ELSEWHERE[key]}" if key in _ELSEWHERE else ""
    expected = f"a key of {document.at[-1]}{elsewhere}"
    return document.key_problem((key,), f'unknown key "{key}"', expected, nearest(str(key), known))


def known(document: Document, release: Release, log: Log, aliases: Mapping[str, str] | None = None) -> Document:
    """The section without the keys that are too new for the release, which refuses them."""
    names = {key: (aliases or {}).get(key, key) for key in document.data}
    new = [key for key, name in names.items() if not release.knows(name)]
    for key in new:
        found = f'the key "{key}", which DeepSpeed {release.version} does not know'
        log.problems.append(document.key_problem((key,), found, f"a key of {document.at[-1]} in that release"))
    return replace(document, data={key: value for key, value in document.data.items() if key not in new})


def tell(
    document: Document,
    table: Mapping[str, Key],
    values: Mapping[str, Any],
    log: Log,
    stage: int | None = None,
    aliases: Mapping[str, str] | None = None,
    bf16_optimizer: bool = False,
) -> None:
    """Findings for keys that were written and do not shape the step."""
    for key in document.data:
        name = (aliases or {}).get(key, key)
        row = table.get(name)
        if row is None or name not in values:
            continue
        if row.idle:
            log.idle(dotted(document, key), row.idle)
        elif stage is not None and str(stage) not in row.stages:
            log.idle(dotted(document, key), f"stage {stage} does not read it")
        elif bf16_optimizer and name not in OF_BF16_OPTIMIZER:
            log.idle(dotted(document, key), "BF16_Optimizer (bf16, stage 1, fp32 accumulation) does not read it")
        elif row.lacks and _active(values[name], row.default):
            log.lacking(dotted(document, key), row.lacks)


def _active(value: Any, default: Any) -> bool:
    """Whether a value switches its mechanism on: neither null nor the default; a number above both it and 0."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value > max(int(default), 0)
    return value is not None and value != default
