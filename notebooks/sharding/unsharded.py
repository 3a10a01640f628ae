"""Training without any sharding: the yardstick of every sharded run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from sharding.arithmetic import Adam, Array, State, clip_factor, mean, rounding
from sharding.network import Ids, Pass, first_weights, leaves
from zerosim.spec.model import Model
from zerosim.spec.training import Training

Order = Literal["ranks first", "micro-batches first", "all at once"]


def train_unsharded(model: Model, training: Training, text: Ids, order: Order, clipping: float = 0.0) -> list[float]:
    """The loss of each step, on one device that adds the gradients in the given order.

    `all at once` is one batch of everything. The others go micro-batch by micro-batch of each rank, as if in turn, and
    average over the ranks either first or after the sum over micro-batches.
    """
    adam, store = Adam(), rounding(training.precision)
    states = [State.of(weights) for weights in first_weights(model)]
    losses = []
    for number, batch in enumerate(text, 1):
        weights = [store(state.master) for state in states]
        loss, gradients = _gradients(model, training.precision, weights, batch, order)
        squares = sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients)
        for state, gradient in zip(states, gradients, strict=True):
            adam.update(state, gradient * clip_factor(squares, clipping), number)
        losses.append(loss)
    return losses


def _gradients(model: Model, dtype: str, weights: list[Array], batch: Ids, order: Order) -> tuple[float, list[Array]]:
    if order == "all at once":
        loss, gradients = _one_pass(model, dtype, weights, batch.reshape(-1, 2), 1.0)
        return loss, gradients
    passes = [[_one_pass(model, dtype, weights, tokens, 1 / len(batch)) for tokens in ranks] for ranks in batch]
    loss = float(np.mean([loss for ranks in passes for loss, _ in ranks]))
    table = [[gradients for _, gradients in ranks] for ranks in passes]
    if order == "ranks first":
        averages = [_each(mean, ranks, dtype) for ranks in table]
        return loss, _each(_total, averages, dtype)
    totals = [_each(_total, [ranks[rank] for ranks in table], dtype) for rank in range(len(table[0]))]
    return loss, _each(mean, totals, dtype)


def _each(
    combine: Callable[[Sequence[Array], str], Array], gradients: Sequence[list[Array]], dtype: str
) -> list[Array]:
    return [combine(several, dtype) for several in zip(*gradients, strict=True)]


def _total(gradients: Sequence[Array], dtype: str) -> Array:
    """Added up as micro-batches come, rounded each time."""
    total = gradients[0]
    for gradient in gradients[1:]:
        total = rounding(dtype)(total + gradient)
    return total


def _one_pass(model: Model, dtype: str, weights: list[Array], tokens: Ids, scale: float) -> tuple[float, list[Array]]:
    shaped = [array.reshape(parameter.shape) for array, parameter in zip(weights, model.parameters, strict=True)]
    layers, run, gradients = [*leaves(model).values()], Pass(tokens, scale), {}
    for leaf in layers:
        run.forward(leaf, [shaped[p] for p in leaf.parameters])
    for leaf in reversed(layers):
        found = run.backward(leaf, [shaped[p] for p in leaf.parameters])
        gradients.update(dict(zip(leaf.parameters, found, strict=True)))
    return run.loss, [rounding(dtype)(gradients[p].ravel()) for p in range(len(weights))]
