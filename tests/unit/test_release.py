"""A release of DeepSpeed is a knob: each difference between releases, both ways, on a network small enough to count.

The toy has 213,888 parameters; expectations are counted by hand from what the sources of 0.14.5 and 0.19.8 do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.toy import toy, toy_training
from zerosim.errors import InputError
from zerosim.scenario import Scenario, from_mapping
from zerosim.spec.deepspeed import Given, read_deepspeed
from zerosim.spec.deepspeed_mapping import as_mapping
from zerosim.spec.loading import inline
from zerosim.spec.release import CHANGES, CURRENT, KNOBS, Release, number_of, release_of
from zerosim.spec.release_file import read_release, release_text
from zerosim.spec.strategy import DeepSpeed
from zerosim.step import COMPUTE, REDUCE, Collective, HostCompute, Op, Step, Transfer
from zerosim.strategies import build
from zerosim.strategies.flat import flat_layout

PSI = 213_888  # elements of the toy
OLD = "0.14.5"
SMALL = {"reduce_bucket_size": 20_000}
STAGE3 = {
    "stage": 3,
    **SMALL,
    "stage3_prefetch_bucket_size": 14_000,
    "stage3_param_persistence_threshold": 100,
    "stage3_max_live_parameters": 60_000,
    "stage3_max_reuse_distance": 0,
}


def read(release: Release, zero: dict[str, Any], precision: str = "bf16", **top: Any) -> DeepSpeed:
    keys = {"zero_optimization": zero, "optimizer": {"type": "AdamW"}, **top}
    if precision != "fp32":
        keys.setdefault(precision, {})["enabled"] = True
    return read_deepspeed(inline(keys, "ds.json"), Given(world_size=2), release).deepspeed


def step(
    knobs: dict[str, Any] | str, zero: dict[str, Any], precision: str = "bf16", micro_steps: int = 1, **top: Any
) -> Step:
    """The toy's step in a release, or in the current one with single knobs of another."""
    release = release_of(knobs) if isinstance(knobs, str) else replace(Release(), **knobs)
    checkpointing = "full" if "activation_checkpointing" in top else "none"
    training = toy_training(
        precision=precision, gradient_accumulation_steps=micro_steps, activation_checkpointing=checkpointing
    )
    config = read(release, zero, precision, gradient_accumulation_steps=micro_steps, **top)
    if "activation_checkpointing" in top:
        config = replace(config, cpu_checkpointing=True)
    return build(config, toy(), training, 2)[0].check()


def collectives(step: Step, phase: str | None = None) -> list[tuple[str, int, str]]:
    works = [op.work for op in step.ops if isinstance(op.work, Collective) and phase in (None, op.phase)]
    return [(work.kind, work.elements, work.dtype) for work in works]


def copies(step: Step, source: str) -> list[Op]:
    return [op for op in step.ops if isinstance(op.work, Transfer) and op.work.source == source]


def moved(step: Step, source: str, phase: str = "backward") -> float:
    works = [op.work for op in copies(step, source) if op.phase == phase]
    return sum(work.bytes for work in works if isinstance(work, Transfer))


def waits(step: Step) -> int:
    """How often the host waits."""
    return sum(bool(op.host_waits) for op in step.ops)


# --- the value and the table -----------------------------------------------------------------------------------------


def test_the_current_release_is_the_default() -> None:
    assert release_of(CURRENT) == Release()
    assert release_of("0.20.1") == replace(Release(), version="0.20.1")


def test_every_knob_was_otherwise_once() -> None:
    assert {change.knob for change in CHANGES} == set(KNOBS)
    for change in CHANGES:
        assert change.value != getattr(Release(), change.knob) or change.knob == "compute_waits"
        assert change.source
        assert change.grade in "SHA"


