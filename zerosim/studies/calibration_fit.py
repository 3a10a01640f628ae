"""alpha, bandwidth and kappa of a collective from a sweep of sizes, or why they cannot be known.

    T(S) = a + w + 2 kappa sqrt(a w),   w = S f(n) / B

The form of `costs.collectives`, where only a part b of a stands under the root: kappa here is theirs x sqrt(b / a).

Fitted in ln T with weights that let single bad rows count less (Huber), by damped Gauss-Newton steps from several
starts: deterministic, and a few dozen points need no more. What a sweep does not show is not fitted: latency only where
the smallest sizes take no longer the larger they are, bandwidth only where the largest take nearly in proportion. At
the end of a sweep B and kappa trade off (one of 4 A100 that ends at 128 MB gives 460 GB/s on links of 300), so B is
held between what the largest size reached and where its growth leads: what is missing there goes with 1 / sqrt(S), so
that a gain of g in the last doubling leaves g / (sqrt 2 - 1) = 2.41 g; and to what the links of a topology carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zerosim.costs.bounds import bus_factor
from zerosim.errors import InputError, Problem
from zerosim.spec.calibration_file import MOST_KAPPA
from zerosim.spec.nccl_log import Sweep
from zerosim.units import show_binary_size, show_rate, show_share

LEAST = 1024.0  # bytes; smaller messages are launch only, and are not fitted where there are larger small ones
SMALL = 65536.0
FREE_SIZES = 8  # from so many sizes on kappa is fitted
FLAT_START = 0.25  # d ln T / d ln S over the first sizes up to which latency is most of T: a is then 0.6 of it or more
FLAT_END = 0.03  # growth of bus bandwidth in the last doubling up to which it has flattened
OPEN_END = 0.25  # growth from which on nothing is known of where it ends
FAR = 1e4  # times what the largest size reached: B where latency is all that a sweep shows
LEAD = 2.41  # what is missing of B behind the last size / the gain of the last doubling
BIG = 2.0**30  # bytes at which a single size tells the bandwidth,
BIG_SHARE = 0.95  # of which it then shows so much
OUTLIER = 1.345  # Huber: residuals of so many standard deviations count in full
SWEEP = "-b 1K -e 4G -f 2"  # options of nccl-tests that determine everything

Floats = NDArray[np.float64]


class Fit(NamedTuple):
    """Seconds, bytes/s; None where the sweep does not tell. `error`: geometric mean; `worst`: bytes and ratio - 1."""

    alpha: float | None
    bandwidth: float | None
    kappa: float | None
    sizes: tuple[float, float]
    points: int
    error: float
    worst: tuple[float, float]
    remarks: tuple[str, ...]


class _Line(NamedTuple):
    alpha: float
    bandwidth: float
    kappa: float


def fit(sweep: Sweep, usual_kappa: float, most: float = math.inf) -> Fit:
    """The line through a sweep; `most`: bytes/s that the links could carry. InputError where it tells nothing."""
    factor = bus_factor(sweep.collective, sweep.gpus)
    sizes, seconds = _used(sweep.points)
    flat, growth = _start(*_columns(sweep.points)), _growth(sizes, seconds)
    starts, ends = flat is not None and flat <= FLAT_START, growth is not None and growth <= OPEN_END
    if not starts and not ends:
        single = _single(sweep, sizes, seconds, factor)
        if single is None:
            raise InputError([_undetermined(sweep, sizes, flat, growth)])
        return single
    free = len(sizes) >= FREE_SIZES and starts and ends
    held = _held(sizes * factor / seconds, growth if ends else None, most)
    line = _best(sizes * factor, seconds, usual_kappa, free, held)
    ratios = np.log(_line_seconds(sizes * factor, line) / seconds)
    worst = int(np.argmax(np.abs(ratios)))
    remarks = [*_remarks(sizes, seconds, factor, starts, growth, line, most)]
    if not free and ends:
        remarks.append(f"kappa is the usual {usual_kappa:g}: {_why_fixed(len(sizes))}")
    return Fit(
        alpha=line.alpha if starts else None,
        bandwidth=line.bandwidth if ends else None,
        kappa=line.kappa if starts and ends else None,
        sizes=(float(sizes[0]), float(sizes[-1])),
        points=len(sizes),
        error=math.exp(float(np.mean(np.abs(ratios)))) - 1,
        worst=(float(sizes[worst]), math.exp(float(ratios[worst])) - 1),
        remarks=tuple(remarks),
    )


def _used(points: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    """Sizes and seconds to fit to."""
    small = any(LEAST <= size <= SMALL for size, _ in points)
    return _columns([point for point in points if not small or point[0] >= LEAST])


def _columns(points: Sequence[tuple[float, float]]) -> tuple[Floats, Floats]:
    pairs = np.array(points, dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


# --- what a sweep shows ----------------------------------------------------------------------------------------------


def _start(sizes: Floats, seconds: Floats) -> float | None:
    """d ln T / d ln S at the smallest sizes, over factors of four: from the first, or the median of the first three,
    where a single size is off."""
    windows = [
        (since, later[0])
        for since in range(min(3, len(sizes)))
        if len(later := np.flatnonzero(sizes >= 3.9 * sizes[since]))
    ]
    slopes = [float(np.log(seconds[to] / seconds[since]) / np.log(sizes[to] / sizes[since])) for since, to in windows]
    return min(slopes[0], median(slopes)) if slopes else None


def _growth(sizes: Floats, seconds: Floats) -> float | None:
    """By how much the bus bandwidth grows in the last doubling."""
    before = np.flatnonzero(sizes <= 0.55 * sizes[-1])
    if not len(before):
        return None
    since = int(before[-1])
    gain = (sizes[-1] / seconds[-1]) / (sizes[since] / seconds[since])
    return float(gain ** (1 / math.log2(sizes[-1] / sizes[since]))) - 1


def _held(reached: Floats, growth: float | None, most: float) -> tuple[float, float]:
    """Between what B lies: the bus bandwidth of the largest size, and where its growth leads; anywhere above it where
    that is not known, as a then is what counts."""
    if growth is None:
        return float(reached[-1]), max(float(reached[-1]), min(most, FAR * float(reached[-1])))
    missing = min(LEAD * max(growth, FLAT_END), 0.9)
    highest = min(most, float(np.max(reached)) / (1 - missing))
    return min(float(reached[-1]), highest), highest


def _single(sweep: Sweep, sizes: Floats, seconds: Floats, factor: float) -> Fit | None:
    """One big size, without others to compare with: what it reached is nearly the bandwidth."""
    if len(sizes) > 1 or sizes[0] < BIG:
        return None
    reached = float(sizes[0] * factor / seconds[0])
    size = float(sizes[0])
    remarks = (f"one size only: bandwidth taken as what it reached / {BIG_SHARE:g}", _lacks_alpha(sizes))
    return Fit(None, reached / BIG_SHARE, None, (size, size), 1, 0.0, (size, 0.0), remarks)


def _undetermined(sweep: Sweep, sizes: Floats, flat: float | None, growth: float | None) -> Problem:
    """Neither end is shown."""
    if flat is None or growth is None:
        found = f"{len(sizes)} size{'s' if len(sizes) > 1 else ''} within a factor of four"
    else:
        first, last = show_binary_size(int(sizes[0])), show_binary_size(int(sizes[-1]))
        found = (
            f"time that grows with the size from {first} on, so alpha is not determined, and bus bandwidth that still "
            f"grows {show_share(growth)} at {last}, so the bandwidth is not"
        )
    return Problem(sweep.source, found=found, expected=f"small and large sizes: nccl-tests with {SWEEP}")


def _remarks(
    sizes: Floats, seconds: Floats, factor: float, starts: bool, growth: float | None, line: _Line, most: float
) -> list[str]:
    remarks = [] if starts else [_lacks_alpha(sizes)]
    if growth is None or growth > OPEN_END:
        said = "" if growth is None else f" (bus bandwidth grows {show_share(growth)} in the last doubling)"
        remarks.append(f"bandwidth not determined{said}: sizes up to 4G are missing, e.g. {SWEEP}")
    elif growth > FLAT_END:
        reached = show_rate(float(np.max(sizes * factor / seconds)))
        held = "held to what the links carry" if line.bandwidth >= most * (1 - 1e-6) else "extrapolated"
        last = show_binary_size(int(sizes[-1]))
        remarks.append(f"bandwidth {held}: at {last} it is {reached} and grows {show_share(growth)} a doubling")
    elif line.bandwidth >= most * (1 - 1e-6):
        remarks.append("bandwidth held to what the links carry")
    return remarks


def _lacks_alpha(sizes: Floats) -> str:
    return f"alpha not determined: sizes below {show_binary_size(int(sizes[0]))} are missing, e.g. {SWEEP}"


def _why_fixed(count: int) -> str:
    return f"{count} sizes are too few to fit it" if count < FREE_SIZES else "the smallest sizes are missing"


# --- the line --------------------------------------------------------------------------------------------------------


def _line_seconds(moved: Floats, line: _Line) -> Floats:
    w = moved / line.bandwidth
    seconds: Floats = line.alpha + w + 2 * line.kappa * np.sqrt(line.alpha * w)
    return seconds


def _best(moved: Floats, seconds: Floats, usual: float, free: bool, held: tuple[float, float]) -> _Line:
    """The best of several starts; `moved`: bytes on the bus."""
    first = float(np.min(seconds))
    kappas = (usual, 0.2, 1.5) if free else (usual,)
    starts = [_Line(a * first, b, kappa) for kappa in kappas for a in (1.0, 0.3) for b in held]
    lines = [_climb(moved, seconds, start, free, held) for start in starts]
    return min(lines, key=lambda line: _cost(moved, seconds, line))


def _cost(moved: Floats, seconds: Floats, line: _Line) -> float:
    return float(np.mean(np.abs(np.log(_line_seconds(moved, line) / seconds))))


def _climb(moved: Floats, seconds: Floats, line: _Line, free: bool, held: tuple[float, float]) -> _Line:
    """Levenberg-Marquardt in ln a, ln B and kappa, with weights renewed at each step."""
    damping = 1e-2
    for _ in range(200):
        residuals, slopes = _slopes(moved, seconds, line, free)
        weights = _weights(residuals)
        before = float(weights @ residuals**2)
        normal, gradient = slopes.T @ (weights[:, None] * slopes), slopes.T @ (weights * residuals)
        steeper = normal + damping * np.diag(np.diag(normal) + 1e-12)
        step = np.linalg.solve(steeper, -gradient).astype(np.float64)
        moved_to = _stepped(line, step, held)
        after = float(weights @ np.log(_line_seconds(moved, moved_to) / seconds) ** 2)
        if after > before:
            damping *= 4
            if damping > 1e9:
                break
            continue
        damping = max(damping / 3, 1e-9)
        near = max(abs(math.log(moved_to.alpha / line.alpha)), abs(math.log(moved_to.bandwidth / line.bandwidth)))
        near = max(near, abs(moved_to.kappa - line.kappa))
        line = moved_to
        if near < 1e-10:
            break
    return line


def _slopes(moved: Floats, seconds: Floats, line: _Line, free: bool) -> tuple[Floats, Floats]:
    """Residuals ln (T / measured) and their derivatives by ln a, ln B and, when it is free, kappa."""
    w = moved / line.bandwidth
    mixed = np.sqrt(line.alpha * w)
    total = line.alpha + w + 2 * line.kappa * mixed
    columns = [(line.alpha + line.kappa * mixed) / total, -(w + line.kappa * mixed) / total]
    if free:
        columns.append(2 * mixed / total)
    return np.log(total / seconds), np.stack(columns, axis=1)


def _weights(residuals: Floats) -> Floats:
    """Huber's: 1 within so many standard deviations (by the median), less beyond."""
    spread = max(1.4826 * float(np.median(np.abs(residuals))), 0.01)
    weights: Floats = np.minimum(1.0, OUTLIER * spread / np.maximum(np.abs(residuals), 1e-12))
    return weights


def _stepped(line: _Line, step: Floats, held: tuple[float, float]) -> _Line:
    """No step larger than a factor of e; kappa and B within their bounds."""
    short = np.clip(step, -1.0, 1.0)
    kappa = min(MOST_KAPPA, max(0.0, line.kappa + float(short[2]))) if len(short) > 2 else line.kappa
    bandwidth = min(held[1], max(held[0], line.bandwidth * math.exp(float(short[1]))))
    return _Line(line.alpha * math.exp(float(short[0])), bandwidth, kappa)
