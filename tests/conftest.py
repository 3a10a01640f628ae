"""What holds for all tests: properties are not timed, and on CI they try the same examples every time; what was
compared with recorded runs is a table in the summary. Files that take minutes come first, and what was imported is no
garbage."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

TABLE = "recorded run"  # the property under which a test hands in a row

FIRST = (
    "papers/test_training.py",
    "examples/test_readme.py",
    "notebooks/test_lessons.py",
)  # so that no worker is at one when the others are done
GARBAGE = 100_000  # objects that are made before garbage is looked for; Python's own is 700


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.split("::")[0].endswith(FIRST))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # ten thousand tests and all modules: never looked at again
    gc.set_threshold(GARBAGE, 10, 10)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    rows = sorted(str(row) for report in reports for name, row in report.user_properties if name == TABLE)
    if rows:
        terminalreporter.write_sep("-", "recorded runs, collectives of a steady step")
        for row in rows:
            terminalreporter.write_line(row)
