"""What differs between releases of DeepSpeed, one field a difference, so that each can be set by itself.

0.14.5 and 0.19.8 were read and run; what a release between them does is the project's history. `CHANGES` says for each
difference up to which release it was otherwise, and how well that is known (`grade`):
S  both sources were read, and runs of both agree; the release of the change is the history's
H  the history: release notes and documentation
A  it changed between 0.14.5 (or, "after 0.19.5", that one) and 0.19.8; which release is taken here is a choice
How the section of a scenario is read stands in `release_file`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

CURRENT = "0.19.8"
OLDEST = "0.12.0"  # releases before it differ in ways that are not listed here
READ = ("0.14.5", CURRENT)  # releases whose source was read and that were run

Number = tuple[int, int, int]
Waits = Literal["nothing", "previous", "issued"]
OverflowCheck = Literal["never", "always", "on_request", "by_default"]
HostSums = Literal["whole", "unless_last"]


@dataclass(frozen=True, slots=True)
class Release:
    """How a release behaves where another does not. The defaults are those of CURRENT.

    Defaults of its configuration:
    `gradient_clipping`, `pin_memory`: of the keys of that name. `bf16_overflow_check`: whether stages 1 and 2 look for
    overflow in bf16: never, always, or as `bf16.check_grad_overflow` says, which is off (`on_request`) or on
    (`by_default`) where nobody says it. `mics`: whether there is MiCS.

    Stages 0 to 2:
    `stage0_bf16_optimizer`: stage 0 in bf16 is BF16_Optimizer, which shards its states and sums gradients in fp32.
    `rooted_reduces`: a bucket is reduced owner by owner, whatever use_multi_rank_bucket_allreduce says.
    `list_all_gather`: updated weights are gathered in pieces of allgather_bucket_size.
    `compute_waits`: with overlap_comm, for which reduction the compute lane waits at a flush: for none (a race), for
    the previous one, or for the one just issued, so that nothing overlaps.
    `copies_fp32_weights`: with an offloaded optimizer the updated weights go up in fp32 and are cast on the GPU.
    `host_sums`: of gradients that accumulate in host memory the `whole` sum goes down in every micro-step, or in all
    `unless_last`; the older way stage 1 does it too.
    `guards_offload`: the reduction waits for what filled its bucket, and the host for each copy of an accumulated
    gradient before the next.
    `compact_sums`: gradients that accumulate in fp32 do so in one flat buffer of the partition, and stage 1 has fp32
    buckets; else in whole tensors, and buckets are in the model's dtype.

    Stages 1 to 3:
    `reads_norm`: the host reads whether the norm is finite. `scales_always`: gradients are multiplied even by 1.

    Stage 3:
    `async_gradient_copies`: gradients of an offloaded optimizer go down without the host waiting, in fp32.
    `keeps_leftovers`: parameters of modules without a post-hook in the backward stay gathered until the step.
    `resets_after_backward`: the count of live parameters is set to 0 at the end of each backward, not at the start of
    a forward; what the step drops then makes it negative.
    `replaces_linear`: nn.Linear is DeepSpeed's, also where the model was not built under `zero.Init`.

    Activations:
    `pinned_checkpoints`: with cpu_checkpointing, inputs of blocks are copied on a stream of their own.
    """

    version: str = CURRENT
    gradient_clipping: float = 1.0
    pin_memory: bool = True
    bf16_overflow_check: OverflowCheck = "by_default"
    mics: bool = False
    stage0_bf16_optimizer: bool = False
    rooted_reduces: bool = False
    list_all_gather: bool = False
    compute_waits: Waits = "previous"
    copies_fp32_weights: bool = False
    host_sums: HostSums = "whole"
    guards_offload: bool = True
    compact_sums: bool = True
    reads_norm: bool = True
    scales_always: bool = False
    async_gradient_copies: bool = True
    keeps_leftovers: bool = False
    resets_after_backward: bool = False
    replaces_linear: bool = True
    pinned_checkpoints: bool = True

    @property
    def reads_check_grad_overflow(self) -> bool:
        """Whether there is the key bf16.check_grad_overflow."""
        return self.bf16_overflow_check in ("on_request", "by_default")

    @property
    def number(self) -> Number:
        return number_of(self.version)

    def before(self, version: str) -> bool:
        """Whether it is older than another."""
        return self.number < number_of(version)

    def knows(self, key: str) -> bool:
        """Whether it is not too old for a key of zero_optimization, by the name that DeepSpeed's classes give it."""
        return key not in FIRST_KNOWN or not self.before(FIRST_KNOWN[key])

    @property
    def knobs(self) -> dict[str, Any]:
        """What was set by itself: differences from what its version does."""
        own = release_of(self.version)
        return {name: getattr(self, name) for name in KNOBS if getattr(self, name) != getattr(own, name)}


KNOBS: tuple[str, ...] = tuple(field.name for field in fields(Release) if field.name != "version")


class Change(NamedTuple):
    """Before the release `until` a knob had `value`; of several the first that holds counts."""

    knob: str
    until: str
    value: Any
    grade: Literal["S", "H", "A"]
    source: str