def test_changes_of_a_knob_come_in_order() -> None:
    for knob in KNOBS:
        numbers = [number_of(change.until) for change in CHANGES if change.knob == knob]
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.knob}-{change.until}")
def test_a_release_has_the_change_and_the_one_before_has_not(change: Any) -> None:
    major, minor, patch = number_of(change.until)
    before = f"{major}.{minor}.{patch - 1}" if patch else f"{major}.{minor - 1}.9"
    assert getattr(release_of(before), change.knob) == change.value
    assert getattr(release_of(change.until), change.knob) != change.value


def test_releases_that_were_run() -> None:
    old = release_of(OLD)
    assert (old.gradient_clipping, old.pin_memory, old.bf16_overflow_check) == (0.0, False, "never")
    assert (old.compute_waits, old.mics, old.rooted_reduces) == ("previous", True, False)
    assert release_of("0.18.0").compute_waits == "issued"
    assert release_of("0.12.3").rooted_reduces


@pytest.mark.parametrize("written", ["0.14.5", "0.14.5+cu121", "0.14.5rc1", " 0.14.5 ", "0.14.5.dev0"])
def test_what_follows_the_three_numbers_is_left_out(written: str) -> None:
    assert release_of(written) == release_of(OLD)


# --- defaults and keys -----------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_release() -> None:
    offload = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    for version, clipping, pinned, checked in ((OLD, 0.0, False, False), (CURRENT, 1.0, True, True)):
        config = read(release_of(version), offload)
        assert config.gradient_clipping == clipping
        assert config.zero.offload_optimizer.pin_memory is pinned
        assert config.check_grad_overflow is checked


@pytest.mark.parametrize(
    ("version", "given", "checked"),
    [(OLD, True, False), ("0.16.0", False, True), ("0.18.0", None, False), ("0.18.0", True, True),
     (CURRENT, None, True), (CURRENT, False, False)],
)  # fmt: skip
def test_the_overflow_check_of_bf16(version: str, given: bool | None, checked: bool) -> None:
    section = {} if given is None else {"check_grad_overflow": given}
    assert read(release_of(version), {"stage": 2}, bf16=section).check_grad_overflow is checked


def test_a_key_that_a_release_does_not_know_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        read(release_of(OLD), {"stage": 3, "leaf_module": {"names": ["b1"]}, "stage3_allgather_sequential": True})
    assert [problem.path for problem in caught.value.problems] == [
        "zero_optimization.leaf_module",
        "zero_optimization.stage3_allgather_sequential",
    ]
    assert all("0.14.5 does not know" in problem.found for problem in caught.value.problems)


@pytest.mark.parametrize("version", [OLD, "0.12.3", "0.18.0", CURRENT])
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("offload", [{}, {"offload_optimizer": {"device": "cpu"}}])
def test_a_configuration_written_out_reads_as_itself(version: str, stage: int, offload: dict[str, Any]) -> None:
    config = read(release_of(version), {"stage": stage, **(offload if stage else {})})
    again = read_deepspeed(inline(as_mapping(config, "bf16"), "x"), Given(world_size=2), config.release)
    assert again.deepspeed == config
    told = [finding for finding in again.findings if "check_grad_overflow" in finding.message]
    assert not told or (config.release.reads_check_grad_overflow and stage in (0, 3))


def test_defects_are_told() -> None:
    def codes(version: str, zero: dict[str, Any], micro_steps: int = 1) -> list[str]:
        keys = {"zero_optimization": zero, "gradient_accumulation_steps": micro_steps}
        told = read_deepspeed(inline(keys, "x"), Given(world_size=2), release_of(version)).findings
        return [finding.remedy for finding in told if finding.code == "release-defect"]

    assert codes("0.17.3", {"stage": 2, "overlap_comm": True}) == ["It is gone in 0.17.5."]
    assert codes("0.17.3", {"stage": 2}) == codes("0.17.3", {"stage": 3}) == []
    host = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    assert codes(OLD, host, 2) == ["It is gone in 0.15.2."]
    assert codes(OLD, host) == codes(CURRENT, host, 2) == []


# --- what a step does: stages 0 to 2 ---------------------------------------------------------------------------------


