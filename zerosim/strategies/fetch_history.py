"""How a stage-3 run comes to its steady step: the pass that is recorded, the first complete one, the steady ones.

Source: DeepSpeed runtime/zero/partitioned_param_coordinator.py. What a module drops after it has run is decided once
for each place in the trace, in the first complete pass (`__params_to_release` is cached), and that pass may begin
otherwise than the steady ones: the recorded one drops persistent parameters, too, which are gathered again only at the
end of a step. Releases that keep the parameters of modules without a post-hook until the step, or that count live
parameters from the end of a backward, find something else in the first micro-step of a step than in later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zerosim.spec.release import Release
from zerosim.strategies.events import POST, PRE, Event
from zerosim.strategies.fetch_plan import Found, Plan
from zerosim.strategies.network import Node

Play = Callable[[Found, bool], Plan]  # one pass; whether it is the first of a step
SETTLED = 3  # steps after which leftovers are those of the step before


def steady_plans(
    play: Play,
    events: Sequence[Event],
    numels: Sequence[int],
    persistent: frozenset[int],
    release: Release,
    steps: int,
    alike: bool = True,
) -> list[Plan]:
    """Plans of the micro-steps of a steady step of `steps`, up to the one that all later ones follow.

    `alike`: later micro-steps gather as the first does, from the same shards.
    """
    if release.keeps_leftovers or release.resets_after_backward:
        return _settled(play, _left_by_recording(events), numels, persistent, release, steps)
    begins = persistent if steps == 1 else _left_by_recording(events) & persistent  # those of the first complete pass
    plan = play(Found(begins), True)
    if begins != persistent:
        plan = play(Found(persistent, 0, plan.dispensable), True)
    return [plan] if alike or steps == 1 else [plan, play(Found(persistent, 0, plan.dispensable), False)]


def _settled(
    play: Play, recorded: frozenset[int], numels: Sequence[int], persistent: frozenset[int], release: Release,
    steps: int,
) -> list[Plan]:  # fmt: skip
    """The plans of a step whose leftovers are those of the step before it."""
    if steps > 1:
        first = Found(recorded if release.keeps_leftovers else recorded & persistent)
    else:
        first = Found(persistent, _negative(recorded, numels) if release.resets_after_backward else 0)
    before = play(first, steps == 1)
    plans: list[Plan] = []
    for _ in range(SETTLED):
        plans = _step(play, plans[-1] if plans else before, persistent, numels, release, steps, before.dispensable)
    return plans


def _step(
    play: Play,
    before: Plan,
    persistent: frozenset[int],
    numels: Sequence[int],
    release: Release,
    steps: int,
    chosen: tuple[frozenset[int], ...],
) -> list[Plan]:
    """The plans of a step after one that ended with `before`."""
    gone = persistent | frozenset(before.leftovers if release.keeps_leftovers else ())
    live = _negative(gone, numels) if release.resets_after_backward else 0
    plans = [play(Found(persistent, live, chosen), True)]
    for _ in range(min(steps, SETTLED) - 1):
        left = frozenset(plans[-1].leftovers) if release.keeps_leftovers else frozenset()
        plans.append(play(Found(persistent | left, 0, chosen), False))
    return plans


def _left_by_recording(events: Sequence[Event]) -> frozenset[int]:
    """Parameters that are gathered after a recorded pass, in which each module drops all it has: those of modules whose
    backward has no post-hook."""
    there: set[int] = set()
    active: dict[int, set[Node]] = {}
    for event in events:
        for parameter in event.node.hooked_parameters:
            users = active.setdefault(parameter, set())
            if event.kind == PRE:
                there.add(parameter)
                users.add(event.node)
            elif event.kind == POST:
                users.discard(event.node)
                if not users:
                    there.discard(parameter)
    return frozenset(there)


def _negative(parameters: frozenset[int], numels: Sequence[int]) -> int:
    return -sum(numels[p] for p in parameters)
