"""What users say of FSDP: accelerate's file, its `fsdp_config`, torch's arguments; what clashes; what is said back."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario, from_mapping, load
from zerosim.simulation import simulate
from zerosim.spec.fsdp import Beside, FsdpRead, read_fsdp
from zerosim.spec.fsdp_mapping import fsdp_mapping
from zerosim.spec.fsdp_misfits import misfits
from zerosim.spec.fully_sharded import Fsdp, Wrap
from zerosim.spec.loading import inline, read
from zerosim.spec.strategy import Ddp, DeepSpeed
from zerosim.studies.ladder import ladder
from zerosim.studies.states import states_on_gpu

SHARED = os.environ.get("ZEROSIM_SHARED")
ROOT = Path(__file__).parents[2]
BLOCKS = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
SMALL = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100}
FILE: dict[str, Any] = {
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "num_processes": 8,
    "fsdp_config": {**BLOCKS, "fsdp_version": 1, "fsdp_sharding_strategy": "FULL_SHARD"},
}


def reading(mapping: dict[str, Any], **known: Any) -> FsdpRead:
    return read_fsdp(inline(mapping, "fsdp.yaml"), Beside(**({"world_size": 8, "ranks_per_node": 8} | known)))


def fsdp(**settings: Any) -> Fsdp:
    return reading(settings).fsdp


def problems(mapping: dict[str, Any], **known: Any) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        reading(mapping, **known)
    return list(caught.value.problems)


def question(settings: Any, changes: tuple[str, ...] = (), **more: Any) -> Scenario:
    training = {"sequence_length": 128} | more
    mapping = {"title": "q", "topology": "dgx-a100-80", "model": SMALL, "training": training}
    return from_mapping(mapping | {"strategy": {"fsdp": settings}}, changes=changes)


# --- names, spellings, defaults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("FULL_SHARD", "FULL_SHARD"), (1, "FULL_SHARD"), ("2", "SHARD_GRAD_OP"), ("no_shard", "NO_SHARD"),
        (4, "HYBRID_SHARD"), ("HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2"), (5, "_HYBRID_SHARD_ZERO2"),
    ],
)  # fmt: skip
def test_a_sharding_strategy_has_a_name_and_a_number(given: Any, meant: str) -> None:
    assert fsdp(fsdp_sharding_strategy=given).sharding_strategy == meant
    assert fsdp(sharding_strategy=given).sharding_strategy == meant


@pytest.mark.parametrize("given", [True, "true", "True", 1, "1", "yes"])
def test_booleans_may_be_text_as_in_an_environment(given: Any) -> None:
    assert fsdp(fsdp_offload_params=given, **BLOCKS).cpu_offload


def test_torch_and_accelerate_have_defaults_of_their_own() -> None:
    """torch's constructor: BACKWARD_PRE; accelerate's launcher hands on no prefetch and use_orig_params true."""
    torch, accelerate = fsdp(sharding_strategy="FULL_SHARD"), fsdp(fsdp_sharding_strategy="FULL_SHARD")
    assert (torch.backward_prefetch, torch.use_orig_params, torch.no_sync) == ("BACKWARD_PRE", False, False)
    assert (accelerate.backward_prefetch, accelerate.use_orig_params, accelerate.no_sync) == ("NO_PREFETCH", True, True)
    assert (torch.wrap, accelerate.wrap) == (Wrap(), Wrap(blocks=False))


def test_accelerate_wraps_nothing_unless_told_which_is_worth_a_warning() -> None:
    (found,) = [each for each in reading({"fsdp_version": 1}).findings if each.code == "one-unit"]
    assert found.severity == "warning"
    assert found.remedy == "Set fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP."


def test_wrapping_by_size() -> None:
    by_size = {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}
    assert fsdp(**by_size).wrap == Wrap(blocks=False, least=100_000_000)  # the launcher's default
    assert fsdp(**by_size, fsdp_min_num_params="2000").wrap.least == 2000
    assert fsdp(**by_size, fsdp_min_num_params=0).wrap == Wrap(blocks=False)


def test_class_names_are_taken_to_mean_blocks() -> None:
    result = reading({**BLOCKS, "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer"})
    assert result.fsdp.wrap == Wrap()
    assert result.assumptions[-1] == "LlamaDecoderLayer is taken to name the blocks: FSDP wraps each block."


def test_modules_are_wrapped_by_name() -> None:
    model = question({}).model
    names = [module.name for module in model.root.walk() if module.parameters]
    assert reading({"wrap": {"modules": names[:1]}}, model=model).fsdp.wrap == Wrap(modules=(names[0],))
    (wrong,) = problems({"wrap": {"modules": [f"{names[0]}x"]}}, model=model)
    assert (wrong.path, wrong.nearest) == ("wrap.modules.0", names[0])


def test_keys_of_fully_shard_mean_version_2() -> None:
    assert fsdp(reshard_after_forward=False).version == 2
    assert fsdp(mesh=[2, 4], prefetch_forward=1) == replace(fsdp(version=2, shard_size=4), prefetch_forward=1)
    assert fsdp(version=2, mesh=[8]).shard_size is None


def test_resharding_to_one_rank_is_false_and_to_all_is_true() -> None:
    assert [fsdp(reshard_after_forward=size).reshard_after_forward for size in (1, 2, 8)] == [False, 2, True]
    (wrong,) = problems({"reshard_after_forward": 3})
    assert wrong.expected == "true, false, or a number that divides the 8 ranks that shard"


# --- what a version or accelerate does not read -----------------------------------------------------------------------


def test_version_1_of_accelerate_never_reads_reshard_after_forward() -> None:
    """Its sharding_strategy is never empty, and goes first (accelerator.py: `sharding_strategy or reshard...`)."""
    result = reading({**BLOCKS, "fsdp_reshard_after_forward": "SHARD_GRAD_OP"})
    assert result.fsdp.sharding_strategy == "FULL_SHARD"
    (warning,) = [each for each in result.findings if each.severity == "warning"]
    assert warning.remedy == "Write fsdp_sharding_strategy: SHARD_GRAD_OP, or fsdp_version: 2."
    same = reading({**BLOCKS, "fsdp_reshard_after_forward": "FULL_SHARD"})
    assert [each.severity for each in same.findings] == ["note"]


def test_version_2_of_accelerate_never_reads_a_sharding_strategy() -> None:
    result = reading({**BLOCKS, "fsdp_version": 2, "fsdp_sharding_strategy": "SHARD_GRAD_OP"})
    assert result.fsdp.reshard_after_forward is True
    assert [each.remedy for each in result.findings] == ["Write fsdp_reshard_after_forward: false."]


def test_torch_has_no_argument_of_the_other_version() -> None:
    (none, other) = problems({"version": 2, "limit_all_gathers": False, "sharding_strategy": "FULL_SHARD"})
    assert none.expected == other.expected == "a key of version 2; it is one of version 1"
    assert (none.nearest, other.nearest) == ("", "reshard_after_forward")


def test_keys_that_change_nothing_are_told_once() -> None:
    result = reading({**BLOCKS, "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_cpu_ram_efficient_loading": True})
    assert [each.code for each in result.findings] == ["key-no-effect", "key-no-effect"]


def test_an_unknown_key_names_the_nearest() -> None:
    (wrong,) = problems({"fsdp_sharding_stategy": "FULL_SHARD"})
    assert wrong.nearest == "fsdp_sharding_strategy"


@pytest.mark.parametrize(("given", "unfilled"), [("NONE", False), ("${stage}", True)])
def test_another_word_in_capitals_is_no_placeholder(given: str, unfilled: bool) -> None:
    (wrong,) = problems({"backward_prefetch": given})
    assert wrong.expected.startswith("BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH")
    assert ("placeholder" in wrong.expected) is unfilled


def test_all_problems_come_at_once() -> None:
    wrong = problems({"version": 2, "sharding_strategy": "FULL", "no_sync": "perhaps", "mixed_precision": "bf61"})
    assert [problem.path for problem in wrong] == ["mixed_precision", "no_sync", "sharding_strategy"]


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_accelerates_word_gathers_and_reduces_in_it_and_keeps_fp32(version: int) -> None:
    result = reading({**BLOCKS, "fsdp_version": version, "mixed_precision": "bf16"})
    value = result.fsdp
    assert (value.parameter_dtype, value.param_dtype, value.reduce_dtype) == ("fp32", "bf16", "bf16")
    assert result.training_values["precision"] == "bf16"


def test_a_policy_by_its_dtypes() -> None:
    value = fsdp(mixed_precision={"param_dtype": "torch.bfloat16", "reduce_dtype": "float32"})
    assert (value.compute_dtype, value.wire_dtype) == ("bf16", "fp32")
    assert fsdp(mixed_precision={"param_dtype": "fp16"}).wire_dtype == "fp16"
    pure = fsdp(parameter_dtype="bf16")
    assert (pure.param_dtype, pure.compute_dtype, pure.wire_dtype) == (None, "bf16", "bf16")


@pytest.mark.parametrize(
    ("mixed", "precision"), [("no", "bf16"), ("bf16", "fp16"), (False, "bf16"), ("fp16", "fp32")]
)  # fmt: skip
def test_precision_said_twice_must_agree(mixed: Any, precision: str) -> None:
    places = {"precision": "q.yaml:7"}
    (wrong,) = problems({**BLOCKS, "mixed_precision": mixed}, precision=precision, places=places)
    assert wrong.path == "mixed_precision"
    assert wrong.expected == f"{precision}, as training.precision says (q.yaml:7)"


def test_fp32_under_an_autocast_of_the_script() -> None:
    result = reading({"mixed_precision": "no"}, precision="bf16")
    assert (result.fsdp.compute_dtype, result.training_values["precision"]) == ("fp32", "bf16")


def test_what_nobody_says_of_precision_is_told() -> None:
    assert "gathered and reduced in bf16" in "".join(reading({}).assumptions)
    silent = {key: value for key, value in FILE.items() if key != "mixed_precision"}
    result = reading(silent)
    assert (result.fsdp.compute_dtype, result.training_values["precision"]) == ("fp32", "fp32")
    assert "precision-assumed" in [each.code for each in result.findings]


# --- activation checkpointing -----------------------------------------------------------------------------------------


def test_activation_checkpointing_of_the_file_is_trainings_own() -> None:
    scenario = question({**BLOCKS, "fsdp_activation_checkpointing": True})
    assert (scenario.training.activation_checkpointing, scenario.training.reentrant) == ("full", False)
    assert "activation_checkpointing" not in scenario.assumptions[-1]
    assert question({**BLOCKS}, activation_checkpointing="full").training.activation_checkpointing == "full"


def test_activation_checkpointing_said_twice_must_agree() -> None:
    known: dict[str, Any] = {"activation_checkpointing": "selective", "places": {"activation_checkpointing": "q:5"}}
    (wrong,) = problems({**BLOCKS, "fsdp_activation_checkpointing": "true"}, **known)
    assert str(wrong) == (
        "fsdp.yaml: fsdp_activation_checkpointing: found true; expected selective, as "
        "training.activation_checkpointing says (q:5)"
    )


# --- whole files ------------------------------------------------------------------------------------------------------


def test_a_whole_file() -> None:
    result = reading(FILE)
    assert result.fsdp.sharding_strategy == "FULL_SHARD"
    assert not result.findings


@pytest.mark.parametrize(
    ("kind", "instead"),
    [("DEEPSPEED", "deepspeed"), ("MULTI_GPU", "ddp"), ("NO", "ddp"), (False, "ddp")],
)
def test_a_file_of_another_strategy_says_where_it_belongs(kind: Any, instead: str) -> None:
    (wrong,) = problems({**FILE, "distributed_type": kind, "what": "ever"})
    assert wrong.path == "distributed_type"
    assert f"strategy.{instead}" in wrong.expected


def test_other_numbers_of_processes_and_machines_are_told() -> None:
    result = reading({**FILE, "num_processes": 16, "num_machines": 2}, nodes=1)
    assert [each.message.split(";")[0] for each in result.findings] == ["num_processes is 16", "num_machines is 2"]


def test_a_key_that_accelerate_refuses() -> None:
    (wrong,) = problems({**FILE, "num_procesess": 8})
    assert wrong.nearest == "num_processes"
    (misplaced,) = problems({**FILE, "fsdp_offload_params": True})
    assert misplaced.nearest == "fsdp_config.fsdp_offload_params"


def mesh(**sizes: int) -> dict[str, Any]:
    config = {"fsdp_version": 2, **BLOCKS}
    parallelism = {f"parallelism_config_{name}_size": size for name, size in sizes.items()}
    return {**FILE, "fsdp_config": config, "parallelism_config": parallelism}


def test_a_parallelism_config_is_a_mesh() -> None:
    assert reading(mesh(dp_replicate=2, dp_shard=4)).fsdp.shard_size == 4
    assert reading(mesh(dp_replicate=1, dp_shard=8)).fsdp.shard_size is None


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"dp_shard": 4}, "1 * 4 = 4"),
        ({"dp_replicate": 8}, "dp_shard_size 1"),
        ({"dp_shard": 4, "tp": 2}, "2"),
        ({"cp": 2, "dp_shard": 4}, "2"),
    ],
)  # fmt: skip
def test_a_mesh_that_cannot_be(sizes: dict[str, int], said: str) -> None:
    (wrong,) = problems(mesh(**sizes))
    assert wrong.path.startswith("parallelism_config")
    assert said in wrong.found


def test_a_parallelism_config_is_of_version_2() -> None:
    (wrong,) = problems({**mesh(dp_shard=8), "fsdp_config": BLOCKS})
    assert wrong.path == "parallelism_config"


# --- scenarios --------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a scenario and its accelerate file."""
    (tmp_path / "accelerate.yaml").write_text(yaml.safe_dump(FILE, sort_keys=False))
    training = {"sequence_length": 128, "gradient_accumulation_steps": 2}
    scenario = {"topology": "dgx-a100-80", "model": SMALL, "training": training}
    (tmp_path / "q.yaml").write_text(yaml.safe_dump(scenario | {"strategy": {"fsdp": "accelerate.yaml"}}))
    return tmp_path / "q.yaml"


