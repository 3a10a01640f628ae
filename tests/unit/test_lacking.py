"""A build machine skips no test in the browser."""

from pathlib import Path

import pytest

from tests.browser.lacking import lacking


def test_what_is_lacking_is_a_reason_here_and_an_error_on_a_build_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        lacking("no Chromium")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        lacking("no Chromium")


def test_the_build_says_that_it_is_one() -> None:
    run = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert run.index("export CI=${CI:-1}") < run.index("make test")