CHANGES: tuple[Change, ...] = (
    Change("gradient_clipping", "0.19.3", 0.0, "S", "runtime/constants.py, GRADIENT_CLIPPING_DEFAULT"),
    Change("pin_memory", "0.19.5", False, "S", "runtime/zero/offload_config.py"),
    # stage_1_and_2.py, step: 0.14.5 checks fp16 only
    Change("bf16_overflow_check", "0.15.0", "never", "A", "runtime/zero/stage_1_and_2.py, step"),
    Change("bf16_overflow_check", "0.17.1", "always", "H", "runtime/zero/stage_1_and_2.py, step"),
    Change("bf16_overflow_check", "0.19.3", "on_request", "H", "runtime/precision_config.py"),
    Change("mics", "0.19.6", True, "A", "runtime/zero/config.py; in 0.14.5, gone in 0.19.8"),
    Change("stage0_bf16_optimizer", "0.17.1", True, "A", "runtime/engine.py, _do_optimizer_sanity_check"),
    Change("rooted_reduces", "0.12.4", True, "H", "runtime/zero/stage_1_and_2.py, average_tensor"),
    Change("list_all_gather", "0.12.4", True, "H", "runtime/utils.py, all_gather_dp_groups"),
    Change("compute_waits", "0.14.3", "nothing", "H", "runtime/zero/stage_1_and_2.py, average_tensor"),
    Change("compute_waits", "0.17.5", "previous", "S", "runtime/zero/stage_1_and_2.py, average_tensor"),
    Change("compute_waits", "0.18.5", "issued", "H", "runtime/zero/stage_1_and_2.py, average_tensor"),
    Change("copies_fp32_weights", "0.17.0", True, "S", "runtime/zero/stage_1_and_2.py, step"),
    Change("host_sums", "0.15.2", "unless_last", "S", "stage_1_and_2.py, async_accumulate_grad_in_cpu_via_gpu"),
    Change("guards_offload", "0.19.6", False, "A", "stage_1_and_2.py, _offload_gradient_safety_enabled"),
    Change("compact_sums", "0.19.6", False, "A", "stage_1_and_2.py, _use_compact_grad_partition_buffer; not in 0.14.5"),
    Change("reads_norm", "0.19.6", False, "A", "runtime/utils.py, is_invalid_grad_norm; after 0.19.5"),
    Change("scales_always", "0.19.6", True, "A", "stage_1_and_2.py, unscale_and_clip_grads; after 0.19.5"),
    Change("async_gradient_copies", "0.19.5", False, "S", "runtime/zero/stage3.py, partition_grads"),
    Change("keeps_leftovers", "0.19.6", True, "A", "runtime/zero/stage3.py, backward_epilogue; after 0.19.5"),
    Change("resets_after_backward", "0.16.2", True, "A", "runtime/zero/parameter_offload.py, setup_zero_stage3_hooks"),
    Change("replaces_linear", "0.19.6", False, "A", "runtime/zero/partition_parameters.py, Init"),
    Change("pinned_checkpoints", "0.19.6", False, "H", "runtime/activation_checkpointing/checkpointing.py"),
)

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:[.+-]?[A-Za-z][\w.+-]*|\+[\w.]+)?")


def number_of(version: str) -> Number:
    """The three numbers of a version; what follows them (0.14.5+cu121, 0.16.0rc1) is left out. ValueError."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ValueError(f"no release of DeepSpeed: {version!r}")
    major, minor, patch = (int(part) for part in match.groups())
    return major, minor, patch


def release_of(version: str) -> Release:
    """What a release does; one that is newer than CURRENT does what that does. ValueError where it is no version."""
    number = number_of(version)
    values: dict[str, Any] = {}
    for change in CHANGES:
        if number < number_of(change.until):
            values.setdefault(change.knob, change.value)
    return replace(Release(), version=".".join(map(str, number)), **values)


class Defect(NamedTuple):
    """Releases from `first` on and before `fixed` go wrong so in runs of a kind; they are played as if they did not."""

    first: str
    fixed: str
    kind: Literal["overlap", "host_sums"]
    what: str

    def strikes(self, release: Release) -> bool:
        return number_of(self.first) <= release.number < number_of(self.fixed)


DEFECTS: tuple[Defect, ...] = (
    Defect("0.12.0", "0.14.3", "overlap", "a bucket may be overwritten while it is reduced"),
    Defect("0.17.2", "0.17.5", "overlap", "the two buckets are mixed up"),
    Defect("0.12.0", "0.15.2", "host_sums", "gradients that accumulate in host memory may be wrong"),
)

# Keys that a release refuses or, outside of zero_optimization, ignores, for it does not know them yet: all are absent
# from 0.14.5 (runtime/zero/config.py, offload_config.py, read), but for the first (history). Two came after 0.19.5.
FIRST_KNOWN: dict[str, str] = {"use_multi_rank_bucket_allreduce": "0.12.4"} | dict.fromkeys(
    (
        "zenflow", "module_granularity_threshold", "allgather_sequential", "log_trace_cache_warnings",
        "enable_sanity_checks", "save_muon_momentum_buffer_in_memory", "leaf_module", "super_offload",
        "cpuadam_cores_perc",
    ), "0.14.6",
) | dict.fromkeys(("compute_grad_norm", "parameter_alignment"), "0.19.6")  # fmt: skip
