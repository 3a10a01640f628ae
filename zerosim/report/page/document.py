"""The whole document: head, contents, sections in the order of questions, the data of the timeline, the script.

Rule: the policy in its head names the hashes of its one style and its one script, so that nothing else can run,
whatever a title holds. A document stays below `LIMIT`; what had to be left out for that is said where it would be.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files

from zerosim.report import figure as drawn
from zerosim.report.comparison import title as named
from zerosim.report.page import comparing, recorded
from zerosim.report.page.drawing import Row, folded, inks, listed, table
from zerosim.report.page.fitting import Fitted, fitted
from zerosim.report.page.glossary import explained, known, words
from zerosim.report.page.markup import Markup, element, embedded, joined
from zerosim.report.page.section import TOP, Section, shown
from zerosim.report.page.sections import assumptions, headline, told
from zerosim.report.page.settings import flat
from zerosim.report.page.shown import Origin, Said, Shown
from zerosim.report.tables import Column
from zerosim.views.summary import Summary

LIMIT = 2_000_000  # bytes of a document
FIGURES = "figures"  # id of the data
WITHOUT_SCRIPT = "The timeline needs JavaScript; every number of the report stands in the tables."


def render(answers: Sequence[Shown], origin: Origin = Origin(), more: Sequence[Said] = ()) -> str:  # noqa: B008  # a frozen value
    """The document of one answer, or of several side by side, the baseline first, ending in a line end; `more` was
    answered beside them."""
    if not answers:
        raise ValueError("a page of nothing")
    parts = _of_one(answers[0]) if len(answers) == 1 else _of_several(answers)
    parts += [*_more(more), words(answers), *_again(origin)]
    without = _document(answers, parts, Fitted(()))
    return _document(answers, parts, fitted(answers, LIMIT - len(without.encode())))


def style() -> str:
    """The rules of a page, those of its timeline among them."""
    return drawn.style() + _asset("page.css")


def _of_one(answer: Shown) -> list[Section]:
    first, *others = _parts(answer)
    ahead = [each for each in others if each.name == "findings"]
    return [first, *ahead, _TIMELINE, *(each for each in others if each not in ahead)]


def _parts(answer: Shown) -> list[Section]:
    """All of one, but its timeline."""
    summary = answer.summary
    if isinstance(summary, Summary):
        return [headline(summary), *told(summary), *_origins(answer)]
    return [recorded.headline(summary), *recorded.told(summary), *_origins(answer)]


def _of_several(answers: Sequence[Shown]) -> list[Section]:
    parts = [*comparing.before(answers), _TIMELINE, *comparing.after(answers)]
    for letter, answer in zip(comparing.letters(answers), answers, strict=True):
        name = comparing.anchor(letter)
        own = [explained(part, known(answers)) for part in _parts(answer)]
        body = joined(shown(own, TOP + 1, f"{name}-"))
        title = f"{letter}  {named(answer.summary)}"
        parts.append(Section(name, title, folded("Everything about it", body), f"All of {letter}"))
    return parts


_TIMELINE = Section("timeline", "Timeline", Markup())  # filled when it is known what there is room for


def _document(answers: Sequence[Shown], parts: Sequence[Section], figures: Fitted) -> str:
    said = known(answers)
    whole = [explained(_timeline(figures) if part is _TIMELINE else part, said) for part in parts]
    title = " | ".join(named(answer.summary) for answer in answers)
    several = len(answers) > 1
    name = f"{len(answers)} steps compared" if several else title
    about = "the first is the baseline" if several else comparing.about(answers[0].summary)
    content = [
        element("a", "To the content", href="#content", class_="skip"),
        element("header", element("h1", name), element("p", about), class_="top"),
        _contents([part for part in whole if part.body]),
        inks(),
        element("main", *shown(whole), id="content"),
        element("script", embedded(figures.figures), type="application/json", id=FIGURES),
        "\n",
    ]
    script = Markup(drawn.script() + _asset("page.js"))
    body = element("body", *content, element("script", script))
    return f'<!DOCTYPE html>\n<html lang="en">\n{_head(title, script)}\n{body}\n</html>\n'


def _head(title: str, script: str) -> Markup:
    rules = Markup(style())
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(rules)}'; script-src '{_hash(script)}'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        element("meta", name_="viewport", content_="width=device-width, initial-scale=1"),
        element("title", f"{title} - zerosim"),
        element("style", rules),
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _contents(parts: Sequence[Section]) -> Markup:
    links = (element("li", element("a", part.short or part.title, href=f"#{part.name}")) for part in parts)
    return element("nav", element("ul", *links), aria_label="Contents")


def _timeline(figures: Fitted) -> Section:
    """Where the script draws, in the place of a sentence, and what was left out."""
    lost = [element("p", f"▲ {line}", class_="left-out") for line in figures.left_out]
    place = element("div", element("p", WITHOUT_SCRIPT), id="view", class_="view") if figures.figures else Markup()
    return Section("timeline", "Timeline", joined([*lost, place]))


def _origins(answer: Shown) -> Iterator[Section]:
    """What to ask next, the scenario as it was read and as it was given, and what was assumed."""
    yield Section("further", "What would change it", joined(_further(answer)))
    if isinstance(answer.summary, Summary):
        yield Section("scenario", "The scenario", joined(_scenario(answer)))
    yield assumptions(answer.summary)


def _further(answer: Shown) -> Iterator[Markup]:
    for said in answer.further:
        yield element("p", said.title)
        yield element("pre", said.text)


def _scenario(answer: Shown) -> Iterator[Markup]:
    if answer.machine:
        yield element("p", "The machine:")
        yield element("pre", "\n".join(answer.machine))
    if answer.changes:
        yield element("p", "Changed in it:")
        yield listed(answer.changes, class_="changes")
    yield from (folded(f"As it was given: {said.title}", element("pre", said.text)) for said in answer.given)
    rows = [Row((path, value)) for path, value in flat(answer.settings)] if answer.settings else []
    if rows:
        yield folded(f"As it was read: {len(rows)} settings", table((Column("setting"), Column("value")), rows))


def _more(said: Sequence[Said]) -> Iterator[Section]:
    for index, each in enumerate(said):
        yield Section(f"more-{index}", each.title, element("pre", each.text.strip("\n")))


def _again(origin: Origin) -> Iterator[Section]:
    lines = [element("p", "This page is made again by"), element("pre", origin.command)] if origin.command else []
    lines += [element("p", f"Version of zerosim: {origin.version}")] if origin.version else []
    if lines:
        yield Section("again", "How to make it again", joined(lines))


def _asset(name: str) -> str:
    return files("zerosim.report.page").joinpath(name).read_text(encoding="utf-8")