def value_of(scenario: Scenario) -> Fsdp:
    assert isinstance(scenario.strategy, Fsdp)
    return scenario.strategy


def test_a_file_beside_the_scenario_and_what_a_script_adds(home: Path) -> None:
    scenario = load(home)
    assert value_of(scenario).param_dtype == "bf16"
    assert "no_sync: true" in "".join(scenario.assumptions)
    own = load(home, ["strategy.fsdp={config_file: accelerate.yaml, no_sync: false, gradient_clipping: 1.0}"])
    assert (value_of(own).no_sync, value_of(own).gradient_clipping) == (False, 1.0)
    with pytest.raises(InputError, match="beside config_file"):
        load(home, ["strategy.fsdp={config_file: accelerate.yaml, sharding_strategy: NO_SHARD}"])


def test_changes_lead_into_the_file_by_any_name_of_a_key(home: Path) -> None:
    for change in ("fsdp_sharding_strategy=NO_SHARD", "sharding_strategy=3", "fsdp_config.fsdp_sharding_strategy=3"):
        assert value_of(load(home, [f"strategy.fsdp.{change}"])).sharding_strategy == "NO_SHARD"
    assert value_of(load(home, ["strategy.fsdp.fsdp_offload_params=true"])).cpu_offload
    assert value_of(load(home, ["strategy.fsdp.gradient_clipping=2"])).gradient_clipping == 2
    assert value_of(load(home, ["strategy.fsdp.mixed_precision=fp16"])).compute_dtype == "fp16"


