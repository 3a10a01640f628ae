"""ZeRO++ and MiCS in a DeepSpeed file: keys that a release has removed, and values that rule each other out.

Source: DeepSpeed 0.19.8 runtime/config.py (`_REMOVED_ZERO_CONFIG_KEYS`), runtime/zero/stage3.py,
partition_parameters.py, utils/groups.py; 0.14.5 runtime/zero/mics.py, mics_utils.py. What depends on the number of GPUs
is asked where it is known; what depends on the model or on nodes is asked again where the program is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.errors import Problem
from zerosim.spec.deepspeed_section import Log, dotted
from zerosim.spec.document import Document
from zerosim.spec.release import Release
from zerosim.spec.strategy import Zero

REMOVED = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")
WITH_MICS = "0.14.5"  # a release that was read
_BESIDE_MICS = ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients")


def rule_out_zeropp(section: Document, zero: Zero, world: int | None, release: Release, log: Log) -> None:
    """Problems and findings of the `section` of a file whose values are `zero`; `world`: GPUs, where that is known."""
    log.problems += _removed(section, release)
    if zero.stage != 3:
        return
    if zero.mics_shard_size > 0:
        log.problems += _of_mics(section, zero, world)
        for key in (key for key in _BESIDE_MICS if key in section.data):
            log.idle(dotted(section, key), "MiCS gathers and reduces in its own way")
    else:
        log.problems += _of_zeropp(section, zero, world)
        if "mics_hierarchical_params_gather" in section.data and release.mics:
            log.idle(dotted(section, "mics_hierarchical_params_gather"), "mics_shard_size switches MiCS off")


def tell_fp16_kernels(section: Document, zero: Zero, wire: str, log: Log) -> None:
    """qgZ hands gradients as they are to kernels that take them for fp16 (csrc/quantization/swizzled_quantize.cu)."""
    if zero.exchanges_gradients and wire != "fp16":
        name = dotted(section, "zero_quantized_gradients")
        message = f"{name}: DeepSpeed's kernels read every gradient as fp16, and these are {wire}."
        log.say("quantized-gradients-are-fp16", "warning", message, 'Set communication_data_type: "fp16".')


def _removed(section: Document, release: Release) -> Iterator[Problem]:
    for key in (key for key in REMOVED if key in section.data and not release.mics):
        expected = f'no such key, or a scenario with versions: {{deepspeed: "{WITH_MICS}"}}'
        yield section.key_problem((key,), f"{key}, which DeepSpeed {release.version} has removed", expected)


def _of_zeropp(section: Document, zero: Zero, world: int | None) -> Iterator[Problem]:
    size = zero.zero_hpz_partition_size
    if size > 1:
        if world is not None and world % min(size, world):
            yield section.problem(("zero_hpz_partition_size",), str(size), f"a number that divides the {world} GPUs")
        if zero.offload_param.device == "nvme":  # torch knows no such device
            expected = "none or cpu with zero_hpz_partition_size"
            yield section.problem(("offload_param", "device"), "nvme", expected)
    if zero.zero_quantized_gradients and not zero.reduce_scatter:
        yield section.problem(("reduce_scatter",), "false", "true with zero_quantized_gradients")


def _of_mics(section: Document, zero: Zero, world: int | None) -> Iterator[Problem]:
    size = zero.mics_shard_size
    if world is not None and world % size:
        yield section.problem(("mics_shard_size",), str(size), f"a number that divides the {world} GPUs")
    if zero.offload_optimizer.device != "none" and (world is None or size < world):
        expected = "none with mics_shard_size below the number of GPUs: it sums gradients on the GPU only"
        yield section.problem(("offload_optimizer", "device"), zero.offload_optimizer.device, expected)
    if zero.offload_param.device != "none":  # NCCL is handed the shards where they are
        expected = "none with mics_shard_size"
        yield section.problem(("offload_param", "device"), zero.offload_param.device, expected)
