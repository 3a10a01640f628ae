"""The section about memory: each tier at its peak, of what, when."""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report import sentences
from zerosim.report.page.drawing import Piece, Row, bar, folded, swatch, table
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.page.section import NUMBER, SIGNS, Section
from zerosim.report.parts import memory_parts
from zerosim.report.tables import Column
from zerosim.report.words import counted, share
from zerosim.units import show_size
from zerosim.views.summary import Summary, TierUse


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
        where = "the optimizer" if at.phase == "optimizer" else f"micro-batch {at.micro_batch}"
        yield f" That is in {where}{layer}."


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
