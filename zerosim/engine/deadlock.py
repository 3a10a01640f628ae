"""Why nothing goes on: read from the records of a play that came to rest with ops left. Knows no clock and no SimPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerosim.engine.record import NOT_YET, Record
from zerosim.step import Op

_CLASSES_TOLD = 4  # a story of thousands of classes is no story


def story(records: Sequence[Record], resources: Sequence[str]) -> str:
    """For each class: where its host is blocked, and the op at the head of each stream with what it waits for."""
    stuck = [record for record in records if NOT_YET in record.end]
    never = sum(record.end.count(NOT_YET) for record in stuck)
    lines = [f"the step cannot end: {never} of {sum(len(record.ops) for record in records)} ops never end"]
    for record in stuck[:_CLASSES_TOLD]:
        lines.append(f"rank class {record.name}:")
        lines += [f"  {line}" for line in _class(record, resources)]
    if len(stuck) > _CLASSES_TOLD:
        lines.append(f"and {len(stuck) - _CLASSES_TOLD} more rank classes")
    return "\n".join(lines)


def _class(record: Record, resources: Sequence[str]) -> Iterator[str]:
    ops = record.ops
    if record.reached < len(ops):
        op = ops[record.reached]
        yield f"the host is blocked before {_said(op)} and waits for {_awaited(ops, record, op.host_waits)}"
    heads: dict[str, Op] = {}
    for op in ops:
        if record.end[op.number] == NOT_YET:
            heads.setdefault(op.stream, op)
    for stream, op in heads.items():
        if op.number >= record.reached:
            reason = "has not been issued"
        elif record.ready[op.number] == NOT_YET:
            reason = f"waits for {_awaited(ops, record, op.after)}"
        else:
            reason = _running(op, record, resources)
        yield f"stream {stream}: {_said(op)} {reason}"


def _running(op: Op, record: Record, resources: Sequence[str]) -> str:
    """Why an op that has begun, or has reached its collective, does not end."""
    meeting = record.meetings.get(op.number)
    if meeting is not None and len(meeting.arrived) < len(meeting.members):
        absent = [name for name in meeting.members if name not in meeting.arrived]
        return f"has been reached by {', '.join(meeting.arrived)}; not by {', '.join(absent)}"
    return f"runs for ever: {resources[record.footprints[op.number].alone.bottleneck]} has no rate"


def _awaited(ops: Sequence[Op], record: Record, others: Sequence[int]) -> str:
    return ", ".join(_said(ops[other]) for other in others if record.end[other] == NOT_YET)


def _said(op: Op) -> str:
    return f"op {op.number} ({op.name})"
