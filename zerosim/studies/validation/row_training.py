"""How a row was trained, as the `training` section of a scenario: batch, precision, recomputation, kernels.

Micro-batch, accumulation and global batch must agree: two of them say the third. Words are read by form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim import catalog
from zerosim.spec.measured_row import Row
from zerosim.studies.validation.assumptions import CannotError, Ledger, Program

_UNKNOWN = r"^\s*(unknown\b|na$|n/a$|\?|$)"
_NONE = r"^\s*(none|no|off|false|0|disabled)\b"
_CHECKPOINTING = (
    (_NONE, "none"),
    (r"every (other|2|second)|alternat|1/2|half of", "alternate"),
    (r"per[- ]?op|selective[ _]?op|\bops?\b", "operators"),
    (r"select", "selective"),
    (r"full|yes|true|all|on\b|every|recomp|checkpoint|block|layer", "full"),
)
_ATTENTION = (
    (r"triton", "flash1"),
    (r"flash[- _]?(attention|attn)?[- _]*v?3|\bfa-?3|cudnn", "flash3"),
    (r"flash[- _]?(attention|attn)?[- _]*v?2|\bfa-?2|sdpa|scaled[- _]dot|xformers|memory[- ]efficient", "flash"),
    (r"flash[- _]?(attention|attn)?[- _]*v?1|\bfa-?1", "flash1"),
    (r"unfused|eager|math|naive|softmax|^none|standard|matmul", "eager"),
)
_OPTIMIZERS = (("adamw", "AdamW"), ("adam", "Adam"), ("lamb", "Lamb"), ("sgd", "SGD"), ("lion", "Lion"),
               ("adagrad", "Adagrad"))  # fmt: skip
_TOO_OLD = ("volta", "turing")  # FlashAttention has no kernels for them
_COMPRESSED = r"fp8|float8|int8|nf4|4-?bit|8-?bit|mxfp"
_ROUNDED = 0.02  # of a global batch: what is lost by accumulating whole micro-batches


class Batch(NamedTuple):
    """Sequences of a micro-step on a GPU, and micro-steps."""

    micro: int
    accumulation: int


class Precision(NamedTuple):
    """`autocast`: parameters stay in fp32, as their gathers do; `pure`: nothing is kept in fp32."""

    name: str
    tf32: bool = False
    autocast: bool = False
    pure: bool = False


class Chosen(NamedTuple):
    """An optimizer: `fused` is one kernel."""

    name: str
    fused: bool


def batch_of(row: Row, length: int, replicas: int, ledger: Ledger, family: str) -> Batch:
    """What two of micro-batch, accumulation and global batch say, or one and an assumption."""
    whole = _global_batch(row, length)
    each = whole / replicas if whole else None
    micro = row.micro_batch
    if micro is None and row.micro_batch_tokens is not None:
        micro = max(1, row.micro_batch_tokens // length)
    if micro is None and each and row.accumulation:
        micro = max(1, round(each / row.accumulation))
        ledger.note(f"micro-batch {micro}, as the global batch says")
    if micro is None:
        micro = int(ledger.ask("micro_batch", family=family))
    steps = row.accumulation
    if steps is None and each:
        steps = max(1, round(each / micro))
        if abs(steps * micro / each - 1) > _ROUNDED:
            ledger.note(f"accumulation {steps}, nearest to a global batch of {whole:g}")
    if steps is None:
        steps = 1
        ledger.note("accumulation 1 (nothing is said of it)")
    return Batch(micro, steps)


def _global_batch(row: Row, length: int) -> float | None:
    if row.global_batch or row.batch_by_accumulation:
        return row.global_batch or row.batch_by_accumulation
    told = row.told.get("global_batch_tokens", "")
    if told.isdecimal():
        return int(told) / length
    hit = re.search(r"global batch (?:of )?(\d+(?:\.\d+)?) ?([KM]) tokens", row.notes, re.IGNORECASE)
    return float(hit[1]) * (2**10 if hit[2].upper() == "K" else 2**20) / length if hit else None


def precision_of(row: Row, ledger: Ledger) -> Precision:
    """Of words such as "amp_bf16", "fp16 AMP (autocast; parameters fp32)", "bf16 with fp32 master"."""
    words = row.precision.lower()
    if re.search(_COMPRESSED, words) or row.says(_COMPRESSED, "strategy_raw", "other_flags", "strategy"):
        raise CannotError("it computes in 8 bits or fewer")
    said = re.search(r"tf32|fp16|float16|half|bf16|bfloat16|fp32|float32|single|full", words)
    if said is None:
        return Precision(str(ledger.ask("precision", gpu=row.gpu)), autocast="amp" in words)
    plain = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "tf32": "fp32"}.get(said[0], said[0])
    name = plain if plain in ("fp16", "bf16") else "fp32"
    autocast = "autocast" in words or re.search(r"param\w* (in )?fp32|fp32 param", words) is not None
    pure = re.search(rf"{name}[- ](true|master|only)|pure|without (fp32 )?master|master and opt", words) is not None
    return Precision(name, said[0] == "tf32", autocast, pure and "fp32 master" not in words)


def training_of(
    row: Row, program: Program, length: int, batch: Batch, precision: Precision, device: str, ledger: Ledger
) -> Mapping[str, Any]:
    """The section."""
    return {
        "sequence_length": length,
        "micro_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "precision": precision.name,
        "tf32": precision.tf32,
        "activation_checkpointing": _checkpointing(row, program, ledger),
        "attention": _attention(row, program, device, ledger),
        "kernels": _kernels(row, program, ledger),
        "checkpoint_function": program.checkpoint_function,
        "cross_entropy": program.cross_entropy,
    }


def _checkpointing(row: Row, program: Program, ledger: Ledger) -> str:
    words = row.raw.get("act_ckpt", "").strip().lower()
    if not re.search(_UNKNOWN, words):
        for pattern, name in _CHECKPOINTING:
            if re.search(pattern, words):
                return "operators" if name == "selective" and program.checkpointing == "operators" else name
    ledger.note(f"activation checkpointing {program.checkpointing} (usual in {program.name})")
    return program.checkpointing


def _attention(row: Row, program: Program, device: str, ledger: Ledger) -> str:
    words = row.attention.lower()
    found = next((name for pattern, name in _ATTENTION if re.search(pattern, words)), "")
    if not found:
        flash = "flash" in words
        found = program.attention if program.attention.startswith("flash") or not flash else "flash"
        ledger.note(f"attention kernel {found} (usual in {program.name})")
    if catalog.gpu(device).architecture in _TOO_OLD and found != "eager" and "xformers" not in words:
        ledger.note(f"attention kernel eager, as {catalog.gpu(device).name} has no FlashAttention")
        return "eager"
    return found


def _kernels(row: Row, program: Program, ledger: Ledger) -> str:
    if re.search(r"^\s*(yes|true|on|inductor|torch\.compile|max)", row.compiled, re.IGNORECASE):
        return "fused"
    if row.says(r"(?<!un)fused", "attn_kernel", "other_flags"):
        return "fused"
    if not row.compiled:
        ledger.note(f"kernels {program.kernels} (usual in {program.name})")
    return program.kernels


def optimizer_of(row: Row, program: Program, ledger: Ledger) -> Chosen:
    """By its words; torch's own run several kernels in a row unless they are said to be fused."""
    words = row.optimizer or str(ledger.ask("optimizer"))
    if re.search(r"adafactor|shampoo|soap|sophia|galore|8-?bit|muon|1-?bit|onebit|zero-?one", words, re.IGNORECASE):
        raise CannotError(f"its optimizer is {words}")
    known = next((name for word, name in _OPTIMIZERS if word in words.lower()), "")
    if not known:
        ledger.note(f"optimizer AdamW, for {words}")
    fused = not program.torch_optimizer if not re.search(r"fused|foreach", words, re.I) else "fused" in words.lower()
    return Chosen(known or "AdamW", fused)