def test_a_wrong_change_is_the_changes_fault(home: Path) -> None:
    for change in ("bogus=1", "fsdp_config.bogus=1", "sharding_strategy=FULL"):
        with pytest.raises(InputError, match=rf"^--set strategy.fsdp.{change}: "):
            load(home, [f"strategy.fsdp.{change}"])


def test_a_mistake_in_the_file_has_its_place(home: Path) -> None:
    file = home.parent / "accelerate.yaml"
    file.write_text(file.read_text().replace("FULL_SHARD", "FULL_SHRAD"))
    with pytest.raises(
        InputError, match=r'accelerate.yaml:7:27: .*found "FULL_SHRAD"; expected .*; nearest FULL_SHARD'
    ):
        load(home)


def test_replacing_keeps_what_no_scenario_may_be() -> None:
    scenario = question({"sharding_strategy": "HYBRID_SHARD", "shard_size": 4})
    with pytest.raises(InputError, match="a number that divides the 6 GPUs"):
        scenario.replace(gpus=6)
    with pytest.raises(InputError, match=r"fp16, as training\.precision"):
        scenario.replace(training={"precision": "fp16"})


def test_a_machine_without_host_memory_has_no_room_for_an_offload() -> None:
    devices: list[dict[str, Any]] = [{"name": name, "kind": "gpu", "device": "l4"} for name in "ab"]
    devices.append({"name": "cpu", "kind": "socket", "cores": 16})
    links = [{"from": name, "to": "cpu", "bandwidth": "31.5 GB/s"} for name in "ab"]
    bare = {"name": "bare", "devices": devices, "links": links}
    mapping = {"topology": bare, "model": SMALL, "training": {"sequence_length": 16}}
    with pytest.raises(InputError, match=r"where strategy\.fsdp\.cpu_offload is true"):
        from_mapping(mapping | {"strategy": {"fsdp": {"cpu_offload": True}}})


