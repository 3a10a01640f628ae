"""Stage 3's parameter coordinator: which parameters are gathered, collected and released at which module hook.

A pure function of the trace (the order of module visits) and the knobs: the same decisions are made in every micro-step
once the trace is recorded, so they are taken once and replayed. Source: DeepSpeed
runtime/zero/partitioned_param_coordinator.py. What surprises: the prefetch bucket is an allowance *per hook*, not a
window; only `max_live_parameters` bounds the look-ahead; and what the prefetcher has consumed is not released. A shard
on NVMe stops the prefetcher until it is in memory; a second look-ahead reads it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from zerosim.spec.strategy import Zero
from zerosim.strategies.events import POST, PRE, Event
from zerosim.strategies.fetch_plan import PLAIN, USUAL, Found, Gather, Kept, Plan, Visit
from zerosim.strategies.network import Node
from zerosim.strategies.swap_pool import BufferPool

_Used = Callable[[Node], tuple[int, ...]]


def persistent_parameters(numels: Sequence[int], zero: Zero) -> frozenset[int]:
    """Small parameters stay gathered, until their total would exceed the model's threshold."""
    chosen, total = set(), 0
    for parameter, numel in enumerate(numels):
        if numel <= zero.param_persistence_threshold and total + numel <= zero.model_persistence_threshold:
            chosen.add(parameter)
            total += numel
    return frozenset(chosen)


def plan_fetches(
    events: Sequence[Event],
    numels: Sequence[int],
    zero: Zero,
    swapped: frozenset[int] = frozenset(),
    kept: Kept = PLAIN,
    found: Found = USUAL,
) -> Plan:
    """Play the coordinator over the hooks of one micro-step with a complete trace; `swapped` parameters are on NVMe.

    PoolError where a gather finds too few buffers for their shards.
    """
    coordinator = _Coordinator(events, numels, zero, swapped, kept, found)
    for event in events:
        if not event.node.hooked:
            continue
        if event.kind == PRE:
            coordinator.pre(event.node)
        elif event.kind == POST:
            coordinator.post(event.node)
    return coordinator.plan()


@dataclass(slots=True)
class _Trace:
    """Module visits in order; `before[v]` elements used by visits 0..v-1; `uses[p]` visits that use a parameter."""

    parameters: list[tuple[int, ...]]
    before: list[int]
    uses: dict[int, list[int]]

    @classmethod
    def of(cls, events: Sequence[Event], numels: Sequence[int], used: _Used) -> _Trace:
        trace = cls([], [0], {})
        for event in events:
            if event.kind == PRE and event.node.hooked:
                parameters, elements = tuple(sorted(used(event.node))), trace.before[-1]
                for parameter in parameters:
                    trace.uses.setdefault(parameter, []).append(len(trace.parameters))
                    elements += numels[parameter]
                trace.parameters.append(parameters)
                trace.before.append(elements)
        return trace

    def reused(self, parameter: int, step: int, distance: int) -> bool:
        """The next use, from visit `step` on, lies within `distance` elements (each visit is checked before it is
        counted, so a distance above 0 always examines one)."""
        uses = self.uses.get(parameter, [])
        place = bisect_left(uses, step)
        return place < len(uses) and self.before[uses[place]] - self.before[step] < distance


