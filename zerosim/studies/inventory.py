"""What there is to choose from: names, and beside each a line of facts for who does not know them.

Rule: facts are read from what the name stands for, never written here a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from zerosim.catalog.hardware import drives, gpus, nics, sockets
from zerosim.spec.devices import Gpu
from zerosim.spec.model_file import catalogue_model, model_names
from zerosim.spec.topology_facts import in_a_line
from zerosim.spec.topology_file import named_topology, topology_names
from zerosim.units import show_count, show_flops, show_rate, show_size

Kind = Literal["models", "topologies", "devices", "strategies"]

STRATEGIES = {  # key of `strategy` in a scenario, and what it does; a stage is that of zero_optimization
    "ddp": "everything on every GPU, all-reduce behind backward (torch)",
    "deepspeed, stage 0": "everything on every GPU, one all-reduce after the last backward",
    "deepspeed, stage 1": "optimizer states sharded over the GPUs",
    "deepspeed, stage 2": "optimizer states and gradients sharded",
    "deepspeed, stage 3": "optimizer states, gradients and parameters sharded",
    "deepspeed, ZeRO++": "stage 3 with zero_hpz_partition_size, zero_quantized_weights, _gradients",
    "deepspeed, MiCS": "stage 3 within mics_shard_size GPUs, replicas all-reduce (release 0.14.5)",
    "fsdp, FULL_SHARD": "parameters, gradients, optimizer states sharded, blocks gathered twice (torch)",
    "fsdp, SHARD_GRAD_OP": "the same, but gathered parameters are kept for backward",
    "fsdp, HYBRID_SHARD": "FULL_SHARD within a node, replicas all-reduce; _HYBRID_SHARD_ZERO2 keeps them",
    "fsdp, NO_SHARD": "everything on every GPU, an all-reduce for each block",
    "fsdp, version 2": "fully_shard: reshard_after_forward true, false or ranks; mesh [replicas, ranks]",
    "hierarchical_zero1": "optimizer states sharded over shard_size GPUs only (megatron or internevo)",
    "pipeline": "blocks spread over the GPUs; schedule naive, gpipe or 1f1b; zero_stage 0 or 1",
}


class Entry(NamedTuple):
    """A name and what it stands for."""

    name: str
    facts: str


def names(what: Kind) -> list[str]:
    """The names of a kind, in the order of `inventory`."""
    known: Mapping[Kind, Callable[[], Iterable[str]]] = {
        "models": model_names,
        "topologies": topology_names,
        "devices": lambda: [*sorted(gpus()), *sorted(sockets()), *sorted(nics()), *sorted(drives())],
        "strategies": lambda: STRATEGIES,
    }
    return list(known[what]())


def inventory(what: Kind) -> list[Entry]:
    """The names of a kind, each with its facts."""
    facts: Mapping[Kind, Callable[[str], str]] = {
        "models": _model,
        "topologies": lambda name: in_a_line(named_topology(name)),
        "devices": _device,
        "strategies": STRATEGIES.__getitem__,
    }
    return [Entry(name, facts[what](name)) for name in names(what)]


def _model(name: str) -> str:
    model = catalogue_model(name)
    layers = f"{model.layers} layers, hidden {model.hidden}, {model.heads} heads, vocabulary {model.vocabulary}"
    return f"{show_count(model.numel)} parameters: {layers}"


def _device(name: str) -> str:
    """A GPU, a CPU, a network port or a drive; their names do not overlap."""
    if name in gpus():
        return _gpu(gpus()[name])
    if name in sockets():
        cpu = sockets()[name]
        return f"CPU: {cpu.figures.cores} cores, memory {show_rate(cpu.dram_bandwidth)}"
    if name in nics():
        port = nics()[name]
        moved = show_rate(port.figures.efficiency * port.bandwidth, bits=True)
        return f"NIC of kind {port.kind}: {show_rate(port.bandwidth, bits=True)}, of which collectives move {moved}"
    drive = drives()[name]
    return f"NVMe: read {show_rate(drive.read)}, write {show_rate(drive.write)}"


def _gpu(gpu: Gpu) -> str:
    memory = f"{show_size(gpu.memory_bytes)} at {show_rate(gpu.memory_bandwidth)}"
    return f"{gpu.name}: {show_flops(gpu.peak_flops['fp16'])} dense fp16, {memory}"
