"""How a row was trained, as the `training` section of a scenario: batch, precision, recomputation, kernels.

Micro-batch, accumulation and global batch must agree: two of them say the third. Words are read by form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zerosim import catalog
from zerosim.spec.measured_row import Row
from zerosim.studies.validation.assumptions import GUESSED, USUAL, CannotError, Ledger, Program
from zerosim.studies.validation.words import denied, said

_UNKNOWN = r"^\s*(unknown\b|not (told|stated|reported|given|known)\b|na$|nan$|n/a$|-$|\?|$)"
_NONE = r"^\s*(none|no|off|false|0|disabled|without|never|not (used|enabled|on))\b"
_CHECKPOINTING = (
    (r"every (other|2|second)|alternat|1/2|half of", "alternate"),
    (r"per[- ]?op|selective[ _]?op|\bops?\b", "operators"),
    (r"select", "selective"),
    (r"full|yes|true|all|on\b|\benabled|\bused\b|^\s*1$|every|recomp|checkpoint|block|layer", "full"),
)
_ATTENTION = (
    (r"unfused|\bmath\b|naive", "eager"),
    (r"triton", "flash1"),
    (r"flash[- _]?(attention|attn)?[- _]*v?3|\bfa-?3|cudnn", "flash3"),
    (
        r"flash[- _]?(attention|attn)?[- _]*v?2|\bfa-?2|sdpa|scaled[- _]dot|xformers|memory[- ]efficient|"
        r"(?<!un)fused[-_ ](attention|attn|mha|sdpa)",
        "flash",
    ),
    (r"flash[- _]?(attention|attn)?[- _]*v?1|\bfa-?1", "flash1"),
    (r"eager|softmax|^none|standard|matmul|vanilla|plain", "eager"),
)
_ANY_FLASH = r"flash[- _]?(attention|attn)?|\bfa-?[123]|sdpa|scaled[- _]dot|xformers|memory[- ]efficient"
_OPTIMIZERS = (("adamw", "AdamW"), ("adam", "Adam"), ("lamb", "Lamb"), ("sgd", "SGD"), ("lion", "Lion"),
               ("adagrad", "Adagrad"))  # fmt: skip
_OF_OPTIMIZER = r"adam|lamb\b|sgd|\blion\b|adagrad|optim|^\s*fused\s*[=:]"
_TOO_OLD = ("volta", "turing")  # FlashAttention has no kernels for them
_COMPRESSED = r"fp[468]\b|float[48]|int[48]\b|nf4|nvfp4|mxfp|e4m3|e5m2|(?<!\d)[48]-?bit"
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
        ledger.assume("accumulation", "1 (nothing is said of it)", GUESSED)
    elif row.accumulation and each and abs(steps * micro / each - 1) > _ROUNDED:
        ledger.note(f"{micro} x {steps} x {replicas} sequences a step, not {whole:g} as the global batch says")
    return Batch(micro, steps)


def _global_batch(row: Row, length: int) -> float | None:
    if row.global_batch or row.batch_by_accumulation:
        return row.global_batch or row.batch_by_accumulation
    if row.global_batch_tokens:
        return row.global_batch_tokens / length
    told = row.told.get("global_batch_tokens", "")
    if told.isdecimal():
        return int(told) / length
    hit = re.search(r"global batch (?:of )?(\d+(?:\.\d+)?) ?([KM]) tokens", row.notes, re.IGNORECASE)
    return float(hit[1]) * (2**10 if hit[2].upper() == "K" else 2**20) / length if hit else None


def precision_of(row: Row, ledger: Ledger) -> Precision:
    """Of words such as "amp_bf16", "fp16 AMP (autocast; parameters fp32)", "bf16 with fp32 master". A type of 16 bits
    is what is computed in, whatever else is kept in fp32."""
    words = row.precision.lower()
    elsewhere = " ; ".join((row.strategy_raw, row.flags, row.strategy))
    if re.search(r"zero ?\+\+|q[wg]z|quantized_(weights|gradients)", elsewhere, re.IGNORECASE):
        elsewhere = ""  # what is sent in 8 bits or fewer
    if said(_COMPRESSED, words) or said(_COMPRESSED, elsewhere):
        raise CannotError("it computes in 8 bits or fewer")
    autocast = said(r"autocast", words) is not None or re.search(r"param\w* (in )?fp32|fp32 param", words) is not None
    half, single = said(_HALF, words), said(_SINGLE, words)
    if half is None and single is None:
        if not re.search(_UNKNOWN, words) and not re.search(r"^\s*(amp|mixed)\b", words):
            ledger.unread("precision")
        return Precision(str(ledger.ask("precision", gpu=row.gpu)), autocast=said("amp", words) is not None)
    if half is None:
        return Precision("fp32", said(r"tf32", words) is not None, autocast)
    name = "bf16" if half[0].startswith(("bf", "bfloat")) else "fp16"
    full = rf"{name}[- ](true|master|only)|full(y)?[- ]{name}|pure|without (fp32 )?master|master and opt"
    pure = re.search(full, words) is not None and "fp32 master" not in words
    return Precision(name, False, autocast or re.search(r"\b16-mixed", words) is not None, pure)


_HALF = r"bf-?16|bfloat-?16|fp-?16|float-?16|\bhalf\b|\b16-(mixed|true|bit)"
_SINGLE = r"tf-?32|fp-?32|float-?32|\bsingle\b|full[- ]precision|\b32-(true|bit)"


def computed_length(program: Program, length: int, ledger: Ledger) -> int:
    """Positions that are computed of a sequence, on average: what is padding is left out where batches are binned.

    Lengths below the limit are taken to be spread evenly: a share q of the sequences is shorter, with half of the limit
    as their mean, so that the padding is q / 2 of all; each of these is padded by half of a bin.
    """
    if not program.bins:
        return length
    real = float(ledger.ask("real_share", length=length))
    computed = min(length, round(real * length + 2 * (1 - real) * program.bins / 2))
    if computed < length:
        ledger.note(f"{computed} positions of {length} are computed, in bins of {program.bins}")
    return computed


def training_of(
    row: Row, program: Program, length: int, batch: Batch, precision: Precision, device: str, ledger: Ledger
) -> Mapping[str, Any]:
    """The section."""
    gpu = catalog.gpu(device)
    if precision.name not in gpu.peak_flops:
        ledger.note(f"{precision.name} computed at the rate of fp32, as {gpu.name} has no units for it")
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
        if re.search(_NONE, words):
            return "none"
        found = next((name for pattern, name in _CHECKPOINTING if said(pattern, words)), "")
        if found:
            return "operators" if found == "selective" and program.checkpointing == "operators" else found
        if any(denied(pattern, words) for pattern, _ in _CHECKPOINTING):
            return "none"
        ledger.unread("act_ckpt")
    ledger.assume("activation_checkpointing", f"{program.checkpointing} (usual in {program.name})", USUAL)
    return program.checkpointing


def _attention(row: Row, program: Program, device: str, ledger: Ledger) -> str:
    words = row.attention.lower()
    found = next((name for pattern, name in _ATTENTION if said(pattern, words)), "")
    if not found and (denied(_ANY_FLASH, words) or re.search(r"^\s*(no|off|false)\s*$", words)):
        found = "eager"
    if not found:
        flash = "flash" in words
        if not flash and not re.search(_UNKNOWN, words):
            ledger.unread("attn_kernel")
        found = program.attention if program.attention.startswith("flash") or not flash else "flash"
        ledger.assume("attention_kernel", f"{found} (usual in {program.name})", USUAL)
    if catalog.gpu(device).architecture in _TOO_OLD and found != "eager" and "xformers" not in words:
        ledger.note(f"attention kernel eager, as {catalog.gpu(device).name} has no FlashAttention")
        return "eager"
    return found


def _kernels(row: Row, program: Program, ledger: Ledger) -> str:
    if re.search(r"^\s*(yes|true|on|1$|enabled|inductor|torch\.compile|max)", row.compiled, re.IGNORECASE):
        return "fused"
    clauses = re.split(r"[;,]", f"{row.attention};{row.flags}")
    if any(
        said(r"fused(?![-_ ]*(attention|attn|mha|sdpa|flash))", clause)
        for clause in clauses
        if not re.search(_OF_OPTIMIZER, clause, re.IGNORECASE)
    ):
        return "fused"
    if row.compiled and not re.search(rf"{_UNKNOWN}|{_NONE}|eager", row.compiled, re.IGNORECASE):
        ledger.unread("compile")
    if not row.compiled:
        ledger.assume("kernels", f"{program.kernels} (usual in {program.name})", USUAL)
    return program.kernels


def optimizer_of(row: Row, program: Program, ledger: Ledger) -> Chosen:
    """By its words; torch's own run several kernels in a row unless they are said to be fused."""
    words = row.optimizer or str(ledger.ask("optimizer"))
    if re.search(r"adafactor|shampoo|soap|sophia|galore|8-?bit|muon|1-?bit|onebit|zero-?one", words, re.IGNORECASE):
        raise CannotError(f"its optimizer is {words}")
    known = next((name for word, name in _OPTIMIZERS if word in words.lower()), "")
    if not known:
        ledger.note(f"optimizer AdamW, for {words}")
    of_flags = (each for each in re.split(r"[;,]", row.flags) if re.search(_OF_OPTIMIZER, each, re.IGNORECASE))
    ways = " ; ".join((words, *of_flags))
    if re.search(r"fused|foreach", ways, re.IGNORECASE):
        return Chosen(known or "AdamW", said("fused", ways) is not None)
    return Chosen(known or "AdamW", not program.torch_optimizer)
