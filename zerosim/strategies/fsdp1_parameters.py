"""FSDP1's parameters: a unit's flat one is gathered from its shards before the unit runs, and freed after it.

Source: torch/distributed/fsdp/_runtime_utils.py (_unshard, _reshard), _flat_param.py (pre_unshard, unshard, reshard).
The shard of another dtype, or in host memory, is made ready on a lane of its own. The rate limiter blocks the host, so
that it holds up all that the host would issue, and it does so for an unshard that has nothing to gather, too.
"""

from __future__ import annotations

from collections import deque

from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.model import Model
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, Transfer
from zerosim.strategies.fsdp import FullyShardedProgram
from zerosim.strategies.fsdp1_flat import flat_parameter, trained_whole
from zerosim.strategies.fsdp1_hooks import IN_FLIGHT
from zerosim.strategies.ranks import Ranks
from zerosim.strategies.units import Unit

PRE_UNSHARD, UNSHARD_LANE = "pre-unshard", "unshard"


class GatheredUnits(FullyShardedProgram):
    """`gathered`: buffers by unit; with NO_SHARD of what stands for the parameter on the GPU or in 16 bits.
    `free_events`: ops to wait for, of frees that the rate limiter has not waited for."""

    def __init__(self, config: Fsdp, model: Model, training: Training, ranks: Ranks) -> None:
        frozen = frozenset(i for i, parameter in enumerate(model.parameters) if not parameter.trainable)
        super().__init__(config, trained_whole(config, model, training), training, ranks)
        self.sharded = config.sharded and ranks.world > 1
        self.casts = config.compute_dtype != config.parameter_dtype
        self.flats = {
            unit.number: flat_parameter(unit, self.network, frozen, config, self.shard_size, self.sharded)
            for unit in self.filled()
        }
        self.gathered: dict[int, int] = {}
        self.free_events: deque[tuple[int, ...]] = deque()

    def shard(self, unit: Unit, trainable: bool = False) -> int:
        flat = self.flats.get(unit.number)
        return 0 if flat is None else flat.stepped if trainable else flat.shard

    @property
    def tensors(self) -> int:
        """Flat parameters, or a rank's parts of the parameters; here all of them."""
        trained = [unit for unit in self.filled() if self.flats[unit.number].trains]
        return sum(len(unit.parameters) for unit in trained) if self.config.use_orig_params else len(trained)

    def repeated(self, by: int) -> None:
        start = self.builder.next_op - 2 * by  # of the micro-step that was written again
        self.free_events = deque(tuple(op + by if op >= start else op for op in event) for event in self.free_events)

    def unshard(self, unit: Unit, gathers: bool) -> None:
        """The host may wait between the shard's cast and its gather."""
        build = self.builder
        shard = self._prepared(unit, gathers)
        if shard is not None:
            build.wait(UNSHARD_LANE, PRE_UNSHARD)
        if self.config.limit_all_gathers and len(self.free_events) >= IN_FLIGHT:
            build.block(self.free_events.popleft())
        if gathers:
            elements, name = self.flats[unit.number].padded, f"all-gather {unit.node.name or 'root'}"
            size = float(self.full_width * elements)
            buffer, members = build.acquire("gathered unit", "parameters", size), unit.parameters
            self.gathered[unit.number] = build.gathered(buffer, *members)
            dtype, group = self.config.compute_dtype, self.shard_group
            build.collective(UNSHARD_LANE, "all_gather", elements, dtype, group, name=name, gathers=members)
        if shard is not None and self.sharded:
            build.release(shard, UNSHARD_LANE)
        elif shard is not None:
            self.gathered[unit.number] = shard

    def _prepared(self, unit: Unit, gathers: bool) -> int | None:
        """The shard in the dtype of computation and on the GPU, where it is not; offloaded ones come up even for an
        unshard that gathers nothing."""
        if not (self.casts or self.offloaded) or (self.sharded and not self.offloaded and not gathers):
            return None
        build, elements = self.builder, self.shard(unit)
        size = float(self.shard_width * elements)
        up = None
        if self.offloaded:
            up = build.acquire("shard on the GPU", "parameters", size)
            build.copy(PRE_UNSHARD, "copy shard to the GPU", Transfer(size, "dram", "gpu"))
        if not self.casts:
            return up
        low = build.acquire(f"{self.config.compute_dtype} shard", "parameters", float(self.full_width * elements))
        self.elementwise(PRE_UNSHARD, "cast shard", float((self.shard_width + self.full_width) * elements))
        if up is not None:
            build.release(up, PRE_UNSHARD)
        return low

    def reshard(self, unit: Unit, frees: bool) -> None:
        """Memory goes when compute has done what it has been given; the rate limiter looks for that moment."""
        if (frees or not self.sharded) and unit.number in self.gathered:
            self.builder.release(self.gathered.pop(unit.number), COMPUTE)
        if frees and self.config.limit_all_gathers:
            self.free_events.append(tuple(self.builder.tail(COMPUTE)))
