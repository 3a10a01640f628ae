"""What a check says: a trouble with the remedies to try, or in a few words that there is none.

A remedy is the very change of settings, as `--set` takes it: what is shown is what was played. Where a file and
`training` may both say a thing, a candidate has several spellings, of which the first that can be read is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from zerosim.errors import Severity
from zerosim.simulation import Simulation
from zerosim.studies.doctor.case import Case

Changes = tuple[str, ...]

# What a remedy has to better: the step, whether it fits at all, host memory, or what the check itself measures.
Aim = Literal["faster", "fits", "smaller", "measured"]

SERIOUS = 0.1  # of the step: what costs more is a warning, else a note; a choice


class Price(NamedTuple):
    """What a remedy changes beside the step, and how many times as good it has to be to be preferred."""

    words: str
    worth: float


class Candidate(NamedTuple):
    """A remedy to try. `machine`: it mends or buys something, and is no change of settings. `resort`: the larger, the
    less is it about the cause: of those against out of memory the best of the first resort that helps is taken."""

    what: str
    spellings: tuple[Changes, ...]
    prices: tuple[Price, ...] = ()
    machine: bool = False
    resort: int = 0

    def at(self, price: Price) -> Candidate:
        """The same at a price."""
        return self._replace(prices=(price,))

    def last(self, resort: int) -> Candidate:
        """The same, as a later resort."""
        return self._replace(resort=resort)

    def also(self, other: Candidate) -> Candidate:
        """Both together."""
        spellings = tuple((*mine, *others) for mine in self.spellings for others in other.spellings)
        prices = tuple(dict.fromkeys((*self.prices, *other.prices)))
        machine, resort = self.machine or other.machine, max(self.resort, other.resort)
        return Candidate(f"{self.what} and {other.what}", spellings, prices, machine, resort)


class Measured(NamedTuple):
    """What a check measures of a play beside time and memory: numbers for `--json`, words for people, and whether the
    trouble is there."""

    numbers: Mapping[str, Any]
    words: str
    troubled: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """`lost`: seconds of the step that hang on it, by which troubles of a severity are ordered.

    `confirmed`: it is a trouble only if something that was tried is better; `clear` is then said instead.
    """

    code: str
    severity: Severity
    symptom: str
    cause: str
    candidates: tuple[Candidate, ...]
    lost: float = 0.0
    aim: Aim = "faster"
    tier: str = "gpu"  # whose memory the aim is about
    confirmed: bool = False
    clear: str = ""
    measure: Callable[[Simulation], Measured] | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table: what is looked at, and how."""

    name: str
    look: Callable[[Case], Trouble | str] = field(repr=False)


def weight(case: Case, lost: float) -> Severity:
    """How serious it is to lose so many seconds."""
    return "warning" if case.share(lost) >= SERIOUS else "note"
