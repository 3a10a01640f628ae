"""`tune`: the best of a space is exact, what is not played cannot win, and who answers does not matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuned import CASES, Case, all_played, asked, zero
from zerosim.errors import InputError
from zerosim.studies.tuning import Tuned, tune
from zerosim.studies.tuning.asking import Asking
from zerosim.studies.tuning.looking import Looking, Question

BUCKETS = Case("buckets", zero(2), ("reduce_bucket_size=1e5,1.6e6,6.4e6", "overlap_comm"))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_best_is_that_of_all_points_played(case: Case) -> None:
    question = asked(case)
    tuned, played = tune(question), all_played(question)
    assert tuned.exhaustive
    assert tuned.best is not None
    assert tuned.best.seconds == min(seconds for seconds, _ in played)
    assert tuned.counts["pruned"] > 0
    assert sum(tuned.counts.values()) == tuned.size
    best = question.looking.scenario(tuned.needed)
    assert question.looking(Question("play", tuned.needed))["seconds"] == tuned.best.seconds
    training, before = best.training, question.looking.scenario(()).training
    assert training.micro_batch_size * training.gradient_accumulation_steps == (
        before.micro_batch_size * before.gradient_accumulation_steps
    )


def test_what_does_not_fit_cannot_win() -> None:
    question = asked(CASES[-1])
    tuned = tune(question)
    assert not tuned.baseline.fits
    assert tuned.baseline.seconds is not None  # it is compared with all the same
    assert tuned.best is not None
    assert tuned.best.gpu_bytes <= 3.65e9
    assert tuned.counts["too large"] > 0


def test_no_point_that_fits_is_an_answer() -> None:
    tuned = tune(asked(CASES[-1]._replace(changes=("topology.node.gpus.memory=3 GB",))))
    assert tuned.best is None
    assert tuned.as_json()["best_seconds"] is None
    assert tuned.as_json()["best"] == {}


def test_the_front_is_that_of_all_points_played() -> None:
    question = asked(CASES[4], "activation_checkpointing", pareto=True)
    played = all_played(question)
    front = {
        (seconds, size) for seconds, size in played
        if not any((a <= seconds and b <= size) and (a, b) != (seconds, size) for a, b in played)
    }  # fmt: skip
    found = tune(question).front
    assert [(each.seconds, each.gpu_bytes) for each in found] == sorted(front)
    assert len(front) > 1


def test_a_space_beyond_the_limit_is_searched_block_by_block_and_says_so() -> None:
    case = Case("wide", zero(2), ("reduce_bucket_size=1e5,6.4e6", "overlap_comm", "micro_batch_size"))
    whole, part = tune(asked(case)), tune(asked(case, limit=14))
    assert (whole.exhaustive, part.exhaustive, part.converged) == (True, False, True)
    assert (whole.size, len(whole.seen)) == (18, 18)
    assert len(part.seen) < 18
    assert part.best is not None
    assert whole.best is not None
    assert part.best.seconds == whole.best.seconds
    assert not tune(asked(case, limit=5)).converged


def test_neighbours_are_on_curves_and_none_is_better() -> None:
    tuned = tune(asked(BUCKETS))
    assert tuned.best is not None
    assert tuned.best.seconds is not None
    assert [curve.knob for curve in tuned.curves] == ["reduce_bucket_size", "overlap_comm"]
    for curve in tuned.curves:
        seconds = dict(curve.points)
        assert seconds[curve.best] == tuned.best.seconds
        assert all(other is None or other >= tuned.best.seconds for other in seconds.values())
        assert curve.flat == (max(filter(None, seconds.values())) < 1.01 * tuned.best.seconds)


def test_programs_that_are_alike_are_played_once() -> None:
    """Limits above the model's size are no limits."""
    tuned = tune(asked(Case("alike", zero(3), ("stage3_max_live_parameters=2e9,4e9",))))
    assert tuned.counts == {"played": 1, "alike": 2}


