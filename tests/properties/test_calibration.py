"""What holds of calibration whatever is measured: lines come back through noise, and no text breaks a reader."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.costs_machines import collective, switched
from tests.nccl_logs import FULL, HEADS, Line, log
from tests.unit.test_calibrated_costs import priced, seconds
from zerosim.errors import InputError
from zerosim.spec.bench_logs import read_benchmark
from zerosim.spec.calibration import COLLECTIVES, Calibration, Curve, MeasuredKind
from zerosim.spec.calibration_file import calibration_text, read_calibration
from zerosim.spec.loading import parse
from zerosim.spec.nccl_log import is_nccl_log, read_nccl_log
from zerosim.studies.calibration_fit import fit

lines = st.builds(
    Line,
    st.floats(8e-6, 1e-3),
    st.floats(1e9, 900e9),
    st.floats(0.0, 2.0),
)
WORDS = [
    "float", "sum", "none", "-1", "0", "N/A", "XXX.XX", "1024", "256", "1e99", "17.5", "-3", "0.00", "nan", "inf", "#",
    "busbw", "algbw", "size", "Rank", "Pid", "on", "device", "nThread 1 nGpus 4", "all_reduce_perf", "NCCL INFO",
    "nRanks", "...", "[1,0]<stdout>:", "99999999999999999999", "duration:", "sec", "algo throughput:", "Gbps", "busbw:",
    "data size:", "GB", "READ: bw=", "(6MB/s)", "Running host_to_device_memcpy_ce.", "payload | busbw | algbw",
    "over 0 ranks", "\n", "\n", "\x1b[1m",
]  # fmt: skip
texts = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(WORDS), max_size=80).map(" ".join),
)


@settings(max_examples=25, deadline=None)
@given(line=lines, gpus=st.sampled_from([2, 4, 8, 16, 64]), kind=st.sampled_from(["all_reduce", "all_gather"]))
def test_a_noisy_log_gives_the_line_back(line: Line, gpus: int, kind: MeasuredKind) -> None:
    """With 3 % of noise the times of the fit are near the true ones from 1 KiB to 4 GiB, where both ends are shown."""
    text = log(line, kind, gpus, sizes=FULL, noise=0.03)
    (sweep,), problems = read_nccl_log(text, "a.log")
    assert problems == ()
    try:
        found = fit(sweep, 0.6)
    except InputError:
        return
    if found.alpha is None or found.bandwidth is None or found.kappa is None:
        return
    back = Line(found.alpha, found.bandwidth, found.kappa)
    for size in FULL:
        true = line.seconds(kind, gpus, size)
        assert abs(math.log(back.seconds(kind, gpus, size) / true)) < 0.12
    assert found.error < 0.06


@settings(max_examples=300, deadline=None)
@given(text=texts)
def test_no_text_breaks_a_reader(text: str) -> None:
    for shown in (text, HEADS + text):
        is_nccl_log(shown)
        sweeps, problems = read_nccl_log(shown, "a.log")
        assert sweeps or problems
        assert all(len(str(problem).splitlines()) == 1 for problem in problems)
        for sweep in sweeps:
            assert sweep.gpus >= 2
            assert all(size > 0 and seconds > 0 for size, seconds in sweep.points)
        try:
            found = read_benchmark(shown, "a.log")
        except InputError:
            continue
        assert found.sweeps or all(rate > 0 for rate in found.rates.values())


@settings(max_examples=100, deadline=None)
@given(source=st.text(st.characters(codec="utf-8"), max_size=40), line=lines)
def test_every_source_and_number_is_read_as_it_was_written(source: str, line: Line) -> None:
    curve = Curve("all_reduce", 8, 1, line.alpha, line.bandwidth, line.kappa, (1024, 2**32), 0.05, source)
    (back,) = read_calibration(parse(calibration_text(Calibration("x", (curve,))), "x")).curves
    assert back.source == source
    assert back.alpha == pytest.approx(line.alpha, rel=1e-6)
    assert back.bandwidth == pytest.approx(line.bandwidth, rel=1e-6)
    assert back.kappa == pytest.approx(line.kappa, rel=1e-6)


H100 = switched("h100_sxm")


@settings(max_examples=60, deadline=None)
@given(
    line=st.builds(Line, st.floats(5e-6, 1e-3), st.floats(1e9, 400e9), st.floats(0, 3)),
    kind=st.sampled_from(COLLECTIVES),
    size=st.integers(1, 2**36),
)
def test_prices_are_the_curve_where_it_was_measured(line: Line, kind: MeasuredKind, size: int) -> None:
    """And no resource gives more than its rate."""
    given_ = Calibration("", (Curve(kind, 8, 1, *line, (1.0, 2.0**36), 0.0, "x"),))
    found = priced(H100, given_, collective(kind, size))
    assert seconds(found) == pytest.approx(line.seconds(kind, 8, size), rel=1e-6)
    assert all(use.efficiency <= 1 for use in found.demands["all"][0].uses)
