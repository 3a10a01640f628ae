"""What holds for all tests: properties are not timed, and on CI they try the same examples every time; what was
compared with recorded runs is a table in the summary."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

TABLE = "recorded run"  # the property under which a test hands in a row


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    rows = sorted(str(row) for report in reports for name, row in report.user_properties if name == TABLE)
    if rows:
        terminalreporter.write_sep("-", "recorded runs, collectives of a steady step")
        for row in rows:
            terminalreporter.write_line(row)
