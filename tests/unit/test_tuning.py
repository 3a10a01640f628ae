"""`tune`: the best of a space is exact, what is not played cannot win, and who answers does not matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tuned import CASES, Case, all_played, asked, zero
from zerosim.errors import InputError
from zerosim.report.tune import render_tune
from zerosim.studies.tuning import Tuned, tune
from zerosim.studies.tuning.asking import Asking
from zerosim.studies.tuning.looking import Question

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


def test_curves_are_around_the_best_though_they_find_a_better_one() -> None:
    """A search that ends at its limit has not tried the neighbours of its best; the curves do, and go on from there."""
    case = Case("cut", zero(2), ("reduce_bucket_size=1e5,1.6e6,6.4e6", "overlap_comm", "micro_batch_size"))
    tuned = tune(asked(case, limit=3))
    assert not tuned.converged
    assert len(tuned.seen) > 3
    assert tuned.best is not None
    assert len(tuned.curves) == 3
    for curve in tuned.curves:
        seconds = dict(curve.points)
        assert seconds[curve.best] == tuned.best.seconds == min(filter(None, seconds.values()))


def test_counts_may_have_a_unit() -> None:
    space = tune(asked(Case("units", zero(2), ("reduce_bucket_size=0.29m,4.35m",)))).space
    assert space.knobs[0].values == (290_000, 4_350_000, 500_000_000)


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


def test_a_journal_answers_what_was_asked_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, said = tmp_path / "journal", []
    asks = Asking.ask

    def noted(self: Asking, questions: list[Question]) -> list[dict[str, object]]:
        before = len(self.journal.known)
        answers = asks(self, questions)
        said.append(len(self.journal.known) - before)
        return answers

    monkeypatch.setattr(Asking, "ask", noted)
    with pytest.raises(KeyboardInterrupt):
        tune(asked(BUCKETS), journal=journal, keep=_killed)
    first, lines = sum(said), journal.read_text().splitlines()
    assert first == len(lines) > 0
    journal.write_text("\n".join(lines[:-3]) + '\n["half')  # killed in the middle of a line
    said.clear()
    again = tune(asked(BUCKETS), journal=journal)
    assert sum(said) == 3
    assert again.as_json() == tune(asked(BUCKETS)).as_json()
    assert not journal.exists()


@pytest.mark.parametrize(
    ("other", "version", "again"),
    [
        (BUCKETS, "1", False),
        (BUCKETS, "2", True),
        (BUCKETS._replace(changes=("training.sequence_length=64",)), "1", True),
        (BUCKETS._replace(strategy=zero(1)), "1", True),
    ],
    ids=["same", "version", "--set", "scenario"],
)
def test_answers_of_another_question_are_not_taken(tmp_path: Path, other: Case, version: str, again: bool) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        tune(asked(BUCKETS), journal=journal, version="1", keep=_killed)
    kept = journal.read_text()
    with pytest.raises(KeyboardInterrupt):
        tune(asked(other), journal=journal, version=version, keep=_killed)
    new = journal.read_text().removeprefix(kept)
    assert bool(new) == again
    keys = [json.loads(line)[0] for text in (kept, new) for line in text.splitlines()]
    assert len(keys) == len(set(keys))


def _killed(tuned: Tuned) -> None:
    raise KeyboardInterrupt


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
        ("stage=1.5", 'stage: found "1.5"; expected a whole number'),
        ("micro_batch_size=2.5", 'micro_batch_size: found "2.5"; expected a whole number'),
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


def test_optuna_takes_the_values_of_a_knob_that_a_0_switches_off() -> None:
    pytest.importorskip("optuna", reason="optuna is an extra")
    case = Case("off", zero(3, stage3_prefetch_bucket_size=0), ("prefetch_bucket_size=1e6,4e6",))
    tuned = tune(asked(case, optimizer="optuna", trials=4))
    assert {value for (value,) in (each.point for each in tuned.seen)} == {0, 1_000_000, 4_000_000}


def test_the_best_of_optuna_is_on_its_curve_though_between_the_values() -> None:
    pytest.importorskip("optuna", reason="optuna is an extra")
    case = Case("between", {"ddp": {"bucket_cap_mb": 25}}, ("bucket_cap_mb",))
    tuned = tune(asked(case, optimizer="optuna", trials=16))
    (curve,) = tuned.curves
    assert curve.best not in tuned.space.knobs[0].values
    assert tuned.best is not None
    assert dict(curve.points)[curve.best] == tuned.best.seconds
    assert f"[{curve.best:g}: " in render_tune(tuned.as_json())


def test_optuna_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(InputError, match=r"expected Optuna \(pip install zerosim\[tune\]\); or --optimizer grid"):
        tune(asked(BUCKETS, optimizer="optuna"))
