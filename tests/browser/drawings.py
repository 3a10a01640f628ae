"""A page with nothing but the drawing in it, and where things are on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from zerosim.report.figure import script, style

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def shown(page: Page, folder: Path, *figures: dict[str, Any], theme: str = "") -> None:
    """A strict page with nothing but the drawing in it."""
    data = json.dumps(figures, separators=(",", ":")).replace("<", "\\u003c")
    page_of = (
        f'<!doctype html><html lang="en"{theme}><meta charset="utf-8"><title>timeline</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>body{{margin:0}}\n{style()}</style>'
        f'<div id="here"></div><script>{script()}</script>'
        f"<script>window.view = zerosim.timeline(document.getElementById('here'), {data})</script></html>"
    )
    (folder / "page.html").write_text(page_of, encoding="utf-8")
    page.goto((folder / "page.html").as_uri())


def state(page: Page) -> dict[str, Any]:
    """After the frame that is asked for has been drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found: dict[str, Any] = page.evaluate("({...view.state(), drawn: view.drawn})")
    return found


def place(page: Page, title: str, moment: float, panel: int = 0) -> tuple[float, float]:
    """Where a moment of a row is on the screen."""
    x, y = page.evaluate(
        """([title, moment, number]) => {
          const panel = view.panels[number];
          const row = panel.rows.find((each) => each.title === title);
          const box = panel.over.getBoundingClientRect();
          return [box.left + panel.scale().x(moment), box.top + row.top + row.height * 0.7];
        }""",
        [title, moment, panel],
    )
    return x, y


def told(page: Page, title: str, moment: float, panel: int = 0) -> list[str]:
    """The lines of the tooltip there."""
    page.mouse.move(*place(page, title, moment, panel))
    return page.inner_text(".zerosim-tip").split("\n") if page.is_visible(".zerosim-tip") else []
