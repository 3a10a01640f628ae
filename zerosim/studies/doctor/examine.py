"""Looking for every trouble, and playing what is tried against it.

A remedy helps if the step becomes faster by `WORTH` or more and still fits, or fits where it did not, or takes less of
what there is too little of. Of those that help the fastest is kept; of nearly equal ones the first of the check's list,
which goes from the least change to the largest; and one that has a price beside the step (another global batch, lossy
numbers, a GPU that is nearly full) only if it is so many times better as that is worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from zerosim.errors import InputError, ZerosimError
from zerosim.scenario import Scenario, from_mapping
from zerosim.simulation import Simulation, facts, simulate
from zerosim.studies.doctor.case import Again, Case
from zerosim.studies.doctor.checks import CHECKS
from zerosim.studies.doctor.trouble import Candidate, Changes, Check, Measured, Trouble
from zerosim.views.memory import held, unfit

WORTH = 1.02  # times as fast, or as small: less is within what the simulation knows; a choice, as the next two
EQUAL = 0.97  # of the best: as good as it
FILLED = 1.2  # times as good as without filling a GPU up
TIGHT = 0.08  # of a GPU's memory: with less left a run hangs on what nobody counts (fragments, other libraries)
ORDER = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A play in a few numbers; memory: peak and capacity of each tier, bytes."""

    step_seconds: float
    tokens_per_second: float
    fits: bool
    peak: Mapping[str, float]
    capacity: Mapping[str, float]

    @classmethod
    def of(cls, played: Simulation) -> Outcome:
        known = facts(played.scenario)
        tiers = held(played, known.ranks_per_node)
        return cls(
            step_seconds=played.makespan,
            tokens_per_second=known.tokens / played.makespan,
            fits=not unfit(tiers),
            peak={name: tier.peak for name, tier in tiers.items()},
            capacity={name: tier.capacity for name, tier in tiers.items()},
        )

    @property
    def room(self) -> float:
        """The share of a GPU's memory that is left."""
        return 1 - self.peak["gpu"] / self.capacity["gpu"]

    def as_json(self) -> dict[str, Any]:
        return {
            "step_seconds": self.step_seconds,
            "tokens_per_second": self.tokens_per_second,
            "fits": self.fits,
            "peak_bytes": dict(self.peak),
            "capacity_bytes": dict(self.capacity),
        }


