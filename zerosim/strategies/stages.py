"""A model cut into the stages of a pipeline: each stage is a model of its own, a run of consecutive blocks.

What comes before the first block (embeddings) is on the first stage, what comes after the last (norm, head, loss) on
the last, and what stands between two blocks stays with the one before it. Blocks are spread so that the stages hold as
equal a number of parameters as they can. A tied parameter is on every stage that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from zerosim.spec.model import Function, Model, Module

Pieces = dict[int, Module | Function]  # by stage


def cut(model: Model, stages: int) -> tuple[Model, ...]:
    """The model of each stage."""
    blocks, first, last = _weights(model)
    counts = spread(blocks, stages, first, last)
    stage_of = [stage for stage, count in enumerate(counts) for _ in range(count)]
    roots = _Cutter(stage_of).pieces(model.root)
    return tuple(replace(_stage(model, roots[stage], n), input_gradient=stage > 0) for stage, n in enumerate(counts))


def spread(blocks: Sequence[int], stages: int, first: int = 0, last: int = 0) -> tuple[int, ...]:
    """How many consecutive blocks each stage gets: at least one, and the least sum of squares of the stages' weights.

    `blocks`: weight of each; `first` and `last`: what else is on the first and on the last stage. Of equal solutions
    the one with the most blocks on early stages.
    """
    before = [0, *accumulate(blocks)]
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # by blocks given away: squares, and counts so far
    for stage in range(stages):
        more = (first if stage == 0 else 0) + (last if stage == stages - 1 else 0)
        ends = range(stage + 1, len(blocks) - (stages - stage - 1) + 1) if stage < stages - 1 else [len(blocks)]
        best = {
            end: min(
                (
                    (squares + (before[end] - before[start] + more) ** 2, (*counts, end - start))
                    for start, (squares, counts) in best.items()
                    if start < end
                ),
                key=lambda found: (found[0], [-count for count in found[1]]),
            )
            for end in ends
        }
    return best[len(blocks)][1]


def shared_parameters(stages: Sequence[Model]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Parameters that are on several stages, and on which."""
    places: dict[str, list[int]] = {}
    for stage, model in enumerate(stages):
        for parameter in model.parameters:
            places.setdefault(parameter.name, []).append(stage)
    return ((name, tuple(where)) for name, where in places.items() if len(where) > 1)


def _weights(model: Model) -> tuple[list[int], int, int]:
    """Parameters of each block, of what is before the first and of what is after the last."""
    blocks: list[int] = []
    first = last = 0
    inside: set[str] = set()
    for module in model.root.walk():
        if module.block:
            inside.update(below.name for below in module.walk())
            blocks.append(sum(p.numel for below in module.walk() for p in below.parameters))
        elif module.name not in inside:
            own = sum(parameter.numel for parameter in module.parameters)
            first, last = (first, last + own) if blocks else (first + own, last)
    return blocks, first, last


@dataclass(slots=True)
class _Cutter:
    """Goes through the tree in call order and deals its parts out to stages."""

    stage_of: Sequence[int]  # by block
    passed: int = 0  # blocks so far

    def pieces(self, part: Module | Function) -> Pieces:
        if isinstance(part, Module) and part.block:
            self.passed += 1
        elif isinstance(part, Module) and part.body:
            return self._divided(part)
        return {self.stage_of[max(self.passed - 1, 0)]: part}

    def _divided(self, module: Module) -> Pieces:
        """A container of each stage that has some of its parts; its own parameters are where it begins."""
        bodies: dict[int, list[Module | Function]] = {}
        for child in module.body:
            for stage, piece in self.pieces(child).items():
                bodies.setdefault(stage, []).append(piece)
        begins = min(bodies)
        return {
            stage: replace(module, body=tuple(body), parameters=module.parameters if stage == begins else ())
            for stage, body in bodies.items()
        }


def _stage(model: Model, root: Module | Function, blocks: int) -> Model:
    assert isinstance(root, Module)
    names = {parameter.name for module in root.walk() for parameter in module.parameters}
    held = tuple(parameter for parameter in model.parameters if parameter.name in names)
    return replace(model, root=root, parameters=held, layers=blocks, notes=())
