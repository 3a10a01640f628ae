"""FSDP2's parameter groups: what one `fully_shard` call gathers and reduces together, and in which state it is.

Source: torch 2.13 torch/distributed/fsdp/_fully_shard/{_fsdp_param,_fsdp_param_group,_fsdp_init}.py. Each parameter is
cut on its first dimension into as many equal pieces as there are ranks, the last ones padded with rows of zeros; a
group's all-gather and reduce-scatter carry the pieces of its parameters, padding and all. After a forward a group is
whole still, cut up again, or cut into fewer, larger pieces for the ranks of a smaller mesh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from zerosim.spec.fully_sharded import Fsdp
from zerosim.spec.model import Parameter
from zerosim.strategies.units import Unit


class State(Enum):
    """TrainingState of a parameter group: which of its hooks was the last."""

    IDLE = 0
    FORWARD = 1
    PRE_BACKWARD = 2
    POST_BACKWARD = 3


class Flight(NamedTuple):
    """An all-gather that was issued: its op, and the buffer it lands in. None where one rank has it all."""

    op: int | None
    output: int | None


@dataclass(slots=True, eq=False)
class ParameterGroup:
    """`shares`: elements of each parameter on a rank. Buffers are None where there is none."""

    unit: Unit
    shares: Mapping[int, int]
    trainable: tuple[int, ...]
    ranks: int  # over which it is sharded
    after_forward: int  # ranks it is resharded to after its forward; 0: it stays whole
    state: State = State.IDLE
    in_backward: bool = False  # its module's pre-hook has run; so a forward now recomputes
    flight: Flight | None = None
    whole: int | None = None  # its parameters
    pieces: int | None = None  # of the smaller mesh
    resharded: int | None = None  # the op that wrote those
    places: list[int] = field(default_factory=list)  # in the order of post-forwards, of forwards that had no backward
    gradients: dict[int, int] = field(default_factory=dict)  # whole ones, by parameter
    widened: int | None = None  # their sums in the dtype they are reduced in
    over: tuple[int, ...] = ()  # ops after which its last reduction is over
    all_reduced: int | None = None  # what that reduced over the replicas, in the dtype it was reduced in

    @property
    def name(self) -> str:
        return self.unit.node.name or "root"

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.unit.parameters

    @property
    def share(self) -> int:
        """Elements on a rank."""
        return sum(self.shares.values())

    @property
    def elements(self) -> int:
        """Of the gathered buffer."""
        return self.ranks * self.share

    @property
    def trainable_share(self) -> int:
        return sum(self.shares[p] for p in self.trainable)


def share_of(parameter: Parameter, ranks: int) -> int:
    """Rows of a rank, the last ranks' padded, times elements of a row."""
    rows, *others = parameter.shape or (1,)
    return math.ceil(rows / ranks) * math.prod(others)


def parameter_groups(
    config: Fsdp, units: Sequence[Unit], parameters: Sequence[Parameter], ranks: int
) -> list[ParameterGroup]:
    """A group for each unit that has parameters."""
    return [
        ParameterGroup(
            unit=unit,
            shares={p: share_of(parameters[p], ranks) for p in unit.parameters},
            trainable=tuple(p for p in unit.parameters if parameters[p].trainable),
            ranks=ranks,
            after_forward=resharded_to(
                config.root_reshard_after_forward if unit.root else config.reshard_after_forward, ranks
            ),
        )
        for unit in units
        if unit.parameters
    ]


def resharded_to(reshard_after_forward: bool | int, ranks: int) -> int:
    """Ranks of the mesh after a forward, 0 where there is none (`_get_post_forward_mesh_info`: 1 stands for False)."""
    if isinstance(reshard_after_forward, bool):
        return ranks if reshard_after_forward else 0
    return 0 if reshard_after_forward == 1 else reshard_after_forward