def test_the_launch_matters_where_shards_are_offloaded() -> None:
    offloaded, resident = question({"cpu_offload": True}), question({})
    assert any("omp_num_threads unset" in text for text in offloaded.assumptions)
    assert all("omp_num_threads" not in text for text in resident.assumptions)


# --- back to text -----------------------------------------------------------------------------------------------------

_OPTIMIZERS = [fsdp(optimizer=each).optimizer for each in ("AdamW", "sgd", {"type": "AdamW", "fused": False})]
_ONE = {
    "sharding_strategy": st.sampled_from(["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]),
    "backward_prefetch": st.sampled_from(["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]),
    "forward_prefetch": st.booleans(),
    "limit_all_gathers": st.booleans(),
    "use_orig_params": st.booleans(),
}
_TWO = {
    "reshard_after_forward": st.sampled_from([True, False, 2]),
    "root_reshard_after_forward": st.booleans(),
    "reshard_after_backward": st.booleans(),
    "prefetch_forward": st.integers(0, 3),
    "prefetch_backward": st.integers(0, 3),
    "set_is_last_backward": st.booleans(),
    "pin_memory": st.booleans(),
    "shard_size": st.sampled_from([None, 4]),
}
_BOTH = {
    "wrap": st.sampled_from([Wrap(), Wrap(blocks=False), Wrap(blocks=False, least=5), Wrap(False, ("x",))]),
    "param_dtype": st.sampled_from([None, "fp32", "bf16"]),
    "reduce_dtype": st.sampled_from([None, "fp32", "bf16"]),
    "parameter_dtype": st.just("fp32"),
    "cpu_offload": st.booleans(),
    "no_sync": st.booleans(),
    "gradient_clipping": st.sampled_from([0.0, 1.0]),
    "optimizer": st.sampled_from(_OPTIMIZERS),
}  # fmt: skip
VALUES = st.builds(Fsdp, version=st.just(1), **_BOTH, **_ONE) | st.builds(Fsdp, version=st.just(2), **_BOTH, **_TWO)


@given(VALUES)
def test_a_value_reads_as_itself(value: Fsdp) -> None:
    assert reading(fsdp_mapping(value), precision="bf16").fsdp == value


def test_every_field_is_drawn_above() -> None:
    assert {*_BOTH, *_ONE, *_TWO, "version"} == {field.name for field in fields(Fsdp)}


def test_scenarios_reproduce_themselves(home: Path) -> None:
    for scenario in (load(home), question({"version": 2, "mesh": [2, 4]}), question({"fsdp_version": 2, **BLOCKS})):
        again = from_mapping(scenario.text)
        assert (again.strategy, again.training, again.text) == (scenario.strategy, scenario.training, scenario.text)


def test_misfits_of_nothing_known() -> None:
    assert [
        *misfits(Fsdp(shard_size=3, sharding_strategy="HYBRID_SHARD", param_dtype="bf16"), "bf16", None, None)
    ] == []


@pytest.mark.parametrize(
    ("settings", "found", "expected"),
    [
        ({"mesh": [3, 2]}, "[3, 2], a mesh of 6 ranks", "one over the 8 GPUs"),
        ({"mesh": [4]}, "[4], a mesh of 4 ranks", "one over the 8 GPUs"),
        ({"mesh": [2, 4], "version": 1}, "[2, 4]", "none, or a sharding_strategy HYBRID_SHARD or _HYBRID_SHARD_ZERO2"),
    ],
)
def test_a_mesh_is_over_all_ranks(settings: dict[str, Any], found: str, expected: str) -> None:
    (wrong,) = problems(settings)
    assert (wrong.path, wrong.found, wrong.expected) == ("mesh", found, expected)


@pytest.mark.parametrize(
    ("value", "shards", "frees"),
    [
        (Fsdp(), 8, True),
        (Fsdp(sharding_strategy="SHARD_GRAD_OP"), 8, False),
        (Fsdp(sharding_strategy="NO_SHARD"), 1, False),
        (Fsdp(sharding_strategy="HYBRID_SHARD"), 4, True),
        (Fsdp(sharding_strategy="_HYBRID_SHARD_ZERO2", shard_size=2), 2, False),
        (Fsdp(2, reshard_after_forward=False), 8, False),
        (Fsdp(2, reshard_after_forward=1), 8, False),
        (Fsdp(2, reshard_after_forward=2, shard_size=4), 4, True),
    ],
)
def test_how_parameters_are_shared(value: Fsdp, shards: int, frees: bool) -> None:
    """On two nodes of four ranks."""
    assert (value.shards(8, 4), value.frees) == (shards, frees)


# --- answers ----------------------------------------------------------------------------------------------------------


def seven(settings: dict[str, Any], topology: str = "dgx-a100-80", **more: Any) -> Scenario:
    training = {"sequence_length": 2048, "activation_checkpointing": "full"} | more
    mapping = {"title": "7B", "topology": topology, "model": "llama-2-7b", "training": training}
    return from_mapping(mapping | {"strategy": {"fsdp": settings}})


def remedy(scenario: Scenario) -> str:
    return next(each.remedy for each in simulate(scenario).summary().findings if each.code == "out-of-memory")


def test_remedies_speak_of_fsdp() -> None:
    """27 GB of fp32 states a GPU of four do not fit into 25 GB."""
    full = seven({}, "pcie-4x-rtx4090")
    assert "cpu_offload true (saves about" in remedy(full)
    none = seven({"sharding_strategy": "NO_SHARD"})
    assert remedy(none).startswith("sharding_strategy FULL_SHARD (saves about")
    for told in (remedy(full), remedy(none)):
        assert not [word for word in ("ZeRO", "offload_optimizer", "offload_param", "bucket") if word in told]


@pytest.mark.parametrize("change", ["FULL_SHARD", "cpu_offload"])
def test_a_remedy_for_memory_fits(change: str) -> None:
    """SHARD_GRAD_OP on 40 GB GPUs with sequences that leave room for 2 bytes a parameter less."""
    asked = seven({"sharding_strategy": "SHARD_GRAD_OP"}, "dgx-a100-40", micro_batch_size=16)
    assert change in remedy(asked)
    changed = {"sharding_strategy": "FULL_SHARD"} if change == "FULL_SHARD" else {"cpu_offload": True}
    assert simulate(seven(changed, "dgx-a100-40", micro_batch_size=16)).summary().fits


def test_states_of_the_ladder() -> None:
    """16 bytes a parameter over the ranks that shard; 2 more, whole, where bf16 gradients accumulate unsharded."""
    full, numel = seven({}), seven({}).model.numel
    assert states_on_gpu(full) == 16 * numel / 8
    assert states_on_gpu(seven({"version": 2, "mesh": [2, 4]})) == 16 * numel / 4
    assert states_on_gpu(seven({"sharding_strategy": "NO_SHARD"})) == 16 * numel
    assert states_on_gpu(seven({"cpu_offload": True})) == 0
    waiting = seven({"no_sync": True}, gradient_accumulation_steps=4)
    assert states_on_gpu(waiting) == (2 + 2) * numel
    assert states_on_gpu(seven({"parameter_dtype": "bf16"})) == 8 * numel / 8


def test_a_ladder_has_a_rung_for_the_scenarios_own_strategy() -> None:
    scenario = question({"sharding_strategy": "SHARD_GRAD_OP"})
    names = [(rung.rung, rung.strategy) for rung in ladder(scenario, [question({"version": 2})])]
    assert ("FSDP SHARD_GRAD_OP", "fsdp-shard_grad_op") in names
    assert names[-1] == ("FSDP2 FULL_SHARD", "fsdp2-full_shard")
    assert [name for name, _ in names[:5]] == ["one GPU", "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"]


def test_rungs_of_another_framework_have_its_defaults() -> None:
    from zerosim.studies.rungs import Plan, plans

    built = [plan for plan in plans(question({"optimizer": "sgd"})) if isinstance(plan, Plan)]
    strategies = {plan.name: plan.scenario.strategy for plan in built}
    zero = strategies["ZeRO-3"]
    assert isinstance(zero, DeepSpeed)
    assert (zero.gradient_clipping, zero.optimizer.name) == (1.0, "SGD")
    assert isinstance(strategies["DDP"], Ddp)


# --- collected files --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED, reason="ZEROSIM_SHARED is not set: no accelerate files of others")
def test_files_of_others_are_read_or_refused() -> None:
    """All that say FSDP are read, but two with tensor or context parallelism; each refusal is one line."""
    folder = Path(SHARED or "") / "corpus" / "accelerate_yaml"
    outcome: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        try:
            result = read_fsdp(read(file), Beside(world_size=8, ranks_per_node=8))
            outcome[file.name] = f"version {result.fsdp.version}"
        except InputError as error:
            (wrong,) = error.problems
            outcome[file.name] = wrong.path or wrong.found
    texts = {file.name: yaml.safe_load(file.read_text()) for file in folder.iterdir()}
    sharded = {name for name, data in texts.items() if data.get("distributed_type") == "FSDP"}
    refused = {name for name in sharded if not outcome[name].startswith("version")}
    assert {outcome[name].rpartition("_config_")[2] for name in refused} == {"tp_size", "cp_size"}
    others = {outcome[name] for name in texts.keys() - sharded}
    assert others == {"distributed_type", "no distributed_type", "neither"}


def test_the_shipped_file_is_read_as_it_stands() -> None:
    scenario = load(ROOT / "scenarios" / "llama-2-7b-fsdp.yaml")
    assert value_of(scenario).backward_prefetch == "BACKWARD_PRE"
    assert (scenario.training.precision, scenario.training.activation_checkpointing) == ("bf16", "full")
    assert not [each for each in scenario.findings if each.severity != "note"]