def test_stage_0_in_bf16_once_sharded_its_states() -> None:
    zero = {"stage": 0}
    assert collectives(step(CURRENT, zero)) == [("all_reduce", PSI, "bf16")]
    old = step(OLD, zero)
    assert collectives(old) == [("all_reduce", PSI, "bf16"), ("all_gather", PSI, "bf16")]
    assert [op.phase for op in old.ops if isinstance(op.work, Collective)] == ["backward", "optimizer"]
    whole = sum(buffer.bytes for number, buffer in enumerate(old.buffers) if number in old.resident)
    assert whole == 2 * PSI + 4 * PSI + 12 * PSI / 2  # parameters, fp32 sums, half of master and states
    assert collectives(step(OLD, zero, "fp32")) == [("all_reduce", PSI, "fp32")]  # no clipping by default, so no norm


def test_buckets_were_once_reduced_owner_by_owner() -> None:
    zero = {"stage": 2, **SMALL}
    new, old = (collectives(step(knobs, zero), "backward") for knobs in ({}, {"rooted_reduces": True}))
    assert [kind for kind, *_ in new] == ["all_reduce"] * 11
    assert [kind for kind, *_ in old] == ["reduce"] * 12  # one bucket has two owners
    assert sum(size for _, size, _ in new) == sum(size for _, size, _ in old) == PSI


def test_updated_weights_were_once_gathered_in_pieces() -> None:
    zero = {"stage": 1, "allgather_bucket_size": 50_000}
    gathers = [work for work in collectives(step({"list_all_gather": True}, zero)) if work[0] == "all_gather"]
    share = PSI // 2 // 4  # 213,888 / 50,000: four pieces
    assert [size for _, size, _ in gathers] == [2 * share] * 4
    assert sum(size for _, size, _ in gathers) == PSI
    made = [
        len(op.gathers) for op in step({"list_all_gather": True}, zero).ops if op.phase == "optimizer" and op.gathers
    ]
    assert made == [len(toy().parameters)]  # by the last of them
    odd = {"stage": 1, "allgather_bucket_size": 70_000}  # three pieces of 35,648, the share of 106,944 by 3
    assert [s for k, s, _ in collectives(step({"list_all_gather": True}, odd)) if k == "all_gather"] == [71_296] * 3
    assert [s for k, s, _ in collectives(step({}, zero)) if k == "all_gather"] == [PSI]


@pytest.mark.parametrize(("knob", "expected"), [("nothing", 0), ("previous", 1), ("issued", 2)])
def test_what_the_compute_lane_waits_for_at_a_flush(knob: str, expected: int) -> None:
    """The copy of the next gradient comes after: no reduction, the one before last, or the last."""
    written = step({"compute_waits": knob}, {"stage": 2, **SMALL, "overlap_comm": True})
    reductions = [op.number for op in written.ops if isinstance(op.work, Collective) and op.phase == "backward"]
    third = reductions[2]
    fill = next(op for op in written.ops if op.number > third and op.name == "copy gradient to bucket")
    streams = {op.number: op.stream for op in written.ops}
    before: set[int] = set()
    for op in written.ops[: fill.number + 1]:
        if op.stream == COMPUTE:
            before |= {after for after in op.after if streams[after] != COMPUTE}
    reached = max(
        (written.ops[number].number for number in before if streams[number] in (REDUCE, "nccl.dp")), default=-1
    )
    if expected == 0:
        assert reached == -1
    elif expected == 1:
        assert reductions[1] <= reached < third
    else:
        assert reached >= third


def test_without_overlap_no_release_waits() -> None:
    zero = {"stage": 2, **SMALL}
    assert step({"compute_waits": "issued"}, zero) == step({"compute_waits": "nothing"}, zero) == step({}, zero)


def test_updated_weights_once_went_up_in_fp32() -> None:
    zero = {"stage": 2, **SMALL, "offload_optimizer": {"device": "cpu"}}
    new, old = step({}, zero), step({"copies_fp32_weights": True}, zero)
    assert moved(new, "dram", "optimizer") == 2 * PSI / 2
    assert moved(old, "dram", "optimizer") == 4 * PSI / 2
    (up,) = [op for op in copies(old, "dram") if op.phase == "optimizer"]
    assert any(up.number in op.host_waits for op in old.ops)  # a plain `.to(device)`
    assert not [op for op in old.ops if isinstance(op.work, HostCompute) and op.work.kind == "cast"]


