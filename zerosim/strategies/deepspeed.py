"""What all DeepSpeed stages share: the timer's synchronisations, the overflow flag, the optimizer on fp32 masters.

HBM bytes per element of a 16-bit model: flatten 4, cast to fp32 6, scale 8, optimizer 28 (its own figure), cast back 6
(DeepSpeed runtime/zero/stage_1_and_2.py and stage3.py `step`, ops/adam/fused_adam.py).
"""

from __future__ import annotations

from zerosim.spec.model import Model
from zerosim.spec.strategy import DeepSpeed, Optimizer
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, CollectiveKind, HostCalls, Pass, Slice
from zerosim.strategies.activations import BlockingHostActivations, HostActivations
from zerosim.strategies.base import DATA_PARALLEL, Program
from zerosim.strategies.flat import NCCL_START_ALIGNMENT, FlatLayout
from zerosim.strategies.leaf_modules import leaf_names
from zerosim.strategies.placement import MASTER_BYTES, SCALE_BYTES

NORM_BYTES = 18  # cast to fp64 and reduce
NORM_SCRATCH = 8
# runtime/utils.py, has_inf_or_nan: least and greatest, which pass over the tensor; of either isfinite, four kernels
# (aten/src/ATen/native/TensorCompare.cpp: itself, its abs, unlike infinity, their product); and, not.
FINITE_PASSES, FINITE_KERNELS = 2, 12


