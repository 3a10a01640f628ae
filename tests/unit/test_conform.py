"""Recordings of our own beside programs: what is compared, what is told, and what of a configuration is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.recorded import event, recording, step, write
from zerosim.errors import InputError
from zerosim.report.conformity import render_conformity
from zerosim.spec.fully_sharded import Wrap
from zerosim.spec.model import Module
from zerosim.spec.recording import Recording, read_recording
from zerosim.spec.recording_events import Issued
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp
from zerosim.step import Collective, Group, Op, Step
from zerosim.studies.conform import Verdict, conform, first_difference, issued

SMALL_BUCKETS = {"strategy": "ddp", "ddp": {"bucket_cap_mb": 288 / 2**20}}  # 288 bytes: a linear each
TWO = [event(("all_reduce", 72, 72))] * 2


def verdict_of(tmp_path: Path, data: dict[str, Any]) -> Verdict:
    (verdict,) = conform([write(tmp_path / "recording.json", data)])
    return verdict


def read(tmp_path: Path, config: dict[str, Any], **more: Any) -> Recording:
    return read_recording(write(tmp_path / "recording.json", recording(config, [step(2)] * 3, **more)))


# --- the comparison --------------------------------------------------------------------------------------------------


def test_a_step_that_is_the_same(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, recording(SMALL_BUCKETS, [step(2, TWO)] * 3))
    assert (verdict.match, verdict.collectives, verdict.notes) == (True, 2, ())


def test_the_third_step_is_compared(tmp_path: Path) -> None:
    """The first two of a run are not like those that follow."""
    assert verdict_of(tmp_path, recording(SMALL_BUCKETS, [step(2), step(2), step(2, TWO)])).match


def test_of_fewer_steps_the_last_is_and_a_note_says_so(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, recording(SMALL_BUCKETS, [step(2), step(2, TWO)]))
    assert verdict.match
    assert "step 2 is compared, the last" in verdict.notes[0]


CHANGED: dict[str, Any] = {
    "op": "reduce_scatter", "nin": 71, "nout": 71, "dtype": "bf16", "gs": 4, "ph": "forward", "mb": 1,
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGED)
def test_each_property_of_a_collective_counts(key: str, tmp_path: Path) -> None:
    other = TWO[1] | {key: CHANGED[key]}
    found = verdict_of(tmp_path, recording(SMALL_BUCKETS, [step(2, [TWO[0], other])] * 3)).first_difference
    assert found is not None
    assert found.place == 1
    assert found.simulated == Issued("all_reduce", 72, 72, "fp32", 2, "backward", 0, None)
    assert found.recorded is not None
    assert sum(a != b for a, b in zip(found.recorded, found.simulated, strict=True)) == 1


@pytest.mark.parametrize(("recorded", "place"), [(TWO[:1], 1), ([*TWO, TWO[0]], 2), ([], 0)])
def test_one_that_is_missing_or_too_many(recorded: list[dict[str, Any]], place: int, tmp_path: Path) -> None:
    found = verdict_of(tmp_path, recording(SMALL_BUCKETS, [step(2, recorded)] * 3)).first_difference
    assert found is not None
    assert found.place == place
    assert (found.recorded is None) == (len(recorded) < 2)


def test_order_counts(tmp_path: Path) -> None:
    """Three linears in buckets of two: 72 x 2 and 72, not the other way round."""
    config = {"strategy": "ddp", "ddp": {"bucket_cap_mb": 576 / 2**20}}
    sizes = [event(("all_reduce", 144, 144)), event(("all_reduce", 72, 72))]
    assert verdict_of(tmp_path, recording(config, [step(3, sizes)] * 3, 3)).match
    assert not verdict_of(tmp_path, recording(config, [step(3, sizes[::-1])] * 3, 3)).match


def test_a_gathered_or_scattered_buffer_is_a_shard_on_one_side() -> None:
    work = {kind: Collective(kind, 12, "bf16", "dp") for kind in ("all_gather", "reduce_scatter", "broadcast")}
    ops = [Op(number, kind, "nccl.dp", each) for number, (kind, each) in enumerate(work.items())]
    ops.append(Op(3, "reduce to 2", "nccl.dp", Collective("reduce", 12, "bf16", "dp", root=2), phase="optimizer"))
    calls = issued(Step(tuple(ops), (), frozenset(), {"dp": Group("dp", 4)}, 1))
    assert [(call.nin, call.nout, call.root, call.micro_batch) for call in calls] == [
        (3, 12, None, 0), (12, 3, None, 0), (12, 12, None, 0), (12, 12, 2, None),
    ]  # fmt: skip


def test_equal_sequences_do_not_differ() -> None:
    call = Issued("all_reduce", 1, 1, "fp32", 2, "optimizer", None, None)
    assert first_difference([call], [call]) is None


# --- the model -------------------------------------------------------------------------------------------------------


def test_modules_are_called_as_recorded_not_as_registered(tmp_path: Path) -> None:
    data = recording(SMALL_BUCKETS, [step(2, forward=(1, 0))] * 3)
    model = read_recording(write(tmp_path / "recording.json", data)).model
    assert [module.name for module in model.root.walk()] == ["<root>", "layers.1", "layers.0"]
    assert [parameter.name for parameter in model.parameters][::2] == ["layers.0.weight", "layers.1.weight"]
    assert [module.block for module in model.root.walk()] == [False, True, True]


def test_gradients_become_ready_as_recorded(tmp_path: Path) -> None:
    """A network with branches: of two linears the one that is called first is also the first in the backward."""
    config = {"strategy": "ddp", "ddp": {"bucket_cap_mb": 256 / 2**20}}
    data = recording(config, [step(2)] * 3)
    events = data["steps"][2]["events"]
    ready = [each for each in events if each["m"] == "G"]
    data["steps"][2] = {"events": [each for each in events if each["m"] != "G"]}
    place = next(i for i, each in enumerate(data["steps"][2]["events"]) if each["m"] == "B>")
    data["steps"][2]["events"][place:place] = [ready[2], ready[3], ready[1], ready[0]]  # b0 w0 | w1 | b1
    sent = [event(("all_reduce", 72, 72)), event(("all_reduce", 64, 64)), event(("all_reduce", 8, 8))]
    data["steps"][2]["events"] += sent
    assert verdict_of(tmp_path, data).match


def test_buffers_frozen_and_tied_parameters(tmp_path: Path) -> None:
    data = recording(SMALL_BUCKETS, [step(2)] * 3)
    data["model"]["buffers"] = [{"shape": [4]}, {"shape": [2, 3]}]
    data["model"]["params"][0]["frozen"] = True
    data["model"]["params"][1]["tied"] = ["layers.1.bias"]
    del data["model"]["params"][3]
    model = read_recording(write(tmp_path / "recording.json", data)).model
    assert model.buffers == 10
    assert [parameter.trainable for parameter in model.parameters] == [False, True, True]
    first, second = model.root.body
    assert first.parameters[1] is second.parameters[1]  # type: ignore[union-attr]  # modules


@pytest.mark.parametrize(("again", "kind"), [(True, "dropout"), (False, "identity")])
def test_a_dropout_that_is_called_again_in_the_backward_saves_its_mask(again: bool, kind: str, tmp_path: Path) -> None:
    """A rerun of a checkpointed block stops in the last module that has saved something."""
    seen = step(2)
    at = next(i for i, event in enumerate(seen["events"]) if event.get("ph") == "backward")
    called = [{"m": "F>", "mod": "drop"}]
    seen["events"][at + 1 : at + 1] = called if again else []
    seen["events"][at - 1 : at - 1] = [*called, {"m": "F<", "mod": "drop"}]
    data = recording({"strategy": "ddp"}, [seen] * 3)
    data["model"]["modules"].append({"name": "drop", "cls": "Dropout", "params": [], "children": []})
    drop = read_recording(write(tmp_path / "recording.json", data)).model.root.body[-1]
    assert isinstance(drop, Module)
    assert (drop.name, drop.kind) == ("drop", kind)


# --- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.14.5", "0.19.8"])
def test_leaves_that_the_script_sets_are_known_to_releases_that_lack_the_key(version: str, tmp_path: Path) -> None:
    """set_z3_leaf_modules is older than `leaf_module`."""
    config = {"strategy": "deepspeed", "ds": {"zero_optimization": {"stage": 3}}, "leaf": ["Linear"]}
    strategy = read(tmp_path, config, versions={"deepspeed": version}).run.strategy
    assert isinstance(strategy, DeepSpeed)
    assert strategy.zero.leaf_module.names == ("layers.0", "layers.1")


def test_a_leaf_module_that_the_release_does_not_know_is_refused(tmp_path: Path) -> None:
    zero = {"stage": 3, "leaf_module": {"names": ["layers.0"]}}
    config = {"strategy": "deepspeed", "ds": {"zero_optimization": zero}}
    with pytest.raises(InputError, match=r"leaf_module.*does not know"):
        read(tmp_path, config, versions={"deepspeed": "0.14.5"})


def test_deepspeed_of_its_version(tmp_path: Path) -> None:
    config = {"strategy": "deepspeed", "ds": {"zero_optimization": {"stage": 2}}, "ga": 4, "dtype": "bf16", "world": 4}
    config |= {"clip": 0.5, "local_size": 2}
    run = read(tmp_path, config, versions={"deepspeed": "0.14.5"}).run
    assert isinstance(run.strategy, DeepSpeed)
    assert (run.strategy.zero.stage, run.strategy.gradient_clipping) == (2, 0.5)
    assert run.strategy.release.version == "0.14.5"
    assert (run.world, run.ranks_per_node) == (4, 2)
    assert (run.training.gradient_accumulation_steps, run.training.precision) == (4, "bf16")


def test_ddp_without_no_sync_reduces_in_every_micro_step(tmp_path: Path) -> None:
    strategies = [read(tmp_path, {"strategy": "ddp", "no_sync": said}).run.strategy for said in (True, False)]
    assert strategies == [Ddp(no_sync=True), Ddp(no_sync=False)]


UNITS = [
    {"name": "<root>"},
    {"name": "layers.1._checkpoint_wrapped_module", "flat_numel_padded": 72, "sharded_numel": 36},
]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, Fsdp(wrap=Wrap(blocks=False, modules=("layers.1",)))),
        ({"fsdp": {"backward_prefetch": None}}, Fsdp(backward_prefetch="NO_PREFETCH")),
        ({"fsdp": {"backward_prefetch": "BACKWARD_POST"}, "clip": 1.0},
         Fsdp(backward_prefetch="BACKWARD_POST", gradient_clipping=1.0)),
        ({"fsdp": {"sharding": "HYBRID_SHARD"}, "world": 4}, Fsdp(sharding_strategy="HYBRID_SHARD", shard_size=2)),
        ({"fsdp": {"reduce_dtype": "fp32"}, "dtype": "bf16"}, Fsdp(param_dtype="bf16", reduce_dtype="fp32")),
        ({"strategy": "fsdp2"}, Fsdp(2, set_is_last_backward=True)),
        ({"strategy": "fsdp2", "dtype": "bf16", "plain": True}, Fsdp(2, param_dtype="bf16", reduce_dtype="fp32")),
        ({"strategy": "fsdp2", "fsdp": {"mesh": [4, 2], "prefetch": 2}, "keep_unsharded": True, "plain": True},
         Fsdp(2, shard_size=2, prefetch_forward=2, prefetch_backward=2, reshard_after_backward=False)),
    ],
)  # fmt: skip
def test_fsdp(config: dict[str, Any], expected: Fsdp, tmp_path: Path) -> None:
    """`extra.fsdp_units` names what was wrapped."""
    run = read(tmp_path, {"strategy": "fsdp1", **config}, extra={"fsdp_units": UNITS}).run
    assert isinstance(run.strategy, Fsdp)
    values = {name: getattr(expected, name) for name in Fsdp.__slots__}
    assert run.strategy == Fsdp(**values | {"wrap": Wrap(blocks=False, modules=("layers.1",))})


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"strategy": "ddp", "ddp": {"bucket": 1}, "tp": 2}, "not read: config.ddp.bucket, config.tp"),
        ({"strategy": "fsdp2", "fsdp": {"sharding": "FULL_SHARD"}}, "not read: config.fsdp.sharding"),
        ({"strategy": "fsdp1", "plain": True, "prefetch": 2}, "not read: config.plain, config.prefetch"),
    ],
)
def test_a_key_that_nobody_reads_is_told(config: dict[str, Any], told: str, tmp_path: Path) -> None:
    assert read(tmp_path, config).notes == (told,)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"strategy": "horovod"}, 'config.strategy: found "horovod"; expected'),
        ({"strategy": "ddp", "world": 0}, "config.world: found 0; expected a number greater than or equal to 1"),
        ({"strategy": "ddp", "dtype": "fp8"}, 'config.dtype: found "fp8"; expected'),
        ({"strategy": "ddp", "ddp": {"bucket_cap_mb": "x"}}, 'ddp.bucket_cap_mb: found "x"; expected a number'),
        ({"strategy": "fsdp1", "fsdp": 3}, "config.fsdp: found 3; expected a mapping"),
        ({"strategy": "fsdp1", "fsdp": {"sharding": "FULL"}}, 'fsdp.sharding: found "FULL"; expected "FULL_SHARD"'),
        (
            {"strategy": "fsdp1", "fsdp": {"backward_prefetch": "SOON"}},
            'fsdp.backward_prefetch: found "SOON"; expected BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH',
        ),
        ({"strategy": "fsdp2", "fsdp": {"mesh": ["a"]}}, 'fsdp.mesh.0: found "a"; expected a whole number'),
        ({"strategy": "deepspeed", "ds": {"zero_optimization": {"stage": 7}}}, "stage: found 7; expected"),
    ],
)
def test_a_configuration_that_is_refused_is_a_verdict(config: dict[str, Any], reason: str, tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, recording(config, [step(2)] * 3))
    assert not verdict.match
    assert verdict.first_difference is not None
    assert reason in verdict.first_difference.reason


def test_all_files_that_are_no_recordings_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    good = write(tmp_path / "good.json", recording(SMALL_BUCKETS, [step(2)]))
    with pytest.raises(InputError) as caught:
        conform([tmp_path / "list.json", good, tmp_path / "missing.json"])
    assert [problem.source for problem in caught.value.problems] == [
        str(tmp_path / "list.json"), str(tmp_path / "missing.json")
    ]  # fmt: skip


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_table_shows_both_sides_of_a_difference(tmp_path: Path) -> None:
    data = recording(SMALL_BUCKETS | {"tp": 2}, [step(2, [TWO[0], event(("reduce", 8, 8), root=1)])] * 3)
    refused = write(tmp_path / "refused.json", recording({"strategy": "horovod"}, [step(2)]))
    verdicts = conform([write(tmp_path / "other.json", data), refused])
    rows = [v.as_json() | {"collectives": v.collectives, "notes": v.notes} for v in verdicts]
    shown = render_conformity(rows)
    assert "other                2  differs at 1\n" in shown
    assert "refused              0  not played\n" in shown
    assert "0 of 2 match" in shown
    assert "other: not read: config.tp\n" in shown
    assert "  recorded   reduce to rank 1 fp32 8 > 8, 2 ranks, backward of micro-batch 0\n" in shown
    assert "  simulated  all_reduce fp32 72 > 72, 2 ranks, backward of micro-batch 0\n" in shown
    assert 'found "horovod"' in shown