def test_sums_in_host_memory() -> None:
    """Of the tensors that touch the first half of the toy, in bf16; three micro-steps."""
    zero = {"stage": 2, **SMALL, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    touched = sum(p.numel for p in toy().parameters[:12]) + 12_288  # 105,... up to the tensor that straddles
    share = PSI // 2
    new, old = (step(knobs, zero, micro_steps=3) for knobs in ({}, {"host_sums": "unless_last"}))
    whole = (moved(new, "gpu") - 4 * share) / (3 * 2)
    assert moved(old, "gpu") == 2 * 2 * whole + 4 * share  # two sums down, not the third
    assert moved(new, "dram") == moved(old, "dram") == 2 * 2 * whole
    assert share <= whole <= touched + share
    stage1 = {**zero, "stage": 1}
    assert moved(step({}, stage1, micro_steps=3), "dram") == 0
    assert moved(step({"host_sums": "unless_last"}, stage1, micro_steps=3), "dram") == 2 * whole  # zeros come up


def test_offloaded_gradients_are_guarded() -> None:
    zero = {"stage": 2, **SMALL, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}}
    assert waits(step({}, zero, micro_steps=2)) > waits(step({"guards_offload": False}, zero, micro_steps=2))


def test_the_host_reads_the_norm() -> None:
    for zero in ({"stage": 2, **SMALL}, STAGE3):
        read_by = [sum(op.host.reads for op in step(knobs, zero).ops) for knobs in ({}, {"reads_norm": False})]
        assert read_by[0] == read_by[1] + 1


def test_gradients_were_once_scaled_by_one() -> None:
    zero = {"stage": 2, **SMALL}
    named = [[op.name for op in step(knobs, zero, gradient_clipping=0).ops] for knobs in ({}, {"scales_always": True})]
    assert ["scale gradients" in names for names in named] == [False, True]


def test_parameters_may_be_aligned_in_the_flat_buffer() -> None:
    """Each but the last is followed by what is missing to 16 bytes, 8 elements of bf16; two ranks, so 4 elements."""
    assert flat_layout([5, 9, 0, 3], 2).offsets == {0: 0, 1: 5, 3: 14}
    aligned = flat_layout([5, 9, 0, 3], 2, alignment=8)
    assert aligned.offsets == {0: 0, 1: 8, 3: 24}
    assert (aligned.padded, aligned.share) == (28, 14)


def test_a_step_may_go_without_the_norm() -> None:
    zero = {"stage": 2, **SMALL, "compute_grad_norm": False}
    without = step({}, zero, gradient_clipping=0)
    assert ("all_reduce", 1, "fp32") not in collectives(without)
    assert ("all_reduce", 1, "uint8") in collectives(without)  # overflow is looked for all the same


# --- stage 3 ---------------------------------------------------------------------------------------------------------


