"""Recordings of our own: networks of linears, as a framework would have recorded a step of theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTH = 8  # weight 8 x 8, bias 8: 72 elements

Call = tuple[str, int, int]


def event(call: Call, phase: str = "backward", micro_batch: int | None = 0, **more: Any) -> dict[str, Any]:
    """A collective: kind, elements in, elements out."""
    kind, nin, nout = call
    values = {"op": kind, "ph": phase, "dtype": "f32", "nin": nin, "nout": nout, "gs": 2}
    return values | ({} if micro_batch is None else {"mb": micro_batch}) | more


def linears(count: int) -> dict[str, Any]:
    """`model`: layers.0, layers.1, ... in a list of modules."""
    names = [f"layers.{i}" for i in range(count)]
    params = [
        {"name": f"{name}.{which}", "shape": list(shape)}
        for name in names
        for which, shape in (("weight", (WIDTH, WIDTH)), ("bias", (WIDTH,)))
    ]
    modules = [
        {"name": "<root>", "cls": "Net", "params": [], "children": ["layers"]},
        {"name": "layers", "cls": "ModuleList", "params": [], "children": [str(i) for i in range(count)]},
        *({"name": name, "cls": "Linear", "params": ["weight", "bias"], "children": []} for name in names),
    ]
    return {"params": params, "modules": modules}


def step(count: int, collectives: Sequence[dict[str, Any]] = (), forward: Sequence[int] = ()) -> dict[str, Any]:
    """One micro-batch: modules called in the order `forward`, their gradients ready in reverse, bias first."""
    calls = [f"layers.{i}" for i in forward or range(count)]
    markers: list[dict[str, Any]] = [{"m": "phase", "ph": "forward", "mb": 0}, {"m": "F>", "mod": "<root>"}]
    for name in calls:
        markers += [{"m": "F>", "mod": name}, {"m": "F<", "mod": name}]
    markers += [{"m": "F<", "mod": "<root>"}, {"m": "phase", "ph": "backward", "mb": 0}]
    for name in reversed(calls):
        markers += [{"m": "B>", "mod": name}, {"m": "G", "mod": f"{name}.bias"}, {"m": "G", "mod": f"{name}.weight"}]
    return {"events": [*markers, *collectives, {"m": "phase", "ph": "step"}]}


def recording(config: dict[str, Any], steps: Sequence[dict[str, Any]], count: int = 2, **more: Any) -> dict[str, Any]:
    return {"config": config, "model": linears(count), "steps": list(steps), **more}


def write(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path
