"""Profiler traces of a simulated step, for Perfetto and HolisticTraceAnalysis: one JSON file a rank.

Rules: `distributedInfo` stands first and there is a blank after each colon, because HolisticTraceAnalysis finds the
rank by a pattern on the text. Same timeline, same bytes, packed or not.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

from zerosim.errors import InputError, Problem
from zerosim.report.files import is_folder, write_bytes
from zerosim.report.kineto import events
from zerosim.resources import RankClass
from zerosim.timeline import Timeline


def write(timeline: Timeline, path: str | os.PathLike[str], scale: int = 1) -> list[Path]:
    """Write the trace and say which files were written.

    A path that ends in `.json` or `.json.gz` is one file, of the first class. A directory (or a path that ends in a
    slash) gets one file a rank class, `rank{N}.pt.trace.json`. `scale` stretches the clock of very short steps: so
    many microseconds of the trace are one simulated microsecond.
    """
    if not os.fspath(path):
        raise InputError([Problem("trace", found="no name", expected="the name of a file or a folder")])
    if os.fspath(path).endswith("/") or is_folder(Path(path)):
        wanted = [(Path(path) / f"rank{known.ranks[0]}.pt.trace.json", known) for known in timeline.classes]
    elif Path(path).name.endswith((".json", ".json.gz")):
        wanted = [(Path(path), timeline.classes[0])]
    else:
        expected = "a name that ends in .json or .json.gz, or a directory"
        raise InputError([Problem(os.fspath(path), found=f'"{Path(path).name}"', expected=expected)])
    for file, rank_class in wanted:
        content = text(timeline, rank_class, scale).encode()
        write_bytes(file, gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)
    return [file for file, _ in wanted]


def text(timeline: Timeline, rank_class: RankClass, scale: int = 1) -> str:
    """The trace of a class's first rank, one event a line."""
    world_size = sum(len(known.ranks) for known in timeline.classes)
    head = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank_class.ranks[0], "world_size": world_size},
        "deviceProperties": [{"id": 0, "totalGlobalMem": int(timeline.supply.capacities.get("gpu", 0))}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": f"zerosim rank {rank_class.ranks[0]}",
        "ticksPerMicrosecond": scale,
        "contextBytes": int(timeline.supply.overheads.get("gpu", 0)),  # in the curves of memory
    }
    opening = json.dumps(head).removesuffix("}")
    lines = ",\n".join(json.dumps(event) for event in events(timeline, rank_class, scale))
    return f'{opening}, "traceEvents": [\n{lines}\n]}}\n'
