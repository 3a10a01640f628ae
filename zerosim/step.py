"""The program of one training step: ops in the order in which the host of one rank issues them.

Rules of this paper
- An op knows its stream, what it waits for, and how much work it is. It knows no time, no link and no rate.
- A stream is a FIFO: an op starts after the previous op of its stream. `after` names ops of *other* streams.
- A collective's stream is the communicator of its group (`communicator(group)`): one collective at a time, in issue
  order, as NCCL does. A lane waits for a synchronous collective by naming it in the `after` of the lane's next op.
- `host_waits` block the host before it issues the op: a device synchronisation, a scalar read, a rate limiter.
- `acquires` happen when the host issues the op; `releases` too, but the memory is reusable only when the op ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from zerosim.errors import ZerosimError

Phase = Literal["forward", "backward", "optimizer", "unknown"]  # unknown: of a measured op that its trace does not tell
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv", "exchange",
]  # fmt: skip
DTYPE_BYTES: Mapping[str, int] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "int64": 8, "int32": 4, "fp16": 2, "bf16": 2, "int8": 1, "uint8": 1,
}  # fmt: skip

HOST_STREAM = "host"
COMPUTE, REDUCE, GATHER = "compute", "reduce", "gather"
READ, WRITE = "nvme.read", "nvme.write"  # requests to the drives, in the order in which they were handed in


def communicator(group: str) -> str:
    """The stream on which the collectives of a process group run, one at a time."""
    return f"nccl.{group}"


# --- work ----------------------------------------------------------------------------------------------------------


class Matmul(NamedTuple):
    """Matrix products run one after the other: each `(batch, m, k, n)` is batch x [m,k]·[k,n]."""

    shapes: tuple[tuple[int, int, int, int], ...]
    dtype: str

    @property
    def flops(self) -> float:
        return float(sum(2 * b * m * k * n for b, m, k, n in self.shapes))  # one multiply and one add


class Attention(NamedTuple):
    """A fused (flash) attention kernel over `batch` sequences; `backward` recomputes the scores. `kernel`: which
    generation of it."""

    batch: int
    heads: int
    queries: int
    keys: int
    head_dim: int
    causal: bool
    backward: bool
    dtype: str
    kernel: Literal["flash1", "flash", "flash3"] = "flash"

    @property
    def flops(self) -> float:
        """4·b·h·s²·d forward, halved when causal; backward 2.5 times as much (Dao 2023, FlashAttention-2 §3)."""
        forward = 4.0 * self.batch * self.heads * self.queries * self.keys * self.head_dim
        return forward * (0.5 if self.causal else 1.0) * (2.5 if self.backward else 1.0)


class Pass(NamedTuple):
    """Memory-bound kernels: `hbm_bytes` read and written by `kernels` launches.

    `flavour`: `stream` (copies, fused element-wise), `reduction` (norms, softmax), `adam` (fused optimizer).
    """

    hbm_bytes: float
    flavour: Literal["stream", "reduction", "adam"]
    kernels: int = 1


class Collective(NamedTuple):
    """A collective over the ranks of `group`.

    `elements` follows nccl-tests: the whole buffer (gathered output of an all-gather, input of a reduce-scatter).
    In a pair `send_recv` goes one way; `exchange` is a send and a receive in one call, `elements` each way.
    `root`: the rank of the group to which a reduction goes.
    """

    kind: CollectiveKind
    elements: int
    dtype: str
    group: str
    root: int | None = None

    @property
    def bytes(self) -> int:
        return self.elements * DTYPE_BYTES[self.dtype]


Tier = Literal["gpu", "dram", "nvme"]


class Transfer(NamedTuple):
    """A copy between tiers. One between `nvme` and `gpu` is direct (GPUDirect Storage), without host memory.

    `pinned`: the host memory is page-locked. `batch`: most bytes that a drive is asked for at once, 0 where nothing
    bounds them; `in_turn`: it is asked for more only when it has finished all of a batch, else for each part that ends.
    """

    bytes: float
    source: Tier
    target: Tier
    pinned: bool = True
    batch: float = 0.0
    in_turn: bool = False


class HostCompute(NamedTuple):
    """Work of the CPU on host memory, `dram_bytes` read and written.

    `optimizer`: a vectorised optimizer that passes once (DeepSpeedCPUAdam); `torch_optimizer`: one of torch's own, pass
    by pass; `cast`: between 32 and 16 bits; `stream`: plain arithmetic such as a scaling.
    """

    kind: Literal["optimizer", "torch_optimizer", "cast", "stream"]
    elements: float
    dram_bytes: float


Work = Matmul | Attention | Pass | Collective | Transfer | HostCompute


class HostCalls(NamedTuple):
    """What the host does to issue an op, counted; the cost model says what each costs."""

    kernels: int = 0  # kernel launches of a loop over tensors: a framework op each
    collectives: int = 0  # calls into the communication library
    gradient_hooks: int = 0  # post-accumulate-grad hooks
    module_hooks: int = 0  # pre- and post-hooks of stage 3 and FSDP
    hook_parameters: int = 0  # parameters looked at in those
    reads: int = 0  # device-to-host scalar reads (`.item()`), beside the waiting
    model_kernels: int = 0  # kernel launches of the model: a module or function of it, recorded for the backward


NO_CALLS = HostCalls()

# --- memory --------------------------------------------------------------------------------------------------------


class Buffer(NamedTuple):
    """A block of memory. `category` is one of CATEGORIES; `name` says which one it is.

    `pinned`: page-locked host memory, of which torch takes a power of two (c10 CachingHostAllocator).
    `parameters`: those that lie in it whole, for use, as long as it is held.
    """

    name: str
    category: str
    bytes: float
    tier: Tier = "gpu"
    pinned: bool = False
    parameters: tuple[int, ...] = ()

    @property
    def taken(self) -> float:
        """Bytes that it takes of its tier."""
        return float(2 ** math.ceil(math.log2(self.bytes))) if self.pinned and self.bytes > 0 else self.bytes


CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "buffers", "overhead")


# --- the program ---------------------------------------------------------------------------------------------------


class Slice(NamedTuple):
    """Elements `start:stop` of a parameter (index in registration order) whose gradient an op reduces."""

    parameter: int
    start: int
    stop: int


class Op(NamedTuple):
    """One op; `number` is its place in issue order. `work` None is a marker on a stream, of no time of its own.

    `reduces`: gradients that it sums over the ranks. `gathers`: parameters that it makes whole, in the buffer's order.
    """

    number: int
    name: str
    stream: str
    work: Work | None
    after: tuple[int, ...] = ()
    host_waits: tuple[int, ...] = ()
    host: HostCalls = NO_CALLS
    acquires: tuple[int, ...] = ()
    releases: tuple[int, ...] = ()
    phase: Phase = "forward"
    micro_batch: int = 0
    layer: int | None = None
    reduces: tuple[Slice, ...] = ()
    gathers: tuple[int, ...] = ()


class Group(NamedTuple):
    """A process group seen from its first rank: ranks first, first + stride, ... (`size` of them).

    The world is cut into blocks of `period` ranks (0: of size x stride), and each block has the same groups. Where
    size x stride fills the block, as usual, every rank is in one of them; else only those that `first` and `stride`
    reach are, as in the pair of stages 3 and 4 of a pipeline of 8: first 3, size 2, period 8.
    """

    name: str
    size: int
    stride: int = 1
    first: int = 0
    period: int = 0

    def members(self, rank: int) -> range:
        """The ranks of the instance that holds `rank`, in a world without end; empty where none does."""
        span = self.size * self.stride
        block = self.period or span
        start = rank // block * block + (rank % self.stride if span == block else self.first)
        ranks = range(start, start + span, self.stride)
        return ranks if rank in ranks else range(0)


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step: the ops in issue order, every buffer, and which of those live before and after it."""

    ops: tuple[Op, ...]
    buffers: tuple[Buffer, ...]
    resident: frozenset[int]
    groups: Mapping[str, Group]
    micro_batches: int
    parameters: tuple[int, ...] = ()  # trainable elements of each parameter, 0 where frozen
    reductions: tuple[int, ...] = ()  # micro-batches in which every gradient is reduced
    notes: tuple[str, ...] = field(default=())  # assumptions the strategy made, one sentence each

    def lint(self) -> list[str]:
        """What is wrong with the program; empty when nothing is.

        Every `after` and `host_waits` points backward; each buffer is acquired once and released once; each gradient
        element is reduced exactly once in every micro-batch of `reductions`.
        """
        return [*_lint_order(self.ops), *_lint_buffers(self), *_lint_reductions(self)]

    def check(self) -> Step:
        """The step itself, or ZerosimError naming the first faults."""
        faults = self.lint()
        if faults:
            raise ZerosimError("faulty program: " + "; ".join(faults[:5]))
        return self


