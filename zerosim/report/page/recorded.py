"""What a measured step says, section by section, in the words of a played one; what a trace does not tell is left out.

Rule: the same sections where both know the same; beside them what only a profiler sees, kernel by kernel and rank by
rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report.page.drawing import Row
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.page.section import NUMBER, Section, cards, long
from zerosim.report.page.sections import findings
from zerosim.report.page.spent import stalls, time
from zerosim.report.recorded import ran_rows, rank_cells, read_of
from zerosim.report.tables import Column
from zerosim.report.words import share
from zerosim.units import show_seconds, show_share, show_size
from zerosim.views.recorded import Recorded


def machine(summary: Recorded) -> str:
    """Which step of how many ranks it is, and on what."""
    return ", ".join(filter(None, (read_of(summary), summary.product)))


def headline(summary: Recorded) -> Section:
    """The numbers that are asked for first, as far as a trace has them."""
    step, held, moved = summary.step_seconds, summary.memory, summary.communication
    known = [
        ("step time", show_seconds(step)),
        ("compute", share(summary.breakdown.compute, step)),
        ("exposed communication", share(summary.breakdown.exposed_communication, step)),
        ("communication hidden", show_share(moved.overlap) if moved.total_seconds else "-"),
    ]
    sizes = (
        ("allocated", held.allocated_bytes),
        ("reserved", held.reserved_bytes),
        ("memory of the GPU", held.capacity_bytes),
    )
    known += [(name, show_size(size)) for name, size in sizes if size]
    return Section("headline", "The step", cards(known))


def told(summary: Recorded) -> Iterator[Section]:
    """Everything after the headline."""
    parts = (findings(summary), time(summary), stalls(summary), _ran(summary), _ranks(summary))
    yield from (section for section in parts if section.body)


def _ran(summary: Recorded) -> Section:
    columns = (
        Column("work"), Column("count", NUMBER), Column("time, summed", NUMBER), Column("share of the step", NUMBER),
        Column("bytes", NUMBER), Column("rate", NUMBER),
    )  # fmt: skip
    rows = [Row(cells) for cells in ran_rows(summary)]
    return Section("ran", "What ran", joined(long(columns, rows, "kinds of work")))


def _ranks(summary: Recorded) -> Section:
    if len(summary.classes) < 2:
        return Section("ranks", "Ranks", Markup())
    columns = (Column("rank"), *(Column(name, NUMBER) for name in ("step", "compute", "exposed", "waited")))
    slowest = sorted(summary.classes, key=lambda known: (-known.end_seconds, known.first_rank))
    rows = [Row(rank_cells(known)) for known in slowest]
    body = [element("p", "The slowest first."), *long(columns, rows, "ranks")]
    return Section("ranks", "Ranks", joined(body))
