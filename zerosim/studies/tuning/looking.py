"""What is asked of one point, in whichever process: how long and how large it is at the least (a look), or to be
played.

A look builds the program and prices it, which is half to two thirds of what a play with its memory costs: what it
saves is the rest. The answer depends on the scenario and the changes alone, is plain data, and so goes to a journal.
What a look tells is proved: the longest chain of ops and the busiest resource (`costs.bounds`), and the memory of the
program (`views.least_memory`).
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from zerosim.costs import price
from zerosim.costs.bounds import least_seconds, longest_chain
from zerosim.errors import ZerosimError
from zerosim.resources import Demand, RankClass, Supply
from zerosim.scenario import Scenario, from_document
from zerosim.simulation import facts, programs, simulate
from zerosim.spec.changes import Change
from zerosim.spec.document import Document
from zerosim.step import Collective, Step
from zerosim.studies.journal import Answer
from zerosim.studies.sweep_questions import defect
from zerosim.views.least_memory import least_peaks
from zerosim.views.memory import held, unfit

ERROR = "error"
SAFE = 1 - 1e-9  # of a bound: sums of doubles in another order differ by less
ROUNDED = 1 + 1e-9


class Question(NamedTuple):
    """A look at a point, or a play of it."""

    kind: Literal["look", "play"]
    changes: tuple[Change, ...]

    def key(self, digest: str) -> str:
        """Equal for equal questions about equal scenarios."""
        parts = [digest, self.kind, [[change.path, change.value] for change in self.changes]]
        return sha256(json.dumps(parts).encode()).hexdigest()


class Looking:
    """Answers questions about one scenario, whose own changes come first."""

    def __init__(self, document: Document, base: Path, changes: Sequence[Change]) -> None:
        self.document, self.base, self.changes = document, base, tuple(changes)

    def __call__(self, question: Question) -> Answer:
        """Plain data, whatever happens: a point that is refused is no reason to lose the others."""
        try:
            scenario = self.scenario(question.changes)
            return look(scenario) if question.kind == "look" else played(scenario)
        except ZerosimError as error:
            return {ERROR: str(error).splitlines()[0]}
        except Exception as error:
            return {ERROR: defect(error)}

    def scenario(self, changes: Sequence[Change]) -> Scenario:
        """The scenario at a point."""
        return from_document(self.document, self.base, (*self.changes, *changes))


def look(scenario: Scenario) -> Answer:
    """`bound_seconds` of the step at the least, `gpu_bytes` at its peak, `too_small` what the tiers lack at the least
    (bytes by tier), and `program`, which is equal where the engine would do the same and memory hold the same."""
    steps = programs(scenario)
    priced = price(steps, scenario.topology, scenario.launch, scenario.calibration, scenario.machine)
    peaks = least_peaks(steps, priced.supply, facts(scenario).ranks_per_node)
    bounds = [_bound(steps[each.program], priced.demands[each.name], priced.supply) for each in priced.classes]
    capacities = priced.supply.capacities
    return {
        "bound_seconds": SAFE * max(bounds),
        "gpu_bytes": peaks["gpu"],
        "too_small": {
            tier: size - capacities.get(tier, 0.0)
            for tier, size in peaks.items()
            if size > ROUNDED * capacities.get(tier, 0.0)
        },
        "program": _digest(steps, priced.classes, priced.demands, priced.supply),
    }


def played(scenario: Scenario) -> Answer:
    """`seconds` of the step, `gpu_bytes` at its peak, and `unfit`: the tier that has no room for it; else ""."""
    timeline = simulate(scenario)
    tiers = held(timeline, facts(scenario).ranks_per_node)
    return {"seconds": timeline.makespan, "gpu_bytes": tiers["gpu"].peak, "unfit": unfit(tiers)}


def _bound(step: Step, demands: Sequence[Demand], supply: Supply) -> float:
    return max(longest_chain(step.ops, demands, supply), least_seconds(demands, supply))


def _digest(
    steps: Sequence[Step], classes: Sequence[RankClass], demands: Mapping[str, Sequence[Demand]], supply: Supply
) -> str:
    """Of all that the engine and the view of memory read: the order, the waits, what each op needs and holds."""
    tables = (supply.rates, supply.capacities, supply.overheads)
    known = sha256(repr(([sorted(each.items()) for each in tables], classes)).encode())
    for step in steps:
        ops = step.ops
        known.update(repr([(buffer.taken, buffer.tier, buffer.bytes) for buffer in step.buffers]).encode())
        known.update(repr((sorted(step.resident), [op.stream for op in ops])).encode())
        known.update(bytes(isinstance(op.work, Collective) for op in ops))
        for lists in ("after", "host_waits", "acquires", "releases"):
            known.update(_numbers([getattr(op, lists) for op in ops]))
    for each in classes:
        kinds: dict[int, int] = {}
        numbers = array("q", (kinds.setdefault(id(demand), len(kinds)) for demand in demands[each.name]))
        distinct = {id(demand): demand for demand in demands[each.name]}
        known.update(repr([distinct[kind] for kind in kinds]).encode())
        known.update(numbers.tobytes())
    return known.hexdigest()


def _numbers(lists: Sequence[Iterable[int]]) -> bytes:
    """Lists of numbers, each with its length."""
    joined = [tuple(each) for each in lists]
    return array("q", chain(map(len, joined), chain.from_iterable(joined))).tobytes()
