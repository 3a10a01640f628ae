"""Other estimators on the same rows: a FLOPs formula computed here, and what others publish of theirs.

`FLOPs / peak` is the formula of `formula`; with one MFU it is divided by the one share of the peak with which as many
rows are too long as too short: it may see all rows, which no prediction here may. With a share of each study it sees
the row that calibrated the study, as zerosim does, and says nothing of rows that no row calibrates.
Published figures are of rows of their own, of which the table has
a part; they stand beside zerosim on that part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from zerosim.catalog.data import load, sources
from zerosim.studies.validation.groups import ALL, Statistics, statistics
from zerosim.studies.validation.lines import STEP, Line
from zerosim.units import show_share

US = "zerosim"


class Peer(NamedTuple):
    """One estimator on some rows. `found` is None where only the mean was published."""

    of: str
    method: str
    rows: int | None
    mean: float
    found: Statistics | None
    source: str

    def as_json(self) -> dict[str, Any]:
        """Shares; what nobody published is null."""
        median, p90, bias = (self.found.median, self.found.p90, self.found.bias) if self.found else (None,) * 3
        return {
            "of": self.of, "method": self.method, "rows": self.rows, "mean": self.mean,
            "median": median, "p90": p90, "bias": bias, "source": self.source,
        }  # fmt: skip


Place = tuple[str, str]  # study and GPU


def peers(lines: Sequence[Line], calibrated: Mapping[Place, float]) -> tuple[Peer, ...]:
    """All, quality A, and the studies of which others publish something. `calibrated`: the share of the peak that the
    row tells which calibrates a study on a GPU."""
    steps = [line for line in lines if line.metric == STEP and line.error is not None]
    if not steps:
        return ()
    mfu = median(line.formula_seconds / line.measured for line in steps)
    published = load("peers.yaml")["published"]
    found: list[Peer] = []
    for name, members in _parts(steps, dict.fromkeys(each["study"] for each in published)):
        found += _computed(name, members, mfu, calibrated)
        found += (_published(each) for each in published if name == f"study {each['study']}")
    studies = {line.labels.study for line in steps}
    return (*found, *(_published(each) for each in published if each["study"] not in studies))


def _parts(lines: Sequence[Line], studies: Iterable[str]) -> Iterator[tuple[str, list[Line]]]:
    kinds = [("quality", "A"), *(("study", study) for study in studies)]
    yield ALL, list(lines)
    for kind, name in kinds:
        if members := [line for line in lines if getattr(line.labels, kind) == name]:
            yield f"{kind} {name}", members


def _computed(of: str, lines: Sequence[Line], mfu: float, calibrated: Mapping[Place, float]) -> Iterator[Peer]:
    yield _peer(of, f"{US}, as shipped", _known(line.shipped_error for line in lines))
    if calibrated:
        yield _peer(of, f"{US}, calibrated", _known(line.error for line in lines))
    yield _peer(of, "FLOPs / peak", _formula(lines, lambda line: 1.0))
    yield _peer(of, f"FLOPs / peak, one MFU ({show_share(mfu)}) fitted to all", _formula(lines, lambda line: mfu))
    if known := [line for line in lines if _place(line) in calibrated]:
        shares = _formula(known, lambda line: calibrated[_place(line)])
        yield _peer(of, "FLOPs / peak, MFU of the calibrating row", shares)


def _place(line: Line) -> Place:
    return line.labels.study, line.labels.gpu


def _known(errors: Iterable[float | None]) -> list[float]:
    return [error for error in errors if error is not None]


def _formula(lines: Sequence[Line], share: Callable[[Line], float]) -> list[float]:
    return [line.formula_seconds / share(line) / line.measured - 1 for line in lines]


def _peer(of: str, method: str, errors: Sequence[float]) -> Peer:
    found = statistics(errors)
    return Peer(of, method, found.rows, found.mean, found, "computed here")


def _published(entry: Mapping[str, Any]) -> Peer:
    source = f"published of {entry['what']}: {sources()[entry['source']]}"
    return Peer(f"study {entry['study']}", entry["method"], entry.get("rows"), entry["error"], None, source)
