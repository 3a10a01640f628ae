"""What checkpoints of a run cost: files, seconds, host memory, and the share of training time that saving takes.

Save, consolidation and resumption are programs, priced and played like a step; each is played with training stopped
(the ranks meet at a barrier after them). Ways to load a pretrained model are bytes by formula: what each rank holds in
host memory before anything is partitioned. Host memory is that of node 0, where rank 0 is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zerosim.checkpointing import Checkpointing, Played
from zerosim.costs.files import process_rate
from zerosim.errors import Finding
from zerosim.simulation import Simulation
from zerosim.step import DTYPE_BYTES
from zerosim.units import show_rate, show_size

INTERVAL = 500  # steps between checkpoints: `save_steps` of Hugging Face's TrainingArguments
PIECE = 5e9  # bytes of a weights file: `max_shard_size` of zero_to_fp32.py and of Transformers 4 (modeling_utils.py)
FP32 = 4
TIGHT = 0.95  # of host memory, from which on it is told what is left: some GB are the operating system's and others'
MENDED = "More host memory, or fewer ranks on a node."
NO_STORAGE = "No storage is known (no nvme in the topology, no --save-rate): the times are those of the copies alone."


@dataclass(frozen=True, slots=True)
class Operation:
    """One way to save or load: what is written or read, how long it takes, what the host of node 0 holds at most."""

    operation: str
    seconds: float
    gather_seconds: float  # of the slowest rank, as the next two
    copy_seconds: float
    file_seconds: float
    bytes_first_rank: float
    bytes_per_rank: float  # of the other ranks
    bytes_total: float
    host_peak_bytes: float
    fits: bool
    limited_by: str


@dataclass(frozen=True, slots=True)
class Loading:
    """A way to bring a pretrained model in, and what a node's host memory holds at most meanwhile."""

    way: str
    host_peak_bytes: float
    fits: bool


@dataclass(frozen=True, slots=True)
class SavingCost:
    """All of it, as `run --save-cost --json` shows it under `saving`."""

    storage: str
    files: tuple[Mapping[str, Any], ...]
    operations: tuple[Operation, ...]
    loading: tuple[Loading, ...]
    gather_16bit_weights_on_model_save: bool
    interval_steps: int
    overhead: float
    host_capacity_bytes: float | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def saving_cost(simulation: Simulation, shared: float | None = None, interval: int = INTERVAL) -> SavingCost:
    """The checkpoints of a played scenario. `shared`: bytes/s of a file system of all nodes; without it the drives."""
    step, room = simulation.step, simulation.supply.capacities.get("dram")
    held = sum(step.buffers[each].taken for each in step.resident if step.buffers[each].tier == "dram")
    asked = Checkpointing(simulation.scenario, held, shared)
    operations, loading = tuple(_operations(asked, room)), tuple(_loading(asked, room))
    return SavingCost(
        storage=_storage(asked),
        files=tuple(_files(asked)),
        operations=operations,
        loading=loading,
        gather_16bit_weights_on_model_save=asked.zero.gather_16bit_weights_on_model_save,
        interval_steps=interval,
        overhead=operations[0].seconds / (interval * simulation.makespan),
        host_capacity_bytes=room,
        findings=() if room is None else tuple(_findings(operations, loading, room)),
        notes=tuple(_notes(asked)),
    )


def _storage(asked: Checkpointing) -> str:
    """What is behind files, with its rates on paper."""
    if asked.shared is not None:
        return f"shared file system, {show_rate(asked.shared)}"
    drives = asked.drives
    if drives is None or asked.tier is None:
        return "none"
    kept = "" if drives.sustained == drives.write else f", sustained {show_rate(drives.sustained)}"
    return f"{drives.number} NVMe per node, reads {show_rate(drives.read)}, writes {show_rate(drives.write)}{kept}"


def _files(asked: Checkpointing) -> Iterator[dict[str, Any]]:
    for file in asked.files():
        count = asked.scenario.world_size if file.sharded else 1
        yield {"name": file.name, "count": count, "bytes": file.bytes}


def _fits(peak: float, room: float | None) -> bool:
    return room is None or peak <= room


# --- programs --------------------------------------------------------------------------------------------------------


def _operations(asked: Checkpointing, room: float | None) -> Iterator[Operation]:
    """Save, consolidate, load; bytes are those that ranks hand to files or take from them."""
    world, nodes = asked.scenario.world_size, len(asked.scenario.topology.hosts)
    own = sum(file.bytes for file in asked.files() if file.sharded)
    common = sum(file.bytes for file in asked.files() if not file.sharded)
    whole = asked.weights().bytes
    yield _operation("save checkpoint", asked.save(), (common + own, own, common + world * own), room)
    yield _operation("save weights", asked.consolidate(), (whole, 0.0, whole), room)
    elastic = asked.zero.elastic_checkpoint and asked.zero.stage in (1, 2)
    back = sum(file.bytes for file in asked.files() if file.sharded and file.loaded)
    loads = common + back * (world if elastic else 1)
    yield _operation("load checkpoint", asked.resume(), (loads, loads, nodes * common + world * back), room)


