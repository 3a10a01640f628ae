"""From what was measured on a machine to a calibration: logs are read and fitted, rates taken, each with its source.

A file that determines nothing is refused in one line, and the others stand. Where a topology is named, what no link of
it could carry is refused too: the log is of another machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from statistics import median
from typing import Any, NamedTuple

from zerosim.catalog import constant, gpus, recognise
from zerosim.costs.bounds import bus_factor
from zerosim.costs.calibrated import calibrated
from zerosim.costs.measured import carried_at_most, spread_on
from zerosim.errors import InputError, Problem
from zerosim.report.files import write_text
from zerosim.report.words import counted
from zerosim.spec.bench_logs import read_benchmark
from zerosim.spec.calibration import (
    LEAST_RATE,
    MOST_ALPHA,
    RATES,
    Calibration,
    Compute,
    Curve,
    MeasuredRate,
    is_rate,
)
from zerosim.spec.calibration_file import (
    HEADER,
    calibration_json,
    calibration_mapping,
    calibration_text,
    comments,
    read_calibration,
)
from zerosim.spec.devices import Gpu
from zerosim.spec.files import is_file, printed, read_bytes, read_text
from zerosim.spec.launch import Launch
from zerosim.spec.loading import parse
from zerosim.spec.nccl_log import Asked, Sweep, is_nccl_log, read_nccl_log
from zerosim.spec.optimizers import ADAMW
from zerosim.spec.topology import Topology
from zerosim.studies.calibration_fit import Fit, fit
from zerosim.units import show_count, show_rate, show_seconds, show_share, show_size

ONE_MACHINE = 1.3  # by how much times of the same thing may differ, run to run
NOISE = 1.05  # of a bandwidth that was reached, before a link is said to be too slow for it
MOST_ERROR = 0.5  # of a fit, beyond which it describes nothing
BY_HAND = "given on the command line"


class Fitted(NamedTuple):
    """A curve, how well it fits, and what was told of the log and the fit."""

    curve: Curve
    fit: Fit
    told: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        curve, found = self.curve, self.fit
        return {
            "collective": curve.collective, "gpus": curve.gpus, "nodes": curve.nodes,
            "alpha_seconds": curve.alpha, "bandwidth_bytes_per_second": curve.bandwidth, "kappa": curve.kappa,
            "sizes_bytes": list(curve.sizes), "points": found.points, "error": found.error,
            "worst": {"size_bytes": found.worst[0], "error": found.worst[1]},
            "source": curve.source, "remarks": list(self.told),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found: a calibration, the quality of its curves, and what was refused."""

    calibration: Calibration
    fits: tuple[Fitted, ...] = ()
    refused: tuple[Problem, ...] = ()

    def as_json(self) -> dict[str, Any]:
        entries = self.calibration
        return {
            "calibration": calibration_mapping(entries),
            "fits": [each.as_json() for each in self.fits],
            "compute": [each._asdict() for each in entries.compute],
            "rates": [each._asdict() | {"of": RATES[each.name]} for each in entries.rates],
            "refused": [str(problem) for problem in self.refused],
        }

    def joined(self, compute: Sequence[Compute] = (), rates: Sequence[MeasuredRate] = ()) -> Outcome:
        """With other entries."""
        more = Calibration("", compute=tuple(compute), rates=tuple(rates))
        return replace(self, calibration=self.calibration.merged(more))


def from_files(paths: Iterable[str], asked: Asked, topology: Topology | None) -> Outcome:
    """Everything that the files determine. A file that cannot be read is an InputError."""
    sweeps: list[Sweep] = []
    rates: list[MeasuredRate] = []
    refused: list[Problem] = []
    texts = _texts(paths)
    for path, text in texts.items():
        name = _shown(path)
        if is_nccl_log(text):
            found, problems = read_nccl_log(text, name, asked)
            sweeps += found
            refused += problems
            continue
        try:
            read = read_benchmark(text, name, asked)
        except InputError as error:
            refused += error.problems
            continue
        sweeps += read.sweeps
        rates = _with_rates(rates, [MeasuredRate(kind, rate, name) for kind, rate in read.rates.items()], refused)
    fits = []
    for sweep in _joined(sweeps, refused):
        try:
            fits.append(_fitted(sweep, topology))
        except InputError as error:
            refused += error.problems
    found_all = Calibration("", curves=tuple(each.curve for each in fits)).merged(Calibration("", rates=tuple(rates)))
    return Outcome(found_all, tuple(fits), tuple(refused))


