"""What a machine lacks for the tests in a browser: a reason to skip them here, an error on a build machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skips the test; where CI is set, as .ci/run sets it, the test fails."""
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)
