"""Training sharded over simulated ranks, driven by the program that `zerosim ops` prints.

The ops of a step are taken in the order of issue, each on all ranks before the next. A kernel of a layer runs that
layer on each rank's own tokens, with the weights that lie whole on it at that moment; a collective is done in numpy on
the gradients or weights it names; the optimizer updates what the rank owns. Nothing is done that no op asks for, and
what an op asks for must be there, else WrongProgramError says what is not. Of a strategy only its layout is known here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sharding.arithmetic import Adam, Array, clip_factor, rounding
from sharding.collectives import all_gather, all_reduce, reduce, reduce_scatter
from sharding.layouts import Sharded, WrongProgramError, layout_of, room
from sharding.network import Ids, Leaf, Pass, first_weights, leaves
from sharding.optimizer_ops import is_norm, updates_of
from sharding.rank import Rank, laid, places
from zerosim.spec.model import Model
from zerosim.spec.strategy import Ddp, DeepSpeed
from zerosim.spec.training import Training
from zerosim.step import Collective, Op, Slice, Step
from zerosim.strategies import build

FORWARD, BACKWARD, RECOMPUTE = "fwd", "bwd", "recompute"  # how an op's name ends
CONTROL = ("int32", "int64")  # collectives of these types carry neither weights nor gradients


def program(strategy: Sharded, model: Model, training: Training, ranks: int) -> Step:
    """What `zerosim ops` prints."""
    return build(strategy, model, training, ranks)[0]


def train_sharded(
    strategy: Sharded, model: Model, training: Training, text: Ids, step: Step | None = None
) -> list[float]:
    """The loss of each step, by the strategy's program or by another `step`."""
    ranks = text.shape[2]
    run = ShardedTraining(strategy, model, training, step or program(strategy, model, training, ranks), ranks)
    return [run.step(batch) for batch in text]


