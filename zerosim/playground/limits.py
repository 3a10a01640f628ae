"""How large a step may be that is played while someone waits.

A page is turned by hand: what takes longer than some seconds belongs on the command line, which has no such limits.
"""

from __future__ import annotations

from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.step import Step

MOST_PASSES = 2_560  # layers x micro-steps: about 60 ops each, so that all are written in some two seconds
MOST_OPS = 160_000  # of all programs together: about six seconds to play and to look at
MOST_GPUS = 65_536
MOST_TOKENS = 2**27  # of a GPU in a micro-step: ten times the longest contexts, thousands of the usual sequences
BESIDE = "on this page; `zerosim run` plays longer steps"


def check_size(scenario: Scenario) -> None:
    """InputError where the programs would be too long to be written."""
    layers, micro_steps = scenario.model.layers, scenario.training.gradient_accumulation_steps
    if scenario.world_size > MOST_GPUS:
        name = "nodes" if scenario.gpus is None else "gpus"
        raise _too_much(name, f"{scenario.world_size} GPUs", f"at most {MOST_GPUS:,} GPUs {BESIDE}")
    sequences, length = scenario.training.micro_batch_size, scenario.training.sequence_length
    if sequences * length > MOST_TOKENS:
        name, other, value = (
            ("sequence_length", sequences, length) if length > sequences else ("micro_batch_size", length, sequences)
        )
        raise _too_much(f"training.{name}", str(value), f"at most {MOST_TOKENS // other:,} {BESIDE}")
    if layers * micro_steps > MOST_PASSES:
        expected = f"at most {MOST_PASSES // layers} for {layers} layers {BESIDE}"
        raise _too_much("training.gradient_accumulation_steps", str(micro_steps), expected)


def check_programs(scenario: Scenario, steps: tuple[Step, ...]) -> None:
    """InputError where they are too long to be played, or ranks are of too many kinds to play each."""
    kinds, written = len(scenario.topology.rank_classes()), sum(len(step.ops) for step in steps)
    if kinds * written > MOST_OPS:
        found = f"{written:,} ops" + (f" for each of {kinds} kinds of ranks" if kinds > 1 else "")
        raise _too_much("topology" if kinds > 1 else "model", found, f"at most {MOST_OPS:,} ops in all {BESIDE}")


def _too_much(path: str, found: str, expected: str) -> InputError:
    return InputError([Problem("zerosim play", path, found, expected)])
