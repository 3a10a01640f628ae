"""What was measured of a row, as metrics: the time of a step from what the source printed, parts of it, memory, fits.

The first of step time, tokens per second, samples per second and TFLOP/s that is there is the step's. `slack` is what
the source leaves open: half of the last digit, a printed range, what could be read from a figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from zerosim import catalog
from zerosim.spec.measured_columns import BY_NAME
from zerosim.spec.measured_numbers import printed, range_width
from zerosim.spec.measured_row import Row
from zerosim.studies.validation.assumptions import Ledger
from zerosim.studies.validation.case import Metric, MetricName
from zerosim.studies.validation.flops import Counted, counted, flops_of_step
from zerosim.studies.validation.row_model import Sized, parameters
from zerosim.studies.validation.row_training import Batch
from zerosim.studies.validation.words import denied, said

GIB, MIB, TERA = 2.0**30, 2.0**20, 1e12
_OUT = (
    r"(?<![a-z])oom(s|ed|[- _]?killed|[- _]?error)?(?![a-z])|out[- _]?of[- _]?memory|"
    r"\b(does|did|do)(n't| not) fit|cannot fit|no fit\b"
)
_RAN = r"\s*(ran|runs?|ok|okay|yes|true|success\w*|succeeded|complete\w*|finish\w*|passe[sd]|pass|fits?|trained|done)\b"
_FIGURE = 0.01  # of a value: how well a bar can be read; a choice
_MEMORY: tuple[tuple[str, MetricName], ...] = (
    (r"nvidia-smi|driver", "peak_memory_bytes"),
    (r"active", "active_memory_bytes"),
    (r"reserved", "reserved_memory_bytes"),
    (r"alloc|memory_summary", "allocated_memory_bytes"),
)


class Run(NamedTuple):
    """What the numbers of a row are about. `replicas` each have their own batch."""

    sized: Sized
    batch: Batch
    gpus: int
    replicas: int
    recomputed: bool
    arithmetic: str
    device: str


def metrics_of(row: Row, run: Run, ledger: Ledger) -> tuple[Metric, ...]:
    """All that can be held against a prediction."""
    return tuple(_metrics(row, run, ledger))


def _metrics(row: Row, run: Run, ledger: Ledger) -> Iterator[Metric]:
    if said(_OUT, row.outcome):
        yield Metric("fits", 0.0)
        return
    step = step_of(row, run, ledger)
    if step is not None:
        yield step
    parts: tuple[tuple[MetricName, float | None, str], ...] = (
        ("forward_seconds", row.forward_seconds, "fwd_s"),
        ("backward_seconds", row.backward_seconds, "bwd_s"),
        ("optimizer_seconds", row.optimizer_seconds, "opt_s"),
    )
    for name, seconds, column in parts:
        if seconds is not None:
            yield Metric(name, seconds, _slack(row, column, seconds))
    yield from _memory(row, ledger)
    for key, value in row.told.items():
        if re.match(r"speedup_(overlap|prefetch)\w*_on_over_off", key) and (ratio := _number(value)):
            yield Metric("speedup", ratio, _reading(row, "metric_other", ratio))
    if re.match(_RAN, row.outcome, re.IGNORECASE) or denied(_OUT, row.outcome):
        yield Metric("fits", 1.0)
    elif row.outcome:
        ledger.unread("outcome")


def step_of(row: Row, run: Run, ledger: Ledger) -> Metric | None:
    """The time of a step, by the first column that says it."""
    sequences = run.batch.micro * run.batch.accumulation
    tokens = sequences * run.sized.sequence_length * run.replicas / run.gpus  # per GPU
    if row.step_seconds:
        return Metric("step_seconds", row.step_seconds, _slack(row, "step_time_s", row.step_seconds))
    if rate := row.tokens_per_second_per_gpu:
        return Metric("step_seconds", tokens / rate, _slack(row, "tokens_per_s_per_gpu", rate))
    if rate := row.samples_per_second:
        slack = _slack(row, "samples_per_s_total", rate)
        return Metric("step_seconds", sequences * run.replicas / rate, slack)
    if rate := row.tflops_per_gpu:
        flops = _flops(counted(row.tflops_definition, run.recomputed), row, run, ledger)
        return Metric("step_seconds", flops / (rate * TERA), _slack(row, "tflops_per_gpu", rate))
    return _of_share(row, run, ledger)


def _of_share(row: Row, run: Run, ledger: Ledger) -> Metric | None:
    """By MFU or HFU, of a GPU that has a peak at that precision."""
    share, column = (row.mfu, "mfu") if row.mfu else (row.hfu, "hfu")
    if not share:
        return None
    peak = catalog.gpu(run.device).peak_flops.get(run.arithmetic)
    if not peak:
        ledger.note(f"{column} not read: {catalog.gpu(run.device).name} has no peak at {run.arithmetic}")
        return None
    count = Counted("parameters", True, 3 if row.mfu or not run.recomputed else 4)
    shown = printed(row.raw.get(column, ""))
    return Metric(
        "step_seconds",
        _flops(count, row, run, ledger) / (share * peak),
        _slack(row, column, shown[0] if shown else share),
    )


def _flops(count: Counted, row: Row, run: Run, ledger: Ledger) -> float:
    """Of one GPU in a step. Megatron's formula is of blocks with a feed-forward of 4 h, which T5's are not."""
    if run.sized.shape.family == "t5":
        count = count._replace(formula="parameters")
        ledger.note("TFLOP/s counted by parameters and attention")
    elif not count.sure:
        ledger.note(f"TFLOP/s by {count.told}")
    shape, sequences = run.sized.shape, run.batch.micro * run.batch.accumulation
    whole = flops_of_step(count, shape, row.parameters or parameters(shape), sequences, run.sized.sequence_length)
    return whole * run.replicas / run.gpus


def _memory(row: Row, ledger: Ledger) -> Iterator[Metric]:
    """Peaks, by what was counted: all of the driver's, the allocator's, what is in use or only allocated."""
    words = row.peak_memory_definition
    if row.peak_memory_gb is None:
        return
    held = _held(words, row, ledger)
    unit = _unit(words, row, ledger)
    yield Metric(held, row.peak_memory_gb * unit, _slack(row, "peak_mem_gb", row.peak_memory_gb))
    more = _number(row.told.get("reserved_gib", "")) or _reserved(words)
    if more and held != "reserved_memory_bytes":
        yield Metric("reserved_memory_bytes", more * GIB)


def _reserved(words: str) -> float | None:
    hit = re.search(r"reserved (\d+(?:\.\d+)?) ?Gi?B", words, re.IGNORECASE)
    return float(hit[1]) if hit else None


def _held(words: str, row: Row, ledger: Ledger) -> MetricName:
    hits = [(hit.start(), name) for pattern, name in _MEMORY if (hit := re.search(pattern, words, re.IGNORECASE))]
    if hits:
        return min(hits)[1]
    if re.search(r"torch-?titan", row.framework, re.IGNORECASE):  # components/metrics.py: max_reserved_gib
        ledger.note("peak memory is what torchtitan logs: reserved")
        return "reserved_memory_bytes"
    ledger.note("peak memory is what torch has allocated")
    return "allocated_memory_bytes"


def _unit(words: str, row: Row, ledger: Ledger) -> float:
    """Bytes of one: torch's programs print bytes / 1024^3, whatever they call it."""
    if re.search(r"[GM]iB", row.raw.get("peak_mem_gb", ""), re.IGNORECASE):
        return GIB
    if re.search(r"MiB ?/ ?1000", words):
        return 1000 * MIB
    if re.search(r"10\^9|1e9|decimal|MB ?/ ?1000", words):
        return 1e9
    if not re.search(r"GiB|/ ?1024|2\^30", words):
        ledger.note("peak memory in GiB, which torch's programs print as GB")
    return GIB


# --- what the source leaves open ---


def _slack(row: Row, column: str, value: float) -> float:
    told = row.told.get(f"{column} range")
    if told and (hit := re.match(r"([\d.]+)-([\d.]+)$", told)):
        low, high = _number(hit[1]), _number(hit[2])
        if low and high:
            return max(abs(high - low) / (high + low), _digits(row, column))
    return max(_digits(row, column), _reading(row, column, value))


def _digits(row: Row, column: str) -> float:
    """Half of the last digit that is printed over the number, or half of a printed range over its middle."""
    text = row.raw.get(column, "")
    form = BY_NAME[column].form
    if form is not None and (width := range_width(text, form)):
        return width
    number = printed(text)
    return number[1] / number[0] if number and number[0] > 0 else 0.0


def _reading(row: Row, column: str, value: float) -> float:
    """How well a figure could be read: as the row says it ("+-0.4"), else a percent."""
    if not re.search(r"figure", row.confidence, re.IGNORECASE):
        return 0.0
    hit = re.search(r"\+-\s?(\d*\.?\d+)", row.notes)
    known = _number(row.told.get("reading_error", "")) or (_number(hit[1]) if hit else None)
    return min(known / value, 1.0) if known else _FIGURE


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e18 else None
