"""The simplest of all estimators, to be held beside: the FLOPs of a step over the peak rate of its GPUs.

    seconds = recompute x (6 x parameters x tokens + attention) / peak

Nothing is sent, copied, launched or updated in it. Whole blocks recomputed are one forward more, 4/3 of the FLOPs
(Narayanan et al. 2021, Megatron-LM, appendix); other ways to recompute cost no matrix product that it would count.
"""

from __future__ import annotations

from collections.abc import Mapping

from zerosim.spec.training import Training
from zerosim.views import Summary

RECOMPUTE: Mapping[str, float] = {"full": 4 / 3, "alternate": 7 / 6}


def flops_over_peak(summary: Summary, training: Training) -> float:
    """Seconds of a step at the peak of its GPUs, at the precision of training: MFU is what that is of the step."""
    return summary.mfu * summary.step_seconds * RECOMPUTE.get(training.activation_checkpointing, 1.0)
