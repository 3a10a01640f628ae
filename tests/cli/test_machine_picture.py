"""`topology show --svg`, with and without a run, as a user asks for it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.asking import SMALL, ask


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_a_machine_is_told_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "dgx.svg"
    answer = ask("topology", "show", "dgx-v100-16", "--svg", file)
    assert answer.code == 0
    assert answer.out == ask("topology", "show", "dgx-v100-16").out
    assert answer.err == f"picture written to {file}\n"
    assert ET.parse(file).getroot().tag.endswith("svg")


def test_a_run_is_drawn_on_its_own_machine(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "hot.svg"
    answer = ask("topology", "show", "--run", small, "--set", "nodes=2", "--svg", file)
    assert answer.code == 0
    assert answer.out.startswith("dgx-a100-80: 2 nodes, 16 ranks")
    assert "one step of small" in file.read_text()
    assert ask("topology", "show", "dgx-a100-80", "--run", small, "--set", "nodes=2", "--svg", file).code == 0


def test_json_stands_alone_on_standard_output(tmp_path: Path) -> None:
    answer = ask("topology", "show", "gh200", "--json", "--svg", tmp_path / "gh200.svg")
    assert answer.out == ask("topology", "show", "gh200", "--json").out


def test_so_many_nodes_are_told_and_drawn_without_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "racks.svg"
    answer = ask("topology", "show", "gb200-nvl72", "--nodes", "36", "--svg", file)
    assert answer.out.startswith("gb200-nvl72: 36 nodes, 144 ranks")
    assert "2 NVSwitches, 18 nodes on each" in file.read_text()
    (kind,) = json.loads(ask("topology", "show", "dgx-a100-80", "--nodes", "3", "--json").out)["nodes"]
    assert kind["hosts"] == [0, 1, 2]
    (line,) = ask("topology", "show", "pcie-1x-rtx4090", "--nodes", "2").refused()
    assert line == "pcie-1x-rtx4090: nodes: found 2; expected 1 node, as these have no NICs"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["dgx-a100-80", "--svg", "machine.png"], '"machine.png"; expected a name that ends in .svg'),
        (["dgx-a100-80", "--svg", "machine"], '"machine"; expected a name that ends in .svg'),
        (["dgx-a100-80", "--svg", "machine.svg.yaml"], "expected a name that ends in .svg"),
        ([], "no topology; expected a name or path, or --run SCENARIO"),
        (["dgx-a100-80", "--set", "nodes=2"], "no --run; expected --run SCENARIO"),
        (["--run", "any.yaml", "--svg", "a.svg", "--nodes", "2"], "--run beside it; expected --set nodes=COUNT"),
        (["--run", "any.yaml"], "no --svg; expected --svg FILE"),
    ],
)
def test_what_does_not_go_together_is_said(words: list[str], found: str) -> None:
    (line,) = ask("topology", "show", *words).refused()
    assert found in line


def test_a_run_on_another_machine_than_the_named_one_is_refused(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "hot.svg"
    (line,) = ask("topology", "show", "dgx-h100", "--run", small, "--svg", file).refused()
    assert '"dgx-h100"; expected "dgx-a100-80"' in line
    assert not file.exists()


def test_a_path_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (line,) = ask("topology", "show", "gh200", "--svg", tmp_path / "file" / "machine.svg").refused()
    assert "expected a path that can be written" in line
    folder = tmp_path / "folder.svg"
    folder.mkdir()
    assert "a folder" in ask("topology", "show", "gh200", "--svg", folder).refused()[0]
