"""What published TFLOP/s per GPU count, and the time of a step that they say.

Megatron:  24 B s l h^2 (1 + s / 6h) a pass over the blocks, 3 passes, or 4 with the blocks recomputed, and 6 B s h V
           of the logits (Narayanan 2021, Efficient large-scale language model training, eq. 3:
           96 B s l h^2 (1 + s / 6h + V / 16lh))
per token: 6 N, and 12 l h s of attention (Chowdhery 2022, PaLM, appendix B; llm-foundry counts so)
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from zerosim.studies.validation.row_model import Shape
from zerosim.studies.validation.words import denied, said

Formula = Literal["megatron", "parameters"]


class Counted(NamedTuple):
    """`passes`: forwards' worth of FLOPs in a step, 3 without and 4 with recomputation. `sure`: the words say it."""

    formula: Formula
    attention: bool
    passes: int
    sure: bool = True

    @property
    def told(self) -> str:
        """In words."""
        by = "Megatron's formula" if self.formula == "megatron" else "parameters"
        beside = "" if self.formula == "megatron" and self.attention else " and attention" if self.attention else (
            " alone, without attention")  # fmt: skip
        return f"{by}{beside}, {'with' if self.passes > 3 else 'without'} recomputation"


_TIMES = r"\s*[*x·×]?\s*"
_BY_PARAMETERS = rf"(?<![\w.])[68]{_TIMES}\(?(n|p|nd|pd|np|nt|psi|ψ|phi|params?|parameters?)(?![a-z0-9])"
_ATTENTION = rf"\battention|\battn|(?<!\d)12{_TIMES}l"
_FOUR = rf"(?<![\w.])8{_TIMES}\(?(n|p|nd|pd|params?)(?![a-z0-9])|\b96 ?\*? ?b|[x×] ?4\b(?! ?(gpu|node))"
_THREE = r"[x×] ?3\b(?! ?(gpu|node))|\b3 ?[x×] ?(the )?(fwd|forward)|\b72 ?\*? ?b"
_RECOMPUTED = r"re-?comput|re-?materiali|checkpoint"


def counted(definition: str, recomputed: bool) -> Counted:
    """What the words of a definition mean, for a run that recomputes its blocks or not. PaLM's MFU, and model FLOPs
    that nobody writes out, count attention; a formula of parameters only where it says so."""
    words = definition.lower()
    megatron = re.search(r"megatron|narayanan", words) is not None
    written = re.search(_BY_PARAMETERS, words) is not None
    palm = re.search(r"palm|chowdhery", words) is not None
    model_flops = re.search(r"model[- ]flops?", words) is not None and not megatron
    by_parameters = written or palm or model_flops
    formula: Formula = "parameters" if by_parameters else "megatron"
    attention = not denied(_ATTENTION, words)
    if by_parameters and not palm and written:
        attention = said(_ATTENTION, words) is not None
    sure = written or palm or megatron or "recompute" in words or model_flops
    return Counted(formula, attention, _passes(words, by_parameters, recomputed), sure)


def _passes(words: str, by_parameters: bool, recomputed: bool) -> int:
    if re.search(_FOUR, words):
        return 4
    if denied(_RECOMPUTED, words) or re.search(_THREE, words):
        return 3
    if re.search(_RECOMPUTED, words) or re.search(r"hardware|\bhfu\b", words):
        return 4 if recomputed else 3
    if by_parameters or re.search(r"model[- ]flops?|\bmfu\b", words):
        return 3
    return 4 if recomputed else 3


def flops_of_step(count: Counted, shape: Shape, parameters: float, sequences: float, length: int) -> float:
    """FLOPs of so many sequences."""
    tokens = sequences * length
    depth, width = shape.layers, shape.hidden
    if count.formula == "megatron":
        attention = length / (6 * width) if count.attention else 0.0
        blocks = 24 * count.passes * tokens * depth * width**2 * (1 + attention)
        return blocks + 6 * tokens * width * shape.vocabulary
    return count.passes * tokens * (2 * parameters + (4 * depth * width * length if count.attention else 0))
