"""Sections about time: where it went, and why the GPU waits. Of played and of measured steps."""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report import sentences
from zerosim.report.page.drawing import Piece, Row, bar, meter, swatch, table
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.page.section import NUMBER, Section, long
from zerosim.report.palette import INKS, SPENT
from zerosim.report.parts import OWN_CAUSES, cause_name, time_parts
from zerosim.report.tables import Column
from zerosim.report.waits import because
from zerosim.report.words import share
from zerosim.units import show_seconds
from zerosim.views.recorded import Answer
from zerosim.views.stalls import Stall
from zerosim.views.summary import Summary

BARE = {  # what the timeline calls it
    "exposed_communication": "exposed",
    "exposed_transfer": "copying",
    "host_compute": "computing",
}


def time(summary: Answer) -> Section:
    """The parts of the step, its phases, and how much of the communication is hidden."""
    step = summary.step_seconds
    parts = list(zip(SPENT, time_parts(summary), strict=True))
    rows = [
        Row(
            (joined([swatch(ink, part.letter), f" {part.word}"]), show_seconds(part.amount), share(part.amount, step)),
            BARE.get(ink, "") if part.amount else "",
        )
        for ink, part in parts
    ]
    columns = (Column("part of the step"), Column("time", NUMBER), Column("share of the step", NUMBER))
    left = joined([table(columns, rows), *_communication(summary)])
    beside = element("div", element("div", left), element("div", *_phases(summary)), class_="beside")
    return Section("time", "Where the time goes", joined([time_bar(summary, step), beside]))


def time_bar(summary: Answer, whole: float) -> Markup:
    """The step as a part of `whole` seconds."""
    step = summary.step_seconds
    pieces = [
        Piece(ink, part.letter, part.word, part.amount, f"{show_seconds(part.amount)}, {share(part.amount, step)}")
        for ink, part in zip(SPENT, time_parts(summary), strict=True)
    ]
    told = ", ".join(f"{part.word} {share(part.amount, step)}" for part in pieces if part.amount)
    return bar(pieces, whole, f"Where the time goes: {told}")


def time_legend(summary: Answer) -> Markup:
    """What the parts of such bars are."""
    parts = zip(SPENT, time_parts(summary), strict=True)
    return element("ul", *(element("li", swatch(ink, part.letter), part.word) for ink, part in parts), class_="legend")


def _communication(summary: Answer) -> Iterator[Markup]:
    known = summary.communication
    if known.total_seconds:
        exposed = show_seconds(known.exposed_seconds)
        yield element("p", f"Communication: {sentences.hidden(summary)}, {exposed} exposed.")


def _phases(summary: Answer) -> Iterator[Markup]:
    if summary.phases is None:
        return
    step = summary.step_seconds
    pieces = [Piece("", "", phase, seconds, share(seconds, step)) for phase, seconds in summary.phases.items()]
    told = ", ".join(f"{piece.word} {piece.said}" for piece in pieces)
    rows = [Row((phase, show_seconds(seconds), share(seconds, step))) for phase, seconds in summary.phases.items()]
    yield bar(pieces, step, f"Phases: {told}")
    yield table((Column("phase"), Column("time", NUMBER), Column("share of the step", NUMBER)), rows)


def stalls(summary: Answer) -> Section:
    """Every time without compute with what caused it, and which ranks wait for which others."""
    columns = (
        Column("cause"), Column("phase"), Column("limited by"), Column("busy", NUMBER), Column("time", NUMBER),
        Column("share of the step"),
    )  # fmt: skip
    rows = [_stall(stall, summary) for stall in summary.stalls]
    others = [*_waits(summary), *_classes(summary)] if isinstance(summary, Summary) else []
    body = [*long(columns, rows, "waits"), *others]
    return Section("stalls", "Why the GPU waits", joined(body))


def _stall(stall: Stall, summary: Answer) -> Row:
    label, used = because(stall, summary)
    cells = (
        cause_name(stall.cause), stall.phase if summary.phases else "", label, used.removesuffix(" busy"),
        show_seconds(stall.seconds), meter(stall.seconds / (summary.step_seconds or 1.0)),
    )  # fmt: skip
    return Row(cells, stall_kind(stall.cause))


def stall_kind(cause: str) -> str:
    """What the timeline shows for a cause of waiting; nothing where no op of its own is behind it."""
    return "" if cause in OWN_CAUSES else kind_of(cause)


def kind_of(cause: str) -> str:
    """What ops of a cause of waiting are called among the kinds that the timeline draws."""
    if cause == "host_compute":
        return "host"
    return cause if cause in INKS else "collective"


def _waits(summary: Summary) -> Iterator[Markup]:
    if not summary.waits:
        return
    columns = (
        Column("ranks"), Column("wait for"), Column("because of"), Column("collectives", NUMBER),
        Column("time", NUMBER), Column("exposed", NUMBER),
    )  # fmt: skip
    rows = []
    for wait in summary.waits:
        whom, label = sentences.awaited(wait)
        seconds = show_seconds(wait.seconds), show_seconds(wait.exposed_seconds)
        rows.append(Row((wait.waiting, whom, label, str(wait.collectives), *seconds)))
    yield element("p", "Ranks that are not equally fast wait for each other, in hidden communication too:")
    yield from long(columns, rows, "waits for other ranks")


def _classes(summary: Summary) -> Iterator[Markup]:
    if len(summary.classes) < 2:
        return
    columns = (
        Column("kind of ranks"), Column("ranks", NUMBER), Column("like rank", NUMBER), Column("program", NUMBER),
        Column("ends at", NUMBER), Column("waited for others", NUMBER),
    )  # fmt: skip
    rows = [
        Row((
            known.name, str(known.ranks), str(known.first_rank), str(known.program), show_seconds(known.end_seconds),
            show_seconds(known.waited_seconds),
        ))
        for known in summary.classes
    ]  # fmt: skip
    yield element("p", "Ranks that no measurement could tell apart are of one kind:")
    yield from long(columns, rows, "kinds of ranks")
