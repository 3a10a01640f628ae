"""Several answers on one page: the numbers side by side, the baseline first, as `compare` prints them.

Rule: what is laid side by side has one scale; each answer has a letter, and its own sections follow under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerosim.report import comparison, sentences
from zerosim.report.page import recorded
from zerosim.report.page.drawing import Row, folded, swatch, table
from zerosim.report.page.held import memory_bar
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.page.section import NUMBER, SIGNS, Section, long
from zerosim.report.page.sections import findings
from zerosim.report.page.settings import parted
from zerosim.report.page.shown import Shown
from zerosim.report.page.spent import stall_kind, time_bar, time_legend
from zerosim.report.parts import cause_name, memory_parts
from zerosim.report.tables import Column
from zerosim.report.waits import because
from zerosim.report.words import counted, share
from zerosim.units import show_seconds, show_size
from zerosim.views.recorded import Answer
from zerosim.views.summary import Summary, TierUse

ABSENT = "-"


def letters(shown: Sequence[Shown]) -> list[str]:
    """A, B, C."""
    return [comparison.letter(index) for index in range(len(shown))]


def before(shown: Sequence[Shown]) -> Iterator[Section]:
    """What stands above the timelines."""
    summaries = [each.summary for each in shown]
    yield Section("differences", "What is compared, and what differs", joined([*_titles(shown), *_differences(shown)]),
                  "What differs")  # fmt: skip
    yield Section("side-by-side", "Side by side", _numbers(summaries))
    yield Section("findings", "Findings", joined(_findings(shown)))


def after(shown: Sequence[Shown]) -> Iterator[Section]:
    """What stands below them."""
    yield Section("time", "Where the time goes", joined(_times(shown)))
    yield Section("stalls", "Why the GPU waits", joined(_stalls([each.summary for each in shown])))
    yield Section("memory", "Memory at its peak", joined(_memory(shown)))


def _titles(shown: Sequence[Shown]) -> Iterator[Markup]:
    items: list[Markup] = []
    for letter, each in zip(letters(shown), shown, strict=True):
        said = sentences.verdict(each.summary) if isinstance(each.summary, Summary) else ""
        bad = [element("span", f" {SIGNS['error']} {said}", class_="over")] if said else []
        baseline = "" if items else " (baseline)"
        name = element("a", f"{letter}  {comparison.title(each.summary)}", href=f"#{anchor(letter)}")
        items.append(element("li", name, f"{baseline}: {about(each.summary)}", *bad))
    yield element("ul", *items, class_="titles")


def about(summary: Answer) -> str:
    """What it ran on."""
    return sentences.machine(summary) if isinstance(summary, Summary) else recorded.machine(summary)


def anchor(letter: str) -> str:
    """Where the sections of an answer begin."""
    return f"answer-{letter.lower()}"


def _numbers(summaries: Sequence[Answer]) -> Markup:
    names = [comparison.letter(index) for index in range(len(summaries))]
    columns = [Column("quantity"), Column(names[0], NUMBER)]
    for name in names[1:]:
        columns += [Column(name, NUMBER), Column(f"{name}/{names[0]}", NUMBER)]
    return table(columns, [Row(row) for row in comparison.rows(summaries)])


def _differences(shown: Sequence[Shown]) -> Iterator[Markup]:
    if not all(each.settings for each in shown):  # a measured step has none
        return
    found = parted([each.settings for each in shown], [_written(each) for each in shown])
    names = letters(shown)
    columns = [Column("setting"), *map(Column, names)]
    if found.differing:
        yield table(columns, [Row((path, *values)) for path, values in found.differing])
    elif not found.own:
        alike = len({comparison.title(each.summary) for each in shown}) == 1
        yield element("p", "Nothing differs." if alike else "Nothing differs but their titles.")
    for having, rows in found.own.items():
        who = " and ".join(names[index] for index in having) + (" has" if len(having) == 1 else " have")
        beside = "and " if found.differing else ""
        told = f"{beside}{counted(len(rows), 'setting')} that only {who}"
        yield folded(told, table(columns, [Row((path, *values)) for path, values in rows]))


def _written(answer: Shown) -> str:
    return "\n".join([*(said.text for said in answer.given), *answer.changes])


def _findings(shown: Sequence[Shown]) -> Iterator[Markup]:
    for letter, each in zip(letters(shown), shown, strict=True):
        body = findings(each.summary).body
        if body:
            yield element("h3", f"{letter}  {comparison.title(each.summary)}")
            yield body


def _times(shown: Sequence[Shown]) -> Iterator[Markup]:
    longest = max(each.summary.step_seconds for each in shown)
    yield element("p", "On one scale: a bar is as long as its step.")
    for letter, each in zip(letters(shown), shown, strict=True):
        step = show_seconds(each.summary.step_seconds)
        yield element("p", element("strong", letter), f"  {comparison.title(each.summary)}, {step}", class_="label")
        yield time_bar(each.summary, longest)
    yield time_legend(shown[0].summary)


def _stalls(summaries: Sequence[Answer]) -> Iterator[Markup]:
    """A row for each cause, phase and resource of any of them, the longest first."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for index, summary in enumerate(summaries):
        for stall in summary.stalls:
            phase = stall.phase if summary.phases else ""
            seconds = found.setdefault((stall.cause, phase, because(stall, summary)[0]), {})
            seconds[index] = seconds.get(index, 0.0) + stall.seconds
    if not found:
        return
    names = [comparison.letter(index) for index in range(len(summaries))]
    columns = [Column("cause"), Column("phase"), Column("limited by"), *(Column(name, NUMBER) for name in names)]
    ordered = sorted(found.items(), key=lambda item: (-max(item[1].values()), item[0]))
    rows = [
        Row(
            (cause_name(cause), phase, label, *(_seconds(seconds.get(i), each) for i, each in enumerate(summaries))),
            stall_kind(cause),
        )
        for (cause, phase, label), seconds in ordered
    ]
    yield from long(columns, rows, "waits")


