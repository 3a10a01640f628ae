"""alpha, bandwidth and kappa from a sweep: what comes back, what is held, and what a sweep cannot tell."""

from __future__ import annotations

import math

import pytest

from tests.nccl_logs import FULL, Line
from zerosim.errors import InputError
from zerosim.spec.calibration import MeasuredKind
from zerosim.spec.nccl_log import Sweep
from zerosim.studies.calibration_fit import Fit, fit

USUAL = 0.6
LINES = [Line(15.7e-6, 492e9, 0.72), Line(44.3e-6, 228e9, 0.72), Line(389e-6, 402e9, 0.2), Line(34.5e-6, 415e9, 2.0),
         Line(900e-6, 97e9, 0.0)]  # fmt: skip


def sweep(line: Line, sizes: tuple[int, ...] = FULL, kind: MeasuredKind = "all_reduce", gpus: int = 16) -> Sweep:
    points = tuple((float(size), line.seconds(kind, gpus, size)) for size in sizes)
    return Sweep("a.log", kind, gpus, 2, points)


def powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(first, last + 1))


def found(line: Line, sizes: tuple[int, ...] = FULL, most: float = math.inf) -> Fit:
    return fit(sweep(line, sizes), USUAL, most)


@pytest.mark.parametrize("line", LINES)
def test_a_line_comes_back(line: Line) -> None:
    back = found(line)
    assert back.alpha == pytest.approx(line.alpha, rel=1e-3)
    assert back.bandwidth == pytest.approx(line.bandwidth, rel=1e-3)
    assert back.kappa == pytest.approx(line.kappa, abs=2e-3)
    assert (back.points, back.sizes) == (len(FULL), (1024, 2**32))
    assert back.error < 1e-3
    assert all(remark.startswith("bandwidth extrapolated") for remark in back.remarks)  # it grows by 4 and 6 %


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("last", [13, 16, 20])
def test_latency_comes_back_where_it_is_all_that_is_shown(line: Line, last: int) -> None:
    """However far the bandwidth is: nothing of it is known there, and nothing of it may bend the latency."""
    back = found(line, powers(10, last))
    assert back.bandwidth is None
    assert back.alpha == pytest.approx(line.alpha, rel=0.16)
    assert back.error < 0.04


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("kind", ["all_gather", "send_recv"])
def test_whatever_the_collective(line: Line, kind: MeasuredKind) -> None:
    back = fit(sweep(line, kind=kind), USUAL)
    assert back.bandwidth == pytest.approx(line.bandwidth, rel=1e-3)


def test_one_wild_size_moves_little() -> None:
    """A size that took four times as long (another job on the fabric) is not fitted to, but told as the worst."""
    line = LINES[0]
    spoilt = sweep(line)
    points = tuple((size, seconds * (4 if size == 2**20 else 1)) for size, seconds in spoilt.points)
    back = fit(spoilt._replace(points=points), USUAL)
    assert back.alpha == pytest.approx(line.alpha, rel=0.05)
    assert back.bandwidth == pytest.approx(line.bandwidth, rel=0.05)
    assert back.worst[0] == 2**20
    assert back.worst[1] == pytest.approx(-0.75, abs=0.02)
    # one of 23 sizes by ln 4, the others not: exp(ln 4 / 23) - 1
    assert back.error == pytest.approx(4 ** (1 / 23) - 1, rel=0.3)


def test_sizes_below_a_kibibyte_are_not_fitted_to() -> None:
    assert found(LINES[0], powers(3, 32)) == found(LINES[0])


def test_without_large_sizes_only_alpha() -> None:
    back = found(LINES[0], powers(10, 21))  # up to 2 MiB, where 15.7 us stand beside 8
    assert back.alpha == pytest.approx(LINES[0].alpha, rel=0.2)
    assert (back.bandwidth, back.kappa) == (None, None)
    assert any("bandwidth not determined" in remark and "-b 1K -e 4G -f 2" in remark for remark in back.remarks)


def test_without_small_sizes_only_the_bandwidth() -> None:
    back = found(LINES[1], powers(27, 33))
    assert back.bandwidth == pytest.approx(LINES[1].bandwidth, rel=0.03)
    assert (back.alpha, back.kappa) == (None, None)
    assert any(remark.startswith("alpha not determined: sizes below 128 MiB are missing") for remark in back.remarks)


def test_between_both_ends_nothing_is_determined() -> None:
    with pytest.raises(InputError) as told:
        found(Line(50e-6, 200e9, 1.0), powers(21, 24))  # w is 20 to 157 us beside 50
    (problem,) = told.value.problems
    assert "time that grows with the size from 2 MiB on, so alpha is not determined" in problem.found
    assert problem.expected == "small and large sizes: nccl-tests with -b 1K -e 4G -f 2"


@pytest.mark.parametrize("sizes", [(2**20,), (2**20, 2**21)])
def test_one_or_two_sizes_tell_nothing(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="small and large sizes"):
        found(LINES[2], sizes)


def test_one_big_size_tells_the_bandwidth_roughly() -> None:
    back = found(Line(10e-6, 100e9, 0.0), (4 * 2**30,))
    assert back.bandwidth == pytest.approx(100e9 / 0.95, rel=1e-3)
    assert (back.alpha, back.points) == (None, 1)


def test_kappa_is_the_usual_one_where_sizes_are_few() -> None:
    back = found(Line(20e-6, 100e9, USUAL), (2**10, 2**13, 2**16, 2**20, 2**26, 2**31, 2**32))
    assert back.kappa == USUAL
    assert back.bandwidth == pytest.approx(100e9, rel=0.01)
    assert "kappa is the usual 0.6: 7 sizes are too few to fit it" in back.remarks


def test_a_sweep_that_ends_too_early_does_not_run_away() -> None:
    """At 128 MiB 8 us and 300 GB/s with kappa 1 have reached 81 %, and grow by 7 %: so nothing beyond where that
    leads, and nothing beyond the links."""
    line = Line(8e-6, 300e9, 1.0)
    back = found(line, powers(10, 27))
    reached = 2 * 15 / 16 * 2**27 / line.seconds("all_reduce", 16, 2**27)
    assert back.bandwidth is not None
    assert reached < back.bandwidth <= 1.25 * reached
    assert any("bandwidth extrapolated: at 128 MiB it is" in remark for remark in back.remarks)
    held = found(line, powers(10, 27), most=280e9)
    assert held.bandwidth == pytest.approx(280e9)
    assert any("held to what the links carry" in remark for remark in held.remarks)
