"""What is asked of one process at a time: a row's numbers as they are predicted, or the factor that it tells.

Answers are plain values that can be sent between processes. Whatever goes wrong with a row is its answer: a row is
never dropped. `factor` stands for the catalogue's rates of kernels (`zerosim calibrate`), nothing else is ever set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from zerosim.errors import ZerosimError
from zerosim.scenario import Scenario
from zerosim.simulation import no_collection
from zerosim.spec.calibration import EVERY_GPU, Calibration, Compute
from zerosim.spec.devices import Grade
from zerosim.spec.measured_row import Row, row_of
from zerosim.studies.calibration_step import NoFitError, fit_step
from zerosim.studies.sweep_questions import defect
from zerosim.studies.uncertain import spread
from zerosim.studies.uncertainty import SEED, draw, sample
from zerosim.studies.validation.case import Case, Metric, MetricName, Refused
from zerosim.studies.validation.cases import case_of
from zerosim.studies.validation.formula import flops_over_peak
from zerosim.studies.validation.repeated import Played, play_whole, shorter
from zerosim.studies.validation.shares import Shares, held, shares
from zerosim.units import show_seconds, show_share
from zerosim.views import Summary
from zerosim.views.summary import TierUse

CHECK_FASTER = "check checkpointing, attention, fused kernels"
CHECK_SLOWER = "check the batch, attention, the network, offload"


class Question(NamedTuple):
    """The cells of a row, to be predicted with a factor or as shipped; or, with `fit`, the factor that its measured
    step tells. `samples`: of what is uncertain, for a band; 0 for none."""

    cells: Mapping[str, str]
    factor: float | None = None
    fit: bool = False
    samples: int = 0


def asked(row: Row, factor: float | None = None, fit: bool = False, samples: int = 0) -> Question:
    """A question in plain values, which can be sent between processes."""
    return Question(dict(row.raw), factor, fit, samples)


class Pair(NamedTuple):
    """A metric as it was measured and as it is predicted."""

    metric: MetricName
    measured: float
    slack: float
    predicted: float

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None where nothing was measured and something is predicted."""
        if self.measured:
            return self.predicted / self.measured - 1
        return None if self.predicted else 0.0


class Band(NamedTuple):
    """The tenth and the ninetieth percentile of what a step may take, as far as the catalogue's grades tell."""

    p10: float
    p90: float

    def holds(self, measured: float, slack: float = 0.0) -> bool:
        """Whether what was measured is inside, as widely as its source tells it."""
        return self.p10 <= measured * (1 + slack) and measured * (1 - slack) <= self.p90


class Prediction(NamedTuple):
    """A row played. `shares` of the step, `held`: of the GPU's peak. `fullness`: the peak of the fullest tier over its
    capacity. `formula_seconds`: the FLOPs of the step over the peak rate, which is what the simplest of estimators
    says. `band` where it was asked for."""

    pairs: tuple[Pair, ...]
    assumptions: tuple[str, ...]
    shares: Shares
    held: Shares
    fullness: float
    formula_seconds: float
    nodes: int
    gpus: int
    band: Band | None = None


class Fitted(NamedTuple):
    """The factor with which the step takes as long as it was measured."""

    factor: float


class Unplayed(NamedTuple):
    """Nothing predicted or fitted, and why."""

    reason: str


Answer = Prediction | Fitted | Unplayed


def answer(question: Question) -> Answer:
    """Whatever goes wrong is told."""
    try:
        with no_collection():  # nor between the runs of one question, while the timeline of the last is still there
            case = case_of(row_of(question.cells))
            if isinstance(case, Refused):
                return Unplayed(case.reason)
            return fitted(case) if question.fit else predicted(case, question.factor, question.samples)
    except ZerosimError as error:
        return Unplayed("; ".join(str(error).splitlines()))
    except Exception as error:
        return Unplayed(defect(error))


