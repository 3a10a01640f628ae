"""What FSDP1's hooks decide, apart from what it costs: which unit is gathered, freed and reduced, and when.

Source: torch/distributed/fsdp/_runtime_utils.py, _exec_order_utils.py, _flat_param.py (torch 2.13). A `Handle` has the
flags that torch keeps for a flat parameter, under shorter names; hooks turn flags into actions. Flags and the forward
order outlive a step: forward prefetching follows the order that the first step recorded, and a parameter that nothing
frees stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from zerosim.spec.fully_sharded import Fsdp

State = Literal["idle", "forward", "pre-backward", "post-backward"]
UNSHARD, AWAIT, ACCUMULATE, RESHARD, REDUCE = "unshard", "await", "accumulate", "reshard", "reduce"


class Action(NamedTuple):
    """What happens to a unit. `real`: an unshard gathers, a reshard frees; either is called without, too."""

    kind: str
    unit: int
    real: bool = True


@dataclass(slots=True)
class Handle:
    """The flat parameter of a unit."""

    unit: int
    whole: bool = False  # the gathered parameter is in memory
    used: bool = False  # and is what the flat parameter points to
    skipped: bool = False  # use_orig_params: its views were left in place when it was resharded
    prefetched: bool = False
    forward_due: bool = False  # _needs_pre_forward_unshard
    backward_due: bool = False  # _needs_pre_backward_unshard
    entered: bool = False  # _ran_pre_backward_hook
    state: State = "idle"
    called: int | None = None  # its place in the order of forwards, of the first step
    returned: int | None = None  # and in which they were left, of this one


class Handles:
    """The handles of units `filled`; `differentiable`: those whose output has a gradient."""

    def __init__(self, config: Fsdp, sharded: bool, filled: Iterable[int], differentiable: Iterable[int]) -> None:
        self.config = config
        self.sharded = sharded
        self.reshards = sharded and config.frees  # RESHARD_AFTER_FORWARD_HANDLE_STRATEGIES
        self.handles = {unit: Handle(unit) for unit in filled}
        self.differentiable = frozenset(differentiable)
        self.synchronizes = True
        self._first = True  # the first backward has not ended
        self._calls: list[Handle] = []
        self._returns: list[Handle] = []

    # --- forward -----------------------------------------------------------------------------------------------------

    def begin(self, synchronizes: bool) -> None:
        """The root's pre-forward; `synchronizes`: this micro-step's gradients are reduced."""
        self.synchronizes = synchronizes
        if self.config.forward_prefetch:
            for handle in self.handles.values():
                handle.forward_due, handle.prefetched = True, False

    def pre_forward(self, unit: int) -> Iterator[Action]:
        handle = self.handles.get(unit)
        if handle is None or handle.state == "pre-backward":  # the latter: recomputed
            return
        if self._first and handle.called is None:
            handle.called = len(self._calls)
            self._calls.append(handle)
        handle.state = "forward"
        if not handle.prefetched:
            yield from self._unshard(handle)
        handle.forward_due = False
        yield Action(AWAIT, unit)
        yield from self._prefetch(handle)

    def post_forward(self, unit: int) -> Iterator[Action]:
        handle = self.handles.get(unit)
        if handle is None or handle.state == "pre-backward":
            return
        if not handle.returned:  # torch asks this of an index: the first one is given anew
            handle.returned = len(self._returns)
        self._returns.append(handle)
        yield from self._reshard(handle, self.reshards and unit != 0)
        handle.backward_due = unit in self.differentiable
        handle.entered = False
        handle.state = "idle"

    # --- backward ----------------------------------------------------------------------------------------------------

    def pre_backward(self, unit: int) -> Iterator[Action]:
        handle = self.handles.get(unit)
        if handle is None or handle.entered:
            return
        handle.state = "pre-backward"
        if handle.backward_due:
            if not handle.prefetched:
                yield from self._unshard(handle)
            yield Action(AWAIT, unit)
        handle.backward_due = False
        yield from self._prefetch(handle)
        handle.entered = True

    def post_backward(self, unit: int, trains: bool = True) -> Iterator[Action]:
        """The gradient of the flat parameter is there; of a frozen one, that of the unit's input."""
        handle = self.handles[unit]
        if trains:
            yield Action(ACCUMULATE, unit)
        handle.state = "post-backward"
        yield from self._reshard(handle, self._frees)
        yield from self._prefetch(handle)
        if trains and self.synchronizes:
            yield Action(REDUCE, unit)

    def finish(self) -> Iterator[Action]:
        """The final callback of a backward."""
        self._first = False
        self._returns.clear()
        for handle in self.handles.values():
            if handle.used or handle.skipped:
                yield from self._reshard(handle, self._frees)
            handle.entered = handle.backward_due = handle.prefetched = False
            handle.returned = None
            handle.state = "idle"

    # --- what hooks share --------------------------------------------------------------------------------------------

    @property
    def _frees(self) -> bool:
        """Without synchronization a strategy that keeps parameters after the forward keeps them after backward."""
        return self.sharded and (self.synchronizes or self.reshards)

    def _unshard(self, handle: Handle) -> Iterator[Action]:
        yield Action(UNSHARD, handle.unit, self.sharded and not handle.whole)
        handle.whole = self.sharded
        handle.used = True

    def _reshard(self, handle: Handle, frees: bool) -> Iterator[Action]:
        yield Action(RESHARD, handle.unit, frees)
        handle.whole = handle.whole and not frees
        handle.used = handle.prefetched = False
        forward = handle.state == "forward"
        handle.skipped = self.config.use_orig_params and forward and self.sharded and not self.reshards

    def _prefetch(self, current: Handle) -> Iterator[Action]:
        target = self._target(current)
        if target is not None:
            yield from self._unshard(target)
            target.prefetched = True

    def _target(self, current: Handle) -> Handle | None:
        """The next unit of the forward, or the one before in the order of this forward, where it is due."""
        if current.state == "forward":
            place = current.called
            if not self.config.forward_prefetch or place is None or place + 1 >= len(self._calls):
                return None
            target = self._calls[place + 1]
            return target if target.forward_due and not target.prefetched else None
        wanted = "BACKWARD_PRE" if current.state == "pre-backward" else "BACKWARD_POST"
        if self.config.backward_prefetch != wanted or not current.returned:
            return None
        target = self._returns[current.returned - 1]
        return target if target.backward_due and not target.prefetched else None
