"""The only hand that writes ops. Strategies speak in the primitive actions of a framework; this turns them into a Step.

Lanes are CUDA streams. A lane's *tail* is everything its next op has to wait for: its last op and the waits put on it
since. Collectives go to their communicator's stream; a lane that waits for one has it in its tail. Waits that change
nothing (the lane already waited for the same op) are not written twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zerosim.step import (
    NO_CALLS,
    Buffer,
    Collective,
    CollectiveKind,
    Group,
    HostCalls,
    Op,
    Phase,
    Slice,
    Step,
    Work,
    communicator,
)


class Builder:
    """Collects ops in issue order; `finish` makes the Step."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = dict(groups)
        self.phase: Phase = "forward"
        self.micro_batch = 0
        self._ops: list[Op] = []
        self._releases: dict[int, list[int]] = {}  # by op number; added to while later ops are written
        self._buffers: list[Buffer] = []
        self._resident: set[int] = set()
        self._born: list[int] = []  # op number at which each buffer is acquired
        self._last: dict[str, int] = {}  # last op of each stream
        self._waits: dict[str, list[int]] = {}  # what the next op of each lane waits for beside its own stream
        self._waited: dict[tuple[str, str], int] = {}  # newest op of a stream that a lane has waited for
        self._acquiring: list[int] = []
        self._blocking: list[int] = []
        self._calls = NO_CALLS

    # --- ops ---------------------------------------------------------------------------------------------------------

    def launch(
        self,
        lane: str,
        name: str,
        work: Work | None,
        host: HostCalls = NO_CALLS,
        layer: int | None = None,
        reduces: tuple[Slice, ...] = (),
    ) -> int:
        """Write an op at the end of a lane; the host calls made since the last op are part of issuing it."""
        waits = self._waits.pop(lane, None)
        after = tuple(dict.fromkeys(waits)) if waits else ()
        return self._write(lane, name, work, after, host, layer, reduces)

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
        layer: int | None = None,
    ) -> int:
        """A collective after the lane's tail. Unless `asynchronous`, the lane's later ops wait for it."""
        stream = communicator(group)
        after = tuple(op for op in self.tail(lane) if self._ops[op].stream != stream)
        work = Collective(kind, elements, dtype, group)
        number = self._write(stream, name or kind, work, after, HostCalls(collectives=1), layer, reduces)
        if not asynchronous:
            self._waits[lane] = [number]  # it comes after everything the lane waited for
        return number

    def _write(
        self,
        stream: str,
        name: str,
        work: Work | None,
        after: tuple[int, ...],
        host: HostCalls,
        layer: int | None,
        reduces: tuple[Slice, ...],
    ) -> int:
        number = len(self._ops)
        if self._calls is not NO_CALLS:
            host = self._calls + host
            self._calls = NO_CALLS
        blocking, acquires = tuple(dict.fromkeys(self._blocking)), tuple(self._acquiring)
        self._blocking.clear()
        self._acquiring.clear()
        self._ops.append(
            Op(
                number,
                name,
                stream,
                work,
                after,
                blocking,
                host,
                acquires,
                (),
                self.phase,
                self.micro_batch,
                layer,
                reduces,
            )
        )
        self._last[stream] = number
        return number

    @property
    def next_op(self) -> int:
        """The number of the op that is written next."""
        return len(self._ops)

    # --- waits -------------------------------------------------------------------------------------------------------

    def tail(self, lane: str) -> list[int]:
        """What has to be done before the next op of the lane may run."""
        waits = self._waits.get(lane, [])
        last = self._last.get(lane)
        return [*waits, last] if last is not None and last not in waits else list(waits)

    def wait(self, lane: str, other: str) -> None:
        """WAIT(lane <- other): the lane's next op waits for everything in `other` as it stands now."""
        if lane != other:
            self.wait_for(lane, self.tail(other))

    def wait_for(self, lane: str, ops: Iterable[int]) -> None:
        """The lane's next op waits for these ops."""
        for op in ops:
            stream = self._ops[op].stream
            if stream != lane and self._waited.get((lane, stream), -1) < op:
                self._waited[lane, stream] = op  # streams are FIFO: older ops of it are covered
                self._waits.setdefault(lane, []).append(op)

    def block(self, ops: Iterable[int]) -> None:
        """HSYNC: the host waits for these ops before it issues the next one."""
        self._blocking.extend(ops)

    def synchronize(self) -> None:
        """HSYNC(device): the host waits for everything issued so far."""
        self.block(self._last.values())

    def read(self, lane: str) -> None:
        """ITEM: the host waits for the lane's tail and reads a scalar."""
        self.block(self.tail(lane))
        self.call(HostCalls(reads=1))

    def call(self, calls: HostCalls) -> None:
        """Host work before the next op is issued."""
        self._calls = self._calls + calls

    # --- memory ------------------------------------------------------------------------------------------------------

    def resident(self, name: str, category: str, size: float) -> int:
        """A buffer that is there before the step begins and after it ends."""
        buffer = self._new(name, category, size, born=-1)
        self._resident.add(buffer)
        return buffer

    def acquire(self, name: str, category: str, size: float) -> int:
        """Allocate, at the issue of the next op."""
        buffer = self._new(name, category, size, born=len(self._ops))
        self._acquiring.append(buffer)
        return buffer

    def acquire_again(self, buffer: int) -> None:
        """Allocate a resident buffer that was released."""
        self._born[buffer] = len(self._ops)
        self._acquiring.append(buffer)

    def release(self, buffer: int, lane: str) -> None:
        """Free: the memory can be reused once the last op now on the lane has ended."""
        self.release_after(buffer, self._last.get(lane, 0))

    def release_after(self, buffer: int, op: int) -> None:
        """Free: the memory can be reused once `op` has ended (never before the op that acquired it)."""
        self._releases.setdefault(max(op, self._born[buffer]), []).append(buffer)

    def _new(self, name: str, category: str, size: float, born: int) -> int:
        self._buffers.append(Buffer(name, category, size))
        self._born.append(born)
        return len(self._buffers) - 1

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(
        self, *, parameters: tuple[int, ...], reductions: tuple[int, ...], micro_batches: int, notes: Iterable[str] = ()
    ) -> Step:
        """The Step. Waits of the host that no later op carries get an op of their own (`end of step`)."""
        if self._blocking or self._calls is not NO_CALLS or self._acquiring:
            self.launch("host", "end of step", None)
        ops = self._ops
        for number, buffers in self._releases.items():
            ops[number] = ops[number]._replace(releases=tuple(buffers))
        return Step(
            ops=tuple(ops),
            buffers=tuple(self._buffers),
            resident=frozenset(self._resident),
            groups=self.groups,
            micro_batches=micro_batches,
            parameters=parameters,
            reductions=reductions,
            notes=tuple(notes),
        )
