"""The events of a recorded step: markers, and the collectives among the operations.

Markers (`m`) say which module is under way (`F>` `F<` its forward begins and ends, `B>` its backward begins) and which
gradient is ready (`G`). Operations that are no collectives (copies, requests to drives) are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, model_validator

KINDS: Mapping[str, str] = {
    kind: kind for kind in ("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all")
} | {"all_reduce_coalesced": "all_reduce"}  # several tensors in one call; its size is their sum
DTYPES: Mapping[str, str] = {
    "f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "i64": "int64", "i32": "int32", "i8": "int8",
    "u8": "uint8",
}  # fmt: skip
PHASES: Mapping[str, str] = {"forward": "forward", "backward": "backward", "step": "optimizer"}
CALLED, RETURNED, BACKWARD, READY = "F>", "F<", "B>", "G"

Direction = Literal["forward", "backward"]


class Event(BaseModel):
    """A marker, or an operation; a collective has all its numbers."""

    model_config = ConfigDict(frozen=True)

    m: str | None = None
    mod: str = ""
    ph: str | None = None
    mb: int | None = None
    op: str | None = None
    dtype: str = ""
    nin: int = 0
    nout: int = 0
    gs: int = 0
    root: int | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Event:
        if self.op in KINDS and (self.dtype not in DTYPES or self.ph not in PHASES or self.gs < 1):
            raise ValueError(f"dtype ({', '.join(DTYPES)}), ph ({', '.join(PHASES)}) and gs of a collective")
        return self


class Issued(NamedTuple):
    """A collective as a rank issues it: elements of its input and output on this rank, ranks of its group.

    The optimizer step belongs to no micro-batch; only a `reduce` is told by its root.
    """

    kind: str
    nin: int
    nout: int
    dtype: str
    ranks: int
    phase: str
    micro_batch: int | None
    root: int | None


def collectives(events: Iterable[Event], rebuilds_late: bool) -> tuple[tuple[Issued, ...], int]:
    """The collectives in order of issue, without the broadcasts of a late rebuild, and how many these were.

    DDP's buckets are rebuilt once in a run; with a static graph a step later than else, in what is taken here as
    steady (reducer.cpp, rebuild_buckets: int32, the parameters' places and the buckets' sizes).
    """
    found = [_issued(event) for event in events if event.op in KINDS]
    once = [call for call in found if rebuilds_late and (call.kind, call.dtype) == ("broadcast", "int32")]
    return tuple(call for call in found if call not in once), len(once)


def _issued(event: Event) -> Issued:
    kind, phase = KINDS[str(event.op)], PHASES[str(event.ph)]
    micro_batch = None if phase == "optimizer" else event.mb
    root = event.root if kind == "reduce" else None
    return Issued(kind, event.nin, event.nout, DTYPES[event.dtype], event.gs, phase, micro_batch, root)


def first_pass(events: Sequence[Event], direction: Direction) -> Iterator[Event]:
    """The markers of the first forward or backward of a step, up to the next phase."""
    begun = iter(events)
    for event in begun:
        if event.m == "phase" and event.ph == direction:
            return takewhile(lambda event: event.m != "phase", begun)
    return iter(())
