"""A DeepSpeed configuration to values: `read_deepspeed`, for a file or a mapping.

The file is read as DeepSpeed 0.19 reads it (hjson, its defaults, its refusals); `"auto"` as Hugging Face fills it in.
All problems are told at once. Every key that changes nothing, or asks for what is not simulated, is a finding.
What a key means lies in the tables and sections beside this file; here they are only put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from zerosim.errors import Finding, InputError
from zerosim.spec.deepspeed_batch import Given, read_batch
from zerosim.spec.deepspeed_lenient import read_aio, read_checkpointing
from zerosim.spec.deepspeed_optimizer import read_optimizer
from zerosim.spec.deepspeed_precision import Precisions, read_precision, tell_precision
from zerosim.spec.deepspeed_section import Log
from zerosim.spec.deepspeed_swap import Swapping, shares
from zerosim.spec.deepspeed_text import read_file
from zerosim.spec.deepspeed_top import read_values, tell_sections
from zerosim.spec.deepspeed_zero import SECTION, is_bf16_optimizer, is_old_stage0, read_zero
from zerosim.spec.deepspeed_zeropp import rule_out_zeropp, tell_fp16_kernels
from zerosim.spec.document import Document, shown
from zerosim.spec.release import DEFECTS, Release
from zerosim.spec.strategy import DeepSpeed, Zero

__all__ = ["DeepSpeedRead", "Given", "read_deepspeed"]

_FREE_CLIPPING = "the norm is computed with and without it, and clipping is one factor in a scaling that is done anyway"
_RARE_CLIPPING = "BF16_Optimizer scales gradients only when their norm exceeds it, which is taken not to happen"


@dataclass(frozen=True, slots=True)
class DeepSpeedRead:
    """What a DeepSpeed file says: the strategy, the values it shares with `training`, and what is worth knowing."""

    deepspeed: DeepSpeed
    training_values: Mapping[str, Any]
    findings: tuple[Finding, ...]


def read_deepspeed(
    document_or_path: Document | str | Path, given: Given | None = None, release: Release | None = None
) -> DeepSpeedRead:
    """The configuration as a release of DeepSpeed reads it, or an InputError with all its problems."""
    given = given or Given()
    findings: tuple[Finding, ...] = ()
    if isinstance(document_or_path, Document):
        document = document_or_path
    else:
        document, findings = read_file(Path(document_or_path), str(document_or_path))
    if not isinstance(document.data, Mapping):
        raise InputError([document.problem((), shown(document.data), "a mapping of DeepSpeed's keys")])
    log = Log(findings=list(findings))
    read = _read(document, log, given, release or Release())
    if log.problems:
        raise InputError(sorted(log.problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
    return read


def _read(top: Document, log: Log, given: Given, release: Release) -> DeepSpeedRead:
    values = read_values(top, log, release)
    precision = read_precision(top, log, given, release)
    fp32_sums = precision.name == "bf16" and values["grad_accum_dtype"] == "fp32"
    zero = read_zero(top, log, given.hidden, fp32_sums, values["gradient_clipping"], release)
    bf16_optimizer = is_bf16_optimizer(zero, fp32_sums) or is_old_stage0(zero, precision.name, release)
    tell_precision(top, log, precision, zero.stage, bf16_optimizer, values["gradient_clipping"])
    if "gradient_clipping" in top.data and (bf16_optimizer or not _clipping_costs(zero, precision)):
        log.idle("gradient_clipping", _RARE_CLIPPING if bf16_optimizer else _FREE_CLIPPING)
    batch = read_batch(top, log, given)
    optimizer = read_optimizer(top, log, zero, values)
    aio = read_aio(top, log, zero)
    cpu_checkpointing = read_checkpointing(top, log, given)
    tell_sections(top, log)
    if zero.stage == 3:
        width = 4 if precision.name == "fp32" else 2
        Swapping(top, zero, optimizer, aio, width, shares(given, zero.sub_group_size), log).tell()
    _ruled_out(top, zero, values, log)
    if isinstance(top.data.get(SECTION), Mapping):
        section = top.below(SECTION)
        rule_out_zeropp(section, zero, given.world_size, release, log)
        tell_fp16_kernels(section, zero, values["communication_data_type"] or precision.name, log)
    _tell_defects(zero, batch.accumulation, release, log)
    names = {field.name for field in fields(DeepSpeed)}
    deepspeed = DeepSpeed(
        zero=zero,
        optimizer=optimizer,
        check_grad_overflow=precision.check_grad_overflow,
        loss_scale=precision.loss_scale,
        cpu_checkpointing=cpu_checkpointing,
        aio=aio,
        release=release,
        **{name: value for name, value in values.items() if name in names},
    )
    training = {
        "micro_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "precision": precision.name,
    }
    return DeepSpeedRead(deepspeed, training, tuple(log.findings))


def _tell_defects(zero: Zero, accumulation: int, release: Release, log: Log) -> None:
    """A finding for what the release gets wrong in such a run."""
    runs = {
        "overlap": zero.overlap_comm and zero.stage in (1, 2),
        "host_sums": zero.optimizer_on_host and zero.stage in (1, 2) and accumulation > 1,
    }
    for defect in DEFECTS:
        if runs[defect.kind] and defect.strikes(release):
            message = f"DeepSpeed {release.version} has a defect here: {defect.what}; the step is played without it."
            log.say("release-defect", "warning", message, f"It is gone in {defect.fixed}.")


def _clipping_costs(zero: Zero, precision: Precisions) -> bool:
    """Stages 1 and 2 scale gradients only for clipping and a loss scale (stage_1_and_2.py, unscale_and_clip_grads); the
    plain fp32 engine computes the norm for the sake of clipping (engine.py, clip_fp32_gradients)."""
    if precision.name == "fp16":
        return precision.loss_scale == 1 and zero.stage in (1, 2)
    return zero.stage in {"fp32": (0, 1, 2), "bf16": (1, 2)}[precision.name]


def _ruled_out(top: Document, zero: Zero, values: Mapping[str, Any], log: Log) -> None:
    """What the optimizers of stages 2 and 3 assert (runtime/zero/stage_1_and_2.py, stage3.py)."""
    if zero.stage >= 2 and zero.reduce_scatter:
        for key, plain in (("prescale_gradients", False), ("gradient_predivide_factor", 1.0)):
            if values[key] != plain:
                expected = f"{shown(plain)} on stage {zero.stage} with reduce_scatter"
                log.problems.append(top.problem((key,), shown(values[key]), expected))
    if zero.stage == 3 and values["gradient_allreduce_op"] == "sum":
        log.problems.append(top.problem(("gradient_allreduce_op",), '"sum"', "mean on stage 3"))
