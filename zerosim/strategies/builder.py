"""The only hand that writes ops. Strategies speak in the primitive actions of a framework; this turns them into a Step.

Lanes are CUDA streams. A lane's *tail* is everything its next op has to wait for: its last op and the waits put on it
since. Collectives go to their communicator's stream; a lane that waits for one has it in its tail. Waits that change
nothing (the lane already waited for the same op) are not written twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from zerosim.step import (
    HOST_STREAM,
    NO_CALLS,
    READ,
    WRITE,
    Buffer,
    Collective,
    CollectiveKind,
    Group,
    HostCalls,
    HostCompute,
    Op,
    Phase,
    Slice,
    Step,
    Tier,
    Transfer,
    Work,
    communicator,
)

# An op as it is written: all fields of `Op` but its number and `releases`, which are complete only at the end.
_Draft = tuple[
    str, str, Work | None, tuple[int, ...], tuple[int, ...], HostCalls, tuple[int, ...], Phase, int, int | None,
    tuple[Slice, ...], tuple[int, ...],
]  # fmt: skip


class Builder:
    """Collects ops in issue order; `finish` makes the Step."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = dict(groups)
        self.phase: Phase = "forward"
        self.micro_batch = 0
        self._drafts: list[_Draft] = []
        self._streams: list[str] = []  # of each op
        self._releases: dict[int, list[int]] = {}  # by op number; added to while later ops are written
        self._buffers: list[Buffer] = []
        self._resident: set[int] = set()
        self._born: list[int] = []  # op number at which each buffer is acquired
        self._last: dict[str, int] = {}  # last op of each stream
        self._waits: dict[str, dict[str, int]] = {}  # by lane: the newest op of each other stream it must wait for
        self._waited: dict[tuple[str, str], int] = {}  # newest op of a stream that a lane has waited for
        self._acquiring: list[int] = []
        self._blocking: list[int] = []
        self._called = False
        self._calls = [0, 0, 0, 0]  # gradient hooks, module hooks, their parameters, scalar reads

    # --- ops ---------------------------------------------------------------------------------------------------------

    def launch(
        self,
        lane: str,
        name: str,
        work: Work | None,
        host: HostCalls = NO_CALLS,
        layer: int | None = None,
    ) -> int:
        """Write an op at the end of a lane; the host calls made since the last op are part of issuing it."""
        waits = self._waits.pop(lane, None)
        after = tuple(waits.values()) if waits else ()
        return self._write(lane, name, work, after, host, layer)

    def collective(
        self,
        lane: str,
        kind: CollectiveKind,
        elements: int,
        dtype: str,
        group: str,
        *,
        name: str = "",
        asynchronous: bool = False,
        reduces: tuple[Slice, ...] = (),
        gathers: tuple[int, ...] = (),
        root: int | None = None,
    ) -> int:
        """A collective after the lane's tail. Unless `asynchronous`, the lane's later ops wait for it."""
        stream = communicator(group)
        after = tuple(op for op in self.tail(lane) if self._streams[op] != stream)
        work = Collective(kind, elements, dtype, group, root)
        host = HostCalls(collectives=1)
        number = self._write(stream, name or kind, work, after, host, reduces=reduces, gathers=gathers)
        if not asynchronous:
            self._waits[lane] = {stream: number}  # it comes after everything the lane waited for
        return number

    def copy(
        self, lane: str, name: str, transfer: Transfer, *, blocking: bool = False, layer: int | None = None
    ) -> int:
        """A copy at the end of a lane. One that is `blocking` (a plain `.to`), or from or to pageable memory, holds the
        host until the lane has done it (HOSTCOPY)."""
        number = self.launch(lane, name, transfer, HostCalls(kernels=1), layer)
        if blocking or not transfer.pinned:
            self.block([number])
        return number

    def host_compute(self, name: str, work: HostCompute) -> int:
        """Work of the CPU, done by the host's own thread: nothing is issued before it ends."""
        number = self.launch(HOST_STREAM, name, work)
        self.block([number])
        return number

    def _write(
        self,
        stream: str,
        name: str,
        work: Work | None,
        after: tuple[int, ...],
        host: HostCalls,
        layer: int | None = None,
        reduces: tuple[Slice, ...] = (),
        gathers: tuple[int, ...] = (),
    ) -> int:
        number = len(self._drafts)
        blocking: tuple[int, ...] = ()
        acquires: tuple[int, ...] = ()
        if self._called:
            hooks, modules, looked_at, reads = self._calls
            host = HostCalls(host.kernels, host.collectives, hooks, modules, looked_at, reads, host.model_kernels)
            self._calls, self._called = [0, 0, 0, 0], False
        if self._blocking:
            blocking = tuple(dict.fromkeys(self._blocking))
            self._blocking.clear()
        if self._acquiring:
            acquires = tuple(self._acquiring)
            self._acquiring.clear()
        place = self.phase, self.micro_batch, layer
        self._drafts.append((name, stream, work, after, blocking, host, acquires, *place, reduces, gathers))
        self._streams.append(stream)
        self._last[stream] = number
        return number

    @property
    def next_op(self) -> int:
        """The number of the op that is written next."""
        return len(self._drafts)

    # --- waits -------------------------------------------------------------------------------------------------------

    def tail(self, lane: str) -> list[int]:
        """What has to be done before the next op of the lane may run: one op a stream, for streams are FIFO."""
        last = self._last.get(lane)
        return [*self._waits.get(lane, {}).values(), *(() if last is None else (last,))]

    def wait(self, lane: str, other: str) -> None:
        """WAIT(lane <- other): the lane's next op waits for everything in `other` as it stands now."""
        if lane == other:
            return
        for stream, op in self._waits.get(other, {}).items():
            self._wait_for(lane, stream, op)
        if other in self._last:
            self._wait_for(lane, other, self._last[other])

    def wait_for(self, lane: str, ops: Iterable[int]) -> None:
        """The lane's next op waits for these ops."""
        for op in ops:
            self._wait_for(lane, self._streams[op], op)

    def _wait_for(self, lane: str, stream: str, op: int) -> None:
        if stream != lane and self._waited.get((lane, stream), -1) < op:
            self._waited[lane, stream] = op
            self._waits.setdefault(lane, {})[stream] = op

    def block(self, ops: Iterable[int]) -> None:
        """HSYNC: the host waits for these ops before it issues the next one."""
        self._blocking.extend(ops)

    def synchronize(self) -> None:
        """HSYNC(device): the host waits for everything issued so far, but for what the drives were asked."""
        self.block(op for stream, op in self._last.items() if stream not in (READ, WRITE))

    def read(self, lane: str) -> None:
        """ITEM: the host waits for the lane's tail and reads a scalar."""
        self.block(self.tail(lane))
        self.call(reads=1)

    def call(self, gradient_hooks: int = 0, module_hooks: int = 0, hook_parameters: int = 0, reads: int = 0) -> None:
        """Host work before the next op is issued."""
        calls = self._calls
        calls[0] += gradient_hooks
        calls[1] += module_hooks
        calls[2] += hook_parameters
        calls[3] += reads
        self._called = True

    # --- memory ------------------------------------------------------------------------------------------------------

    def resident(self, name: str, category: str, size: float, tier: Tier = "gpu", pinned: bool = False) -> int:
        """A buffer that is there before the step begins and after it ends."""
        buffer = self._new(Buffer(name, category, size, tier, pinned), born=-1)
        self._resident.add(buffer)
        return buffer

    def acquire(self, name: str, category: str, size: float, tier: Tier = "gpu", pinned: bool = False) -> int:
        """Allocate, at the issue of the next op."""
        buffer = self._new(Buffer(name, category, size, tier, pinned), born=len(self._drafts))
        self._acquiring.append(buffer)
        return buffer

    def gathered(self, buffer: int, *parameters: int) -> int:
        """The buffer, in which these parameters lie whole, for use."""
        self._buffers[buffer] = self._buffers[buffer]._replace(parameters=parameters)
        return buffer

    def acquire_again(self, buffer: int) -> None:
        """Allocate a resident buffer that was released."""
        self._born[buffer] = len(self._drafts)
        self._acquiring.append(buffer)

    def release(self, buffer: int, lane: str) -> None:
        """Free: the memory can be reused once the lane has done everything it has to do so far."""
        self.release_after(buffer, max(self.tail(lane), default=0))

    def release_after(self, buffer: int, op: int) -> None:
        """Free: the memory can be reused once `op` has ended (never before the op that acquired it)."""
        self._releases.setdefault(max(op, self._born[buffer]), []).append(buffer)

    def _new(self, buffer: Buffer, born: int) -> int:
        self._buffers.append(buffer)
        self._born.append(born)
        return len(self._buffers) - 1

    # --- repetition --------------------------------------------------------------------------------------------------

    def repeat(self, start: int, stop: int, micro_batch: int) -> None:
        """Write ops `start:stop` (the last micro-step written) again as another micro-step.

        What they wait for in the micro-step before becomes what the new ones wait for in theirs; buffers they acquire
        become new ones. Only for a micro-step that equals the one before it.
        """
        by, before = stop - start, 2 * start - stop

        fresh: dict[int, int] = {}
        for number, draft in enumerate(self._drafts[start:stop], start + by):
            name, stream, work, after, waits, host, acquires, phase, _, layer, reduces, gathers = draft
            if after:
                after = tuple([op + by if op >= before else op for op in after])
            if waits:
                waits = tuple([op + by if op >= before else op for op in waits])
            if acquires:
                for buffer in acquires:
                    fresh[buffer] = self._new(self._buffers[buffer], born=number)
                acquires = tuple([fresh[buffer] for buffer in acquires])
            if number - by in self._releases:
                self._releases[number] = [fresh.get(buffer, buffer) for buffer in self._releases[number - by]]
            place = phase, micro_batch, layer
            self._drafts.append((name, stream, work, after, waits, host, acquires, *place, reduces, gathers))
        self._streams += self._streams[start:stop]
        self._shift(start, by)

    def _shift(self, start: int, by: int) -> None:
        """What waits between micro-steps moves along."""
        for newest in (self._last, *self._waits.values()):
            newest.update({stream: op + by for stream, op in newest.items() if op >= start})
        self._waited.update({pair: op + by for pair, op in self._waited.items() if op >= start})
        self._blocking = [op + by if op >= start else op for op in self._blocking]

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(
        self, *, parameters: tuple[int, ...], reductions: tuple[int, ...], micro_batches: int, notes: Iterable[str] = ()
    ) -> Step:
        """The Step. Waits of the host that no later op carries get an op of their own (`end of step`)."""
        if self._blocking or self._called or self._acquiring:
            self.launch("host", "end of step", None)
        return Step(
            ops=tuple(self._ops()),
            buffers=tuple(self._buffers),
            resident=frozenset(self._resident),
            groups=self.groups,
            micro_batches=micro_batches,
            parameters=parameters,
            reductions=reductions,
            notes=tuple(notes),
        )

    def _ops(self) -> Iterator[Op]:
        releases = self._releases
        for number, draft in enumerate(self._drafts):
            name, stream, work, after, waits, host, acquires, phase, micro_batch, layer, reduces, gathers = draft
            freed = tuple(releases[number]) if number in releases else ()
            place = phase, micro_batch, layer
            yield Op(number, name, stream, work, after, waits, host, acquires, freed, *place, reduces, gathers)
