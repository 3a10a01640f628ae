"""Model states: bytes of weights, gradients and optimizer states on each GPU of a scenario.

By the ledger's formula alone: nothing is played, and padding, buckets and gathered copies are not counted.
"""

from __future__ import annotations

from zerosim.scenario import Scenario
from zerosim.spec.strategy import DeepSpeed, Fsdp, HierarchicalZero1, Pipeline
from zerosim.step import DTYPE_BYTES
from zerosim.studies.ledger import model_states


def states_on_gpu(scenario: Scenario) -> float:
    """An offloaded optimizer takes its states along, and the gradients but for those that stage 1 accumulates whole."""
    strategy, numel, world = scenario.strategy, scenario.model.numel, scenario.world_size
    weight, gradient, optimizer = _bytes_each(scenario)
    if isinstance(strategy, Fsdp):
        return _shards_on_gpu(scenario, strategy)
    if isinstance(strategy, HierarchicalZero1):
        return model_states(1, numel, strategy.shard_size, (weight, gradient, optimizer))
    if isinstance(strategy, Pipeline):
        return (
            model_states(strategy.zero_stage, numel, scenario.replicas, (weight, gradient, optimizer)) / strategy.stages
        )
    if not isinstance(strategy, DeepSpeed):
        return model_states(0, numel, world, (weight, gradient, optimizer))
    zero = strategy.zero
    if zero.stage and zero.offload_optimizer.device != "none":
        gradient, optimizer = (gradient if zero.stage == 1 else 0), 0
    if zero.stage == 3 and zero.offload_param.device != "none":
        weight = 0
    shards, second = world, min(zero.zero_hpz_partition_size, world)
    if zero.stage == 3 and zero.mics_shard_size > 0:
        shards, second = zero.mics_shard_size, 1
    secondary = weight * numel / second if zero.stage == 3 and second > 1 else 0.0
    return model_states(zero.stage, numel, shards, (weight, gradient, optimizer)) + secondary


def _shards_on_gpu(scenario: Scenario, strategy: Fsdp) -> float:
    """Shards, their gradients and moments in the parameters' dtype (torch steps the shards themselves); gradients that
    `no_sync` accumulates are whole, as they were computed."""
    width, numel = DTYPE_BYTES[strategy.parameter_dtype], scenario.model.numel
    shards = strategy.shards(scenario.world_size, scenario.ranks_per_node)
    kept = 0.0 if strategy.cpu_offload else (2 * width + strategy.optimizer.state_bytes * width / 4) * numel / shards
    accumulated = strategy.no_sync and scenario.training.gradient_accumulation_steps > 1
    return kept + (DTYPE_BYTES[strategy.compute_dtype] * numel if accumulated else 0)


def _bytes_each(scenario: Scenario) -> tuple[int, int, int]:
    """Bytes a parameter of weights, gradients, and of the optimizer with its fp32 master, if it has one."""
    strategy = scenario.strategy
    weight: str
    gradient: str
    if isinstance(strategy, DeepSpeed):
        weight = scenario.training.precision
        gradient = strategy.grad_accum_dtype or weight
        master = weight != "fp32" or strategy.zero.stage > 0
    elif isinstance(strategy, HierarchicalZero1):
        weight = scenario.training.precision
        gradient = "fp32" if strategy.grad_reduce_in_fp32 else weight
        master = weight != "fp32"
    else:
        weight = gradient = strategy.parameter_dtype
        master = weight != "fp32"
    return DTYPE_BYTES[weight], DTYPE_BYTES[gradient], strategy.optimizer.state_bytes + (4 if master else 0)
