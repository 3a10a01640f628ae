"""Reading programs: what an op surely comes after, what is held at it; models with frozen and tied parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from zerosim.spec.model import Function, Model, Module, Parameter
from zerosim.step import Step


def ancestors(step: Step) -> list[dict[str, int]]:
    """For each op the newest op of each stream that has surely ended when it begins."""
    known: list[dict[str, int]] = []
    host: dict[str, int] = {}
    last: dict[str, int] = {}
    for op in step.ops:
        for number in op.host_waits:
            _join(host, known[number], {step.ops[number].stream: number})
        seen = dict(host)
        for number in (*op.after, *([last[op.stream]] if op.stream in last else [])):
            _join(seen, known[number], {step.ops[number].stream: number})
        last[op.stream] = op.number
        known.append(seen)
    return known


def _join(seen: dict[str, int], *others: dict[str, int]) -> None:
    for other in others:
        for stream, number in other.items():
            seen[stream] = max(seen.get(stream, -1), number)


def levels(step: Step) -> Iterator[Counter[str]]:
    """Bytes held by the name of the buffer when each op is issued, its own among them; then after the last op."""
    held: Counter[str] = Counter()
    for buffer in step.resident:
        held[step.buffers[buffer].name] += int(step.buffers[buffer].bytes)
    for op in step.ops:
        for buffer in op.acquires:
            held[step.buffers[buffer].name] += int(step.buffers[buffer].bytes)
        yield held.copy()
        for buffer in op.releases:
            held[step.buffers[buffer].name] -= int(step.buffers[buffer].bytes)
    yield held.copy()


def variant(model: Model, frozen: tuple[str, ...] = (), tied: bool = False) -> Model:
    """The model with the parameters frozen whose name contains one of `frozen`; the head tied to the embedding."""
    chosen = [parameter for parameter in model.parameters if any(part in parameter.name for part in frozen)]
    changed = {parameter.name: replace(parameter, trainable=False) for parameter in chosen}
    if tied:
        table = next(parameter for parameter in model.parameters if parameter.name == "emb.weight")
        changed["head.weight"] = changed.get(table.name, table)
    root = _with(model.root, changed)
    assert isinstance(root, Module)
    parameters = dict.fromkeys(parameter for module in root.walk() for parameter in module.parameters)
    return replace(model, root=root, parameters=tuple(parameters))


def _with(part: Module | Function, changed: dict[str, Parameter]) -> Module | Function:
    if isinstance(part, Function):
        return part
    parameters = tuple(changed.get(parameter.name, parameter) for parameter in part.parameters)
    return replace(part, parameters=parameters, body=tuple(_with(child, changed) for child in part.body))
