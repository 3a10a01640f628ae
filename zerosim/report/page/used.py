"""Sections about what was used and moved, and what that costs."""

from __future__ import annotations

from zerosim.report import sentences
from zerosim.report.page.drawing import Row, listed, meter, table
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.page.section import NUMBER, Section, long
from zerosim.report.page.spent import kind_of
from zerosim.report.parts import cause_name, sharer_name
from zerosim.report.running import running
from zerosim.report.tables import Column
from zerosim.report.waits import times_as_long, winner
from zerosim.report.words import share
from zerosim.units import show_flops, show_power, show_seconds, show_size
from zerosim.views.summary import Summary


def resources(summary: Summary) -> Section:
    """How busy each resource was, busiest first."""
    columns = (Column("resource"), Column("busy"), Column("time", NUMBER), Column("amount", NUMBER))
    rows = [
        Row((use.label, meter(use.utilization), show_seconds(use.busy_seconds), amount(use.bytes_or_flop, use.unit)))
        for use in summary.resources.values()
    ]
    intro = "Busy: the time that its work alone would take, as a share of the step; sums over all that share it."
    body = [element("p", intro), *long(columns, rows, "resources")] if rows else []
    return Section("resources", "How busy the machine is", joined(body))


def amount(value: float, unit: str) -> str:
    """Bytes or FLOP."""
    return show_flops(value).removesuffix("/s") if unit == "FLOP" else show_size(value)


def collectives(summary: Summary) -> Section:
    """What one rank sends in a step, by kind."""
    columns = (Column("collective"), Column("count", NUMBER), Column("bytes", NUMBER))
    rows = [
        Row((cause_name(kind), str(volume.count), show_size(volume.bytes)), kind_of(kind))
        for kind, volume in summary.collectives.items()
    ]
    intro = "Of one rank in one step; bytes are the whole buffer, as in nccl-tests."
    body = [element("p", intro), table(columns, rows)] if rows else []
    return Section("collectives", "Collectives", joined(body))


def sharing(summary: Summary) -> Section:
    """Who lost time to whom on what; hidden losses too."""
    columns = (
        Column("lost by"), Column("on"), Column("lost to"), Column("lost", NUMBER), Column("times as long", NUMBER),
        Column("ops", NUMBER), Column("alone", NUMBER),
    )  # fmt: skip
    rows = [
        Row((
            sharer_name(loss.loser), loss.label, winner(loss).removeprefix("to "), show_seconds(loss.seconds),
            times_as_long(loss, "{:.2f}").removeprefix(", "), str(loss.ops), show_seconds(loss.alone_seconds),
        ))
        for loss in summary.contention
    ]  # fmt: skip
    intro = "Seconds summed over ops, also where they are hidden: they are no part of the step."
    body = [element("p", intro), *long(columns, rows, "losses")] if rows else []
    return Section("sharing", "Lost by sharing", joined(body))


def stages(summary: Summary) -> Section:
    """The bubble of a pipeline, stage by stage."""
    known = summary.pipeline
    if known is None:
        return Section("pipeline", "Pipeline", Markup())
    columns = (
        Column("stage"), Column("like rank", NUMBER), Column("compute", NUMBER), Column("bubble", NUMBER),
        Column("bubble, share of the step", NUMBER),
    )  # fmt: skip
    rows = [
        Row((
            stage.name, str(stage.first_rank), show_seconds(stage.compute_seconds), show_seconds(stage.bubble_seconds),
            share(stage.bubble_seconds, summary.step_seconds),
        ))
        for stage in known.by_stage
    ]  # fmt: skip
    said = element("p", ", ".join(sentences.pipeline(summary)), ".")
    return Section("pipeline", "Pipeline", joined([said, *long(columns, rows, "stages")]))


def bill(summary: Summary) -> Section:
    """What the step costs and draws, where that is known."""
    lines = list(running(summary))
    if summary.cost:
        lines.append(f"{summary.cost.per_step:.4g} {summary.cost.currency} per step")
    if summary.energy:
        joules = summary.energy.joules_per_step
        lines.append(f"{show_power(joules).removesuffix('W')}J per step")
    return Section("cost", "Cost and energy", listed(lines) if lines else Markup())