class Tried(NamedTuple):
    """A candidate, the changes that were read, and what came out; `refused`: why it could not be played."""

    candidate: Candidate
    changes: Changes
    after: Outcome | None
    measured: Measured | None = None
    refused: str = ""

    def as_json(self) -> dict[str, Any]:
        after = None if self.after is None else self.after.as_json()
        if after is not None and self.measured is not None:
            after |= self.measured.numbers
        return {
            "what": self.candidate.what,
            "changes": list(self.changes),
            "price": ", ".join(price.words for price in self.candidate.prices),
            "after": after,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A trouble, what it is now, the best remedy (None where nothing helps), and all that was tried.

    `machine`: the best of what is no change of settings, where it helps. `base`: the changes that make it fit, on top
    of which this was looked for and its remedies were played."""

    trouble: Trouble
    before: Outcome
    measured: Measured | None
    best: Tried | None
    machine: Tried | None
    tried: tuple[Tried, ...]
    base: Changes = ()

    @property
    def gain(self) -> float | None:
        """How much more is trained in a second, as a share of what is now."""
        after = self.best.after if self.best else None
        return None if after is None else after.tokens_per_second / self.before.tokens_per_second - 1

    def as_json(self) -> dict[str, Any]:
        before = self.before.as_json() | dict(self.measured.numbers if self.measured else {})
        best = self.best.as_json() if self.best else None
        return {
            "code": self.trouble.code,
            "severity": self.trouble.severity,
            "symptom": self.trouble.symptom,
            "cause": self.trouble.cause,
            "remedy": best["what"] if best else "",
            "price": best["price"] if best else "",
            "changes": best["changes"] if best else [],
            "on_top_of": list(self.base),
            "before": before,
            "after": best["after"] if best else None,
            "gain": self.gain,
            "measured": _words(self.measured, self.best),
            "machine": self.machine.as_json() if self.machine else None,
            "tried": [each.as_json() for each in self.tried],
        }


def _words(before: Measured | None, best: Tried | None) -> dict[str, str] | None:
    """What the check measures of its own, before and after."""
    if before is None:
        return None
    return {"before": before.words, "after": best.measured.words if best and best.measured else ""}


@dataclass(frozen=True, slots=True)
class Examined:
    """The troubles, most severe first, but never before the one whose remedy they stand on; and for every other check
    what it saw."""

    title: str
    troubles: tuple[Diagnosis, ...]
    clear: tuple[tuple[str, str], ...]

    def as_json(self) -> list[dict[str, Any]]:
        return [each.as_json() for each in self.troubles]


def examine(
    scenario: Scenario,
    again: Again | None = None,
    told: Callable[[int, int], None] = lambda done, of: None,
    checks: Sequence[Check] = CHECKS,
) -> Examined:
    """All checks, in order. `again` reads the scenario with more changes, as users do; `told`: how far, of how far.

    What makes it fit is taken before anything else is looked at: how fast a step is that cannot run is no question.
    """
    practice = _Practice(Case(simulate(scenario), again or _again(scenario)), len(checks), told)
    diagnoses: list[Diagnosis] = []
    clear: list[tuple[str, str]] = []
    for check in checks:
        found = practice.look(check)
        if isinstance(found, str):
            clear.append((check.name, found))
        else:
            diagnoses.append(found)
    order = sorted(diagnoses, key=lambda each: (len(each.base), ORDER.index(each.trouble.severity), -each.trouble.lost))
    return Examined(scenario.title, tuple(order), tuple(clear))


def _again(scenario: Scenario) -> Again:
    base = Path(scenario.source).parent
    return lambda changes: from_mapping(scenario.text, base, changes)


@dataclass(slots=True)
class _Practice:
    """Looks at a case, which becomes the mended one where a remedy makes it fit, and plays what is tried, once each."""

    case: Case
    of: int
    told: Callable[[int, int], None]
    done: int = 0
    base: Changes = ()
    outcomes: dict[Changes, Outcome | str] = field(default_factory=dict)

    def look(self, check: Check) -> Diagnosis | str:
        """What the check finds, treated; or what it sees where there is nothing."""
        found = check.look(self.case)
        diagnosis = self._treat(found) if isinstance(found, Trouble) else found
        self.done += 1
        self.told(self.done, self.of)
        if isinstance(diagnosis, str):
            return diagnosis
        if diagnosis.trouble.confirmed and diagnosis.best is None:
            return diagnosis.trouble.clear
        if diagnosis.best and not diagnosis.before.fits and _after(diagnosis.best).fits:
            self._mend(diagnosis.best.changes)
        return diagnosis

    def _mend(self, changes: Changes) -> None:
        again, base = self.case.again, changes
        self.base = (*self.base, *changes)
        self.case = Case(simulate(again(base)), lambda more: again((*base, *more)))
        self.outcomes = {}

    def _treat(self, trouble: Trouble) -> Diagnosis:
        before = Outcome.of(self.case.simulation)
        tried = tuple(self._try(candidate, trouble) for candidate in trouble.candidates)
        judge = _Judge(trouble, before)
        return Diagnosis(
            trouble=trouble,
            before=before,
            measured=trouble.measure(self.case.simulation) if trouble.measure else None,
            best=judge.best([each for each in tried if not each.candidate.machine]),
            machine=judge.best([each for each in tried if each.candidate.machine]),
            tried=tried,
            base=self.base,
        )

    def _try(self, candidate: Candidate, trouble: Trouble) -> Tried:
        """The first spelling that can be read, played."""
        refused = []
        for changes in candidate.spellings:
            outcome, measured = self._played(changes, trouble)
            if isinstance(outcome, Outcome):
                return Tried(candidate, changes, outcome, measured)
            refused.append(outcome)
        return Tried(candidate, candidate.spellings[0], None, refused=refused[-1])

    def _played(self, changes: Changes, trouble: Trouble) -> tuple[Outcome | str, Measured | None]:
        """The scenario with the changes; or why that cannot be. What a check measures of its own is not kept."""
        if changes in self.outcomes and not trouble.measure:
            return self.outcomes[changes], None
        try:
            played = simulate(self.case.again(changes))
        except InputError as error:
            self.outcomes[changes] = str(error.problems[0])
        except ZerosimError as error:
            self.outcomes[changes] = str(error)
        else:
            self.outcomes[changes] = Outcome.of(played)
            return self.outcomes[changes], trouble.measure(played) if trouble.measure else None
        return self.outcomes[changes], None


class _Judge(NamedTuple):
    """Which of what was tried is best for a trouble."""

    trouble: Trouble
    before: Outcome

    def best(self, tried: Sequence[Tried]) -> Tried | None:
        helping = [each for each in tried if self._helps(each)]
        if self.trouble.aim == "fits" and helping:
            first = min(each.candidate.resort for each in helping)
            helping = [each for each in helping if each.candidate.resort == first]
        most = max(map(self._score, helping), default=0.0)
        return next((each for each in helping if self._score(each) >= EQUAL * most), None)

    def _score(self, tried: Tried) -> float:
        """Throughput, less what is not worth its price."""
        worth = math.prod(price.worth for price in tried.candidate.prices)
        after = _after(tried)
        return after.tokens_per_second / (worth * (FILLED if self.before.room >= TIGHT > after.room else 1.0))

    def _helps(self, tried: Tried) -> bool:
        after, before, aim = tried.after, self.before, self.trouble.aim
        if after is None or (not after.fits and (before.fits or aim == "fits")):
            return False
        if aim == "measured":
            return tried.measured is not None and not tried.measured.troubled
        if aim == "fits":
            return True
        if aim == "smaller":
            return before.peak[self.trouble.tier] > WORTH * after.peak.get(self.trouble.tier, 0.0)
        return after.tokens_per_second > WORTH * before.tokens_per_second


def _after(tried: Tried) -> Outcome:
    assert tried.after is not None
    return tried.after
