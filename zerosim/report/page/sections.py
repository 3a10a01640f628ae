"""What a summary says, section by section: the words of the screen (`report.text`) as tables and bars.

Rule: everything that the summary holds is told, long lists folded; a section without anything to tell is left out. No
number is computed but shares. Functions of the Summary alone, so that the playground shows the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zerosim.errors import Finding
from zerosim.report import sentences
from zerosim.report.calibration import measured
from zerosim.report.page.drawing import Piece, Row, bar, folded, inks, listed, meter, swatch, table
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.palette import INKS, SPENT
from zerosim.report.parts import OWN_CAUSES, cause_name, memory_parts, sharer_name, time_parts
from zerosim.report.running import running
from zerosim.report.tables import Align, Column
from zerosim.report.waits import because, times_as_long, winner
from zerosim.report.words import counted, share
from zerosim.units import show_count, show_flops, show_power, show_seconds, show_share, show_size
from zerosim.views.recorded import Answer
from zerosim.views.stalls import Stall
from zerosim.views.summary import Summary, TierUse

MOST = 12  # rows of a table that stand open; the others are folded
TOP = 2  # level of the headings of a page's sections
SIGNS = {"error": "✖", "warning": "▲", "note": "ℹ"}  # beside the word: no finding is told by its colour alone
NUMBER: Align = "right"
BARE = {
    "exposed_communication": "exposed",
    "exposed_transfer": "copying",
    "host_compute": "computing",
}  # in the timeline


class Section(NamedTuple):
    """A part of a page: its anchor, its title, what stands there."""

    name: str
    title: str
    body: Markup
    short: str = ""  # for the contents of a page, where the title is long


def sections(summary: Summary, level: int = TOP) -> str:
    """Headline, findings, time, waits and memory as one fragment, with the inks that its bars need."""
    chosen = (headline, findings, time, stalls, memory)
    return joined([inks(), *shown((part(summary) for part in chosen), level)])


def told(summary: Summary) -> Iterator[Section]:
    """Everything after the headline, as far as there is something to tell; the timeline has its place after the
    findings."""
    parts = (findings, time, stalls, memory, resources, collectives, sharing, stages, bill, calibration)
    yield from (section for section in (part(summary) for part in parts) if section.body)


def shown(parts: Iterable[Section], level: int = TOP, prefix: str = "") -> Iterator[Markup]:
    """The sections as elements, each under its heading and at its anchor."""
    for part in parts:
        if part.body:
            name = f"{prefix}{part.name}"
            title = element(f"h{level}", part.title, id=f"{name}-title")
            yield element("section", title, part.body, id=name, class_=part.name, aria_labelledby=f"{name}-title")


# --- how long, and where the time went -------------------------------------------------------------------------------


def headline(summary: Summary) -> Section:
    """The numbers that are asked for first."""
    return Section("headline", "The step", joined([*verdict(summary), numbers(summary)]))


def verdict(summary: Summary) -> Iterator[Markup]:
    """A line where the step cannot be run, or maybe not."""
    said = sentences.verdict(summary)
    if said:
        yield element("p", f"{SIGNS['error']} {said}", class_="verdict")


def numbers(summary: Summary) -> Markup:
    """A number and its name, in a row."""
    exposed = summary.breakdown.exposed_communication
    known = [
        ("step time", show_seconds(summary.step_seconds)),
        ("tokens/s", show_count(summary.tokens_per_second)),
        ("tokens/s/GPU", show_count(summary.tokens_per_second_per_gpu)),
        ("samples/s", show_count(summary.samples_per_second)),
        ("per GPU", show_flops(1e12 * summary.model_tflops_per_gpu)),
        ("MFU", show_share(summary.mfu)),
        ("exposed communication", share(exposed, summary.step_seconds)),
        ("fits in memory", "yes" if summary.fits else "NO"),
        ("GPUs", str(summary.world_size)),
        ("nodes", str(summary.nodes)),
    ]
    return cards(known)


def cards(known: Sequence[tuple[str, str]]) -> Markup:
    """Names and what is said of each."""
    items = (element("div", element("dt", name), element("dd", said)) for name, said in known)
    return element("dl", *items, class_="numbers")


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
    shades = ("even", "odd")
    pieces = [
        Piece(shades[index % 2], "", phase, seconds, share(seconds, step))
        for index, (phase, seconds) in enumerate(summary.phases.items())
    ]
    told = ", ".join(f"{piece.word} {piece.said}" for piece in pieces)
    rows = [Row((phase, show_seconds(seconds), share(seconds, step))) for phase, seconds in summary.phases.items()]
    yield bar(pieces, step, f"Phases: {told}")
    yield table((Column("phase"), Column("time", NUMBER), Column("share of the step", NUMBER)), rows)


# --- why the GPU waits -----------------------------------------------------------------------------------------------


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


# --- memory ----------------------------------------------------------------------------------------------------------


def memory(summary: Summary) -> Section:
    """Each tier at its peak: how full, of what, when."""
    return Section("memory", "Memory at its peak", joined(
        element("div", *_tier(name, tier), class_="tier") for name, tier in summary.memory.items()
    ))  # fmt: skip


def _tier(name: str, tier: TierUse) -> Iterator[Markup]:
    where = f"{name} {'per GPU' if name == 'gpu' else 'per node'}"
    over = tier.peak_bytes > tier.capacity_bytes
    full = f"{SIGNS['error']} {sentences.fill(tier)}" if over else sentences.fill(tier)
    yield element("p", element("strong", where), " ", element("span", full, class_="over" if over else None))
    yield memory_bar(name, tier, max(tier.capacity_bytes, tier.peak_bytes))
    parts = [part for part in memory_parts(tier) if part.amount]
    columns = (Column("held at the peak"), Column("size", NUMBER), Column("share of the peak", NUMBER))
    rows = [
        Row((
            joined([swatch(part.word, part.letter), f" {part.word}"]), show_size(part.amount),
            share(part.amount, tier.peak_bytes),
        ))
        for part in parts
    ]  # fmt: skip
    at = tier.peak_at
    rows.append(Row(("peak", show_size(tier.peak_bytes), ""), at=at.seconds if at.op else None))
    about = element("p", _capital(sentences.moment(tier)), ".", *_placed(tier), *_besides(tier))
    yield element("div", element("div", table(columns, rows)), element("div", about, *_held(tier)), class_="beside")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def memory_bar(name: str, tier: TierUse, whole: float) -> Markup:
    """What a tier holds at its peak, as a part of `whole` bytes."""
    pieces = [
        Piece(part.word, part.letter, part.word, part.amount, show_size(part.amount)) for part in memory_parts(tier)
    ]
    told = ", ".join(f"{piece.word} {piece.said}" for piece in pieces if piece.amount)
    label = f"{name}: {sentences.fill(tier)}" + (f": {told}" if told else "")
    return bar(pieces, whole, label, limit=tier.capacity_bytes)


def _placed(tier: TierUse) -> Iterator[str]:
    """Where in the program the op of the peak is."""
    at = tier.peak_at
    if at.op:
        layer = "" if at.layer is None else f", layer {at.layer}"
        yield f" That is in micro-batch {at.micro_batch}{layer}."


def _besides(tier: TierUse) -> Iterator[str]:
    yield f" Of what could not be reused yet the peak was {show_size(tier.busy_bytes)}."
    if tier.allocator_flushes:
        yield f" The allocator gave its cache back {counted(tier.allocator_flushes, 'time')}."


def _held(tier: TierUse) -> Iterator[Markup]:
    if not tier.held:
        return
    columns = [Column("buffers"), Column("part"), Column("count", NUMBER), Column("size", NUMBER)]
    rounded = any(each.rounding_bytes for each in tier.held)
    rows = [
        Row((each.name, each.category, str(each.count), show_size(each.bytes),
             *([show_size(each.rounding_bytes)] if rounded else [])))
        for each in tier.held
    ]  # fmt: skip
    columns += [Column("of it rounding", NUMBER)] if rounded else []
    yield folded(f"The largest {counted(len(rows), 'kind')} of buffers at the peak", table(columns, rows))


# --- what was used and moved -----------------------------------------------------------------------------------------


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


# --- what is behind the answer ---------------------------------------------------------------------------------------


def findings(summary: Answer) -> Section:
    """What one should know, errors first; notes that say that a key has no effect are folded together."""
    keys = [each for each in summary.findings if each.code == "key-no-effect"]
    idle = keys if len(keys) > 1 else []
    items = [finding(each) for each in summary.findings if each not in idle]
    body: list[Markup] = [element("ul", *items, class_="findings")] if items else []
    if idle:
        said = f"{len(idle)} keys change nothing in a step"
        body.append(folded(said, element("ul", *map(finding, idle), class_="findings")))
    return Section("findings", "Findings", joined(body))


def finding(known: Finding) -> Markup:
    """A sign, the severity as a word, what is the matter and what to do."""
    label = element("strong", f"{SIGNS[known.severity]} {known.severity}", class_="severity")
    remedy = [element("span", f" {known.remedy}", class_="remedy")] if known.remedy else []
    return element("li", label, element("span", " ", known.message, *remedy), class_=known.severity, title=known.code)


def calibration(summary: Summary) -> Section:
    """Measured numbers, and what became of them."""
    lines = list(measured(summary.calibration))
    return Section("calibration", "Measured numbers", listed(lines) if lines else Markup())


def assumptions(summary: Answer) -> Section:
    """Every one, of a played or a measured step."""
    lines = dict.fromkeys(summary.assumptions)
    return Section("assumptions", "Assumptions", listed(lines) if lines else Markup())


def long(columns: Sequence[Column], rows: Sequence[Row], what: str) -> Iterator[Markup]:
    """The first rows, and the others when asked for: several, or there is no need to fold them."""
    if not rows:
        return
    most = MOST if len(rows) > MOST + 2 else len(rows)
    yield table(columns, rows[:most])
    if rows[most:]:
        yield folded(f"{len(rows) - most} more {what}", table(columns, rows[most:]))
