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

Formula = Literal["megatron", "parameters"]


class Counted(NamedTuple):
    """`passes`: forwards' worth of FLOPs in a step, 3 without and 4 with recomputation. `sure`: the words say it."""

    formula: Formula
    attention: bool
    passes: int
    sure: bool = True


def counted(definition: str, recomputed: bool) -> Counted:
    """What the words of a definition mean, for a run that recomputes its blocks or not."""
    words = definition.lower()
    by_parameters = re.search(r"\b[68] ?(n|p|nd|pd|\* ?params)\b|6n|8n|palm|model flops", words) is not None
    formula: Formula = "parameters" if by_parameters else "megatron"
    attention = formula == "megatron" or re.search(r"attention|attn|12 ?l", words) is not None
    sure = by_parameters or "megatron" in words or "narayanan" in words or "recompute" in words
    return Counted(formula, attention, _passes(words, by_parameters, recomputed), sure)


def _passes(words: str, by_parameters: bool, recomputed: bool) -> int:
    if re.search(r"(no|without|excl\w*) (the )?(recomp|checkpoint)|x ?3|model flops|\bmfu\b", words):
        return 3
    if re.search(r"\b8 ?(n|p)|8n|96|hardware|\bhfu\b", words):
        return 4
    if by_parameters and "recomp" not in words:
        return 3
    return 4 if recomputed else 3


def flops_of_step(count: Counted, shape: Shape, parameters: float, sequences: float, length: int) -> float:
    """FLOPs of so many sequences."""
    tokens = sequences * length
    depth, width = shape.layers, shape.hidden
    if count.formula == "megatron":
        blocks = 24 * count.passes * tokens * depth * width**2 * (1 + length / (6 * width))
        return blocks + 6 * tokens * width * shape.vocabulary
    return count.passes * tokens * (2 * parameters + (4 * depth * width * length if count.attention else 0))
