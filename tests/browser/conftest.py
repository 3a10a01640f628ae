"""A real browser for the pages: the system's Chromium, driven by Playwright. No page may complain or ask the network.

Skipped with a reason where there is no Chromium; on a build machine (CI is set) that is an error.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.lacking import lacking

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"]
LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a file, as Playwright keeps an event loop of its own while it is open; each test gets a page."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        lacking("no Chromium on this machine (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 x 800. At the end of the test it must have logged no error and asked nothing of the network."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url) if not asked.url.startswith(LOCAL) else None)
    yield page
    context.close()
    assert complaints == []
