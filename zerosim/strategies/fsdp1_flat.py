"""FSDP1's flat parameters: how long they are, what a rank has of them, which of them train.

Source: torch/distributed/fsdp/_flat_param.py, _init_utils.py. A flat parameter is trainable as a whole. Where a unit
mixes trainable and frozen parameters (`use_orig_params` alone lets it) all of them have a gradient, which is reduced,
and so does all that is computed from them; the optimizer is given the trainable ones only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zerosim.errors import InputError, Problem
from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.model import Function, Model, Module
from zerosim.spec.training import Training
from zerosim.step import DTYPE_BYTES
from zerosim.strategies.flat import padded
from zerosim.strategies.network import Network, compile_network
from zerosim.strategies.units import Unit, units

ALIGNMENT = 16  # bytes; _get_aligned_numel: with use_orig_params each parameter begins at a multiple of it


@dataclass(frozen=True, slots=True)
class FlatParameter:
    """`elements` of the unit's, `padded` as it is gathered, `shard` of a rank, `stepped` of those by its optimizer."""

    elements: int
    padded: int
    shard: int
    stepped: int
    trains: bool


def flat_parameter(
    unit: Unit, network: Network, frozen: frozenset[int], config: Fsdp, ranks: int, sharded: bool
) -> FlatParameter:
    """In a group of `ranks`, which share it (`sharded`) or have it each. `frozen`: what the optimizer is not given."""
    elements, numels = 0, network.numels
    step = ALIGNMENT // DTYPE_BYTES[config.compute_dtype] if config.use_orig_params else 1
    for parameter in unit.parameters:
        elements = padded(elements, step) + numels[parameter]
    if config.use_orig_params:
        elements = padded(elements, ranks)  # the padding is a part of it, shared or not
    parts = ranks if sharded else 1
    shard = -(-elements // parts)
    own = [numels[p] for p in unit.parameters if p not in frozen]
    stepped = shard if len(own) == len(unit.parameters) else -(-sum(own) // parts)
    trains = any(network.trainable[p] for p in unit.parameters)
    return FlatParameter(elements, shard * parts, shard, stepped, trains)


def trained_whole(config: Fsdp, model: Model, training: Training) -> Model:
    """The model as autograd sees it: parameters of a unit are all trainable if one is. InputError where torch refuses
    to flatten them."""
    network = compile_network(model, training)
    trainable = network.trainable
    mixed = [unit for unit in units(network, config.wrap) if len({trainable[p] for p in unit.parameters}) > 1]
    if mixed and not config.use_orig_params:
        name = mixed[0].node.name or "the root"
        expected = f"true where a unit, as {name} is, has both frozen and trainable parameters"
        raise InputError([Problem("", "use_orig_params", "false", expected)])
    names = frozenset(network.names[p] for unit in mixed for p in unit.parameters)
    if not names:
        return model
    parameters = tuple(replace(p, trainable=p.trainable or p.name in names) for p in model.parameters)
    return replace(model, root=_trained(model.root, names), parameters=parameters)


def _trained(module: Module, names: frozenset[str]) -> Module:
    body: tuple[Module | Function, ...] = tuple(
        _trained(part, names) if isinstance(part, Module) else part for part in module.body
    )
    own = tuple(replace(p, trainable=p.trainable or p.name in names) for p in module.parameters)
    return replace(module, body=body, parameters=own)
