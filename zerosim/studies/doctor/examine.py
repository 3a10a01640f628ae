"""Looking for every trouble, and playing what is tried against it.

A remedy helps if the step becomes faster by `WORTH` or more without ceasing to fit, or fits where it did not, or takes
less of what there is too little of. Of those that help the fastest is kept; of nearly equal ones the first of the
check's list, which goes from the least change to the largest; and one that has a price beside the step (another global
batch, lossy numbers) only if it is a good deal better than one that has none.
"""

from __future__ import annotations

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
from zerosim.views.memory import memory

WORTH = 1.02  # times as fast, or as small: less is within what the simulation knows; a choice, as the next two
EQUAL = 0.97  # of the best: as good as it
DEAR = 1.2  # times as good as without a price
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
        tiers = memory(played, known.ranks_per_node)
        return cls(
            step_seconds=played.makespan,
            tokens_per_second=known.tokens / played.makespan,
            fits=not any(tier.excess for tier in tiers.values()),
            peak={name: tier.peak for name, tier in tiers.items()},
            capacity={name: tier.capacity for name, tier in tiers.items()},
        )

    @property
    def excess(self) -> float:
        """Bytes that do not fit, over all tiers."""
        return sum(max(0.0, peak - self.capacity[tier]) for tier, peak in self.peak.items())

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
            "price": self.candidate.price,
            "after": after,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A trouble, what it is now, the best remedy (None where nothing helps), and all that was tried.

    `machine`: the best of what is no change of settings, where it helps."""

    trouble: Trouble
    before: Outcome
    measured: Measured | None
    best: Tried | None
    machine: Tried | None
    tried: tuple[Tried, ...]

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
    """The troubles, most severe first, and for every other check what it saw."""

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
    """All checks. `again` reads the scenario with more changes, as users do; `told`: how far it is, of how far."""
    case = Case(simulate(scenario), again or _again(scenario))
    said = [(check.name, check.look(case)) for check in checks]
    troubles = {name: found for name, found in said if isinstance(found, Trouble)}
    clear = {name: found for name, found in said if isinstance(found, str)}
    practice = _Practice(case, sum(len(trouble.candidates) for trouble in troubles.values()), told)
    diagnoses = []
    for name, trouble in troubles.items():
        diagnosis = practice.treat(trouble)
        if trouble.confirmed and diagnosis.best is None:
            clear[name] = trouble.clear
        else:
            diagnoses.append(diagnosis)
    order = sorted(diagnoses, key=lambda each: (ORDER.index(each.trouble.severity), -each.trouble.lost))
    looked = tuple((check.name, clear[check.name]) for check in checks if check.name in clear)
    return Examined(scenario.title, tuple(order), looked)


def _again(scenario: Scenario) -> Again:
    base = Path(scenario.source).parent
    return lambda changes: from_mapping(scenario.text, base, changes)


@dataclass(slots=True)
class _Practice:
    """Plays what is tried, each change once."""

    case: Case
    of: int
    told: Callable[[int, int], None]
    done: int = 0
    outcomes: dict[Changes, Outcome | str] = field(default_factory=dict)

    def treat(self, trouble: Trouble) -> Diagnosis:
        before = Outcome.of(self.case.simulation)
        measured = trouble.measure(self.case.simulation) if trouble.measure else None
        tried = tuple(self._try(candidate, trouble) for candidate in trouble.candidates)
        judge = _Judge(trouble, before)
        return Diagnosis(
            trouble=trouble,
            before=before,
            measured=measured,
            best=judge.best([each for each in tried if not each.candidate.machine]),
            machine=judge.best([each for each in tried if each.candidate.machine]),
            tried=tried,
        )

    def _try(self, candidate: Candidate, trouble: Trouble) -> Tried:
        """The first spelling that can be read, played."""
        self.done += 1
        self.told(self.done, self.of)
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
        free = self._first([each for each in helping if not each.candidate.price])
        dear = self._first([each for each in helping if each.candidate.price])
        if free is None or dear is None:
            return free or dear
        return dear if self._score(dear) > DEAR * self._score(free) else free

    def _first(self, tried: Sequence[Tried]) -> Tried | None:
        most = max(map(self._score, tried), default=0.0)
        return next((each for each in tried if self._score(each) >= EQUAL * most), None)

    def _score(self, tried: Tried) -> float:
        assert tried.after is not None
        return tried.after.tokens_per_second

    def _helps(self, tried: Tried) -> bool:
        after, before, aim = tried.after, self.before, self.trouble.aim
        if after is None or (before.fits and not after.fits):
            return False
        if aim == "measured":
            return tried.measured is not None and not tried.measured.troubled
        if aim == "fits":
            return after.fits
        if aim == "smaller":
            return before.peak[self.trouble.tier] > WORTH * after.peak.get(self.trouble.tier, 0.0)
        return after.tokens_per_second > WORTH * before.tokens_per_second
