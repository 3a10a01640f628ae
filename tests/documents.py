"""Reading a page as strictly as no browser does: elements closed where they were opened, names once, no dead links."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

VOID = frozenset({"meta", "br", "hr", "link", "img", "input"})
HEADING = re.compile(r"h[1-6]")


@dataclass
class Document(HTMLParser):
    """A page that was read. `text` is what a reader sees, without scripts and styles; blanks are one blank."""

    source: str
    open: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    raw: dict[str, list[str]] = field(default_factory=dict)  # content of scripts and styles
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        assert self.open == [], self.open
        assert len(set(self.ids)) == len(self.ids)
        assert self._targets() <= set(self.ids)
        self._check_headings()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        self.elements.append((tag, dict(attrs)))
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if HEADING.fullmatch(tag):
            self.headings.append((int(tag[1]), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> too many"
        assert self.open.pop() == tag
        self.words.append(" ")

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside in {"script", "style"}:
            self.raw.setdefault(inside, []).append(data)
            return
        self.words.append(data)
        if HEADING.fullmatch(inside):
            level, said = self.headings[-1]
            self.headings[-1] = level, said + data

    @property
    def text(self) -> str:
        """What is read."""
        return " ".join("".join(self.words).split())

    def count(self, tag: str) -> int:
        """How many such elements."""
        return sum(name == tag for name, _ in self.elements)

    def attributes(self, name: str) -> list[str]:
        """The values of an attribute, wherever it stands."""
        return [known[name] or "" for _, known in self.elements if name in known]

    def _targets(self) -> set[str]:
        links = [each for each in self.attributes("href") if each.startswith("#")]
        return {each[1:] for each in links} | set(self.attributes("aria-labelledby"))

    def _check_headings(self) -> None:
        """The first is the only one of its level, and none is more than a level below the one before."""
        levels = [level for level, _ in self.headings]
        assert all(below <= above + 1 for above, below in pairwise(levels)), self.headings
