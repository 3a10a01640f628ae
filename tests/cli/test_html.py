"""`run --html` and `compare --html`: a file beside the answer, the same whatever it is called."""

import html
import re
import shlex
from pathlib import Path

import pytest

import zerosim
from tests.cli.asking import ROOT, SMALL, ask
from tests.documents import Document
from zerosim.cli.further import further

UNWRITABLE = {
    "through a file": ("small.yaml/a.html", "small.yaml/a.html: found a path that leads through a file"),
    "a folder": ("folder", "folder: found a folder; expected the name of a file"),
    "no name": ("", '--html: found ""; expected the name of a file'),
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("small.yaml")
    path.write_text(SMALL)
    return path


def test_a_page_is_written_beside_the_answer_and_the_other_files(small: Path) -> None:
    files = ("--html", "deep/a.html", "--svg", "a.svg", "--trace", "a.json")
    answer = ask("run", small, "--set", "nodes=1", *files, "--json")
    assert (answer.code, answer.out) == (0, ask("run", small, "--set", "nodes=1", "--json").out)
    assert answer.err.splitlines()[-1] == "page written to deep/a.html"
    read = Document(Path("deep/a.html").read_text(encoding="utf-8"))
    assert "made again by zerosim run small.yaml --set nodes=1 --html report.html" in read.text
    assert "Changed in it: nodes=1" in read.text
    assert f"As it was given: small.yaml {' '.join(SMALL.split())}" in read.text
    assert "strategy.deepspeed.zero_optimization.reduce_bucket_size 500000" in read.text
    assert ask("run", small, "--set", "nodes=1", "--html", "b.html").out.startswith("small")
    assert Path("b.html").read_bytes() == Path("deep/a.html").read_bytes()


def test_what_was_asked_beside_the_step_is_in_it_and_in_the_command(small: Path) -> None:
    asked = ("--range", "--samples", "2", "--seed", "3", "--save-cost")
    ask("run", small, *asked, "--html", "a.html")
    text = Document(Path("a.html").read_text(encoding="utf-8")).text
    assert "range: step" in text
    assert "adds" in text
    command = re.search(r"made again by (zerosim .*?) --html report.html", text)
    assert command
    assert sorted(command[1].split()) == sorted(["zerosim", "run", "small.yaml", *asked])


def test_files_that_a_scenario_names_are_in_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    ask("run", "scenarios/gpt2-xl-zero2-4090.yaml", "--html", tmp_path / "a.html")
    text = Document((tmp_path / "a.html").read_text(encoding="utf-8")).text
    assert "As it was given: scenarios/gpt2-xl-zero2-4090.yaml" in text
    assert "As it was given: scenarios/ds/zero2-fp16.json" in text


def test_a_comparison_is_one_page(small: Path) -> None:
    other = Path("other.yaml")
    other.write_text(SMALL.replace("title: small", 'title: "<b>&other"').replace("stage: 2", "stage: 3"))
    answer = ask("compare", small, other, "--html", "a.html", "--json")
    assert answer.out == ask("compare", small, other, "--json").out
    read = Document(Path("a.html").read_text(encoding="utf-8"))
    assert "B <b>&other" in read.text
    assert "strategy.deepspeed.zero_optimization.stage 2 3" in read.text
    assert "zerosim compare small.yaml other.yaml --html report.html" in read.text


@pytest.mark.parametrize("case", UNWRITABLE)
@pytest.mark.parametrize("verb", ["run", "compare"])
def test_what_cannot_be_written_is_told_before_any_answer(verb: str, case: str, small: Path) -> None:
    Path("folder").mkdir()
    path, said = UNWRITABLE[case]
    (problem,) = ask(verb, *[small] * (1 if verb == "run" else 2), "--html", path).refused()
    assert said in problem


def test_a_measured_step_has_a_page_alone_and_beside_a_scenario(small: Path) -> None:
    ask("run", small, "--trace", "step.json")
    step = ask("trace", "read", "step.json", "--html", "a.html", "--json").out
    assert step == ask("trace", "read", "step.json", "--json").out
    alone = Document(Path("a.html").read_text(encoding="utf-8"))
    assert {"What ran", "Where the time goes", "Why the GPU waits"} <= {title for _, title in alone.headings}
    assert "MFU" not in alone.text
    assert "zerosim trace read step.json --html report.html" in alone.text
    ask("compare", small, "step.json", "--html", "b.html")
    both = Document(Path("b.html").read_text(encoding="utf-8"))
    titles = [title for level, title in both.headings if level == 2 and title[:3] in ("A  ", "B  ")]
    assert titles[0] == "A  small"
    assert "(simulated, " in titles[1]
    assert "What ran" in both.text


@pytest.mark.parametrize("stage", ["2", "3"])
def test_what_would_change_it_are_commands_that_run(stage: str, small: Path) -> None:
    changes = ["--set", f"strategy.deepspeed.zero_optimization.stage={stage}", "--set", "title=a b"]
    ask("run", small, *changes, "--html", "a")
    found = re.findall("<pre>(zerosim .*)</pre>", Path("a").read_text(encoding="utf-8"))
    commands = [shlex.split(html.unescape(line))[1:] for line in found][:4]  # the last one makes the page again
    assert [words[0] for words in commands] == ["doctor", "explain", "tune", "require"]
    assert all(words[1:6] == ["small.yaml", *changes] for words in commands)
    require = commands[-1]
    assert ask(*require, "--json").json["resource"] == require[require.index("--resource") + 1]


def test_what_cannot_be_read_again_is_asked_nothing_more(small: Path) -> None:
    scenario = zerosim.load(small)
    summary = zerosim.simulate(scenario).summary()
    assert len(list(further(scenario, summary, ()))) == 4
    small.unlink()
    assert not list(further(scenario, summary, ()))


def test_files_have_names_of_their_own(small: Path) -> None:
    for name in ("", "-"):
        assert ask("run", small, "--html", name).refused() == [f'--html: found "{name}"; expected the name of a file']
    (same,) = ask("run", small, "--svg", "a.html", "--html", "./a.html").refused()
    assert same == '--html: found "./a.html", as --svg; expected a file of its own'
