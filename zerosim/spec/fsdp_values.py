"""Single values of FSDP settings, accepted and refused as accelerate and torch do.

accelerate hands every value of its file on as text in the environment, so that a boolean may be "true" or 1, and a
sharding strategy a name in any case or its number in torch's enumeration (accelerate utils/dataclasses.py,
FullyShardedDataParallelPlugin; torch/distributed/fsdp/api.py). Nothing here knows which key it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zerosim.errors import nearest
from zerosim.spec.deepspeed_values import BOOLEAN, INTEGER, NUMBER, TEXT, Kind, Reading, RefusedError, optional

__all__ = [
    "BOOLEAN", "CLASSES", "CLIPPING", "DTYPE", "INTEGER", "MESH", "NAMES", "OPTIMIZER", "POLICY", "PRECISION",
    "PREFETCH", "RESHARD", "SHARDING", "TEXT", "VERSION", "WRAP",
]  # fmt: skip

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")  # 1 to 5 in torch
PREFETCHES = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")  # 1 and 2 in torch, which has no number for the last
POLICIES = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
_DTYPES = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "fp16": "fp16", "float16": "fp16", "half": "fp16",
    "bf16": "bf16", "bfloat16": "bf16",
}  # fmt: skip
_NO = ("no", "none", "null")


def _word(given: Any, words: Sequence[str], numbered: int = 0) -> Reading:
    """One of the words in any case; one of the first `numbered` also by its number from 1."""
    expected = f"{', '.join(words[:-1])} or {words[-1]}"
    text = str(given).strip().upper() if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if text.isdecimal() and 1 <= int(text) <= numbered:
        return Reading(words[int(text) - 1])
    if text in words:
        return Reading(text)
    raise RefusedError(expected, nearest(text, words) if text else "")


def _sharding(given: Any) -> Reading:
    plain = given.strip().upper() if isinstance(given, str) else given
    return _word("_HYBRID_SHARD_ZERO2" if plain == "HYBRID_SHARD_ZERO2" else plain, STRATEGIES, len(STRATEGIES))


def _prefetch(given: Any) -> Reading:
    return Reading("NO_PREFETCH") if given is None else _word(given, PREFETCHES, numbered=2)


def _policy(given: Any) -> Reading:
    return Reading("NO_WRAP") if given is None else _word(given, POLICIES)


def _version(given: Any) -> Reading:
    if not isinstance(given, bool) and str(given).strip() in ("1", "2"):
        return Reading(int(given))
    raise RefusedError("1 or 2")


def _dtype(given: Any) -> Reading:
    """A float type as accelerate or torch write it; None keeps what there is."""
    if given is None:
        return Reading(None)
    text = str(given).strip().lower().removeprefix("torch.")
    if isinstance(given, str) and text in _DTYPES:
        return Reading(_DTYPES[text])
    raise RefusedError("fp32, fp16, bf16 or null", nearest(text, list(_DTYPES)) if isinstance(given, str) else "")


def _precision(given: Any) -> Reading:
    """accelerate's word, or a policy by its dtypes; False is what YAML 1.1 makes of `no`."""
    if isinstance(given, Mapping):
        return Reading(given)
    if given is None or given is False or (isinstance(given, str) and given.strip().lower() in _NO):
        return Reading("no")
    if isinstance(given, str) and given.strip().lower() in (*_DTYPES, "fp8"):
        return Reading(_DTYPES.get(given.strip().lower(), "fp8"))
    raise RefusedError("no, fp16, bf16, fp8, or a mapping such as {param_dtype: bf16, reduce_dtype: fp32}")


def _reshard(given: Any) -> Reading:
    """A boolean, a number of ranks, or a strategy of version 1 (a string in capitals)."""
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise RefusedError("true, false, or a number of ranks")
        return Reading(given)
    try:
        return BOOLEAN(given)
    except RefusedError:
        pass
    try:
        return _sharding(given)
    except RefusedError as refusal:
        raise RefusedError("true, false, or a number of ranks", refusal.close) from None


def _names(given: Any) -> Reading:
    """A list of names, or one text with commas."""
    parts = given.split(",") if isinstance(given, str) else given
    if isinstance(parts, list | tuple) and all(isinstance(part, str) and part.strip() for part in parts):
        return Reading(tuple(part.strip() for part in parts))
    raise RefusedError("names, such as LlamaDecoderLayer,LlamaMLP")


def _mesh(given: Any) -> Reading:
    whole = isinstance(given, list | tuple) and all(type(size) is int and size > 0 for size in given)
    if whole and len(given) in (1, 2):
        return Reading(tuple(given))
    raise RefusedError("[ranks that shard], or [replicas, ranks that shard]")


def _wrap(given: Any) -> Reading:
    if isinstance(given, Mapping):
        return Reading(given)
    if given is None or given is False or given in ("blocks", "none"):
        return Reading("blocks" if given == "blocks" else "none")
    raise RefusedError("blocks, none, or a mapping such as {modules: [model.embed_tokens]}")


def _clipping(given: Any) -> Reading:
    reading = NUMBER(0.0 if given is None else given)
    if reading.value < 0:
        raise RefusedError("a number, 0 or more")
    return reading


def _optimizer(given: Any) -> Reading:
    if isinstance(given, str | Mapping):
        return Reading(given)
    raise RefusedError("a name such as AdamW, or a mapping such as {type: AdamW, fused: false}")


SHARDING = Kind("a sharding strategy", _sharding, capitals=True)
PREFETCH = Kind("a prefetch", _prefetch, capitals=True)
POLICY = Kind("a policy", _policy, capitals=True)
VERSION = Kind("1 or 2", _version)
DTYPE = Kind("a float type", _dtype)
PRECISION = Kind("a precision", _precision)
RESHARD = Kind("true, false, or a number of ranks", _reshard, capitals=True)
NAMES = Kind("names", _names)
CLASSES = optional(NAMES)
MESH = Kind("a mesh", _mesh)
WRAP = Kind("what is wrapped", _wrap)
CLIPPING = Kind("a number, 0 or more", _clipping)
OPTIMIZER = Kind("an optimizer", _optimizer)
