"""HTML elements from values. Rule: a plain `str` is text and is escaped; only `Markup` stands as it is.

So a forgotten escape cannot happen: whoever wants markup has to say so. Nothing here knows what a page is about.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

from zerosim.report.marks import FORBIDDEN

VOID = frozenset({"meta", "br", "hr", "rect", "path", "line"})  # without content; of SVG those that are used here
BLOCKS = frozenset({"section", "table", "tr", "thead", "tbody", "li", "ul", "ol", "dl", "div", "p", "details", "svg",
                    "h1", "h2", "h3", "h4", "header", "main", "nav", "footer", "pre", "figure"})  # fmt: skip


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> str:
    """Content of an element or an attribute, without the characters that no document may have."""
    return html.escape(FORBIDDEN.sub("\ufffd", text))


def element(name: str, *content: str, **attributes: str | bool | None) -> Markup:
    """`<name ...>content</name>`; `class_` is the attribute class, `data_x` is data-x; True has no value, False and
    None leave the attribute out. Blocks end in a line end, so that pages can be compared line by line."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    end = "\n" if name in BLOCKS else ""
    if name in VOID:
        return Markup(f"<{name}{written}>" if name in {"meta", "br", "hr"} else f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(content)}</{name}>{end}")


def joined(content: Iterable[str]) -> Markup:
    """One after the other."""
    return Markup("".join(part if isinstance(part, Markup) else escaped(part) for part in content))


def embedded(value: Any) -> Markup:
    """JSON for a `script` element: no `<` that could end it, and none of the line ends that only JSON allows."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'