class DeepSpeedProgram(Program):
    """A program under DeepSpeed's engine."""

    def __init__(self, config: DeepSpeed, model: Model, training: Training, world_size: int) -> None:
        replaces = config.release.replaces_linear or config.zero.mics_shard_size > 0  # MiCS_Init is a zero.Init
        own_linear = config.zero.memory_efficient_linear and replaces and config.zero.stage == 3
        leaves = leaf_names(model, config.zero)
        super().__init__(model, training, world_size, own_linear, leaves=leaves)
        self.config = config
        self.zero = config.zero
        self.release = config.release
        self.wire = config.communication_data_type or self.dtype  # dtype of gradients on the wire
        self.held_width = DTYPE_BYTES[config.grad_accum_dtype or self.dtype]  # bytes of an accumulated gradient element
        self.reduced_dtype: str = self.dtype  # of gradients where they are reduced
        self.group = DATA_PARALLEL  # over which gradients are reduced
        if config.cpu_checkpointing and self.checkpointed:
            copies = HostActivations if config.release.pinned_checkpoints else BlockingHostActivations
            self.activations = copies(self.builder, self.network)

    def begin(self) -> None:
        self.timer()
        self.breakdown()

    def turn(self) -> None:
        self.breakdown()

    def end(self) -> None:
        self.breakdown()

    def breakdown(self) -> None:
        """`wall_clock_breakdown`: timers around forward, backward and step synchronise the device."""
        if self.config.wall_clock_breakdown:
            self.builder.synchronize()

    def timer(self) -> None:
        """The throughput timer synchronises the device at the start of each forward and after the step."""
        if self.config.synchronized_timer:
            self.builder.synchronize()

    def pass_over(self, name: str, elements: float, per_element: float, kernels: int = 1, lane: str = COMPUTE) -> int:
        """Streaming kernels that move `per_element` bytes for each element."""
        return self.elementwise(lane, name, elements * per_element, kernels)

    def finite_test(self, lane: str, elements: float, width: int, tensors: int = 1) -> None:
        """Whether tensors of `width` bytes an element are finite; the answer stays on the GPU."""
        work = Pass(float(FINITE_PASSES * width * elements), "reduction", FINITE_KERNELS * tensors)
        self.builder.launch(lane, "test gradient for inf and nan", work, HostCalls(kernels=work.kernels))

    def overflow_flag(self) -> None:
        """Reduce what the ranks found, one byte (MAX), and read it: the host waits."""
        self.builder.collective(COMPUTE, "all_reduce", 1, "uint8", self.group, name="all-reduce overflow flag")
        self.builder.read(COMPUTE)

    def reduce_on_wire(
        self,
        lane: str,
        kind: CollectiveKind,
        elements: int,
        pieces: tuple[Slice, ...],
        name: str,
        received: int,
        root: int | None = None,
    ) -> None:
        """A reduction of gradients, cast before and after where the wire has another dtype (a copy of its own).

        `received`: elements of the result on this rank.
        """
        build, wire, width = self.builder, DTYPE_BYTES[self.wire], self.reduced_width
        copy = None
        if self.wire != self.reduced_dtype:
            copy = build.acquire("gradients in the communication dtype", "buffers", float(wire * elements))
            self.pass_over("cast to the communication dtype", elements, width + wire, lane=lane)
        build.collective(lane, kind, elements, self.wire, self.group, name=name, reduces=pieces, root=root)
        if copy is not None:
            if received:
                self.pass_over("cast from the communication dtype", received, width + wire, lane=lane)
            build.release(copy, lane)

    @property
    def reduced_width(self) -> int:
        return DTYPE_BYTES[self.reduced_dtype]

    def gather_updated(self, layout: FlatLayout) -> None:
        """The updated weights: one all-gather of the flat buffer, or of its pieces (utils.py, all_gather_dp_groups)."""
        name, size = "all-gather updated parameters", self.zero.allgather_bucket_size
        pieces = max(1, layout.padded // max(1, size)) if self.release.list_all_gather else 1
        shard = layout.share // pieces
        shard -= shard % NCCL_START_ALIGNMENT if pieces > 1 else 0
        rest = layout.share - (pieces - 1) * shard
        for number, mine in enumerate((*[shard] * (pieces - 1), rest), 1):
            gathers = layout.order if number == pieces else ()  # they are whole once the last piece has come
            self.builder.collective(
                COMPUTE, "all_gather", mine * layout.ranks, self.dtype, DATA_PARALLEL, name=name, gathers=gathers
            )

    def norm_kernels(self, elements: int, largest: int, tensors: int, lane: str = COMPUTE) -> None:
        """Squares in fp64 tensor by tensor."""
        scratch = self.builder.acquire("fp64 norm", "optimizer", float(NORM_SCRATCH * largest))
        work = Pass(float(NORM_BYTES * elements), "reduction", 2 * tensors)
        self.builder.launch(lane, "gradient norm", work, HostCalls(kernels=work.kernels))
        self.builder.release(scratch, lane)

    def hold(self, held: dict[int, int], parameter: int, buffer: int) -> None:
        """Accumulate whole gradients over micro-steps, in the model's dtype or in a wider copy (`grad_accum_dtype`)."""
        numel = self.network.numels[parameter]
        if self.held_width == self.width:
            kept = held.setdefault(parameter, buffer)
            if kept != buffer:
                self.accumulate(kept, buffer, numel, self.width)
            return
        moved = self.width + self.held_width
        if parameter in held:
            moved += self.held_width
        else:
            held[parameter] = self.builder.acquire("accumulated gradient", "gradients", float(self.held_width * numel))
        self.pass_over("accumulate gradient", numel, moved)
        self.builder.release(buffer, COMPUTE)

    @property
    def scales(self) -> bool:
        """Whether gradients are multiplied before the update: on stages 1 and 2 only where there is clipping or a loss
        scale other than 1 (`unscale_and_clip_grads` of either file); a dynamic one is taken not to be 1."""
        scaled = self.dtype == "fp16" and self.config.loss_scale != 1
        return self.zero.stage == 3 or self.config.gradient_clipping > 0 or scaled or self.release.scales_always

    def update(self, elements: int, held: tuple[int, ...] = (), write: bool = True, widened: int | None = None) -> None:
        """Flatten, cast, scale, optimizer, cast back (`write`) over `elements` on the compute lane; `held` gradients
        are freed once they are cast. `widened`: they are flat and in fp32 already."""
        w, build = self.width, self.builder
        fp32 = self._widened(elements) if widened is None else widened
        for buffer in held:
            build.release(buffer, COMPUTE)
        if self.scales:
            self.pass_over("scale gradients", elements, SCALE_BYTES)
        self.optimizer_kernels(self.config.optimizer, elements)
        if write:
            self.pass_over("write parameters", elements, 4 + w)
        build.release(fp32, COMPUTE)

    def _widened(self, elements: int) -> int:
        """Gradients made flat, and cast to fp32 if need be."""
        kept, build = self.held_width, self.builder
        flat = build.acquire("flat gradients", "optimizer", float(kept * elements))
        self.pass_over("flatten gradients", elements, 2 * kept)
        if kept == MASTER_BYTES:
            return flat
        fp32 = build.acquire("fp32 gradients", "optimizer", float(MASTER_BYTES * elements))
        self.pass_over("cast gradients to fp32", elements, kept + MASTER_BYTES)
        build.release(flat, COMPUTE)
        return fp32

    def optimizer_kernels(self, optimizer: Optimizer, elements: int, tensors: int = 1) -> None:
        """One fused launch, or several where the optimizer is not fused."""
        kernels = optimizer.launches(tensors, elements)
        work = Pass(float(optimizer.traffic_bytes * elements), "adam", kernels)
        self.builder.launch(COMPUTE, f"{optimizer.name} step", work, HostCalls(kernels=kernels))

    def optimizer_residents(self, elements: int) -> None:
        """fp32 master and the optimizer's states of `elements` parameters."""
        self.builder.resident("fp32 master parameters", "optimizer", float(MASTER_BYTES * elements))
        states = self.config.optimizer.state_bytes * elements
        if states:
            self.builder.resident("optimizer states", "optimizer", float(states))
