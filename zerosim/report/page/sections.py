"""What a summary says, section by section: the words of the screen (`report.text`) as tables and bars.

Rule: everything that the summary holds is told, long lists folded; a section without anything to tell is left out. No
number is computed but shares. Functions of the Summary alone: the playground shows the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.errors import Finding
from zerosim.report import sentences
from zerosim.report.calibration import measured
from zerosim.report.page.drawing import folded, listed
from zerosim.report.page.held import memory
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.page.section import SIGNS, Section, cards, shown
from zerosim.report.page.spent import stalls, time
from zerosim.report.page.used import bill, collectives, resources, sharing, stages
from zerosim.report.words import share
from zerosim.units import show_count, show_flops, show_seconds, show_share
from zerosim.views.recorded import Answer
from zerosim.views.summary import Summary

__all__ = ["assumptions", "finding", "findings", "headline", "shown", "told"]


def told(summary: Summary) -> Iterator[Section]:
    """Everything after the headline, as far as there is something to tell; the timeline has its place after the
    findings."""
    parts = (findings, time, stalls, memory, resources, collectives, sharing, stages, bill, calibration)
    yield from (section for section in (part(summary) for part in parts) if section.body)


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
