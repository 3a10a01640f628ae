"""The ladder: one global batch on every rung, one GPU drawn out from a few micro-steps, and the first that fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.quick_host import quick_host
from zerosim.errors import InputError
from zerosim.scenario import Scenario, from_mapping, load
from zerosim.simulation import simulate
from zerosim.spec.strategy import Ddp, DeepSpeed
from zerosim.studies import rungs as study
from zerosim.studies.ladder import ladder
from zerosim.studies.reference import RUNGS
from zerosim.studies.rung_names import zero_names
from zerosim.studies.rung_rows import Rung
from zerosim.studies.rungs import SHARDED, Plan, _zero, plans

ROOT = Path(__file__).parents[2]
CPU = {"offload_optimizer": {"device": "cpu"}}
ZERO_2: dict[str, Any] = {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}}


def scenario(strategy: dict[str, Any] = ZERO_2, **more: Any) -> Scenario:
    training = {"sequence_length": 512, "gradient_accumulation_steps": 3} | more.pop("training", {})
    mapping = {
        "topology": "dgx-a100-80",
        "model": {"layers": 2, "hidden": 512, "heads": 8, "vocab": 1000},
        "training": training,
        "strategy": strategy,
    }
    return from_mapping(mapping | more)


def names(rungs: list[Rung]) -> list[str]:
    return [rung.rung for rung in rungs]


def built(given: Scenario, others: Sequence[Scenario] = ()) -> list[Plan]:
    return [plan for plan in plans(given, others) if isinstance(plan, Plan)]


def test_every_rung_has_the_same_global_batch() -> None:
    rungs = ladder(scenario())
    assert tuple(names(rungs)) == RUNGS
    tokens = 512 * 3 * 8  # sequence x micro-steps x GPUs
    assert [rung.tokens_per_second * rung.step_seconds for rung in rungs] == pytest.approx([tokens] * len(RUNGS))


def test_one_gpu_is_drawn_out_from_a_few_micro_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few = ladder(scenario())[0]
    monkeypatch.setattr(study, "PLAYED", 1000)
    assert ladder(scenario())[0].step_seconds == pytest.approx(few.step_seconds, rel=1e-9)


def test_a_step_of_one_gpu_may_be_longer_than_any_that_can_be_played() -> None:
    many = scenario(nodes=64, training={"gradient_accumulation_steps": 64})  # 32,768 micro-steps of 2 layers
    assert built(many)[0].micro_steps == 64 * 512


def test_where_everything_fits_the_first_rung_is_the_base() -> None:
    rungs = ladder(scenario())
    assert rungs[0].relative_throughput == 1.0
    assert [rung.reason.startswith("first that fits; ") for rung in rungs] == [True, *[False] * 8]
    assert all((rung.relative_throughput or 0.0) > 1 for rung in rungs[1:5])  # eight GPUs


def test_what_does_not_fit_has_no_relative_throughput() -> None:
    # 26 billion parameters: 413, 142 and 97 GB of states on stages 0, 1 and 2, and 52 GB on stage 3
    big = {"layers": 8, "hidden": 16384, "heads": 64}
    rungs = ladder(scenario(model=big, training={"gradient_accumulation_steps": 1}))
    assert [rung.fits for rung in rungs] == [False, False, False, False, True, True, True, True, True]
    assert [rung.relative_throughput for rung in rungs[:5]] == [None, None, None, None, 1.0]
    assert all("too much at " in rung.reason for rung in rungs[:4])


def test_one_gpu_has_no_ddp_rung_and_nothing_to_divide() -> None:
    rungs = ladder(scenario(gpus=1))
    assert tuple(names(rungs)) == ("one GPU", *RUNGS[2:-1])
    assert len({rung.model_states_bytes for rung in rungs[:4]}) == 1


def test_a_ddp_scenario_keeps_its_settings_and_gets_plain_zero_above() -> None:
    given = scenario({"ddp": {"bucket_cap_mb": 1, "gradient_as_bucket_view": True}})
    rungs = ladder(given)
    strategies = ["ddp", "ddp", "zero1", "zero2", "zero3", *["zero3-offload"] * 2, "zero3-nvme", "pipeline-naive"]
    assert [rung.strategy for rung in rungs] == strategies
    assert isinstance(given.strategy, Ddp)
    assert rungs[1].step_seconds == pytest.approx(simulate(given).makespan)


def test_the_rung_of_the_scenario_is_the_scenario() -> None:
    given = scenario()
    rung = next(rung for rung in ladder(given) if rung.rung == "ZeRO-2")
    assert rung.step_seconds == pytest.approx(simulate(given).makespan)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_every_precision_climbs(precision: str) -> None:
    section: dict[str, Any] = {} if precision == "fp32" else {precision: {"enabled": True}}
    zero: dict[str, Any] = {"deepspeed": {**section, "zero_optimization": {"stage": 1}}}
    ddp: dict[str, Any] = {"ddp": {}}
    for strategy in (zero, ddp):
        assert len(ladder(scenario(strategy, gpus=2, training={"precision": precision}))) == len(RUNGS)


@pytest.mark.parametrize(("given", "expected"), [("true", [True] * 3), ("null", [False, False, True])])
def test_overlap_comm_stays_as_given_and_else_is_the_stage_s_own(given: str, expected: list[bool]) -> None:
    change = f"strategy.deepspeed.zero_optimization.overlap_comm={given}"
    for name in ("zero1", "zero3"):
        strategy = load(ROOT / f"scenarios/seven-b/{name}.yaml", [change]).strategy
        assert [_zero(strategy, stage).zero.overlap_comm for stage in SHARDED] == expected


def test_a_scenario_stands_for_the_rung_of_its_strategy() -> None:
    offloaded = {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, **CPU}}}
    larger = scenario(offloaded, training={"micro_batch_size": 3, "gradient_accumulation_steps": 1})
    with_it, without = ladder(scenario(), [larger]), ladder(scenario())
    assert names(with_it) == names(without)
    changed = [new.rung for new, old in zip(with_it, without, strict=True) if new.step_seconds != old.step_seconds]
    assert changed == ["ZeRO-3 + offload"]
    assert with_it[5].step_seconds == pytest.approx(simulate(larger).makespan)
    assert with_it[5].model_states_bytes == pytest.approx(2 * larger.model.numel / 8)


def test_a_scenario_of_another_batch_stands_for_nothing() -> None:
    other = scenario(training={"micro_batch_size": 2}, gpus=4)
    with pytest.raises(InputError) as error:
        ladder(scenario(), [other])
    assert [problem.path for problem in error.value.problems] == ["gpus"]  # 4 GPUs of 2 x 3, 8 of 1 x 3: both 24
    with pytest.raises(InputError, match="global batch: found 48 sequences; expected 24 sequences"):
        ladder(scenario(), [scenario(training={"micro_batch_size": 2})])


def test_a_second_scenario_of_a_strategy_follows_the_rungs() -> None:
    offloaded = {"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, **CPU}}}
    one, two = scenario(offloaded, title="one"), scenario(offloaded, title="two")
    assert [plan.name for plan in plans(scenario(), [one, two])] == [*RUNGS, "ZeRO-3 + offload (2)"]


def test_rungs_keep_all_states_on_the_gpu_but_the_offloaded_one() -> None:
    given = scenario({"deepspeed": {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2, **CPU}}})
    devices = {}
    for plan in built(given):
        if isinstance(plan.scenario.strategy, DeepSpeed):
            zero = plan.scenario.strategy.zero
            devices[plan.name] = zero.offload_optimizer.device, zero.offload_param.device
    nothing = dict.fromkeys(("ZeRO-1", "ZeRO-2", "ZeRO-3"), ("none", "none"))
    own = {"ZeRO-2 + offload": ("cpu", "none")}
    offloaded = {"ZeRO-3 + offload": ("cpu", "none"), "ZeRO-3 + offload all": ("cpu", "cpu")}
    assert devices == {**nothing, **own, **offloaded, "ZeRO-3 + NVMe": ("nvme", "nvme")}


def stage_3(version: str = "0.19.8", **zero: Any) -> Scenario:
    section = {"fp16": {"enabled": True}, "zero_optimization": {"stage": 3, **zero}}
    return scenario({"deepspeed": section}, versions={"deepspeed": version})


def test_rungs_say_which_stage_3_is_played() -> None:
    mics, more = stage_3("0.14.5", mics_shard_size=4), stage_3(zero_hpz_partition_size=4)
    with_mics = ["ZeRO-1", "ZeRO-2", "ZeRO-3 (MiCS)", "ZeRO-3 + offload (without MiCS)"]
    assert [plan.name for plan in plans(mics)][2:6] == with_mics
    with_more = ["ZeRO-1", "ZeRO-2", "ZeRO-3 (ZeRO++)", "ZeRO-3 (ZeRO++) + offload"]
    assert [plan.name for plan in plans(more)][2:6] == with_more
    assert [plan.name for plan in plans(more)][7] == "ZeRO-3 + NVMe (without hpZ)"  # nor with parameters on drives
    assert {*with_mics, *with_more} <= {*RUNGS, *zero_names()}  # a reference file may name them
    assert [rung.strategy for rung in ladder(mics)][4:6] == ["zero3-mics", "zero3-offload"]


def test_a_plain_stage_3_does_not_stand_for_mics() -> None:
    names = [plan.name for plan in plans(stage_3("0.14.5", mics_shard_size=4), [stage_3("0.14.5")])]
    assert (names[4], names[-1]) == ("ZeRO-3 (MiCS)", "ZeRO-3")


def test_layers_on_eight_gpus_one_after_the_other_are_no_quicker_than_one_gpu() -> None:
    """A pipeline of two stages has four replicas, and half of its GPUs at most compute."""
    with quick_host():
        found = {rung.rung: rung for rung in ladder(scenario())}
    share = (found["layer-wise"].relative_throughput or 0.0) / (found["DDP"].relative_throughput or 1.0)
    assert 0.3 < share < 0.6
    assert found["layer-wise"].model_states_bytes == pytest.approx(found["DDP"].model_states_bytes / 2)


# --- from a pipeline -------------------------------------------------------------------------------------------------


def pipeline(micro_batches: int, **settings: Any) -> Scenario:
    asked = {"stages": 4, "schedule": "1f1b", **settings}
    model = {"layers": 8, "hidden": 512, "heads": 8, "vocab": 1000}
    return scenario({"pipeline": asked}, model=model, training={"gradient_accumulation_steps": micro_batches})


def test_a_pipeline_is_a_rung_of_its_own_at_its_own_batch() -> None:
    """8 micro-batches in four stages, twice: 16 sequences, of which each of eight ranks has two."""
    given = pipeline(8, zero_stage=1)
    rungs = ladder(given)
    assert names(rungs)[-2:] == ["pipeline-1f1b", "layer-wise"]
    assert rungs[-2].step_seconds == pytest.approx(simulate(given).makespan)
    # fp32 weights, gradients and two moments: 16 bytes of a quarter of the model; the moments in two shares
    assert rungs[-2].model_states_bytes == pytest.approx((8 + 8 / 2) * given.model.numel / 4)
    tokens = simulate(given).summary().tokens_per_second * rungs[-2].step_seconds
    assert [rung.tokens_per_second * rung.step_seconds for rung in rungs] == pytest.approx([tokens] * 10)


def test_micro_batches_that_cannot_be_shared_are_rounded_up() -> None:
    micro_steps = {plan.name: plan.micro_steps for plan in built(pipeline(6))}
    assert (micro_steps["DDP"], micro_steps["pipeline-1f1b"], micro_steps["one GPU"]) == (2, 8, 16)


def test_the_layer_wise_rung_may_be_the_scenario() -> None:
    given = pipeline(8, stages=8, schedule="naive")
    assert [plan.name for plan in plans(given)].count("layer-wise") == 1
    assert "pipeline-naive" not in [plan.name for plan in plans(given)]


def test_the_scripts_side_of_a_pipeline_is_kept_below_it() -> None:
    ddp = next(plan.scenario.strategy for plan in built(pipeline(8, parameter_dtype="bf16")) if plan.name == "DDP")
    assert isinstance(ddp, Ddp)
    assert ddp.parameter_dtype == "bf16"
