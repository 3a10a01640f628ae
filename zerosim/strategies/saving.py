"""The programs that save and load a checkpoint, written as a rank's host issues them: one after the other, blocking.

Sources: torch/serialization.py (`_save`: each storage is copied to pageable host memory and written before the next
one is touched); DeepSpeed runtime/engine.py (`save_checkpoint`, `_zero3_consolidated_16bit_state_dict`,
`load_checkpoint`), runtime/state_dict_factory.py (a model file is read once to look at it, and again to load it),
runtime/zero/stage3.py (`reset_swap_buffers`: swap files that came back are read, their masters renew the 16-bit
parameters, and they are written again), Lib/shutil.py (`_fastcopy_sendfile`: the kernel copies, page by page),
runtime/zero/partition_parameters.py (`GatheredParameters` with a modifier rank broadcasts what it gathered).

Requests to files are ops on the streams READ and WRITE, whatever lies behind them: the drives of the node
(`place` "nvme"), or a file system elsewhere, to which the node sends from host memory ("dram"). `place` None: no
storage is known, and no request is made. A program knows no rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zerosim.spec.model import Model, Module, Parameter
from zerosim.spec.strategy import Ddp, DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import COMPUTE, DTYPE_BYTES, READ, WRITE, Group, HostCalls, Pass, Step, Tier, Transfer
from zerosim.strategies.base import DATA_PARALLEL
from zerosim.strategies.builder import Builder
from zerosim.strategies.checkpoint_files import File, Storage, checkpoint_files, layout_of, weights_file
from zerosim.strategies.placement import Placement, placement_of
from zerosim.strategies.swap_optimizer import OptimizerSwapper
from zerosim.strategies.swap_parameters import ShardStore


class Saving(NamedTuple):
    """A program, and which of its ops are not like the others.

    `first`: only rank 0 issues them. `once`: reads of a file that all ranks of a node read, so that its drives give it
    once. `copied`: the kernel or aio moves the bytes (shutil.copytree); no process looks at them. `cached`: read again,
    out of the page cache.
    """

    step: Step
    first: frozenset[int] = frozenset()
    once: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()
    cached: frozenset[int] = frozenset()


class Place(NamedTuple):
    """The tier behind requests to files, and the host memory that training keeps of each rank (bytes)."""

    tier: Tier | None
    held: float = 0.0


class Given(NamedTuple):
    """What every program is written from."""

    strategy: Ddp | DeepSpeed
    model: Model
    training: Training
    world_size: int
    place: Place

    def files(self) -> tuple[File, ...]:
        return checkpoint_files(self.strategy, self.model, self.training, self.world_size)


def save(given: Given) -> Saving:
    """`save_checkpoint`, or torch.save of model and optimizer by rank 0."""
    writing = _Program(given)
    for file in given.files():
        if file.swapped:
            writing.copy_folder(file, saving=True)
        else:
            writing.save(file)
    return writing.finish()


def consolidate(given: Given) -> Saving:
    """`save_16bit_model`: one file with every weight, by rank 0. On stage 3 they are gathered module by module."""
    writing, strategy = _Program(given), given.strategy
    file = weights_file(strategy, given.model, given.training)
    if isinstance(strategy, Ddp) or strategy.zero.stage < 3:
        writing.save(file)
        return writing.finish()
    kept = writing.gather(given.model, given.training.precision, placement_of(strategy.zero))
    for storage in file.storages:
        writing.request(WRITE, file, storage.bytes)
    for buffer in kept:
        writing.builder.release_after(buffer, writing.builder.next_op - 1)
    return writing.finish()


def resume(given: Given, alone: bool = False) -> Saving:
    """`load_checkpoint` of what `save` wrote. Every rank reads what rank 0 wrote, and the file of its own shard.

    `alone`: the part of a single rank, as with `pipeline_loading_checkpoint`, where the ranks of a node take turns.
    """
    reading, strategy = _Program(given), given.strategy
    deepspeed = isinstance(strategy, DeepSpeed)
    elastic = isinstance(strategy, DeepSpeed) and strategy.zero.elastic_checkpoint and strategy.zero.stage < 3
    for file in given.files():
        if file.swapped:
            reading.copy_folder(file, saving=False)
            reading.reset_swap_buffers(given)
        elif not file.sharded:
            reading.load(file, once=True, looked_at=deepspeed)
        elif elastic:
            reading.load_all(file)
        elif file.loaded:
            reading.load(file)
    saving = reading.finish()
    return saving._replace(first=frozenset(range(len(saving.step.ops)))) if alone else saving


class _Program:
    """A program that is being written."""

    def __init__(self, given: Given) -> None:
        self.builder = Builder({DATA_PARALLEL: Group(DATA_PARALLEL, given.world_size)})
        self.world_size = given.world_size
        self.tier = given.place.tier
        self.first: list[int] = []
        self.once: list[int] = []
        self.copied: list[int] = []
        self.cached: list[int] = []
        if given.place.held:
            self.builder.resident("kept by training", "optimizer", given.place.held, "dram")

    def finish(self) -> Saving:
        step = self.builder.finish(parameters=(), reductions=(), micro_batches=1)
        kinds = (self.first, self.once, self.copied, self.cached)
        return Saving(step.check(), *(frozenset(numbers) for numbers in kinds))

    # --- files -------------------------------------------------------------------------------------------------------

    def request(self, stream: str, file: File, size: float) -> int | None:
        """Read from or write to storage; the host waits. Its number, if there is storage."""
        if self.tier is None:
            return None
        number = self._ask(stream, file, size, self.tier)
        self.builder.block([number])
        if stream == WRITE and not file.sharded:
            self.first.append(number)
        return number

    def _ask(self, stream: str, file: File, size: float, tier: Tier) -> int:
        reads = stream == READ
        work = Transfer(size, tier, "dram") if reads else Transfer(size, "dram", tier)
        self.builder.wait(stream, COMPUTE)
        return self.builder.launch(stream, f"{'read' if reads else 'write'} {file.name}", work)

    def save(self, file: File) -> None:
        """torch.save: storage by storage, each brought to the host first where it is not there."""
        for storage in file.storages:
            if storage.tier == "dram":
                self.request(WRITE, file, storage.bytes)
            else:
                staged = self._host_buffer("storage on its way to a file", storage.bytes)
                last = self._to_host(storage.bytes, first=not file.sharded)
                self.builder.release_after(staged, self.request(WRITE, file, storage.bytes) or last)

    def load(self, file: File, once: bool = False, looked_at: bool = False) -> None:
        """torch.load of the whole file into host memory, then storage by storage to where training keeps it."""
        if not file.storages:
            return
        loaded = self._read(file, file.bytes, once)
        if looked_at and self.tier is not None:  # it is read again, out of the page cache
            again = Transfer(file.bytes, "dram", "dram")
            self.cached.append(self._launch(READ, f"read {file.name} again", again))
        self._distribute(file.storages, loaded)

    def load_all(self, file: File) -> None:
        """`elastic_checkpoint`: every rank reads the shards of all, and keeps its own."""
        self._distribute(file.storages, self._read(file, file.bytes * self.world_size, once=True))

    def _read(self, file: File, size: float, once: bool) -> int:
        """The buffer of the loaded file."""
        loaded = self._host_buffer("loaded file", size)
        number = self.request(READ, file, size)
        if once and number is not None:
            self.once.append(number)
        return loaded

    def _distribute(self, storages: Sequence[Storage], loaded: int) -> None:
        """From the loaded file to where training keeps each storage; then the file is forgotten."""
        last = 0
        for storage in storages:
            work = Transfer(storage.bytes, "dram", storage.tier, pinned=False)
            last = self.builder.copy(COMPUTE, "copy from host", work, blocking=True)
        self.builder.release_after(loaded, last)

    def copy_folder(self, file: File, saving: bool) -> None:
        """Swap files copied to storage, or back, one after the other. The kernel reads ahead and writes behind, so that
        both go on at once; it is taken to keep up with the drives."""
        ends = {READ: "nvme" if saving else self.tier, WRITE: self.tier if saving else "nvme"}
        for storage in file.storages:
            ops = [self._ask(stream, file, storage.bytes, tier) for stream, tier in ends.items() if tier is not None]
            self.builder.block(ops)
            self.copied += ops

    def reset_swap_buffers(self, given: Given) -> None:
        """Parameters are renewed from the masters of every sub-group; those on NVMe are read for it, and written."""
        model, width, start = given.model, DTYPE_BYTES[given.training.precision], self.builder.next_op
        assert isinstance(given.strategy, DeepSpeed)
        layout = layout_of(given.strategy, model, width, given.world_size)
        swapper = OptimizerSwapper(self.builder, given.strategy, layout)
        names, everyone = [p.name for p in model.parameters], self.builder.groups[DATA_PARALLEL]
        store = ShardStore(self.builder, given.strategy, layout, everyone, names, width)
        for group in layout.groups:
            if group.optimizer == "nvme":
                swapper.swap_in(group)
            store.renew(group)
            if group.optimizer == "nvme":
                swapper.swap_out(group)
        self.copied += range(start, self.builder.next_op)

    def _launch(self, stream: str, name: str, work: Transfer) -> int:
        self.builder.wait(stream, COMPUTE)
        number = self.builder.launch(stream, name, work)
        self.builder.block([number])
        return number

    # --- weights -----------------------------------------------------------------------------------------------------

    def gather(self, model: Model, dtype: str, placement: Placement) -> list[int]:
        """Every module's own parameters, gathered on all ranks, kept by rank 0 in host memory, and let go.

        Rank 0 copies while the others wait for it: the broadcast that ends the context starts when it is done.
        """
        kept: list[int] = []
        seen: set[str] = set()
        for module in model.root.walk():
            if module.parameters:
                self._gather_module(module, dtype, placement, kept, seen)
        return kept

    def _gather_module(self, module: Module, dtype: str, placement: Placement, kept: list[int], seen: set[str]) -> None:
        build, width = self.builder, DTYPE_BYTES[dtype]
        shards = [-(-parameter.numel // self.world_size) for parameter in module.parameters]
        self._fetch_shards(shards, width, placement)
        full = [build.acquire("gathered", "parameters", float(width * shard * self.world_size)) for shard in shards]
        if self.world_size > 1:
            for shard in shards:
                build.collective(
                    COMPUTE, "all_gather", shard * self.world_size, dtype, DATA_PARALLEL, asynchronous=True
                )
            build.synchronize()
        for parameter in module.parameters:
            if parameter.name not in seen:
                kept.append(self._keep(parameter, width))
                seen.add(parameter.name)
        if self.world_size > 1:
            self._let_go(module.parameters, shards, width)
        for buffer in full:
            build.release(buffer, COMPUTE)

    def _fetch_shards(self, shards: Sequence[int], width: int, placement: Placement) -> None:
        """Shards that are not on the GPU are brought there by a plain `.to`."""
        if placement.parameters == "gpu":
            return
        for shard in shards:
            size = float(width * shard)
            if placement.parameters == "nvme":
                self.copied.append(self._launch(READ, "swap in shard", Transfer(size, "nvme", "dram")))
            work = Transfer(size, "dram", "gpu", pinned=placement.parameters_pinned)
            self.builder.copy(COMPUTE, "shard to GPU", work, blocking=True)

    def _keep(self, parameter: Parameter, width: int) -> int:
        """Rank 0's copy of a parameter in host memory."""
        kept = self._host_buffer("weights of the whole model", float(width * parameter.numel))
        self._to_host(float(width * parameter.numel), first=True)
        return kept

    def _let_go(self, parameters: Sequence[Parameter], shards: Sequence[int], width: int) -> None:
        """What rank 0 has is broadcast, byte by byte, and each rank copies its shard out of it again."""
        for parameter in parameters:
            self.builder.collective(COMPUTE, "broadcast", width * parameter.numel, "uint8", DATA_PARALLEL)
        for shard in shards:
            work = Pass(2.0 * width * shard, "stream")
            self.builder.launch(COMPUTE, "copy to shard", work, HostCalls(kernels=1))

    # --- host memory -------------------------------------------------------------------------------------------------

    def _host_buffer(self, name: str, size: float) -> int:
        return self.builder.acquire(name, "buffers", size, "dram")

    def _to_host(self, size: float, first: bool) -> int:
        """A copy into pageable host memory, which the host waits for."""
        number = self.builder.copy(COMPUTE, "copy to host", Transfer(size, "gpu", "dram", pinned=False))
        if first:
            self.first.append(number)
        return number