def _operation(name: str, played: Played, sizes: tuple[float, float, float], room: float | None) -> Operation:
    first, others, total = sizes
    return Operation(
        operation=name,
        seconds=played.seconds,
        gather_seconds=played.gather_seconds,
        copy_seconds=played.copy_seconds,
        file_seconds=played.file_seconds,
        bytes_first_rank=first,
        bytes_per_rank=others,
        bytes_total=total,
        host_peak_bytes=played.host_peak,
        fits=_fits(played.host_peak, room),
        limited_by=played.limited_by,
    )


# --- formulas --------------------------------------------------------------------------------------------------------


def _loading(asked: Checkpointing, room: float | None) -> Iterator[Loading]:
    for way, peak in loading_peaks(
        asked.scenario.model.numel,
        DTYPE_BYTES[asked.scenario.training.precision],
        asked.local_ranks,
        asked.zero.stage,
        asked.local_ranks / asked.scenario.world_size if asked.parameters_on_host else 0.0,
        asked.swapped,
    ):
        yield Loading(way, peak, _fits(peak, room))


def loading_peaks(
    parameters: float, width: int, local_ranks: int, stage: int, on_host: float = 0.0, swapped: bool = False
) -> Iterator[tuple[str, float]]:
    """Bytes of host memory of a node while a pretrained model comes in, or a checkpoint is converted on it.

    from_pretrained builds the model on the host of each rank (Transformers modeling_utils.py): weights alone with
    `low_cpu_mem_usage`, else weights and state_dict. Under zero.Init rank 0 alone reads, piece by piece (Transformers
    PR 24964), and each parameter is partitioned as it is made; `on_host` of the shards then lie on the node.
    zero_to_fp32.py keeps the fp32 shards mapped, in pages that the kernel may drop; stages 1 and 2 merge them into one
    vector, stage 3 puts one piece of the output together at a time (DeepSpeed utils/zero_to_fp32.py). It knows no swap
    files: of a checkpoint with `swapped` masters it can make nothing.
    """
    whole, narrow = FP32 * parameters, width * parameters
    yield "from_pretrained in fp32", local_ranks * whole
    if width < FP32:
        yield f"from_pretrained in {8 * width} bit (torch_dtype)", local_ranks * narrow
    yield "from_pretrained in fp32 (low_cpu_mem_usage=False)", 2 * local_ranks * whole
    if stage == 3:
        yield "from_pretrained under zero.Init", min(narrow, PIECE) + on_host * narrow
    if stage > 0 and not swapped:
        yield "zero_to_fp32.py", whole + (min(whole, PIECE) if stage == 3 else whole)


# --- words -----------------------------------------------------------------------------------------------------------


def _notes(asked: Checkpointing) -> Iterator[str]:
    if asked.tier is None:
        yield NO_STORAGE
    else:
        writes, reads = (f"{process_rate(way) / 1e9:.2g} GB/s" for way in ("write", "read"))
        yield (
            f"Taken: torch.save writes {writes} a process (derived), "
            f"torch.load reads {reads} (measured elsewhere); sources in costs.yaml."
        )
    if asked.zero.stage == 3:
        yield "Stage 3 saves weights once, as fp32 masters; its model files hold names and shapes."
        if asked.swapped:
            yield from _swap_notes(asked)
        if not asked.zero.gather_16bit_weights_on_model_save:
            yield "stage3_gather_16bit_weights_on_model_save is false: save_16bit_model would write nothing."
        if asked.zero.pipeline_loading_checkpoint:
            yield "pipeline_loading_checkpoint: the ranks of a node load one after the other."


def _swap_notes(asked: Checkpointing) -> Iterator[str]:
    """What is different about optimizer states on NVMe (DeepSpeed runtime/engine.py)."""
    yield (
        "Optimizer states on NVMe are not serialised: each rank copies its swap files (shutil.copytree). "
        "Loading copies them back, then reads and writes them once more to renew the parameters."
    )
    yield "zero_to_fp32.py cannot convert such a checkpoint: it looks for masters in the optim_states files."
    lost = sum(file.bytes for file in asked.files() if not file.loaded)
    if lost:
        yield f"States too small to be swapped ({show_size(lost)} a rank) are saved, but not loaded again by DeepSpeed."


def _findings(operations: Sequence[Operation], loading: Sequence[Loading], room: float) -> Iterator[Finding]:
    """What does not fit into the host memory of a node, or only just."""
    for each in operations:
        if not each.fits:
            message = f"To {each.operation} takes {show_size(each.host_peak_bytes)} of host memory; node 0 has "
            yield Finding("host-memory-saving", "warning", f"{message}{show_size(room)}.", MENDED)
    lacking = [f"{way.way} with {show_size(way.host_peak_bytes)}" for way in loading if not way.fits]
    if lacking:
        message = f"Does not fit into the {show_size(room)} of host memory of a node: {', '.join(lacking)}."
        remedy = "" if any(way.fits for way in loading) else MENDED
        yield Finding("host-memory-loading", "warning", message, remedy)
    peaks = [(each.operation, each.host_peak_bytes) for each in operations]
    peaks += [(way.way, way.host_peak_bytes) for way in loading]
    tight = [f"{name} leaves {show_size(room - peak)}" for name, peak in peaks if TIGHT * room < peak <= room]
    if tight:
        message = f"Of the {show_size(room)} of host memory of a node, {', '.join(tight)} for everything else."
        yield Finding("host-memory-tight", "warning", message, "The operating system needs some, too.")
