"""A line of the answer: one metric of one row, measured and predicted, and what the row is one of.

Labels are the row's own words without what stands in brackets behind them; a strategy is called as it is played, so
that "zero stage 3", "FULL_SHARD" and "ZeRO-3" are one group.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from zerosim.spec.measured_row import Row
from zerosim.studies.validation.asked import offload_in_words, stage_in
from zerosim.studies.validation.case import MetricName
from zerosim.studies.validation.prediction import Band, Prediction
from zerosim.studies.validation.shares import likely

FITS, STEP = "fits", "step_seconds"
TIMES = (STEP, "forward_seconds", "backward_seconds", "optimizer_seconds")
CLOSE = 0.05  # of the limit: whether a run fits is not known better than this
UNKNOWN = "unknown"
TIERS = ("cpu", "nvme")  # that offloading goes to
STAGED = ("ZeRO++", "MiCS", "HSDP")
NAMES = (  # words of a strategy, and what it is called where it is not ZeRO with a number
    (r"zero[- ]?\+\+", "ZeRO++"),
    (r"\bmics\b", "MiCS"),
    (r"hybrid|hsdp", "HSDP"),
    (r"^none|single", "none"),
    (r"\bddp\b|data[- ]parallel|no[-_ ]?shard|\bdp\b|replicat", "DDP"),
)
READ = {"read-from-figure": "read from a figure", "read-from-text": "read from a text"}


class Labels(NamedTuple):
    """What a row is one of."""

    study: str
    quality: str
    strategy: str
    gpu: str


class Line(NamedTuple):
    """`shipped`: what the catalogue alone says, where this is not it. `fullness`: the peak of the fullest tier over its
    capacity. `band`: P10 and P90 of the prediction, where they were asked for. `calibrated`: by a row of its study."""

    id: str
    labels: Labels
    metric: MetricName
    measured: float
    slack: float
    predicted: float
    error: float | None
    assumptions: tuple[str, ...]
    reason: str
    fullness: float
    formula_seconds: float
    shipped: float | None = None
    band: Band | None = None
    calibrated: bool = False

    @property
    def right(self) -> bool:
        """Of a line on whether a run fits."""
        return self.measured == self.predicted

    @property
    def close(self) -> bool:
        """So near to the limit that nobody can say whether it fits."""
        return abs(self.fullness - 1) <= CLOSE

    @property
    def inside(self) -> bool:
        """Whether the band holds what was measured."""
        return self.band is not None and self.band.holds(self.measured, self.slack)

    @property
    def shipped_error(self) -> float | None:
        """The error of what the catalogue alone says."""
        return self.error if self.shipped is None else self.shipped / self.measured - 1 if self.measured else None

    def as_json(self) -> dict[str, Any]:
        """The contract's keys first."""
        told: dict[str, Any] = {
            "id": self.id,
            "metric": self.metric,
            "measured": self.measured,
            "predicted": self.predicted,
            "error": self.error,
            "assumptions": list(self.assumptions),
            **self.labels._asdict(),
            "slack": self.slack,
            "reason": self.reason,
            "fullness": self.fullness,
        }
        if self.metric == FITS:
            told |= {"right": self.right, "close": self.close}
        if self.shipped is not None:
            told["as_shipped"] = self.shipped
        if self.band is not None:
            told |= {"p10": self.band.p10, "p90": self.band.p90, "inside": self.inside}
        return told


def labels(row: Row) -> Labels:
    """The groups of a row."""
    strategy = _strategy(row)
    told = [tier.lower() for tier in (row.offload_optimizer, row.offload_param)]
    offloads = any(tier.startswith(TIERS) for tier in told) or (told[0] == "" and bool(offload_in_words(row)))
    return Labels(
        study=row.study or UNKNOWN,
        quality=row.quality or UNKNOWN,
        strategy=f"{strategy} + offload" if offloads else strategy,
        gpu=_short(row.gpu),
    )


def lines(row: Row, answer: Prediction, shipped: Prediction | None = None) -> tuple[Line, ...]:
    """A line a metric. `shipped`: the row as the catalogue alone has it, where `answer` is another."""
    published = _published(row)
    of_step = likely(answer.shares, "step", answer.assumptions, published)
    of_memory = likely(answer.held, "peak", answer.assumptions, published)
    before = shipped.pairs if shipped else (None,) * len(answer.pairs)
    return tuple(
        Line(
            id=row.id,
            labels=labels(row),
            metric=pair.metric,
            measured=pair.measured,
            slack=pair.slack,
            predicted=pair.predicted,
            error=pair.error,
            assumptions=answer.assumptions,
            reason=of_memory if is_memory(pair.metric) or pair.metric == FITS else of_step,
            fullness=answer.fullness,
            formula_seconds=answer.formula_seconds,
            shipped=other.predicted if other else None,
            band=answer.band if pair.metric == STEP else None,
        )
        for pair, other in zip(answer.pairs, before, strict=True)
    )


def is_memory(metric: MetricName) -> bool:
    """Whether it is one of the ways in which a peak is measured."""
    return metric.endswith("_memory_bytes")


def _strategy(row: Row) -> str:
    """The name of what the words of a strategy are played as; else the words."""
    told = (_short(row.strategy), row.strategy_raw)
    words = next((each for each in map(str.lower, told) if stage_in(each) is not None), None)
    if words is None:
        return told[0]
    stage = stage_in(words)
    named = next((name for pattern, name in NAMES if re.search(pattern, words)), "")
    if stage == 0:
        return named or "DDP"
    if named in STAGED:
        return named
    return f"ZeRO-{stage}{' hierarchical' if 'hierarch' in words else ''}"


def _published(row: Row) -> tuple[str, ...]:
    said = READ.get(row.confidence)
    return (said,) if said else ()


def _short(text: str) -> str:
    return text.partition(" (")[0].strip() or UNKNOWN
