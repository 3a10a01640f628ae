"""XML as a plain tree with line numbers. What XML can do beyond elements and attributes is refused, not expanded.

Rule: no DOCTYPE, hence no entities: neither a text that grows a billion times nor one that reads other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from zerosim.errors import InputError, Problem

DEEPEST = 64


@dataclass
class Element:
    """`comments` are those of the whole document, at its root."""

    tag: str
    attributes: Mapping[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    def get(self, name: str) -> str:
        return self.attributes.get(name, "").strip()

    def all(self, *tags: str) -> list[Element]:
        """The children with one of these tags."""
        return [child for child in self.children if child.tag in tags]

    def walk(self) -> Iterator[Element]:
        """The element and all below it, in order."""
        yield self
        for child in self.children:
            yield from child.walk()


def read_xml(text: str, source: str) -> Element:
    """The root element."""
    builder = _Builder(source)
    try:
        builder.parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        found = f"a syntax error ({expat.ErrorString(error.code)})"
        raise InputError([Problem(source, "", found, "XML", "", error.lineno, error.offset + 1)]) from None
    return builder.root()


class _Builder:
    def __init__(self, source: str) -> None:
        self.source = source
        self.open: list[Element] = []
        self.done: list[Element] = []
        self.comments: list[str] = []
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CommentHandler = self.comments.append
        self.parser.StartDoctypeDeclHandler = self._doctype

    def root(self) -> Element:
        self.done[0].comments = self.comments
        return self.done[0]

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.open) >= DEEPEST:
            raise InputError([self._problem("elements nested too deep", f"at most {DEEPEST} levels")])
        element = Element(tag, attributes, self.parser.CurrentLineNumber)
        (self.open[-1].children if self.open else self.done).append(element)
        self.open.append(element)

    def _end(self, tag: str) -> None:
        self.open.pop()

    def _doctype(self, name: str, system: str | None, public: str | None, inner: bool) -> None:
        raise InputError([self._problem("a DOCTYPE", "plain elements, as NCCL writes: no DOCTYPE and no entities")])

    def _problem(self, found: str, expected: str) -> Problem:
        return Problem(self.source, "", found, expected, "", self.parser.CurrentLineNumber)


def whole_number(element: Element | None, name: str, otherwise: int) -> int:
    """The whole number that an attribute holds, in whatever way it is written."""
    said = element.get(name).lower() if element else ""
    try:
        return int(said, 16) if said.startswith("0x") else int(float(said))
    except (ValueError, OverflowError):
        return otherwise
