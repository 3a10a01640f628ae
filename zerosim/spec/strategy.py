"""How the model is spread over ranks: the values that the readers of their settings produce.

Field names are the frameworks' own keys (stage-3 keys without the `stage3_` prefix, as DeepSpeed's own classes have
them). Everything is resolved: no `auto`, no null that means something else. Sizes of buckets are elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.hierarchical import HierarchicalZero1
from zerosim.spec.optimizer_value import Optimizer
from zerosim.spec.release import Release

__all__ = [
    "ENOUGH", "UNLIMITED", "Aio", "Ddp", "DeepSpeed", "Fsdp", "HierarchicalZero1", "LeafModule", "Offload", "Optimizer",
    "Pipeline", "Release", "Schedule", "Stage", "Strategy", "Zero",
]  # fmt: skip

Stage = Literal[0, 1, 2, 3]
Schedule = Literal["naive", "gpipe", "1f1b"]
UNLIMITED = 2**63 - 1  # sys.maxsize in DeepSpeed: "no limit"
ENOUGH = -1  # a `buffer_count` of as many as the step needs; no file can say it, a study can


@dataclass(frozen=True, slots=True)
class Offload:
    """`offload_optimizer` or `offload_param`. `buffer_size` and `max_in_cpu` are elements."""

    device: Literal["none", "cpu", "nvme"] = "none"
    nvme_path: str | None = None
    buffer_count: int = 4
    buffer_size: int = 100_000_000
    max_in_cpu: int = 1_000_000_000
    pin_memory: bool = True
    pipeline_read: bool = False
    pipeline_write: bool = False
    fast_init: bool = False
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Aio:
    """The `aio` section: how drives are asked (runtime/swap_tensor/aio_config.py). `block_size` is bytes.

    `least_swapped`: bytes of the smallest tensor that leaves host memory (MIN_AIO_BYTES of swap_tensor/utils.py).
    """

    block_size: int = 1_048_576
    queue_depth: int = 8
    intra_op_parallelism: int = 1
    single_submit: bool = False
    overlap_events: bool = True
    use_gds: bool = False

    @property
    def least_swapped(self) -> int:
        return max(1_048_576, self.block_size)

    @property
    def in_flight(self) -> int:
        """Bytes that a rank asks of the drives at once: each thread has a queue of its own."""
        return self.block_size * self.queue_depth * self.intra_op_parallelism

    @property
    def in_turn(self) -> bool:
        """Whether a thread waits for all of its queue before it asks for more, as it also does with a queue of one
        (csrc/aio/common/deepspeed_aio_common.cpp). `single_submit` changes only the number of system calls."""
        return not self.overlap_events or self.queue_depth == 1


class LeafModule(NamedTuple):
    """`leaf_module` of stage 3: modules below which it sees nothing, by name. Classes are not names of modules here."""

    names: tuple[str, ...] = ()
    name_suffixes: tuple[str, ...] = ()


NO_LEAF = LeafModule()


@dataclass(frozen=True, slots=True)
class Zero:
    """`zero_optimization`, defaults of DeepSpeed 0.19 (runtime/zero/config.py)."""

    stage: Stage = 0
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    reduce_bucket_size: int = 500_000_000
    use_multi_rank_bucket_allreduce: bool = True
    allgather_partitions: bool = True
    allgather_bucket_size: int = 500_000_000
    overlap_comm: bool = False  # resolved: null means True for stage 3, False otherwise
    overlap_comm_given: bool = False  # it was not null, and stays at another stage
    offload_param: Offload = field(default_factory=lambda: Offload(buffer_count=5))
    offload_optimizer: Offload = field(default_factory=Offload)
    sub_group_size: int = 1_000_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    model_persistence_threshold: int = UNLIMITED
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    use_all_reduce_for_fetch_params: bool = False
    allgather_sequential: bool = False
    zero_hpz_partition_size: int = 1  # ranks that share a secondary shard (ZeRO++ hpZ); 1: there is none
    zero_quantized_weights: bool = False  # qwZ: int8 on the wire of a gather
    zero_quantized_nontrainable_weights: bool = False
    zero_quantized_gradients: bool = False  # qgZ: two all-to-alls of int4 instead of a reduce-scatter
    mics_shard_size: int = -1  # MiCS: ranks that shard everything; -1: not MiCS
    mics_hierarchical_params_gather: bool = False
    memory_efficient_linear: bool = True  # nn.Linear does not keep its gathered weight for the backward
    module_granularity_threshold: int = 0  # above 0: modules of few elements a module become leaf modules
    leaf_module: LeafModule = NO_LEAF
    compute_grad_norm: bool = True
    parameter_alignment: bool = False  # each parameter begins at 16 bytes of the flat buffer
    round_robin_gradients: bool = False
    gather_16bit_weights_on_model_save: bool = False  # this and the next two: saving and loading only
    pipeline_loading_checkpoint: bool = False
    elastic_checkpoint: bool = False

    @property
    def optimizer_on_host(self) -> bool:
        """Whether the CPU runs the optimizer, wherever its states are kept."""
        return self.stage > 0 and self.offload_optimizer.device != "none"

    @property
    def exchanges_gradients(self) -> bool:
        """Whether gradients go by the exchanges of qgZ."""
        return self.stage == 3 and self.zero_quantized_gradients and self.mics_shard_size <= 0

    @property
    def offloadable(self) -> Zero:
        """Without what DeepSpeed does not do beside its offloads: MiCS, and hpZ with parameters on NVMe."""
        mics = self.mics_shard_size if {self.offload_optimizer.device, self.offload_param.device} == {"none"} else -1
        secondary = 1 if self.offload_param.device == "nvme" else self.zero_hpz_partition_size
        return replace(self, mics_shard_size=mics, zero_hpz_partition_size=secondary)


@dataclass(frozen=True, slots=True)
class DeepSpeed:
    """A DeepSpeed configuration as far as it shapes a step.

    `check_grad_overflow`: the overflow flag is reduced and read at the boundary (fp16: always; bf16 stages 1 and 2: by
    option). `synchronized_timer`: the throughput timer synchronises the device in every micro-step. `loss_scale`: the
    static one of fp16, 0 where it is dynamic.
    """

    zero: Zero = field(default_factory=Zero)
    optimizer: Optimizer = field(default_factory=Optimizer)
    gradient_clipping: float = 1.0
    communication_data_type: str | None = None  # None: the model's dtype
    grad_accum_dtype: str | None = None  # None: the model's dtype
    prescale_gradients: bool = False
    check_grad_overflow: bool = True
    loss_scale: float = 0.0
    synchronized_timer: bool = True
    wall_clock_breakdown: bool = False
    cpu_checkpointing: bool = False  # of deepspeed.checkpointing: inputs of checkpointed blocks go to host memory
    aio: Aio = field(default_factory=Aio)
    release: Release = field(default_factory=Release)


@dataclass(frozen=True, slots=True)
class Ddp:
    """torch DistributedDataParallel. `bucket_cap_mb` None: 1 MiB for the first bucket, 25 MiB for the others.

    `parameter_dtype` fp32 is autocast training (fp32 weights and gradients, 16-bit compute); bf16 a pure 16-bit model
    with fp32 master weights in the optimizer.
    """

    bucket_cap_mb: float | None = None
    gradient_as_bucket_view: bool = False
    find_unused_parameters: bool = False
    static_graph: bool = False
    no_sync: bool = True  # gradients are reduced in the last micro-step only
    first_iteration: bool = False  # before the buckets are rebuilt: one bucket of everything
    parameter_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    optimizer: Optimizer = field(default_factory=Optimizer)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Layers spread over GPUs: rank r holds stage r mod `stages`.

    `naive`: each micro-batch passes forward through all stages and back before the next one starts, so that one GPU of
    a pipeline works at a time. `gpipe`: all forwards, then all backwards (Huang et al. 2019). `1f1b`: after a warm-up
    one forward, one backward (Narayanan et al. 2021, PipeDream-Flush).

    Ranks of equal stage are replicas; they reduce their gradients once a step, after the last backward; with
    `zero_stage` 1 the optimizer's states are sharded over them. The micro-batch of a training is that of a pipeline,
    not of each of its ranks.
    """

    stages: int
    schedule: Schedule = "naive"
    zero_stage: Literal[0, 1] = 0
    parameter_dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    optimizer: Optimizer = field(default_factory=Optimizer)


Strategy = DeepSpeed | Ddp | Fsdp | HierarchicalZero1 | Pipeline