def _lint_order(ops: Sequence[Op]) -> list[str]:
    faults = []
    for position, op in enumerate(ops):
        if op.number != position:
            faults.append(f"op {position} ({op.name}) has number {op.number}")
        if any(other >= position or other < 0 for other in (*op.after, *op.host_waits)):
            faults.append(f"op {position} ({op.name}) waits for an op that is issued later")
    return faults


def _lint_buffers(step: Step) -> list[str]:
    faults = []
    held: set[int] = set(step.resident)
    seen: set[int] = set(step.resident)
    for op in step.ops:
        for buffer in op.acquires:
            if buffer in held:
                faults.append(f"op {op.number} ({op.name}) acquires {step.buffers[buffer].name}, which is held")
            held.add(buffer)
            seen.add(buffer)
        for buffer in op.releases:
            if buffer not in held:
                faults.append(f"op {op.number} ({op.name}) releases {step.buffers[buffer].name}, which is not held")
            held.discard(buffer)
    faults += [f"{step.buffers[b].name} is never released" for b in sorted(held - step.resident)]
    faults += [f"{step.buffers[b].name} is resident and not held at the end" for b in sorted(step.resident - held)]
    faults += [f"{b.name} is never acquired" for i, b in enumerate(step.buffers) if i not in seen]
    return faults


def _lint_reductions(step: Step) -> list[str]:
    faults = []
    pieces: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for op in step.ops:
        for piece in op.reduces:
            pieces.setdefault((op.micro_batch, piece.parameter), []).append((piece.start, piece.stop))
    for micro_batch in step.reductions:
        for parameter, elements in enumerate(step.parameters):
            found = sorted(pieces.get((micro_batch, parameter), []))
            ends = [0, *(stop for _, stop in found)]
            starts = [*(start for start, _ in found), elements]
            wrong = next(((end, start) for end, start in zip(ends, starts, strict=True) if end != start), None)
            if wrong:
                times = "not reduced" if wrong[0] < wrong[1] else "reduced once too often"
                faults.append(f"parameter {parameter}: element {min(wrong)} is {times} in micro-batch {micro_batch}")
    return faults
