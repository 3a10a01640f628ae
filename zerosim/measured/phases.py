"""Which phase launched a kernel, as far as the trace tells: by what the host was doing, never by the kernel's name.

Rules: autograd's nodes (`autograd::engine::evaluate_function`) and the threads that run them are backward. So is what
other threads launch while the program's own annotation (`## backward ##`) lasts, since its thread waits for them then.
The `Optimizer` annotations of torch are the optimizer. What comes before a backward is forward, and what comes after
the last one optimizer (the clipping of gradients). Where a trace lacks either, all phases are `unknown`. A trace of a
simulated step says the phase of each op itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from zerosim.measured.steps import Window
from zerosim.spec.profile import Profile
from zerosim.spec.profile_events import ANNOTATED_BACKWARD, HostEvent, Thread
from zerosim.step import Phase


class Phased(NamedTuple):
    """A phase, and in which micro-batch."""

    phase: Phase
    micro_batch: int = 0


UNKNOWN = Phased("unknown")
EVERY: Thread = (None, None)  # stands for all threads


class Phases:
    """Tells the phase of calls of the host, in order of time."""

    def __init__(self, profile: Profile, window: Window) -> None:
        def within(events: Sequence[HostEvent]) -> list[HostEvent]:
            return [event for event in events if window.start <= event.end and event.start <= window.end]

        backward, optimizer = within(profile.backward), within(profile.optimizer)
        self.known = bool(backward and optimizer)
        annotations = [event for event in backward if ANNOTATED_BACKWARD.match(event.name)]
        self._backward, self._optimizer = _Spells(backward), _Spells(optimizer)
        self._annotated = _Spells([event._replace(thread=EVERY) for event in annotations])
        self._optimizing = {event.thread for event in optimizer}
        nodes = {event.thread for event in backward if not ANNOTATED_BACKWARD.match(event.name)}
        self._autograd = nodes - self._optimizing
        self._last = max((event.end for event in backward), default=0.0)
        self._at: Phased = Phased("forward")

    def of(self, call: HostEvent | None) -> Phased:
        """That of a call; calls are asked for in order. Without a call that of the one before."""
        if not self.known:
            return UNKNOWN
        if call is not None:
            phase = self._phase(call)
            again = phase == "forward" and self._at.phase == "backward"
            self._at = Phased(phase, self._at.micro_batch + again)
        return self._at

    def _phase(self, call: HostEvent) -> Phase:
        if self._optimizer.hold(call):
            return "optimizer"
        if call.thread in self._autograd or self._backward.hold(call):
            return "backward"
        if call.thread not in self._optimizing and self._annotated.hold(call._replace(thread=EVERY)):
            return "backward"
        return "optimizer" if call.start >= self._last else "forward"


class _Spells:
    """When threads were at something."""

    def __init__(self, events: Sequence[HostEvent]) -> None:
        self._starts: dict[Thread, list[float]] = {}
        self._reached: dict[Thread, list[float]] = {}  # the latest end of those that have begun
        for event in sorted(events, key=lambda event: event.start):
            ends = self._reached.setdefault(event.thread, [])
            ends.append(max(event.end, ends[-1] if ends else event.end))
            self._starts.setdefault(event.thread, []).append(event.start)

    def hold(self, call: HostEvent) -> bool:
        """Whether its thread was at it when the call began."""
        place = bisect_right(self._starts.get(call.thread, []), call.start) - 1
        return place >= 0 and call.start < self._reached[call.thread][place]
