"""What stage 3 moved between GPU, host memory and NVMe in recorded runs, event by event; with ZEROSIM_SHARED.

The runs had CPU ranks, for which a copy to the "device" is a copy call and no more. So sums of later micro-steps were
taken in place there, without the copies that a GPU needs, and only the first micro-step tells of these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from zerosim.spec.recording import STEADY, read_recording
from zerosim.step import READ, WRITE, Collective, HostCompute, Op, Step, Transfer
from zerosim.studies.conform import program

SHARED = os.environ.get("ZEROSIM_SHARED")
FOLDER = Path(SHARED or "", "golden", "recordings")
NVME = (
    "ds3_mlp_bf16_nvme_both", "ds3_mlp_bf16_nvme_opt", "ds3_mlp_bf16_nvme_opt_ga2", "ds3_mlp_bf16_nvme_opt_pipeline",
    "ds3_mlp_bf16_nvme_param_incpu",
)  # fmt: skip
OFFLOADED = ("ds3_mlp_offload_opt", "ds3_mlp_bf16_offload_opt_ga4", "ds3_mlp_bf16_offload_both")
PARAMETERS = ("ds3_mlp_bf16_nvme_both", "ds3_mlp_bf16_nvme_param_incpu", "ds3_mlp_bf16_offload_both")
WIDTHS = {"f32": 4, "bf16": 2}

pytestmark = pytest.mark.skipif(not SHARED, reason="ZEROSIM_SHARED is not set: no recordings of real training steps")


class Event(NamedTuple):
    """Something that a rank did, and bytes."""

    kind: str
    bytes: int = 0


@cache
def simulated(name: str) -> Step:
    return program(read_recording(FOLDER / f"{name}.json")).check()


def recorded(name: str) -> list[dict[str, Any]]:
    data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    events: list[dict[str, Any]] = data["steps"][STEADY]["events"]
    return events


# --- requests to the drives, waits, collectives ----------------------------------------------------------------------


def theirs(name: str) -> Iterator[Event]:
    for event in recorded(name):
        op = event.get("op", "")
        if op in ("all_gather", "reduce_scatter"):
            yield Event(op, event["bytes"])
        elif op == "nvme.wait":
            yield Event("wait")
        elif op.startswith("nvme."):
            yield Event({"nvme.async_pread": READ, "nvme.async_pwrite": WRITE}[op], event["bytes"])


def ours(step: Step) -> Iterator[Event]:
    """Each wait that is new to the host, before the op that it holds up."""
    waited = {READ: -1, WRITE: -1}
    for op in step.ops:
        new = [n for n in op.host_waits if n > waited.get(step.ops[n].stream, n)]
        waited |= {step.ops[n].stream: n for n in new}
        if new:
            yield Event("wait")
        if isinstance(op.work, Transfer) and op.stream in waited:
            yield Event(op.stream, int(op.work.bytes))
        elif isinstance(op.work, Collective) and op.work.kind in ("all_gather", "reduce_scatter"):
            yield Event(op.work.kind, op.work.bytes)


@pytest.mark.parametrize("name", [*NVME, *OFFLOADED])
def test_requests_and_waits_are_those_recorded_among_the_collectives(name: str) -> None:
    assert list(ours(simulated(name))) == list(theirs(name))


def test_the_recordings_swap() -> None:
    kinds = {name: {event.kind for event in theirs(name)} for name in NVME}
    assert all({READ, WRITE, "wait"} <= kinds[name] for name in NVME[:4])
    assert kinds["ds3_mlp_bf16_nvme_param_incpu"] == {"all_gather", "reduce_scatter"}  # all fits into max_in_cpu


# --- copies ----------------------------------------------------------------------------------------------------------


def shards_up(name: str) -> list[int]:
    """Bytes of each shard that was brought up for a gather, in order."""
    found, pending = [], list[int]()
    for event in recorded(name):
        if event.get("op") == "to_device_call":
            pending.append(event["bytes"])
        elif event.get("op") == "all_gather":
            found += pending
        elif "op" not in event or event["op"].startswith("nvme"):
            continue
        if event.get("op") != "to_device_call":
            pending.clear()
    return found


@pytest.mark.parametrize("name", PARAMETERS)
def test_shards_come_up_one_by_one_before_each_gather(name: str) -> None:
    up = [
        int(op.work.bytes) for op in simulated(name).ops if _named(op, "copy shard") and isinstance(op.work, Transfer)
    ]
    assert up == shards_up(name)
    assert up


def slices_down(name: str) -> list[Event]:
    """Of the first micro-step, after each reduction: what was copied down and up, widened for the norm, and cast."""
    found, window = [], list[Event]()
    for event in recorded(name):
        if event.get("ph") == "step" or event.get("mb", 0) > 0:
            break
        if event.get("op") == "reduce_scatter":
            window = [Event("reduced")]
        elif "m" in event and window:  # a flush in a hook ends with the gradient that did not fit into the bucket
            found += window[1:] if event["m"] == "leftovers" else window[1:-1]
            window = []
        elif window:
            window += _slice(event, swapping=name in NVME)
    return found


def _slice(event: dict[str, Any], swapping: bool) -> Iterator[Event]:
    """Copies that wait belong to the reduction, or fill a swap buffer."""
    op, dtype = event["op"], event.get("dtype", "")
    size = event.get("nin", 0) * WIDTHS.get(dtype.split(">")[-1], 0)
    if op == "copy" and (event["asyn"] or (swapping and dtype == "f32>f32")):
        yield Event("down", size)
    elif op == "to_device_call":
        yield Event("up", size)
    elif op == "to_copy" and dtype.endswith(">f64"):
        yield Event("norm")
    elif op == "to_copy" and dtype == "bf16>f32":
        yield Event("cast")


@pytest.mark.parametrize("name", [*NVME[:4], *OFFLOADED])
def test_slices_go_down_and_up_and_down_in_fp32_as_recorded(name: str) -> None:
    step = simulated(name)
    found = []
    for op in step.ops:
        if op.phase != "backward" or op.micro_batch > 0:
            continue
        if isinstance(op.work, Transfer) and not _named(op, "copy shard") and op.stream not in (READ, WRITE):
            found.append(Event("down" if op.work.target == "dram" else "up", int(op.work.bytes)))
        elif _named(op, "gradient norm"):
            found.append(Event("norm"))
        elif _named(op, "cast gradient to fp32"):
            found.append(Event("cast"))
    assert found == slices_down(name)
    assert found


@pytest.mark.parametrize("name", [*NVME[:4], *OFFLOADED])
def test_new_parameters_are_cast_in_the_pieces_recorded(name: str) -> None:
    """A sub-group at once where its shards are one piece of memory, else shard by shard, those on NVMe last."""
    pieces = [e["nin"] for e in recorded(name) if e.get("dtype") == "f32>bf16" and e["op"] == "copy"]
    cast = [
        int(op.work.elements)
        for op in simulated(name).ops
        if isinstance(op.work, HostCompute) and op.work.kind == "cast"
    ]
    assert cast == pieces


def _named(op: Op, beginning: str) -> bool:
    return op.name.startswith(beginning)