class ShardedTraining:
    """All ranks, op by op."""

    def __init__(self, strategy: Sharded, model: Model, training: Training, step: Step, ranks: int) -> None:
        self.model, self.program, self.adam = model, step, Adam()
        self.dtype = training.precision if isinstance(strategy, DeepSpeed) else strategy.parameter_dtype
        self.clipping = 0.0 if isinstance(strategy, Ddp) else strategy.gradient_clipping
        self.micro_batches = training.gradient_accumulation_steps
        self.leaves = leaves(model)
        self.layout = layout_of(strategy, model, step, ranks)
        self.ranks = [Rank(first_weights(model), owned, self.dtype) for owned in self.layout.owned]
        self.updates = updates_of(step, strategy.optimizer.traffic_bytes, self.layout.owned)
        self.norms = sum(is_norm(op, len(model.parameters)) for op in step.ops)
        self.places = {p for buffer in step.resident for p in step.buffers[buffer].parameters}
        for rank in self.ranks:
            rank.whole = {p: rank.shards[p].copy() for p in self.places}
        self.steps = 0

    def step(self, batch: Ids) -> float:
        """Play the program on a batch [micro-batch, rank, position, 2]; the mean loss."""
        self.batch, self.steps = batch, self.steps + 1
        self.losses: list[float] = []
        self.squares: list[float] = []  # of the gradients, one number for each norm that is reduced
        self.fresh: dict[int, npt.NDArray[np.bool_]] = {}  # elements of gradients that are not reduced
        self.played = (0, "")
        for op in self.program.ops:
            self.places.update(p for buffer in op.acquires for p in self.program.buffers[buffer].parameters)
            self._play(op)
            for p in (p for buffer in op.releases for p in self.program.buffers[buffer].parameters):
                self._drop(p)
        return float(np.mean(self.losses))

    def _play(self, op: Op) -> None:
        name, _, direction = op.name.rpartition(" ")
        if name in self.leaves and direction in (FORWARD, BACKWARD, RECOMPUTE):
            if self.played != (op.micro_batch, op.name):  # a layer may be several kernels
                self.played = op.micro_batch, op.name
                self._layer(self.leaves[name], direction, op.micro_batch)
        elif isinstance(op.work, Collective):
            self._communicate(op, op.work)
        elif op.number in self.updates:
            self._update(op)

    # --- layers ------------------------------------------------------------------------------------------------------

    def _layer(self, leaf: Leaf, direction: str, micro_batch: int) -> None:
        if direction == FORWARD and leaf == next(iter(self.leaves.values())):
            self._start(micro_batch)
        for rank in self.ranks:
            weights = [self._weights(rank, p) for p in leaf.parameters]
            if direction == FORWARD:
                rank.run.forward(leaf, weights)
            elif direction == BACKWARD:
                gradients = rank.run.backward(leaf, weights)
                for p, gradient in zip(leaf.parameters, gradients, strict=True):
                    self._arrive(rank, p, rounding(self.dtype)(gradient.ravel()))
        if direction == FORWARD and leaf.kind == "loss":
            self.losses += [rank.run.loss for rank in self.ranks]
        elif direction == BACKWARD:
            self.fresh |= {p: np.ones(len(self.ranks[0].gradients[p]), bool) for p in leaf.parameters}

    def _start(self, micro_batch: int) -> None:
        if micro_batch - 1 in self.program.reductions:
            self._must_be_reduced()
        for rank, tokens in zip(self.ranks, self.batch[micro_batch], strict=True):
            rank.run = Pass(tokens, 1 / self.micro_batches)

    def _weights(self, rank: Rank, p: int) -> Array:
        if p not in self.places or p not in rank.whole:
            raise WrongProgramError(f"{self.model.parameters[p].name} is used and not there")
        return rank.whole[p].reshape(self.model.parameters[p].shape)

    def _arrive(self, rank: Rank, p: int, gradient: Array) -> None:
        """A gradient that is not reduced in every micro-batch adds up."""
        if p not in self.fresh:
            rank.gradients[p] = gradient
        elif self.fresh[p].all():
            rank.gradients[p] = rounding(self.dtype)(rank.gradients[p] + gradient)
        else:
            name = self.model.parameters[p].name
            raise WrongProgramError(f"a part of the gradient of {name} was reduced before it was complete")

    def _drop(self, p: int) -> None:
        self.places.discard(p)
        for rank in self.ranks:
            rank.whole.pop(p, None)

    # --- collectives -------------------------------------------------------------------------------------------------

    def _communicate(self, op: Op, work: Collective) -> None:
        if op.reduces:
            self._reduce(op, work)
        elif op.gathers:
            self._gather(op, work)
        elif is_norm(op, len(self.model.parameters)):
            self._norm(op)
        elif work.dtype == "uint8":
            if not all(np.isfinite(part).all() for rank in self.ranks for part in rank.reduced):
                raise WrongProgramError("a gradient overflows")
        elif work.dtype not in CONTROL:
            raise WrongProgramError(f"{op.name} moves {work.elements} elements, and nothing says which")

    def _reduce(self, op: Op, work: Collective) -> None:
        for p, start, stop in op.reduces:
            if p not in self.fresh or not self.fresh[p][start:stop].all():
                raise WrongProgramError(f"the gradient of {self.model.parameters[p].name} is reduced and not there")
            self.fresh[p][start:stop] = False
            if not self.fresh[p].any():
                del self.fresh[p]
        if work.kind == "reduce_scatter":
            self._reduce_scatter(op, work)
            return
        buffers = [np.concatenate([rank.gradients[p][a:b] for p, a, b in op.reduces]) for rank in self.ranks]
        _same(op, work.elements, len(buffers[0]))
        rooted = work.kind == "reduce"
        received = reduce(buffers, work.dtype, self._owner(op.reduces)) if rooted else all_reduce(buffers, work.dtype)
        for rank, values in zip(self.ranks, received, strict=True):
            rank.keep(op.reduces, values, self.dtype)

    def _reduce_scatter(self, op: Op, work: Collective) -> None:
        chunks = self.layout.chunks([p for p, _, _ in op.reduces])
        _same(op, work.elements, sum(room(chunk) for chunk in chunks))
        buffers = [np.concatenate([laid(rank.gradients, chunk) for chunk in chunks]) for rank in self.ranks]
        received = reduce_scatter(buffers, work.dtype)
        for rank, chunk, values in zip(self.ranks, chunks, received, strict=True):
            for piece, offset in places(chunk):
                rank.keep([piece], values[offset:], self.dtype)

    def _owner(self, slices: Sequence[Slice]) -> int:
        """The one rank in whose partition all of them lie."""
        for number, rank in enumerate(self.ranks):
            owned = {p: (start, stop) for (p, start, stop), _ in rank.owned}
            if all(p in owned and owned[p][0] <= start and stop <= owned[p][1] for p, start, stop in slices):
                return number
        raise WrongProgramError("gradients of several owners are reduced to one")

    def _gather(self, op: Op, work: Collective) -> None:
        """Also where it is an all-reduce of buffers that are 0 but for the rank's own shard."""
        chunks = self.layout.chunks(op.gathers)
        _same(op, work.elements, sum(room(chunk) for chunk in chunks))
        if work.dtype != self.dtype:
            raise WrongProgramError(f"{op.name} carries {work.dtype}, weights are {self.dtype}")
        shards = [laid(rank.shards, chunk) for rank, chunk in zip(self.ranks, chunks, strict=True)]
        for rank, buffer in zip(self.ranks, all_gather(shards), strict=True):
            for p in op.gathers:
                rank.whole[p] = np.zeros_like(rank.shards[p])
            start = 0
            for chunk in chunks:
                for (p, low, high), offset in places(chunk):
                    rank.whole[p][low:high] = buffer[start + offset : start + offset + high - low]
                start += room(chunk)

    # --- the optimizer -----------------------------------------------------------------------------------------------

    def _norm(self, op: Op) -> None:
        """Of all that a rank owns, or where there are as many norms as updates, of what one of them updates."""
        self._must_be_reduced()
        if self.norms not in (1, len(self.updates)):
            raise WrongProgramError(f"{self.norms} norms for {len(self.updates)} parts of the optimizer")
        parts = [[slice(None)] * len(self.ranks)] if self.norms == 1 else [*self.updates.values()]
        part = parts[len(self.squares)]
        squares = [rank.squares(pieces) for rank, pieces in zip(self.ranks, part, strict=True)]
        self.squares.append(float(np.mean(squares) if self.layout.replicated else np.sum(squares)))

    def _update(self, op: Op) -> None:
        self._must_be_reduced()
        if len(self.squares) != self.norms or (self.clipping and not self.norms and not self.layout.replicated):
            raise WrongProgramError(f"{op.name} before the norm of all gradients is known")
        for rank, pieces in zip(self.ranks, self.updates[op.number], strict=True):
            squares = sum(self.squares) if self.squares else rank.squares(pieces)
            factor = clip_factor(squares, self.clipping)
            for ((p, start, stop), _), state in zip(rank.owned[pieces], rank.states[pieces], strict=True):
                self.adam.update(state, rank.reduced[p][start:stop] * factor, self.steps)
                rank.shards[p][start:stop] = rounding(self.dtype)(state.master)
                rank.reduced[p][start:stop] = 0
                if p in rank.whole:
                    rank.whole[p][start:stop] = rank.shards[p][start:stop]

    def _must_be_reduced(self) -> None:
        if self.fresh:
            name = self.model.parameters[min(self.fresh)].name
            raise WrongProgramError(f"the gradient of {name} is not reduced")


def _same(op: Op, said: int, found: int) -> None:
    if said != found:
        raise WrongProgramError(f"{op.name} is of {said} elements, what it names of {found}")
