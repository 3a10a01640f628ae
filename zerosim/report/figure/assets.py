"""The script and the style sheet of the drawing: files of this folder, joined to what a page can contain as they are.

The parts of the script share one scope and name each other without imports, in the order of `PARTS`; all they leave
behind is the global `zerosim`.
"""

from __future__ import annotations

from importlib.resources import files

PARTS = (
    "units.js",
    "columns.js",
    "figure.js",
    "marks.js",
    "inks.js",
    "told.js",
    "bare.js",
    "rows.js",
    "memory.js",
    "over.js",
    "panel.js",
    "filter.js",
    "looking.js",
    "controls.js",
    "pointer.js",
    "keys.js",
    "timeline.js",
)


def script() -> str:
    """One function that is called at once; in strict mode, without `eval`, for a strict Content-Security-Policy."""
    parts = "\n".join(_read(name) for name in PARTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


def style() -> str:
    """Rules for what is inside the element alone."""
    return _read("timeline.css")


def _read(name: str) -> str:
    return files("zerosim.report.figure").joinpath(name).read_text(encoding="utf-8")