def _seconds(seconds: float | None, summary: Answer) -> str:
    return ABSENT if seconds is None else f"{show_seconds(seconds)}, {share(seconds, summary.step_seconds)}"


def _memory(shown: Sequence[Shown]) -> Iterator[Markup]:
    tiers = [each.summary.memory if isinstance(each.summary, Summary) else {} for each in shown]
    for tier in dict.fromkeys(name for known in tiers for name in known):
        uses = [known.get(tier) for known in tiers]
        whole = max(max(use.peak_bytes, use.capacity_bytes) for use in uses if use)
        yield element("h3", f"{tier} {'per GPU' if tier == 'gpu' else 'per node'}")
        for letter, use in zip(letters(shown), uses, strict=True):
            if use:
                full = sentences.fill(use)
                yield element("p", element("strong", letter), f"  {full}", class_="label")
                yield memory_bar(f"{letter}, {tier}", use, whole)
        yield _parts(letters(shown), uses)


def _parts(names: Sequence[str], uses: Sequence[TierUse | None]) -> Markup:
    known = [None if use is None else {part.word: part for part in memory_parts(use)} for use in uses]
    held = {word: part.letter for parts in known if parts for word, part in parts.items() if part.amount}
    rows = [
        Row((
            joined([swatch(word, letter), word]),
            *(ABSENT if parts is None else show_size(parts[word].amount) for parts in known),
        ))
        for word, letter in held.items()
    ]  # fmt: skip
    rows.append(Row(("peak", *(ABSENT if use is None else show_size(use.peak_bytes) for use in uses))))
    rows.append(Row(("capacity", *(ABSENT if use is None else show_size(use.capacity_bytes) for use in uses))))
    return table([Column("held at the peak"), *(Column(letter, NUMBER) for letter in names)], rows)
