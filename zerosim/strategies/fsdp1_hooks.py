"""Where FSDP1's hooks sit in a micro-step, and the rate limiter's queue as the steps before leave it.

A unit's gradient is complete when autograd comes back to where its views were made: they are the flat parameter cut
into pieces, nodes of the graph like others, and autograd runs what was recorded last first. Forward prefetching makes
them a unit earlier, so gradients are reduced a unit later. A reentrant checkpoint has a graph of its own, which ends
with its block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from zerosim.strategies.events import GRADIENT, LEFT, POST, PRE, RUN, Event
from zerosim.strategies.fsdp1_handles import RESHARD, UNSHARD, Action, Handles
from zerosim.strategies.network import Node
from zerosim.strategies.units import Unit

IN_FLIGHT = 2  # _limiter_utils.py, _max_num_inflight_all_gathers
STEPS = 4  # of a rehearsal: the first records the order of forwards; what is queued settles in the next ones

Place = tuple[str, Node, int]  # an event of the backward: kind, node, parameter


class Hooks:
    """Events to actions. `trained`: units with a parameter to train; `events`: of a forward and of its backward."""

    def __init__(
        self,
        handles: Handles,
        units: Sequence[Unit],
        trained: frozenset[int],
        events: tuple[Sequence[Event], Sequence[Event]],
        reentrant: bool,
    ) -> None:
        self.handles = handles
        self.trained = trained
        self.units = units
        self.unit_of = {unit.node: unit.number for unit in units}
        self.forward, self.backward = events
        self.ends = self._ends(self._made(reentrant))
        self.late = self._late()

    # --- events to actions -------------------------------------------------------------------------------------------

    def at(self, event: Event) -> Iterator[Action]:
        """What the hooks on a unit's module do."""
        unit, handles = self.unit_of[event.node], self.handles
        if event.direction == "recompute":
            return self._recomputed(unit, event)
        if event.direction == "forward":
            return handles.pre_forward(unit) if event.kind == PRE else handles.post_forward(unit)
        return self._backward(unit, event)

    def _backward(self, unit: int, event: Event) -> Iterator[Action]:
        if event.kind == PRE:
            yield from self.handles.pre_backward(unit)
        for frozen in self.late.get((event.kind, event.node, -1), ()):
            yield from self.handles.post_backward(frozen, trains=False)

    def _recomputed(self, unit: int, event: Event) -> Iterator[Action]:
        """A unit is outside the checkpoint of its own module, so that its backward has begun; what is below is not."""
        if event.kind == POST:
            return self.handles.post_forward(unit)
        return self.handles.pre_backward(unit) if event.node.block else self.handles.pre_forward(unit)

    def after(self, kind: str, node: Node, parameter: int = -1) -> Iterator[Action]:
        """What follows kernels or a gradient of the backward."""
        for unit in self.ends.get((kind, node, parameter), ()):
            yield from self.handles.post_backward(unit)

    # --- where gradients are complete --------------------------------------------------------------------------------

    def _made(self, reentrant: bool) -> dict[int, int]:
        """Place in the forward at which the views of each trained unit are made."""
        config, handles = self.handles.config, self.handles.handles
        entered = {
            self.unit_of[event.node]: place
            for place, event in enumerate(self.forward)
            if event.kind == PRE and self.unit_of.get(event.node) in handles
        }
        in_blocks = {below for node in self.units[0].node.walk() if node.checkpointed for below in node.walk()}
        made: dict[int, int] = {}
        before = None
        for unit, place in entered.items():
            apart = reentrant and self.units[unit].node in in_blocks
            early = config.forward_prefetch and not apart
            made[unit] = entered[before] if early and before is not None else place
            before = unit
        return {unit: place for unit, place in made.items() if unit in self.trained}

    def _ends(self, made: dict[int, int]) -> dict[Place, list[int]]:
        """Units by the last event of the backward that belongs to what followed their views in the forward."""
        ran: dict[Node, int] = {}
        for place, event in enumerate(self.forward):
            ran.setdefault(event.node, place)
        events = [e for e in self.backward if e.kind == GRADIENT or (e.kind == RUN and e.direction == "backward")]
        latest = [0] * len(events)  # of this event and those after it, the latest place in the forward, negated
        for i in range(len(events) - 1, -1, -1):
            latest[i] = min(-ran[events[i].node], latest[i + 1] if i + 1 < len(events) else 0)
        arrival = {event.parameter: i for i, event in enumerate(events) if event.kind == GRADIENT}
        ends: dict[Place, list[int]] = {}
        for unit in sorted(made, key=lambda unit: (made[unit], unit), reverse=True):
            own = max((arrival[p] for p in self.units[unit].parameters if p in arrival), default=-1)
            event = events[max(own, bisect_right(latest, -made[unit]) - 1)]
            ends.setdefault((event.kind, event.node, event.parameter), []).append(unit)
        return ends

    def _late(self) -> dict[Place, list[int]]:
        """Frozen units by where they are resharded: when the gradient of their input is there, and if that is what the
        unit before returned, after the hook which that has put on it already."""
        late: dict[Place, list[int]] = {}
        for i, event in enumerate(self.backward):
            unit = self.unit_of.get(event.node)
            if event.kind != POST or event.direction != "backward" or unit not in self.handles.handles:
                continue
            if unit not in self.trained:
                then = next((e for e in self.backward[i + 1 :] if e.kind not in (POST, LEFT)), event)
                next_unit = then.kind == PRE and then.node in self.unit_of
                place = then if next_unit else event
                late.setdefault((place.kind, place.node, -1), []).append(unit)
        return late

    # --- the rate limiter --------------------------------------------------------------------------------------------

    def rehearse(self, micro_steps: Sequence[bool]) -> int:
        """Play steps without ops; how many free events are queued between two. `micro_steps`: which synchronize."""
        queued = 0
        for _ in range(STEPS):
            for synchronizes in micro_steps:
                for action in self._micro_step(synchronizes):
                    if action.kind == UNSHARD and queued >= IN_FLIGHT:
                        queued -= 1
                    elif action.kind == RESHARD and action.real:
                        queued += 1
        return queued

    def _micro_step(self, synchronizes: bool) -> Iterator[Action]:
        self.handles.begin(synchronizes)
        for event in (*self.forward, *self.backward):
            if event.kind in (PRE, POST):
                if event.node in self.unit_of:
                    yield from self.at(event)
            elif event.direction == "backward":
                yield from self.after(event.kind, event.node, event.parameter)
        yield from self.handles.finish()