def _texts(paths: Iterable[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            texts[path] = printed(read_bytes(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return texts


def _shown(path: str) -> str:
    """The name of a file as a source: without its folder, and without bytes that are no text."""
    return PurePath(path).name.encode("utf-8", "replace").decode()


def _joined(sweeps: Iterable[Sweep], refused: list[Problem]) -> list[Sweep]:
    """Sweeps of the same thing as one: of a size that several have the median. Those that disagree are refused."""
    same: dict[tuple[str, ...], Sweep] = {}
    for sweep in sweeps:
        key = (sweep.tool, sweep.collective, str(sweep.gpus), str(sweep.nodes))
        first = same.get(key)
        ratio = 1.0 if first is None else _times_of(first, sweep)
        if max(ratio, 1 / ratio) > ONE_MACHINE:
            found = f"{max(ratio, 1 / ratio):.2g} times {'the' if ratio > 1 else 'shorter than the'} times"
            expected = f"those of {first.source if first else ''} at the same sizes, or a calibration of its own"
            refused.append(Problem(sweep.source, found=found, expected=expected))
        else:
            same[key] = sweep if first is None else _one(first, sweep)
    return list(same.values())


def _with_rates(
    known: Sequence[MeasuredRate], more: Iterable[MeasuredRate], refused: list[Problem]
) -> list[MeasuredRate]:
    """Of a thing that several files measured the best; a file that disagrees is refused."""
    best = {each.name: each for each in known}
    for each in more:
        before = best.get(each.name, each)
        low, high = sorted((before, each), key=lambda one: one.rate)
        if high.rate > ONE_MACHINE * low.rate:
            expected = f"about the {show_rate(before.rate)} of {before.source}, or a calibration of its own"
            refused.append(Problem(each.source, each.name, show_rate(each.rate), expected))
        else:
            best[each.name] = high
    return list(best.values())


def _times_of(one: Sweep, other: Sweep) -> float:
    """Times of the other at the same sizes, in those of the one; 1 where they have none in common."""
    known = dict(one.points)
    return median([seconds / known[size] for size, seconds in other.points if size in known] or [1.0])


def _one(one: Sweep, other: Sweep) -> Sweep:
    times: defaultdict[float, list[float]] = defaultdict(list)
    for size, seconds in (*one.points, *other.points):
        times[size].append(seconds)
    points = tuple((size, median(times[size])) for size in sorted(times))
    told = tuple(dict.fromkeys((*one.told, *other.told)))
    return one._replace(source=f"{one.source}, {other.source}", points=points, told=told)


def _fitted(sweep: Sweep, topology: Topology | None) -> Fitted:
    others = _other_gpus(sweep, topology)
    told = [*sweep.told, *others]
    most, link = _carried(sweep, topology, told)
    reached = _reached(sweep)
    if reached > NOISE * most:
        found = ", ".join([f"bus bandwidth of {show_rate(reached)} over {sweep.gpus} GPUs on {sweep.nodes}", *others])
        expected = f"at most {show_rate(most)}, which {link} can carry: is the log of this machine?"
        raise InputError([Problem(sweep.source, found=found, expected=expected)])
    found_fit = fit(sweep, constant("collectives.kappa"), most)
    if (found_fit.alpha or 0.0) > MOST_ALPHA or not is_rate(found_fit.bandwidth or LEAST_RATE):
        found = f"{show_seconds(min(sweep.points)[1])} at {show_size(min(sweep.points)[0])}"
        raise InputError([Problem(sweep.source, found=found, expected="times in us, as nccl-tests has them")])
    if found_fit.error > MOST_ERROR:
        found = f"times that T = a + w + 2 kappa sqrt(a w) misses by {show_share(found_fit.error)}"
        raise InputError([Problem(sweep.source, found=found, expected="one collective on an idle machine")])
    sizes = f"{found_fit.points} size{'s' if found_fit.points > 1 else ''}"
    said = ", ".join((f"{sweep.tool} {sweep.source}: {sizes}", *told))
    curve = Curve(
        sweep.collective, sweep.gpus, sweep.nodes, found_fit.alpha, found_fit.bandwidth, found_fit.kappa,
        found_fit.sizes, found_fit.error, said,
    )  # fmt: skip
    return Fitted(curve, found_fit, (*told, *found_fit.remarks))


def _other_gpus(sweep: Sweep, topology: Topology | None) -> tuple[str, ...]:
    """The remark that a log lists GPUs which a topology has not; of a name that nobody knows nothing is said."""
    if topology is None:
        return ()
    own = {gpu.figures.name for gpu in topology.gpus if isinstance(gpu.figures, Gpu)}
    known = own.union(*(_names(product) for product in map(recognise.product, sorted(own)) if product))
    listed = [_names(product) for product in map(recognise.product, sweep.products) if product]
    others = " and ".join(dict.fromkeys(names[0] for names in listed if known.isdisjoint(names)))
    return (f"its GPUs are {others}, those of {topology.name} {' and '.join(sorted(own))}",) if others else ()


def _names(product: recognise.Product) -> list[str]:
    """What the figures of a GPU may be called, its own name first."""
    known = [gpus()[name].name if name in gpus() else name for name in (product.gpu, product.vague)]
    return [name for name in (product.name, *known) if name]


def _reached(sweep: Sweep) -> float:
    factor = bus_factor(sweep.collective, sweep.gpus)
    return max(size * factor / seconds for size, seconds in sweep.points)


def _carried(sweep: Sweep, topology: Topology | None, told: list[str]) -> tuple[float, str]:
    """What the links of a topology carry; no limit without one, or where it has not so many GPUs and nodes."""
    if topology is None:
        return math.inf, ""
    try:
        spread, given = spread_on(topology, sweep.gpus, sweep.nodes, Launch())
    except InputError:
        told.append(f"not held against the links of {topology.name}, which has not so many GPUs on as many nodes")
        return math.inf, ""
    return carried_at_most(sweep.collective, spread, given)


def write(path: Path, found: Calibration, name: str = "") -> None:
    """The file with what it had and what is new; what stood there in comments stands at its head."""
    before, head, as_json = Calibration(""), HEADER, path.suffix.lower() == ".json"
    if is_file(path):
        text = read_text(path)
        before = read_calibration(parse(text, str(path)))
        head = HEADER if as_json else comments(text)
    merged = before.merged(found)
    merged = replace(merged, name=name or merged.name or path.stem)
    text = calibration_json(merged) if as_json else calibration_text(merged, head)
    read_calibration(parse(text, str(path)))  # a file that no scenario could use is not written
    write_text(path, text)


# --- rates -----------------------------------------------------------------------------------------------------------


def adam_rate(seconds: float, parameters: float, ranks: int, source: str) -> MeasuredRate:
    """What CPU Adam moved in host memory: 28 bytes a parameter of each rank."""
    moved = ADAMW.traffic_bytes * parameters * ranks
    said = (
        f"{source}: {show_count(parameters)} parameters of each of {counted(ranks, 'rank')} in {show_seconds(seconds)}"
    )
    return MeasuredRate("dram.adam", moved / seconds, said)


def given_rates(rates: Mapping[str, float], source: str) -> list[MeasuredRate]:
    return [MeasuredRate(name, rate, source) for name, rate in rates.items()]


def check(calibration: Calibration, topology: Topology) -> None:
    """InputError where a machine cannot be so fast."""
    calibrated(replace(calibration, curves=(), origin=calibration.origin or "calibrate"), topology, topology, Launch())