def fitted(case: Case) -> Answer:
    """The factor of the case's measured step."""
    seconds = next((metric.measured for metric in case.metrics if metric.name == "step_seconds"), None)
    if seconds is None:
        return Unplayed("no step time was measured")
    played, longer = shorter(case.scenario)
    try:
        return Fitted(fit_step(played, seconds / longer, "").entry.factor)
    except NoFitError as error:
        return Unplayed(_unfitted(error, seconds, longer))


def _unfitted(error: NoFitError, seconds: float, longer: float) -> str:
    """Why no rate of kernels explains a measured step."""
    if error.response is not None:
        return f"only {show_share(error.response)} of the step answers to the rate of kernels"
    measured = show_seconds(seconds)
    if seconds < error.shortest * longer:
        best = show_seconds(error.shortest * longer)
        return f"measured {measured} is shorter than any kernel rate explains ({best} at best): {CHECK_FASTER}"
    most = show_seconds(error.longest * longer)
    return f"measured {measured} is longer than any kernel rate explains ({most} at most): {CHECK_SLOWER}"


def predicted(case: Case, factor: float | None = None, samples: int = 0) -> Prediction:
    """All metrics of a case; with `samples` the band of its step, too."""
    whole = play_whole(_at(case.scenario, factor))
    summary = whole.summary
    speedup = play_whole(_at(case.other, factor)).step_seconds / whole.step_seconds if case.other else 1.0
    pairs = tuple(Pair(*metric, _value(metric, whole, speedup)) for metric in case.metrics)
    return Prediction(
        pairs=pairs,
        assumptions=case.assumptions,
        shares=shares(whole.timeline, summary),
        held=held(summary),
        fullness=_fullness(summary),
        formula_seconds=flops_over_peak(summary, whole.scenario.training) * whole.micro_steps,
        nodes=summary.nodes,
        gpus=summary.world_size,
        band=_band(whole, case.doubts, samples) if samples else None,
    )


def _band(whole: Played, doubts: Mapping[str, Grade], samples: int) -> Band:
    """Of the step's samples, each longer or shorter by what else may be true of the run: an assumption moves the time
    of a step by the spread of its grade."""
    seconds = np.array(sample(whole.scenario, samples).seconds) * whole.longer
    for field, grade in doubts.items():
        seconds = seconds * np.exp(spread(grade) * draw(f"assumed.{field}", samples, SEED))
    p10, p90 = np.quantile(seconds, (0.1, 0.9))
    return Band(float(p10), float(p90))


def _at(scenario: Scenario, factor: float | None) -> Scenario:
    if factor is None:
        return scenario
    entry = Calibration("", compute=(Compute(EVERY_GPU, factor, "one measured step"),))
    return scenario.replace(calibration=(scenario.calibration or Calibration("")).merged(entry))


def _value(metric: Metric, whole: Played, speedup: float) -> float:
    if metric.name in _SECONDS:
        return _SECONDS[metric.name](whole)
    return speedup if metric.name == "speedup" else _VALUES[metric.name](whole.summary)


def _gpu(summary: Summary) -> TierUse:
    return summary.memory["gpu"]


_SECONDS: Mapping[MetricName, Callable[[Played], float]] = {
    "step_seconds": lambda whole: whole.step_seconds,
    "forward_seconds": lambda whole: whole.phases["forward"],
    "backward_seconds": lambda whole: whole.phases["backward"],
    "optimizer_seconds": lambda whole: whole.phases["optimizer"],
}
_VALUES: Mapping[MetricName, Callable[[Summary], float]] = {
    "peak_memory_bytes": lambda s: _gpu(s).reserved_bytes or _gpu(s).peak_bytes,
    "allocated_memory_bytes": lambda s: _gpu(s).allocated_bytes,
    "active_memory_bytes": lambda s: _gpu(s).busy_bytes - _gpu(s).overhead_bytes,
    "reserved_memory_bytes": lambda s: (_gpu(s).reserved_bytes or _gpu(s).peak_bytes) - _gpu(s).overhead_bytes,
    "fits": lambda s: float(s.fits),
}


def _fullness(summary: Summary) -> float:
    tiers = summary.memory.values()
    return max((tier.peak_bytes / tier.capacity_bytes for tier in tiers if tier.capacity_bytes), default=0.0)
