"""Precision: what FSDP's mixed-precision policy and `training.precision` say together.

accelerate's word `mixed_precision: bf16` gathers and reduces in bf16 and keeps shards in fp32, to which it casts
trainable parameters that were loaded in 16 bits (accelerator.py, utils/fsdp_utils.py, `set_mixed_precision`); "no"
sets no policy, so that everything keeps the dtype of the parameters. Two places that say different things are a problem
that shows both; but torch's FSDP over fp32 parameters may stand under an autocast of the script.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim.errors import nearest
from zerosim.spec.deepspeed_values import RefusedError
from zerosim.spec.document import Document, shown
from zerosim.spec.fsdp_schema import POLICY_KEYS
from zerosim.spec.fsdp_settings import Beside, Settings
from zerosim.spec.fully_sharded import FloatType
from zerosim.spec.training import Precision


class Precisions(NamedTuple):
    """The precision of a run; dtypes of shards, gathered parameters, gradients on the wire (None: as before it)."""

    name: Precision
    parameter: FloatType
    param: FloatType | None
    reduce: FloatType | None


def read_precision(settings: Settings, beside: Beside, assumptions: list[str], whole: bool) -> Precisions | None:
    """None after noting what is wrong. In a whole file of accelerate, silence is "no"."""
    parameter: FloatType = settings.get("parameter_dtype", None) or "fp32"
    if "mixed_precision" not in settings:
        return _unsaid(settings, beside, parameter, assumptions, whole)
    each = settings.written["mixed_precision"]
    if isinstance(each.value, Mapping):
        policy = _policy(each.document.below(each.key), settings)
        param, reduce = policy.get("param_dtype"), policy.get("reduce_dtype")
    else:
        param = reduce = _by_word(each.value, settings)
    if settings.log.problems:
        return None
    computed = param or parameter
    if computed == "fp32" and not settings.accelerate:  # torch's autocast, if it is anything else
        return Precisions(beside.precision or "fp32", parameter, param, reduce)
    if beside.precision not in (None, computed):
        settings.wrong("mixed_precision", _found(each.value, computed), beside.said("precision"))
        return None
    return Precisions(computed, parameter, param, reduce)


def _found(value: Any, computed: str) -> str:
    return f"computation in {computed}" if isinstance(value, Mapping) else f'"{value}", which computes in {computed}'


def _by_word(word: str, settings: Settings) -> FloatType | None:
    if word == "fp8":  # utils/dataclasses.py: what is gathered and reduced is bf16 then
        settings.log.lacking("mixed_precision: fp8", "computation in fp8")
        return "bf16"
    return {"no": None, "fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}[word]


def _unsaid(
    settings: Settings, beside: Beside, parameter: FloatType, assumptions: list[str], whole: bool
) -> Precisions:
    """`training.precision`, for gathers and reductions alike."""
    if whole and beside.precision is None:
        message = "The accelerate file says nothing of mixed_precision: training is in fp32."
        settings.log.say("precision-assumed", "note", message)
    name = beside.precision or (parameter if parameter != "fp32" or whole else "bf16")
    if name == parameter:
        return Precisions(name, parameter, None, None)
    assumptions.append(
        f"Nobody gives mixed_precision, so taken: shards in {parameter}, gathered and reduced in {name}."
    )
    return Precisions(name, parameter, name, name)


def _policy(section: Document, settings: Settings) -> dict[str, Any]:
    """A policy by its dtypes (torch's MixedPrecision and MixedPrecisionPolicy)."""
    values: dict[str, Any] = {}
    for key, given in section.data.items():
        row = POLICY_KEYS.get(key)
        if row is None:
            expected, close = "a key of a mixed-precision policy", nearest(str(key), list(POLICY_KEYS))
            settings.log.problems.append(section.key_problem((key,), f'unknown key "{key}"', expected, close))
            continue
        try:
            values[key] = row.kind(given).value
        except RefusedError as refusal:
            settings.log.problems.append(section.problem((key,), shown(given), refusal.expected, refusal.close))
            continue
        if row.idle:
            settings.log.idle(f"mixed_precision.{key}", row.idle)
        elif row.lacks and values[key]:
            settings.log.lacking(f"mixed_precision.{key}", row.lacks)
    return values
