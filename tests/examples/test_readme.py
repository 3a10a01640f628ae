"""The README shows what the commands print, letter for letter, and its picture is the one its command draws.

A line of three dots stands for lines that are left out.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from zerosim.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```sh\n(zerosim [^\n]*)\n```\n\n```\n(.*?)```", README, re.DOTALL)


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def printed(command: str) -> str:
    result = CliRunner().invoke(main, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_there_are_commands_with_outputs() -> None:
    assert len(SHOWN) >= 2


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_outputs_are_as_printed(command: str, output: str) -> None:
    said = printed(command).rstrip()
    if "\n...\n" in output:
        assert re.fullmatch(r"(?:\n.*)*?".join(map(re.escape, output.rstrip().split("\n..."))), said), said
    else:
        assert said == output.rstrip()


def test_the_picture_is_what_its_command_draws(tmp_path: Path) -> None:
    found = re.search(r"`(zerosim run [^`]*) --svg ([^`]*)`", README)
    assert found
    command, name = found.groups()
    printed(f"{command} --svg {tmp_path / 'picture.svg'}")
    assert (tmp_path / "picture.svg").read_bytes() == (ROOT / name).read_bytes()


def test_the_program_that_draws_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, since it writes."""
    (program,) = [each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "plot.save" in each]
    monkeypatch.chdir(tmp_path)
    exec(program.replace('"scenarios/', f'"{ROOT}/scenarios/'), {})
    assert (tmp_path / "timeline.pdf").read_bytes().startswith(b"%PDF")


def test_two_nodes_are_as_much_slower_as_it_says() -> None:
    import zerosim

    one, two = (
        zerosim.simulate(zerosim.load(f"scenarios/seven-b/{name}.yaml")).summary()
        for name in ("zero3", "zero3-two-nodes-10g")
    )
    said = re.search(r"the ZeRO-3 step is (\d+) times as long", README)
    assert said
    assert int(said[1]) == round(two.step_seconds / one.step_seconds)