@dataclass(slots=True)
class _Coordinator:
    """State of PartitionedParameterCoordinator during one micro-step."""

    events: Sequence[Event]
    numels: Sequence[int]
    zero: Zero
    swapped: frozenset[int]
    kept: Kept
    found: Found
    pool: BufferPool = field(init=False)
    trace: _Trace = field(init=False)
    own: _Trace = field(init=False)  # visits with a module's direct parameters
    whole: _Trace = field(init=False)  # with all parameters at and below it
    queue: deque[tuple[int, int]] = field(init=False)  # (parameter, visit) still to be fetched or used
    persistent: frozenset[int] = field(init=False)
    available: set[int] = field(init=False)
    gather_of: dict[int, int] = field(default_factory=dict)  # gathered, not yet collected by its own first use
    active: dict[int, set[Node]] = field(default_factory=dict)
    last_fetched: dict[int, int] = field(default_factory=dict)
    step: int = 0
    live: int = 0  # DeepSpeed's n_available: persistent parameters are not counted
    held: int = 0
    peak: int = 0
    gathers: list[Gather] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    releases: list[tuple[int, ...]] = field(default_factory=list)
    reads: dict[int, tuple[int, ...]] = field(default_factory=dict)
    read_twice: set[int] = field(default_factory=set)
    with_secondary: set[int] = field(default_factory=set)  # parameters that have such a shard now
    from_secondary: set[int] = field(default_factory=set)  # gathers
    dispensable: list[frozenset[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trace = _Trace.of(self.events, self.numels, lambda node: node.hooked_parameters)
        self.own = self.whole = self.trace
        if any(event.node.leaf for event in self.events):
            self.own = _Trace.of(self.events, self.numels, lambda node: node.parameters)
            self.whole = _Trace.of(self.events, self.numels, lambda node: node.all_parameters)
        self.queue = deque((p, v) for v, parameters in enumerate(self.trace.parameters) for p in parameters)
        self.persistent = persistent_parameters(self.numels, self.zero)
        self.available = set(self.persistent if self.found.gathered is None else self.found.gathered)
        self.live = self.found.live
        self.held = self.peak = sum(self.numels[p] for p in self.available)
        self.pool = BufferPool(self.swapped, self.zero.offload_param.buffer_count)
        self.with_secondary |= self.kept.secondary or frozenset()
        self.pool.need(self.available)  # their buffers stay taken; persistent ones are gathered at the end of a step

    def pre(self, node: Node) -> None:
        parameters = self.trace.parameters[self.step]
        demanded, collected = self._use(node, parameters) if parameters else ((), ())
        self.visits.append(Visit(demanded, collected, self._prefetch(), self._read_ahead()))
        self.step += 1

    def _use(self, node: Node, parameters: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The gathers that a module must start, and those it must wait for."""
        demanded = self._gather([p for p in parameters if p not in self.available])
        for parameter in parameters:
            self.active.setdefault(parameter, set()).add(node)
        collected = tuple([self.gather_of.pop(p) for p in parameters if p in self.gather_of])
        self._consume(parameters)
        return demanded, collected

    def _consume(self, parameters: tuple[int, ...]) -> None:
        """Take this module's uses off the queue."""
        need = sum(1 for p in parameters if self.last_fetched.get(p, -1) < self.step)
        popped: set[int] = set()
        while len(popped) < need:
            parameter, visit = self.queue.popleft()
            popped.add(parameter)
            self.last_fetched[parameter] = visit

    def _prefetch(self) -> tuple[int, ...]:
        allowance = 1 if self.zero.allgather_sequential else self.zero.prefetch_bucket_size
        if self.zero.prefetch_bucket_size == 0:
            return ()
        limit = min(self.zero.max_live_parameters - self.live, allowance)
        chosen: list[int] = []
        elements = 0
        while self.queue and elements < limit and not self.pool.on_drive(self.queue[0][0]):
            parameter, visit = self.queue.popleft()
            self.last_fetched[parameter] = max(self.last_fetched.get(parameter, -1), visit)
            if parameter not in self.available and parameter not in chosen:
                chosen.append(parameter)
                elements += self.numels[parameter]
        return self._gather(chosen)

    def _read_ahead(self) -> tuple[int, ...]:
        """Shards to read of what comes next, until twice the elements on their way as gathers have been passed."""
        if self.zero.prefetch_bucket_size == 0 or not self.swapped:
            return ()
        limit = 2 * sum(self.numels[p] for p in self.gather_of)
        chosen: dict[int, None] = {}
        passed = 0
        for parameter, _ in self.queue:
            if passed > limit or len(chosen) >= self.pool.free:
                break
            if self.pool.on_drive(parameter):
                self.read_twice |= {parameter} & chosen.keys()
                chosen[parameter] = None
            passed += self.numels[parameter]
        self.pool.read(tuple(chosen))
        return tuple(chosen)

    def _gather(self, parameters: list[int]) -> tuple[int, ...]:
        """One coalesced gather (or one per parameter); the parameters count as available from here on."""
        if not parameters:
            return ()
        sets = self._sets(sorted(parameters))
        first, missing = len(self.gathers), self.pool.need(parameters)
        if missing is not None:
            self.reads[first] = missing
        for number, members in enumerate(sets, first):
            self.gather_of.update(dict.fromkeys(members, number))
            if members[0] in self.with_secondary:
                self.from_secondary.add(number)
        self.gathers.extend(sets)
        elements = sum(self.numels[p] for p in parameters)
        self.available.update(parameters)
        self.live += elements
        self.held += elements
        self.peak = max(self.peak, self.held)
        return tuple(range(first, len(self.gathers)))

    def _sets(self, parameters: list[int]) -> list[Gather]:
        """Those that go together: shards kept in 8 bits first, and of both kinds the secondary ones first."""
        if self.zero.allgather_sequential:
            return [(p,) for p in sorted(parameters, key=self._order)]
        return [tuple(members) for _, members in groupby(sorted(parameters, key=self._order), self._order)]

    def _order(self, parameter: int) -> tuple[bool, bool]:
        return parameter not in self.kept.quantized, parameter not in self.with_secondary

    def post(self, node: Node) -> None:
        parameters, released, decided = node.hooked_parameters, [], self.found.dispensable
        if decided is None:
            dispensable = frozenset([p for p in parameters if self._dispensable(p, node)])
        else:
            dispensable = decided[len(self.releases)]
        self.dispensable.append(dispensable)
        for parameter in sorted(parameters):
            users = self.active.get(parameter, set())
            users.discard(node)
            if not users and parameter in self.available and parameter in dispensable:
                released.append(parameter)
                self.pool.drop(parameter)
                self.available.discard(parameter)
                if self.kept.secondary is not None:
                    self.with_secondary.add(parameter)
                self.live -= self.numels[parameter]
                self.held -= self.numels[parameter]
        self.releases.append(tuple(released))

    def _dispensable(self, parameter: int, node: Node) -> bool:
        """Not persistent, not consumed ahead by the prefetcher, not used again soon. What is met on the way to the next
        use are all parameters below the modules where a leaf module asks, their direct ones where another does."""
        trace = self.whole if node.leaf else self.own
        return not (
            parameter in self.persistent
            or self.last_fetched.get(parameter, -1) > self.step
            or trace.reused(parameter, self.step, self.zero.max_reuse_distance)
        )

    def plan(self) -> Plan:
        return Plan(
            gathers=tuple(self.gathers),
            visits=tuple(self.visits),
            releases=tuple(self.releases),
            leftovers=tuple(sorted(self.available - self.persistent)),
            persistent=self.persistent,
            peak_elements=self.peak,
            reads=self.reads,
            read_twice=frozenset(self.read_twice),
            secondary=frozenset(self.from_secondary),
            dispensable=tuple(self.dispensable),
        )
