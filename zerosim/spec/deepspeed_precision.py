"""Precision: what the bf16 and fp16 sections of a DeepSpeed file and `training.precision` say together.

A section that is not there says nothing; `enabled: false` does. `"auto"` takes the value of `training`. Two places
that say different things are a problem that shows both (DeepSpeed 0.19, runtime/precision_config.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from zerosim.spec.deepspeed_batch import Given
from zerosim.spec.deepspeed_schema import BF16, FP16, Key
from zerosim.spec.deepspeed_section import Log, read_section, tell
from zerosim.spec.deepspeed_values import AUTO, BOOLEAN
from zerosim.spec.document import Document, shown
from zerosim.spec.release import Release
from zerosim.spec.training import Precision

_OLD_BF16 = "bfloat16"


class Precisions(NamedTuple):
    """The precision of a run, whether nothing forbids its gradients the check for overflow, and the two sections."""

    name: Precision
    check_grad_overflow: bool
    sections: tuple[_Section, ...]
    release: Release = Release()

    @property
    def loss_scale(self) -> float:
        """The static one of fp16; 0 where it is dynamic, or another precision has none."""
        return float(self.sections[1].values.get("loss_scale", 0.0)) if self.name == "fp16" else 0.0


class _Section(NamedTuple):
    """A section of the file: its spelling there, whether it is enabled (None: nothing said), its overflow check."""

    name: Literal["bf16", "fp16"]
    spelled: str
    enabled: bool | None = None
    auto: bool = False
    values: Mapping[str, Any] = {}  # read only


def read_precision(top: Document, log: Log, given: Given, release: Release) -> Precisions:
    """fp32 unless the file or `training` says otherwise."""
    sections = (_section(top, "bf16", _bf16_spelling(top, log), BF16, log), _section(top, "fp16", "fp16", FP16, log))
    if all(section.enabled for section in sections):
        found = f"true beside {sections[0].spelled}.enabled: true"
        log.problems.append(top.problem(("fp16", "enabled"), found, "one of the two"))
    else:
        for section in sections:
            _compare(top, section, log, given)
    name = given.precision or _unsaid(sections, log)
    check = name != "bf16" or _checks_bf16(sections[0].values.get("check_grad_overflow"), release)
    return Precisions(name, check, sections, release)


def _checks_bf16(given: bool | None, release: Release) -> bool:
    """Whether gradients in bf16 are checked for overflow; `given`: bf16.check_grad_overflow."""
    usual = release.bf16_overflow_check in ("always", "by_default")
    return usual if given is None or not release.reads_check_grad_overflow else given


def tell_precision(
    top: Document, log: Log, precisions: Precisions, stage: int, bf16_optimizer: bool, clipping: float
) -> None:
    """A finding for each key of the two sections that does not shape the step."""
    for section in precisions.sections:
        table = dict(BF16 if section.name == "bf16" else FP16)
        if precisions.name != section.name:
            table = {key: row._replace(idle=f"training is in {precisions.name}") for key, row in table.items()}
        elif not bf16_optimizer and "immediate_grad_update" in table:
            table["immediate_grad_update"] = Key(BOOLEAN, False, idle="only BF16_Optimizer reads it")
        elif precisions.loss_scale == 1 and stage in (1, 2) and clipping == 0:  # stage_1_and_2.py scales nothing then
            table["loss_scale"] = table["loss_scale"]._replace(idle="")
        if "check_grad_overflow" in table and not precisions.release.reads_check_grad_overflow:
            why = f"DeepSpeed {precisions.release.version} does not read it"
            table["check_grad_overflow"] = table["check_grad_overflow"]._replace(idle=why)
        if section.values:
            told = {key: value for key, value in section.values.items() if key != "enabled"}
            tell(top.below(section.spelled), table, told, log, stage, bf16_optimizer=bf16_optimizer)


def _bf16_spelling(top: Document, log: Log) -> str:
    """The name of the section; the old one counts where the new one is not there."""
    if _OLD_BF16 not in top.data:
        return "bf16"
    if "bf16" in top.data:
        log.idle(_OLD_BF16, "DeepSpeed reads bf16, which stands beside it")
        return "bf16"
    log.say("deprecated-key", "warning", f"{_OLD_BF16} is an old name of a section.", "Write bf16.")
    return _OLD_BF16


def _section(
    top: Document, name: Literal["bf16", "fp16"], spelled: str, table: Mapping[str, Key], log: Log
) -> _Section:
    given = top.data.get(spelled)
    if not isinstance(given, Mapping):
        if given is not None:
            log.problems.append(top.problem((spelled,), shown(given), "a mapping such as {enabled: true}"))
        return _Section(name, spelled)
    part = top.below(spelled)
    values = read_section(part, table, log, filled=("enabled",))
    return _Section(name, spelled, values.get("enabled"), given.get("enabled") == AUTO, values)


def _compare(top: Document, section: _Section, log: Log, given: Given) -> None:
    """A section beside `training.precision`."""
    if given.precision is None or section.auto:
        return
    wanted = given.precision == section.name
    if section.enabled is not None and section.enabled != wanted and (wanted or section.enabled):
        found, expected = shown(section.enabled), f"precision {given.said('precision')}"
        log.problems.append(top.problem((section.spelled, "enabled"), found, expected))
    elif wanted and section.enabled is None:
        name = section.name
        message = f"training.precision is {name}, which the DeepSpeed file does not enable; it is taken as enabled."
        log.say("precision-not-enabled", "warning", message, f"Add {name}: {{enabled: true}} to the file.")


def _unsaid(sections: tuple[_Section, ...], log: Log) -> Precision:
    """The precision where `training` gives none: what is enabled, else an `"auto"` taken as true, else fp32."""
    for section in sections:
        if section.enabled:
            return section.name
    for section in sections:
        if section.auto:
            message = f'{section.spelled}.enabled: "auto" is taken as true; training gives no precision.'
            log.say("auto-values", "note", message)
            return section.name
    log.say("precision-assumed", "note", "The DeepSpeed file enables neither bf16 nor fp16: training is in fp32.")
    return "fp32"