def test_gradients_of_stage_3_once_held_the_host() -> None:
    zero = {**STAGE3, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    new, old = step({}, zero), step({"async_gradient_copies": False}, zero)
    share = PSI // 2
    assert moved(new, "gpu") == (2 + 4) * share  # as it accumulates, and in fp32
    assert moved(old, "gpu") == (2 + 2) * share  # it is cast where it lands
    casts = [op.work for op in old.ops if isinstance(op.work, HostCompute) and op.phase == "backward"]
    assert sum(work.elements for work in casts) == share
    assert {work.dram_bytes / work.elements for work in casts} == {6.0}
    assert not [op for op in new.ops if isinstance(op.work, HostCompute) and op.phase == "backward"]


def test_leftovers_once_stayed_till_the_step() -> None:
    """The embedding, 32,768 elements, has no post-hook: later micro-steps find it."""
    new, old = (step(knobs, STAGE3, micro_steps=3) for knobs in ({}, {"keeps_leftovers": True}))

    def embedding(step: Step) -> list[tuple[int, str]]:
        return [(op.micro_batch, op.phase) for op in step.ops if 0 in op.gathers]

    assert embedding(new) == [(m, phase) for m in range(3) for phase in ("forward", "backward")]
    assert embedding(old) == [(0, "forward"), (0, "backward"), (1, "backward"), (2, "backward")]
    assert collectives(old, "optimizer") == collectives(new, "optimizer")


def test_the_count_of_live_parameters_once_went_below_zero() -> None:
    """What the step drops is subtracted from nothing: the first micro-step may gather further ahead."""
    zero = {**STAGE3, "stage3_prefetch_bucket_size": 60_000, "stage3_max_live_parameters": 34_000}
    keeps = {"keeps_leftovers": True}
    new, old = (step(knobs, zero) for knobs in (keeps, {**keeps, "resets_after_backward": True}))

    def ahead(step: Step) -> int:
        """Elements on their way when the first kernel is launched."""
        run = next(op.number for op in step.ops if op.name == "emb fwd")
        return sum(op.work.elements for op in step.ops[:run] if isinstance(op.work, Collective))

    # The root gathers the embedding, 32,768, and, as that is below 34,000, the next, 12,288. Dropped with 896
    # persistent elements by the step before, the embedding left a count of -33,664: the root goes up to 60,000, by
    # 4,096 and 16,384 more, and as 31,872 are then counted the embedding's own hook gathers another 16,384.
    assert (ahead(new), ahead(old)) == (45_056, 81_920)


def test_nn_linear_once_stayed_torchs() -> None:
    """Where the model was not built under zero.Init autograd keeps the gathered weights of its linears."""
    new, old = step({}, STAGE3), step({"replaces_linear": False}, STAGE3)
    assert collectives(new) == collectives(old)

    def peak(step: Step) -> float:
        """Bytes of gathered parameters at the end of the forward, by the host's count."""
        held = 0.0
        for op in step.ops:
            if op.phase != "forward":
                break
            held += sum(step.buffers[b].bytes for b in op.acquires if step.buffers[b].category == "parameters")
            held -= sum(step.buffers[b].bytes for b in op.releases if step.buffers[b].category == "parameters")
        return held

    # three blocks of 12,288 + 4,096 + 16,384 + 16,384 elements in bf16; the last ones are there anyway
    assert 2 * 2 * 49_152 <= peak(old) - peak(new) <= 3 * 2 * 49_152


def test_block_inputs_were_once_copied_plainly() -> None:
    top: dict[str, Any] = {"activation_checkpointing": {"cpu_checkpointing": True}}
    new, old = (step(knobs, {"stage": 2, **SMALL}, **top) for knobs in ({}, {"pinned_checkpoints": False}))
    size = 16 * 64 * 2.0  # tokens x hidden x bytes
    assert [op.work.bytes for op in copies(old, "gpu")] == [size] * 3  # type: ignore[union-attr]  # copies
    assert [op.work.bytes for op in copies(old, "dram")] == [size] * 3  # type: ignore[union-attr]  # copies
    assert len(copies(new, "gpu")) == 2  # the newest stays
    for op in (*copies(old, "gpu"), *copies(old, "dram")):
        assert op.stream == COMPUTE
        assert any(op.number in other.host_waits for other in old.ops)


# --- the section of a scenario ---------------------------------------------------------------------------------------


def scenario(versions: Any = None, **strategy: Any) -> Scenario:
    mapping = {
        "title": "versions",
        "topology": "dgx-a100-80",
        "gpus": 2,
        "model": {"layers": 2, "hidden": 256, "heads": 4, "vocab": 1024},
        "training": {"sequence_length": 128, "precision": "bf16"},
        "strategy": strategy or {"deepspeed": {"zero_optimization": {"stage": 2}}},
    }
    return from_mapping(mapping if versions is None else {**mapping, "versions": versions})


def release(scenario: Scenario) -> Release:
    assert isinstance(scenario.strategy, DeepSpeed)
    return scenario.strategy.release


def test_a_scenario_names_the_release() -> None:
    assert release(scenario()) == Release()
    assert release(scenario({"deepspeed": OLD})) == release_of(OLD)
    mixed = release(scenario({"deepspeed": OLD, "knobs": {"keeps_leftovers": False, "gradient_clipping": 1}}))
    assert mixed == replace(release_of(OLD), keeps_leftovers=False, gradient_clipping=1.0)
    assert release(scenario({"knobs": {"compute_waits": "issued"}})) == replace(Release(), compute_waits="issued")


def test_text_of_a_scenario_reads_as_itself() -> None:
    for versions in (None, {"deepspeed": OLD}, {"deepspeed": "0.18.0", "knobs": {"reads_norm": True}}):
        first = scenario(versions)
        assert first.text.get("versions") == versions
        assert from_mapping(first.text).strategy == first.strategy


def test_findings_of_a_release() -> None:
    def codes(versions: Any) -> list[tuple[str, str]]:
        told = scenario(versions).findings
        return [(finding.code, finding.severity) for finding in told if finding.code == "release-not-read"]

    assert codes({"deepspeed": OLD}) == codes({"deepspeed": CURRENT}) == codes(None) == []
    assert codes({"deepspeed": "0.16.0"}) == [("release-not-read", "note")]
    assert codes({"deepspeed": "0.21.0"}) == [("release-not-read", "warning")]


def test_where_deepspeed_does_not_run_the_section_changes_nothing() -> None:
    told = scenario({"deepspeed": OLD}, ddp={}).findings
    assert "versions (deepspeed) changes nothing in a step: DeepSpeed does not run." in [f.message for f in told]


@pytest.mark.parametrize(
    ("versions", "found", "nearest"),
    [
        ({"deepspeed": 0.14}, "0.14", f'"{CURRENT}"'),
        ({"deepspeed": "0.14"}, '"0.14"', f'"{CURRENT}"'),
        ({"deepspeed": "0.9.5"}, '"0.9.5"', f'"{CURRENT}"'),
        ({"deepspeed": "latest"}, '"latest"', f'"{CURRENT}"'),
        ({"deepspeed": None}, "null", f'"{CURRENT}"'),
        ({"deepsped": OLD}, 'unknown key "deepsped"', "deepspeed"),
        ({"knobs": {"keeps_leftover": True}}, 'unknown key "keeps_leftover"', "keeps_leftovers"),
        ({"knobs": {"keeps_leftovers": 1}}, "1", ""),
        ({"knobs": {"compute_waits": "all"}}, '"all"', ""),
        ({"knobs": {"gradient_clipping": -1}}, "-1", ""),
        ({"knobs": {"gradient_clipping": True}}, "true", ""),
        ({"knobs": 3}, "3", ""),
    ],
)
def test_wrong_versions(versions: Any, found: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario(versions)
    (problem,) = caught.value.problems
    assert (problem.found, problem.nearest) == (found, nearest)
    assert problem.path.startswith("versions")


def test_a_release_that_cannot_be_read_refuses_no_key() -> None:
    with pytest.raises(InputError) as caught:
        scenario({"deepspeed": "x"}, deepspeed={"zero_optimization": {"stage": 3, "mics_shard_size": 2}})
    assert [problem.path for problem in caught.value.problems] == ["versions.deepspeed"]


def test_all_mistakes_of_the_section_are_told() -> None:
    with pytest.raises(InputError) as caught:
        read_release(inline({"deepspeed": 1, "other": 2, "knobs": {"x": 1, "mics": 3}}, "x"))
    assert len(caught.value.problems) == 4


def test_text_of_a_release() -> None:
    config = DeepSpeed()
    assert release_text(config) is None
    changed = replace(config, release=replace(release_of(OLD), mics=False))
    assert release_text(changed) == {"deepspeed": OLD, "knobs": {"mics": False}}
