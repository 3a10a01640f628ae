"""What of the catalogue is uncertain, and by how much: figures, each with its grade and its spread.

Rules: a figure is one thing that is not known, so that what varies for one reason is one figure: the host's calls vary
with its CPU, the two ways of an attention kernel with its release. A spread is the standard deviation of the logarithm:
that of the grade (catalogue group `uncertainty`), or of what is known of the kind; what was only derived or recalled is
never surer than its grade says. Constants that count, choose or bound nothing in time are taken as they are; those that
a topology reads when it is made are drawn with its devices (`uncertain_machine`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from zerosim.catalog import all_constants, constant

MEASURED = "EAF"  # grades for which what is known of a kind stands instead; others are no surer than their grade
OF_A_MEAN = math.sqrt(math.pi / 2)  # standard deviation / mean of absolute deviations, of a normal distribution

CERTAIN = (
    "gemm.tile_m",
    "gemm.tile_n",
    "gemm.wave_soft",
    "collectives.nvls.min_gpus",
    "collectives.nvls.min_bytes",
    "collectives.p2p_channels",
    "collectives.p2p_part_mib",
    "collectives.relative_error",
    "contention.channels",
    "overheads",
    "uncertainty",
    "gemm.efficiency",  # the rest of them are read when a topology is made
    "gemm.sustained",
    "gemm.fp32",
    "memory.stream_efficiency",
    "latency_us",
    "nvme.read_latency_us",
    "nvme.write_latency_us",
)


class Figure(NamedTuple):
    """Something of which the catalogue says a number, by its grade. `sigma`: of the logarithm of a factor on it."""

    name: str
    grade: str
    sigma: float

    def factor(self, drawn: float) -> float:
        """On the catalogue's value; `drawn` is standard normal."""
        return math.exp(self.sigma * drawn)


def spread(grade: str, known: float | None = None) -> float:
    """Of a figure; `known` is that of its kind."""
    general = constant(f"uncertainty.grade.{grade}")
    if known is None:
        return general
    return known if grade in MEASURED else max(known, general)


def of_arithmetic() -> float:
    return constant("uncertainty.arithmetic")


def of_large_messages() -> float:
    """Published collectives of large messages against predicted: two stacks then differ by 1.5 in one case of 20."""
    return OF_A_MEAN * math.log1p(constant("collectives.relative_error.above_16_mib"))


def of_small_messages() -> float:
    return OF_A_MEAN * math.log1p(constant("collectives.relative_error.below_64_kib"))


def _of_attention() -> float:
    return constant("uncertainty.attention")


def _of_the_host() -> float:
    return constant("uncertainty.host")


class Kind(NamedTuple):
    """Constants below a path: what is known of their spread, and whether one factor moves all of them."""

    known: Callable[[], float]
    figure: str = ""  # of all of them; empty where each has its own


_KINDS: Mapping[str, Kind] = {
    "host": Kind(_of_the_host, "host"),
    **{
        f"attention.{kernel}.{way}": Kind(_of_attention, f"attention.{kernel}")
        for kernel in ("flash1", "flash", "flash3")
        for way in ("forward", "backward")
    },
    "collectives": Kind(of_large_messages),
}


def figures_of_constants() -> Mapping[str, Figure]:
    """By path of a constant, the figure that it is, or is a part of; parts may be of several grades."""
    return dict(_each())


def weakest(figures: Iterable[Figure]) -> dict[str, Figure]:
    """By name, the figure of the least known of its parts."""
    found: dict[str, Figure] = {}
    for figure in figures:
        found[figure.name] = max(figure, found.get(figure.name, figure), key=lambda each: (each.sigma, each.grade))
    return found


def _each() -> Iterator[tuple[str, Figure]]:
    for path, entry in all_constants().items():
        if _below(path, CERTAIN) or entry.value == 0:
            continue
        kind = _KINDS.get(_below(path, _KINDS))
        known = None if kind is None else kind.known()
        if kind is not None and path.startswith("collectives.") and _timed(path):
            known = of_small_messages()
        name = path if kind is None or not kind.figure else kind.figure
        yield path, Figure(name, entry.grade, spread(entry.grade, known))


def _below(path: str, tops: tuple[str, ...] | Mapping[str, Kind]) -> str:
    """Which of `tops` the path is or stands below; empty if none."""
    return next((top for top in tops if path == top or path.startswith(f"{top}.")), "")


def _timed(path: str) -> bool:
    return any(part.endswith("_us") for part in path.split("."))


def is_share(path: str) -> bool:
    """Whether a constant is a fraction of something: a pure number of at most 1."""
    units = ("_us", "_gbs", "_gib", "_mib")
    return all_constants()[path].value <= 1 and not any(part.endswith(units) for part in path.split("."))


def drawn_constants(draws: Mapping[str, float]) -> dict[str, float]:
    """Constants by path, given what was drawn for figures by name; fractions stay fractions."""
    drawn = {}
    for path, figure in figures_of_constants().items():
        value = constant(path) * figure.factor(draws[figure.name])
        drawn[path] = min(1.0, value) if is_share(path) else value
    return drawn