def test_of_equal_points_the_nearest_to_the_baseline_wins() -> None:
    tuned = tune(asked(Case("equal", zero(2), ("reduce_bucket_size=1e9,2e9,4e9",))))
    assert tuned.needed == ()
    assert tuned.values == {"reduce_bucket_size": 500_000_000}


def test_processes_do_not_matter() -> None:
    one, two = (tune(asked(BUCKETS), processes=count).as_json() for count in (1, 2))
    assert one == two


class Counting(Looking):
    """Counts what it is asked."""

    asked: list[Question]

    def __call__(self, question: Question) -> dict[str, object]:
        self.asked.append(question)
        return super().__call__(question)


def test_a_journal_answers_what_was_asked_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, said = tmp_path / "journal", []
    asks = Asking.ask

    def noted(self: Asking, questions: list[Question]) -> list[dict[str, object]]:
        before = len(self.journal.known)
        answers = asks(self, questions)
        said.append(len(self.journal.known) - before)
        return answers

    def killed(tuned: Tuned) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Asking, "ask", noted)
    with pytest.raises(KeyboardInterrupt):
        tune(asked(BUCKETS), journal=journal, keep=killed)
    first, lines = sum(said), journal.read_text().splitlines()
    assert first == len(lines) > 0
    journal.write_text("\n".join(lines[:-3]) + '\n["half')  # killed in the middle of a line
    said.clear()
    again = tune(asked(BUCKETS), journal=journal)
    assert sum(said) == 3
    assert again.as_json() == tune(asked(BUCKETS)).as_json()
    assert not journal.exists()


def test_another_version_asks_again() -> None:
    old, new = (Question("look", ()).key(version) for version in ("1", "2"))
    assert old != new


def test_knobs_that_nothing_reads_are_not_searched() -> None:
    tuned = tune(asked(Case("idle", zero(2), ("reduce_bucket_size", "bucket_cap_mb", "stage3_max_live_parameters",
                                              "allgather_bucket_size"))))  # fmt: skip
    assert [knob.name for knob in tuned.space.knobs] == ["reduce_bucket_size"]
    assert {each.name: each.reason for each in tuned.left_out} == {
        "bucket_cap_mb": "it is a knob of DDP",
        "stage3_max_live_parameters": "stage 2 does not read it",
        "allgather_bucket_size": "torch gathers each flat group with one all_gather_into_tensor, whatever its size",
    }


def test_knobs_of_a_stage_are_searched_at_that_stage_alone() -> None:
    """Stages 0 to 3 with three prefetches, which stage 3 alone reads."""
    tuned = tune(asked(Case("stages", zero(3), ("stage", "prefetch_bucket_size=0,1e6"))))
    assert tuned.size == 3 + 3


@pytest.mark.parametrize(
    ("knob", "said"),
    [
        ("reduce_buket_size", 'found "reduce_buket_size"; expected a knob of this strategy: .*; nearest reduce_bucket'),
        ("micro_batch_size=3", "micro_batch_size: found 3; expected a divisor of 4"),
        ("reduce_bucket_size=many", 'reduce_bucket_size: found "many"; expected a count such as "500m"'),
        ("offload_param=tape", 'offload_param: found "tape"; expected'),
        ("bucket_cap_mb", "found nothing to tune .bucket_cap_mb: it is a knob of DDP.; expected a knob that"),
    ],
)
def test_knobs_that_are_wrong_are_told(knob: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        tune(asked(Case("wrong", zero(2), (knob,))))


def test_optuna_finds_the_best_of_a_small_space_and_is_reproducible() -> None:
    pytest.importorskip("optuna", reason="optuna is an extra")
    options = {"optimizer": "optuna", "trials": 16, "seed": 7}
    one, two = (tune(asked(BUCKETS, **options)) for _ in range(2))
    assert one.as_json() == two.as_json()
    assert one.best is not None
    assert one.best.seconds == min(seconds for seconds, _ in all_played(asked(BUCKETS)))
    assert not one.exhaustive


def test_optuna_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(InputError, match=r"expected Optuna \(pip install zerosim\[tune\]\); or --optimizer grid"):
        tune(asked(BUCKETS, optimizer="optuna"))
