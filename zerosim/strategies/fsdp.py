"""What both versions of PyTorch's FSDP share: units, process groups, shards, and the optimizer over them.

A version says what its hooks on units do and how it pads. The shards are what the optimizer steps: torch's own, in
the dtype of the parameters as they were given. So a model that is 16 bit itself has 16-bit states and no fp32 master
copy; masters in fp32 with 16-bit computation are fp32 parameters with `param_dtype`. With `cpu_offload` shards, their
gradients and the optimizer are in host memory, and the CPU steps them when all gradients are there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace

from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, HOST_STREAM, HostCalls, HostCompute, Pass, Tier
from zerosim.strategies.base import DATA_PARALLEL, Program
from zerosim.strategies.events import AGAIN, PRE, Event
from zerosim.strategies.network import Node
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.units import Unit, units

SHARD, REPLICAS = "shard", "replicas"


class FullyShardedProgram(Program):
    """`shard_group` of `shard_size` ranks holds the parameters once; `replicas` is the group across, if any."""

    def __init__(self, config: Fsdp, model: Model, training: Training, ranks: Ranks) -> None:
        narrow = DTYPE_BYTES[config.compute_dtype] < DTYPE_BYTES[training.precision]
        training = replace(training, precision=config.compute_dtype) if narrow else training  # inputs are cast to it
        self.autocast = DTYPE_BYTES[config.compute_dtype] > DTYPE_BYTES[training.precision]
        super().__init__(model, training, ranks.world, autocast=self.autocast)
        self.config = config
        self.uniform = not config.no_sync
        self.shard_width = DTYPE_BYTES[config.parameter_dtype]
        self.full_width = DTYPE_BYTES[config.compute_dtype]  # of gathered parameters and of gradients
        self.wire_width = DTYPE_BYTES[config.wire_dtype]  # of gradients as they are reduced
        self.offloaded = config.cpu_offload
        self.units = units(self.network, config.wrap)
        self.unit_of = {unit.node: unit for unit in self.units}
        self.backward_events = tuple(_outside(self.backward_events))
        self._groups(ranks)
        self.held: dict[int, int] = {}  # gradient shard of each unit, or what a version keeps by it
        self._casts: dict[Node, int] = {}  # 16-bit copies that autocast made

    def _groups(self, ranks: Ranks) -> None:
        """Shard group and replicas; one group where nothing is replicated."""
        config, groups = self.config, self.builder.groups
        self.shard_group, self.shard_size, self.replicas = DATA_PARALLEL, ranks.world, ""
        if config.hybrid and ranks.world > 1:
            self.shard_group, self.replicas = SHARD, REPLICAS
            self.shard_size = config.shard_size or ranks.per_node
            ranks.divides("shard_size", self.shard_size)
            groups[SHARD] = ranks.shards(SHARD, self.shard_size)
            groups[REPLICAS] = ranks.replicas(REPLICAS, self.shard_size)

    # --- what a version says -----------------------------------------------------------------------------------------

    @abstractmethod
    def shard(self, unit: Unit, trainable: bool = False) -> int:
        """Elements of the unit that a rank holds, with padding; `trainable`: that its optimizer steps."""

    @abstractmethod
    def enter(self, unit: Unit, event: Event) -> None:
        """The pre-hook of a unit's module."""

    @abstractmethod
    def leave(self, unit: Unit, event: Event) -> None:
        """The post-hook of a unit's module."""

    @abstractmethod
    def reduce_norm(self) -> None:
        """What clip_grad_norm_ communicates, and the host's part in it."""

    @property
    @abstractmethod
    def tensors(self) -> int:
        """Tensors that the optimizer steps."""

    # --- the frame ---------------------------------------------------------------------------------------------------

    @property
    def gradient_width(self) -> int:
        return self.full_width

    @property
    def synchronizes(self) -> bool:
        """Whether this micro-step reduces gradients."""
        return self.boundary_micro_batch or not self.config.no_sync

    @property
    def reductions(self) -> tuple[int, ...]:
        return (self.last_micro_batch,) if self.config.no_sync else tuple(range(self.last_micro_batch + 1))

    @property
    def stepped(self) -> int:
        """Elements of the rank's shards under the optimizer."""
        return sum(self.shard(unit, trainable=True) for unit in self.units)

    def filled(self) -> Iterator[Unit]:
        """Units with parameters: only they have hooks that do anything."""
        return (unit for unit in self.units if unit.parameters)

    def prepare(self) -> None:
        tier: Tier = "dram" if self.offloaded else "gpu"
        resident = self.builder.resident
        pinned = self.offloaded and (self.config.pin_memory or self.config.version == 1)
        for unit in self.filled():
            resident("parameter shard", "parameters", float(self.shard_width * self.shard(unit)), tier, pinned)
        states = self.config.optimizer.state_bytes * self.shard_width / 4  # in the dtype of the parameters
        if states and self.stepped:
            resident("optimizer states", "optimizer", states * self.stepped, tier)
        if self.shard_width < 4:
            self.notes.append(f"the optimizer's states are {8 * self.shard_width} bit, as the parameters are")

    # --- hooks -------------------------------------------------------------------------------------------------------

    def before(self, event: Event) -> None:
        unit = self.unit_of.get(event.node)
        if unit is not None:
            self.builder.call(module_hooks=1)
            self.enter(unit, event)
        if self.autocast and event.direction != "backward" and self._is_cast(event.node):
            self._cast(event.node)

    def after(self, event: Event) -> None:
        unit = self.unit_of.get(event.node)
        if unit is not None:
            self.builder.call(module_hooks=1)
            self.leave(unit, event)

    def _run(self, event: Event) -> None:
        super()._run(event)
        if event.node in self._casts and (event.direction == "backward" or self._forgets(event)):
            self.builder.release(self._casts.pop(event.node), COMPUTE)

    # --- autocast ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_cast(node: Node) -> bool:
        """Autocast runs matrix products in 16 bit; lookups and norms keep fp32 weights."""
        return bool(node.parameters) and any(not isinstance(kernel.work, Pass) for kernel in node.work.forward)

    def _cast(self, node: Node) -> None:
        """At each use: autocast's cache takes leaves only, and views of a gathered parameter are none (aten/src/ATen/
        autocast_mode.cpp, cached_cast). Backward keeps the copy."""
        elements = sum(self.network.numels[p] for p in node.parameters)
        self._casts[node] = self.builder.acquire("autocast weight", "parameters", float(self.width * elements))
        moved = float((self.full_width + self.width) * elements)
        self.elementwise(COMPUTE, f"{node.name} autocast", moved, len(node.parameters))

    def _forgets(self, event: Event) -> bool:
        """A forward that saves nothing: of a checkpointed block, or of what will have no backward."""
        return event.direction == "forward" and not event.saving

    def widen(self, node: Node, parameter: int) -> None:
        """The gradient of a 16-bit copy comes in 16 bit and is cast to the weight's dtype."""
        if self.autocast and self._is_cast(node):
            numel = self.network.numels[parameter]
            narrow = self.builder.acquire("16-bit gradient", "gradients", float(self.width * numel))
            self.elementwise(COMPUTE, "cast gradient", float((self.width + self.full_width) * numel))
            self.builder.release(narrow, COMPUTE)

    # --- the optimizer -----------------------------------------------------------------------------------------------

    def boundary(self) -> None:
        """The script's: unscale and clip, step, forget gradients (`zero_grad`), read the loss."""
        if self.stepped:
            if self.training.precision == "fp16":
                self._unscale()
            if self.config.gradient_clipping > 0:
                self.over_gradients("gradient norm", 1, self.tensors + 3)  # tensor by tensor, then that of the norms
                self.reduce_norm()
                self.over_gradients("clip gradients", 2, self.tensors)
            self._update()
        for buffer in self.held.values():
            self.builder.release(buffer, HOST_STREAM if self.offloaded else COMPUTE)
        self.held.clear()
        self.builder.synchronize()

    def over_gradients(self, name: str, passes: int, kernels: int) -> None:
        """Kernels that pass over all gradient shards, where they are."""
        moved = float(passes * self.shard_width * self.stepped)
        if self.offloaded:
            self.builder.host_compute(name, HostCompute("stream", self.stepped, moved))
        else:
            self.builder.launch(COMPUTE, name, Pass(moved, "reduction", kernels), HostCalls(kernels=kernels))

    @property
    def scaler_group(self) -> str:
        """The group in which a loss scaler sums what it found; empty: it does not. Here that of version 2, whose
        gradients are DTensors (torch/distributed/tensor/_dispatch.py, found_inf_reduce_handler)."""
        return self.shard_group

    def _unscale(self) -> None:
        """Gradients are looked through for infinities, and unscaled. The host reads what was found, but not for a fused
        optimizer, which unscales, or skips the step, itself (torch/amp/grad_scaler.py)."""
        self.over_gradients("unscale gradients", 2, 1)
        if self.scaler_group:
            name = "all-reduce found inf"
            self.builder.collective(COMPUTE, "all_reduce", 1, "fp32", self.scaler_group, name=name)
        if not self.config.optimizer.fused:
            self.builder.read(COMPUTE)

    def _update(self) -> None:
        """torch's optimizer, on the GPU or, shard after shard, on the CPU."""
        optimizer, elements = self.config.optimizer, self.stepped
        moved = optimizer.traffic_bytes * self.shard_width / 4 * elements
        if self.offloaded:
            work = HostCompute("torch_optimizer", elements, moved)
            self.builder.host_compute(f"{optimizer.name} step on the CPU", work)
            return
        kernels = optimizer.launches(self.tensors, elements)
        step = Pass(moved, "adam", kernels)
        with self.optimizer_scratch(optimizer, float(self.shard_width * elements)):
            self.builder.launch(COMPUTE, f"{optimizer.name} step", step, HostCalls(kernels=kernels))


def divisors(ranks: int) -> tuple[int, float]:
    """By what gradients are divided before and after they are summed, against overflow: a power of two about the root
    of `ranks`, and the rest (torch/distributed/algorithms/_comm_hooks/default_hooks.py, _get_gradient_predivide_factor;
    fully_shard's _get_gradient_divide_factors)."""
    before = 1
    while ranks % before == 0 and ranks > before * before:
        before *= 2
    return before, ranks / before


def _outside(backward: Iterable[Event]) -> Iterator[Event]:
    """FSDP is around the checkpoint of a block: the block's backward begins before its forward runs again."""
    entered: set[Node] = set()
    for event in backward:
        if event.kind == AGAIN and event.node not in entered:
            entered.add(event.node)
            yield Event(PRE, event.node, "backward")
        elif event.kind == PRE and event.direction == "backward":
            if event.node in entered:
                continue
            entered.add(event.node)
        yield event
